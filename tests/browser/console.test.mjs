// The console as an operator on duty uses it: the busy zone, a change and its undo, a colleague, a viewer, a server that
// stops.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ROLES, TOKENS, api, dialog, toast } from "./console.mjs";
import { Weir, axe, context, page, shot, until, zone } from "./harness.mjs";

const HOT = "shop:checkout";
/// Screenshots show the visible part. A whole table of hundreds of rows would be useless.
const MANY = 300;
/// Hundreds of zones, of which one becomes busy.
const ZONES = Array.from({ length: MANY }, (_, n) => (n === 150 ? zone(HOT, { admit_per_minute: 10 }) : zone(`gov:forms-${n}`))).join("");
const FEW = [zone(HOT, { admit_per_minute: 10 }), zone("gov:forms")].join("");

const policy = async (weir, id = HOT) => (await api(weir, "GET", `/zones/${id}`)).policy;

const row = (page, id) => page.locator(`[data-zone="${id}"]`);
const number = async (locator) => Number((await locator.textContent()).replace(/\D/g, ""));

test("the busy zone is at once on top of hundreds, live", async (t) => {
  const weir = await Weir.start(t, { config: ZONES });
  await weir.crowd(t, HOT, 30);
  const at = await page(t, `${weir.admin_url}/admin`);
  await at.locator(`tbody [data-zone]`).first().waitFor();
  const first = () => at.locator("tbody [data-zone]").first().getAttribute("data-zone");
  await until("the hot zone is on top", async () => (await first()) === HOT);
  assert.equal(await at.locator("table.zones").getAttribute("aria-rowcount"), String(MANY + 1));
  // The page contains only visible rows, however many zones there are.
  assert.ok((await at.locator("tbody [data-zone]").count()) < 60);
  assert.equal(await at.locator("th.c-waiting").getAttribute("aria-sort"), "descending");
  await until("it says so", async () => (await at.locator(".pulse").getAttribute("data-state")) === "live");
  await shot(at, "console zones");
  assert.deepEqual(await axe(at), []);

  // From now on the list fails, so changes arrive only by the stream.
  await at.route("**/admin/v1/zones*", (route) => route.abort());
  const before = await number(row(at, HOT).locator(".c-waiting"));
  for (let more = 0; more < 5; more += 1) await weir.ask("/traffic/wait", { zoneId: HOT });
  await until("the line is seen to grow by the stream alone", async () => (await number(row(at, HOT).locator(".c-waiting"))) >= before + 5);
  await at.unroute("**/admin/v1/zones*");

  // Scrolling to the end shows other rows, and as few of them.
  await at.evaluate(() => scrollTo(0, document.body.scrollHeight));
  await until("the last row is there", () => at.locator(`[aria-rowindex="${MANY + 1}"]`).isVisible());
  assert.ok((await at.locator("tbody [data-zone]").count()) < 60);
});

test("a table is searched and sorted by keyboard", async (t) => {
  const weir = await Weir.start(t, { config: ZONES });
  const at = await page(t, `${weir.admin_url}/admin`);
  await at.locator("tbody [data-zone]").first().waitFor();
  await at.keyboard.press("/");
  await at.keyboard.type("FORMS 29");
  const shown = () => at.locator("tbody [data-zone]").evaluateAll((rows) => rows.map((row) => row.dataset.zone));
  // The names with a 9: forms-29, forms-129, forms-229, and forms-290 to forms-299.
  await until("what fits is shown", async () => (await shown()).length === 13);
  await at.keyboard.press("Escape");
  await until("all are shown again", async () => (await at.locator("table.zones").getAttribute("aria-rowcount")) === String(MANY + 1));

  await at.getByRole("button", { name: "Zone", exact: true }).focus();
  await at.keyboard.press("Enter");
  await until("sorted by name", async () => (await shown())[0] === "gov:forms-0");
  assert.equal(await at.locator("th.c-zone").first().getAttribute("aria-sort"), "ascending");
  await at.keyboard.press("Enter");
  await until("and the other way", async () => (await shown())[0] === HOT);
  assert.equal(await at.locator("th.c-zone").first().getAttribute("aria-sort"), "descending");

  // Move down further than the visible rows. The focus stays on a row, and Enter opens it.
  await row(at, HOT).getByRole("link").focus();
  await at.keyboard.press("End");
  const focused = () => at.evaluate(() => document.activeElement.closest("[data-zone]")?.dataset.zone);
  await until("the last row has the focus", async () => (await focused()) === "gov:forms-0");
  await at.keyboard.press("ArrowUp");
  await until("the one before it", async () => (await focused()) === "gov:forms-1");
  await at.keyboard.press("Enter");
  await at.getByRole("heading", { level: 1, name: "gov:forms-1" }).waitFor();
});

