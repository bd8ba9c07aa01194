// What is left, as people see it: on the waiting page, in both languages and in several tabs, and on the console. And the published
// rule of the line.

import assert from "node:assert/strict";
import { test as all } from "node:test";
import { api } from "./console.mjs";
import { Weir, axe, page, shot, until } from "./harness.mjs";
import { calls, comes_to, held, rank_is, state, text } from "./waiting.mjs";

// Each test has its own server and browser context and mostly waits, so several run at once.
const tests = [];
const test = (name, run) => tests.push([name, run]);

/// What is left in a zone, as an operator sets it.
const stock = (weir, body) => api(weir, body.tiers ? "PUT" : "PATCH", "/zones/Z/stock", { body });
const TIERS = {
  tiers: [
    { id: "floor", label: { en: "Floor <b>&", ko: "스탠딩" }, price: { currency: "GBP", from: "40.00", to: "95.00" }, remaining: 3 },
    { id: "balcony", label: { en: "Balcony" }, price: { currency: "KRW", from: "45000", to: "45000" }, remaining: 1 },
    { id: "gold", label: { en: "\u202eGold", ko: "골드" }, remaining: 0 },
  ],
};
const lines = (at) => at.locator('[data-weir="tiers"] li').allTextContents();

test("a person whose turn may come too late is told so and may leave", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  await weir.crowd(t, "Z", 3);
  const at = await page(t, `${weir.url}/wait/Z`);
  await rank_is(at, 4);
  assert.ok(await at.locator('[data-weir="stock"]').isHidden(), "nothing is told yet");
  assert.equal(calls(at, "/traffic/stock").length, 0, "and nobody asks");
  await stock(weir, TIERS);
  await until("what is left is shown", async () => (await lines(at)).length === 3);
  assert.deepEqual(await lines(at), ["Floor <b>&£40.00–£95.003 left", "Balcony₩45,0001 left", "\u202eGoldsold out"]);
  assert.ok(await at.locator('[data-weir="beyond"]').isHidden(), "four are left, and three people are ahead");
  assert.deepEqual(await axe(at), []);
  await stock(weir, { remaining: { balcony: 0 } });
  await until("the page says so", async () => /Only 3 left, and at least as many people are ahead/.test(await text(at, "beyond")));
  assert.match(await text(at, "announcement"), /Balcony is sold out\. Only 3 left/);
  const leave = at.getByRole("button", { name: "Leave the line" });
  assert.ok(await leave.isVisible());
  assert.deepEqual(await axe(at), []);
  await shot(at, "wait stock");
  // More comes back.
  await stock(weir, { remaining: { floor: 20 } });
  await until("the page says that it is over", async () => /There may be something for you again/.test(await text(at, "beyond")));
  assert.match(await text(at, "announcement"), /There may be something for you again/);
  assert.ok(await leave.isHidden());
  assert.equal(calls(at, "/traffic/stock").length, 1, "labels and prices were fetched once");
  await stock(weir, { remaining: { floor: 0 } });
  await until("everything is sold out", async () => /Everything is sold out/.test(await text(at, "beyond")));
  assert.equal(await state(at), "waiting", "whoever wants to stay stays");

  await leave.click();
  const sure = at.getByRole("button", { name: "Really leave? Press again" });
  assert.equal(calls(at, "/traffic/leave").length, 0, "one press leaves nothing");
  await sure.click();
  await comes_to(at, "left");
  await until("the place is free", () => calls(at, "/traffic/leave").length === 1);
  assert.match(await text(at, "heading"), /You left the line/);
  assert.deepEqual(await axe(at), []);
  await at.getByRole("button", { name: "Take a new place" }).click();
  await rank_is(at, 4);
  await until("the new place is told the same", async () => /Everything is sold out/.test(await text(at, "beyond")));
});

