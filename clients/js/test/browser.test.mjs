// The built package in a real browser: tabs, storage, locks, streams, and what happens where some of them are missing.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import http from "node:http";
import { test } from "node:test";
import { Weir, context, page, until, zone } from "../../../tests/browser/harness.mjs";

const dist = process.env.CLIENT_DIST;
const QUICK = { admit_per_minute: 600, polling_period_ms: 500, idle_timeout_s: 10 };
const held = zone("Z", { ...QUICK, mode: "hold" });
const open = zone("Z", QUICK);
const calls = (made, path) => made.requests.filter(({ url }) => new URL(url).pathname === path);

/// A page that keeps a place in Z, or in each of `zones`. `script` runs before it.
const pageOf = (script, zones = ["Z"]) => `<!doctype html><title>app</title><script>${script}</script><script type="module">
  import { wait } from "/client/index.js";
  globalThis.places = ${JSON.stringify(zones)}.map((zone) => wait({ server: location.origin, zone }));
  globalThis.place = globalThis.places[0];
  globalThis.waited = true;
</script>`;
const moduleOf = (path) => readFileSync(`${dist}/${path.split("/").at(-1)}`, "utf8");

/// A browser in which `${weir.url}/app` is a page that keeps a place in Z, or in each of `zones`. `script` runs before it.
async function app(t, weir, script = "", zones = undefined) {
  const made = await context(t);
  await made.route("**/app", (route) => route.fulfill({ contentType: "text/html", body: pageOf(script, zones) }));
  await made.route("**/client/*.js", (route) => {
    return route.fulfill({ contentType: "text/javascript", body: moduleOf(new URL(route.request().url()).pathname) });
  });
  const tab = async () => {
    const at = await made.newPage();
    await at.goto(`${weir.url}/app`);
    return at;
  };
  return { made, tab };
}

/// A server of this machine, and its address.
async function serve(t, answer) {
  const server = http.createServer(answer).listen(0, "127.0.0.1");
  t.after(() => server.close().closeAllConnections());
  await once(server, "listening");
  return `http://127.0.0.1:${server.address().port}`;
}

const state = (at) => at.evaluate(() => globalThis.place?.state);
const rank_is = (at, rank) => until(`the rank is ${rank}`, async () => (await state(at))?.rank === rank);

test("three tabs share one place and one stream, a reload keeps it, and one of them enters", async (t) => {
  const weir = await Weir.start(t, { config: held });
  await weir.crowd(t, "Z", 2);
  const { made, tab } = await app(t, weir);
  const tabs = await Promise.all([tab(), tab(), tab()]);
  for (const at of tabs) await rank_is(at, 3);
  assert.equal(calls(made, "/traffic/wait").length, 1);
  await until("a stream is open", () => calls(made, "/traffic/stream").length === 1);
  await tabs[0].reload();
  await rank_is(tabs[0], 3);
  assert.equal(calls(made, "/traffic/wait").length, 1, "one place was taken");
  weir.configure(open);
  weir.signal("SIGHUP");
  await until("all know of the entry", async () => (await Promise.all(tabs.map(state))).every(({ kind }) => kind === "entered"));
  const again = (await Promise.all(tabs.map(state))).map((told) => told.again);
  assert.deepEqual(again.sort(), [false, true, true]);
});

test("weir.js asks the Weir that it came from, also as a module of a page elsewhere", async (t) => {
  const bundle = readFileSync(new URL("../../../crates/server/src/http/waiting_page/weir.js", import.meta.url), "utf8");
  const headers = { "access-control-allow-origin": "*", "content-type": "text/javascript" };
  const weir = await serve(t, (_, response) => response.writeHead(200, headers).end(bundle));
  for (const type of ["text/javascript", "module"]) {
    const html = `<script type="${type}" src="${weir}/queue/weir.js?v=1"></script><script type="module">Weir.wait({ zone: "Z" });</script>`;
    const shop = await serve(t, (_, response) => response.writeHead(200, { "content-type": "text/html" }).end(html));
    const made = await context(t);
    await (await made.newPage()).goto(shop);
    const asked = () => made.requests.find(({ url }) => url.endsWith("/traffic/wait"));
    await until(`it asks, as ${type}`, asked);
    assert.equal(asked().url, `${weir}/queue/traffic/wait`, type);
  }
});

