// A zone that opens at a set time, and the events of a zone, as an operator plans them in the console.

import assert from "node:assert/strict";
import { test } from "node:test";

import { refusedPart } from "../../console/src/schedule.js";
import { ROLES, TOKENS, api, dialog, toast } from "./console.mjs";
import { Weir, axe, page, shot, until, zone } from "./harness.mjs";

const HOT = "shop:checkout";
const FEW = [zone(HOT, { admit_per_minute: 600 }), zone("gov:forms")].join("");

const told = (weir, more) => api(weir, "GET", `/zones/${HOT}`, more);
const change = (weir, body, more = {}) => api(weir, "PATCH", `/zones/${HOT}`, { body, match: "*", ...more });

const MINUTE_S = 60;
const now_s = () => Math.floor(Date.now() / 1_000);
const utc = (unix_s) => new Date(unix_s * 1_000).toISOString().replace(".000Z", "Z");
/// Whole minutes from now, as the fields for date and time hold them.
const parts = (minutes) => {
  const text = utc(Math.floor(now_s() / MINUTE_S) * MINUTE_S + minutes * MINUTE_S);
  return { date: text.slice(0, 10), time: text.slice(11, 16), written: `${text.slice(0, 16)}[UTC]` };
};
const event = (id, from_min, begins_min, ends_min, more = {}) => ({
  id, prequeue_from: parts(from_min).written, begins: parts(begins_min).written, ends: parts(ends_min).written, before: "usual", after: "usual", ...more,
});

const section = (page, name = "Events") => page.getByRole("region", { name, exact: true });
const fault = (page, label) => page.evaluate((label) => {
  const field = [...document.querySelectorAll("form [aria-invalid='true']")].find((one) => (one.getAttribute("aria-label") ?? one.labels?.[0]?.textContent ?? "").startsWith(label));
  return field && document.getElementById(field.getAttribute("aria-describedby").split(" ")[0]).textContent;
}, label);
const focused = (page) => page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.labels?.[0]?.textContent);

/// Opens the page of the zone. The browser's time zone is UTC unless another one is named.
const open = (t, weir, options = {}) => page(t, `${weir.admin_url}/admin#/zones/${HOT}`, { timezoneId: "UTC", ...options });

async function fillMoment(form, label, { date, time }) {
  await form.getByLabel(`${label}: date`).fill(date);
  await form.getByLabel(`${label}: time`).fill(time);
}

