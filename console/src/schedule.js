// The schedule of a zone: what applies when. The same rules as in crates/admission/src/schedule.rs, for previews and countdowns.
//
// Invariant: the server decides. What is computed here only says beforehand what the server will do.

import { secondOf } from "./instant.js";

/** The most events of a zone. */
export const MAX_EVENTS = 32;
/** How long a pre-queue is at least, in seconds. */
export const LEAST_PREQUEUE_S = 60;
/** How long before the start the pre-queue of a new event begins, in seconds. */
export const USUAL_PREQUEUE_S = 1_800;
/** How long after the start of an event with a draw people enter, in seconds. */
export const DRAW_S = 30;
/** Who enters first. */
export const ORDERS = ["arrival", "draw"];
/** What happens if the randomness of a draw does not come. */
export const FALLBACKS = ["wait", "arrival"];
/** What may apply before and after an event. */
export const OUTSIDE = ["usual", "hold", "closed"];
/** The parts of an event beside its name, in the order in which they are shown. */
export const PARTS = ["prequeue_from", "begins", "ends", "before", "before_page", "after", "after_page", "admit_per_minute", "max_active", "order", "randomness", "fallback", "notice"];
/** Where people go on while the zone is closed, and where the event says that it is. */
export const PAGES = { before_page: "before", after_page: "after" };
export const MOMENTS = ["prequeue_from", "begins", "ends"];

/** An event with its seconds, and with the parts in which it may be silent. */
const timed = (event) => ({
  event,
  from_s: secondOf(event.prequeue_from),
  begins_s: secondOf(event.begins),
  ends_s: secondOf(event.ends),
});

const inOrder = (events) =>
  (events ?? []).map(timed).filter(({ from_s, begins_s, ends_s }) => from_s !== null && begins_s !== null && ends_s !== null)
    .sort((a, b) => a.from_s - b.from_s || (a.event.id < b.event.id ? -1 : 1));

/** When people enter, in seconds since 1970: at the start, or after the draw. */
const opensOf = (event) => secondOf(event.begins) + (event.order === "draw" ? DRAW_S : 0);

/** Where an instant is in the schedule: `{is: "usual"|"before"|"prequeue"|"open"|"after", event}`. */
export function phaseAt(events, unix_s) {
  const all = inOrder(events);
  const last = all.findLast(({ from_s }) => from_s <= unix_s);
  const next = all.find(({ from_s }) => from_s > unix_s);
  if (last && unix_s < last.begins_s) return { is: "prequeue", event: last.event };
  if (last && unix_s < last.ends_s) return { is: "open", event: last.event };
  if (next && next.event.before !== "usual") return { is: "before", event: next.event };
  if (last && last.event.after !== "usual") return { is: "after", event: last.event };
  return { is: "usual", event: null };
}

/** An instant as a text that is read here: in whole seconds. */
const utc = (unix_s) => `${new Date(unix_s * 1_000).toISOString().slice(0, 19)}Z`;

/** The policy of an event, from its pre-queue to its end. Of two openings the later one counts. */
const policyOf = (event, policy) => ({
  ...policy,
  opens_at: (secondOf(policy.opens_at) ?? 0) > opensOf(event) ? policy.opens_at : event.order === "draw" ? utc(opensOf(event)) : event.begins,
  admit_per_minute: event.admit_per_minute ?? policy.admit_per_minute,
  max_active: event.max_active ?? policy.max_active,
});

/** The policy in force at an instant. */
export function policyAt({ policy, events }, unix_s) {
  const { is, event } = phaseAt(events, unix_s);
  if (is === "usual") return policy;
  if (is === "prequeue" || is === "open") return policyOf(event, policy);
  // An operator who set another mode than `auto` meant now.
  const outside = is === "before" ? event.before : event.after;
  return policy.mode === "auto" && outside !== "usual" ? { ...policy, mode: outside } : policy;
}

/** Where an event is now: `before`, `prequeue`, `drawing` (the order is drawn, and nobody enters yet), `open` or `over`; null if its times
 * are not read here. */
export function stateOf(event, unix_s) {
  const [one] = inOrder([event]);
  if (!one) return null;
  return unix_s < one.from_s ? "before" : unix_s < one.begins_s ? "prequeue" : unix_s < opensOf(event) ? "drawing" : unix_s < one.ends_s ? "open" : "over";
}

/** The draws that are new in `after`, and whose events have begun already. */
export const begunDraws = (before, after, unix_s) =>
  (after ?? []).filter((event) => {
    const old = (before ?? []).find(({ id }) => id === event.id);
    const isNew = old?.order !== "draw" || secondOf(old.begins) !== secondOf(event.begins);
    return event.order === "draw" && isNew && ["drawing", "open"].includes(stateOf(event, unix_s));
  });

/** The events in the order of time; those whose times are not read here are the last. */
export function sortedEvents(events) {
  const known = inOrder(events).map(({ event }) => event);
  return [...known, ...(events ?? []).filter((event) => !known.includes(event))];
}

/** When a zone in which nobody enters opens by itself, in seconds since 1970; null if it is open, or does not open by itself. */
export function nextOpening(zone, unix_s) {
  if (zone.policy.mode !== "auto") return null;
  const { is, event } = phaseAt(zone.events, unix_s);
  const at_s = secondOf((is === "before" ? policyOf(event, zone.policy) : policyAt(zone, unix_s)).opens_at);
  return is !== "after" && at_s !== null && at_s > unix_s ? at_s : null;
}

