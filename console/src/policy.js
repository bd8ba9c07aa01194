// A zone's definition as the admin API has it: fields, ranges, differences, and patches that undo a change.
//
// The fields come from the server's table (policy-fields.js). Their texts are in words/.
//
// Invariant: a patch contains only the fields that differ, so two operators who change different fields do not undo each
// other's work.

import { FIELDS } from "./policy-fields.js";
import { PARTS, eventIds, eventOf, rebased } from "./schedule.js";

/** Fields that are changed while an event runs. The editor shows the others apart. */
const MAIN = new Set(["mode", "admit_per_minute", "sub_windows", "polling_period_ms"]);

/** Fields that hold one of several words. */
export const WORDS = FIELDS.filter(({ words }) => words).map(({ name, words }) => ({ field: name, words, main: MAIN.has(name) }));

/** Modes, in the order in which they are shown. */
export const MODES = WORDS.find(({ field }) => field === "mode").words;

/** Fields that hold an instant, or nothing. */
export const INSTANTS = FIELDS.filter((row) => row.is_instant).map(({ name }) => ({ field: name }));

/** Fields that hold a number, with unit and range. */
export const NUMBERS = FIELDS.filter((row) => !row.words && !row.is_instant).map(({ name, default: _, ...row }) => ({ field: name, ...row, main: MAIN.has(name) }));

/** What a new zone begins with. */
export const DEFAULTS = Object.fromEntries(FIELDS.map(({ name, default: value }) => [name, value ?? null]));

export const MAX_LANGUAGES = 8;
/** In characters. */
export const MAX_NOTICE = 500;
const TAG = /^[a-z]{2,8}(-[a-z0-9]{1,8})*$/;
// All control characters except line feeds, as the server defines them.
const CONTROL = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/;

/** Whether `id` can be a zone's name. */
export const isZoneId = (id) => /^[A-Za-z0-9_.:-]{1,64}$/.test(id) && id !== "." && id !== "..";

/** Lower bounds that depend on other fields, as the server has them. */
const LEAST = {
  idle_timeout_s: ({ polling_period_ms }) => Math.ceil((polling_period_ms * 3) / 1_000),
  entries_per_minute_per_client: ({ polling_period_ms, entries_per_minute_per_client: limit }) =>
    limit === 0 ? 0 : Math.ceil(60_000 / Math.max(1, Math.min(polling_period_ms, 3_000))),
};

/**
 * What is wrong with a policy's numbers: `{field: {low, high}}`, empty where nothing is. The server decides. The editor
 * checks the same before it asks.
 */
export function faults(policy) {
  const found = {};
  for (const { field, low, high } of NUMBERS) {
    const value = policy[field];
    // A bound is NaN while the other field is no number.
    const least = Math.max(low, LEAST[field]?.(policy) || low);
    if (!Number.isInteger(value) || value < least || value > high) found[field] = { low: least, high };
  }
  return found;
}

/** What is wrong with a notice's language or text: the key of a message, or null. */
export function noticeFault(tag, text) {
  if (!TAG.test(tag)) return "notice.badTag";
  if (text === "") return "notice.empty";
  if ([...text].length > MAX_NOTICE) return "notice.tooLong";
  if (CONTROL.test(text)) return "notice.control";
  return null;
}

/** A notice of an event as one text, so that two are compared by their content. */
const noticeText = (notice) => Object.entries(notice ?? {}).sort(([a], [b]) => (a < b ? -1 : 1)).map(([tag, text]) => `${tag}: ${text}`).join("\n") || undefined;

/** What an event says in a part. */
const partOf = (event, part) => (part === "notice" ? noticeText(event.notice) : event[part]);

/** The field of a part of an event. Without a part it is the field of the whole event. */
const eventField = (id, part = "") => `events.${part} ${id}`;

/** The part and the event of such a field, or null. */
export function ofEvent(field) {
  const read = /^events\.(\w*) (.*)$/.exec(field);
  return read && { part: read[1], id: read[2] };
}

/** The parts in which two events differ, or the whole event where there is only one. */
function eventDifferences(before, after, id) {
  if (!before || !after) return [{ field: eventField(id), before, after }];
  const changed = PARTS.map((part) => ({ field: eventField(id, part), before: partOf(before, part), after: partOf(after, part) }));
  return changed.filter((one) => one.before !== one.after);
}

/** The fields in which two definitions differ: `[{field, before, after}]`; a notice's field is `notice.LANG`, and that of an event is read by
 * `ofEvent`. */
export function differences(before, after) {
  const found = [];
  const from = before?.policy ?? {};
  const to = after?.policy ?? {};
  const fields = [...WORDS.filter(({ main }) => main), ...INSTANTS, ...NUMBERS, ...WORDS.filter(({ main }) => !main)];
  for (const { field } of fields) {
    if (from[field] !== to[field]) found.push({ field, before: from[field], after: to[field] });
  }
  const texts = { ...before?.notice, ...after?.notice };
  for (const tag of Object.keys(texts).sort()) {
    const [was, is] = [before?.notice?.[tag], after?.notice?.[tag]];
    if (was !== is) found.push({ field: `notice.${tag}`, before: was, after: is });
  }
  for (const id of eventIds(before, after)) found.push(...eventDifferences(eventOf(before, id), eventOf(after, id), id));
  return found;
}

/** The merge patch (RFC 7396) that makes `after` of `before`. */
export function patchBetween(before, after) {
  const patch = {};
  for (const { field, after: value } of differences(before, after)) {
    // A patch has all events, or none.
    if (ofEvent(field)) patch.events = after.events ?? [];
    else if (field.startsWith("notice.")) (patch.notice ??= {})[field.slice(7)] = value ?? null;
    else (patch.policy ??= {})[field] = value;
  }
  return patch;
}

/** `definition` with a merge patch applied. */
export function patched(definition, patch) {
  const notice = { ...definition.notice };
  for (const [tag, text] of Object.entries(patch.notice ?? {})) {
    if (text === null) delete notice[tag];
    else notice[tag] = text;
  }
  const events = patch.events ?? definition.events;
  return { policy: { ...definition.policy, ...patch.policy }, notice, ...(events && { events }) };
}

/** `patch`, which was made for the definition `base`, for the definition `now`. Events that a colleague changed meanwhile stay. */
export const patchFor = (patch, base, now) => (patch.events ? { ...patch, events: rebased(base.events, patch.events, now.events) } : patch);

/** Half of a rate or twice it, within the range. */
export const scaled = (rate, by) => Math.min(600_000, Math.max(1, Math.round(rate * by)));
