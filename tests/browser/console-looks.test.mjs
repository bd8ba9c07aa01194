// How the console looks: each page in both languages, light and dark, wide and on a phone. axe finds no fault on any page.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Weir, axe, page, shot, until, zone } from "./harness.mjs";

const HOT = "shop:checkout";
/// Screenshots show the visible part. A whole table of hundreds of rows would be useless.
const ROUTES = `
[[route]]
name = "staff"
bypass = true
header = { x-staff = { secret = "a-secret-of-the-staff" }, user-agent = ["*monitor*", "curl/*"] }

[[route]]
name = "checkout"
zone = "${HOT}"
path = ["/checkout/*", "/cart"]
`;
const CONFIG = 'trusted_proxies = ["127.0.0.1"]\n' + zone(HOT, { admit_per_minute: 600 }) + Array.from({ length: 40 }, (_, n) => zone(`gov:forms-${n}`)).join("") + ROUTES;
const PAGES = [["zones", ""], ["zone", `zones/${HOT}`], ["events", "events"], ["changes", "changes"], ["routes", "routes"], ["servers", "servers"]];
const LOOKS = {
  "en light": { locale: "en-US", colorScheme: "light" },
  "ko dark": { locale: "ko-KR", colorScheme: "dark" },
  "ko light phone": { locale: "ko-KR", colorScheme: "light", viewport: { width: 390, height: 844 }, hasTouch: true },
  "en dark phone": { locale: "en-US", colorScheme: "dark", viewport: { width: 360, height: 740 }, reducedMotion: "reduce" },
};

test("every page in every language, colour scheme and size", async (t) => {
  const weir = await Weir.start(t, { config: CONFIG });
  const utc = (hours) => `${new Date(Date.now() + hours * 3_600_000).toISOString().slice(0, 19)}Z`;
  const events = [
    { id: "yesterday", prequeue_from: utc(-30), begins: utc(-29), ends: utc(-26) },
    { id: "spring-sale", prequeue_from: utc(-1), begins: utc(1), ends: utc(3), after: "closed", admit_per_minute: 20, notice: { ko: "곧 시작합니다." } },
  ];
  const reply = await fetch(`${weir.admin_url}/admin/v1/zones/${HOT}`, {
    method: "PATCH",
    headers: { "content-type": "application/json", "if-match": "*" },
    body: JSON.stringify({ policy: { admit_per_minute: 10 }, notice: { ko: "잠시만 기다려 주십시오.", en: "Please wait." }, events }),
  });
  assert.equal(reply.status, 200);
  await weir.crowd(t, HOT, 20);
  for (const [look, options] of Object.entries(LOOKS)) {
    const at = await page(t, `${weir.admin_url}/admin`, options);
    for (const [name, path] of PAGES) {
      await at.evaluate((path) => (location.hash = `#/${path}`), path);
      await at.locator(name === "zone" ? ".uplot" : "main h1").first().waitFor();
      await until("it has heard of the server", async () => (await at.locator(".pulse").getAttribute("data-state")) === "live");
      await until("it has loaded", async () => (await at.locator("main .empty", { hasText: "…" }).count()) === 0);
      assert.equal(await at.locator("html").getAttribute("lang"), options.locale.slice(0, 2));
      assert.deepEqual(await axe(at), [], `${look}, ${name}`);
      // Nothing extends beyond the width of the page.
      const [wide, room] = await at.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(wide <= room, `${look}, ${name}: ${wide} px on ${room}`);
      await shot(at, `console ${name} ${look}`);
    }
    const [back, text] = await at.evaluate(() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]);
    const light = (color) => color.match(/[\d.]+/g).slice(0, 3).map(Number).reduce((a, b) => a + b);
    assert.equal(light(back) < light(text), options.colorScheme === "dark", `${look}: ${text} on ${back}`);
    await at.close();
  }
});

test("language and colours are switched and remembered", async (t) => {
  const weir = await Weir.start(t, { config: CONFIG });
  const at = await page(t, `${weir.admin_url}/admin`, { colorScheme: "light" });
  await at.getByRole("heading", { level: 1, name: "Zones" }).waitFor();
  await at.getByRole("button", { name: "한국어" }).click();
  await at.getByRole("heading", { level: 1, name: "존" }).waitFor();
  await at.getByRole("button", { name: "어두운 색상" }).click();
  const dark = () => at.evaluate(() => getComputedStyle(document.documentElement).colorScheme);
  assert.equal(await dark(), "dark");
  await at.reload();
  await at.getByRole("heading", { level: 1, name: "존" }).waitFor();
  assert.equal(await dark(), "dark");
  await at.getByRole("button", { name: "English" }).click();
  await at.getByRole("button", { name: "Light colours" }).click();
  await at.getByRole("heading", { level: 1, name: "Zones" }).waitFor();
  assert.equal(await dark(), "light dark");
});

test("the page may load and run only files of the server", async (t) => {
  const weir = await Weir.start(t, { config: CONFIG });
  const reply = await fetch(`${weir.admin_url}/admin`);
  assert.equal(
    reply.headers.get("content-security-policy"),
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
  );
  assert.equal(reply.headers.get("x-content-type-options"), "nosniff");
  assert.equal(reply.headers.get("referrer-policy"), "no-referrer");
  assert.equal(reply.headers.get("cache-control"), "no-cache");
  const again = await fetch(`${weir.admin_url}/admin`, { headers: { "if-none-match": reply.headers.get("etag") } });
  assert.equal(again.status, 304);
  assert.equal((await fetch(`${weir.admin_url}/admin/assets/other.js`)).status, 404);
  assert.equal((await fetch(`${weir.url}/admin`)).status, 404, "it is not on the public listener");
  const posted = await fetch(`${weir.admin_url}/admin`, { method: "POST" });
  assert.deepEqual([posted.status, posted.headers.get("allow")], [405, "GET, HEAD"]);
});
