// The data of a zone's charts: the minutes that the server keeps, and the seconds since the page observed the zone.
//
// Invariant: a missing minute is a gap, never a zero. The current minute is not shown as a whole one, because it would
// look like a fall.

const MINUTE = 60;
const part = (used, offered) => (offered > 0 ? Math.min(1, used / offered) : null);

/**
 * `{at, waiting, entered, limit, use}` of the last `many` minutes before `now_s`, from the `minutes` of the server and the noted
 * `samples` of a zone. `entered` counts the 60 s before, so a minute stands at its end.
 */
export function series(minutes, samples, now_s, many) {
  const out = { at: [], waiting: [], entered: [], limit: [], use: [] };
  const put = (at, waiting, entered, limit, use) => {
    out.at.push(at);
    out.waiting.push(waiting);
    out.entered.push(entered);
    out.limit.push(limit);
    out.use.push(use);
  };
  const begin = now_s - many * MINUTE;
  const seen = samples.filter((sample) => sample.at / 1_000 >= begin);
  const from = seen.length > 0 ? seen[0].at / 1_000 : now_s;
  const gap = (at) => {
    const last = out.at.at(-1);
    if (last !== undefined && at - last > 1.5 * MINUTE) put(last + 1, null, null, null, null);
  };
  for (const one of minutes) {
    const at = one.at + MINUTE;
    if (at > from || at < begin) continue;
    gap(at);
    put(at, one.waiting, one.entered, one.admit_per_minute, part(one.slots_used, one.slots_offered));
  }
  for (const sample of seen) {
    const at = Math.round(sample.at / 1_000);
    if (at <= (out.at.at(-1) ?? 0)) continue;
    gap(at);
    put(at, sample.waiting, sample.entered_last_minute, sample.limit, sample.use);
  }
  return out;
}
