// Tabs of one person: they share one place and ask like one. First in virtual time, then the parts of a browser that may be missing.

import assert from "node:assert/strict";
import { test } from "node:test";
import { built } from "./built.mjs";
import { World, settle } from "./world.mjs";

const { wait } = await built("index");
const { tabsOf } = await built("tabs");

const waiting = { waiting: { token: "t1", rank: 2, pollingPeriod: 1_000 } };

/// A tab. `more` replaces parts of its platform.
const tab = (world, more = {}) => wait({ server: "https://weir.test", zone: "Z", platform: world.platform({ tabs: world.tabs(), ...more }) });
const open = (world, count, more) => Array.from({ length: count }, () => tab(world, more));
const count = (world, call) => world.calls.filter((seen) => seen.call === call).length;

test("ten tabs take one place and ask like one, and all show it", async () => {
  let rank = 900;
  const world = new World(() => ({ waiting: { token: "t1", rank: (rank -= 1), pollingPeriod: 1_000 } }));
  const tabs = open(world, 10);
  await world.run(30_000);
  assert.equal(count(world, "wait"), 1);
  const polls = count(world, "entry");
  // Each tab asks once at its start.
  assert.ok(polls >= 29 && polls <= 45, `${polls} polls of ten tabs in 30 periods`);
  await settle();
  assert.deepEqual([...new Set(tabs.map(({ state }) => state.rank))], [rank]);
});

test("another tab goes on when the one that asks is closed or frozen", async () => {
  const world = new World(() => waiting);
  const [first, second] = open(world, 2);
  await world.run(5_000);
  first.stop();
  const before = count(world, "entry");
  await world.run(10_000);
  assert.ok(count(world, "entry") - before >= 8, "the second asks");
  assert.equal(second.state.kind, "waiting");
  assert.equal(count(world, "wait"), 1);
});

test("one tab has the stream, and the next one takes over", async () => {
  const silent = { [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => {}) }) };
  const world = new World(({ call }) => (call === "stream" ? { stream: silent } : waiting));
  const [first] = open(world, 3, { streams: true });
  await world.run(900);
  assert.equal(count(world, "stream"), 1);
  first.stop();
  await world.run(2_000);
  assert.equal(count(world, "stream"), 2);
});

test("of tabs that enter together one says so, and the others let the user decide", async () => {
  let isOpen = false;
  let asking = [];
  // Nobody is answered before all ask, so no tab finds the entry in the storage.
  const together = () => new Promise((done) => {
    asking.push(done);
    if (asking.length === 5) for (const answer of asking.splice(0)) answer({ entered: { token: "t2", pass: "p" } });
  });
  const world = new World(() => (isOpen ? together() : waiting));
  const deaf = () => ({ ...world.tabs(), open: () => ({ publish: () => {}, close: () => {} }) });
  const tabs = Array.from({ length: 5 }, () => tab(world, { tabs: deaf() }));
  await world.run(5_000);
  isOpen = true;
  await world.run(5_000);
  assert.deepEqual(tabs.map(({ state }) => state.kind), Array(5).fill("entered"));
  assert.deepEqual(tabs.map(({ state }) => state.again).sort(), [false, true, true, true, true]);
});

test("the other tabs hear of an entry at once, and a new place after it is entered as the first", async () => {
  let isOpen = false;
  const rarely = { waiting: { token: "t1", rank: 2, pollingPeriod: 60_000 } };
  const world = new World(() => (isOpen ? { entered: { token: "t2", pass: "p" } } : rarely));
  let look;
  const [first] = open(world, 1, { signals: (hear) => ((look = hear), () => {}) });
  const [second] = open(world, 1, { signals: () => () => {} });
  await world.run(100);
  isOpen = true;
  // The first one asks, because the device slept and the user looks at it.
  world.deviceOffset += 70_000;
  look("shown");
  await world.run(100);
  assert.deepEqual([first.state.kind, second.state.kind], ["entered", "entered"]);
  assert.deepEqual([first.state.again, second.state.again].sort(), [false, true]);
  const [inside, other] = first.state.again ? [second, first] : [first, second];
  other.stop();
  inside.anew();
  await world.run(100);
  assert.deepEqual([inside.state.kind, inside.state.again], ["entered", false]);
});

