// What the tests of the waiting page share: zones, services to which the page hands over, and replies that are made up.

import http from "node:http";
import { context, until, zone } from "./harness.mjs";

export const QUICK = { admit_per_minute: 600, polling_period_ms: 500, idle_timeout_s: 10 };
export const target = (url, by = "form", zones = "*") => `[[wait.target]]\nzone = "${zones}"\nurl = "${url}"\nby = "${by}"\n`;
export const held = (more = {}) => zone("Z", { ...QUICK, mode: "hold", ...more });
export const open = (more = {}) => zone("Z", { ...QUICK, ...more });

export const text = (at, name) => at.textContent(`[data-weir~="${name}"]`);
export const state = (at) => at.evaluate(() => document.documentElement.dataset.state);
export const comes_to = (at, wanted) => until(`the page is ${wanted}`, async () => (await state(at)) === wanted);
export const rank_is = (at, rank) => until(`the rank is ${rank}`, async () => (await text(at, "rank")) === String(rank));
export const calls = (at, path) => at.context().requests.filter(({ url }) => new URL(url).pathname === path);

/// A service to which the page hands over. It reports the requests that it received.
export async function service(t) {
  const asked = [];
  const server = http.createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    asked.push({ method: request.method, url: request.url, headers: request.headers, body });
    const html = '<!doctype html><html lang="en"><title>in</title><h1>in</h1><img src="/seen.png" alt="">';
    response.writeHead(200, { "content-type": "text/html", "referrer-policy": "unsafe-url" }).end(html);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => server.close().closeAllConnections());
  return { asked, origin: `http://127.0.0.1:${server.address().port}` };
}

/// The claims of a pass. The tests of the example service verify passes.
export const claims = (pass) => JSON.parse(Buffer.from(pass.split(".")[1], "base64url"));

/// A reply to a poll, with other figures.
export const wait_of = (more) => ({
  body: { canEnter: false, token: "t".repeat(52), waiting: { rank: 1202, etaSeconds: 300, etaRange: [240, 360], pollingPeriod: 60_000, stale: false, ...more } },
});

/// Opens the page with made-up replies: `says` are the replies to polls in order, and the last one repeats. Without streams. `script`
/// runs in the page before anything else.
export async function told(t, weir, says, { kept = null, zone_id = "Z", script = null, ...options } = {}) {
  const made = await context(t, options);
  const asked = [];
  await made.route("**/traffic/**", (route) => {
    const path = new URL(route.request().url()).pathname;
    if (path === "/traffic/stream") return route.abort();
    if (path === "/traffic/notice") return route.fulfill({ json: { notice: { en: "Tickets are\ngone at noon.", ko: "정오에 마감합니다." } } });
    const { status = 200, headers = {}, body } = says[Math.min(asked.push(path), says.length) - 1];
    return route.fulfill({ status, headers, json: body });
  });
  if (kept) {
    const put = ([key, kept]) => {
      // The empty first page has no storage.
      if (location.protocol === "http:") localStorage.setItem(key, JSON.stringify({ ...kept, heard: Date.now(), token: "t".repeat(52) }));
    };
    await made.addInitScript(put, [`weir ${weir.url}/ Z`, kept]);
  }
  if (script) await made.addInitScript(script);
  const at = await made.newPage();
  await at.goto(`${weir.url}/wait/${zone_id}`);
  return { at, asked };
}