test("without streams, three tabs poll like one", async (t) => {
  const weir = await Weir.start(t, { config: held });
  const { made, tab } = await app(t, weir);
  await made.route("**/traffic/stream**", (route) => route.abort());
  const tabs = await Promise.all([tab(), tab(), tab()]);
  for (const at of tabs) await rank_is(at, 1);
  const polls = new Map(tabs.map((at) => [at, 0]));
  for (const at of tabs) at.on("request", (request) => request.url().endsWith("/traffic/entry") && polls.set(at, polls.get(at) + 1));
  await until("twelve polls", () => [...polls.values()].reduce((sum, count) => sum + count) >= 12);
  // The news of a poll put off those of the other tabs, so one tab goes on. Each for itself would poll four times.
  assert.ok(Math.max(...polls.values()) >= 9, `the tabs polled ${[...polls.values()]} times`);
});

test("a tab that stands still while it takes a place holds another one for 20 s", async (t) => {
  const weir = await Weir.start(t, { config: held });
  const { made } = await app(t, weir);
  await made.route("**/still", (route) => route.fulfill({ contentType: "text/html", body: "<!doctype html><title>still</title>" }));
  const still = await made.newPage();
  await still.goto(`${weir.url}/still`);
  await still.evaluate(() => new Promise((held) => {
    const hold = () => new Promise(() => held());
    void navigator.locks.request(`weir ${location.origin}/ Z join`, hold);
  }));
  const at = await made.newPage();
  await at.clock.install();
  await at.goto(`${weir.url}/app`);
  await until("it waits for its turn", () => at.evaluate(async () => (await navigator.locks.query()).pending.length === 1));
  assert.equal(calls(made, "/traffic/wait").length, 0);
  await at.clock.fastForward(20_000);
  await rank_is(at, 1);
});

test("eight zones in one page leave connections for the polls", async (t) => {
  const zones = ["A", "B", "C", "D", "E", "F", "G", "H"];
  const weir = await Weir.start(t, { config: zones.map((id) => zone(id, { ...QUICK, mode: "hold" })).join("") });
  const { made, tab } = await app(t, weir, "", zones);
  await tab();
  const polls = (id) => calls(made, "/traffic/entry").filter(({ body }) => JSON.parse(body).zoneId === id).length;
  const streams = () => calls(made, "/traffic/stream").map(({ url }) => new URL(url).searchParams.get("zone"));
  await until("three zones are followed", () => streams().length === 3);
  const others = zones.filter((id) => !streams().includes(id));
  await until("the others poll", () => others.every((id) => polls(id) >= 5));
  assert.equal(new Set(streams()).size, 3, "no other stream was opened");
});

test("leaving is told again while the page lives, if the store did not answer", async (t) => {
  const weir = await Weir.start(t, { config: held });
  const { made, tab } = await app(t, weir);
  const away = { status: 503, headers: { "retry-after": "1" }, contentType: "application/problem+json", body: '{"type":"urn:weir:problem:store_away","code":"store_away"}' };
  let told = 0;
  await made.route("**/traffic/leave", (route) => (told++ === 0 ? route.fulfill(away) : route.continue()));
  const at = await tab();
  await rank_is(at, 1);
  const token = await at.evaluate(() => JSON.parse(localStorage.getItem(`weir ${location.origin}/ Z`)).token);
  await at.evaluate(() => globalThis.place.leave());
  await until("the place is free", async () => (await weir.ask("/traffic/entry", { zoneId: "Z", token })).body.code === "gone");
  assert.equal(told, 2);
});