test("what is left is told in Korean, in each tab, after a reload, and until it ends", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  await weir.crowd(t, "Z", 1);
  await stock(weir, { tiers: TIERS.tiers.map((tier) => ({ ...tier, remaining: tier.id === "floor" ? 1 : 0 })) });
  const at = await page(t, `${weir.url}/wait/Z?lang=ko`);
  const says = ["스탠딩£40.00–£95.001개 남음", "Balcony₩45,000매진", "골드매진"];
  await until("it is shown", async () => JSON.stringify(await lines(at)) === JSON.stringify(says));
  assert.match(await text(at, "beyond"), /1개가 남아 있으며/);
  assert.deepEqual(await axe(at), []);
  await shot(at, "wait stock ko");
  await at.reload();
  await until("after a reload", async () => JSON.stringify(await lines(at)) === JSON.stringify(says));
  const second = await at.context().newPage();
  await second.goto(`${weir.url}/wait/Z?lang=ko`);
  await until("in a second tab", async () => JSON.stringify(await lines(second)) === JSON.stringify(says));
  // Another label: the tabs fetch the texts anew.
  await stock(weir, { tiers: [{ id: "floor", label: { ko: "앞자리" } }] });
  for (const tab of [at, second]) await until("the new label", async () => JSON.stringify(await lines(tab)) === JSON.stringify(["앞자리"]));
  assert.ok(await at.locator('[data-weir="leave"]').isHidden());
  await stock(weir, { tiers: [{ id: "floor", label: { ko: "앞자리" }, remaining: 0 }] });
  for (const tab of [at, second]) await until("it is sold out", async () => /모두 매진/.test(await text(tab, "beyond")));
  await stock(weir, { tiers: [] });
  for (const tab of [at, second]) await until("nothing is said", async () => (await text(tab, "beyond")) === "");
  for (const tab of [at, second]) await until("nothing is told", async () => tab.locator('[data-weir="stock"]').isHidden());
});

test("the rule of the line is shown to whoever opens it", async (t) => {
  const weir = await Weir.start(t, { config: held({ max_active: 50 }), args: ["--audit-dir", "audit"] });
  for (const [lang, opens, says] of [["en", "How this line works", /nobody enters\..*is silent for 10 seconds/], ["ko", "이 줄의 규칙", /아무도 입장하지 않습니다.*10초 동안/]]) {
    const at = await page(t, `${weir.url}/wait/Z?lang=${lang}`);
    await comes_to(at, "waiting");
    assert.equal(calls(at, "/zones/Z/rules").length, 0, "nobody asks before it is opened");
    await at.getByText(opens).click();
    const said = () => at.locator('[data-weir="rule"]').textContent();
    await until("it is shown", async () => says.test(await said()));
    assert.match(await said(), /[0-9a-f]{64}/, "the record of the audit log");
    assert.deepEqual(await axe(at), []);
    await shot(at, `wait rules ${lang}`);
  }
});

test("the console shows what is left and how many people are told", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  await weir.crowd(t, "Z", 2);
  const at = await page(t, `${weir.admin_url}/admin#/zones/Z`);
  const section = at.getByRole("region", { name: "What is left" });
  await at.getByRole("heading", { level: 1, name: "Z" }).waitFor();
  assert.equal(await section.count(), 0, "nothing is told yet");
  await stock(weir, TIERS);
  await section.getByText("Floor <b>&").waitFor();
  assert.match(await section.textContent(), /£40\.00–£95\.00/);
  await section.getByText("sold out").waitFor();
  await stock(weir, { remaining: { floor: 1, balcony: 0 } });
  await section.getByText(/before their turn: 1 waiting/).waitFor();
  assert.deepEqual(await axe(at), []);
  await shot(at, "console stock");
  // An operator sets one number. The shop's later word on another tier stays.
  await at.getByRole("button", { name: "Change the numbers…" }).click();
  const numbers = at.getByRole("form", { name: "Change what is left" });
  assert.deepEqual(await numbers.getByRole("textbox").evaluateAll((all) => all.map(({ value }) => value)), ["1", "0", "0"]);
  await stock(weir, { remaining: { balcony: 7 } });
  const floor = numbers.getByLabel("Floor");
  await floor.fill("many");
  await numbers.getByRole("button", { name: "Tell it" }).click();
  assert.equal(await floor.getAttribute("aria-invalid"), "true");
  await floor.fill("12");
  assert.deepEqual(await axe(at), []);
  await shot(at, "console stock form");
  await numbers.getByRole("button", { name: "Tell it" }).click();
  await until("both numbers are shown", async () => {
    const cells = await section.locator("tbody td:last-child").allTextContents();
    return cells.join() === "12,7,sold out";
  });
  await until("the focus is back", async () => at.evaluate(() => document.activeElement.textContent === "Change the numbers…"));
  await stock(weir, { tiers: [] });
  await until("it is gone", async () => (await section.count()) === 0);
});

all("what is left", { concurrency: 4 }, (t) => Promise.all(tests.map(([name, run]) => t.test(name, run))));
