// What a zone's charts show, out of the minutes that the server keeps and the seconds that were seen here.
//
// Invariant: a minute that is not there is a gap, never a zero; the minute under way is shown by what the last 60 s had,
// for it would look like a fall otherwise.

const MINUTE = 60;

/** By minute: `{at, waiting, entered, limit, use}`, of the last `many` minutes; `zone` is what is known now, `now_s` when. */
export function byMinute(minutes, zone, now_s, many) {
  const out = { at: [], waiting: [], entered: [], limit: [], use: [] };
  const put = (at, waiting, entered, limit, use) => {
    out.at.push(at);
    out.waiting.push(waiting);
    out.entered.push(entered);
    out.limit.push(limit);
    out.use.push(use);
  };
  const under_way = Math.floor(now_s / MINUTE) * MINUTE;
  for (const one of minutes) {
    if (one.at >= under_way || one.at < now_s - many * MINUTE) continue;
    const last = out.at.at(-1);
    if (last !== undefined && one.at - last > 1.5 * MINUTE) put(last + MINUTE, null, null, null, null);
    put(one.at, one.waiting, one.entered, one.admit_per_minute, part(one.slots_used, one.slots_offered));
  }
  if (zone) {
    const use = zone.recent && part(zone.recent.slots_used, zone.recent.slots_offered);
    const here = minutes.at(-1);
    const fresh = here && here.at >= under_way ? part(here.slots_used, here.slots_offered) : null;
    put(Math.round(now_s), zone.now.waiting, zone.now.entered_last_minute, zone.policy.admit_per_minute, use ?? fresh);
  }
  return out;
}

const part = (used, offered) => (offered > 0 ? Math.min(1, used / offered) : null);

/** By second, out of samples of totals: the same. What entered in 60 s is known once 60 s were seen. */
export function bySecond(samples) {
  const out = { at: [], waiting: [], entered: [], limit: [], use: [] };
  let from = 0;
  for (const sample of samples) {
    while (samples[from + 1] && samples[from + 1].at <= sample.at - 60_000) from += 1;
    const first = samples[from];
    const isWhole = first.at <= sample.at - 60_000;
    out.at.push(Math.round(sample.at / 1_000));
    out.waiting.push(sample.waiting);
    out.entered.push(isWhole ? sample.entered - first.entered : null);
    out.limit.push(sample.limit);
    out.use.push(isWhole ? part(sample.slots_used - first.slots_used, sample.slots_offered - first.slots_offered) : null);
  }
  return out;
}