test("a rate is halved, checked and restored by keyboard alone", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  await weir.crowd(t, HOT, 30);
  const at = await page(t, `${weir.admin_url}/admin`);
  await row(at, HOT).waitFor();
  const press = async (name, within = "body") => {
    // Only with Tab: a control that Tab does not reach cannot be used by keyboard.
    for (let tabs = 0; tabs < 80; tabs += 1) {
      await at.keyboard.press("Tab");
      if (await at.evaluate(([name, within]) => {
        const { activeElement: on } = document;
        return on.closest(within) && on.textContent.trim().startsWith(name);
      }, [name, within])) {
        return at.keyboard.press("Enter");
      }
    }
    throw new Error(`no Tab leads to ${name}`);
  };
  await press(HOT);
  await at.getByRole("heading", { level: 1, name: HOT }).waitFor();
  await until("the line is seen", async () => (await at.locator(".tile").first().textContent()).match(/[1-9]/));
  await press("Halve the rate");
  const rate = dialog(at).locator("tr", { hasText: "Entries per minute" });
  await rate.waitFor();
  assert.deepEqual(await rate.locator("td").allTextContents(), ["10", "5"]);
  const told = dialog(at).locator("tr", { hasText: "Last" }).locator("td");
  assert.equal(await told.count(), 2);
  assert.notEqual(await told.nth(0).textContent(), await told.nth(1).textContent());
  await shot(at, "console preview");
  assert.deepEqual(await axe(at), []);
  assert.equal((await policy(weir)).admit_per_minute, 10, "a preview changes nothing");
  await at.keyboard.press("Enter");
  await toast(at).getByText("10 → 5").waitFor();
  assert.equal((await policy(weir)).admit_per_minute, 5);
  await until("the page shows it", async () => (await at.locator(".tile").nth(1).textContent()).includes("of 5"));
  // The focus is back where it was.
  assert.match(await at.evaluate(() => document.activeElement.textContent), /^Halve the rate/);

  await press("Undo", ".toast");
  await toast(at).getByText("Undone").waitFor();
  assert.equal((await policy(weir)).admit_per_minute, 10);
  // Both are in the list, newest first. The older one cannot be undone any more.
  const changes = at.locator(".changes > li");
  await until("both are listed", async () => (await changes.count()) === 2);
  assert.deepEqual(await changes.locator(".what").allTextContents(), ["Entries per minute 5 → 10", "Entries per minute 10 → 5"]);
  assert.match(await changes.nth(1).getByRole("button").textContent(), /^Undone/);
  await shot(at, "console zone");
});

test("an operator whose zone was changed meanwhile is shown that change", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const at = await page(t, `${weir.admin_url}/admin#/zones/${HOT}`);
  const polling = at.getByLabel("Polling period, ms");
  await polling.fill("5000");
  // A colleague is faster.
  const { etag } = await api(weir, "GET", `/zones/${HOT}`);
  await api(weir, "PATCH", `/zones/${HOT}`, { body: { policy: { admit_per_minute: 90 } }, match: `"${etag}"` });
  await at.getByText("Somebody changed this zone since you began").waitFor();
  assert.equal(await polling.inputValue(), "5000", "the typed value stays");
  await at.getByRole("button", { name: "Review change…" }).click();
  await dialog(at).getByText("Somebody else changed this zone").waitFor();
  assert.deepEqual(await dialog(at).locator("tr", { hasText: "Entries per minute" }).locator("td").allTextContents(), ["10", "90"]);
  await shot(at, "console conflict");
  assert.deepEqual(await axe(at), []);
  await dialog(at).getByRole("button", { name: "Review on top of it" }).click();
  await dialog(at).getByText("5,000 ms").waitFor();
  assert.deepEqual(await dialog(at).locator("tr", { hasText: "Polling period" }).locator("td").allTextContents(), ["3,000 ms", "5,000 ms"]);
  assert.equal(await dialog(at).getByText("Entries per minute").count(), 0, "the colleague's change is not part of it");
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await toast(at).waitFor();
  const now = await policy(weir);
  assert.deepEqual([now.admit_per_minute, now.polling_period_ms], [90, 5_000]);
});

