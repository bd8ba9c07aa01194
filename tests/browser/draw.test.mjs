// A sale by lot as people see it on the waiting page: before the draw nobody is ahead, and after it everybody can save the own receipt.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test as all } from "node:test";
import { Weir, axe, context, page, shot, until } from "./harness.mjs";
import { comes_to, open, state, text, told, wait_of } from "./waiting.mjs";

const tests = [];
const test = (name, run) => tests.push([name, run]);

const at_s = (seconds) => new Date(Date.now() + seconds * 1_000).toISOString().replace(/\.\d+Z$/, "Z");

/// Zone Z with a sale whose order is drawn, and which begins so many seconds from now.
const sale = (begins_s) => `${open({ admit_per_minute: 600, idle_timeout_s: 60 })}[[zone.event]]
id = "sale"
prequeue_from = "${at_s(-120)}"
begins = "${at_s(begins_s)}"
ends = "${at_s(600)}"
order = "draw"
randomness = "stated: six dice, thrown on stage"
fallback = "wait"
`;

const is_visible = (at, name) => at.isVisible(`[data-weir~="${name}"]`);
const shown = (at, names) => Promise.all(names.map((name) => is_visible(at, name)));
const says = (at, name, what) => until(`${name} says ${what}`, async () => what.test(await text(at, name)));

/// Saves what a click leads to, and returns it as JSON.
async function saved(at, act) {
  const [download] = await Promise.all([at.waitForEvent("download"), act()]);
  return { name: download.suggestedFilename(), json: JSON.parse(readFileSync(await download.path(), "utf8")) };
}

