// A place in virtual time: what the conformance cases cannot say, because it concerns this package's own calls, storage and streams.

import assert from "node:assert/strict";
import { test } from "node:test";
import { built } from "./built.mjs";
import { World, settle } from "./world.mjs";

const { NoEntry, native, node, wait } = await built("index");

const KEY = "weir https://weir.test/ Z";
const waiting = (token = "t1", more = {}) => ({ waiting: { token, rank: 2, pollingPeriod: 1_000, ...more } });
const entered = { entered: { token: "t9", pass: "p" } };
const nothing = { raw: { status: 204, type: "text/plain", body: "" } };
const gone = { problem: { status: 410, code: "gone" } };

/// A world whose server replies as `replies` say, in order; the last one repeats.
function worldOf(...replies) {
  let count = 0;
  return new World(() => replies[Math.min(count++, replies.length - 1)]);
}

const begin = (world, more = {}) => wait({ server: "https://weir.test", zone: "Z", platform: world.platform(more) });
const asked = (world) => world.calls.map(({ call, body }) => `${call} ${body?.token ?? ""}`.trim());

test("refuses what is no zone and no address", () => {
  const platform = worldOf(entered).platform();
  for (const [options, says] of [
    [{ server: "https://weir.test", zone: "" }, /zone must be/],
    [{ server: "weir.test", zone: "Z" }, /server must be an address/],
    [{ server: "javascript:alert(1)", zone: "Z" }, /server must be an address/],
    // `fetch` refuses the first one, and the others lose what they say.
    [{ server: "https://user:word@weir.test", zone: "Z" }, /server must be/],
    [{ server: "https://weir.test?a=1", zone: "Z" }, /server must be/],
    [{ server: "https://weir.test/#x", zone: "Z" }, /server must be/],
  ]) {
    assert.throws(() => wait({ ...options, platform }), { name: "TypeError", message: says });
  }
});

test("keeps the path of the server's address", async () => {
  const world = new World(() => entered);
  let address;
  const { fetch, ...rest } = world.platform();
  wait({ server: "https://shop.test/queue", zone: "Z", platform: { ...rest, fetch: (to, request) => fetch((address = to), request) } });
  await settle();
  assert.equal(address, "https://shop.test/queue/traffic/wait");
});

test("nobody has made progress before a draw, and the receipt of a place is asked for with its newest token", async () => {
  const undrawn = (rank, token) => waiting(token, { rank, etaSeconds: null, etaRange: null, reason: "draw" });
  const told = [undrawn(1, "t1"), undrawn(600, "t2"), waiting("t3", { rank: 400 }), waiting("t4", { rank: 200 })];
  const receipt = { raw: { status: 200, type: "application/json", body: '{"place":7}' } };
  const none = { problem: { status: 404, code: "no_draw" } };
  let count = 0;
  const world = new World(({ call }) => {
    if (call === "/draws/Z/a%3Ab/receipt") return receipt;
    return call.endsWith("/receipt") ? none : told[Math.min(count++, told.length - 1)];
  });
  const place = begin(world);
  await assert.rejects(place.receipt("sale"), { code: "no_place" });
  const progress = [];
  place.subscribe((state) => progress.push(state.progress));
  while (progress.length < told.length) await world.run(100);
  assert.deepEqual(progress.slice(0, 2), [0, 0]);
  assert.ok(progress[2] > 0 && progress[2] < 0.01, "it starts from the place that was drawn");
  assert.ok(progress[3] > 0.49, "and goes on");
  assert.equal(await place.receipt("a:b"), '{"place":7}');
  assert.deepEqual(world.calls.at(-1).body, { zoneId: "Z", token: "t4" });
  await assert.rejects(place.receipt("sale"), { code: "no_draw" });
  place.stop();
});

test("a place that is stopped at once makes no call", async () => {
  const world = worldOf(waiting());
  begin(world).stop();
  await world.run(60_000);
  assert.deepEqual(world.calls, []);
});

test("a place that is stopped during its first call is found by the next one", async () => {
  let answer;
  const world = new World(({ call }) => (call === "wait" ? new Promise((done) => (answer = done)) : entered));
  const first = begin(world);
  await settle();
  first.stop();
  answer(waiting("t1"));
  await settle();
  const second = begin(world);
  const { pass } = await second.entry();
  assert.equal(pass, "p");
  assert.deepEqual(asked(world), ["wait", "entry t1"]);
});

test("a first reply that comes after the user left and took another place gives up its own", async () => {
  const answers = [];
  const world = new World(({ call }) => {
    if (call === "leave") return nothing;
    return call === "wait" && answers.length === 0 ? new Promise((done) => answers.push(done)) : waiting("t2");
  });
  const place = begin(world);
  await settle();
  place.leave();
  place.anew();
  await world.run(500);
  assert.equal(place.state.kind, "waiting");
  answers[0](waiting("t1"));
  await world.run(100);
  assert.deepEqual(asked(world), ["wait", "wait", "leave t1"]);
});

