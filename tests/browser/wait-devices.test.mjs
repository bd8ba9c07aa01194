// The waiting page and weir.js on devices that refuse, forget or misjudge something: without storage and locks, with a clock that
// jumps, with many tabs, and on the way back.

import assert from "node:assert/strict";
import http from "node:http";
import { test as all } from "node:test";
import { Weir, context, page, until } from "./harness.mjs";
import { calls, comes_to, held, open, rank_is, service, target, text, told, wait_of } from "./waiting.mjs";

// Each test has its own server and browser context and mostly waits, so several run at once.
const tests = [];
const test = (name, run) => tests.push([name, run]);

/// An app's page that uses weir.js, and what it was told. `html` is the page's body, and its scripts find Weir's address in `weir`.
const FOLLOW = `
  globalThis.told = [];
  globalThis.place = globalThis.Weir.wait({ zone: "Z" });
  for (const name of ["waiting", "entered", "problem"]) place.addEventListener(name, (e) => told.push([name, e.detail]));
`;
const last_told = async (at, wanted) => {
  const last = await at.evaluate(() => globalThis.told?.at(-1) ?? []);
  return last[0] === wanted && last[1];
};

test("a browser that refuses storage and locks keeps its place for as long as the page", async (t) => {
  const { origin } = await service(t);
  const weir = await Weir.start(t, { config: target(`${origin}/enter`) + held() });
  const made = await context(t);
  // As a browser does that blocks cookies.
  await made.addInitScript(() => {
    const refuse = () => {
      throw new DOMException("denied", "SecurityError");
    };
    Object.defineProperty(globalThis, "localStorage", { get: refuse });
    if (navigator.locks) navigator.locks.request = async () => refuse();
  });
  const at = await made.newPage();
  await at.goto(`${weir.url}/wait/Z`);
  await rank_is(at, 1);
  await until("it polls", () => calls(at, "/traffic/entry").length >= 3);
  assert.equal(calls(at, "/traffic/wait").length, 1, "one place was taken");
  weir.configure(target(`${origin}/enter`) + open());
  weir.signal("SIGHUP");
  await at.waitForURL(`${origin}/enter`);
});

test("an app in a sandboxed frame keeps its place for as long as the frame", async (t) => {
  const app = await service(t);
  const weir = await Weir.start(t, { config: `cors_origins = ["*"]\n${held()}` });
  const at = await page(t, `${app.origin}/`);
  await at.evaluate(([url, script]) => {
    const srcdoc = `<script src="${url}/weir.js"></script><script>${script}</script>`;
    document.body.append(Object.assign(document.createElement("iframe"), { sandbox: "allow-scripts", srcdoc }));
  }, [weir.url, FOLLOW]);
  const frame = await until("the frame is there", () => at.frames()[1]);
  await until("it waits", async () => (await last_told(frame, "waiting")).rank === 1);
  await until("it polls", () => calls(at, "/traffic/entry").length >= 3);
  assert.equal(calls(at, "/traffic/wait").length, 1, "one place was taken");
  weir.configure(weir.config.replace('mode = "hold"', 'mode = "auto"'));
  weir.signal("SIGHUP");
  await until("it is in", () => last_told(frame, "entered"));
});

/// Moves the clock of a device, also of pages that are loaded later.
async function device_clock(made) {
  await made.addInitScript(() => {
    const real = Date.now;
    const offset = () => Number(sessionStorage.getItem("clock") ?? 0);
    if (location.protocol === "http:") Date.now = () => real() + offset();
  });
  return (at, ms) => at.evaluate((ms) => sessionStorage.setItem("clock", ms), ms);
}

test("a device's clock that jumps changes neither the wait that is shown nor the place", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  const quick = wait_of({ pollingPeriod: 500, etaSeconds: 900, etaRange: [240, 1_075] });
  const { at, asked } = await told(t, weir, [quick]);
  const set_clock = await device_clock(at.context());
  const shown = () => text(at, "eta");
  const is_shown = () => until("the wait is shown", async () => (await shown()) === "about 4 to 18 minutes");
  // Whoever reloads before the first reply has no place yet.
  await is_shown();
  await at.reload();
  await is_shown();
  for (const minutes of [10, -10, 0]) {
    await set_clock(at, minutes * 60_000);
    const before = asked.length;
    await until("replies come", () => asked.length >= before + 3);
    assert.equal(await shown(), "about 4 to 18 minutes", `${minutes} minutes`);
    assert.equal(await at.getAttribute('[data-weir~="reason"]', "data-reason"), "", `${minutes} minutes`);
  }
  await set_clock(at, 66 * 60_000);
  const before = asked.length;
  await at.reload();
  await until("replies come", () => asked.length >= before + 3);
  assert.equal(await shown(), "about 4 to 18 minutes");
  assert.deepEqual(asked.filter((path) => path === "/traffic/wait").length, 1, "one place was taken");
});

test("a visitor of yesterday gets a new place, once the server says that the old one is gone", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  const made = await context(t);
  await made.addInitScript(([key, kept]) => {
    if (location.protocol === "http:" && !localStorage.getItem(key)) localStorage.setItem(key, JSON.stringify(kept));
  }, [`weir ${weir.url}/ Z`, { token: "t".repeat(52), heard: Date.now() - 86_400_000, first: 3, progress: 0.5, rank: 1, eta: [1, 2, 3] }]);
  const at = await made.newPage();
  await at.goto(`${weir.url}/wait/Z`);
  await rank_is(at, 1);
  assert.equal(calls(at, "/traffic/wait").length, 1);
});

