// Records and receipts: JSON with exactly these fields.
//
// Invariant: what is returned has the type that the format says.

import { Fault, from_base64, utf8 } from "./spelling.js";

const RECORD = { what: "record", max: 4_000_000, format: "weir-draw-record-1", fields: { format: is_text, key: is_text, checkpoint: is_text, places: is_text, randomness: is_randomness } };
const RECEIPT = {
  what: "receipt",
  max: 200_000,
  format: "weir-draw-receipt-1",
  fields: {
    format: is_text, event: is_text, zone: is_text, place: is_u32, inLine: (value) => typeof value === "boolean",
    position: (value) => value === null || is_u32(value), path: (value) => Array.isArray(value) && value.every(is_text),
    key: is_text, checkpoint: is_text, randomness: is_randomness,
  },
};
const RANDOMNESS = {
  drand: { kind: is_text, round: Number.isSafeInteger, signature: is_text },
  later: { kind: is_text, round: Number.isSafeInteger, signature: is_text, statement: is_text },
  stated: { kind: is_text, statement: is_text },
  arrival: { kind: is_text, statement: is_text },
};

function is_text(value) {
  return typeof value === "string" && value.isWellFormed();
}

function is_u32(value) {
  return Number.isInteger(value) && value >= 0 && value < 2 ** 32;
}

function is_randomness(value) {
  return is_text(value?.kind) && Object.hasOwn(RANDOMNESS, value.kind) && wrong_field(value, RANDOMNESS[value.kind]) === null;
}

/** The first field that is missing, unknown or of another type, or null. */
function wrong_field(value, fields) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return "{}";
  for (const [name, fits] of Object.entries(fields)) if (!Object.hasOwn(value, name) || !fits(value[name])) return name;
  return Object.keys(value).find((name) => !Object.hasOwn(fields, name)) ?? null;
}

/**
 * The first name that is there twice in a JSON text, or the first number with a sign, a fraction or an exponent; or null.
 * `JSON.parse` would take the last field of that name, and the number's value, without a word.
 */
function wrong_spelling(json) {
  const names = new Set();
  let end_of_last = 0;
  for (let at = json.indexOf('"'); ; at = json.indexOf('"', at)) {
    // Between texts there are numbers, the words `true`, `false` and `null`, and no other digits.
    const number = /-|[0-9][.eE]/.exec(json.slice(end_of_last, at < 0 ? undefined : at));
    if (number) return number[0];
    if (at < 0) return null;
    let end = at, slashes = 0;
    // An odd number of backslashes escapes the quote.
    do {
      end = json.indexOf('"', end + 1);
      for (slashes = 0; json[end - 1 - slashes] === "\\"; slashes += 1);
    } while (slashes % 2 === 1);
    const text = json.slice(at, end + 1);
    at = end + 1;
    end_of_last = at;
    while (" \t\n\r".includes(json[at] ?? "x")) at += 1;
    if (json[at] !== ":") continue;
    const name = JSON.parse(text);
    if (names.has(name)) return name;
    names.add(name);
  }
}

function read(json, { what, max, format, fields }) {
  if (utf8(json).length > max) throw new Fault("too_long", { what, max });
  let value;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw new Fault("not_json", { what, why: error.message });
  }
  if (is_text(value?.format) && value.format !== format) throw new Fault("format", { what, found: value.format, expected: format });
  // Names inside differ from those around them, so one set is enough.
  const field = wrong_field(value, fields) ?? wrong_spelling(json);
  if (field !== null) throw new Fault("field", { what, field });
  return value;
}

/** The record in a text. */
export const read_record = (json) => read(json, RECORD);

/** The receipt in a text, with the bytes of its path. */
export function read_receipt(json) {
  const receipt = read(json, RECEIPT);
  const path = receipt.path.map((text) => from_base64(text));
  if (path.some((hash) => hash?.length !== 32)) throw new Fault("field", { what: "receipt", field: "path" });
  return { ...receipt, path };
}
