// Reads replies. Nothing that a server or a proxy sends is trusted: sizes, types and ranges are checked here, and only here. `kept.ts` uses
// the same checks for the storage.
//
// Invariant: an `Answer` has the types that it says. Unknown fields are ignored, because a newer server may have them.

import { periodWithin } from "./pace.js";
import type { Reply } from "./platform.js";

/** The most characters of a reply, or of one event of a stream. Weir's have less than 2,000. */
export const LONGEST_REPLY = 65_536;

/** The longest token and the longest pass, in characters. */
const LONGEST_TOKEN = 1_024;
const LONGEST_PASS = 8_192;

/** Why the wait is longer than before, or not known. */
export type Reason = (typeof REASONS)[number];
export const REASONS = ["held", "draw", "slowed", "interrupted", "returned", "slower"] as const;

/** What is left, by tier; `null` for a tier of which nobody knows. `texts` names the labels and prices that belong to it. */
export interface Stock {
  readonly texts: string;
  readonly remaining: Readonly<Record<string, number | null>>;
}

/** The most tiers of a zone. */
const MOST_TIERS = 16;

/** Place and wait, as a reply or an event tells them. */
export interface Waiting {
  readonly rank: number;
  /** The shortest, the expected and the longest wait, in seconds. */
  readonly eta: readonly [number, number, number] | null;
  readonly reason: Reason | null;
  readonly stale: boolean;
  readonly periodMs: number;
  readonly opensInMs: number;
  /** What is left, where the operators tell it. */
  readonly stock: Stock | null;
  /** Everything may be sold out before it is the user's turn. */
  readonly beyondStock: boolean;
}

/** What `wait` and `entry` answer. */
export type Answer =
  | { readonly canEnter: true; readonly token: string; readonly pass: string }
  | { readonly canEnter: false; readonly token: string; readonly waiting: Waiting };

/** A reply that Weir would not send. */
export class Unreadable extends Error {}

/** Whether a value may be a token: Weir's are of printable ASCII. */
export const isToken = (value: unknown): value is string => typeof value === "string" && value.length <= LONGEST_TOKEN && /^[!-~]+$/.test(value);

type Fields = Record<string, unknown>;

function fieldsOf(value: unknown): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Unreadable("not an object");
  return value as Fields;
}

function text(value: unknown, longest: number): string {
  if (typeof value !== "string" || value === "" || value.length > longest) throw new Unreadable("not a text of the right length");
  return value;
}

/** A whole number from `least` on. */
export function count(value: unknown, least = 0): number {
  if (!Number.isSafeInteger(value) || (value as number) < least) throw new Unreadable("not a count");
  return value as number;
}

/** A rank: the first one in the line has 1. */
export const rankOf = (value: unknown): number => count(value, 1);

export function stockOf(value: unknown): Stock | null {
  if (value === undefined || value === null) return null;
  const { texts, remaining } = fieldsOf(value);
  const tiers = Object.entries(fieldsOf(remaining));
  if (tiers.length > MOST_TIERS) throw new Unreadable("too many tiers");
  return { texts: text(texts, 64), remaining: Object.fromEntries(tiers.map(([id, left]) => [id, left === null ? null : count(left)])) };
}

/** Place and wait of a parsed reply. Throws `Unreadable`. */
export function waitingOf(value: unknown): Waiting {
  const fields = fieldsOf(value);
  const range = fields["etaRange"];
  let eta: Waiting["eta"] = null;
  if (Array.isArray(range)) {
    eta = [count(range[0]), count(fields["etaSeconds"]), count(range[1])];
    if (range.length !== 2 || eta[0] > eta[2]) throw new Unreadable("not a range");
  }
  const reason = fields["reason"];
  return {
    rank: rankOf(fields["rank"]),
    eta,
    // A reason that this version does not know still explains a longer wait.
    reason: typeof reason !== "string" ? null : REASONS.find((known) => known === reason) ?? "slower",
    stale: fields["stale"] === true,
    periodMs: periodWithin(count(fields["pollingPeriod"])),
    opensInMs: fields["opensInMs"] === undefined ? 0 : count(fields["opensInMs"]),
    stock: stockOf(fields["stock"]),
    beyondStock: fields["beyondStock"] === true,
  };
}

/** The answer of a parsed reply. Throws `Unreadable`. */
export function answerOf(value: unknown): Answer {
  const { canEnter, token, pass, waiting } = fieldsOf(value);
  if (canEnter === true) return { canEnter, token: text(token, LONGEST_TOKEN), pass: text(pass, LONGEST_PASS) };
  if (canEnter === false) return { canEnter, token: text(token, LONGEST_TOKEN), waiting: waitingOf(waiting) };
  throw new Unreadable("neither entered nor waiting");
}

/** What a pass and its copies have in common: its `jti`. Each copy may be signed anew. Empty if it cannot be read. */
export function idOf(pass: string): string {
  try {
    const { jti } = JSON.parse(atob((pass.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/"))) as { jti?: unknown };
    return typeof jti === "string" ? jti : "";
  } catch {
    return "";
  }
}

/** The JSON of a reply. Throws `Unreadable` if it is too long or no JSON, and what `fetch` throws if the connection breaks. */
export async function jsonOf(reply: Reply): Promise<unknown> {
  const body = await textOf(reply);
  try {
    return JSON.parse(body);
  } catch {
    throw new Unreadable("not JSON");
  }
}

/** The text of a reply. Throws `Unreadable` if it is too long. */
export async function textOf(reply: Reply): Promise<string> {
  const reader = reply.body?.getReader();
  if (!reader) {
    const whole = await reply.text();
    if (whole.length > LONGEST_REPLY) throw new Unreadable("too long");
    return whole;
  }
  const decoder = new TextDecoder();
  for (let read = ""; ; ) {
    const { done, value } = await reader.read();
    if (done) return read + decoder.decode();
    read += decoder.decode(value, { stream: true });
    if (read.length > LONGEST_REPLY) {
      await reader.cancel();
      throw new Unreadable("too long");
    }
  }
}
