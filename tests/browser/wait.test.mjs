// The waiting page as people see it. Places survive reloads, crashes, lost networks and frozen tabs, and the pass is handed
// over where no log and no other page sees it.

import assert from "node:assert/strict";
import { test as all } from "node:test";
import { Weir, axe, context, page, shot, until, zone } from "./harness.mjs";
import { QUICK, calls, claims, comes_to, held, open, rank_is, service, state, target, text, told, wait_of } from "./waiting.mjs";

// Each test has its own server and browser context and mostly waits, so several run at once.
const tests = [];
const test = (name, run) => tests.push([name, run]);

test("a waiting user sees the rank fall and continues with the pass in a form", async (t) => {
  const { asked, origin } = await service(t);
  const weir = await Weir.start(t, { config: target(`${origin}/enter?from=weir`) + held() });
  await weir.crowd(t, "Z", 4);
  const at = await page(t, `${weir.url}/wait/Z`);
  await rank_is(at, 5);
  assert.match(await at.title(), /^5 · Waiting room$/);
  assert.match(await text(at, "reason"), /Nobody is admitted/);
  // axe demands no name for this element.
  assert.equal(await at.getByRole("progressbar", { name: "Your progress" }).count(), 1);
  assert.match(await text(at, "explanation"), /kept for 10 seconds/);
  weir.configure(weir.config.replace('mode = "hold"', 'mode = "auto"'));
  weir.signal("SIGHUP");
  await at.waitForURL(`${origin}/enter?from=weir`);
  const entered = asked.find(({ url }) => url.startsWith("/enter"));
  assert.equal(entered.method, "POST");
  assert.equal(claims(new URLSearchParams(entered.body).get("pass")).zone, "Z");
  assert.equal(entered.headers.origin, weir.url, "services check it against forged forms");
  assert.equal(entered.headers.referer, `${weir.url}/`, "only the origin");
  const pass = new URLSearchParams(entered.body).get("pass");
  await until("the page's picture is asked for", () => asked.some(({ url }) => url === "/seen.png"));
  for (const { url, headers } of [...asked, ...at.context().requests]) {
    assert.ok(!url.includes(pass) && !JSON.stringify(headers).includes(pass), `the pass is in ${url}`);
  }
  // Back on the waiting page: a used pass is not handed over again without a click.
  await at.goto(`${weir.url}/wait/Z`);
  await comes_to(at, "again");
  await axe(at).then((found) => assert.deepEqual(found, []));
  const before = asked.length;
  await at.getByRole("button", { name: "Continue" }).click();
  await at.waitForURL(`${origin}/enter?from=weir`);
  assert.equal(new URLSearchParams(asked[before].body).get("pass"), pass, "the same pass");
});

test("a page counts down until the zone opens, also on a device whose clock is wrong", async (t) => {
  const opens_at = new Date(Date.now() + 15_000).toISOString().replace(/\.\d+Z$/, "Z");
  const weir = await Weir.start(t, { config: open({ opens_at }) });
  const shown = [["en", /Opens in \d+ seconds?\./], ["ko", /\d+초 뒤에 입장이 시작됩니다/]];
  await Promise.all(shown.map(async ([lang, says]) => {
    const at = await page(t, "about:blank");
    await at.addInitScript(() => {
      const now = Date.now;
      Date.now = () => now() + 10_800_000;
    });
    await at.goto(`${weir.url}/wait/Z?lang=${lang}`);
    await until("it counts down", async () => says.test(await text(at, "reason")));
    const first = await text(at, "reason");
    await until("and goes on", async () => (await text(at, "reason")) !== first);
    await comes_to(at, "entered");
  }));
  assert.ok(Date.now() >= Date.parse(opens_at), "nobody entered before");
});

