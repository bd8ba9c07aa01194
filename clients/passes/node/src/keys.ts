// The keys that Weir publishes.
//
// Invariants: they are fetched at most once in 10 s, however many passes name unknown keys. A key that is not published any more is used
// for a minute at most, unless Weir does not answer: then for an hour, which is as long as any pass is valid. Whoever shows a pass of a
// known key waits for a fetch during its first second only. A text of keys that is wrong in any way replaces nothing. A key is unknown only
// if the last fetch succeeded without it, and began after its name was asked for or the key was withdrawn. Otherwise, a later fetch may bring
// it.

import { createPublicKey, type JsonWebKey, type KeyObject } from "node:crypto";
import { Refusal } from "./refusal.js";
import { within } from "./within.js";

/** After this time the keys are fetched again, because one may have been withdrawn. */
const FRESH_MS = 60_000;
/** The shortest time between two fetches. */
const PAUSE_MS = 10_000;
/** Older keys are not used. */
const OLDEST_MS = 3_600_000;
const MAX_BYTES = 65_536;
const MAX_KEYS = 32;
const [MIN_RSA_BITS, MAX_RSA_BITS] = [2_048, 8_192];
const MAX_EXPONENT = 2n ** 32n;

/** How a pass may be signed. */
export type Algorithm = "ES256" | "EdDSA" | "RS256";

export interface Key {
  readonly algorithm: Algorithm;
  readonly key: KeyObject;
}

/** What the keys need from the machine. Tests replace it. */
export interface Machine {
  /** A clock that never jumps, in milliseconds. */
  steadyMs(): number;
  /** The time limit of a fetch, in milliseconds. After a fifth of it, Weir is taken to be away wherever a known key will do. */
  fetchMs: number;
}

export class Keys {
  readonly #address: string;
  readonly #machine: Machine;
  #known = new Map<string, Key>();
  #fetchedAt = -Infinity;
  #askedAt = -Infinity;
  /** The last fetch. */
  #asking: Promise<unknown> = Promise.resolve();
  /** The same, or the first fifth of its time limit. */
  #soon: Promise<unknown> = Promise.resolve();
  /** Names that were asked for since the last fetch began, at most `MAX_KEYS`. */
  #wanted = new Set<string>();
  /** Names that the last fetch did not bring. */
  #missed = new Set<string>();
  /** Why the last fetch says nothing about a key. */
  #fault: unknown = null;

