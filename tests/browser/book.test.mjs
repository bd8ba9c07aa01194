// The examples of the book as they are printed: the one for pages in a browser, and the one for streams with the library that
// apps outside browsers use. tests/http runs the one for streams in a browser.

import assert from "node:assert/strict";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Weir, installed_module, page, until } from "./harness.mjs";
import { calls, claims, held, open, service } from "./waiting.mjs";

/// The code between two lines of a page of the book.
function example(name, from, to) {
  const text = readFileSync(new URL(`../../docs/app/${name}`, import.meta.url), "utf8");
  const start = text.indexOf(from);
  assert.ok(start >= 0, `${name} has: ${from}`);
  return text.slice(start + from.length, text.indexOf(to, start + from.length));
}

test("the example for a page shows a choice after a reload", async (t) => {
  const app = await service(t);
  const weir = await Weir.start(t, { config: `cors_origins = ["${app.origin}"]\n${held().replace('"Z"', '"TEST_ZONE"')}` });
  const code = example("waiting-page.md", "<script>\n", "</script>");
  const at = await page(t, `${app.origin}/`);
  const run = async () => {
    await at.addScriptTag({ url: `${weir.url}/weir.js` });
    await at.evaluate((code) => {
      globalThis.shown = [];
      globalThis.offered = {};
      for (const name of ["show", "say", "goOn"]) globalThis[name] = (...what) => shown.push([name, ...what]);
      globalThis.offer = (words, action) => (offered[words] = action);
      (0, eval)(code);
    }, code);
  };
  const shown = (name) => at.evaluate((name) => globalThis.shown.find(([of]) => of === name), name);
  const offered = () => at.evaluate(() => Object.keys(globalThis.offered));
  await run();
  assert.deepEqual((await until("the place is shown", () => shown("show"))).slice(0, 2), ["show", 1]);
  await weir.kill();
  await until("the trouble is shown", () => shown("say"));
  await weir.up();
  weir.configure(weir.config.replace('mode = "hold"', 'mode = "auto"'));
  weir.signal("SIGHUP");
  const [, pass] = await until("the user goes on", () => shown("goOn"));
  assert.equal(claims(pass).zone, "TEST_ZONE");
  await at.reload();
  await run();
  await until("the user is asked", async () => (await offered()).length === 2);
  assert.deepEqual(await offered(), ["continue", "take a new place"]);
  assert.equal(await shown("goOn"), undefined, "not by itself");
  await at.evaluate(() => globalThis.offered.continue());
  assert.equal((await shown("goOn"))[1], pass);
  await at.evaluate(() => globalThis.offered["take a new place"]());
  await until("a new place is taken", () => calls(at, "/traffic/wait").length === 2);
});

test("the example for streams keeps its place in Node, through a drain and a crash", async (t) => {
  const { EventSource } = await import(installed_module("eventsource"));
  const weir = await Weir.start(t, { config: held() });
  const told = { places: [], polls: [], problems: [], passes: [], ids: [] };
  const sources = [];
  class Followed extends EventSource {
    constructor(...of) {
      super(...of);
      sources.push(this);
      for (const name of ["wait", "enter", "reconnect"]) this.addEventListener(name, (e) => told.ids.push(e.lastEventId));
    }
  }
  const follow = new Function("EventSource", "showPlace", "enter", "startAnew", "poll", `${example("streams.md", "```js\n", "```")}; return follow;`)(
    Followed,
    (waiting) => told.places.push(waiting.rank),
    (pass) => told.passes.push(pass),
    (problem) => told.problems.push(problem),
    (token) => told.polls.push(token),
  );
  t.after(() => sources.forEach((source) => source.close()));
  const joined = await weir.ask("/traffic/wait", { zoneId: "Z" });
  follow(weir.url, "Z", joined.body.token);
  await until("the place is shown twice", () => told.places.length >= 2);
  weir.signal("SIGTERM");
  await weir.ended;
  await weir.up();
  const before = told.places.length;
  await until("the place is shown again", () => told.places.length > before);
  await weir.kill();
  await weir.up();
  weir.configure(open());
  weir.signal("SIGHUP");
  await until("it has entered", () => told.passes.length === 1);
  // What the example hands to `poll` resumes the place, too.
  for (const token of told.polls) assert.equal(token.length, joined.body.token.length);
  assert.deepEqual(told.problems, []);
  assert.ok(told.places.every((rank) => rank === 1));
  assert.equal(claims(told.passes[0]).zone, "Z");
  assert.ok(told.ids.every((id) => id.length === joined.body.token.length), `each event has the token: ${told.ids}`);
});

