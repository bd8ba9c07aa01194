// The package in Node, against a running Weir.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Weir, until, zone } from "../../../tests/browser/weir.mjs";
import { built } from "./built.mjs";

const { node, wait } = await built("index");

const QUICK = { admit_per_minute: 600, polling_period_ms: 500, idle_timeout_s: 10 };
const HELD = zone("TEST_ZONE", { ...QUICK, mode: "hold" });
const OPEN = zone("TEST_ZONE", QUICK);
const claims = (pass) => JSON.parse(Buffer.from(pass.split(".")[1], "base64url"));

function memory() {
  const kept = new Map();
  const [set, remove] = [(key, text) => void kept.set(key, text), (key) => void kept.delete(key)];
  return { get: (key) => kept.get(key) ?? null, set, remove };
}

test("the example of ten lines waits and enters", async (t) => {
  const weir = await Weir.start(t, { config: HELD });
  await weir.crowd(t, "TEST_ZONE", 2);
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const code = /A place in line in ten lines\n\n```js\n([^]*?)```/.exec(readme)[1];
  assert.ok(code.trim().split("\n").length <= 10, "ten lines");
  const shown = [];
  const body = code.replace(/^import .*\n/, "").replaceAll("https://weir.example", weir.url);
  const AsyncFunction = (async () => {}).constructor;
  const running = new AsyncFunction("wait", "console", "buy", body)(wait, { log: (...words) => shown.push(words.join(" ")) }, (pass) => pass);
  await until("it shows the place", () => shown.some((line) => line.includes("place 3")));
  weir.configure(OPEN);
  weir.signal("SIGHUP");
  assert.equal(claims(await running).zone, "TEST_ZONE");
});

test("a place survives a crash of the server, and a new process", async (t) => {
  const weir = await Weir.start(t, { config: HELD });
  const ahead = await weir.crowd(t, "TEST_ZONE", 2);
  const storage = memory();
  const options = { server: weir.url, zone: "TEST_ZONE", platform: node(storage) };
  const first = wait(options);
  t.after(() => first.stop());
  await until("the place is known", () => first.state.rank === 3);
  await weir.kill();
  await until("it says that the network is away", () => first.state.trouble?.code === "offline");
  assert.equal(first.state.rank, 3, "and still shows the place");
  await weir.up();
  await until("it goes on", () => first.state.trouble === null);
  assert.equal(first.state.rank, 3);
  first.stop();
  const second = wait(options);
  t.after(() => second.stop());
  await until("the next process has the same place", () => second.state.rank === 3);
  assert.equal((await weir.ask("/traffic/wait", { zoneId: "TEST_ZONE" })).body.waiting.rank, ahead.length + 2, "one place was taken");
});

test("a first reply that is lost, and a process that ends with it, cost no second place", async (t) => {
  const weir = await Weir.start(t, { config: HELD });
  const storage = memory();
  const { fetch, ...rest } = node(storage);
  let lost = 0;
  // The server answers, and nobody hears it.
  const loses = async (address, request) => {
    await fetch(address, request);
    lost += 1;
    throw new TypeError("the network is away");
  };
  const options = { server: weir.url, zone: "TEST_ZONE" };
  const first = wait({ ...options, platform: { ...rest, fetch: loses } });
  t.after(() => first.stop());
  await until("two replies are lost", () => lost === 2);
  first.stop();
  const second = wait({ ...options, platform: node(storage) });
  t.after(() => second.stop());
  await until("the place is known", () => second.state.kind === "waiting");
  assert.equal(second.state.rank, 1);
  assert.equal((await weir.ask("/traffic/wait", { zoneId: "TEST_ZONE" })).body.waiting.rank, 2, "one place was taken");
});

test("a place that is left is free, and its token is gone", async (t) => {
  const weir = await Weir.start(t, { config: HELD });
  const storage = memory();
  const place = wait({ server: weir.url, zone: "TEST_ZONE", platform: node(storage) });
  t.after(() => place.stop());
  await until("the place is known", () => place.state.kind === "waiting");
  const { token } = JSON.parse(storage.get(`weir ${weir.url}/ TEST_ZONE`));
  place.leave();
  await until("the server knows it", async () => (await weir.ask("/traffic/entry", { zoneId: "TEST_ZONE", token })).body.code === "gone");
});

test("a place follows a stream of the server, and enters by it", async (t) => {
  const weir = await Weir.start(t, { config: HELD });
  await weir.crowd(t, "TEST_ZONE", 1);
  const calls = [];
  const { fetch, ...rest } = node(memory());
  const watched = (address, request) => {
    calls.push(new URL(address).pathname);
    return fetch(address, request);
  };
  const place = wait({ server: weir.url, zone: "TEST_ZONE", platform: { ...rest, fetch: watched, streams: true } });
  t.after(() => place.stop());
  await until("the stream is open", () => calls.includes("/traffic/stream") && place.state.kind === "waiting");
  weir.configure(OPEN);
  weir.signal("SIGHUP");
  assert.equal(claims((await place.entry()).pass).zone, "TEST_ZONE");
  assert.ok(!calls.includes("/traffic/entry"), "no poll beside the stream");
});

test("an unknown zone, and a zone that takes nobody", async (t) => {
  const weir = await Weir.start(t, { config: zone("FULL", { ...QUICK, mode: "hold", max_waiting: 1 }) });
  const nowhere = wait({ server: weir.url, zone: "NOWHERE" });
  await assert.rejects(nowhere.entry(), (fault) => fault.state.trouble.code === "unknown_zone" && fault.state.trouble.action === "give up");
  await weir.crowd(t, "FULL", 1);
  const place = wait({ server: weir.url, zone: "FULL" });
  t.after(() => place.stop());
  await until("it waits for room", () => place.state.trouble?.code === "zone_full");
  assert.equal(place.state.trouble.action, "retry");
});