/** What people see, from `from_s` to `to_s`: `[{from_s, to_s, is, policy}]`, where `is` is `closed`, `hold`, `open`, `places` (nobody
 * enters, and people take places) or `enters`. The last one has no end if `to_s` is null. */
export function course(zone, from_s, to_s) {
  const opens_s = secondOf(zone.policy.opens_at);
  const times = inOrder(zone.events).flatMap(({ event, from_s, begins_s, ends_s }) => [from_s, begins_s, opensOf(event), ends_s]);
  if (opens_s !== null) times.push(opens_s);
  const within = times.filter((at_s) => at_s > from_s && (to_s === null || at_s < to_s));
  const steps = [];
  for (const at_s of [from_s, ...new Set(within)].sort((a, b) => a - b)) {
    const policy = policyAt(zone, at_s);
    const isShut = policy.mode === "auto" && (secondOf(policy.opens_at) ?? 0) > at_s;
    const is = isShut ? "places" : policy.mode === "auto" ? "enters" : policy.mode;
    const last = steps.at(-1);
    const isSame = last?.is === is && last.policy.admit_per_minute === policy.admit_per_minute && last.policy.max_active === policy.max_active;
    if (isSame) continue;
    if (last) last.to_s = at_s;
    steps.push({ from_s: at_s, to_s: null, is, policy });
  }
  if (steps.length > 0) steps.at(-1).to_s = to_s;
  return steps;
}

/** The course of the zone around the events that a change concerns: until the next event that it leaves as it was. */
export function courseOfChange(before, after, now_s) {
  const changed = eventIds(before, after).filter((id) => JSON.stringify(eventOf(before, id)) !== JSON.stringify(eventOf(after, id)));
  const times = changed.flatMap((id) => inOrder([eventOf(before, id), eventOf(after, id)].filter(Boolean)));
  const last_s = Math.max(...times.map(({ ends_s }) => ends_s));
  if (times.length === 0 || last_s <= now_s) return [];
  const next = inOrder(after.events).find(({ from_s }) => from_s > now_s && from_s >= last_s);
  return course(after, now_s, next?.from_s ?? null);
}

/** The event of this name. */
export const eventOf = (definition, id) => definition?.events?.find((event) => event.id === id);

/** The names of the events of two definitions. */
export const eventIds = (before, after) => [...new Set([...(before?.events ?? []), ...(after?.events ?? [])].map(({ id }) => id))].sort();

/** The events `now` with the changes that make `wanted` of `base`: those of a colleague stay. */
export function rebased(base, wanted, now) {
  const [from, to] = [{ events: base }, { events: wanted }];
  const mine = eventIds(from, to).filter((id) => JSON.stringify(eventOf(from, id)) !== JSON.stringify(eventOf(to, id)));
  const kept = (now ?? []).filter(({ id }) => !mine.includes(id));
  return sortedEvents([...kept, ...mine.map((id) => eventOf(to, id)).filter(Boolean)]);
}

/** What is wrong with an event beside the others: `{part: [key of a text, values]}`. */
export function eventFaults(event, others) {
  const found = {};
  const { from_s, begins_s, ends_s } = timed(event);
  if (others.some(({ id }) => id === event.id)) found.id = ["event.twice", {}];
  if (from_s !== null && begins_s !== null && from_s + LEAST_PREQUEUE_S > begins_s) found.prequeue_from = ["event.short", { n: LEAST_PREQUEUE_S }];
  if (begins_s !== null && ends_s !== null && begins_s >= ends_s) found.ends = ["event.endsFirst", {}];
  if (from_s === null || ends_s === null || found.ends) return found;
  for (const other of inOrder(others)) {
    const values = { id: other.event.id, from: other.event.prequeue_from, ends: other.event.ends };
    if (other.from_s <= from_s && from_s < other.ends_s) found.prequeue_from ??= ["event.overlap.before", values];
    else if (from_s < other.from_s && other.from_s < ends_s) found.ends ??= ["event.overlap.after", values];
  }
  return found;
}

/** Which part of the event `id` a refusal of the server is about: `{part, why}`. `part` is null if it is about none of its parts. */
export function refusedPart(problem, id, events) {
  const detail = problem.detail ?? "";
  // An event without a right name is named by its place in the list.
  const ofField = /^`events(?:\.(.+)|\[(\d+)\])\.(\w+)`: ([^]*)$/.exec(detail);
  if (ofField && (ofField[1] ?? events[Number(ofField[2])]?.id) === id) return { part: ofField[3], why: ofField[4] };
  const overlap = /^`events`: (event (\S+) has its pre-queue from .*, and event (\S+) ends only at .*)$/.exec(detail);
  if (overlap?.[2] === id) return { part: "prequeue_from", why: overlap[1] };
  if (overlap?.[3] === id) return { part: "ends", why: overlap[1] };
  const ofEvent = /^`events`: event (\S+): ((\w+) [^]*)$/.exec(detail);
  if (ofEvent?.[1] === id && PARTS.includes(ofEvent[3])) return { part: ofEvent[3], why: ofEvent[2] };
  if (detail === `\`events\`: two events have the id ${id}`) return { part: "id", why: detail.slice(10) };
  return { part: null, why: detail };
}
