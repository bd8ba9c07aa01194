// Signed notes and public keys (c2sp.org/signed-note), with Ed25519.
//
// Invariant: a text counts as signed only if exactly one signature of the key is there, and fits. Signatures of other keys
// are ignored.

import { ed25519 } from "@noble/curves/ed25519.js";
import { sha512 } from "@noble/hashes/sha2.js";

import { sha256 } from "./sha256.js";
import { Fault, from_base64, from_hex, is_key_name, same, to_hex, utf8 } from "./spelling.js";

const NOTE_MAX = 50_000;

/** The public key in `NAME+ID+KEY`. */
export function read_key(text) {
  const parts = /^([^+]*)\+([^+]*)\+(.*)$/s.exec(text);
  if (!parts || !is_key_name(parts[1])) throw new Fault("key_form");
  const name = parts[1], id = from_hex(parts[2], 4), key = from_base64(parts[3]);
  if (!id || key?.length !== 33 || key[0] !== 1) throw new Fault("key_form");
  let point;
  try {
    point = ed25519.Point.fromBytes(key.subarray(1), false);
  } catch {
    throw new Fault("key_form");
  }
  if (point.isSmallOrder()) throw new Fault("key_form");
  const about = utf8(`${name}\n`), data = new Uint8Array(about.length + 33);
  data.set(about);
  data.set(key, about.length);
  if (!same(sha256(data).subarray(0, 4), id)) throw new Fault("key_id");
  return { name, id, bytes: key.subarray(1), text };
}

/** The text of a note, and how many signatures of other keys are on it, if `key` has signed it. `what` goes into faults. */
export function open_note(what, note, key) {
  const fault = () => new Fault("note_form", { what });
  if (utf8(note).length > NOTE_MAX || /[\u0000-\u0009\u000b-\u001f]/.test(note)) throw fault();
  const at = note.lastIndexOf("\n\n");
  if (at < 0 || !note.endsWith("\n") || at + 2 >= note.length) throw fault();
  const text = note.slice(0, at + 1);
  const signatures = note.slice(at + 2, -1).split("\n").map((line) => {
    const parts = /^\u2014 ([^ ]*) (.*)$/.exec(line);
    const bytes = parts && from_base64(parts[2]);
    if (!parts || !parts[1] || /[\p{White_Space}+]/u.test(parts[1]) || !bytes || bytes.length <= 4) throw fault();
    return { name: parts[1], bytes };
  });
  const ours = signatures.filter(({ name, bytes }) => name === key.name && same(bytes.subarray(0, 4), key.id));
  if (ours.length === 0) throw new Fault("not_signed", { what, key: key.text });
  if (ours.length > 1 || !fits(ours[0].bytes.subarray(4), utf8(text), key.bytes)) throw new Fault("forged", { what });
  return { text, others: signatures.length - 1 };
}

/** The number in bytes, the lowest first. */
const little_endian = (bytes) => BigInt(`0x${to_hex(bytes.slice().reverse())}`);

/**
 * Whether `[S]B = R + [k]A`, without the cofactor, and neither `R` nor `A` is of small order, as `verify_strict` of the Rust
 * verifier checks it. The library's own function multiplies by the cofactor, and so accepts more signatures.
 */
function fits(signature, message, key) {
  if (signature.length !== 64) return false;
  const { Point } = ed25519, order = Point.Fn.ORDER;
  const nonce = signature.subarray(0, 32), s = little_endian(signature.subarray(32));
  if (s >= order) return false;
  const data = new Uint8Array(64 + message.length);
  data.set(nonce);
  data.set(key, 32);
  data.set(message, 64);
  try {
    const r = Point.fromBytes(nonce, false), a = Point.fromBytes(key, false);
    if (r.isSmallOrder() || a.isSmallOrder()) return false;
    return Point.BASE.multiplyUnsafe(s).equals(r.add(a.multiplyUnsafe(little_endian(sha512(data)) % order)));
  } catch {
    // The nonce is no point of the curve.
    return false;
  }
}
