// Every case of clients/conformance: in virtual time with many random numbers, where each time is judged exactly, and over real sockets.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Script } from "../../conformance/script.mjs";
import { CASES } from "../../conformance/server.mjs";
import { kept, overSockets } from "../../conformance/sockets.mjs";
import { built } from "./built.mjs";
import { World, settle } from "./world.mjs";

const { wait, node } = await built("index");

const SEEDS = 25;
/// The place in the storage.
const PLACE = "weir https://weir.test/ Z";
const DAY_MS = 86_400_000;
/// After a case, a client that is at an end asks nothing for this long.
const QUIET_MS = 3_600_000;

async function virtually(one, seed) {
  const script = new Script(one);
  let place;
  const world = new World(async (seen) => {
    const { call, body, atMs } = seen;
    const step = script.call({ call, body, atMs, isExact: true });
    if (step.user) place[step.user]();
    // The reply is sent at the time at which it was asked for.
    script.replied(atMs);
    return step.reply;
  }, { seed });
  const platform = world.platform();
  if (one.kept) world.stored.set(PLACE, kept(one.kept, platform.deviceMs()));
  if (one.key) world.stored.set(`${PLACE} key`, `${one.key.text} ${platform.deviceMs() - one.key.age_ms}`);
  const states = [];
  place = wait({ server: "https://weir.test", zone: "Z", platform });
  place.subscribe((state) => states.push(state));
  // Actions happen when everything before them has been heard.
  for (let quiet = 0; quiet < 400 && !script.isOver; quiet += 1) {
    await settle();
    for (let step; (step = script.action()); await settle()) {
      if (step.user) place[step.user]();
      if (step.signal) world.signal(step.signal);
      if (step.clock) world.deviceOffset += step.clock.device_ms;
      // Times count from the last thing that happened.
      if (step.signal && !one.slow) script.replied(world.now);
    }
    if (!script.isOver) await world.next(DAY_MS);
  }
  await world.run(QUIET_MS);
  place.stop();
  const faults = script.judge(states, one.states);
  if (states.at(-1).kind !== "joining" && world.stored.has(`${PLACE} key`)) faults.push("it left its key in the storage");
  return faults;
}

for (const one of CASES) {
  test(`in virtual time: ${one.name}`, async () => {
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      const faults = await virtually(one, seed);
      assert.deepEqual(faults, [], `seed ${seed}`);
    }
  });
}

test("over real sockets", { concurrency: true }, (t) => overSockets(t, (address, text, hear) => {
  const stored = new Map(text === null ? [] : [[`weir ${address}/ Z`, text]]);
  const storage = {
    get: (key) => stored.get(key) ?? null,
    set: (key, value) => void stored.set(key, value),
    remove: (key) => void stored.delete(key),
  };
  const place = wait({ server: address, zone: "Z", platform: node(storage) });
  place.subscribe(hear);
  return place;
}));
