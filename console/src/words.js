// The language of the console: its texts, numbers and times.
//
// Invariant: every text exists in both languages; a test compares them.

import { en } from "./words/en.js";
import { ko } from "./words/ko.js";
import { forget, keep, kept } from "./kept.js";

export const LANGUAGES = { en, ko };
const first = () => (globalThis.navigator?.languages?.find((tag) => /^(en|ko)\b/i.test(tag)) ?? "en").slice(0, 2);

let language;
let number;
let percent;
let clock;
let dayAndClock;
let moment;
let momentWithSeconds;
speak(kept("language") in LANGUAGES ? kept("language") : first().toLowerCase());

/** Sets the language. */
export function speak(to) {
  language = to;
  number = new Intl.NumberFormat(to);
  percent = new Intl.NumberFormat(to, { style: "percent", maximumFractionDigits: 0 });
  const time = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  clock = new Intl.DateTimeFormat(to, time);
  dayAndClock = new Intl.DateTimeFormat(to, { month: "short", day: "numeric", ...time });
  const day = { weekday: "short", year: "numeric", month: "short", day: "numeric", timeZoneName: "short" };
  momentWithSeconds = new Intl.DateTimeFormat(to, { ...day, ...time });
  moment = new Intl.DateTimeFormat(to, { ...day, ...time, second: undefined });
  if (globalThis.document) document.documentElement.lang = to;
}

/** Sets the language and remembers it. */
export function choose(to) {
  if (to === first().toLowerCase()) forget("language");
  else keep("language", to);
  speak(to);
}

export const spoken = () => language;

/** The text of this language, otherwise the English one, otherwise any. */
export const spokenOf = (texts) => texts[[language, "en", ...Object.keys(texts)].find((tag) => tag in texts)] ?? "";

/** An amount of money that was written as a text. */
export const money = (amount, currency) => new Intl.NumberFormat(language, { style: "currency", currency }).format(Number(amount));

/** The text `key` with the placeholders in braces filled in. Numbers are formatted for the language. */
export function t(key, values = {}) {
  const text = LANGUAGES[language][key];
  if (text === undefined) throw new Error(`no text is called ${key}`);
  return text.replace(/\{(\w+)\}/g, (_, name) => {
    const value = values[name];
    return typeof value === "number" ? count(value) : String(value);
  });
}

/** Whether the text exists. A newer server may send unknown codes. */
export const has = (key) => key in LANGUAGES[language];

export const count = (value) => number.format(value);
export const part = (value) => percent.format(value);
export const timeOf = (unix_ms) => clock.format(unix_ms);
export const dayOf = (unix_ms) => dayAndClock.format(unix_ms);

/** An instant in the time zone of this browser, with its name. */
export const localOf = (unix_s) => (unix_s % 60 === 0 ? moment : momentWithSeconds).format(unix_s * 1_000);

/** A duration in at most two units: `1 h 5 min`. */
export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  const units = s < 60 ? [["s", s]]
    : s < 3_600 ? [["min", Math.floor(s / 60)], ["s", s % 60]]
    : s < 86_400 ? [["h", Math.floor(s / 3_600)], ["min", Math.floor((s % 3_600) / 60)]]
    : [["d", Math.floor(s / 86_400)], ["h", Math.floor((s % 86_400) / 3_600)]];
  const shown = units.filter(([, value], at) => at === 0 || value > 0);
  return shown.map(([unit, value]) => t(`span.${unit}`, { n: value })).join(" ");
}
