// Plays cases to a client over real sockets. Lateness cannot be judged there, and cases that take long or need signals and clocks need
// virtual time.

import assert from "node:assert/strict";
import { CASES, serve } from "./server.mjs";

const REAL = CASES.filter(({ slow, needs = [] }) => !slow && needs.every((need) => need === "storage"));

/// The text in the storage of a place from before.
export function kept({ age_ms, ...place }, deviceMs) {
  return JSON.stringify({ ...place, heard: deviceMs - age_ms });
}

/// Runs all cases that can be run over sockets, side by side, as parts of the test `t`.
/// `begin(address, stored, hear)` begins a client at the server of this address, with a text in its storage or null, and calls `hear` with
/// each state. It returns the client's `leave`, `anew` and `stop`; a promise of `leave` is fulfilled when the client left. Cases for which
/// `isLeftOut` is true are not run.
export async function overSockets(t, begin, isLeftOut = () => false) {
  await Promise.all(REAL.filter((one) => !isLeftOut(one)).map((one) => t.test(one.name, async () => {
    const states = [];
    let client;
    let heard = () => {};
    const more = () => new Promise((done) => (heard = done));
    const act = async ({ user }, call) => {
      // The user acts on what the client said after the last reply. A reply to `leave` makes it say nothing.
      if (call && call !== "leave") await more();
      await client[user]();
    };
    const { address, script, close } = await serve(one, act);
    const isDone = () => script.isOver && states.length >= one.states.length;
    await new Promise((done) => {
      client = begin(address, one.kept ? kept(one.kept, Date.now()) : null, (state) => {
        states.push(state);
        heard();
        if (isDone()) done();
      });
      // Some cases end with a call after the last state. The limit of the test ends what hangs.
      script.ended = () => isDone() && done();
    });
    client.stop();
    await close();
    assert.deepEqual(script.judge(states, one.states), []);
  })));
}
