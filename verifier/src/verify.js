// The verifier: computes everything again, as crates/draw/src/verify.rs does.
//
// Each step, limit and fault is a code with values; words.js has the sentences. Invariant: a step is told only after it was
// checked.

import { read_checkpoint, read_statement } from "./checkpoint.js";
import { CHAIN, PERIOD_S, randomness_of, round_unix_s } from "./drand.js";
import { read_receipt, read_record } from "./files.js";
import { open_note, read_key } from "./note.js";
import { sha256 } from "./sha256.js";
import { positions } from "./shuffle.js";
import { Fault, from_base64, from_hex, from_unix_s, same, to_base64, to_hex, utf8 } from "./spelling.js";
import { in_line, leads_to, root } from "./tree.js";

class Report {
  steps = [];
  limits = [];
  fault = null;

  step(code, values = {}) {
    this.steps.push({ code, values });
  }

  limit(code, values = {}) {
    this.limits.push({ code, values });
  }

  async run(work) {
    try {
      return await work();
    } catch (fault) {
      if (!(fault instanceof Fault)) throw fault;
      this.fault = { code: fault.code, values: fault.values };
      return null;
    }
  }
}

/** Verifies a record: a report, and the draw if the record is right. `known` is the operator's key, or an empty text. */
export async function verify_record(json, known, breathe = async () => {}) {
  const report = new Report();
  const drawn = await report.run(async () => {
    const record = read_record(json);
    const { checkpoint, key } = signed_checkpoint(report, "record", record, known);
    const bits = list_of(record.places, checkpoint.places);
    const found = await root(bits, checkpoint.places, breathe);
    if (!same(found, checkpoint.root)) throw new Fault("list_differs", { found: to_base64(found), expected: to_base64(checkpoint.root) });
    report.step("list", { places: checkpoint.places, root: to_base64(found) });
    const ranks = ranks_of(bits, checkpoint.places);
    if (ranks.people !== checkpoint.in_line) throw new Fault("in_line_differs", { found: ranks.people, expected: checkpoint.in_line });
    report.step("in_line", { people: ranks.people });
    const decided = decide(record.randomness, checkpoint, key);
    tell_randomness(report, checkpoint, record.randomness, decided);
    const seed = decided.bytes && seed_of(checkpoint, decided.bytes);
    report.step(seed ? "order" : "arrival_order", { people: ranks.people, seed: seed && to_hex(seed) });
    report.limit("owners");
    const of_rank = seed ? positions(seed, ranks.people) : null;
    const position = (place) => {
      const rank = ranks.of(place);
      if (rank === null) return null;
      return of_rank ? of_rank[rank] : rank + 1;
    };
    return { checkpoint, key, randomness: record.randomness, position };
  });
  return { report, drawn };
}

/** Verifies a receipt against a draw, or alone if that is null. */
export async function verify_receipt(json, drawn, known) {
  const report = new Report();
  await report.run(async () => {
    const receipt = read_receipt(json);
    const { checkpoint, key } = signed_checkpoint(report, "receipt", receipt, known);
    if (drawn && drawn.key.text !== key.text) throw new Fault("receipt_key", { found: key.text, expected: drawn.key.text });
    if (drawn && drawn.checkpoint.text !== checkpoint.text) throw new Fault("receipt_checkpoint");
    if (receipt.event !== checkpoint.event || receipt.zone !== checkpoint.zone) throw new Fault("receipt_names");
    const { place, position } = receipt;
    const end = leads_to(place, receipt.inLine, receipt.path, checkpoint.places);
    if (!end || !same(end, checkpoint.root)) throw new Fault("path", { place });
    report.step(receipt.inLine ? "place_in_line" : "place_left", { place });
    if ((position !== null) !== receipt.inLine) throw new Fault("position_presence");
    if (drawn) {
      if (!same_randomness(drawn.randomness, receipt.randomness)) throw new Fault("receipt_randomness");
      const expected = drawn.position(place);
      if (position !== expected) throw new Fault("position_differs", { place, found: position, expected });
      report.step(position === null ? "no_position" : "position", { place, position, people: checkpoint.in_line });
    } else {
      const decided = decide(receipt.randomness, checkpoint, key);
      tell_randomness(report, checkpoint, receipt.randomness, decided);
      if (decided.bytes) report.step("seed", { seed: to_hex(seed_of(checkpoint, decided.bytes)) });
      if (position !== null) {
        if (position < 1 || position > checkpoint.in_line) throw new Fault("position_range", { position, people: checkpoint.in_line });
        report.limit("not_computed", { position });
      }
    }
  });
  return report;
}