test("several tabs without a stream ask like one, and show the same", async (t) => {
  const weir = await Weir.start(t, { config: held({ polling_period_ms: 1_000 }) });
  await weir.crowd(t, "Z", 1);
  const made = await context(t);
  await made.route("**/traffic/stream**", (route) => route.abort());
  const tabs = [];
  for (let n = 0; n < 5; n += 1) {
    tabs.push(await made.newPage());
    await tabs[n].goto(`${weir.url}/wait/Z`);
    await rank_is(tabs[n], 2);
  }
  const polls = () => calls(tabs[0], "/traffic/entry").length;
  const [before, start] = [polls(), performance.now()];
  await until("the tabs have polled", () => polls() >= before + 8);
  const took_ms = performance.now() - start;
  assert.ok(took_ms > 4_000, `8 polls of five tabs took ${took_ms} ms`);
});

test("tabs show what the tab with the stream hears, and do not ask", async (t) => {
  // A tab asks if it heard nothing for a period, which is much longer than the second between two events of a stream.
  const weir = await Weir.start(t, { config: held({ polling_period_ms: 5_000, idle_timeout_s: 60 }) });
  const ahead = (await weir.ask("/traffic/wait", { zoneId: "Z" })).body.token;
  const at = await page(t, `${weir.url}/wait/Z`);
  await rank_is(at, 2);
  await until("a stream is open", () => calls(at, "/traffic/stream").length === 1);
  const other = await at.context().newPage();
  await other.goto(`${weir.url}/wait/Z`);
  await rank_is(other, 2);
  const polls = () => calls(at, "/traffic/entry").length;
  // The second tab has heard this from the first one.
  await weir.ask("/traffic/leave", { zoneId: "Z", token: ahead });
  await rank_is(other, 1);
  const before = polls();
  const told_at = () => other.evaluate(([key]) => JSON.parse(localStorage.getItem(key)).heard, [`weir ${weir.url}/ Z`]);
  const first = await told_at();
  await until("the stream has said more", async () => (await told_at()) > first + 2_000);
  assert.ok(polls() - before <= 1, `${polls() - before} polls beside the stream`);
});

test("a user who comes back by the browser's memory is asked", async (t) => {
  const nowhere = http.createServer((_, response) => response.writeHead(204).end());
  await new Promise((done) => nowhere.listen(0, "127.0.0.1", done));
  t.after(() => nowhere.close().closeAllConnections());
  const weir = await Weir.start(t, { config: target(`http://127.0.0.1:${nowhere.address().port}/enter`) + open() });
  // A service that answers 204 leaves the page where it is, as the browser's memory does.
  const at = await page(t, `${weir.url}/wait/Z`);
  await comes_to(at, "entered");
  await at.evaluate(() => dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })));
  await comes_to(at, "again");
  assert.equal(calls(at, "/traffic/wait").length, 1);
  assert.ok(await at.getByRole("button", { name: "Continue" }).isVisible());
});

test("a service that refuses a pass sends the user back to the waiting page", async (t) => {
  let back = "";
  const refuses = http.createServer((_, response) => response.writeHead(303, { location: back }).end());
  await new Promise((done) => refuses.listen(0, "127.0.0.1", done));
  t.after(() => refuses.close().closeAllConnections());
  const weir = await Weir.start(t, { config: target(`http://127.0.0.1:${refuses.address().port}/enter`) + open() });
  back = `${weir.url}/wait/Z`;
  const at = await page(t, `${weir.url}/wait/Z`);
  await comes_to(at, "again");
  const before = calls(at, "/wait/Z").length;
  await at.getByRole("button", { name: "Continue" }).click();
  await until("the user is back", () => calls(at, "/wait/Z").length > before);
  await comes_to(at, "again");
  await at.getByRole("button", { name: "Take a new place" }).click();
  await until("a new place is taken", () => calls(at, "/traffic/wait").length === 2);
});

test("short waits are told in seconds", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  for (const [low, high, words] of [[55, 65, "about 50 to 70 seconds"], [5, 62, "up to 70 seconds"], [4, 115, "up to 2 minutes"], [10, 130, "up to 3 minutes"]]) {
    const { at } = await told(t, weir, [wait_of({ etaSeconds: 60, etaRange: [low, high] })]);
    await until("the wait is shown", async () => (await text(at, "eta")) !== "");
    assert.equal(await text(at, "eta"), words);
    await at.context().close();
  }
});

test("the end of a trouble is announced", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  const at = await page(t, `${weir.url}/wait/Z`);
  await rank_is(at, 1);
  const said = async (words) => words.test(await at.textContent("[role=status]"));
  await weir.kill();
  await until("the trouble is announced", () => said(/No connection/));
  await weir.up();
  await until("its end is, too", () => said(/Nobody is admitted/));
});

test("a page whose origin is not listed says in the console what to do", async (t) => {
  const app = await service(t);
  const weir = await Weir.start(t, { config: held() });
  const at = await page(t, `${app.origin}/`);
  const warnings = [];
  at.on("console", (message) => message.text().startsWith("Weir:") && warnings.push(message.text()));
  await at.addScriptTag({ url: `${weir.url}/weir.js` });
  await at.evaluate(FOLLOW);
  await until("it has tried twice", async () => (await at.evaluate(() => globalThis.told.length)) >= 2);
  assert.equal((await last_told(at, "problem")).code, "offline");
  assert.equal(warnings.length, 1);
  assert.ok(warnings[0].includes(`add "${app.origin}" to cors_origins`), warnings[0]);
});

all("the waiting page on odd devices", { concurrency: 4 }, (t) => Promise.all(tests.map(([name, run]) => t.test(name, run))));