test("a page without a server gets the pass in the fragment", async (t) => {
  const { asked, origin } = await service(t);
  const weir = await Weir.start(t, { config: target(`${origin}/app`, "fragment") + open() });
  const at = await page(t, `${weir.url}/wait/Z`);
  await at.waitForURL(`${origin}/app#pass=*`);
  const pass = new URLSearchParams(new URL(at.url()).hash.slice(1)).get("pass");
  assert.equal(claims(pass).zone, "Z");
  await until("the page's picture is asked for", () => asked.some(({ url }) => url === "/seen.png"));
  for (const { url, headers } of asked) assert.ok(!url.includes(pass) && !JSON.stringify(headers).includes(pass), url);
});

test("no link chooses the target", async (t) => {
  const { asked, origin } = await service(t);
  const { asked: asked_evil, origin: evil } = await service(t);
  const weir = await Weir.start(t, { config: target(`${origin}/enter`, "form", "Z") + open() + zone("OTHER", QUICK) });
  const tricks = new URLSearchParams({ target: evil, to: evil, next: evil, url: evil, redirect: evil, zone: evil });
  const at = await page(t, `${weir.url}/wait/Z?${tricks}#pass=x&target=${evil}`);
  await at.waitForURL(`${origin}/enter`);
  assert.equal(asked.filter(({ method }) => method === "POST").length, 1);
  // A zone without a target leads nowhere, and a manipulated page cannot post to another origin.
  const other = await page(t, `${weir.url}/wait/OTHER?${tricks}`);
  await comes_to(other, "entered");
  assert.match(await text(other, "explanation"), /go back to the page/);
  await other.evaluate((to) => {
    const form = Object.assign(document.createElement("form"), { method: "post", action: to });
    document.body.append(form);
    form.submit();
  }, evil);
  const { faults } = other.context();
  await until("the browser refuses", () => faults.some((fault) => fault.startsWith("breaks its policy: form-action")));
  faults.length = 0;
  assert.deepEqual(asked_evil, []);
});

test("a reload keeps the place, and a second tab shares it", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  await weir.crowd(t, "Z", 2);
  const at = await page(t, `${weir.url}/wait/Z`);
  await rank_is(at, 3);
  await at.reload();
  await rank_is(at, 3);
  const second = await at.context().newPage();
  await second.goto(`${weir.url}/wait/Z`);
  await rank_is(second, 3);
  assert.equal(calls(at, "/traffic/wait").length, 1, "one place was taken");
  const stranger = await page(t, `${weir.url}/wait/Z`);
  await rank_is(stranger, 4);
  // One tab has the stream and the other polls. When the first closes, the second continues.
  await until("the second polls", () => calls(second, "/traffic/entry").length > 0);
  const streams = () => calls(second, "/traffic/stream").length;
  const before = streams();
  await at.close();
  await until("the second has the stream now", () => streams() > before);
  await rank_is(second, 3);
});

test("two tabs that are admitted use the pass once", async (t) => {
  const { asked, origin } = await service(t);
  const weir = await Weir.start(t, { config: target(`${origin}/enter`) + held() });
  const at = await page(t, `${weir.url}/wait/Z`);
  await rank_is(at, 1);
  const second = await at.context().newPage();
  await second.goto(`${weir.url}/wait/Z`);
  await rank_is(second, 1);
  weir.configure(target(`${origin}/enter`) + open());
  weir.signal("SIGHUP");
  const tabs = [at, second];
  await until("one goes on, the other says so", async () => {
    const there = tabs.map((tab) => tab.url().startsWith(origin));
    return there.includes(true) && there.includes(false) && (await state(tabs[there.indexOf(false)])) === "again";
  });
  assert.equal(asked.filter(({ method }) => method === "POST").length, 1);
});

test("a crash of the server and a lost network cost no place", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  await weir.crowd(t, "Z", 2);
  const at = await page(t, `${weir.url}/wait/Z`);
  await rank_is(at, 3);
  await weir.kill();
  await until("the page says so", () => at.isVisible('[data-weir~="trouble"]'));
  assert.match(await text(at, "trouble"), /No connection.*kept for 10 seconds/);
  await shot(at, "wait offline");
  await weir.up();
  await until("it goes on", async () => !(await at.isVisible('[data-weir~="trouble"]')));
  await rank_is(at, 3);
  await at.context().setOffline(true);
  await until("the page says so again", () => at.isVisible('[data-weir~="trouble"]'));
  await at.context().setOffline(false);
  await until("it goes on again", async () => !(await at.isVisible('[data-weir~="trouble"]')));
  await rank_is(at, 3);
  assert.equal(calls(at, "/traffic/wait").length, 1, "one place was taken");
});