test("a late undo does not undo a colleague's change", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const at = await page(t, `${weir.admin_url}/admin#/zones/${HOT}`);
  await at.getByRole("button", { name: "Double the rate" }).click();
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await toast(at).getByText("10 → 20").waitFor();
  await api(weir, "PATCH", `/zones/${HOT}`, { body: { policy: { admit_per_minute: 500 } }, match: "*" });
  await toast(at).getByRole("button", { name: "Undo" }).click();
  await dialog(at).getByText("Somebody else changed this zone").waitFor();
  assert.equal((await policy(weir)).admit_per_minute, 500);
  await at.keyboard.press("Escape");
  await until("it is closed", async () => (await dialog(at).count()) === 0);
});

test("the consequences are shown before a zone is closed; notices are written per language", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const at = await page(t, `${weir.admin_url}/admin`);
  await row(at, HOT).getByRole("button", { name: `Change ${HOT}` }).click();
  await dialog(at).getByRole("button", { name: "Closed" }).click();
  await dialog(at).getByText("Nobody enters, and newcomers are refused").waitFor();
  await dialog(at).getByRole("button", { name: "Close it" }).click();
  await toast(at).waitFor();
  assert.equal((await policy(weir)).mode, "closed");
  await until("the table has it", async () => (await row(at, HOT).locator(".c-mode").textContent()) === "Closed");

  await row(at, HOT).getByRole("link").click();
  await at.getByRole("button", { name: "+ ko" }).click();
  await at.getByLabel("Notice (ko)").fill("잠시만 기다려 주십시오.\n곧 열립니다.");
  await at.getByRole("textbox", { name: "Entries per minute" }).fill("0");
  await at.getByText("A whole number, 1 to 600,000").waitFor();
  assert.ok(await at.getByRole("button", { name: "Review change…" }).isDisabled());
  await at.getByRole("textbox", { name: "Entries per minute" }).fill("60");
  await at.getByRole("button", { name: "Review change…" }).click();
  await dialog(at).getByText("곧 열립니다.").waitFor();
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await until("it is kept", async () => (await api(weir, "GET", `/zones/${HOT}`)).notice.ko === "잠시만 기다려 주십시오.\n곧 열립니다.");
  // The change is undone from the list of changes, with a preview first.
  await at.locator(".changes > li", { hasText: "Notice (ko)" }).getByRole("button", { name: "Undo" }).click();
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await until("it is gone", async () => (await api(weir, "GET", `/zones/${HOT}`)).notice.ko === undefined);
});

test("zones are created and deleted, and a deletion is undone", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const at = await page(t, `${weir.admin_url}/admin`);
  await at.getByRole("button", { name: "New zone…" }).click();
  await dialog(at).getByLabel("Name").fill("gov:new");
  await dialog(at).getByRole("textbox", { name: "Entries per minute" }).fill("1200");
  assert.deepEqual(await axe(at), []);
  await dialog(at).getByRole("button", { name: "Review change…" }).click();
  await dialog(at).getByRole("button", { name: "Create it" }).click();
  await row(at, "gov:new").getByRole("link").click();
  await at.getByRole("button", { name: "Delete this zone…" }).click();
  const go = dialog(at).getByRole("button", { name: "Delete it" });
  await go.waitFor();
  assert.ok(await go.isDisabled(), "the name must be typed first");
  await dialog(at).getByLabel("Type gov:new").fill("gov:new");
  await go.click();
  await toast(at).getByText("gov:new was deleted").waitFor();
  await until("the table has it no more", async () => (await row(at, "gov:forms").isVisible()) && (await row(at, "gov:new").count()) === 0);
  await toast(at).getByText("gov:new was deleted").locator("..").getByRole("button", { name: "Undo" }).click();
  await row(at, "gov:new").waitFor();
  assert.equal((await policy(weir, "gov:new")).admit_per_minute, 1_200);
});