test("people see nobody ahead before the draw, and save their receipts after it", async (t) => {
  const weir = await Weir.start(t, { config: sale(20) });
  const [en, ko] = await Promise.all(["en-US", "ko-KR"].map((locale) => page(t, `${weir.url}/wait/Z`, { locale })));
  await says(en, "reason", /People enter in \d+ seconds\. The order is drawn by lot before that/);
  await says(ko, "reason", /추첨합니다/);
  assert.deepEqual(await Promise.all([en, ko].map((at) => text(at, "rank"))), ["by lot", "추첨"]);
  assert.match(await en.title(), /^by lot · /);
  for (const at of [en, ko]) assert.deepEqual(await shown(at, ["progress", "draw", "receipt", "checkpoint", "record"]), Array(5).fill(false));
  assert.match(await text(en, "announcement"), /drawn by lot/);
  assert.match(await text(ko, "announcement"), /추첨/);
  await en.click("summary");
  await until("the rule is there", async () => (await en.locator('[data-weir~="rule"] li').count()) > 2);
  const rule = await en.locator('[data-weir~="rule"] li').first().textContent();
  assert.match(rule, /^The order of all who are in line at .* is drawn by lot, .*Whoever comes later enters after them, in the order of arrival/);

  await says(en, "reason", /The list is closed, and the order is being drawn by lot\. People enter in \d+ seconds/);
  await says(ko, "reason", /명단이 확정되어 순서를 추첨하고 있습니다/);
  const frozen = async () => (await (await fetch(`${weir.url}/draws/Z/sale`)).json()).stage === "frozen";
  await until("the list is frozen", frozen);
  await until("the checkpoint is offered", () => is_visible(en, "checkpoint"));
  assert.equal(await is_visible(en, "receipt"), false);
  const checkpoint = await saved(en, () => en.getByRole("link", { name: "Save the checkpoint" }).click());
  assert.match(checkpoint.json.checkpoint, /\nevent sale\nzone Z\n/);
  assert.equal(checkpoint.name, "checkpoint-sale.json");
  const late = await page(t, `${weir.url}/wait/Z`);
  await comes_to(late, "waiting");

  const stated = await fetch(`${weir.admin_url}/admin/v1/zones/Z/draws/sale`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ value: "3 1 6" }),
  });
  assert.equal(stated.status, 200, await stated.text());
  await says(en, "reason", /The draw has taken place\. Your place in line is [12]\. People enter in \d+ seconds?\./);
  await says(ko, "reason", /추첨이 끝났습니다\. 대기 순서는 [12]번이며, \d+초 뒤에 입장이 시작됩니다/);
  await says(late, "reason", /The draw has taken place\. Your place in line is 3\./);
  await says(en, "announcement", /The draw has taken place/);
  assert.deepEqual(await shown(en, ["progress", "receipt", "record", "verifier", "checkpoint"]), [true, true, true, true, false]);
  for (const at of [en, ko]) assert.deepEqual(await axe(at), []);
  await shot(en, "wait draw en");

  // By keyboard. What was saved is said, too.
  await en.locator('[data-weir~="receipt"]').focus();
  const receipt = await saved(en, () => en.keyboard.press("Enter"));
  assert.equal(receipt.name, "receipt-sale.json");
  const { format, position, inLine } = receipt.json;
  assert.deepEqual([format, String(position), inLine], ["weir-draw-receipt-1", await text(en, "rank"), true]);
  await says(en, "drawn", new RegExp(`Your receipt is saved\\. Your place in the draw: ${position} of 2\\.`));
  assert.equal(await text(en, "announcement"), await text(en, "drawn"));
  await ko.setViewportSize({ width: 320, height: 640 });
  const other = await saved(ko, () => ko.getByRole("button", { name: "내 증서 저장" }).click());
  await says(ko, "drawn", new RegExp(`추첨 순번: 2명 중 ${other.json.position}번`));
  assert.deepEqual([position, other.json.position].sort(), [1, 2]);
  await shot(ko, "wait draw ko narrow");
  const [content, window] = await ko.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(content <= window, `${content} px in ${window}`);
  const record = await saved(en, () => en.getByRole("link", { name: "Save the record" }).click());
  assert.equal(record.json.format, "weir-draw-record-1");
  const [verifier] = await Promise.all([en.context().waitForEvent("page"), en.getByRole("link", { name: "Check the draw" }).click()]);
  await until("the verifier is there", async () => /draw/i.test(await verifier.title()));
  await verifier.close();
  await late.getByRole("button", { name: "Save your receipt" }).click();
  await says(late, "drawn", /There is no receipt for this place\. Only people who were in line/);
  assert.deepEqual(await axe(late), []);

  // The draw is still known after a reload and after the entry.
  await ko.reload();
  await says(ko, "reason", /추첨이 끝났습니다/);
  await until("the page is entered", async () => (await state(en)) === "entered", 60_000);
  await until("the rule that is open is that of now", async () => /^The draw put all/.test(await en.locator('[data-weir~="rule"] li').first().textContent()));
  assert.ok(await is_visible(en, "receipt"));
  const again = await saved(en, () => en.getByRole("button", { name: "Save your receipt" }).click());
  assert.deepEqual(again.json, receipt.json);
});

test("a screen reader hears of the lot and of the time until the start, also after a minute", async (t) => {
  const weir = await Weir.start(t, { config: open({ mode: "hold" }) });
  // A minute takes half a second.
  const script = () => {
    const now = performance.now.bind(performance);
    performance.now = () => 120 * now();
  };
  const undrawn = wait_of({ rank: 600, etaSeconds: null, etaRange: null, reason: "draw", opensInMs: 3_000_000, pollingPeriod: 500 });
  for (const [locale, what] of [["en-US", /^The order is drawn by lot\. People enter in 50 minutes\.$/], ["ko-KR", /^순서는 추첨으로 정합니다\. 50분 뒤에/]]) {
    const { at } = await told(t, weir, [undrawn], { script, locale });
    await says(at, "announcement", what);
    assert.equal(await is_visible(at, "progress"), false);
  }
});

test("how the line works is not offered where it would open to nothing", async (t) => {
  const weir = await Weir.start(t, { config: open({ mode: "hold" }) });
  const made = await context(t, { javaScriptEnabled: false });
  const at = await made.newPage();
  await at.goto(`${weir.url}/wait/Z`);
  assert.match(await at.textContent("noscript"), /needs JavaScript/);
  assert.deepEqual(await shown(at, ["heading", "rules", "draw"]), [true, false, false]);
  assert.ok(await is_visible(await page(t, `${weir.url}/wait/Z`), "rules"));
});

all("a draw on the waiting page", { concurrency: 3 }, (t) => Promise.all(tests.map(([name, run]) => t.test(name, run))));