test("the page polls as told where no stream gets through", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  const at = await (await context(t)).newPage();
  await at.route("**/traffic/stream**", (route) => route.abort());
  await at.goto(`${weir.url}/wait/Z`);
  await rank_is(at, 1);
  await until("it polls", () => calls(at, "/traffic/entry").length >= 4);
  assert.equal(calls(at, "/traffic/stream").length, 1, "it tries no stream for a while");
  const streaming = await page(t, `${weir.url}/wait/Z`);
  await rank_is(streaming, 2);
  await until("a stream is open", () => calls(streaming, "/traffic/stream").length === 1);
  assert.equal(calls(streaming, "/traffic/entry").length, 0, "a tab with a stream does not poll");
  const [{ url, headers }] = calls(streaming, "/traffic/stream");
  assert.ok(!url.includes("token") && headers["last-event-id"].length === 52, "the token is in no address");
});

test("the page polls where its network has all of its streams", async (t) => {
  const settings = 'max_streams_per_client = 1\ntrusted_proxies = ["127.0.0.1"]\n';
  const weir = await Weir.start(t, { config: settings + held() });
  const visitor = async (rank) => {
    const at = await (await context(t)).newPage();
    await at.setExtraHTTPHeaders({ "X-Forwarded-For": "198.51.100.7" });
    await at.goto(`${weir.url}/wait/Z`);
    await rank_is(at, rank);
    return at;
  };
  const first = await visitor(1);
  await until("the first has the stream", () => calls(first, "/traffic/stream").length === 1);
  const second = await visitor(2);
  await until("the second polls", () => calls(second, "/traffic/entry").length >= 3);
  assert.equal(calls(second, "/traffic/stream").length, 1, "it tries no stream for a while");
  assert.equal(calls(first, "/traffic/entry").length, 0);
});

test("a user who was away for too long is told, and may take a new place", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  await weir.crowd(t, "Z", 1);
  const at = await page(t, `${weir.url}/wait/Z`);
  await rank_is(at, 2);
  await at.context().setOffline(true);
  await until("the place is given up", async () => {
    const metrics = await (await fetch(`${weir.admin_url}/metrics`)).text();
    return metrics.includes('weir_zone_evicted_total{zone="Z"} 1');
  }, 30_000);
  await weir.ask("/traffic/wait", { zoneId: "Z" });
  await at.context().setOffline(false);
  await comes_to(at, "gone");
  assert.deepEqual(await axe(at), []);
  assert.equal(calls(at, "/traffic/wait").length, 1, "no new place without a click");
  await at.getByRole("button", { name: "Take a new place" }).click();
  await rank_is(at, 3);
  assert.equal(await at.evaluate(() => document.activeElement.tagName), "H1", "the focus is on the heading");
});

test("a frozen tab that is admitted continues when it is thawed", async (t) => {
  const { origin } = await service(t);
  const weir = await Weir.start(t, { config: target(`${origin}/enter`) + held() });
  const at = await page(t, `${weir.url}/wait/Z`);
  await rank_is(at, 1);
  const debug = await at.context().newCDPSession(at);
  // A paused tab, like a frozen one, runs nothing while its connections continue. (A headless browser freezes no tabs.)
  await debug.send("Debugger.enable");
  const frozen = new Promise((done) => debug.once("Debugger.paused", done));
  await debug.send("Debugger.pause");
  weir.configure(target(`${origin}/enter`) + open());
  weir.signal("SIGHUP");
  await until("it has entered", async () => {
    const metrics = await (await fetch(`${weir.admin_url}/metrics`)).text();
    return metrics.includes('weir_zone_entered_total{zone="Z"} 1');
  });
  await frozen;
  assert.equal(at.url(), `${weir.url}/wait/Z`);
  await debug.send("Debugger.resume");
  await at.waitForURL(`${origin}/enter`);
});

