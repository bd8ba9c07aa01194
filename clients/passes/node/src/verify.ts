// Verifies a pass: a JWT of RFC 7519, signed by a published key, for this audience and zone, and valid now.
//
// Invariant: nothing in a pass is believed before its signature is verified, except which key to use.

import { verify as verifySignature } from "node:crypto";
import { utf8, type Key, type Keys } from "./keys.js";
import { Refusal } from "./refusal.js";

/** The largest difference between Weir's clock and this machine's, in seconds. */
export const LEEWAY_S = 5;
/** The longest pass, in characters. Weir's have less than 1,500. */
const MAX_PASS = 8_192;
const MAX_JTI = 256;
/** A time beyond it, in seconds, is none. */
const MAX_SECONDS = 1e12;

/** What a pass says. */
export interface Pass {
  readonly zone: string;
  /** The name of the entry. */
  readonly jti: string;
  /** When the pass ends, in seconds since 1970. */
  readonly exp: number;
}

type Fields = Record<string, unknown>;

/** The pass of a text. Does not spend it. `nowS`: seconds since 1970. Throws a `Refusal`. */
export async function verify(text: string, keys: Keys, audience: string, zone: string, nowS: number): Promise<Pass> {
  // A form may lack the field, or have it twice.
  const parts = typeof text === "string" && text.length <= MAX_PASS ? text.split(".") : [];
  const [head = "", body = "", mark = ""] = parts;
  if (parts.length !== 3 || !parts.every(isBase64)) throw new Refusal("unreadable");
  const { kid, alg, crit } = fieldsOf(head);
  // Nothing critical is known here, so RFC 7515 demands a refusal.
  if (typeof kid !== "string" || crit !== undefined) throw new Refusal("unreadable");
  const key = await keys.find(kid);
  if (alg !== key.algorithm || !isSigned(`${head}.${body}`, mark, key)) throw new Refusal("forged");
  const claims = fieldsOf(body);
  const { aud, jti } = claims;
  const [nbf, exp] = [claims["nbf"], claims["exp"]];
  if (!isTime(nbf) || !isTime(exp) || typeof jti !== "string") throw new Refusal("unreadable");
  // The name is part of a key in the record of spent passes.
  if (jti.length > MAX_JTI || !/^[\x21-\x7e]+$/.test(jti)) throw new Refusal("unreadable");
  if (nowS < nbf - LEEWAY_S) throw new Refusal("not_yet_valid");
  if (nowS >= exp + LEEWAY_S) throw new Refusal("expired");
  const isOurs = aud === audience || (Array.isArray(aud) && aud.includes(audience));
  if (!isOurs || claims["zone"] !== zone) throw new Refusal("other_service");
  return { zone, jti, exp };
}

/** Whether this is the base64url of some bytes, without padding. Node's decoder takes more, and one pass would have many texts. */
function isBase64(part: string): boolean {
  return Buffer.from(part, "base64url").toString("base64url") === part;
}

function isTime(claim: unknown): claim is number {
  return typeof claim === "number" && Math.abs(claim) <= MAX_SECONDS;
}

function fieldsOf(part: string): Fields {
  let value: unknown = null;
  try {
    value = JSON.parse(utf8().decode(Buffer.from(part, "base64url")));
  } catch {
    // Refused below.
  }
  if (typeof value !== "object" || value === null) throw new Refusal("unreadable");
  return value as Fields;
}

function isSigned(text: string, mark: string, { algorithm, key }: Key): boolean {
  const by = algorithm === "ES256" ? { key, dsaEncoding: "ieee-p1363" as const } : key;
  return verifySignature(algorithm === "EdDSA" ? null : "sha256", Buffer.from(text), by, Buffer.from(mark, "base64url"));
}