test("a token is required, and a viewer sees what cannot be changed and why", async (t) => {
  const weir = await Weir.start(t, { config: FEW + ROLES });
  const at = await page(t, `${weir.admin_url}/admin`);
  await at.getByLabel("Token").fill("weir_wrong");
  await shot(at, "console login");
  assert.deepEqual(await axe(at), []);
  await at.keyboard.press("Enter");
  await at.getByText("The server does not accept this token.").waitFor();
  await at.getByLabel("Token").fill(TOKENS.viewer);
  await at.keyboard.press("Enter");
  await row(at, HOT).waitFor();
  assert.ok(await row(at, HOT).getByRole("button").isDisabled());
  await at.getByText("requires the role operator").waitFor();
  assert.equal(await at.getByRole("button", { name: "New zone…" }).count(), 0);
  await row(at, HOT).getByRole("link").click();
  await at.getByRole("heading", { level: 1, name: HOT }).waitFor();
  for (const name of ["Hold", "Closed", "Halve the rate", "Delete this zone…", "Review change…"]) {
    const button = at.getByRole("button", { name }).first();
    assert.ok(await button.isDisabled(), name);
  }
  const why = await at.getByRole("button", { name: "Hold" }).getAttribute("aria-describedby");
  assert.match(await at.locator(`#${why}`).textContent(), /role operator/);
  await shot(at, "console viewer");
  assert.deepEqual(await axe(at), []);

  // The token belongs to this tab and travels only in the header.
  await at.reload();
  await at.getByRole("heading", { level: 1, name: HOT }).waitFor();
  const kept = await at.evaluate(() => [JSON.stringify(localStorage), document.cookie, location.href, document.documentElement.outerHTML]);
  for (const text of [...kept, ...at.context().requests.map((request) => request.url + (request.body ?? ""))]) {
    assert.ok(!text.includes(TOKENS.viewer), text);
  }
  await at.getByRole("button", { name: "Sign out" }).click();
  await at.getByLabel("Token").waitFor();
  assert.ok(!(await at.evaluate(() => JSON.stringify(sessionStorage))).includes("weir_of"));
});

test("a refusal of the server is shown", async (t) => {
  const weir = await Weir.start(t, { config: FEW + ROLES });
  const at = await page(t, `${weir.admin_url}/admin#/zones/${HOT}`);
  await at.getByLabel("Token").fill(TOKENS.operator);
  await at.keyboard.press("Enter");
  await at.getByRole("button", { name: "Halve the rate" }).click();
  // The preview is made with the role of before.
  await dialog(at).getByRole("button", { name: "Change it", disabled: false }).waitFor();
  // Meanwhile the operator becomes a viewer.
  weir.configure((FEW + ROLES).replace('role = "operator"', 'role = "viewer"'));
  weir.signal("SIGHUP");
  const whoami = () => api(weir, "GET", "/whoami", { token: TOKENS.operator });
  await until("the role is another one", async () => (await whoami()).role === "viewer");
  await dialog(at).getByRole("button", { name: "Change it" }).click();
  await dialog(at).getByText("Your token does not allow that.").waitFor();
  assert.equal((await api(weir, "GET", `/zones/${HOT}`, { token: TOKENS.viewer })).policy.admit_per_minute, 10);
});

test("old data is shown as out of date until the server is back", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const at = await (await context(t)).newPage();
  const state = () => at.locator(".pulse").getAttribute("data-state");

  // Without the stream the zones are polled.
  await at.route("**/admin/v1/events*", (route) => route.abort());
  await at.goto(`${weir.admin_url}/admin`);
  await until("it is polled", async () => (await state()) === "polling");
  await api(weir, "PATCH", `/zones/${HOT}`, { body: { policy: { mode: "hold" } }, match: "*" });
  await until("and up to date", async () => (await row(at, HOT).locator(".c-mode").textContent()) === "Hold");
  await at.unroute("**/admin/v1/events*");
  await until("it is live", async () => (await state()) === "live");

  await weir.kill();
  await at.getByText(/^Out of date: figures are from/).waitFor();
  assert.equal(await state(), "stale");
  assert.ok(await row(at, HOT).isVisible(), "the last known state is still shown");
  await shot(at, "console stale");
  assert.deepEqual(await axe(at), []);
  await weir.up();
  await until("it is live again", async () => (await state()) === "live");
  assert.equal(await at.getByText(/^Out of date/).count(), 0);
});

