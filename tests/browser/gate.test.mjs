// A site of three pages behind each of the real proxies, as people see it: with and without JavaScript, in two tabs, and with a
// form. tests/proxies asks the same proxies without a browser.

import assert from "node:assert/strict";
import http from "node:http";
import { test as all } from "node:test";
import { Weir, axe, context, joined, page, shot, until, zone } from "./harness.mjs";
import { PROXIES, page_status, proxy } from "./proxies.mjs";

const tests = [];
/// A test of the page, behind each of these proxies.
const test = (name, run, kinds = PROXIES) => kinds.forEach((kind) => tests.push([`${kind}: ${name}`, (t) => run(t, kind)]));

/// A worker that answers from what it kept, and keeps everything.
const WORKER = `
  addEventListener("install", () => skipWaiting());
  addEventListener("activate", (event) => event.waitUntil(clients.claim()));
  addEventListener("fetch", (event) => event.respondWith((async () => {
    const kept = await caches.match(event.request);
    if (kept) return kept;
    const reply = await fetch(event.request);
    if (event.request.method === "GET") await (await caches.open("site")).put(event.request, reply.clone());
    return reply;
  })()));
`;

const QUICK = { admit_per_minute: 600, polling_period_ms: 500, idle_timeout_s: 10 };
const CONFIG = (more) => `trusted_proxies = ["127.0.0.1"]\n${zone("SITE", { ...QUICK, ...more })}[[route]]\nzone = "SITE"\n`;
const HELD = CONFIG({ mode: "hold" });
const MOVING = CONFIG({});
const text = (at, name) => at.textContent(`[data-weir="${name}"]`);
const rank_is = (at, rank) => until(`the rank is ${rank}`, async () => (await text(at, "rank")) === rank);

/// Goes to a page of a site that lets everybody in. On a slow machine the waiting page may come first.
async function arrive(at, url, path) {
  await at.goto(`${url}${path}`);
  await until(`the site shows ${path}`, async () => (await at.textContent("h1")).trim() === `GET ${path}`);
}

/// A shop of some pages behind a proxy, and the requests that reached it.
async function site(t, kind, config) {
  const asked = [];
  const shop = http.createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    // Some browsers ask for an icon of their own accord.
    if (request.url === "/favicon.ico") return response.writeHead(404).end();
    asked.push({ method: request.method, url: request.url, body });
    if (request.url === "/worker.js") return response.writeHead(200, { "content-type": "text/javascript" }).end(WORKER);
    const form = '<form method="post" action="/order"><input name="item" value="7" aria-label="item"><button>Order</button></form>';
    const leave = `<button onclick="navigator.sendBeacon('/.weir/leave')">Leave</button>`;
    const html = `<!doctype html><html lang="en"><title>shop</title><h1>${request.method} ${request.url} ${body}</h1>${form}${leave}`;
    response.writeHead(200, { "content-type": "text/html" }).end(html);
  });
  // Otherwise it closes a connection of the proxy that was idle for 5 s. If the next request goes out at that instant, it fails.
  shop.keepAliveTimeout = 0;
  await new Promise((done) => shop.listen(0, "127.0.0.1", done));
  t.after(() => shop.close().closeAllConnections());
  const weir = await Weir.start(t, { config });
  const url = await proxy(t, kind, weir.door.address, shop.address().port);
  asked.length = 0;
  const move = () => {
    weir.configure(MOVING);
    weir.signal("SIGHUP");
  };
  return { asked, weir, url, move };
}

test("a visitor waits at the address that was asked for, and arrives there", async (t, kind) => {
  const { asked, weir, url, move } = await site(t, kind, HELD);
  await weir.crowd(t, "SITE", 1);
  const made = await context(t);
  const at = await made.newPage();
  const reply = await at.goto(`${url}/cart?item=7#list`);
  assert.equal(reply.status(), page_status(kind));
  await rank_is(at, "2");
  assert.match(await at.title(), /^2 · Waiting room$/);
  assert.match(await text(at, "reason"), /Nobody is admitted/);
  assert.match(await text(at, "explanation"), /kept for 10 seconds/);
  assert.deepEqual(await axe(at), []);
  await shot(at, `gate waiting ${kind}`);
  const cookies = await made.cookies();
  assert.deepEqual(cookies.map(({ name, httpOnly, sameSite }) => [name, httpOnly, sameSite]), [["weir-SITE", true, "Lax"]]);
  await at.reload();
  await rank_is(at, "2");
  const tab = await made.newPage();
  await tab.goto(`${url}/about`);
  await rank_is(tab, "2");
  assert.deepEqual(asked, [], "nothing reached the site");
  move();
  for (const [tab_of, path] of [[at, "/cart?item=7"], [tab, "/about"]]) {
    await until(`the site shows ${path}`, async () => (await tab_of.textContent("h1")).trim() === `GET ${path}`);
  }
  assert.equal(at.url(), `${url}/cart?item=7#list`);
  assert.deepEqual(asked.map(({ method, url: of }) => `${method} ${of}`).sort(), ["GET /about", "GET /cart?item=7"]);
  await arrive(at, url, "/third");
});