test("leaving and taking a new place in one step leaves one loop", async () => {
  const world = new World(({ call }) => (call === "leave" ? nothing : waiting(call === "wait" ? "t1" : "t2")));
  const place = begin(world);
  await world.run(1_500);
  // The poll is on its way, or the pause runs: both must end.
  for (let i = 0; i < 5; i += 1) {
    place.leave();
    place.anew();
  }
  world.calls.length = 0;
  await world.run(20_000);
  const polls = world.calls.filter(({ call }) => call === "entry").length;
  assert.ok(polls >= 19 && polls <= 22, `${polls} polls in 20 periods`);
  assert.equal(world.calls.filter(({ call }) => call === "wait").length, 1, "the new place");
});

test("entry() tells the pass, or why there is none", async () => {
  assert.deepEqual(await begin(worldOf(entered)).entry(), { pass: "p", again: false });
  await assert.rejects(begin(worldOf(gone)).entry(), (fault) => fault instanceof NoEntry && fault.state.trouble.code === "gone");
  const left = begin(worldOf(waiting()));
  const of_left = assert.rejects(left.entry(), { name: "NoEntry", message: "left" });
  left.leave();
  await of_left;
  await assert.rejects(left.entry(), { message: "left" });
  const stopped = begin(worldOf(waiting()));
  const of_stopped = assert.rejects(stopped.entry(), (fault) => fault.state === null);
  stopped.stop();
  await of_stopped;
  await assert.rejects(stopped.entry(), (fault) => fault.state === null);
});

test("a stopped place says nothing and asks nothing", async () => {
  const world = worldOf(waiting());
  const place = begin(world);
  const states = [];
  place.subscribe((state) => states.push(state.kind));
  await settle();
  place.stop();
  place.leave();
  place.anew();
  await world.run(600_000);
  assert.deepEqual([states, asked(world)], [["waiting"], ["wait"]]);
});

test("a listener that left hears no more", async () => {
  const world = worldOf(waiting());
  const place = begin(world);
  let count = 0;
  const leave = place.subscribe(() => (count += 1));
  await settle();
  leave();
  await world.run(10_000);
  assert.equal(count, 1);
});

test("a storage that refuses everything costs only the place after a reload", async () => {
  const refuse = () => {
    throw new Error("blocked");
  };
  const later = async () => refuse();
  for (const storage of [{ get: refuse, set: refuse, remove: refuse }, { get: later, set: later, remove: later }]) {
    const world = worldOf(waiting("t1"), waiting("t2"), gone, entered);
    const place = begin(world, { storage });
    await world.run(5_000);
    assert.equal(place.state.kind, "ended");
    place.anew();
    await settle();
    assert.deepEqual(asked(world), ["wait", "entry t1", "entry t2", "wait"]);
  }
});

test("a storage that never answers costs some seconds, and the place after a reload", async () => {
  const never = () => new Promise(() => {});
  for (const storage of [{ get: never, set: never, remove: never }, { get: () => null, set: never, remove: never }, { get: async () => null, set: never, remove: never }]) {
    const world = worldOf(waiting("t1"), waiting("t2"), waiting("t3"), gone, waiting("t4"));
    const place = begin(world, { storage });
    await world.run(10_000);
    assert.equal(place.state.kind, "ended", JSON.stringify(place.state));
    const [joinedAt, ...polledAt] = world.calls.map(({ atMs }) => atMs);
    assert.ok(joinedAt <= 3_000, `it took a place after ${joinedAt} ms`);
    assert.ok(polledAt[0] - joinedAt <= 4_000 && polledAt[2] - polledAt[0] <= 2_000, `polls at ${polledAt}`);
    place.anew();
    await world.run(100);
    assert.deepEqual(asked(world), ["wait", "entry t1", "entry t2", "entry t3", "wait"]);
    place.leave();
    await settle();
    assert.equal(asked(world).at(-1), "leave t4");
  }
});

test("a storage that can be read and not written is not asked again and again", async () => {
  const refuse = () => {
    throw new Error("the disk is full");
  };
  const of = (fields) => JSON.stringify({ token: "t0", heard: 1_700_000_000_000, ...fields });
  for (const text of [of({ heard: 1 }), of({ entered: true }), of({})]) {
    const world = new World(({ call, body }) => (call === "entry" && body.token === "t0" ? gone : waiting("t1")));
    const place = begin(world, { storage: { get: (key) => (key === KEY ? text : null), set: refuse, remove: refuse } });
    await settle();
    if (place.state.kind === "ended") place.anew();
    await world.run(2_500);
    assert.equal(place.state.kind, "waiting", text);
    assert.deepEqual(asked(world), ["entry t0", "wait", "entry t1", "entry t1"], text);
  }
});

