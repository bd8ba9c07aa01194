// The rules of the console that need no browser: order, differences, streams, texts, figures.

import assert from "node:assert/strict";
import { test } from "node:test";

import { figures, look, quantile } from "../../console/src/figures.js";
import { isSure, partsOf, readInstant, secondOf, writeInstant } from "../../console/src/instant.js";
import { found, slotUse, slotsBetween, sorted } from "../../console/src/order.js";
import { FIELDS } from "../../console/src/policy-fields.js";
import { DEFAULTS, NUMBERS, differences, faults, isZoneId, noticeFault, patchBetween, patchFor, patched, scaled } from "../../console/src/policy.js";
import { begunDraws, course, courseOfChange, eventFaults, nextOpening, phaseAt, policyAt, rebased, refusedPart, stateOf } from "../../console/src/schedule.js";
import { series } from "../../console/src/series.js";
import { MAX_LINE, parser } from "../../console/src/sse.js";
import { LANGUAGES, count, part, span, speak, t } from "../../console/src/words.js";

const zone = (id, waiting = 0, entered_last_minute = 0, more = {}) => ({
  id,
  policy: { ...DEFAULTS, admit_per_minute: 100, ...more },
  now: { waiting, present: waiting, entered_last_minute, eta_s: waiting, stale: false },
});
const ids = (zones) => zones.map((zone) => zone.id);

test("zones with most people are on top; idle zones are ordered by name", () => {
  const zones = [zone("b", 0, 3), zone("c", 9), zone("a", 0, 1), zone("d", 70), zone("e", 0, 95)];
  assert.deepEqual(ids(sorted(zones, { by: "waiting", down: true })), ["d", "c", "e", "a", "b"]);
  assert.deepEqual(ids(sorted(zones, { by: "zone", down: false })), ["a", "b", "c", "d", "e"]);
  const held = { ...zone("f", 5), now: { ...zone("f", 5).now, eta_s: null } };
  assert.deepEqual(ids(sorted([...zones, held], { by: "eta", down: true }))[0], "f", "without an expected wait it counts as the longest");
  assert.deepEqual(ids(found(zones, "A")), ["a"]);
  assert.deepEqual(ids(found(zones, "", "line")), ["c", "d"]);
  assert.equal(slotUse({ recent: { slots_offered: 10, slots_used: 9 } }), 0.9);
  assert.equal(slotUse({ recent: { slots_offered: 0, slots_used: 0 } }), null);
  assert.equal(slotUse({ recent: null }), null);
});

test("the use of slots counts whole windows", () => {
  // Windows of 6 s with 10 slots each, all used within 3 s.
  const samples = Array.from({ length: 60 }, (_, s) => {
    const [whole, within] = [Math.floor(s / 6), s % 6];
    return { at: s * 1_000, slots_offered: 10 * (whole + 1), slots_used: 10 * whole + Math.min(10, 3 * within) };
  });
  for (let seen = 13; seen < 60; seen += 1) {
    const { slots_offered, slots_used } = slotsBetween(samples.slice(0, seen), 0);
    assert.equal(slots_used, slots_offered, `${seen} s`);
  }
  assert.equal(slotsBetween(samples.slice(0, 8), 0), null);
  assert.equal(slotsBetween(samples, 58_000), null);
  assert.equal(slotsBetween([], 0), null);
});

