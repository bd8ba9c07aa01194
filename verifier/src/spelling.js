// How bytes, numbers, instants and names are written, and the faults of what is not written so.
//
// Invariant: each value has exactly one spelling, as in crates/draw/src/spelling.rs.

/** The most places of a draw. */
export const PLACES_MAX = 20_000_000;

/** What is wrong: a code, which words.js turns into a sentence, and values for that sentence. */
export class Fault extends Error {
  constructor(code, values = {}) {
    super(`${code} ${JSON.stringify(values)}`);
    this.code = code;
    this.values = values;
  }
}

const encoder = new TextEncoder();

/** The UTF-8 bytes of a text. */
export const utf8 = (text) => encoder.encode(text);

/** The base64 of bytes. */
export function to_base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

/** The bytes of a base64 text, or null. Missing padding and bits that are left over are refused. */
export function from_base64(text) {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text)) return null;
  let binary;
  try {
    binary = atob(text);
  } catch {
    return null;
  }
  if (btoa(binary) !== text) return null;
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** The lower-case hex of bytes. */
export const to_hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** The bytes of `size` pairs of lower-case hex digits, or null. */
export function from_hex(text, size) {
  if (text.length !== 2 * size || !/^[0-9a-f]*$/.test(text)) return null;
  return Uint8Array.from({ length: size }, (_, at) => Number.parseInt(text.slice(2 * at, 2 * at + 2), 16));
}

/** A number from 0 to `max` in digits without leading zeros, or null. */
export function number(text, max) {
  if (!/^(0|[1-9][0-9]{0,15})$/.test(text) || Number(text) > max) return null;
  return Number(text);
}

/** The second since 1970 of an instant like 2026-11-27T11:00:00Z, or null. */
export function instant(text) {
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(text)) return null;
  const unix_s = Date.parse(text) / 1000;
  return unix_s >= 0 && unix_s <= 253_402_207_200 && from_unix_s(unix_s) === text ? unix_s : null;
}

/** The instant of a second since 1970. */
export const from_unix_s = (unix_s) => `${new Date(unix_s * 1000).toISOString().slice(0, 19)}Z`;

/** Whether this may name an event or a zone. */
export const is_id = (text) => /^[A-Za-z0-9_.:-]{1,64}$/.test(text) && text !== "." && text !== "..";

/** Whether this may name the operator's key. */
export const is_key_name = (text) => /^[!-*,-~]{1,128}$/.test(text);

/** Whether this is 1 to 1,024 bytes on one line, without a space at its ends. */
export function is_line(text) {
  const size = utf8(text).length;
  return size >= 1 && size <= 1024 && !/^ | $|[\u0000-\u001f\u007f-\u009f]/.test(text);
}

/**
 * A text as it is shown: control characters, line separators and the characters that change the direction of writing become
 * `\u{…}`, as in crates/draw/src/spelling.rs. So a source or a value cannot look like something else.
 */
export const shown = (text) => text.replace(
  /[\p{Cc}\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu,
  (char) => `\\u{${char.codePointAt(0).toString(16)}}`,
);

/** Whether two arrays of bytes are equal. */
export const same = (a, b) => a.length === b.length && a.every((byte, at) => byte === b[at]);