test("a closed zone, an unknown one, and clients that ask too often", async (t) => {
  const limited = zone("LIMITED", { ...QUICK, mode: "hold", waits_per_minute_per_client: 1 });
  const weir = await Weir.start(t, { config: zone("Z", { ...QUICK, mode: "closed" }) + limited });
  const at = await page(t, `${weir.url}/wait/Z`);
  await comes_to(at, "closed");
  const unknown = await context(t);
  const nowhere = await unknown.newPage();
  const reply = await nowhere.goto(`${weir.url}/wait/NOWHERE`);
  assert.equal(reply.status(), 404);
  await comes_to(nowhere, "unknown");
  const first = await page(t, `${weir.url}/wait/LIMITED`);
  await rank_is(first, 1);
  const second = await page(t, `${weir.url}/wait/LIMITED`);
  await until("the trouble is shown", () => second.isVisible('[data-weir~="trouble"]'));
  assert.match(await text(second, "trouble"), /Too many requests.*Trying again in/);
  // A user with a place keeps it, whatever others do.
  await first.reload();
  await rank_is(first, 1);
});

test("a closed zone leads on whoever has no place, and nobody round and round", async (t) => {
  const instant = (seconds) => new Date(Date.now() + seconds * 1_000).toISOString().replace(/\.\d+/, "");
  const ahead = (to) =>
    `[[zone.event]]\nid = "sale"\nprequeue_from = "${instant(600)}"\nbegins = "${instant(900)}"\nends = "${instant(1_200)}"\n` +
    `before = "closed"\nbefore_page = "${to}"\n`;
  const other = zone("OTHER", { ...QUICK, mode: "hold" });
  const weir = await Weir.start(t, { config: held() + other });
  const holder = await page(t, `${weir.url}/wait/Z`);
  await rank_is(holder, 1);
  weir.configure(open() + ahead("/wait/OTHER") + other);
  weir.signal("SIGHUP");
  const closed = (zoneId) =>
    until(`${zoneId} is closed`, async () => {
      const body = JSON.stringify({ zoneId });
      const reply = await fetch(`${weir.url}/traffic/wait`, { method: "POST", headers: { "content-type": "application/json" }, body });
      return reply.status === 503;
    });
  await closed("Z");
  const newcomer = await page(t, `${weir.url}/wait/Z`);
  await newcomer.waitForURL(`${weir.url}/wait/OTHER`);
  await rank_is(newcomer, 1);
  await holder.reload();
  await rank_is(holder, 1);
  assert.equal(new URL(holder.url()).pathname, "/wait/Z", "whoever has a place stays");

  weir.configure(open() + ahead("/wait/OTHER") + zone("OTHER", QUICK) + ahead("/wait/%5A?x=1"));
  weir.signal("SIGHUP");
  await closed("OTHER");
  const last = await page(t, `${weir.url}/wait/Z`);
  await comes_to(last, "closed");
  const loaded = last.context().requests.filter(({ url }) => /^\/wait\/[^/.]+$/.test(new URL(url).pathname));
  assert.ok(loaded.length <= 4, JSON.stringify(loaded.map(({ url }) => url)));
});

test("the language follows the address or the browser", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  for (const [locale, query, lang, heading] of [
    ["ko-KR", "", "ko", "순서를 기다리고 있습니다"],
    ["fr-FR", "", "en", "You are in line"],
    ["ko-KR", "?lang=en", "en", "You are in line"],
    ["en-US", "?lang=ko", "ko", "순서를 기다리고 있습니다"],
  ]) {
    const at = await page(t, `${weir.url}/wait/Z${query}`, { locale });
    await comes_to(at, "waiting");
    assert.equal(await at.getAttribute("html", "lang"), lang);
    assert.equal(await text(at, "heading"), heading);
  }
  const at = await page(t, `${weir.url}/wait/Z`);
  await comes_to(at, "waiting");
  const rank = await text(at, "rank");
  await at.click("text=한국어");
  await comes_to(at, "waiting");
  assert.equal(await text(at, "rank"), rank, "the place is the same in another language");
});