test("a patch contains only what differs, and the reverse patch undoes it", () => {
  const before = { policy: DEFAULTS, notice: { en: "a", ko: "b" } };
  const after = { policy: { ...DEFAULTS, mode: "hold", admit_per_minute: 5 }, notice: { en: "a", ja: "c" } };
  const patch = patchBetween(before, after);
  assert.deepEqual(patch, { policy: { mode: "hold", admit_per_minute: 5 }, notice: { ko: null, ja: "c" } });
  assert.deepEqual(patched(before, patch), after);
  assert.deepEqual(patched(after, patchBetween(after, before)), before);
  assert.deepEqual(patchBetween(before, before), {});
  assert.deepEqual(differences(null, before).length, FIELDS.length + 2);
  const opened = { ...before, policy: { ...DEFAULTS, opens_at: "2026-12-01T08:00:00Z" } };
  assert.deepEqual(patchBetween(before, opened), { policy: { opens_at: "2026-12-01T08:00:00Z" } });
  assert.deepEqual(patchBetween(opened, before), { policy: { opens_at: null } });
  assert.ok(!NUMBERS.some(({ field }) => field === "opens_at"), "an instant is no number");
  assert.deepEqual([scaled(1, 0.5), scaled(600_000, 2), scaled(1_001, 0.5)], [1, 600_000, 501]);
});

test("numbers are checked against the ranges of the server", () => {
  assert.deepEqual(faults(DEFAULTS), {});
  assert.deepEqual(faults({ ...DEFAULTS, admit_per_minute: 0 }), { admit_per_minute: { low: 1, high: 600_000 } });
  assert.deepEqual(faults({ ...DEFAULTS, polling_period_ms: 30_000 }), { idle_timeout_s: { low: 90, high: 3_600 } });
  assert.deepEqual(faults({ ...DEFAULTS, entries_per_minute_per_client: 19 }), { entries_per_minute_per_client: { low: 20, high: 600_000 } });
  assert.deepEqual(Object.keys(faults({ ...DEFAULTS, sub_windows: Number.NaN, pass_ttl_s: 59 })), ["sub_windows", "pass_ttl_s"]);
  assert.ok(isZoneId("shop:a_b.c-1") && !isZoneId("") && !isZoneId(".") && !isZoneId("a b") && !isZoneId("a/b") && !isZoneId("x".repeat(65)));
  assert.equal(noticeFault("ko", "가\n나"), null);
  for (const [tag, text] of [["", "a"], ["k", "a"], ["ko", ""], ["ko", "a\tb"], ["ko", "x".repeat(501)]]) {
    assert.ok(noticeFault(tag, text), `${tag} ${text}`);
  }
});

test("instants are read as the server reads them", () => {
  // The same texts as in crates/admission/src/instant.rs.
  for (const [text, utc] of [
    ["2026-12-01T08:00:00Z", "2026-12-01T08:00:00Z"],
    ["2026-12-01T08:00Z", "2026-12-01T08:00:00Z"],
    ["2026-12-01T17:00:00+09:00", "2026-12-01T08:00:00Z"],
    ["2026-12-01T09:00[Europe/Berlin]", "2026-12-01T08:00:00Z"],
    ["2026-07-01T09:00[Europe/Berlin]", "2026-07-01T07:00:00Z"],
    ["2026-12-01T17:00:00[Asia/Seoul]", "2026-12-01T08:00:00Z"],
    ["2026-10-25T02:30+02:00[Europe/Berlin]", "2026-10-25T00:30:00Z"],
    ["2026-10-25T02:30+01:00[Europe/Berlin]", "2026-10-25T01:30:00Z"],
  ]) {
    assert.equal(secondOf(text), Date.parse(utc) / 1_000, text);
  }
  for (const [text, fault] of [
    ["2026-03-29T02:30[Europe/Berlin]", "instant.skipped"],
    ["2026-10-25T02:30[Europe/Berlin]", "instant.twice"],
    ["2026-12-01T09:00+05:00[Europe/Berlin]", "instant.offset"],
    ["2026-12-01T09:00[Europe/Nowhere]", "instant.zone"],
  ]) {
    assert.equal(readInstant(text).fault, fault, text);
  }
  for (const text of ["", "none", "1790000000", "2026-12-01", "2026-12-01T08:00", "2026-13-01T08:00:00Z", "2026-02-29T08:00Z", "2026-12-01T24:00Z", "2026-12-01T08:00:00Z ", "tomorrow"]) {
    assert.equal(readInstant(text).fault, "instant.form", text);
    assert.ok(!isSure("instant.form"), "the server is asked about what is not read here");
  }
  assert.deepEqual(partsOf("2026-12-01T09:00:00[Europe/Berlin]"), { date: "2026-12-01", time: "09:00", zone: "Europe/Berlin" });
  for (const text of ["2026-12-01T09:00:30[Europe/Berlin]", "2026-12-01T08:00Z", "2026-12-01T09:00+01:00[Europe/Berlin]"]) assert.equal(partsOf(text), null);
  // What is written is read as the same second, around both changes of the clocks, too.
  for (const day of ["2026-03-28T23:10:00Z", "2026-10-24T23:10:00Z"]) {
    for (let s = 0; s < 14_400; s += 590) {
      for (const zone of ["Europe/Berlin", "Asia/Seoul", "America/St_Johns", "UTC"]) {
        const unix_s = Date.parse(day) / 1_000 + s;
        assert.equal(secondOf(writeInstant(unix_s, zone)), unix_s, writeInstant(unix_s, zone));
      }
    }
  }
  assert.equal(writeInstant(Date.parse("2026-10-25T01:30:00Z") / 1_000, "Europe/Berlin"), "2026-10-25T02:30+01:00[Europe/Berlin]");
});

