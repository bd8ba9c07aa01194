// The other tabs of the same browser: turns by Web Locks, news by a BroadcastChannel.
//
// Where a browser lacks or refuses one of them (no HTTPS, a sandboxed frame, blocked cookies), something weaker stands in. Storage events
// bring the news. Claims in the storage make turns, which are right unless two tabs write within the same moments and one of them is
// delayed by more than CLAIM_MS. Then a person may take two places, of which one ends by silence.
//
// Invariant: a turn is waited for at most TURN_MS, and twice that without locks. So a tab that crashed or stands still blocks nobody, and
// two of them may have their turn at once. A tab stands still while it shows a dialog, and where the system suspends it.

import type { Tabs } from "./platform.js";

/** How long a tab waits after its claim for the claim of another tab, in milliseconds. */
const CLAIM_MS = 100;
/** How long a turn is waited for, and how long a claim counts, in milliseconds: longer than a call may take. */
const TURN_MS = 20_000;

interface Locks {
  request<T>(name: string, options: { ifAvailable?: true; signal?: AbortSignal }, act: (lock: object | null) => Promise<T>): Promise<T>;
}

interface Channel {
  postMessage(message: string): void;
  addEventListener(type: "message", hear: () => void): void;
  close(): void;
}

/** What a browser may have. Each may be absent, and each may throw when it is used. */
export interface TabsParts {
  locks: Locks | null;
  channel: ((name: string) => Channel) | null;
  /** Calls `hear` with the key of what another tab changed. Returns a function that ends this. */
  storageEvents(hear: (key: string | null) => void): () => void;
  storage: { getItem(key: string): string | null; setItem(key: string, value: string): void; removeItem(key: string): void } | null;
  deviceMs(): number;
  random(): number;
  timer(ms: number, run: () => void): () => void;
}

/** Tabs from the parts that a browser has. */
export function tabsOf(parts: TabsParts): Tabs {
  let locks = parts.locks;

  /**
   * Runs `act` with a lock, which is waited for until `limit` ends. Without a limit, `act` gets null if the lock is taken.
   * Returns "refused" if the browser refuses locks, and "late" at the limit, both before `act` began.
   */
  async function locked<T>(name: string, limit: AbortSignal | null, act: (lock: object | null) => Promise<T>): Promise<T | "refused" | "late"> {
    if (!locks) return "refused";
    let began = false;
    try {
      return await locks.request(name, limit ? { signal: limit } : { ifAvailable: true }, (lock) => {
        began = true;
        return act(lock);
      });
    } catch (fault) {
      if (began) throw fault;
      if (limit?.aborted) return "late";
      locks = null;
      return "refused";
    }
  }

  const pause = (ms: number) => new Promise<void>((done) => void parts.timer(ms, done));

  async function claimed<T>(name: string, act: () => Promise<T>): Promise<T> {
    const { storage } = parts;
    const mine = `${Math.floor(parts.random() * 2 ** 52).toString(36)} `;
    const isMine = () => Boolean(storage?.getItem(name)?.startsWith(mine));
    try {
      for (const end = parts.deviceMs() + 2 * TURN_MS; storage && parts.deviceMs() < end; await pause(CLAIM_MS)) {
        const since = Number(storage.getItem(name)?.split(" ")[1]);
        // The clock may have been set back since the other tab's claim.
        if (Math.abs(parts.deviceMs() - since) < TURN_MS) continue;
        storage.setItem(name, `${mine}${parts.deviceMs()}`);
        await pause(CLAIM_MS);
        if (isMine()) break;
      }
    } catch {
      // A storage that refuses is not shared: there are no other tabs.
    }
    try {
      return await act();
    } finally {
      try {
        if (isMine()) storage?.removeItem(name);
      } catch {
        // As above.
      }
    }
  }

  return {
    async inTurn(name, act) {
      const limit = new AbortController();
      const cancel = parts.timer(TURN_MS, () => limit.abort());
      const done = await locked(name, limit.signal, act).finally(cancel);
      if (done === "late") return act();
      return done === "refused" ? claimed(name, act) : done;
    },

    async ifFree<T>(name: string, act: () => Promise<T>) {
      const done = await locked<T | "taken">(name, null, async (lock) => (lock ? act() : "taken"));
      return done === "refused" || done === "late" ? "unknown" : done;
    },

    open(key, hear) {
      let channel: Channel | null = null;
      const unlisten = parts.storageEvents((changed) => changed === key && hear());
      try {
        channel = parts.channel?.(key) ?? null;
        channel?.addEventListener("message", hear);
      } catch {
        // The browser refuses it. Storage events remain.
      }
      return {
        publish: () => channel?.postMessage(""),
        close() {
          unlisten();
          channel?.close();
        },
      };
    },
  };
}
