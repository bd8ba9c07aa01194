// The rules of the console that need no browser: order, differences, streams, texts, figures.

import assert from "node:assert/strict";
import { test } from "node:test";

import { figures, look, quantile } from "../../console/src/figures.js";
import { found, slotUse, slotsBetween, sorted } from "../../console/src/order.js";
import { FIELDS } from "../../console/src/policy-fields.js";
import { DEFAULTS, differences, faults, isZoneId, noticeFault, patchBetween, patched, scaled } from "../../console/src/policy.js";
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
  assert.deepEqual([scaled(1, 0.5), scaled(600_000, 2), scaled(1_001, 0.5)], [1, 600_000, 501]);
});

test("numbers are checked against the ranges of the server", () => {
  assert.deepEqual(faults(DEFAULTS), {});
  assert.deepEqual(faults({ ...DEFAULTS, admit_per_minute: 0 }), { admit_per_minute: { low: 1, high: 600_000 } });
  assert.deepEqual(faults({ ...DEFAULTS, polling_period_ms: 30_000 }), { idle_timeout_s: { low: 90, high: 3_600 } });
  assert.deepEqual(faults({ ...DEFAULTS, entries_per_minute_per_client: 19 }), { entries_per_minute_per_client: { low: 20, high: 600_000 } });
  assert.deepEqual(Object.keys(faults({ ...DEFAULTS, sub_windows: Number.NaN, pass_ttl_s: 59 })), ["sub_windows", "pass_ttl_s"]);
  assert.ok(isZoneId("shop:a_b.c-1") && !isZoneId("") && !isZoneId("a/b") && !isZoneId("x".repeat(65)));
  assert.equal(noticeFault("ko", "가\n나"), null);
  for (const [tag, text] of [["", "a"], ["k", "a"], ["ko", ""], ["ko", "a\tb"], ["ko", "x".repeat(501)]]) {
    assert.ok(noticeFault(tag, text), `${tag} ${text}`);
  }
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