test("without locks, tabs that are opened together take one place", async (t) => {
  const weir = await Weir.start(t, { config: held });
  const { made, tab } = await app(t, weir, "Object.defineProperty(navigator, 'locks', { value: undefined });");
  const tabs = await Promise.all([tab(), tab(), tab()]);
  for (const at of tabs) await rank_is(at, 1);
  assert.equal(calls(made, "/traffic/wait").length, 1);
  assert.equal(calls(made, "/traffic/stream").length, 0);
});

test("without storage and channels, the place lasts as long as the page", async (t) => {
  const weir = await Weir.start(t, { config: held });
  const refuse = "{ get() { throw new DOMException('blocked', 'SecurityError'); } }";
  const refused = (name) => `Object.defineProperty(globalThis, '${name}', ${refuse});`;
  const script = refused("localStorage") + refused("BroadcastChannel");
  const { made, tab } = await app(t, weir, script);
  const at = await tab();
  await rank_is(at, 1);
  await at.reload();
  await rank_is(at, 2);
  assert.equal(calls(made, "/traffic/wait").length, 2);
});

test("a lost network costs no place, and leaving works while the page closes", async (t) => {
  const weir = await Weir.start(t, { config: held });
  await weir.crowd(t, "Z", 1);
  const { made, tab } = await app(t, weir);
  const at = await tab();
  await rank_is(at, 2);
  await made.setOffline(true);
  await until("it says so", async () => (await state(at)).trouble?.code === "offline");
  assert.equal((await state(at)).rank, 2);
  await made.setOffline(false);
  await until("it goes on", async () => (await state(at)).trouble === null);
  assert.equal(calls(made, "/traffic/wait").length, 1);
  const token = await at.evaluate(() => JSON.parse(localStorage.getItem(`weir ${location.origin}/ Z`)).token);
  await at.evaluate(() => addEventListener("pagehide", () => globalThis.place.leave()));
  await at.goto("about:blank");
  await until("the place is free", async () => (await weir.ask("/traffic/entry", { zoneId: "Z", token })).body.code === "gone");
});

test("no redirect is followed, also while the page closes", async (t) => {
  const elsewhere = [];
  const other = await serve(t, (request, response) => {
    elsewhere.push(`${request.method} ${request.url}`);
    response.writeHead(200, { "access-control-allow-origin": "*", "access-control-allow-headers": "*" });
    response.end(JSON.stringify({ canEnter: true, token: "t9", pass: "p" }));
  });
  const place = { canEnter: false, token: "t1", waiting: { rank: 2, etaRange: null, pollingPeriod: 200 } };
  const asked = [];
  const url = await serve(t, (request, response) => {
    const { pathname } = new URL(request.url, url);
    const send = (type, body) => response.setHeader("content-type", type).end(body);
    if (pathname === "/app") return send("text/html", pageOf(""));
    if (pathname.startsWith("/client/")) return send("text/javascript", moduleOf(pathname));
    // A browser may ask for an icon, and follows its redirects.
    if (!pathname.startsWith("/traffic/")) return response.writeHead(404).end();
    asked.push(pathname);
    if (pathname === "/traffic/wait") return response.end(JSON.stringify(place));
    response.writeHead(307, { location: `${other}/elsewhere` }).end();
  });
  // Not by `app`: where a test answers requests of a browser, its beacons follow no redirect.
  const at = await page(t, `${url}/app`);
  await until("it says that the reply is not Weir's", async () => (await state(at)).trouble?.code === "away");
  await until("it polled", () => asked.includes("/traffic/entry"));
  assert.ok(asked.includes("/traffic/stream"));
  await at.evaluate(() => addEventListener("pagehide", () => globalThis.place.leave()));
  await at.goto("about:blank");
  await until("it gave up the place", () => asked.includes("/traffic/leave"));
  // The other host answers this after what came before.
  await (await fetch(`${other}/last`)).text();
  assert.deepEqual(elsewhere, ["GET /last"]);
});