/// The parts of a browser without locks, in which `storage` is shared.
function parts(world, more = {}) {
  const platform = world.platform();
  const storage = {
    getItem: (key) => world.stored.get(key) ?? null,
    setItem: (key, text) => void world.stored.set(key, text),
    removeItem: (key) => void world.stored.delete(key),
  };
  const { deviceMs, timer } = platform;
  return { locks: null, channel: null, storageEvents: () => () => {}, storage, deviceMs, random: world.random, timer, ...more };
}

/// A line whose places end when somebody leaves. Their tokens are their numbers.
function line() {
  let taken = 0;
  const over = new Set();
  return new World(({ call, body }) => {
    if (call === "leave") over.add(body.token);
    if (call === "leave") return { raw: { status: 204, type: "text/plain", body: "" } };
    const token = call === "wait" ? `t${(taken += 1)}` : body.token;
    return over.has(token) ? { problem: { status: 410, code: "gone" } } : { waiting: { token, rank: Number(token.slice(1)), pollingPeriod: 1_000 } };
  });
}

test("a tab whose place ended takes over the new one that another tab has, and takes it from nobody", async () => {
  for (const last of ["anew", "leave"]) {
    const world = line();
    const [one, other] = open(world, 2);
    await world.run(2_500);
    one.leave();
    await world.run(2_500);
    assert.equal(other.state.kind, "ended");
    one.anew();
    await world.run(2_500);
    other[last]();
    await world.run(2_500);
    const after = tab(world);
    await world.run(2_500);
    assert.deepEqual([one.state.rank, after.state.rank, count(world, "wait")], [2, 2, 2], last);
    assert.deepEqual([other.state.kind, other.state.rank ?? null], last === "anew" ? ["waiting", 2] : ["left", null]);
  }
});

test("a tab that entered long ago, and leaves, does not take the newer place of another tab", async () => {
  let isOpen = true;
  const world = new World(({ call, body }) => {
    if (call === "leave") return { raw: { status: 204, type: "text/plain", body: "" } };
    return isOpen ? { entered: { token: "t1", pass: "p" } } : { waiting: { token: body.token ?? "t2", rank: 2, pollingPeriod: 1_000 } };
  });
  const [old, other] = open(world, 2);
  await world.run(100);
  isOpen = false;
  other.anew();
  await world.run(2_500);
  old.leave();
  await world.run(100);
  assert.deepEqual(world.calls.filter(({ call }) => call === "leave").map(({ body }) => body.token), ["t1"], "it ends its own visit");
  const after = tab(world);
  await world.run(100);
  assert.deepEqual([other.state.kind, after.state.kind, count(world, "wait")], ["waiting", "waiting", 2]);
  // Without a newer place, nothing is left of the visit.
  isOpen = true;
  await world.run(2_500);
  other.leave();
  await world.run(100);
  assert.equal(world.stored.get("weir https://weir.test/ Z"), undefined);
});

test("both tabs whose place ended get one new place, with one step each", async () => {
  const world = line();
  const [one, other] = open(world, 2);
  await world.run(2_500);
  const third = tab(world);
  await settle();
  third.leave();
  await world.run(3_500);
  assert.deepEqual([one.state.kind, other.state.kind], ["ended", "ended"]);
  one.anew();
  other.anew();
  await world.run(2_500);
  assert.deepEqual([one.state.rank, other.state.rank, count(world, "wait")], [2, 2, 2]);
});

test("without locks, claims in the storage make turns", async () => {
  for (let seed = 1; seed <= 50; seed += 1) {
    const world = new World(() => waiting, { seed });
    const tabs = Array.from({ length: 4 }, () => tab(world, { tabs: tabsOf(parts(world)) }));
    await world.run(30_000);
    assert.equal(count(world, "wait"), 1, `seed ${seed}`);
    assert.deepEqual(tabs.map(({ state }) => state.kind), Array(4).fill("waiting"));
  }
});