test("a visitor without JavaScript waits and arrives, too", async (t, kind) => {
  const { weir, url, move } = await site(t, kind, HELD);
  await weir.crowd(t, "SITE", 1);
  const at = await page(t, `${url}/cart`, { javaScriptEnabled: false, locale: "ko-KR" });
  // A slow machine may have another reason to wait first. The page is loaded again by itself.
  await until("the page says the place", async () => (await text(at, "rank")).trim() === "2");
  assert.equal(await at.getAttribute("html", "lang"), "ko");
  move();
  await until("the site shows its page", async () => (await at.textContent("h1")).trim() === "GET /cart");
});

test("what was sent with a form can be sent again", async (t, kind) => {
  const { asked, weir, url, move } = await site(t, kind, MOVING);
  const made = await context(t);
  const at = await made.newPage();
  await arrive(at, url, "/form");
  weir.configure(HELD);
  weir.signal("SIGHUP");
  // A slow machine may have another reason for the same status.
  await until("the zone is held", async () => (await (await fetch(`${url}/x`)).json()).code === "waiting");
  // The visit has ended.
  await made.clearCookies();
  asked.length = 0;
  await at.getByRole("button", { name: "Order" }).click();
  const says_so = async () => /not delivered/.test(await text(at, "explanation"));
  await until("the page says that it was not delivered", says_so);
  assert.deepEqual(await axe(at), []);
  await at.waitForResponse((reply) => "weir-poll" in reply.request().headers());
  // The page has shown the first reply when the script asks for the second time.
  await at.waitForRequest((request) => "weir-poll" in request.headers());
  assert.ok(await says_so(), "and says it after its own questions, too");
  move();
  const again = at.getByRole("button", { name: "Send again" });
  await again.waitFor();
  assert.deepEqual(asked, [], "not by itself");
  assert.deepEqual(await axe(at), []);
  // The button reloads the page. A browser asks its user first whether to send a form again; one without windows waits for ever.
  await at.reload();
  await until("it arrives", async () => (await at.textContent("h1")).trim() === "POST /order item=7");
  assert.deepEqual(asked.filter(({ method }) => method === "POST"), [{ method: "POST", url: "/order", body: "item=7" }]);
});

test("while Weir is away the page says so, and the place is kept", async (t, kind) => {
  const { weir, url, move } = await site(t, kind, HELD);
  const at = await page(t, `${url}/cart`);
  await rank_is(at, "1");
  await weir.kill();
  await until("the trouble is shown", () => at.isVisible('[data-weir="trouble"]'));
  await weir.up();
  await until("the trouble is over", async () => !(await at.isVisible('[data-weir="trouble"]')));
  await rank_is(at, "1");
  move();
  await until("the site shows its page", async () => (await at.textContent("h1")).trim() === "GET /cart");
});

test("whoever leaves makes room for the next visitor", async (t, kind) => {
  const { asked, url } = await site(t, kind, CONFIG({ max_active: 1, visit_idle_s: 600 }));
  const [ada, ben] = [await page(t, `${url}/a`), await page(t, `${url}/b`)];
  // A zone with a limit lets nobody in for a minute if people may be inside of whom nothing is known; a new one has none.
  const shows = (at, path) => until(`the site shows ${path}`, async () => (await at.textContent("h1")).trim() === `GET ${path}`);
  await shows(ada, "/a");
  await rank_is(ben, "1");
  await ada.getByRole("button", { name: "Leave" }).click();
  await shows(ben, "/b");
  assert.deepEqual(asked.filter(({ method }) => method === "POST"), [], "the site does not hear of it");
  await ada.goto(`${url}/again`);
  await rank_is(ada, "1");
});

/// A page of another site.
async function elsewhere(t, html) {
  const server = http.createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/html" }).end(`<!doctype html><html lang="en"><title>elsewhere</title><h1>elsewhere</h1>${html}`);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => server.close().closeAllConnections());
  return `http://127.0.0.1:${server.address().port}/`;
}