test("events are listed, selected by kind, and paused for reading", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const at = await page(t, `${weir.admin_url}/admin#/events`);
  await until("it is live", async () => (await at.locator(".pulse").getAttribute("data-state")) === "live");
  const patch = (rate) => api(weir, "PATCH", `/zones/${HOT}`, { body: { policy: { admit_per_minute: rate } }, match: "*" });
  const rows = at.locator("table.feed tbody tr");
  await patch(70);
  await rows.filter({ hasText: "→ 70" }).waitFor();
  await shot(at, "console events");
  assert.deepEqual(await axe(at), []);
  await at.getByRole("button", { name: "Pause" }).click();
  await patch(80);
  await at.getByText("New since: 1").waitFor();
  assert.equal(await rows.filter({ hasText: "→ 80" }).count(), 0);
  await at.getByRole("button", { name: "Resume" }).click();
  await rows.filter({ hasText: "→ 80" }).waitFor();
  await at.getByRole("button", { name: "Policy" }).click();
  await until("none of that kind", async () => (await rows.filter({ hasText: "→" }).count()) === 0);
  // Frequent kinds arrive only after they are selected.
  await at.getByRole("button", { name: "Joined" }).click();
  await until("somebody joined", async () => {
    await weir.ask("/traffic/wait", { zoneId: HOT });
    return (await rows.filter({ hasText: "joined" }).count()) > 0;
  });
});

test("events from before the page was opened are listed with their authors, each once", async (t) => {
  const weir = await Weir.start(t, { config: `trusted_proxies = ["127.0.0.1"]\n${FEW}${ROLES}` });
  const token = TOKENS.operator;
  const change = (body) => api(weir, "PATCH", `/zones/${HOT}`, { body, match: "*", token });
  await change({ policy: { admit_per_minute: 70 } });
  await change({ policy: { mode: "hold" } });
  weir.signal("SIGHUP");
  await until("it was reloaded", async () => (await api(weir, "GET", "/events/past", { token })).events.some(({ kind }) => kind === "Reloaded"));
  await api(weir, "PUT", "/drain", { body: { draining: true }, token: TOKENS.admin });
  await api(weir, "PUT", "/drain", { body: { draining: false }, token: TOKENS.admin });
  await api(weir, "PUT", "/routes", { body: { routes: [{ name: "abuse", deny: true, path: "/x" }] }, match: "*", token });
  const at = await page(t, `${weir.admin_url}/admin#/events`);
  await at.getByLabel("Token").fill(TOKENS.viewer);
  await at.keyboard.press("Enter");
  const rows = at.locator("table.feed tbody tr");
  const texts = async () => (await rows.allTextContents()).map((text) => text.replace(/^.*\d\d:\d\d:\d\d/, ""));
  await until("all are listed", async () => (await rows.count()) === 6);
  const [routes, back, drain, reload, mode, rate] = await texts();
  assert.match(routes, /^Routes–The routes of the API were replaceda-operator \(operator\)$/i);
  assert.match(back, /^Back in service–.*a-admin \(admin\)$/i);
  assert.match(drain, /^Drained–.*out of service.*a-admin \(admin\)$/i);
  assert.match(reload, /^Reload–The configuration was reloaded–$/);
  assert.match(mode, /^Mode.*shop:checkout.*Auto → Hold.*a-operator \(operator\)$/i);
  assert.match(rate, /^Policy.*10 → 70.*a-operator \(operator\)$/i);
  assert.deepEqual(await axe(at), []);
  // What happens now is listed once, too, and with its author.
  await change({ notice: { en: "Soon." } });
  await rows.filter({ hasText: "Notice" }).filter({ hasText: "a-operator" }).waitFor();
  assert.equal(await rows.count(), 7);
  // By keyboard: the zone's link, and a kind that is taken out.
  await at.getByRole("button", { name: "Mode", exact: true }).focus();
  await at.keyboard.press("Space");
  await until("that kind is gone", async () => (await rows.count()) === 6);
  await at.keyboard.press("Space");
  await rows.first().getByRole("link", { name: HOT }).focus();
  await at.keyboard.press("Enter");
  await at.getByRole("heading", { name: HOT }).waitFor();
  // A server that does not say it is no reason to show nothing.
  await at.route("**/admin/v1/events/past", (route) => route.abort());
  await at.goto(`${weir.admin_url}/admin#/events`);
  await at.reload();
  await at.getByText("What happened before cannot be read").waitFor();
  await at.unroute("**/admin/v1/events/past");
  await at.locator('button[lang="ko"]').click();
  await at.getByRole("columnheader", { name: "누가" }).waitFor();
  assert.deepEqual(await axe(at), []);
});

