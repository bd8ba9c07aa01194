// The events of a zone that are over, with their sums, and the servers that have read those that come, as the console shows them.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { api } from "./console.mjs";
import { Weir, axe, page, shot, until, zone } from "./harness.mjs";

const HOT = "shop:checkout";
const FEW = zone(HOT, { admit_per_minute: 600 });
const change = (weir, body) => api(weir, "PATCH", `/zones/${HOT}`, { body, match: "*" });

const MINUTE_S = 60;
const now_s = () => Math.floor(Date.now() / 1_000);
const utc = (unix_s) => new Date(unix_s * 1_000).toISOString().replace(".000Z", "Z");
/// An event of ten minutes whose pre-queue begins so many seconds from now, ten minutes before.
const event = (id, from_s) => {
  const at = (minutes) => utc(now_s() + from_s + minutes * MINUTE_S);
  return { id, prequeue_from: at(0), begins: at(10), ends: at(20) };
};

const section = (page, name = "Events") => page.getByRole("region", { name, exact: true });
/// Opens the page of the zone. The browser's time zone is UTC unless another one is named.
const open = (t, weir, options = {}) => page(t, `${weir.admin_url}/admin#/zones/${HOT}`, { timezoneId: "UTC", ...options });

test("past events are shown with their sums, and their data is downloaded", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const begins_s = now_s() - 30;
  const sale = { id: "sale", prequeue_from: utc(begins_s - 120), begins: utc(begins_s), ends: utc(begins_s + 45), admit_per_minute: 600 };
  const coming = event("coming", 60 * MINUTE_S);
  await change(weir, { events: [sale, coming] });
  for (let people = 0; people < 3; people += 1) assert.ok((await weir.ask("/traffic/wait", { zoneId: HOT })).body.canEnter);
  const at = await open(t, weir);
  const past = section(at, "Past events");
  // Until the event is over, it is among the planned ones only.
  const row = past.getByRole("row", { name: /^sale/ });
  await row.waitFor({ timeout: 60_000 });
  assert.ok(now_s() >= begins_s + 45, "it is over");
  const cell = (label) => row.locator(`[data-label="${label}"]`);
  await until("three people came", async () => (await cell("Came").textContent()) === "3");
  assert.equal(await cell("Entered").textContent(), "3");
  assert.equal(await cell("Left the line").textContent(), "0");
  assert.equal(await cell("Longest wait").textContent(), "0 s");
  assert.equal(await cell("Lasted").textContent(), "45 s");
  assert.equal(await cell("Order").textContent(), "Whoever came first");
  assert.equal(await past.getByRole("row").count(), 2, "an event that comes is not over");
  assert.deepEqual(await axe(at), []);
  await shot(at, "console past events");
  // The table stays within its section, however wide the window is.
  for (const width of [1_280, 1_000, 760]) {
    await at.setViewportSize({ width, height: 800 });
    const [table, room] = await past.evaluate((section) => [section.querySelector("table").getBoundingClientRect().right, section.getBoundingClientRect().right]);
    assert.ok(table <= room, `${table} px of ${room} at ${width}`);
  }
  // By keyboard.
  await past.getByRole("button", { name: "Download sale" }).focus();
  const [download] = await Promise.all([at.waitForEvent("download"), at.keyboard.press("Enter")]);
  assert.equal(download.suggestedFilename(), "shop_checkout-sale.json");
  const report = JSON.parse(await readFile(await download.path(), "utf8"));
  assert.deepEqual([report.event.id, report.sums.joined, report.minutes.reduce((sum, { joined }) => sum + joined, 0)], ["sale", 3, 3]);

  // One that is deleted stays, with a mark. Another browser shows it in Korean, on a phone.
  await change(weir, { events: [coming] });
  const phone = await open(t, weir, { locale: "ko-KR", timezoneId: "Asia/Seoul", colorScheme: "dark", viewport: { width: 390, height: 844 } });
  const korean = section(phone, "지난 행사");
  await korean.getByRole("row", { name: /^sale 삭제 또는 이동됨/ }).waitFor();
  await korean.getByText("이벤트가 구역에서 삭제되었거나 시작 시각이 바뀌었습니다.").waitFor();
  await until("the sums are the same", async () => (await korean.locator('[data-label="온 사람"]').textContent()) === "3");
  assert.deepEqual(await axe(phone), []);
  const [wide, room] = await phone.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= room, `${wide} px on ${room}`);
  await shot(phone, "console past events ko phone");
});

test("each event says which servers have read it", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  await change(weir, { events: [event("past", -90 * MINUTE_S), event("sale", 60 * MINUTE_S)] });
  const at = await open(t, weir);
  const item = section(at).getByRole("listitem").filter({ hasText: "sale" });
  await item.getByText("The server has read it.").waitFor();
  // Other servers, as the store's register would name them.
  const armed = { servers: 4, with: 2, without: ["b (10.0.0.7:8080)"], unknown: ["old (10.0.0.8:8080)"] };
  const of = (reply) => ({ ...reply, events: reply.events.map((one) => (one.armed ? { ...one, armed } : one)) });
  await at.route("**/events", async (route) => route.fulfill({ json: of(await (await route.fetch()).json()) }));
  await item.getByText("Armed on 2 of 4 servers. Not read by: b (10.0.0.7:8080).").waitFor();
  await item.getByText("Not known of: old (10.0.0.8:8080).").waitFor();
  await section(at).getByText("Over: 1").click();
  assert.equal(await section(at).getByText(/Armed on/).count(), 1, "nobody asks of an event that is over");
  assert.deepEqual(await axe(at), []);
  await at.unrouteAll({ behavior: "ignoreErrors" });
});
