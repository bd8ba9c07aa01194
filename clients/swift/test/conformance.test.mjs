// The cases of clients/conformance over real sockets. All cases run in virtual time, too: Tests/WeirTests/ConformanceTests.swift.

import { test } from "node:test";
import { overSockets } from "../../conformance/sockets.mjs";
import { drive } from "./driver.mjs";

test("over real sockets", { concurrency: true }, async (t) => {
  const process = drive();
  t.after(() => process.end());
  await overSockets(t, (server, kept, hear) => process.begin({ server, zone: "Z", kept }, hear));
});