test("a storage with room for the key and not for the place does not bring a pass back as a new one", async () => {
  for (const before of [null, JSON.stringify({ token: "t0", heard: 1_700_000_000_000 })]) {
    const world = worldOf(entered);
    const { storage } = world.platform();
    if (before) world.stored.set(KEY, before);
    const set = (key, text) => {
      if (key === KEY) throw new Error("the quota is exceeded");
      storage.set(key, text);
    };
    for (let start = 0; start < 2; start += 1) {
      const place = begin(world, { storage: { ...storage, set } });
      await settle();
      assert.equal(place.state.kind, "entered");
      place.stop();
    }
    const keys = world.calls.map(({ body }) => body.idempotencyKey).filter(Boolean);
    assert.deepEqual(asked(world), [before ? "entry t0" : "wait", "wait"], "the second start takes a new place");
    assert.equal(new Set(keys).size, keys.length);
  }
});

test("a place that the storage does not let go is asked for once", async () => {
  for (const fields of [{ entered: true }, { heard: 1 }]) {
    const text = JSON.stringify({ token: "t0", heard: 1_700_000_000_000, ...fields });
    const world = new World(({ call, body }) => (call === "entry" && body.token === "t0" ? gone : waiting("t1")));
    begin(world, { storage: { get: (key) => (key === KEY ? text : null), set: () => {}, remove: () => {} } });
    await world.run(500);
    assert.deepEqual(asked(world), ["entry t0", "wait"], text);
  }
});

test("a listener that throws is reported, and costs nothing else", async () => {
  // What is thrown in a task of its own is an uncaught error, which a browser and Node report.
  const [reported, { queueMicrotask }] = [[], globalThis];
  globalThis.queueMicrotask = (run) =>
    queueMicrotask(() => {
      try {
        run();
      } catch (fault) {
        reported.push(fault.message);
      }
    });
  try {
    const world = worldOf(waiting("t1"), waiting("t2"), entered);
    const place = begin(world);
    place.subscribe(({ kind }) => {
      throw new Error(kind);
    });
    const entry = place.entry();
    await world.run(2_500);
    assert.deepEqual(await entry, { pass: "p", again: false });
    assert.deepEqual(asked(world), ["wait", "entry t1", "entry t2"], "the next poll comes when the server said");
    assert.deepEqual(reported, ["waiting", "waiting", "entered"]);
  } finally {
    globalThis.queueMicrotask = queueMicrotask;
  }
});

/// A storage that takes 30 ms for each call.
function slow(world) {
  const { storage, timer } = world.platform();
  const later = (act) => new Promise((done) => timer(30, () => done(act())));
  const { get, set, remove } = storage;
  return { get: (key) => later(() => get(key)), set: (key, text) => later(() => set(key, text)), remove: (key) => later(() => remove(key)) };
}

test("whoever leaves while the storage is read sends no wait afterwards", async () => {
  for (const leaveAt of [5, 35, 65, 95, 125]) {
    const world = new World(({ call }) => (call === "leave" ? nothing : waiting(call === "wait" ? "t1" : "t2")));
    const place = begin(world, { storage: slow(world) });
    await world.run(leaveAt);
    place.leave();
    place.anew();
    await world.run(900);
    assert.equal(place.state.kind, "waiting", `left after ${leaveAt} ms`);
    const keys = world.calls.filter(({ call }) => call === "wait").map(({ body }) => body.idempotencyKey);
    assert.equal(new Set(keys).size, keys.length, `left after ${leaveAt} ms: each place has a key of its own`);
  }
});

test("whoever leaves before the storage was read gives up the place that it has", async () => {
  const text = JSON.stringify({ token: "t0", heard: 1_700_000_000_000 });
  for (const [storageOf, leaveAt] of [[slow, null], [slow, 0], [slow, 5], [(world) => world.platform().storage, null]]) {
    const world = new World(({ call }) => (call === "leave" ? nothing : waiting("t1")));
    world.stored.set(KEY, text);
    const place = begin(world, { storage: storageOf(world) });
    // `null`: in the task that began the place.
    if (leaveAt !== null) await world.run(leaveAt);
    place.leave();
    assert.equal(place.state.kind, "left");
    await world.run(2_000);
    assert.deepEqual([asked(world), [...world.stored.keys()]], [["leave t0"], []], `left after ${leaveAt} ms`);
    place.anew();
    await world.run(200);
    assert.deepEqual([place.state.kind, asked(world)], ["waiting", ["leave t0", "wait"]]);
  }
});

test("a page that is loaded again while it takes a place takes that one, for a while", async () => {
  const key = ({ body }) => body.idempotencyKey;
  for (const [pauseMs, isSame] of [[2_000, true], [99_000, true], [120_000, false], [-2_000, true], [-60_000, false]]) {
    const world = worldOf("silent");
    begin(world);
    await settle();
    world.deviceOffset += pauseMs;
    begin(world);
    await settle();
    const [first, second] = world.calls;
    assert.equal(key(first) === key(second), isSame, `${pauseMs} ms`);
  }
});