test("whoever comes back from paying elsewhere keeps the visit, and what was sent arrives", async (t, kind) => {
  const { asked, weir, url, move } = await site(t, kind, MOVING);
  const form = `<form method="post" action="${url}/paid"><input name="item" value="7" aria-label="item"><button>Pay</button></form>`;
  const pay = await elsewhere(t, form);
  const made = await context(t);
  const at = await made.newPage();
  await arrive(at, url, "/cart");
  const visit = async () => (await made.cookies(url)).find(({ name }) => name === "weir-SITE").value;
  const before = await visit();
  asked.length = 0;
  await at.goto(pay);
  await at.getByRole("button", { name: "Pay" }).click();
  const arrives = (at) => until("it arrives", async () => (await at.textContent("h1")).trim() === "POST /paid item=7");
  await arrives(at);
  assert.equal(await visit(), before);

  // Somebody without a visit waits, and sends the form again.
  weir.configure(HELD);
  weir.signal("SIGHUP");
  // A slow machine may have another reason for the same status.
  await until("the zone is held", async () => (await (await fetch(`${url}/x`)).json()).code === "waiting");
  asked.length = 0;
  const newcomer = await page(t, pay);
  await newcomer.getByRole("button", { name: "Pay" }).click();
  await until("the page says that it was not delivered", async () => /not delivered/.test(await text(newcomer, "explanation")));
  assert.deepEqual(await axe(newcomer), []);
  await until("a place is taken", async () => Boolean(await text(newcomer, "rank")));
  assert.ok(/not delivered/.test(await text(newcomer, "explanation")));
  move();
  await newcomer.getByRole("button", { name: "Send again" }).waitFor();
  // The button reloads the page. A browser asks its user first whether to send a form again; one without windows waits for ever.
  await newcomer.reload();
  await arrives(newcomer);
  assert.deepEqual(asked.filter(({ method }) => method === "POST"), [{ method: "POST", url: "/paid", body: "item=7" }]);
});

test("a page of another site takes no place", async (t, kind) => {
  const { asked, weir, url } = await site(t, kind, HELD);
  const images = Array.from({ length: 5 }, (_, n) => `<img alt="" src="${url}/image?${n}">`).join("");
  const at = await page(t, await elsewhere(t, `${images}<iframe src="${url}/frame"></iframe>`));
  await at.evaluate(async (url) => {
    const send = (options) => fetch(`${url}/call`, { mode: "no-cors", ...options }).catch(() => {});
    for (let n = 0; n < 5; n += 1) await Promise.all([send({}), send({ credentials: "include" }), send({ method: "POST", body: "x" })]);
  }, url);
  const visitor = await page(t, `${url}/cart`);
  await rank_is(visitor, "1");
  const metrics = await (await fetch(`${weir.admin_url}/metrics`)).text();
  const [, refused] = /^weir_checks_total\{route="route 1",said="refused"\} (\d+)$/m.exec(metrics);
  assert.ok(Number(refused) >= 20, `${refused} were refused`);
  assert.deepEqual(asked, []);
});

test("a site's cookies in any letters hide no place", async (t, kind) => {
  const { weir, url, move } = await site(t, kind, HELD);
  await weir.crowd(t, "SITE", 1);
  const at = await page(t, `${url}/cart`);
  await rank_is(at, "2");
  await at.evaluate(() => (document.cookie = "recent=한글; path=/"));
  await at.reload();
  await rank_is(at, "2");
  move();
  await until("the site shows its page", async () => (await at.textContent("h1")).trim() === "GET /cart");
}, ["nginx", "envoy"]);

test("a browser that sends no cookies is told so, and takes two places at most", async (t, kind) => {
  const { weir, url } = await site(t, kind, HELD);
  const made = await context(t);
  await made.route("**", async (route) => {
    const { cookie, ...headers } = await route.request().allHeaders();
    await route.continue({ headers });
  });
  const at = await made.newPage();
  at.on("response", async () => made.clearCookies());
  await at.goto(`${url}/cart`);
  await until("the page asks for cookies", async () => /needs cookies/.test(await text(at, "heading")));
  assert.deepEqual(await axe(at), []);
  const metrics = await (await fetch(`${weir.admin_url}/metrics`)).text();
  assert.match(metrics, /^weir_zone_joined_total\{zone="SITE"\} [123]$/m);
}, ["nginx", "caddy"]);

test("a page waits on if another tab leaves before it has asked", async (t, kind) => {
  const { weir, url, move } = await site(t, kind, HELD);
  const at = await page(t, `${url}/cart`);
  await rank_is(at, "1");
  await until("the place is counted", async () => (await joined(weir, "SITE")) === 1);
  // As another tab does, whose visit is over.
  await at.evaluate(() => fetch("/.weir/leave", { method: "POST" }));
  await until("another place is taken", async () => (await joined(weir, "SITE")) === 2);
  move();
  await until("the site shows its page", async () => (await at.textContent("h1")).trim() === "GET /cart");
}, ["nginx", "traefik"]);