  constructor(address: string, machine: Machine) {
    [this.#address, this.#machine] = [address, machine];
  }

  /** The key of this name. Throws `unknown_key` or `keys_away`. */
  async find(kid: string): Promise<Key> {
    if (!this.#known.has(kid) || this.#age() >= FRESH_MS) {
      this.#refresh(kid);
      await (this.#known.has(kid) && this.#age() < OLDEST_MS ? this.#soon : this.#asking);
    }
    if (this.#age() < OLDEST_MS) {
      const key = this.#known.get(kid);
      if (key) return key;
      if (this.#missed.has(kid)) throw new Refusal("unknown_key");
    }
    throw new Refusal("keys_away", this.#fault, (this.#askedAt + PAUSE_MS - this.#machine.steadyMs()) / 1_000);
  }

  #age(): number {
    return this.#machine.steadyMs() - this.#fetchedAt;
  }

  /** Begins to fetch the keys, once for all who ask meanwhile, unless the last fetch was a moment ago. */
  #refresh(kid: string): void {
    if (this.#machine.steadyMs() - this.#askedAt < PAUSE_MS) {
      if (this.#wanted.size < MAX_KEYS) this.#wanted.add(kid);
      return;
    }
    this.#askedAt = this.#machine.steadyMs();
    const missed = this.#wanted.add(kid);
    [this.#wanted, this.#missed] = [new Set(), new Set()];
    let timer: NodeJS.Timeout | undefined;
    const soon = new Promise((done) => (timer = setTimeout(done, this.#machine.fetchMs / 5)));
    const ends = new AbortController();
    // Also where `fetch` ignores its signal: once the head is there, Node 20 may forget it with the next garbage collection.
    this.#asking = within(this.#machine.fetchMs, this.#fetch(missed, ends.signal), "Weir did not send its keys")
      .catch((fault: unknown) => (this.#fault = fault))
      .finally(() => (ends.abort(), clearTimeout(timer)));
    this.#soon = Promise.race([this.#asking, soon]);
  }

  async #fetch(missed: Set<string>, signal: AbortSignal): Promise<void> {
    // A cache in between would keep a withdrawn key for its own time, and a new one away.
    const headers = { accept: "application/jwk-set+json", "cache-control": "no-cache" };
    const reply = await fetch(this.#address, { signal, redirect: "error", headers });
    // Any other success has no keys, or only a part of them.
    if (reply.status !== 200) {
      await reply.body?.cancel();
      throw new Error(`Weir answers ${reply.status}`);
    }
    const keys = keysOf(await textOf(reply));
    // A fetch that was given up replaces nothing.
    signal.throwIfAborted();
    for (const kid of this.#known.keys()) missed.add(kid);
    [this.#known, this.#missed, this.#fetchedAt] = [keys, missed, this.#machine.steadyMs()];
    this.#fault = new Error("the keys were fetched a moment ago, without the key of this pass");
  }
}

/** A decoder of UTF-8 that throws at anything else. */
export const utf8 = () => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

async function textOf(reply: Response): Promise<string> {
  const decoder = utf8();
  let [text, bytes] = ["", 0];
  for await (const piece of reply.body ?? []) {
    bytes += (piece as Uint8Array).length;
    if (bytes > MAX_BYTES) throw new Error(`the keys have more than ${MAX_BYTES} bytes`);
    text += decoder.decode(piece as Uint8Array, { stream: true });
  }
  return text + decoder.decode();
}

function keysOf(text: string): Map<string, Key> {
  const { keys } = JSON.parse(text) as { keys?: unknown };
  if (!Array.isArray(keys)) throw new Error("the text of keys has no list of keys");
  if (keys.length > MAX_KEYS) throw new Error(`there are more than ${MAX_KEYS} keys`);
  const known = new Map<string, Key>();
  for (const jwk of keys as unknown[]) {
    const [kid, key] = keyOf(jwk) ?? [];
    // The first of two keys with one name counts.
    if (kid !== undefined && key && !known.has(kid)) known.set(kid, key);
  }
  return known;
}

/** Name and key of a JWK, or null if passes cannot be signed with it. The key names its algorithm: if a pass could choose it, a forger
 * would choose a weak one. */
function keyOf(jwk: unknown): [string, Key] | null {
  if (typeof jwk !== "object" || jwk === null) return null;
  const { kid, alg, use, kty, crv } = jwk as Record<string, unknown>;
  if (typeof kid !== "string" || (use !== undefined && use !== "sig")) return null;
  const algorithm =
    kty === "EC" && crv === "P-256" && alg === "ES256" ? "ES256"
    : kty === "OKP" && crv === "Ed25519" && alg === "EdDSA" ? "EdDSA"
    : kty === "RSA" && alg === "RS256" ? "RS256"
    : null;
  if (!algorithm) return null;
  try {
    const key = createPublicKey({ key: jwk as JsonWebKey, format: "jwk" });
    if (algorithm === "RS256" && !isStrong(key)) return null;
    return [kid, { algorithm, key }];
  } catch {
    return null;
  }
}

/** Whether a key of RSA is of use. Node takes the exponent 1, with which anybody can sign. */
function isStrong({ asymmetricKeyDetails: { modulusLength: bits = 0, publicExponent: e = 0n } = {} }: KeyObject): boolean {
  return bits >= MIN_RSA_BITS && bits <= MAX_RSA_BITS && e >= 3n && e % 2n === 1n && e < MAX_EXPONENT;
}