test("a key whose place ended unseen is sent no more, also if the storage does not let it go", async () => {
  for (const remove of [() => {}, () => {
    throw new Error("blocked");
  }]) {
    const world = worldOf(gone, gone, waiting("t1"));
    world.stored.set(`${KEY} key`, `old-key-of-a-lost-reply ${1_700_000_000_000}`);
    const { storage } = world.platform();
    const place = begin(world, { storage: { ...storage, remove } });
    await world.run(10_000);
    assert.deepEqual([place.state.kind, place.state.trouble.code], ["ended", "gone"], "the second refusal is the user's");
    const [first, second] = world.calls.map(({ body }) => body.idempotencyKey);
    assert.equal(first, "old-key-of-a-lost-reply");
    assert.notEqual(second, first);
    assert.equal(world.calls.length, 2);
  }
});

test("a key in the storage ends with the taking of the place", async () => {
  const world = worldOf(waiting("t1"), gone, entered);
  const place = begin(world);
  await settle();
  assert.deepEqual([...world.stored.keys()], [KEY]);
  await world.run(2_000);
  place.anew();
  await settle();
  assert.deepEqual([...world.stored.keys()], [KEY]);
  const [first, , second] = world.calls;
  assert.notEqual(first.body.idempotencyKey, second.body.idempotencyKey);
});

test("without good randomness a place has no key", async () => {
  const throws = () => {
    throw new Error("not implemented");
  };
  for (const key of [() => null, throws]) {
    const world = worldOf("lost", entered);
    begin(world, { key });
    await world.run(2_000);
    assert.deepEqual(world.calls.map(({ body }) => body), [{ zoneId: "Z" }, { zoneId: "Z" }]);
  }
});

test("a machine with another crypto, or none, has no good randomness", (t) => {
  const { key } = node();
  assert.match(key(), /^[0-9a-z]{28}$/);
  const own = Object.getOwnPropertyDescriptor(globalThis, "crypto");
  t.after(() => Object.defineProperty(globalThis, "crypto", own));
  for (const value of [undefined, null, {}, { subtle: {} }]) {
    Object.defineProperty(globalThis, "crypto", { configurable: true, value });
    assert.equal(key(), null);
  }
});

test("a place begins where URL has nothing but href, as in React Native up to 0.79", async (t) => {
  const own = globalThis.URL;
  t.after(() => (globalThis.URL = own));
  class Bare {
    constructor(text) {
      this.href = text.endsWith("/") ? text : `${text}/`;
    }
  }
  for (const name of ["protocol", "username", "password", "search", "hash", "host", "origin", "pathname"]) {
    Object.defineProperty(Bare.prototype, name, {
      get() {
        throw new Error("not implemented");
      },
    });
  }
  const platform = worldOf(entered).platform({ fetch: () => new Promise(() => {}) });
  globalThis.URL = Bare;
  wait({ server: "https://weir.test/queue", zone: "Z", platform }).stop();
  for (const server of ["weir.test", "ftp://weir.test", "https://user@weir.test", "https://weir.test/?a=1", "https://weir.test/#x"]) {
    assert.throws(() => wait({ server, zone: "Z", platform }), /server must be an address/, server);
  }
});

test("texts in the storage that are no places are ignored", async () => {
  for (const text of ["", "null", "[]", "{", '{"token":5,"heard":1}', '{"token":"t1"}', '"t1"']) {
    const world = worldOf(entered);
    world.stored.set(KEY, text);
    begin(world);
    await settle();
    assert.deepEqual(asked(world), ["wait"], text);
  }
});

test("damaged figures in the storage are not shown, and damaged tokens not sent", async () => {
  const figures = { token: "t1", heard: 1_700_000_000_000, rank: 3, progress: "abc", first: "q", eta: ["a", null, {}], opens_ms: "x" };
  const world = worldOf(waiting("t2", { etaSeconds: 9, etaRange: [8, 12] }));
  world.stored.set(KEY, JSON.stringify(figures));
  const place = begin(world);
  await settle();
  assert.deepEqual([place.state.rank, place.state.eta, place.state.opensInMs], [2, { low: 8, seconds: 9, high: 12 }, 0]);
  assert.ok(place.state.progress >= 0 && place.state.progress <= 1, `${place.state.progress}`);
  for (const token of ["x".repeat(5_000), "\ud800", "a b", "", 5, null]) {
    const world = worldOf(entered);
    world.stored.set(KEY, JSON.stringify({ token, heard: 1_700_000_000_000 }));
    begin(world);
    await settle();
    assert.deepEqual(asked(world), ["wait"], JSON.stringify(token).slice(0, 20));
  }
});