test("the example for passes accepts each once, and forgets a withdrawn key after a minute", async (t) => {
  const weir = await Weir.start(t, { config: open() });
  const code = example("polling.md", "```js\n", "```").replace(/^import .*$/m, "").replace("http://127.0.0.1:8080", weir.url);
  const { createRemoteJWKSet, jwtVerify } = await import(installed_module("jose"));
  const spent = new Set();
  const spend = async (jti) => !spent.has(jti) && Boolean(spent.add(jti));
  const accept = new Function("createRemoteJWKSet", "jwtVerify", "spend", `${code}; return accept;`)(createRemoteJWKSet, jwtVerify, spend);
  const pass = async () => (await weir.ask("/traffic/wait", { zoneId: "Z" })).body.pass;
  const fresh = await pass();
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() - 4_000 });
  await accept(fresh, "Z");
  t.mock.timers.reset();
  const [first, second, third] = [await pass(), await pass(), await pass()];
  await accept(first, "Z");
  await assert.rejects(accept(first, "Z"), /was used/);
  await assert.rejects(accept(second, "OTHER"), /another zone/);
  await weir.kill();
  rmSync(join(weir.dir, "data", "pass-es256.pem"));
  await weir.up();
  await accept(second, "Z");
  t.mock.method(Date, "now", ((real) => () => real() + 61_000)(Date.now));
  await assert.rejects(accept(third, "Z"), { code: "ERR_JWKS_NO_MATCHING_KEY" });
  await accept(await pass(), "Z");
});

test("each zone of the page for testers does what the page says", async (t) => {
  const weir = await Weir.start(t, { config: example("testing.md", "```toml\n", "```") });
  const wait = (zoneId) => weir.ask("/traffic/wait", { zoneId });
  const held = await wait("HELD");
  assert.deepEqual([held.body.waiting.etaSeconds, held.body.waiting.etaRange, held.body.waiting.reason], [null, null, "held"]);
  for (let n = 0; n < 6; n += 1) assert.equal((await wait("SLOW")).body.canEnter, true);
  const { rank, etaSeconds } = (await wait("SLOW")).body.waiting;
  assert.ok(rank === 1 && etaSeconds > 0 && etaSeconds <= 60, `${rank}, ${etaSeconds} s`);
  assert.equal((await wait("OPEN")).body.canEnter, true);
  assert.equal((await wait("CLOSED")).body.code, "zone_closed");
  assert.equal((await wait("FULL")).body.waiting.rank, 1);
  // A server may know a moment later how many wait.
  await until("the line is full", async () => (await wait("FULL")).body.code === "zone_full");
  await wait("LIMITED");
  const limited = await wait("LIMITED");
  assert.deepEqual([limited.status, limited.body.code], [429, "too_many_requests"]);
  const entry = async () => (await weir.ask("/traffic/entry", { zoneId: "HELD", token: held.body.token })).body;
  await weir.kill();
  await weir.up();
  assert.equal((await entry()).waiting.rank, 1);
  const change = { method: "PATCH", headers: { "content-type": "application/merge-patch+json", "if-match": "*" }, body: '{"policy":{"mode":"auto"}}' };
  assert.equal((await fetch(`${weir.admin_url}/admin/v1/zones/HELD`, change)).status, 200);
  await until("it enters", async () => (await entry()).canEnter);
});
