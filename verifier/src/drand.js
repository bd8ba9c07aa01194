// The rounds of drand's chain quicknet.
//
// Invariant: a round's randomness is returned only for the round's own signature.

import { bls12_381 } from "@noble/curves/bls12-381.js";

import { sha256 } from "./sha256.js";
import { from_hex, utf8 } from "./spelling.js";

export const CHAIN = "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971";
export const ROUND_MAX = 80_000_000_000;
export const PERIOD_S = 3;
const GENESIS_UNIX_S = 1_692_803_367;
const KEY = "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451"
  + "0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a";
const DOMAIN = utf8("BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_");

/** When a round comes, in seconds since 1970. */
export const round_unix_s = (round) => GENESIS_UNIX_S + (round - 1) * PERIOD_S;

/** The randomness of a round, or null if this is not its signature. */
export function randomness_of(round, signature) {
  const number = new Uint8Array(8);
  new DataView(number.buffer).setBigUint64(0, BigInt(round));
  const { shortSignatures } = bls12_381;
  try {
    const message = shortSignatures.hash(sha256(number), DOMAIN);
    if (!shortSignatures.verify(signature, message, from_hex(KEY, 96))) return null;
  } catch {
    // The bytes are no point of the curve.
    return null;
  }
  return sha256(signature);
}
