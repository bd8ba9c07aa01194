// Driven clients against a running Weir.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Weir, until, zone } from "../../tests/browser/weir.mjs";

const QUICK = { admit_per_minute: 600, polling_period_ms: 500, idle_timeout_s: 10 };
const HELD = zone("TEST_ZONE", { ...QUICK, mode: "hold" });
export const OPEN = zone("TEST_ZONE", QUICK);

/// Declares the tests. `start` starts a process of clients, as driver.mjs does. `kinds` are the fields that choose a kind of client.
export function withARunningWeir(start, kinds = [{}]) {
  for (const kind of kinds) {
    const suffix = Object.values(kind).map((name) => `, as on ${name}`).join("");
    test(`a place survives a crash of the server and a new process, and leads to the entry${suffix}`, async (t) => {
      const weir = await Weir.start(t, { config: HELD });
      await weir.crowd(t, "TEST_ZONE", 2);
      const process = start();
      t.after(() => process.end());
      const which = { server: weir.url, zone: "TEST_ZONE", ...kind };
      const first = process.begin(which);
      await until("the place is known", () => first.state.rank === 3);
      await weir.kill();
      await until("it says that the network is away", () => first.state.trouble?.code === "offline");
      assert.equal(first.state.rank, 3, "and still shows the place");
      await weir.up();
      await until("it goes on", () => first.state.kind === "waiting" && first.state.trouble === null);
      first.stop();
      const second = process.begin({ ...which, kept: first.stored });
      await until("the next one has the same place", () => second.state.rank === 3);
      weir.configure(OPEN);
      weir.signal("SIGHUP");
      await until("it enters", () => second.state.kind === "entered");
      assert.equal(JSON.parse(Buffer.from(second.state.pass.split(".")[1], "base64url")).zone, "TEST_ZONE");
    });
  }

  test("a place that is left is free, and its token is gone", async (t) => {
    const weir = await Weir.start(t, { config: HELD });
    const process = start();
    t.after(() => process.end());
    const place = process.begin({ server: weir.url, zone: "TEST_ZONE", ...kinds[0] });
    await until("the place is known", () => place.state.kind === "waiting" && place.stored !== null);
    const { token } = JSON.parse(place.stored);
    await place.leave();
    await until("the server knows it", async () => (await weir.ask("/traffic/entry", { zoneId: "TEST_ZONE", token })).body.code === "gone");
  });

  test("an unknown zone ends the place with the words of the server", async (t) => {
    const weir = await Weir.start(t, { config: HELD });
    const process = start();
    t.after(() => process.end());
    const nowhere = process.begin({ server: weir.url, zone: "NOWHERE", ...kinds[0] });
    await until("it ends", () => nowhere.state.kind === "ended");
    assert.equal(nowhere.state.trouble.code, "unknown_zone");
    assert.equal(nowhere.state.trouble.action, "give up");
  });
}