test("figures in the storage are checked as those of a reply are", async () => {
  const good = { rank: 5, first: 9, progress: 0.5, eta: [-3, 2, 9], reason: "unsure", opens_ms: 0, period_ms: 500, stock: null };
  const texts = { remaining: { A: 3 } };
  const bad = [{ rank: -5 }, { rank: 1e300 }, { rank: "5" }, { first: -1 }, { progress: 99 }, { progress: -1 }, { eta: [1, 2] }, { eta: [1e300, 1, 2] }];
  const worse = [{ opens_ms: -1 }, { period_ms: "soon" }, { stock: "<b>" }, { stock: texts }];
  for (const damage of [{}, ...bad, ...worse]) {
    const world = worldOf("lost");
    world.stored.set(KEY, JSON.stringify({ token: "t0", heard: 1_700_000_000_000, ...good, ...damage }));
    const place = begin(world);
    await settle();
    const isShown = Object.keys(damage).length === 0;
    assert.deepEqual([asked(world)[0], place.state.kind], ["entry t0", isShown ? "waiting" : "joining"], JSON.stringify(damage));
  }
  const world = worldOf("lost");
  const odd = { reason: { a: 1 }, stale: "no", beyond_stock: "x", eta: "abc" };
  world.stored.set(KEY, JSON.stringify({ token: "t0", heard: 1_700_000_000_000, ...good, ...odd }));
  const { reason, stale, beyondStock, eta } = await new Promise((done) => begin(world).subscribe(done));
  assert.deepEqual([reason, stale, beyondStock, eta], [null, false, false, null]);
});

test("a slow storage does not bring an old place back", async () => {
  const world = worldOf(waiting("t1"), gone, waiting("t2"), entered);
  const later = (act) => new Promise((done) => world.platform().timer(300, () => done(act())));
  const { get, set, remove } = world.platform().storage;
  const storage = {
    get: async (key) => get(key),
    set: (key, text) => later(() => set(key, text)),
    remove: (key) => later(() => remove(key)),
  };
  const place = begin(world, { storage });
  await world.run(4_000);
  assert.equal(place.state.kind, "ended");
  place.anew();
  await world.run(4_000);
  assert.deepEqual(asked(world), ["wait", "entry t1", "wait", "entry t2"]);
});

test("a page that a browser restores after the entry lets the user decide", async () => {
  const world = worldOf(entered, entered, gone, waiting("t2"));
  const place = begin(world);
  await world.run(0);
  assert.equal(place.state.again, false);
  world.signal("restored");
  await world.run(0);
  assert.deepEqual([place.state.kind, place.state.again], ["entered", true]);
  world.signal("restored");
  await world.run(0);
  assert.equal(place.state.kind, "waiting", "the pass has expired, and a new place was taken");
});

test("the page's beacon carries the last word, and a call, whose reply can be read, says it again", async () => {
  const world = new World(({ call }) => (call === "leave" ? nothing : waiting("t1")));
  const sent = [];
  const place = begin(world, { beacon: (address, text) => void sent.push([address, JSON.parse(text)]) });
  await settle();
  place.leave();
  assert.deepEqual(sent, [["https://weir.test/traffic/leave", { zoneId: "Z", token: "t1" }]]);
  assert.deepEqual(asked(world), ["wait", "leave t1"]);
});

test("the last call of a page goes on while it closes, and needs no permission of another origin first", async () => {
  const world = new World(({ call }) => (call === "leave" ? nothing : waiting("t1")));
  const { fetch, ...rest } = world.platform();
  const kinds = [];
  const watched = (address, request) => {
    kinds.push([request.keepalive ?? false, request.headers["content-type"]]);
    return fetch(address, request);
  };
  const place = wait({ server: "https://weir.test", zone: "Z", platform: { ...rest, fetch: watched } });
  await settle();
  place.leave();
  await settle();
  assert.deepEqual(kinds, [[false, "application/json"], [true, "text/plain"]]);
});

test("leaving is told again until Weir has heard it, also after the place was stopped, and not for ever", async () => {
  const away = { problem: { status: 503, code: "store_away" }, headers: { "retry-after": "2" } };
  const longAway = { problem: { status: 503, code: "store_away" }, headers: { "retry-after": "3600" } };
  const portal = { raw: { status: 200, type: "text/html", body: "<h1>Welcome</h1>" } };
  const full = { problem: { status: 403, code: "foreign_origin" } };
  for (const [replies, calls] of [
    [[away, nothing], 2],
    [["lost", portal, "silent", away, nothing], 5],
    [[away, gone], 2],
    [[full], 1],
    [[longAway], 1],
    [["lost"], 6],
  ]) {
    let count = 0;
    const world = new World(({ call }) => (call === "leave" ? replies[Math.min(count++, replies.length - 1)] : waiting("t1")));
    const place = begin(world);
    await settle();
    place.leave();
    place.stop();
    await world.run(3_600_000);
    assert.deepEqual(asked(world), ["wait", ...Array(calls).fill("leave t1")], JSON.stringify(replies));
  }
});

