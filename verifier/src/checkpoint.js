// The checkpoint and the operator's statements: strict readers of their lines.
//
// Invariant: a text that is read has one reading, as in crates/draw/src/checkpoint.rs.

import { CHAIN, ROUND_MAX, round_unix_s } from "./drand.js";
import { sha256 } from "./sha256.js";
import { Fault, PLACES_MAX, from_base64, from_unix_s, instant, is_id, is_key_name, is_line, number, to_base64, utf8 } from "./spelling.js";

const FIELDS = ["event", "zone", "frozen", "start", "algorithm", "in-line", "randomness", "fallback"];

/** Reads the text of a checkpoint. */
export function read_checkpoint(text) {
  const lines = text.split("\n");
  // The part after the last line break is empty.
  if (lines.length !== 4 + FIELDS.length || lines.at(-1) !== "") throw new Fault("checkpoint_lines", { lines: lines.length - 1 });
  const must = (line, value) => {
    if (value === null || value === false) throw new Fault("checkpoint_line", { line, text: lines[line - 1] });
    return value;
  };
  const field = Object.fromEntries(FIELDS.map((name, at) => {
    must(at + 4, lines[at + 3].startsWith(`${name} `));
    return [name, lines[at + 3].slice(name.length + 1)];
  }));
  const places = must(2, number(lines[1], PLACES_MAX));
  const root = must(3, from_base64(lines[2]));
  must(3, root.length === 32);
  const { event, zone } = field;
  must(4, is_id(event));
  must(5, is_id(zone));
  const end = `/${event}/${zone}`, key_name = lines[0].slice(0, -end.length);
  must(1, lines[0].endsWith(end) && is_key_name(key_name));
  const frozen_unix_s = must(6, instant(field.frozen));
  const start_unix_s = must(7, instant(field.start));
  must(8, field.algorithm === "weir-draw-1");
  const in_line = must(9, number(field["in-line"], places));
  const announced = must(10, read_announced(field.randomness));
  const fallback = must(11, read_fallback(field.fallback));
  must(11, fallback.kind !== "later" || announced.kind === "drand");
  if (announced.kind === "drand" && round_unix_s(announced.round) <= frozen_unix_s) {
    throw new Fault("early_round", { round: announced.round, at: from_unix_s(round_unix_s(announced.round)), frozen: field.frozen });
  }
  return { text, origin: lines[0], key_name, event, zone, places, in_line, root, frozen_unix_s, start_unix_s, announced, fallback };
}

function read_announced(text) {
  if (text.startsWith("stated ")) {
    const source = text.slice(7);
    return is_line(source) ? { kind: "stated", source } : null;
  }
  const parts = /^drand ([0-9a-f]{64}) ([0-9]+)$/.exec(text);
  const round = parts && parts[1] === CHAIN ? number(parts[2], ROUND_MAX) : null;
  return round ? { kind: "drand", round } : null;
}

function read_fallback(text) {
  if (text === "wait" || text === "arrival") return { kind: text };
  const seconds = text.startsWith("later ") ? number(text.slice(6), 604_800) : null;
  return seconds ? { kind: "later", seconds } : null;
}

/** The value that a statement about this checkpoint says, or null if it says that no value came. */
export function read_statement(text, checkpoint) {
  const about = `${checkpoint.origin}\ncheckpoint ${to_base64(sha256(utf8(checkpoint.text)))}\n`;
  if (!text.startsWith(about)) throw new Fault("statement_other");
  const line = text.slice(about.length);
  if (line === "missing\n") return null;
  const value = line.startsWith("value ") && line.endsWith("\n") ? line.slice(6, -1) : "";
  if (!is_line(value)) throw new Fault("statement_form");
  return value;
}