test("a tab whose claim another one overwrote waits for its turn", async () => {
  const world = new World(() => waiting);
  const { storage, ...rest } = parts(world);
  let isOverwritten = false;
  const raced = {
    ...storage,
    setItem(key, text) {
      storage.setItem(key, text);
      // The other tab looked before this claim, and writes after it.
      if (!isOverwritten) rest.timer(50, () => storage.setItem(key, `other ${rest.deviceMs()}`));
      isOverwritten = true;
    },
  };
  tab(world, { tabs: tabsOf({ ...rest, storage: raced }) });
  await world.run(5_000);
  assert.equal(count(world, "wait"), 0);
  storage.removeItem("weir https://weir.test/ Z join");
  await world.run(1_000);
  assert.equal(count(world, "wait"), 1);
});

test("a claim of a tab that crashed holds nobody for longer than a call may take", async () => {
  const world = new World(() => waiting);
  world.stored.set("weir https://weir.test/ Z join", `dead ${world.platform().deviceMs()}`);
  tab(world, { tabs: tabsOf(parts(world)) });
  await world.run(19_000);
  assert.equal(count(world, "wait"), 0);
  await world.run(2_000);
  assert.equal(count(world, "wait"), 1);
  assert.equal(world.stored.get("weir https://weir.test/ Z join"), undefined, "the claim is taken back");
});

test("a browser that refuses locks and storage is one tab that polls", async () => {
  const refuse = () => {
    throw new DOMException("refused", "SecurityError");
  };
  const world = new World(() => waiting);
  const storage = { getItem: refuse, setItem: refuse, removeItem: refuse };
  const tabs = tabsOf(parts(world, { locks: { request: async () => refuse() }, channel: refuse, storage }));
  tab(world, { tabs, streams: true, storage: null });
  await world.run(10_000);
  assert.equal(count(world, "wait"), 1);
  assert.equal(count(world, "stream"), 0, "streams need a turn: browsers open few connections");
  assert.ok(count(world, "entry") >= 9);
});

/// Locks as browsers have them, for all tabs of a world.
function lockManager() {
  const held = new Map();
  const request = async (name, { ifAvailable, signal }, act) => {
    if (ifAvailable && signal) throw new DOMException("not both", "NotSupportedError");
    if (ifAvailable && held.has(name)) return act(null);
    while (held.has(name)) {
      const late = new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason)));
      await Promise.race([held.get(name), late]);
    }
    let release;
    held.set(name, new Promise((done) => (release = done)));
    try {
      return await act({ name });
    } finally {
      held.delete(name);
      release();
    }
  };
  return { request, held };
}

test("a tab that stands still while it takes a place holds the others for 20 s, and all take one place", async () => {
  const replies = [];
  let isOpen = false;
  const world = new World(({ call }) => {
    if (call === "wait" && !isOpen) return new Promise((done) => replies.push(done));
    return isOpen === "in" ? { entered: { token: "t2", pass: "p" } } : waiting;
  });
  const locks = lockManager();
  const tabs = () => tabsOf(parts(world, { locks }));
  // While a tab stands still, its timers do, too.
  let isStill = true;
  const { timer } = world.platform();
  const still = tab(world, { tabs: tabs(), timer: (ms, run) => (isStill ? () => {} : timer(ms, run)) });
  await world.run(1_000);
  const others = [tab(world, { tabs: tabs() }), tab(world, { tabs: tabs() })];
  await world.run(19_000);
  assert.equal(count(world, "wait"), 1);
  isOpen = true;
  await world.run(2_000);
  assert.deepEqual(others.map(({ state }) => state.kind), ["waiting", "waiting"]);
  const keys = world.calls.filter(({ call }) => call === "wait").map(({ body }) => body.idempotencyKey);
  assert.deepEqual([...new Set(keys)], [keys[0]], "one key is one place");
  isOpen = "in";
  await world.run(2_000);
  assert.deepEqual(others.map(({ state }) => [state.kind, state.again]).sort(), [["entered", false], ["entered", true]]);
  // The reply to the first call comes at last. The place has gone on since.
  isStill = false;
  replies[0](waiting);
  await world.run(1_000);
  assert.deepEqual([still.state.kind, still.state.again], ["entered", true]);
  assert.equal(JSON.parse(world.stored.get("weir https://weir.test/ Z")).entered, true);
});

test("a turn that was waited for in vain does not end the locks", async () => {
  const world = new World(() => waiting);
  const locks = lockManager();
  const tabs = tabsOf(parts(world, { locks }));
  const never = locks.request("x", {}, () => new Promise(() => {}));
  const late = tabs.inTurn("x", async () => "late");
  await world.run(20_000);
  assert.equal(await late, "late");
  assert.equal(await tabs.ifFree("x", async () => "free"), "taken");
  assert.equal(await Promise.race([never, settle()]), undefined);
});

