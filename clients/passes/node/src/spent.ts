// The record of spent passes.
//
// Invariant: a name is first once, until its pass cannot be accepted any more.

/**
 * Records that the pass of this key was accepted, and returns whether it is the first time. It must be atomic among all that share the
 * record, and the key must be kept until `untilS`, in seconds since 1970. If it rejects, or does not answer within 5 s, nobody enters.
 */
export type Spend = (key: string, untilS: number) => Promise<boolean>;

/** The most passes that one process remembers: some minutes' worth. */
const MOST = 1_000_000;

/** A record in this process. It knows nothing of other processes, and forgets all when the process ends. */
export function memory(nowS: () => number, most = MOST): Spend {
  const spent = new Map<string, number>();
  // When to look for what has expired: not before something has, and once in a second at most. A look goes through all.
  let lookS = Infinity;
  return async (key, untilS) => {
    const now = nowS();
    if (spent.size >= most && lookS < now) {
      lookS = Infinity;
      for (const [known, until] of spent) {
        if (until < now) spent.delete(known);
        else lookS = Math.min(lookS, until);
      }
      lookS = Math.max(lookS, now + 1);
    }
    if (spent.has(key)) return false;
    if (spent.size >= most) throw new Error(`${most} passes are remembered already`);
    spent.set(key, untilS);
    lookS = Math.min(lookS, untilS);
    return true;
  };
}
