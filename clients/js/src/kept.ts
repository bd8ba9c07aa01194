// What the storage holds, as JSON: the same as the other clients. Earlier versions of weir.js wrote the same.
//
// Whoever can write into the storage may have written anything. So what is read is checked as a reply is.

import { periodWithin } from "./pace.js";
import type { Platform, Storage } from "./platform.js";
import { REASONS, count, isToken, rankOf, stockOf, type Reason, type Stock } from "./reply.js";

/** The longest time that a call of the storage may take, in milliseconds. */
const SLOWEST_STORAGE_MS = 3_000;

/** A place in the storage. */
export interface Kept {
  token: string;
  /** By the device's clock. */
  heard: number;
  first?: number;
  progress?: number;
  eta?: [number, number, number] | null;
  rank?: number;
  reason?: Reason | "unsure" | null;
  stale?: boolean;
  opens_ms?: number;
  stock?: Stock | null;
  beyond_stock?: boolean;
  period_ms?: number;
  entered?: boolean;
}

/** The place of a text in the storage; `null` if the text is none. Figures of which one is damaged are left out. */
export function keptOf(stored: string): Kept | null {
  try {
    const { token, heard, entered, ...figures } = JSON.parse(stored) as Record<string, unknown>;
    if (!isToken(token) || typeof heard !== "number" || !Number.isFinite(heard)) return null;
    return { token, heard, ...(entered === true && { entered }), ...figuresOf(figures) };
  } catch {
    return null;
  }
}

function figuresOf(figures: Record<string, unknown>): Partial<Kept> {
  const { rank, first, progress, eta, reason, stale, opens_ms, stock, beyond_stock, period_ms } = figures;
  try {
    return {
      rank: rankOf(rank),
      first: count(first ?? 0),
      progress: number(progress ?? 0, 0, 1),
      eta: Array.isArray(eta) ? rangeOf(eta) : null,
      reason: [...REASONS, "unsure" as const].find((known) => known === reason) ?? null,
      stale: stale === true,
      opens_ms: count(opens_ms ?? 0),
      stock: stockOf(stock),
      beyond_stock: beyond_stock === true,
      ...(period_ms !== undefined && { period_ms: periodWithin(count(period_ms)) }),
    };
  } catch {
    return {};
  }
}

function number(value: unknown, least: number, most: number): number {
  if (typeof value === "number" && value >= least && value <= most) return value;
  throw new RangeError("not a number that was written");
}

/** A told wait counts down, also below 0 and by parts of a second. */
function rangeOf(eta: unknown[]): [number, number, number] {
  const [low = NaN, seconds = NaN, high = NaN] = eta.map((value) => number(value, -Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER));
  if (eta.length !== 3 || low > high) throw new RangeError("not a range");
  return [low, seconds, high];
}

/** A storage whose calls fail after SLOWEST_STORAGE_MS. After that it is not asked again. */
export function inTime(storage: Storage, timer: Platform["timer"]): Storage {
  let isSilent = false;
  const limited = <T>(ask: () => T | Promise<T>): T | Promise<T> => {
    const silent = () => new Error("the storage does not answer");
    if (isSilent) throw silent();
    const answer = ask();
    // A browser's storage answers at once, also while the page closes.
    if (!(answer instanceof Object && "then" in answer)) return answer;
    return new Promise((done, fail) => {
      const cancel = timer(SLOWEST_STORAGE_MS, () => {
        isSilent = true;
        fail(silent());
      });
      Promise.resolve(answer).then(done, fail).finally(cancel);
    });
  };
  return {
    get: (key) => limited(() => storage.get(key)),
    set: (key, value) => limited(() => storage.set(key, value)),
    remove: (key) => limited(() => storage.remove(key)),
  };
}