test("an event is planned, changed and deleted; what people will see is shown before", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const at = await open(t, weir, { timezoneId: "Asia/Seoul" });
  await section(at).getByText("No event is planned.").waitFor();
  await section(at).getByRole("button", { name: "Add an event…" }).click();
  const form = at.getByRole("form", { name: "Add an event…" });
  assert.equal(await focused(at), "Name of the event");
  assert.equal(await form.getByLabel("Time zone").inputValue(), "Asia/Seoul", "the browser's time zone");
  await form.getByRole("button", { name: "Review change…" }).click();
  assert.equal(await fault(at, "Name of the event"), "This is needed");
  assert.equal(await focused(at), "Name of the event", "the first faulty field has the focus");

  await form.getByLabel("Name of the event").fill("spring-sale");
  await form.getByLabel("Time zone").fill("Europe/Berlin");
  await fillMoment(form, "Begins", { date: "2031-12-01", time: "09:00" });
  await form.getByText("Here: Mon, Dec 1, 2031, 17:00 GMT+9, in").first().waitFor();
  // The pre-queue follows the start, half an hour before it.
  assert.equal(await form.getByLabel("Places from: time").inputValue(), "08:30");
  await fillMoment(form, "Ends", { date: "2031-12-01", time: "12:00" });
  await form.getByLabel("Until places are taken").selectOption("closed");
  await form.getByLabel("After the end").selectOption("hold");
  await form.getByLabel("Entries per minute").fill("1200");
  await form.getByLabel("Most people inside").fill("50");
  await form.getByRole("button", { name: "+ ko" }).click();
  await form.getByLabel("Notice (ko)").fill("곧 시작합니다.");
  const course = form.locator(".course li");
  const expected = [
    /^Until Mon, Dec 1, 2031, 16:30 GMT\+9: closed\. Newcomers are refused/,
    /^From Mon, Dec 1, 2031, 16:30 GMT\+9: people take places, and nobody enters/,
    /^From Mon, Dec 1, 2031, 17:00 GMT\+9: open\. At most 1,200 enter per minute\. At most 50 are inside\.$/,
    /^From Mon, Dec 1, 2031, 20:00 GMT\+9: nobody enters\. People take places\.$/,
  ];
  for (const [n, text] of (await course.allTextContents()).entries()) assert.match(text, expected[n]);
  assert.equal(await course.count(), expected.length);
  assert.deepEqual(await axe(at), []);
  await shot(at, "console event form");
  await form.getByRole("button", { name: "Review change…" }).click();
  await dialog(at).getByText("What people will see").waitFor();
  assert.equal(await dialog(at).locator(".course li").count(), 4);
  assert.deepEqual((await told(weir)).events, [], "a preview changes nothing");
  assert.deepEqual(await axe(at), []);
  await shot(at, "console event preview");
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await toast(at).getByText("event spring-sale added").waitFor();
  const sale = {
    id: "spring-sale",
    prequeue_from: "2031-12-01T08:30[Europe/Berlin]",
    begins: "2031-12-01T09:00[Europe/Berlin]",
    ends: "2031-12-01T12:00[Europe/Berlin]",
    before: "closed",
    after: "hold",
    admit_per_minute: 1_200,
    max_active: 50,
    notice: { ko: "곧 시작합니다." },
  };
  assert.deepEqual((await told(weir)).events, [sale]);
  await until("the section has the focus", async () => (await at.evaluate(() => document.activeElement.id)) === "schedule-title");
  const item = section(at).getByRole("listitem");
  await item.getByText("2031-12-01T09:00[Europe/Berlin] (Mon, Dec 1, 2031, 17:00 GMT+9)").waitFor();
  assert.match(await item.textContent(), /spring-sale before begins in [\d,]+ d/);
  await at.getByText("In force now: Closed, because of the event spring-sale.").waitFor();

  // The end is changed, and that change is undone from the list of changes.
  await section(at).getByRole("button", { name: "Change… spring-sale" }).click();
  const again = at.getByRole("form", { name: "Change the event spring-sale" });
  assert.equal(await again.getByLabel("Ends: time").inputValue(), "12:00");
  assert.equal(await again.getByLabel("Most people inside").inputValue(), "50");
  await again.getByRole("button", { name: "As text Ends" }).click();
  await again.getByLabel("Ends: text").fill("2031-12-01T12:00:30[Europe/Berlin]");
  assert.ok(await again.getByRole("button", { name: "As date and time Ends" }).isDisabled(), "the fields cannot hold seconds");
  await again.getByRole("button", { name: "Review change…" }).click();
  await dialog(at).getByRole("row", { name: "Event spring-sale: Ends" }).waitFor();
  assert.equal(await dialog(at).locator("tr.event").count(), 1, "only what differs");
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await until("it is kept", async () => (await told(weir)).events[0].ends === "2031-12-01T12:00:30[Europe/Berlin]");
  await at.locator(".changes > li", { hasText: "Event spring-sale: Ends" }).getByRole("button", { name: "Undo" }).click();
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await until("it is undone", async () => (await told(weir)).events[0].ends === sale.ends);

  await section(at).getByRole("button", { name: "Delete… spring-sale" }).click();
  assert.match(await dialog(at).locator(".course li").textContent(), /^From now on: open\. At most 600 enter per minute\.$/);
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await toast(at).getByText("event spring-sale deleted").waitFor();
  assert.deepEqual((await told(weir)).events, []);
  await toast(at).filter({ hasText: "event spring-sale deleted" }).getByRole("button", { name: "Undo" }).click();
  await until("it is there again", async () => (await told(weir)).events.length === 1);
  assert.deepEqual((await told(weir)).events, [sale]);
});