test("a notice is shown in the user's language or in English, as text", async (t) => {
  const notice = '[zone.notice]\nen = "Doors <b>open</b>\\nat noon."\nko = "정오에 엽니다."\n';
  const weir = await Weir.start(t, { config: held() + notice + zone("Y", { ...QUICK, mode: "hold" }) + '[zone.notice]\nen = "English only"\n' });
  const said = async (zone_id, locale) => {
    const at = await page(t, `${weir.url}/wait/${zone_id}`, { locale });
    await until("the notice is shown", () => at.isVisible('[data-weir~="notice"]'));
    return [await text(at, "notice"), await at.getAttribute('[data-weir~="notice"]', "lang")];
  };
  assert.deepEqual(await said("Z", "ko-KR"), ["정오에 엽니다.", "ko"]);
  assert.deepEqual(await said("Z", "en-GB"), ["Doors <b>open</b>\nat noon.", "en"]);
  assert.deepEqual(await said("Y", "ko-KR"), ["English only", "en"]);
});

test("an operator's template is filled in", async (t) => {
  const weir = await Weir.start(t, { config: held(), args: ["--wait-templates-dir", new URL("templates", import.meta.url).pathname] });
  const at = await page(t, `${weir.url}/wait/Z`, { locale: "ko-KR" });
  await rank_is(at, 1);
  assert.match(await at.textContent("h1"), /Harbour Hall/);
  assert.equal(await at.evaluate(() => getComputedStyle(document.querySelector("h1")).color), "rgb(0, 80, 60)");
  assert.deepEqual(await axe(at), []);
});

/// Each state, with the replies that lead to it. `says` are the replies to polls in order; the last one repeats.
const problem_of = (status, code, headers = {}) => ({ status, headers, body: { type: `urn:weir:problem:${code}`, code, title: code, status } });
const PASS = { body: { canEnter: true, token: "t".repeat(52), pass: "a.b.c" } };
const STATES = [
  ["waiting", "waiting", [wait_of({})]],
  ...["slower", "slowed", "returned", "interrupted"].map((reason) => [
    reason, "waiting", [wait_of({ etaRange: [5_400, 9_000], etaSeconds: 7_000, reason })],
  ]),
  ["unsure", "waiting", [wait_of({ pollingPeriod: 500 }), wait_of({ etaRange: [240, 900] })]],
  ["held", "waiting", [wait_of({ etaSeconds: null, etaRange: null, reason: "held" })]],
  ["stale", "waiting", [wait_of({ stale: true })]],
  ["first", "waiting", [wait_of({ rank: 1, etaSeconds: 1, etaRange: [1, 5] })]],
  ["long", "waiting", [wait_of({ rank: 1_234_567, etaSeconds: 90_000, etaRange: [80_000, 100_000] })]],
  ["gone", "gone", [problem_of(410, "gone")]],
  ["closed", "closed", [problem_of(503, "zone_closed", { "retry-after": "60" })]],
  ["full", "full", [problem_of(503, "zone_full", { "retry-after": "30" })]],
  ["unknown", "unknown", [problem_of(404, "unknown_zone")]],
  ["refused", "refused", [problem_of(400, "wrong_type")]],
  ["away", undefined, [problem_of(503, "store_away", { "retry-after": "60" })]],
  ["limited", undefined, [problem_of(429, "too_many_requests", { "retry-after": "90" })]],
  ["entered", "entered", [PASS]],
  ["again", "again", [PASS], { entered: true }],
];