const event = (id, prequeue_from, begins, ends, more = {}) => ({ id, prequeue_from, begins, ends, before: "usual", after: "usual", ...more });
const SALE = event("sale", "2026-12-01T08:30[Europe/Berlin]", "2026-12-01T09:00[Europe/Berlin]", "2026-12-01T11:00:00Z", {
  before: "closed", after: "hold", admit_per_minute: 600, max_active: 50,
});
const at = (text) => Date.parse(text) / 1_000;

test("the phases of events are those of the server", () => {
  const definition = { policy: { ...DEFAULTS, admit_per_minute: 60 }, events: [SALE] };
  for (const [time, is, mode, rate] of [
    ["2026-12-01T07:29:59Z", "before", "closed", 60],
    ["2026-12-01T07:30:00Z", "prequeue", "auto", 600],
    ["2026-12-01T08:00:00Z", "open", "auto", 600],
    ["2026-12-01T11:00:00Z", "after", "hold", 60],
  ]) {
    const policy = policyAt(definition, at(time));
    assert.deepEqual([phaseAt(definition.events, at(time)).is, policy.mode, policy.admit_per_minute], [is, mode, rate], time);
  }
  assert.deepEqual(["07:29:59", "07:30:00", "08:00:00", "11:00:00"].map((time) => stateOf(SALE, at(`2026-12-01T${time}Z`))), ["before", "prequeue", "open", "over"]);
  // An operator's mode counts more than what an event says of the time around it.
  const open = { ...definition, policy: { ...definition.policy, mode: "open" } };
  assert.equal(policyAt(open, at("2026-12-01T07:00:00Z")).mode, "open");
  assert.equal(nextOpening(open, at("2026-12-01T07:00:00Z")), null);
  assert.equal(nextOpening(definition, at("2026-12-01T07:00:00Z")), at("2026-12-01T08:00:00Z"));
  assert.equal(nextOpening(definition, at("2026-12-01T08:00:00Z")), null);
  // Of the opening of an event and that of the zone, the later one counts.
  const later = { ...definition, policy: { ...definition.policy, opens_at: "2026-12-01T09:00:00Z" } };
  assert.equal(policyAt(later, at("2026-12-01T08:30:00Z")).opens_at, "2026-12-01T09:00:00Z");
  for (const time of ["07:00", "08:30"]) assert.equal(nextOpening(later, at(`2026-12-01T${time}:00Z`)), at("2026-12-01T09:00:00Z"), time);
  // Between two events, the later one counts, if it says what applies before it.
  const next = event("next", "2026-12-02T07:30:00Z", "2026-12-02T08:00:00Z", "2026-12-02T09:00:00Z");
  assert.equal(phaseAt([next, SALE], at("2026-12-01T12:00:00Z")).is, "after");
  assert.deepEqual(phaseAt([{ ...next, before: "closed" }, SALE], at("2026-12-01T12:00:00Z")), { is: "before", event: { ...next, before: "closed" } });
});