test("a draw that is made after its beginning is named before, and says what it waits for", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const at = await open(t, weir);
  await section(at).getByRole("button", { name: "Add an event…" }).click();
  const form = at.getByRole("form", { name: "Add an event…" });
  await form.getByLabel("Name of the event").fill("by lot");
  assert.match(await fault(at, "Name of the event"), /^“by lot” cannot be the name of an event: it has 1 to 64 of/);
  await form.getByLabel("Name of the event").fill("by-lot");
  await fillMoment(form, "Begins", parts(-10));
  await fillMoment(form, "Ends", parts(60));
  await form.getByLabel("Who enters first").selectOption("draw");
  await form.getByLabel("What decides the draw").fill("stated: six dice");
  const begun = "The event by-lot has begun, so its draw takes place at once: only people who are in line now take part";
  await form.getByText(begun).waitFor();
  await form.getByRole("button", { name: "Review change…" }).click();
  await dialog(at).getByText(begun).waitFor();
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await toast(at).getByText("event by-lot added").waitFor();
  const item = section(at).getByRole("listitem");
  await item.getByText("It waits for the value that an operator must state: “six dice”.").waitFor();
  await item.getByText(/^Overdue for \d+ s: nobody enters\.$/).waitFor();
  assert.match(await item.textContent(), /by-lot the order is drawn/);
  assert.deepEqual(await axe(at), []);
  await shot(at, "console event draw overdue");
  await at.goto(`${weir.admin_url}/admin#/`);
  const row = at.locator(`[data-zone="${HOT}"]`);
  await row.getByText("draw overdue").waitFor();
  await api(weir, "POST", `/zones/${HOT}/draws/by-lot`, { body: { value: "3 1 6 6 2 5" } });
  await until("it has taken place", async () => (await row.getByText("draw overdue").count()) === 0);
});

test("an event is planned by keyboard alone, in Korean, on a phone", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const at = await open(t, weir, { locale: "ko-KR", timezoneId: "Asia/Seoul", colorScheme: "dark", viewport: { width: 390, height: 844 } });
  await section(at, "행사").waitFor();
  /// Only with Tab: a control that Tab does not reach cannot be used by keyboard.
  const go = async (name, key = "Tab") => {
    for (let tabs = 0; tabs < 120; tabs += 1) {
      await at.keyboard.press(key);
      if (await at.evaluate((name) => {
        const { activeElement: on } = document;
        return [on.getAttribute("aria-label"), on.labels?.[0]?.textContent, on.textContent].some((text) => text?.trim().startsWith(name));
      }, name)) return;
    }
    throw new Error(`no Tab leads to ${name}`);
  };
  await go("행사 추가…");
  await at.keyboard.press("Enter");
  await until("the form has the focus", async () => (await focused(at)) === "행사 이름");
  await at.keyboard.type("sale");
  await go("텍스트로 시작");
  await at.keyboard.press("Enter");
  await go("시작: 텍스트", "Shift+Tab");
  await at.keyboard.type("2031-12-01T09:00[Asia/Seoul]");
  await go("텍스트로 종료");
  await at.keyboard.press("Enter");
  await go("종료: 텍스트", "Shift+Tab");
  await at.keyboard.type("2031-12-01T10:00[Asia/Seoul]");
  await at.getByText(/^2031년 12월 1일 \(월\) .*09:00.*부터: 열림/).waitFor();
  await at.keyboard.press("Enter");
  await dialog(at).getByText("사람들에게 보이는 것").waitFor();
  assert.deepEqual(await axe(at), []);
  await at.keyboard.press("Enter");
  await toast(at).getByText("행사 sale 추가").waitFor();
  const [planned] = (await told(weir)).events;
  assert.equal(planned.prequeue_from, "2031-12-01T08:30[Asia/Seoul]");
  assert.deepEqual(await axe(at), []);
  // Nothing extends beyond the width of the page, with the form open, too.
  await section(at, "행사").getByRole("button", { name: "변경… sale" }).click();
  await at.getByRole("form", { name: "행사 sale 변경" }).waitFor();
  assert.deepEqual(await axe(at), []);
  const [wide, room] = await at.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= room, `${wide} px on ${room}`);
  await shot(at, "console event ko phone");
});