test("a zone that is away says since when, why, and what to do", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const at = await page(t, `${weir.admin_url}/admin#/zones/${encodeURIComponent(HOT)}`);
  const away = { since: Date.now() - 60_000, cause: "no_replica", why: "NOREPLICAS Not enough good replicas", advice: "start a replica" };
  await at.route("**/admin/v1/zones*", async (route) => {
    const json = await (await route.fetch()).json();
    for (const { now } of json.zones ?? []) Object.assign(now, { stale: true, away });
    await route.fulfill({ json });
  });
  await at.getByText(/^Away since .*: NOREPLICAS Not enough good replicas \(no_replica\)\. What to do: start a replica\.$/).waitFor();
  assert.deepEqual(await axe(at), []);
  await at.unrouteAll({ behavior: "ignoreErrors" });
});

test("routes are listed in their order, with their counts and without their secrets", async (t) => {
  const config = `trusted_proxies = ["127.0.0.1"]
${FEW}
[[route]]
name = "site"
zone = "gov:forms"
`;
  const weir = await Weir.start(t, { config });
  const secret = "a-secret-of-the-staff";
  const routes = [
    { name: "abuse", deny: true, address: ["198.51.100.0/24"] },
    { name: "staff", bypass: true, header: { "x-staff": { secret } } },
  ];
  const headers = { "content-type": "application/json", "if-match": "*" };
  const set = await fetch(`${weir.admin_url}/admin/v1/routes`, { method: "PUT", headers, body: JSON.stringify({ routes }) });
  assert.equal(set.status, 200);
  const asked = { "x-forwarded-host": "shop.example", "x-forwarded-uri": "/", "x-staff": secret };
  assert.equal((await fetch(`${weir.url}/gate/check`, { headers: asked })).status, 200);
  const at = await page(t, `${weir.admin_url}/admin#/routes`);
  const rows = at.getByRole("row");
  await rows.filter({ hasText: "staff" }).first().waitFor();
  const cells = async (name) => await rows.filter({ hasText: name }).first().getByRole("cell").allTextContents();
  assert.deepEqual(await cells("1. abuse"), ["API", "refuses", "address: 198.51.100.0/24", "0", "0", "0", "0"]);
  assert.deepEqual(await cells("2. staff"), ["API", "lets through", "header x-staff: a secret", "1", "0", "0", "0"]);
  assert.deepEqual(await cells("3. site"), ["file", "waits in gov:forms", "every request", "0", "0", "0", "0"]);
  assert.ok(!(await at.content()).includes(secret));
  await shot(at, "console routes");
  assert.deepEqual(await axe(at), []);
});

test("servers and stores are listed, and a server is drained", async (t) => {
  const weir = await Weir.start(t, { config: FEW });
  const at = await page(t, `${weir.admin_url}/admin#/servers`);
  await at.getByText("serving", { exact: true }).first().waitFor();
  await until("its figures are there", async () => /\d/.test(await at.locator(".tile", { hasText: "Open files" }).locator("dd").textContent()));
  await shot(at, "console servers");
  assert.deepEqual(await axe(at), []);
  await at.getByRole("button", { name: "Drain this server…" }).click();
  await dialog(at).getByRole("button", { name: "Drain this server…" }).click();
  await at.getByText("draining", { exact: true }).waitFor();
  assert.equal((await fetch(`${weir.admin_url}/readyz`)).status, 503);
  await at.getByRole("button", { name: "End draining…" }).click();
  await dialog(at).getByRole("button", { name: "End draining…" }).click();
  await at.getByText("serving", { exact: true }).first().waitFor();
  assert.equal((await fetch(`${weir.admin_url}/readyz`)).status, 200);
});