test("a page without a place takes one when there is one", async (t, kind) => {
  const { weir, url, move } = await site(t, kind, CONFIG({ mode: "closed" }));
  const at = await (await context(t)).newPage();
  // Half a minute passes in a second: the page of a closed zone asks seldom.
  await at.addInitScript(() => {
    const wait = window.setTimeout;
    window.setTimeout = (run, ms) => wait(run, ms > 20_000 ? 1_000 : ms);
  });
  await at.goto(`${url}/cart`);
  await until("the zone is closed", async () => /Closed/.test(await text(at, "heading")));
  // Its own question says so, too.
  await at.waitForResponse((reply) => "weir-poll" in reply.request().headers());
  weir.configure(HELD);
  weir.signal("SIGHUP");
  await rank_is(at, "1");
  await at.waitForResponse((reply) => "weir-poll" in reply.request().headers());
  await rank_is(at, "1");
  // Another tab has left, or the cookie's time is over.
  await at.context().clearCookies();
  await until("another place is taken", async () => (await at.context().cookies()).length === 1);
  move();
  await until("the site shows its page", async () => (await at.textContent("h1")).trim() === "GET /cart");
}, ["nginx", "traefik"]);

test("a page says that its visitor is denied, until the rule is gone", async (t, kind) => {
  const { weir, url, move } = await site(t, kind, HELD);
  const at = await page(t, `${url}/cart`, { locale: "ko-KR" });
  await rank_is(at, "1");
  weir.configure(HELD.replace("[[route]]", '[[route]]\ndeny = true\npath = "/cart"\n[[route]]'));
  weir.signal("SIGHUP");
  await until("the page says so", async () => /계속할 수 없습니다/.test(await text(at, "heading")));
  assert.ok(!(await at.isVisible('[data-weir="trouble"]')) && !(await at.isVisible('[data-weir="place"]')));
  assert.deepEqual(await axe(at), []);
  move();
  // The rule is in force until the server has read the file again, and the refusal has no heading.
  await until("the site shows its page", async () => {
    await at.reload();
    return (await at.locator("h1").allTextContents()).some((heading) => heading.trim() === "GET /cart");
  });
}, ["nginx", "envoy"]);

test("a page asks less often while something else answers in the place of Weir", async (t, kind) => {
  const { url } = await site(t, kind, HELD);
  const at = await page(t, `${url}/cart`);
  await rank_is(at, "1");
  const asked_at = [];
  await at.route(/weir-poll=/, async (route) => {
    asked_at.push(performance.now());
    await route.fulfill({ status: 502, contentType: "text/html", body: "<h1>Bad Gateway</h1>" });
  });
  await until("it has asked four times", () => asked_at.length >= 4);
  // At least 1, 2 and 4 s, and 5 % early.
  assert.ok(asked_at[3] - asked_at[0] > 6_300, `${asked_at}`);
  await at.unroute(/weir-poll=/);
  await until("the trouble is over", async () => !(await at.isVisible('[data-weir="trouble"]')));
}, ["nginx"]);

test("a service worker that keeps pages keeps nobody in the line", async (t, kind) => {
  const { weir, url, move } = await site(t, kind, MOVING);
  const made = await context(t);
  const at = await made.newPage();
  await arrive(at, url, "/");
  await at.evaluate(async () => {
    await navigator.serviceWorker.register("/worker.js");
    await navigator.serviceWorker.ready;
    if (!navigator.serviceWorker.controller) await new Promise((done) => navigator.serviceWorker.addEventListener("controllerchange", done, { once: true }));
  });
  weir.configure(HELD);
  weir.signal("SIGHUP");
  // A slow machine may have another reason for the same status.
  await until("the zone is held", async () => (await (await fetch(`${url}/x`)).json()).code === "waiting");
  await made.clearCookies();
  await at.goto(`${url}/cart`);
  await until("the page waits", async () => Boolean(await text(at, "rank")));
  assert.ok(await at.evaluate(async () => Boolean(await caches.match(location.href, { ignoreVary: true }))), "the worker keeps the waiting page");
  // The kept page was given a cookie that is over now.
  await made.clearCookies();
  await at.reload();
  await until("it is forgotten", () => at.evaluate(async () => !(await caches.match(location.href, { ignoreVary: true }))));
  await at.reload();
  await until("the page waits", async () => Boolean(await text(at, "rank")));
  move();
  await until("the site shows its page", async () => (await at.textContent("h1")).trim() === "GET /cart");
}, ["nginx", "traefik"]);

all("a site behind a proxy", { concurrency: 4 }, (t) => Promise.all(tests.map(([name, run]) => t.test(name, run))));