test("a refused event is shown at the right field", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const other = { id: "other", prequeue_from: "2031-12-01T08:00[UTC]", begins: "2031-12-01T09:00[UTC]", ends: "2031-12-01T10:00[UTC]" };
  await change(weir, { events: [other] });
  const at = await open(t, weir);
  await section(at).getByRole("listitem").waitFor();
  await section(at).getByRole("button", { name: "Add an event…" }).click();
  const form = at.getByRole("form", { name: "Add an event…" });
  await form.getByLabel("Name of the event").fill("other");
  assert.equal(await fault(at, "Name of the event"), "The zone has an event of this name");
  await form.getByLabel("Name of the event").fill("sale");
  // A time that the clocks skip.
  await form.getByLabel("Time zone").fill("Europe/Berlin");
  await fillMoment(form, "Begins", { date: "2031-03-30", time: "02:30" });
  assert.equal(await fault(at, "Begins"), "The clocks of this time zone skip this time");
  await fillMoment(form, "Begins", { date: "2031-10-26", time: "02:30" });
  assert.match(await fault(at, "Begins"), /show this time twice/);
  // A pre-queue that is too short.
  await form.getByLabel("Time zone").fill("UTC");
  await fillMoment(form, "Begins", { date: "2031-12-01", time: "10:30" });
  await fillMoment(form, "Ends", { date: "2031-12-01", time: "11:00" });
  assert.equal(await fault(at, "Places from"), undefined);
  await fillMoment(form, "Places from", { date: "2031-12-01", time: "10:30" });
  assert.match(await fault(at, "Places from"), /^At least 60 s before the start/);
  // An overlap.
  await fillMoment(form, "Places from", { date: "2031-12-01", time: "09:59" });
  assert.equal(await fault(at, "Places from"), "The event other ends only at 2031-12-01T10:00[UTC]");
  await fillMoment(form, "Places from", { date: "2031-12-01", time: "10:00" });
  assert.equal(await fault(at, "Places from"), undefined);
  assert.deepEqual(await axe(at), []);

  // What the browser does not read, the server refuses; its reason is at the field.
  await form.getByRole("button", { name: "As text Begins" }).click();
  await form.getByLabel("Begins: text").fill("tomorrow");
  await form.getByText("Not read by the browser; the server checks it").waitFor();
  await form.getByRole("button", { name: "Review change…" }).click();
  await until("the reason is there", async () => /"tomorrow" is not an instant/.test(await fault(at, "Begins")));
  await until("the field has the focus", async () => (await focused(at)) === "Begins: text");
  assert.equal(await dialog(at).count(), 0);
  assert.deepEqual(await axe(at), []);
  await form.getByLabel("Begins: text").fill("2031-12-01T10:30Z");
  assert.equal(await fault(at, "Begins"), undefined);

  // An own deletion is no conflict.
  await change(weir, { events: [other, event("past", -90, -80, -70)] });
  await form.getByText("Somebody changed this zone since you began").waitFor();
  await form.getByRole("button", { name: "Cancel" }).click();
  await section(at).getByRole("button", { name: "Add an event…" }).click();
  await form.getByLabel("Name of the event").fill("sale");
  await form.getByLabel("Time zone").fill("UTC");
  await section(at).getByText("Over: 1").click();
  await section(at).getByRole("button", { name: "Delete… past" }).click();
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await toast(at).getByText("event past deleted").waitFor();
  await until("the form goes on", async () => (await form.getByText("Somebody changed this zone").count()) === 0);
  assert.equal(await form.getByLabel("Name of the event").inputValue(), "sale");
  await fillMoment(form, "Begins", { date: "2031-12-01", time: "10:30" });
  await form.getByRole("button", { name: "As text Begins" }).click();
  await fillMoment(form, "Ends", { date: "2031-12-01", time: "11:00" });

  // A colleague's event comes meanwhile, and the new one overlaps it. The colleague's stays.
  await change(weir, { events: [other, { ...other, id: "colleague", prequeue_from: "2031-12-01T10:15Z", begins: "2031-12-01T10:20Z", ends: "2031-12-01T10:45Z" }] });
  await form.getByRole("button", { name: "Review change…" }).click();
  await dialog(at).getByText("Somebody else changed this zone").waitFor();
  await dialog(at).getByRole("row", { name: "Event colleague" }).waitFor();
  assert.deepEqual(await axe(at), []);
  await dialog(at).getByRole("button", { name: "Review on top of it" }).click();
  await until("the overlap is at its field", async () => /colleague/.test(await fault(at, "Ends")));
  assert.equal(await dialog(at).count(), 0);
  // After it is corrected, the review continues from the colleague's state, without another conflict.
  await fillMoment(form, "Places from", { date: "2031-12-01", time: "10:45" });
  await form.getByLabel("Begins: text").fill("2031-12-01T11:00Z");
  await fillMoment(form, "Ends", { date: "2031-12-01", time: "12:00" });
  await form.getByRole("button", { name: "Review change…" }).click();
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await toast(at).getByText("event sale added").waitFor();
  assert.deepEqual((await told(weir)).events.map(({ id }) => id), ["other", "colleague", "sale"]);
});