test("every state is accessible, in both languages, light and dark, wide and narrow", async (t) => {
  const weir = await Weir.start(t, { config: target("http://127.0.0.1:9/enter", "form", "Z") + held() + zone("NOWHERE", QUICK) });
  const looks = [
    ["en wide light", { locale: "en-US", colorScheme: "light", viewport: { width: 1280, height: 800 } }],
    ["ko narrow dark", { locale: "ko-KR", colorScheme: "dark", viewport: { width: 320, height: 640 }, reducedMotion: "reduce" }],
  ];
  for (const [look, options] of looks) {
    for (const [name, wanted, says, kept] of STATES) {
      // Without a target, a user who enters stays on the page.
      const zone_id = name === "entered" ? "NOWHERE" : "Z";
      const { at } = await told(t, weir, says, { ...options, kept, zone_id });
      if (wanted) {
        await comes_to(at, wanted);
      } else {
        await until(`${name} is shown`, () => at.isVisible('[data-weir~="trouble"]'));
      }
      await until("the notice is there", () => at.isVisible('[data-weir~="notice"]'));
      await shot(at, `wait ${name} ${look}`);
      assert.deepEqual(await axe(at), [], `${name}, ${look}`);
      const [content, window] = await at.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(content <= window, `${name}, ${look}: ${content} px in ${window}`);
      const empty = await at.evaluate(() =>
        [...document.querySelectorAll("h1,button,[data-weir]:not([data-weir=announcement],[data-weir=explanation],[data-weir=progress])")]
          .filter((element) => element.checkVisibility() && !element.textContent.trim())
          .map((element) => element.outerHTML),
      );
      assert.deepEqual(empty, [], "no visible element is empty");
      await at.context().close();
    }
  }
});

test("a wait that was told never grows without a reason", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  const quick = (more) => wait_of({ pollingPeriod: 500, ...more });
  // The page itself notes what it shows, because the test may be too slow to look in time.
  const script = () => {
    window.seen = [];
    const note = () => {
      const [eta, reason] = ["eta", "reason"].map((name) => document.querySelector(`[data-weir~="${name}"]`));
      if (eta?.textContent && eta.textContent !== window.seen.at(-1)?.[0]) window.seen.push([eta.textContent, reason.dataset.reason]);
    };
    new MutationObserver(note).observe(document, { subtree: true, childList: true, characterData: true });
  };
  const replies = [
    quick({ etaSeconds: 330, etaRange: [265, 345] }),
    quick({ etaSeconds: 330, etaRange: [315, 370] }),
    quick({ etaSeconds: 200, etaRange: [10, 1_000] }),
    quick({ etaSeconds: 200, etaRange: [190, 400] }),
    quick({ etaSeconds: 800, etaRange: [700, 1_000], reason: "slowed" }),
    quick({ etaSeconds: 790, etaRange: [690, 1_090] }),
  ];
  const { at, asked } = await told(t, weir, replies, { script });
  await until("all replies were shown", () => asked.length >= 8);
  const seen = await at.evaluate(() => window.seen);
  assert.deepEqual(seen.map(([words]) => words), ["about 4 to 6 minutes", "about 5 to 6 minutes", "up to 17 minutes", "about 3 to 7 minutes", "about 11 to 17 minutes"]);
  assert.deepEqual(seen.map(([, reason]) => reason), ["", "", "unsure", "unsure", "slowed"]);
  assert.match(await text(at, "reason"), /Fewer people are let in/, "the reason stays long enough to be read");
  // A reload is not a reason either.
  await at.reload();
  await until("the wait is shown again", async () => (await text(at, "eta")) !== "");
  assert.match(await text(at, "eta"), /about 1[01] to 17 minutes/);
});