test("what people will see is told from now until the next event", () => {
  const definition = { policy: { ...DEFAULTS, admit_per_minute: 60 }, events: [SALE] };
  const told = (steps) => steps.map(({ from_s, to_s, is, policy }) => [is, new Date(from_s * 1_000).toISOString().slice(8, 16), to_s && new Date(to_s * 1_000).toISOString().slice(8, 16), policy.admit_per_minute]);
  const now_s = at("2026-11-30T00:00:00Z");
  assert.deepEqual(told(course(definition, now_s, null)), [
    ["closed", "30T00:00", "01T07:30", 60],
    ["places", "01T07:30", "01T08:00", 600],
    ["enters", "01T08:00", "01T11:00", 600],
    ["hold", "01T11:00", null, 60],
  ]);
  // By lot: people enter when the order is drawn.
  const drawn = { ...definition, events: [{ ...SALE, order: "draw", randomness: "drand", fallback: "wait" }] };
  assert.deepEqual(["07:59:59", "08:00:00", "08:00:30"].map((time) => stateOf(drawn.events[0], at(`2026-12-01T${time}Z`))), ["prequeue", "drawing", "open"]);
  const seconds = course(drawn, now_s, null).map(({ is, from_s }) => [is, new Date(from_s * 1_000).toISOString().slice(8, 19)]);
  assert.deepEqual(seconds, [["closed", "30T00:00:00"], ["places", "01T07:30:00"], ["enters", "01T08:00:30"], ["hold", "01T11:00:00"]]);
  assert.equal(nextOpening(drawn, at("2026-12-01T07:45:00Z")), at("2026-12-01T08:00:30Z"));
  assert.equal(nextOpening(drawn, at("2026-12-01T08:00:10Z")), at("2026-12-01T08:00:30Z"));
  const next = event("next", "2026-12-02T07:30:00Z", "2026-12-02T08:00:00Z", "2026-12-02T09:00:00Z");
  const both = { ...definition, events: [SALE, next] };
  assert.deepEqual(told(courseOfChange({ ...definition, events: [next] }, both, now_s)).at(-1), ["hold", "01T11:00", "02T07:30", 60]);
  // A deletion: what applies instead.
  assert.deepEqual(told(courseOfChange(definition, { ...definition, events: [] }, now_s)), [["enters", "30T00:00", null, 60]]);
  assert.deepEqual(courseOfChange(definition, definition, now_s), []);
  assert.deepEqual(courseOfChange(definition, { ...definition, events: [] }, at("2026-12-03T00:00:00Z")), []);
  // The set time of the zone is one of the steps.
  const opens = { policy: { ...DEFAULTS, opens_at: "2026-11-30T12:00:00Z" }, events: [{ ...SALE, before: "usual" }] };
  assert.deepEqual(told(course(opens, now_s, at("2026-12-01T07:30:00Z"))).map(([is]) => is), ["places", "enters"]);
});