test("the server's own words about an event lead to the field", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const other = event("other", 60, 70, 80);
  const sale = event("sale", 100, 110, 120);
  const headers = { "content-type": "application/json", "if-match": "*" };
  for (const [part, events] of [
    ["begins", [other, { ...sale, begins: "tomorrow" }]],
    ["ends", [other, { ...sale, ends: "2026-03-29T02:30[Europe/Berlin]" }]],
    ["id", [other, { ...sale, id: "a sale" }]],
    ["before", [other, { ...sale, before: "shut" }]],
    ["notice", [other, { ...sale, notice: { EN: "x" } }]],
    ["prequeue_from", [other, { ...sale, prequeue_from: sale.begins }]],
    ["ends", [other, { ...sale, ends: sale.begins }]],
    ["admit_per_minute", [other, { ...sale, admit_per_minute: 0 }]],
    ["max_active", [other, { ...sale, max_active: 4_000_000_000 }]],
    ["prequeue_from", [other, { ...sale, prequeue_from: parts(75).written }]],
    ["ends", [{ ...other, id: "later", prequeue_from: parts(115).written, begins: parts(125).written, ends: parts(130).written }, sale]],
    ["id", [{ ...other, id: "sale" }, sale]],
    [null, [{ ...other, begins: "tomorrow" }, sale]],
  ]) {
    const reply = await fetch(`${weir.admin_url}/admin/v1/zones/${HOT}`, { method: "PATCH", headers, body: JSON.stringify({ events }) });
    const problem = await reply.json();
    assert.ok([400, 422].includes(reply.status), `${reply.status} ${problem.detail}`);
    assert.equal(refusedPart(problem, events[1].id, events).part, part, problem.detail);
  }
});

test("a change on top of a colleague's keeps both", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const mine = event("mine", 60, 90, 120);
  await change(weir, { events: [mine] });
  const at = await open(t, weir);
  await section(at).getByRole("button", { name: "Change… mine" }).click();
  const form = at.getByRole("form", { name: "Change the event mine" });
  await form.getByLabel("Entries per minute").fill("77");
  await change(weir, { events: [mine, event("theirs", 180, 200, 220)], policy: { admit_per_minute: 90 } });
  await form.getByText("Somebody changed this zone since you began").waitFor();
  assert.equal(await form.getByLabel("Entries per minute").inputValue(), "77", "the typed value stays");
  await form.getByRole("button", { name: "Review change…" }).click();
  await dialog(at).getByText("Somebody else changed this zone").waitFor();
  await dialog(at).getByRole("button", { name: "Review on top of it" }).click();
  await dialog(at).getByRole("row", { name: "Event mine: Entries per minute" }).waitFor();
  assert.equal(await dialog(at).locator("tr.event").count(), 1, "the colleague's event is not part of it");
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await toast(at).waitFor();
  const { events, policy } = await told(weir);
  assert.deepEqual([events.map(({ id }) => id), events[0].admit_per_minute, policy.admit_per_minute], [["mine", "theirs"], 77, 90]);
});

test("an event begins and ends while the page is open, by the server's clock", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const begins_s = now_s() + 20;
  const sale = { id: "sale", prequeue_from: utc(begins_s - 600), begins: utc(begins_s), ends: utc(begins_s + 15), after: "closed", admit_per_minute: 60 };
  await change(weir, { events: [sale] });
  const at = await open(t, weir);
  const item = section(at).getByRole("listitem");
  await item.getByText("places are taken").waitFor();
  assert.match(await at.locator("p.opens").textContent(), /^Opens in \d+ s/);
  assert.match(await item.textContent(), /begins in \d+ s/);
  assert.match(await at.locator(".tile").nth(1).textContent(), /of 60$/, "the event's rate is in force");
  const { body } = await weir.ask("/traffic/wait", { zoneId: HOT });
  assert.equal((await weir.ask("/traffic/entry", { zoneId: HOT, token: body.token })).status, 200);
  // The start and the end are further away than the usual patience, so that a slow machine opens the page before them.
  await item.getByText("open", { exact: true }).waitFor({ timeout: 60_000 });
  assert.ok(Date.now() / 1_000 >= begins_s - 0.5, `it is open ${begins_s - Date.now() / 1_000} s before the start`);
  await until("the countdown is over", async () => (await at.locator("p.opens").count()) === 0);
  await at.getByRole("status").getByText(`${HOT} is open now.`).waitFor({ state: "attached" });
  assert.match(await item.textContent(), /ends in \d+ s/);
  // The usual rate is not that of the event, and the preview says so.
  await at.getByRole("button", { name: "Halve the rate" }).click();
  await dialog(at).getByText("The event sale has its own value").waitFor();
  await at.keyboard.press("Escape");
  await at.getByText("In force now: Closed, because of the event sale.").waitFor({ timeout: 60_000 });
  await section(at).getByText("Over: 1").click();
  await item.getByText("over", { exact: true }).waitFor();
  assert.deepEqual(await axe(at), []);
});