test("without a beacon, or with one that throws, a call gives up the place", async () => {
  const refuse = () => {
    throw new TypeError("sendBeacon is not a function");
  };
  for (const beacon of [undefined, refuse]) {
    const world = new World(({ call }) => (call === "leave" ? nothing : waiting("t1")));
    const place = begin(world, { beacon });
    await settle();
    place.leave();
    await settle();
    assert.deepEqual([place.state.kind, asked(world)], ["left", ["wait", "leave t1"]]);
  }
});

test("no call follows a redirect, which would send the token to another host", async () => {
  const open = source();
  const world = new World(({ call }) => (call === "stream" ? { stream: iterable(open) } : call === "leave" ? nothing : waiting("t1")));
  const { fetch, ...rest } = world.platform({ streams: true });
  const follows = new Map();
  const watched = (address, request) => {
    follows.set(new URL(address).pathname, request.redirect);
    return fetch(address, request);
  };
  const place = wait({ server: "https://weir.test", zone: "Z", platform: { ...rest, fetch: watched } });
  await world.run(0);
  open.end();
  await world.run(0);
  place.receipt("sale").catch(() => {});
  await settle();
  place.leave();
  await settle();
  const paths = ["/traffic/wait", "/traffic/stream", "/traffic/entry", "/draws/Z/sale/receipt", "/traffic/leave"];
  assert.deepEqual([...follows], paths.map((path) => [path, "manual"]));
});

test("an app of React Native asks when it comes to the front and a poll is due", async () => {
  let change;
  const appState = { addEventListener: (_, hear) => ((change = hear), { remove: () => (change = null) }) };
  const world = worldOf(waiting("t1", { pollingPeriod: 3_000 }), entered);
  const kept = new Map();
  const asyncStorage = {
    getItem: async (key) => kept.get(key) ?? null,
    setItem: async (key, text) => void kept.set(key, text),
    removeItem: async (key) => void kept.delete(key),
  };
  const { storage, signals } = native(appState, asyncStorage);
  const place = begin(world, { storage, signals });
  await settle();
  change("active");
  await settle();
  assert.deepEqual(asked(world), ["wait"], "no poll is due");
  // The system froze the app: its timers stood still, and the device's clock went on.
  world.deviceOffset += 5_000;
  change("background");
  await settle();
  assert.deepEqual(asked(world), ["wait"], "not in the background");
  change("active");
  await settle();
  assert.deepEqual(asked(world), ["wait", "entry t1"]);
  assert.equal(JSON.parse(kept.get(KEY)).token, "t9");
  place.stop();
  assert.equal(change, null, "it listens no more");
});