test("a screen reader hears changes, but not each step", async (t) => {
  const weir = await Weir.start(t, { config: held() });
  const says = Array.from({ length: 6 }, (_, i) => wait_of({ rank: 100 - i, pollingPeriod: 500 }));
  const { at, asked } = await told(t, weir, [...says, wait_of({ etaSeconds: null, etaRange: null, reason: "held", pollingPeriod: 500 })]);
  await at.evaluate(() => {
    globalThis.said = [];
    const live = document.querySelector("[role=status]");
    new MutationObserver(() => globalThis.said.push(live.textContent)).observe(live, { childList: true, characterData: true, subtree: true });
    globalThis.said.push(live.textContent);
  });
  await until("all replies were told", () => asked.length >= 8);
  await until("the hold is announced", async () => (await at.evaluate(() => globalThis.said.at(-1))).includes("Nobody is admitted"));
  const said = await at.evaluate(() => globalThis.said);
  assert.ok(said.length <= 4, `it was told ${said.length} times: ${said.join(" | ")}`);
  assert.equal(await at.locator("[aria-live], [role=status], [role=alert]").count(), 1);
});

test("an app of another origin uses weir.js", async (t) => {
  const app = await service(t);
  const weir = await Weir.start(t, { config: `cors_origins = ["${app.origin}"]\n${held()}${zone("Y", { ...QUICK, mode: "hold" })}` });
  const at = await page(t, `${app.origin}/`);
  await at.addScriptTag({ url: `${weir.url}/weir.js` });
  await at.evaluate(() => {
    globalThis.told = [];
    globalThis.place = globalThis.Weir.wait({ zone: "Z" });
    for (const name of ["waiting", "entered", "problem"]) place.addEventListener(name, (e) => told.push([name, e.detail]));
  });
  const last = () => at.evaluate(() => globalThis.told.at(-1) ?? []);
  const waiting = await until("it waits", async () => ((await last())[0] === "waiting" ? last() : null));
  assert.equal(waiting[1].rank, 1);
  const parts = ["beyond_stock", "eta", "opens_in_ms", "progress", "rank", "reason", "stale", "stock"];
  assert.deepEqual(Object.keys(waiting[1]).sort(), parts);
  await until("a stream is open", () => calls(at, "/traffic/stream").length === 1);
  weir.configure(weir.config.replace('mode = "hold"', 'mode = "auto"'));
  weir.signal("SIGHUP");
  const entered = await until("it is in", async () => ((await last())[0] === "entered" ? last() : null));
  assert.equal(claims(entered[1].pass).zone, "Z");
  assert.equal(entered[1].again, false);
  await at.evaluate(() => globalThis.place.anew());
  await until("anew takes a new place", async () => {
    const [name, detail] = await last();
    return name === "entered" && detail.pass !== entered[1].pass;
  });
  const streams = async () => /^weir_streams_open (\d+)$/m.exec(await (await fetch(`${weir.admin_url}/metrics`)).text())[1];
  await at.evaluate(() => (globalThis.other = globalThis.Weir.wait({ zone: "Y" })) && null);
  await until("a stream is open again", async () => (await streams()) === "1");
  await at.evaluate(() => globalThis.other.stop());
  await until("who stops listening hangs up", async () => (await streams()) === "0");
  await assert.rejects(at.evaluate(() => globalThis.Weir.wait({})), /zone must be a zone's id/);
});

test("an app of another origin says that its user leaves", async (t) => {
  const app = await service(t);
  const limited = open({ max_active: 1, visit_idle_s: 600 });
  const weir = await Weir.start(t, { config: `cors_origins = ["${app.origin}"]\n${limited}` });
  const visitor = async () => {
    const at = await page(t, `${app.origin}/`);
    await at.addScriptTag({ url: `${weir.url}/weir.js` });
    await at.evaluate(() => {
      globalThis.place = globalThis.Weir.wait({ zone: "Z" });
      for (const name of ["waiting", "entered"]) place.addEventListener(name, () => (globalThis.said = name));
    });
    return { at, says: (wanted) => until(`the app hears ${wanted}`, () => at.evaluate((name) => globalThis.said === name, wanted)) };
  };
  const ada = await visitor();
  await ada.says("entered");
  const ben = await visitor();
  await ben.says("waiting");
  await ada.at.evaluate(() => globalThis.place.leave());
  await ben.says("entered");
});

all("the waiting page", { concurrency: 4 }, (t) => Promise.all(tests.map(([name, run]) => t.test(name, run))));