test("the countdown follows the server's clock, not the device's", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const opens_s = now_s() + 3_600;
  await change(weir, { policy: { opens_at: utc(opens_s) } });
  // The device's clock is two hours fast: by it, the zone would be open.
  const at = await page(t, "about:blank", { timezoneId: "UTC" });
  await at.addInitScript(() => {
    const now = Date.now.bind(Date);
    globalThis.fast_ms = 7_200_000;
    Date.now = () => now() + globalThis.fast_ms;
  });
  await at.goto(`${weir.admin_url}/admin#/zones/${HOT}`);
  await at.locator("p.opens").getByText(/^Opens in (1 h|59 min|60 min)/).waitFor();
  await at.getByText(/^Here: .*, in (1 h|59 min|60 min)/).waitFor();
  // It jumps, and the server does not say its time meanwhile.
  await at.route("**/admin/v1/zones*", (route) => route.abort());
  const left = () => at.locator("p.opens strong").textContent();
  const before = await left();
  await at.evaluate(() => (globalThis.fast_ms = -7_200_000));
  await until("the countdown goes on", async () => (await left()) !== before);
  assert.match(await left(), /^Opens in 59 min/);
});

test("a zone is given a time to open, and the server's refusal is at the field", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const at = await open(t, weir, { timezoneId: "America/New_York" });
  const field = at.getByLabel("Opens at");
  await field.fill("2031-03-30T02:30[Europe/Berlin]");
  assert.equal(await fault(at, "Opens at"), "The clocks of this time zone skip this time");
  assert.ok(await at.getByRole("button", { name: "Review change…" }).isDisabled());
  await field.fill("soon");
  await at.getByRole("button", { name: "Review change…" }).click();
  await until("the reason is there", async () => /^"soon" is not an instant/.test(await fault(at, "Opens at")));
  await until("the field has the focus", async () => (await focused(at)) === "Opens at");
  assert.deepEqual(await axe(at), []);
  await field.fill("2031-12-01T09:00[Europe/Berlin]");
  await at.getByText("Here: Mon, Dec 1, 2031, 03:00 EST, in").waitFor();
  await at.getByRole("button", { name: "Review change…" }).click();
  const row = dialog(at).getByRole("row", { name: "Opens at" });
  await row.waitFor();
  assert.deepEqual(await row.getByRole("cell").allTextContents(), ["no set time", "Mon, Dec 1, 2031, 03:00 EST"]);
  await dialog(at).getByText("Nobody enters until Mon, Dec 1, 2031, 03:00 EST").waitFor();
  assert.deepEqual(await axe(at), []);
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await toast(at).getByText("Opens at no set time → Mon, Dec 1, 2031, 03:00 EST").waitFor();
  assert.equal((await told(weir)).policy.opens_at, "2031-12-01T08:00:00Z");
  await at.getByText(/^Opens in [\d,]+ d/).waitFor();
  await until("the field shows what the server has", async () => (await field.inputValue()) === "2031-12-01T08:00:00Z");
  // Empty: no set time.
  await field.fill("");
  await at.getByRole("button", { name: "Review change…" }).click();
  await dialog(at).getByText("The zone has no set opening any more.").waitFor();
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await until("it is gone", async () => (await told(weir)).policy.opens_at === null);
});

test("a viewer sees the events and cannot change them", async (t) => {
  const weir = await Weir.start(t, { config: FEW + ROLES });
  await change(weir, { events: [event("sale", 60, 90, 120)] }, { token: TOKENS.operator });
  const at = await open(t, weir);
  await at.getByLabel("Token").fill(TOKENS.viewer);
  await at.keyboard.press("Enter");
  await section(at).getByRole("listitem").getByText("sale").waitFor();
  assert.equal(await section(at).getByRole("button").count(), 0);
  assert.ok(await at.getByLabel("Opens at").isDisabled());
  assert.deepEqual(await axe(at), []);
  // The change is in the feed, with its author.
  await at.goto(`${weir.admin_url}/admin#/events`);
  await at.locator("table.feed tbody tr").filter({ hasText: "event sale added" }).filter({ hasText: "a-operator" }).waitFor();
});