/// A pass whose `jti` is this, signed anew each time.
let signatures = 0;
const passOf = (jti) => `e30.${Buffer.from(JSON.stringify({ jti, zone: "Zürich ÿ?~" })).toString("base64url")}.${(signatures += 1)}`;

test("a new pass is not said to be an old one while another tab that entered is open, and the same one is", async () => {
  let jti = "one";
  const world = new World(() => ({ entered: { token: jti, pass: passOf(jti) } }));
  const [first] = open(world, 1);
  await world.run(100);
  const [second] = open(world, 1);
  await world.run(100);
  assert.deepEqual([first.state.again, second.state.again], [false, true]);
  jti = "two";
  second.anew();
  await world.run(100);
  assert.deepEqual([second.state.kind, second.state.again], ["entered", false]);
  // The storage was lost, so only the tab that is open knows of the pass.
  world.stored.clear();
  const [third] = open(world, 1);
  await world.run(100);
  assert.deepEqual([third.state.kind, third.state.again], ["entered", true]);
});

test("three streams are open at most, whatever the number of zones, and the other places poll", async () => {
  const text = `event: wait\ndata: ${JSON.stringify({ rank: 2, etaRange: null, pollingPeriod: 1_000 })}\n\n`;
  const next = () => new Promise((done) => world.platform().timer(1_000, () => done({ done: false, value: text })));
  const world = new World(({ call }) => (call === "stream" ? { stream: { [Symbol.asyncIterator]: () => ({ next }) } } : waiting));
  const zones = ["A", "B", "C", "D", "E", "F", "G", "H"];
  const at = (server) => (zone) => wait({ server, zone, platform: world.platform({ tabs: world.tabs(), streams: true }) });
  const places = zones.map(at("https://weir.test"));
  await world.run(10_000);
  const streams = () => world.calls.filter(({ call }) => call === "stream").map(({ search }) => search);
  assert.deepEqual(streams(), ["?zone=A", "?zone=B", "?zone=C"]);
  for (const zone of ["D", "E", "F", "G", "H"]) {
    const polls = world.calls.filter(({ call, body }) => call === "entry" && body.zoneId === zone).length;
    assert.ok(polls >= 9, `${polls} polls of ${zone} in ten periods`);
  }
  places[0].stop();
  await world.run(2_000);
  assert.equal(streams().length, 4, "another place takes over the stream that is free");
  at("https://other.test")("A");
  await world.run(10);
  assert.equal(streams().length, 5, "another Weir has its own");
});

test("a fault inside a turn is not taken for a refusal", async () => {
  const locks = { request: async (_, options, act) => act({}) };
  const tabs = tabsOf(parts(new World(() => waiting), { locks }));
  let runs = 0;
  const fail = async () => {
    runs += 1;
    throw new Error("of the act");
  };
  await assert.rejects(tabs.inTurn("x", fail), { message: "of the act" });
  await assert.rejects(tabs.ifFree("x", fail), { message: "of the act" });
  assert.equal(runs, 2);
});

test("news come by the channel, and by storage events where there is none", async () => {
  const world = new World(() => waiting);
  const heard = [];
  const channels = [];
  const channel = () => {
    const made = {
      postMessage: () => channels.forEach((other) => other !== made && other.hear()),
      addEventListener: (_, hear) => (made.hear = hear),
      close: () => channels.splice(channels.indexOf(made), 1),
    };
    channels.push(made);
    return made;
  };
  let onStorage;
  const storageEvents = (hear) => ((onStorage = hear), () => (onStorage = null));
  const a = tabsOf(parts(world, { channel })).open("k", () => heard.push("a"));
  const b = tabsOf(parts(world, { channel, storageEvents })).open("k", () => heard.push("b"));
  a.publish();
  assert.deepEqual(heard, ["b"]);
  onStorage("k");
  onStorage("other");
  assert.deepEqual(heard, ["b", "b"]);
  b.close();
  a.publish();
  assert.deepEqual([heard.length, channels.length, onStorage], [2, 1, null]);
});