test("faults of an event are found at their part, here and in the server's words", () => {
  const other = event("other", "2026-12-01T11:00:00Z", "2026-12-01T12:00:00Z", "2026-12-01T13:00:00Z");
  const found = (event, others = []) => Object.fromEntries(Object.entries(eventFaults(event, others)).map(([part, [key]]) => [part, key]));
  assert.deepEqual(found(SALE, [other]), {}, "an event may begin when another one ends");
  assert.deepEqual(found({ ...SALE, ends: "2026-12-01T11:00:01Z" }, [other]), { ends: "event.overlap.after" });
  assert.deepEqual(found({ ...SALE, id: "late", prequeue_from: "2026-12-01T12:59:59Z", begins: "2026-12-01T14:00Z", ends: "2026-12-01T15:00Z" }, [other]), { prequeue_from: "event.overlap.before" });
  assert.deepEqual(found({ ...SALE, prequeue_from: "2026-12-01T07:59:01Z" }), { prequeue_from: "event.short" });
  assert.deepEqual(found({ ...SALE, prequeue_from: "2026-12-01T07:59:00Z" }), {});
  assert.deepEqual(found({ ...SALE, ends: SALE.begins }), { ends: "event.endsFirst" });
  assert.deepEqual(found(SALE, [{ ...other, id: "sale" }]), { id: "event.twice" });
  const part = (detail) => refusedPart({ detail }, "sale", [other, SALE]).part;
  assert.equal(part('`events.sale.begins`: "x" is not an instant'), "begins");
  assert.equal(part('`events.other.begins`: "x" is not an instant'), null, "another event");
  assert.equal(part('`events.1.begins`: "x" is not an instant'), null, "an event of this name");
  assert.equal(part('`events[1].id`: "a sale" is no name of an event'), "id", "its place in the list");
  assert.equal(part('`events[0].id`: "a sale" is no name of an event'), null, "another place");
  assert.equal(part("`events`: event sale: prequeue_from must be at least 60 s before begins, so that all servers are ready in time"), "prequeue_from");
  assert.equal(part("`events`: event sale: admit_per_minute is 0, and must be 1 to 600000"), "admit_per_minute");
  assert.equal(part("`events`: event sale has its pre-queue from A on, and event x ends only at B"), "prequeue_from");
  assert.equal(part("`events`: event x has its pre-queue from A on, and event sale ends only at B"), "ends");
  assert.equal(part("`events`: two events have the id sale"), "id");
  assert.equal(part("`events`: there are 33 events, and 32 are the most; delete those that are over"), null);
});

test("a draw that is made after its beginning is named", () => {
  const draw = { ...SALE, order: "draw", randomness: "drand", fallback: "wait" };
  const named = (before, time) => begunDraws(before, [draw], at(`2026-12-01T${time}Z`)).map(({ id }) => id);
  assert.deepEqual(named([], "08:00:00"), ["sale"]);
  assert.deepEqual(named([SALE], "10:59:59"), ["sale"], "the order was that of arrival before");
  assert.deepEqual(named([{ ...draw, begins: "2026-12-01T08:45[Europe/Berlin]" }], "08:00:00"), ["sale"], "it was moved");
  assert.deepEqual(named([{ ...draw, admit_per_minute: 5 }], "08:00:00"), [], "another change of a draw that goes on");
  for (const time of ["07:59:59", "11:00:00"]) assert.deepEqual(named([], time), [], time);
});

test("a change of an event leaves a colleague's events as they are", () => {
  const [a, b, c] = ["a", "b", "c"].map((id, n) => event(id, `2026-12-0${n + 1}T07:00Z`, `2026-12-0${n + 1}T08:00Z`, `2026-12-0${n + 1}T09:00Z`));
  const mine = { ...a, ends: "2026-12-01T10:00Z" };
  assert.deepEqual(rebased([a, b], [mine, b], [a, c]), [mine, c], "b was deleted, and c was added meanwhile");
  assert.deepEqual(rebased([a, b], [b], [a, b, c]), [b, c]);
  const before = { policy: DEFAULTS, events: [a] };
  const after = { policy: DEFAULTS, events: [mine, b] };
  assert.deepEqual(patchBetween(before, after), { events: [mine, b] });
  assert.deepEqual(differences(before, after).map(({ field }) => field), ["events.ends a", "events. b"]);
  // An undo of that change, where c came meanwhile.
  assert.deepEqual(patchFor(patchBetween(after, before), after, { events: [mine, b, c] }), { events: [a, c] });
});

