// Which zones are shown, and in which order.
//
// Invariant: the order is total: of two zones that compare alike the name decides, so rows don't dance.

const byName = (a, b) => (a.id < b.id ? -1 : Number(a.id > b.id));
const MODE_ORDER = { closed: 3, hold: 2, open: 1, auto: 0 };

/**
 * The slots offered and used in whole sub-windows since `begin`, or null where none was seen whole. They are offered at a
 * window's begin and used until its end: counted at any other instant, good use looks bad.
 */
export function slotsBetween(samples, begin) {
  let first = null;
  let last = null;
  for (let n = samples.length - 2; n >= 0 && samples[n].at >= begin; n -= 1) {
    if (samples[n + 1].slots_offered <= samples[n].slots_offered) continue;
    last ??= samples[n];
    first = samples[n];
  }
  if (first === last) return null;
  return { slots_offered: last.slots_offered - first.slots_offered, slots_used: last.slots_used - first.slots_used };
}

/** The part of the last minute's slots that was used; null where none was offered, or nothing was seen for long enough. */
export function slotUse(zone) {
  const { slots_offered: offered, slots_used: used } = zone.recent ?? { slots_offered: 0 };
  return offered > 0 ? Math.min(1, used / offered) : null;
}

/** The wait that somebody who joins now would be told, in seconds; `Infinity` where nobody is let in and a line waits. */
const etaOf = (zone) => zone.now.eta_s ?? (zone.now.waiting > 0 ? Number.POSITIVE_INFINITY : -1);

/** How much of the minute's rate entered. */
const rateUse = (zone) => zone.now.entered_last_minute / Math.max(1, zone.policy.admit_per_minute);

const KEYS = {
  zone: null,
  mode: (zone) => MODE_ORDER[zone.policy.mode],
  waiting: (zone) => zone.now.waiting,
  present: (zone) => zone.now.present,
  entered: (zone) => zone.now.entered_last_minute,
  eta: etaOf,
  use: (zone) => slotUse(zone) ?? -1,
};

export const COLUMNS = Object.keys(KEYS);

/** How near a zone is to its limit, in tenths: where a line may form next. Coarse, or idle zones would change places. */
const tenths = (zone) => Math.floor(rateUse(zone) * 10);

/** A copy of `zones` in order. Beyond its column, it is by who waits, then how near the limit is, then name. */
export function sorted(zones, { by, down }) {
  const key = KEYS[by];
  const sign = down ? -1 : 1;
  const compare = key
    ? (a, b) =>
        sign * (key(a) === key(b) ? 0 : key(a) < key(b) ? -1 : 1) ||
        b.now.waiting - a.now.waiting ||
        tenths(b) - tenths(a) ||
        byName(a, b)
    : (a, b) => sign * byName(a, b);
  return [...zones].sort(compare);
}

export const FILTERS = {
  all: () => true,
  line: (zone) => zone.now.waiting > 0,
  notAuto: (zone) => zone.policy.mode !== "auto",
  stale: (zone) => zone.now.stale,
};

/** Those whose names have every word of `search` in them, in small or capital letters alike. */
export function found(zones, search, filter = "all") {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return zones.filter((zone) => {
    const name = zone.id.toLowerCase();
    return FILTERS[filter](zone) && words.every((word) => name.includes(word));
  });
}
