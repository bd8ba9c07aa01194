// Pages of other sites, in a real browser: they make it send what it sends without asking, and take no place by that.

import assert from "node:assert/strict";
import http from "node:http";
import { test } from "node:test";
import { Weir, context, joined, until, zone } from "./harness.mjs";

const HELD = zone("Z", { mode: "hold" });

/// A page of another site: the browser takes `localhost` and `127.0.0.1` for two.
async function elsewhere(t) {
  const server = http.createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>elsewhere</title><h1>elsewhere</h1>");
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => server.close().closeAllConnections());
  return `http://localhost:${server.address().port}`;
}

/// How many requests of a route got this status.
async function replies(weir, route, status) {
  const metrics = await (await fetch(`${weir.admin_url}/metrics`)).text();
  return Number(new RegExp(`^weir_requests_total\\{route="${route}",status="${status}"\\} (\\d+)$`, "m").exec(metrics)?.[1] ?? 0);
}

/// Sends all kinds of requests that a page may send without asking. Returns how many there are.
const attack = (page, url) =>
  page.evaluate(async (url) => {
    const body = JSON.stringify({ zoneId: "Z" });
    const to = `${url}/traffic/wait`;
    let sent = 0;
    const send = async (send) => {
      sent += 1;
      await Promise.resolve(send()).catch(() => {});
    };
    for (let i = 0; i < 5; i += 1) {
      await send(() => fetch(to, { method: "POST", mode: "no-cors", body: new Blob([body]) }));
      await send(() => fetch(to, { method: "POST", mode: "no-cors", body }));
      await send(() => fetch(to, { method: "POST", mode: "no-cors", credentials: "include", body: new Blob([body]) }));
      await send(() => navigator.sendBeacon(to, new Blob([body])));
    }
    // A form whose text is JSON.
    const frame = Object.assign(document.createElement("iframe"), { name: "sink" });
    const form = Object.assign(document.createElement("form"), { method: "post", action: to, enctype: "text/plain", target: "sink" });
    const [name, value] = ['{"zoneId":"Z","clientAgent":"', '"}'];
    form.append(Object.assign(document.createElement("input"), { name, value }));
    document.body.append(frame, form);
    await new Promise((done) => {
      frame.addEventListener("load", done, { once: true });
      form.submit();
    });
    return sent + 1;
  }, url);

test("a page of another site takes no place for its visitor", async (t) => {
  const weir = await Weir.start(t, { config: HELD });
  const made = await context(t);
  const page = await made.newPage();
  await page.goto(await elsewhere(t));
  const sent = await attack(page, weir.url);
  await until("all of them are refused", async () => (await replies(weir, "wait", 403)) === sent);
  assert.equal(await joined(weir, "Z"), 0);
});

test("a page that is listed takes places, and Weir's own page does", async (t) => {
  const origin = await elsewhere(t);
  const weir = await Weir.start(t, { config: `cors_origins = [${JSON.stringify(origin)}]\n${HELD}` });
  const made = await context(t);
  const page = await made.newPage();
  await page.goto(origin);
  const answer = await page.evaluate(async (url) => {
    const headers = { "content-type": "application/json" };
    const reply = await fetch(`${url}/traffic/wait`, { method: "POST", headers, body: JSON.stringify({ zoneId: "Z" }) });
    return await reply.json();
  }, weir.url);
  assert.equal(answer.waiting.rank, 1);
  await page.goto(`${weir.url}/wait/Z`);
  await until("the page shows a place", async () => (await page.textContent('[data-weir="rank"]')) === "2");
});
