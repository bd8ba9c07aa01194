// Which zones are shown, and in which order.
//
// Invariant: the order is total. Zones that compare equal are ordered by name, so that rows do not jump.

const byName = (a, b) => (a.id < b.id ? -1 : Number(a.id > b.id));
const MODE_ORDER = { closed: 3, hold: 2, open: 1, auto: 0 };

/**
 * The slots offered and used in whole sub-windows since `begin`, or null if no whole one was observed. Slots are offered at the
 * start of a window and used until its end, so a count at any other time would make good use look bad.
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

/** The share of the last minute's slots that was used; null if none was offered or the observation is too short. */
export function slotUse(zone) {
  const { slots_offered: offered, slots_used: used } = zone.recent ?? { slots_offered: 0 };
  return offered > 0 ? Math.min(1, used / offered) : null;
}

/** The expected wait of a newcomer, in seconds; `Infinity` if nobody is admitted and people wait. */
const etaOf = (zone) => zone.now.eta_s ?? (zone.now.waiting > 0 ? Number.POSITIVE_INFINITY : -1);

/** The policy in force: the zone's own, or that of an event. */
export const inForce = (zone) => zone.force ?? zone.policy;

/** The entries of the last minute as a share of the limit. */
const rateUse = (zone) => zone.now.entered_last_minute / Math.max(1, inForce(zone).admit_per_minute);

const KEYS = {
  zone: null,
  mode: (zone) => MODE_ORDER[inForce(zone).mode],
  waiting: (zone) => zone.now.waiting,
  present: (zone) => zone.now.present,
  entered: (zone) => zone.now.entered_last_minute,
  eta: etaOf,
  use: (zone) => slotUse(zone) ?? -1,
};

export const COLUMNS = Object.keys(KEYS);

/** How close a zone is to its limit, in tenths: where a line may form next. Finer steps would make idle zones swap places. */
const tenths = (zone) => Math.floor(rateUse(zone) * 10);

/** A sorted copy of `zones`. After the column, the number of waiting people decides, then the distance to the limit, then the name. */
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
  notAuto: (zone) => inForce(zone).mode !== "auto",
  stale: (zone) => zone.now.stale,
};

/** The zones whose names contain every word of `search`, ignoring case. */
export function found(zones, search, filter = "all") {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return zones.filter((zone) => {
    const name = zone.id.toLowerCase();
    return FILTERS[filter](zone) && words.every((word) => name.includes(word));
  });
}
