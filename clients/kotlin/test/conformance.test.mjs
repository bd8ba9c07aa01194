// The cases of clients/conformance over real sockets, for both ways to send requests. All cases run in virtual time, too:
// src/test/kotlin/weir/client/ConformanceTest.kt.

import { test } from "node:test";
import { overSockets } from "../../conformance/sockets.mjs";
import { drive } from "./driver.mjs";

/// The JDK's HttpURLConnection shows no reply of 401 to a request that it may not repeat. That of Android does.
const has401 = ({ steps }) => steps.some(({ reply }) => reply?.problem?.status === 401);

for (const [http, isLeftOut] of [["jvm", () => false], ["android", has401]]) {
  test(`over real sockets, as on ${http}`, { concurrency: true }, async (t) => {
    const jvm = drive();
    t.after(() => jvm.end());
    await overSockets(t, (server, kept, hear) => jvm.begin({ server, zone: "Z", http, kept }, hear), isLeftOut);
  });
}
