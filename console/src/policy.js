// A zone's definition as the admin API has it: fields, ranges, differences, and patches that undo a change.
//
// Invariant: a patch contains only the fields that differ, so two operators who change different fields do not undo each
// other's work.

/** The modes, in the order in which they are shown. */
export const MODES = ["auto", "hold", "open", "closed"];

/** Fields that are numbers, with their ranges; `main` are those that are changed while an event runs. */
export const NUMBERS = [
  { field: "admit_per_minute", low: 1, high: 600_000, main: true },
  { field: "sub_windows", low: 1, high: 60, main: true },
  { field: "polling_period_ms", low: 500, high: 60_000, main: true },
  { field: "idle_timeout_s", low: 10, high: 3_600 },
  { field: "pass_ttl_s", low: 60, high: 3_600 },
  { field: "waits_per_minute_per_client", low: 0, high: 600_000 },
  { field: "entries_per_minute_per_client", low: 0, high: 600_000 },
];

/** What a new zone begins with. */
export const DEFAULTS = {
  mode: "auto",
  admit_per_minute: 10_000,
  sub_windows: 10,
  polling_period_ms: 3_000,
  idle_timeout_s: 60,
  pass_ttl_s: 300,
  on_store_failure: "closed",
  waits_per_minute_per_client: 0,
  entries_per_minute_per_client: 0,
};

export const MAX_LANGUAGES = 8;
/** In characters. */
export const MAX_NOTICE = 500;
const TAG = /^[a-z]{2,8}(-[a-z0-9]{1,8})*$/;
// All control characters except line feeds, as the server defines them.
const CONTROL = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/;

/** Whether `id` can be a zone's name. */
export const isZoneId = (id) => /^[A-Za-z0-9_.:-]{1,64}$/.test(id);

/**
 * What is wrong with a policy's numbers: `{field: {low, high}}`, empty where nothing is. The server decides; this only
 * says it sooner.
 */
export function faults(policy) {
  const found = {};
  for (const { field, low, high } of NUMBERS) {
    const value = policy[field];
    let least = low;
    if (field === "idle_timeout_s") least = Math.max(low, Math.ceil((policy.polling_period_ms * 3) / 1_000) || low);
    if (field === "entries_per_minute_per_client" && value !== 0) {
      least = Math.ceil(60_000 / Math.max(1, policy.polling_period_ms)) || low;
    }
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

/** The fields in which two definitions differ: `[{field, before, after}]`; a notice's field is `notice.LANG`. */
export function differences(before, after) {
  const found = [];
  const from = before?.policy ?? {};
  const to = after?.policy ?? {};
  const fields = ["mode", ...NUMBERS.map((number) => number.field), "on_store_failure"];
  for (const field of fields) {
    if (from[field] !== to[field]) found.push({ field, before: from[field], after: to[field] });
  }
  const texts = { ...before?.notice, ...after?.notice };
  for (const tag of Object.keys(texts).sort()) {
    const [was, is] = [before?.notice?.[tag], after?.notice?.[tag]];
    if (was !== is) found.push({ field: `notice.${tag}`, before: was, after: is });
  }
  return found;
}

/** The merge patch (RFC 7396) that makes `after` of `before`. */
export function patchBetween(before, after) {
  const patch = {};
  for (const { field, after: value } of differences(before, after)) {
    if (field.startsWith("notice.")) (patch.notice ??= {})[field.slice(7)] = value ?? null;
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
  return { policy: { ...definition.policy, ...patch.policy }, notice };
}

/** Half of a rate or twice it, within the range. */
export const scaled = (rate, by) => Math.min(600_000, Math.max(1, Math.round(rate * by)));