const event = (name, data, id) => `${id ? `id: ${id}\n` : ""}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
const told = (rank, more = {}) => ({ rank, etaSeconds: 9, etaRange: [5, 15], pollingPeriod: 1_000, stale: false, ...more });

/// A stream whose texts a test sends.
function source() {
  const waiters = [];
  const texts = [];
  let isOver = false;
  return {
    send: (text) => (waiters.length ? waiters.shift()({ done: false, value: text }) : texts.push(text)),
    end() {
      isOver = true;
      for (const waiter of waiters.splice(0)) waiter({ done: true });
    },
    [Symbol.asyncIterator]: () => ({
      next: () => (texts.length ? { done: false, value: texts.shift() } : isOver ? { done: true } : new Promise((done) => waiters.push(done))),
      then: undefined,
    }),
  };
}
const iterable = (made) => ({ [Symbol.asyncIterator]: () => ({ next: async () => made[Symbol.asyncIterator]().next() }) });

test("a stream tells the place and the entry, and its token is in no address", async () => {
  const open = source();
  const world = new World(({ call }) => (call === "stream" ? { stream: iterable(open) } : waiting("t1")));
  const place = begin(world, { streams: true });
  await world.run(0);
  open.send(": still here\n\n" + event("wait", told(2), "t2").slice(0, 20));
  await world.run(0);
  open.send(event("wait", told(2), "t2").slice(20) + event("wait", told(1), "t3"));
  await world.run(0);
  assert.equal(place.state.rank, 1);
  assert.equal(JSON.parse(world.stored.get(KEY)).token, "t3");
  open.send(event("enter", { canEnter: true, token: "t4", pass: "p" }, "t4"));
  await world.run(0);
  assert.deepEqual([place.state.kind, place.state.pass], ["entered", "p"]);
  assert.deepEqual(asked(world), ["wait", "stream"], "no poll beside the stream");
  const [, stream] = world.calls;
  assert.deepEqual([stream.headers["last-event-id"], stream.search], ["t1", "?zone=Z"]);
});

test("a stream that ends is opened again with the newest token, when the server says", async () => {
  const opened = [];
  const world = new World(({ call }) => (call === "stream" ? { stream: iterable((opened.push(source()), opened.at(-1))) } : waiting("t1")));
  begin(world, { streams: true });
  await world.run(0);
  opened[0].send(`retry: 2500\n\n${event("wait", told(2), "t2")}${event("reconnect", {})}`);
  opened[0].end();
  await world.run(2_400);
  assert.equal(opened.length, 1);
  await world.run(800);
  assert.equal(opened.length, 2);
  assert.equal(world.calls.at(-1).headers["last-event-id"], "t2");
});

/// A stream that sends one text and ends.
function lines(text) {
  const open = source();
  open.send(text);
  open.end();
  return { stream: iterable(open) };
}

test("a stream that says absurd pauses is not opened again at once, nor after hours", async () => {
  for (const [retry, least, most] of [["1", 100, 125], ["0", 100, 125], ["-5", 1_000, 1_250], ["1e3", 1_000, 1_250], ["99999999", 15_000, 18_750]]) {
    const world = new World(({ call }) => (call === "stream" ? lines(`retry: ${retry}\n\n${event("wait", told(2), "t2")}`) : waiting("t1")));
    begin(world, { streams: true });
    await world.run(20_000);
    const [first, second] = world.calls.filter(({ call }) => call === "stream");
    const pauseMs = second.atMs - first.atMs;
    assert.ok(pauseMs >= least && pauseMs <= most, `retry: ${retry} gave ${pauseMs} ms`);
  }
});

test("streams that do not last are opened more and more rarely, and then the place polls", async () => {
  const far = told(2, { pollingPeriod: 30_000 });
  const waits = event("wait", far, "t2");
  const enters_not = event("enter", { canEnter: false, token: "t2", waiting: { ...far, pollingPeriod: 0 } });
  for (const text of [waits, waits + event("reconnect", {}), enters_not, waits + enters_not]) {
    const world = new World(({ call }) => (call === "stream" ? lines(text) : waiting("t1", { pollingPeriod: 30_000 })));
    begin(world, { streams: true });
    await world.run(600_000);
    const streams = world.calls.filter(({ call }) => call === "stream").length;
    const silences = world.calls.map(({ atMs }, i) => (world.calls[i + 1]?.atMs ?? world.now) - atMs);
    assert.ok(streams <= 13 && world.calls.length <= 40, `${streams} streams, and ${world.calls.length} calls in ten minutes`);
    assert.ok(Math.max(...silences) <= 30_000, `silent for ${Math.max(...silences)} ms`);
  }
});

test("a stream that lasted is opened again as told, however often it is cut", async () => {
  let end;
  const world = new World(({ call }) => {
    if (call !== "stream") return waiting("t1");
    const open = source();
    open.send(event("wait", told(2, { pollingPeriod: 10_000 }), "t2"));
    end = () => open.end();
    return { stream: iterable(open) };
  });
  begin(world, { streams: true });
  for (let i = 0; i < 10; i += 1) {
    await world.run(11_000);
    const before = end;
    end();
    await world.run(1_300);
    assert.notEqual(end, before, "it is open again");
  }
});

test("a stream that is silent, says nothing, or never ends an event is given up for polls", async () => {
  for (const [name, play, within_ms] of [
    ["silent", () => {}, 12_000],
    ["ends at once", (open) => open.end(), 0],
    ["without an end of its event", (open) => open.send("x".repeat(70_000)), 0],
    ["no JSON", (open) => open.send("event: wait\ndata: {\n\n"), 0],
  ]) {
    const open = source();
    const world = new World(({ call }) => (call === "stream" ? { stream: iterable(open) } : waiting("t1")));
    begin(world, { streams: true });
    await world.run(0);
    play(open);
    await world.run(within_ms + 30_000);
    const count = (call) => world.calls.filter((seen) => seen.call === call).length;
    assert.equal(count("stream"), 1, `${name}: one stream in a minute`);
    assert.ok(count("entry") >= 29, `${name}: ${count("entry")} polls in 30 s`);
    await world.run(40_000);
    assert.equal(count("stream"), 2, `${name}: it tries again after a minute`);
  }
});

test("a stream that is kept alive without events is given up for polls", async () => {
  const minute = { pollingPeriod: 30_000 };
  const cases = [
    ["only comments", "", ":\n\n", 1_000],
    ["half an event", "event: wait\ndata: {", ":", 1_000],
    ["no events of Weir", "", "event: other\ndata: 1\n\n", 1_000],
    ["one event, and then comments", event("wait", told(2), "t2"), ":\n\n", 1_000],
    ["one event, and then nothing", event("wait", told(2), "t2"), "", 1_000],
    ["only comments, where a place lasts for 10 s", "", ":\n\n", 3_333],
    ["one event of a long period, and then comments", event("wait", told(2, minute), "t2"), ":\n\n", 30_000],
  ];
  for (const [name, first, again, periodMs] of cases) {
    const open = source();
    const world = new World(({ call }) => (call === "stream" ? { stream: iterable(open) } : waiting("t1", { pollingPeriod: periodMs })));
    begin(world, { streams: true });
    await world.run(0);
    open.send(first);
    for (let ms = 0; ms < periodMs + 40_000; ms += 1_000) {
      await world.run(1_000);
      if (again) open.send(again);
    }
    const polls = world.calls.filter(({ call }) => call === "entry").map(({ atMs }) => atMs);
    // A zone keeps a silent place for 10 s, and for three periods, at least.
    assert.ok(polls[0] >= periodMs && polls[0] < Math.max(10_000, 3 * periodMs), `${name}: the first poll after ${polls[0]} ms`);
    assert.ok(polls.length >= Math.floor(30_000 / periodMs), `${name}: it goes on to poll`);
  }
});

test("a stream with an event in each period is not given up, whatever its period is", async () => {
  const open = source();
  const world = new World(({ call }) => (call === "stream" ? { stream: iterable(open) } : waiting("t1", { pollingPeriod: 60_000 })));
  begin(world, { streams: true });
  await world.run(0);
  for (let ms = 0; ms < 600_000; ms += 5_000) {
    open.send(ms % 60_000 ? ":\n\n" : event("wait", told(2, { pollingPeriod: 60_000 }), "t2"));
    await world.run(5_000);
  }
  assert.deepEqual(asked(world), ["wait", "stream"]);
});

test("a stream whose lines a proxy ends with CR, or with CR and LF, is read, wherever it is cut", async () => {
  const text = `retry: 2500\n\n:\n\n${event("wait", told(2), "t2")}${event("wait", told(1), "t3")}`;
  for (const end of ["\n", "\r\n", "\r"]) {
    const sent = text.replaceAll("\n", end);
    for (let size = 1; size <= sent.length; size += size < 4 ? 1 : 50) {
      const open = source();
      const world = new World(({ call }) => (call === "stream" ? { stream: iterable(open) } : waiting("t1")));
      const place = begin(world, { streams: true });
      const ranks = [];
      place.subscribe(({ rank }) => ranks.push(rank));
      await world.run(0);
      for (let at = 0; at < sent.length; at += size) open.send(sent.slice(at, at + size));
      while (ranks.length < 3 && world.now < 100) await world.run(1);
      assert.deepEqual([ranks, JSON.parse(world.stored.get(KEY)).token], [[2, 2, 1], "t3"], `${JSON.stringify(end)}, ${size} at once`);
      place.stop();
    }
  }
});

test("a refusal of the stream, whoever sends it, leads to polls at once, and says nothing about the place", async () => {
  const page = (status, headers) => ({ raw: { status, type: "text/html", body: "<h1>No</h1>" }, headers });
  for (const refusal of [
    { problem: { status: 429, code: "too_many_streams" }, headers: { "retry-after": "30" } },
    // A proxy that leaves `Last-Event-ID` out makes Weir say this.
    { problem: { status: 400, code: "missing_field" } },
    { problem: { status: 410, code: "gone" } },
    page(503, { "retry-after": "15" }),
    page(429, { "retry-after": "120" }),
    page(404),
    page(403),
    page(502),
    page(302, { location: "/portal" }),
  ]) {
    const world = new World(({ call }) => (call === "stream" ? refusal : waiting("t1")));
    const place = begin(world, { streams: true });
    const troubles = new Set();
    place.subscribe(({ trouble }) => troubles.add(trouble));
    await world.run(59_000);
    const times = (call) => world.calls.filter((seen) => seen.call === call).map(({ atMs }) => atMs);
    const [first, ...polls] = times("entry");
    assert.deepEqual([times("stream").length, first, [...troubles]], [1, 0, [null]], JSON.stringify(refusal));
    assert.ok(polls.length >= 58, `${polls.length} polls in 59 s`);
    await world.run(5_000);
    assert.equal(times("stream").length, 2, "it tries again after a minute");
  }
});

test("a problem in a stream ends the place", async () => {
  const open = source();
  const ends = new World(({ call }) => (call === "stream" ? { stream: iterable(open) } : waiting("t1")));
  const ended = begin(ends, { streams: true });
  await ends.run(0);
  open.send(event("problem", { type: "urn:weir:problem:gone", status: 410, code: "gone", title: "The place was dropped" }));
  await ends.run(0);
  assert.deepEqual([ended.state.kind, ended.state.trouble.code, ended.state.trouble.action], ["ended", "gone", "new place"]);
});

test("a stream ends when the network does, and when the user leaves", async () => {
  for (const act of [(world) => world.signal("offline"), (_, place) => place.leave()]) {
    let isEnded = false;
    const world = new World(({ call }) => (call === "stream" ? { stream: iterable(source()) } : waiting("t1")));
    const { fetch, ...rest } = world.platform({ streams: true });
    const watched = (address, request) => {
      if (address.includes("/stream")) request.signal.addEventListener("abort", () => (isEnded = true));
      return fetch(address, request);
    };
    const place = wait({ server: "https://weir.test", zone: "Z", platform: { ...rest, fetch: watched } });
    await world.run(0);
    assert.equal(isEnded, false);
    act(world, place);
    assert.equal(isEnded, true);
    place.stop();
  }
});