test("events are read from bytes in any pieces, and endless lines are refused", () => {
  const text = ': here\n\nevent: lost\ndata: {"count":2}\n\ndata: one\r\ndata: two\r\n\r\nid: x\n\n';
  for (let piece = 1; piece < text.length; piece += 1) {
    const heard = [];
    const take = parser((...event) => heard.push(event));
    for (let at = 0; at < text.length; at += piece) take(text.slice(at, at + piece));
    assert.deepEqual(heard, [["", ""], ["lost", '{"count":2}'], ["message", "one\ntwo"]], `in pieces of ${piece}`);
  }
  assert.throws(() => parser(() => {})("x".repeat(MAX_LINE + 1)));
});

test("every text exists in both languages with the same placeholders", () => {
  const [en, ko] = [LANGUAGES.en, LANGUAGES.ko];
  assert.deepEqual(Object.keys(ko).sort(), Object.keys(en).sort());
  const values = (text) => [...new Set(text.match(/\{\w+\}/g))].sort();
  for (const key of Object.keys(en)) {
    assert.ok(en[key] !== "" && ko[key] !== "", key);
    assert.deepEqual(values(ko[key]), values(en[key]), key);
  }
});

test("every field of the server's table has its texts", () => {
  const keys = FIELDS.flatMap(({ name, words }) => words
    ? [`field.${name}`, ...words.flatMap((word) => [`${name}.${word}`, `${name}.${word}.long`])]
    : [`field.${name}`, `field.${name}.how`]);
  assert.deepEqual(keys.filter((key) => !(key in LANGUAGES.en)), []);
});

test("numbers and times follow the language", () => {
  speak("en");
  assert.deepEqual([count(12_345), part(0.985), span(0), span(59.6), span(61), span(3_600), span(90_061)], ["12,345", "99%", "0 s", "1 min", "1 min 1 s", "1 h", "1 d 1 h"]);
  assert.equal(t("tile.of", { n: 10_000 }), "of 10,000");
  assert.throws(() => t("no such text"));
  speak("ko");
  assert.deepEqual([span(61), t("tile.of", { n: 10_000 })], ["1분 1초", "한도 10,000"]);
});

test("a missing minute is a gap, the current minute is not shown, and observed time has one point per second", () => {
  const minute = (at, entered) => ({ at, waiting: 1, entered, admit_per_minute: 100, slots_offered: 10, slots_used: 9 });
  const seen = (s, entered_last_minute) => ({ at: s * 1_000, waiting: s, entered_last_minute, limit: 50, use: null });
  const minutes = [minute(0, 100), minute(60, 99), minute(240, 98), minute(300, 3)];
  const shown = series(minutes, [seen(308, 97), seen(309, 96)], 310, 30);
  assert.deepEqual(shown.at, [60, 120, 121, 300, 308, 309]);
  assert.deepEqual(shown.entered, [100, 99, null, 98, 97, 96]);
  assert.deepEqual(shown.use, [0.9, 0.9, null, 0.9, null, null]);
  assert.deepEqual(shown.limit.slice(-3), [100, 50, 50]);
  assert.deepEqual(series(minutes, [], 310, 2).at, [300]);
  assert.deepEqual(series([], [], 310, 2).at, []);
});

test("figures are read from the metrics", () => {
  const text = (n) => `# HELP x y
weir_requests_total{route="wait",status="200"} ${100 * n}
weir_requests_total{route="entry",status="200"} ${300 * n}
weir_request_duration_seconds_bucket{route="wait",le="0.001"} ${90 * n}
weir_request_duration_seconds_bucket{route="wait",le="0.01"} ${96 * n}
weir_request_duration_seconds_bucket{route="wait",le="+Inf"} ${100 * n}
process_open_fds 12
`;
  const shown = figures(look(text(1), 0), look(text(2), 5_000));
  assert.deepEqual([shown.requests_a_second, shown.request_p95_s, shown.files, shown.memory, shown.call_p95_s], [80, 0.01, 12, null, null]);
  assert.equal(quantile([], [[0.1, 0], [Number.POSITIVE_INFINITY, 0]], 0.95), null);
  assert.equal(figures(null, look(text(1), 0)).requests_a_second, null);
});
