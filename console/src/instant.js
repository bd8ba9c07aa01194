// Instants as operators write them: `2026-12-01T08:00:00Z`, or with a time zone `2026-12-01T09:00[Europe/Berlin]`.
//
// Invariant: the server decides what is an instant. What is read here is read by the server as the same second. A text that is not
// read here may still be right.

const FORM = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d))?(Z|[+-]\d\d:\d\d)?(?:\[([A-Za-z][\w+/-]*)\])?$/;
/** A time of day in whole minutes with a time zone and no offset: what the fields for date and time can show. */
const PLAIN = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::00)?\[([A-Za-z][\w+/-]*)\]$/;
const DAY_S = 86_400;

const clocks = new Map();

/** The clock of a time zone, or null if the browser does not know the zone. */
function clockOf(zone) {
  if (!clocks.has(zone)) {
    let clock = null;
    try {
      clock = new Intl.DateTimeFormat("en-US", {
        timeZone: zone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
      });
    } catch {
      // No such zone.
    }
    clocks.set(zone, clock);
  }
  return clocks.get(zone);
}

export const isZone = (zone) => clockOf(zone) !== null;

/** What the clocks of `zone` show at an instant, as if it were UTC: in seconds since 1970. */
function shownAt(zone, unix_s) {
  const parts = Object.fromEntries(clockOf(zone).formatToParts(unix_s * 1_000).map(({ type, value }) => [type, Number(value)]));
  return Date.UTC(parts.year, parts.month - 1, parts.day, parts.hour, parts.minute, parts.second) / 1_000;
}

const offset_s = (zone, unix_s) => shownAt(zone, unix_s) - unix_s;

/** Reads an instant: `{unix_s}`, or `{fault}` with the key of a text. */
export function readInstant(text) {
  const read = FORM.exec(text);
  if (!read) return { fault: "instant.form" };
  const [year, month, day, hour, minute, second = 0] = read.slice(1, 7).map((digits) => (digits === undefined ? undefined : Number(digits)));
  const shown = Date.UTC(year, month - 1, day, hour, minute, second) / 1_000;
  // A day that the month does not have becomes one of the next month.
  const [date] = new Date(shown * 1_000).toISOString().split("T");
  if (date !== text.slice(0, 10) || hour > 23 || minute > 59 || second > 59) return { fault: "instant.form" };
  const [written, zone] = read.slice(7, 9);
  if (zone && !isZone(zone)) return { fault: "instant.zone" };
  // `Z` beside a time zone says nothing about the zone's clocks.
  if (zone ? written === "Z" : !written) return { fault: "instant.form" };
  if (written) {
    const sign = written[0] === "-" ? -1 : 1;
    const behind_s = written === "Z" ? 0 : sign * (Number(written.slice(1, 3)) * 3_600 + Number(written.slice(4, 6)) * 60);
    const unix_s = shown - behind_s;
    if (zone && offset_s(zone, unix_s) !== behind_s) return { fault: "instant.offset" };
    return { unix_s };
  }
  // No time zone changes its offset twice within two days.
  const offsets = new Set([offset_s(zone, shown - DAY_S), offset_s(zone, shown + DAY_S)]);
  const found = [...offsets].map((offset) => shown - offset).filter((unix_s) => shownAt(zone, unix_s) === shown);
  if (found.length === 0) return { fault: "instant.skipped" };
  if (found.length > 1) return { fault: "instant.twice" };
  return { unix_s: found[0] };
}

/** The faults that are sure. For the others the server is asked. */
export const isSure = (fault) => ["instant.skipped", "instant.twice", "instant.offset"].includes(fault);

const seconds = new Map();
const SECONDS_MAX = 1_000;

/** The second of an instant, or null if it is not read here. The same few texts are asked for at each rendering. */
export function secondOf(text) {
  if (!text) return null;
  if (!seconds.has(text)) {
    if (seconds.size >= SECONDS_MAX) seconds.clear();
    seconds.set(text, readInstant(text).unix_s ?? null);
  }
  return seconds.get(text);
}

/** Date, time and zone of an instant that is written in whole minutes with a zone and without an offset; otherwise null. */
export function partsOf(text) {
  const read = PLAIN.exec(text);
  return read && { date: read[1], time: read[2], zone: read[3] };
}

/** An instant as the clocks of `zone` show it. It has an offset where they show that time twice. */
export function writeInstant(unix_s, zone) {
  const shown = new Date(shownAt(zone, unix_s) * 1_000).toISOString();
  const local = unix_s % 60 === 0 ? shown.slice(0, 16) : shown.slice(0, 19);
  const plain = `${local}[${zone}]`;
  if (secondOf(plain) === unix_s) return plain;
  const behind_min = Math.round(offset_s(zone, unix_s) / 60);
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  const offset = `${behind_min < 0 ? "-" : "+"}${two(Math.abs(behind_min) / 60)}:${two(Math.abs(behind_min) % 60)}`;
  return `${local}${offset}[${zone}]`;
}

/** The time zone of this browser; UTC if it does not know. */
export function hereZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return zone && isZone(zone) ? zone : "UTC";
}

/** The names of the time zones that the browser knows. */
export const allZones = () => (Intl.supportedValuesOf ? ["UTC", ...Intl.supportedValuesOf("timeZone")] : ["UTC"]);