/** The key that the reader gave. */
function given_key(text) {
  try {
    return read_key(text);
  } catch (fault) {
    if (!(fault instanceof Fault)) throw fault;
    throw new Fault("given_key");
  }
}

function signed_checkpoint(report, of, file, known) {
  const key = read_key(file.key);
  if (known && given_key(known).text !== key.text) throw new Fault("other_key", { of, found: key.text });
  if (known) report.step("known_key", { key: key.text });
  else report.limit("own_key", { of, key: key.text });
  const { text, others } = open_note("checkpoint", file.checkpoint, key);
  const checkpoint = read_checkpoint(text);
  if (checkpoint.key_name !== key.name) throw new Fault("origin", { found: checkpoint.key_name, key: key.name });
  report.step("signed", { key: key.name, event: checkpoint.event, zone: checkpoint.zone });
  if (others > 0) report.limit("others", { others });
  return { checkpoint, key };
}

/** The bitmap of `count` places. */
function list_of(text, count) {
  const bits = from_base64(text);
  const is_spelled = bits && bits.length === Math.ceil(count / 8) && (count % 8 === 0 || bits.at(-1) >> (count % 8) === 0);
  if (!is_spelled) throw new Fault("list_form", { count });
  return bits;
}

/** How many are in line, and the rank of each place among them. */
function ranks_of(bits, count) {
  const before = new Uint32Array(bits.length);
  let people = 0;
  bits.forEach((byte, at) => {
    before[at] = people;
    for (let rest = byte; rest; rest &= rest - 1) people += 1;
  });
  const of = (place) => {
    if (place >= count || !in_line(bits, place)) return null;
    let rank = before[place >> 3];
    for (let bit = 0; bit < place % 8; bit += 1) rank += (bits[place >> 3] >> bit) & 1;
    return rank;
  };
  return { people, of };
}

/** The bytes that a randomness gives in the draw of a checkpoint, or none for the order of arrival; and the stated value. */
function decide(randomness, checkpoint, key) {
  const { announced, fallback } = checkpoint;
  const said = () => read_statement(open_note("statement", randomness.statement, key).text, checkpoint);
  const missing = () => {
    if (said() !== null) throw new Fault("statement_says");
  };
  const of_round = (expected) => {
    const { round } = randomness;
    if (round !== expected) throw new Fault("round_differs", { found: round, expected });
    const signature = from_hex(randomness.signature, 48);
    const bytes = signature && randomness_of(round, signature);
    if (!bytes) throw new Fault("round_signature", { round, chain: CHAIN });
    return { bytes };
  };
  const kinds = `${randomness.kind} ${announced.kind} ${fallback.kind}`;
  if (/^drand drand /.test(kinds)) return of_round(announced.round);
  if (kinds === "later drand later") {
    missing();
    return of_round(announced.round + Math.ceil(fallback.seconds / PERIOD_S));
  }
  if (/^stated stated /.test(kinds)) {
    const value = said();
    if (value === null) throw new Fault("statement_says");
    return { bytes: utf8(value), value };
  }
  if (/^arrival \w+ arrival$/.test(kinds)) {
    missing();
    return { bytes: null };
  }
  throw new Fault("randomness_kind", { found: randomness.kind, announced: announced.kind, fallback: fallback.kind });
}

function tell_randomness(report, { announced, frozen_unix_s }, { kind, round }, { value }) {
  const is_fallback = kind === "later" || kind === "arrival";
  if (round) report.step("round", { round, at: from_unix_s(round_unix_s(round)), frozen: from_unix_s(frozen_unix_s) });
  else report.step(kind === "stated" ? "stated" : "arrival", { value });
  if (announced.kind === "drand") {
    if (is_fallback) report.limit("missing_round", { round: announced.round, chain: CHAIN });
    report.limit("public_before", { at: from_unix_s(round_unix_s(announced.round)) });
  } else {
    report.limit(is_fallback ? "missing_value" : "source", { source: announced.source });
    if (!is_fallback) report.limit("few_values");
    report.limit("public_before_value");
  }
}

/** SHA-256 over the domain, the checkpoint and the randomness, each behind its length in 8 bytes. */
function seed_of(checkpoint, randomness) {
  const parts = [utf8("weir-draw-1/seed"), utf8(checkpoint.text), randomness];
  const data = new Uint8Array(parts.reduce((size, part) => size + 8 + part.length, 0));
  let at = 0;
  for (const part of parts) {
    new DataView(data.buffer).setBigUint64(at, BigInt(part.length));
    data.set(part, at + 8);
    at += 8 + part.length;
  }
  return sha256(data);
}

function same_randomness(a, b) {
  return ["kind", "round", "signature", "statement"].every((name) => a[name] === b[name]);
}
