// A machine in virtual time, on which a place runs: clocks, timers, storage, tabs and a server. Nothing waits for real time.
//
// Invariant: the time moves only when nothing is left to do at the present one.

import { httpOf } from "../../conformance/script.mjs";

/// Lets everything run that waits for no timer.
export const settle = async () => {
  for (let i = 0; i < 8; i += 1) await new Promise((done) => setImmediate(done));
};

/// Random numbers from 0 to less than 1, the same for the same seed.
export function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export class World {
  now = 0;
  deviceOffset = 1_700_000_000_000;
  stored = new Map();
  calls = [];
  /// How many keys were made.
  keys = 0;
  #timers = new Set();
  #signals = new Set();
  #locks = new Map();
  #tabs = new Set();
  #server;

  /// `server({ call, body, headers, atMs })` returns a reply as in cases.json, or a stream (see `stream`), or a promise of one.
  constructor(server, { seed = 1 } = {}) {
    this.#server = server;
    this.random = randomOf(seed);
  }

  /// A platform of one tab. `more` replaces parts of it.
  platform(more = {}) {
    return {
      fetch: (address, request) => this.#fetch(address, request),
      steadyMs: () => this.now,
      deviceMs: () => this.now + this.deviceOffset,
      random: this.random,
      key: () => `key-${String(++this.keys).padStart(24, "0")}`,
      timer: (ms, run) => {
        if (!(ms >= 0 && ms < 2 ** 31)) throw new Error(`a timer of ${ms} ms fires at once`);
        const timer = { at: this.now + ms, run };
        this.#timers.add(timer);
        return () => this.#timers.delete(timer);
      },
      storage: {
        get: (key) => this.stored.get(key) ?? null,
        set: (key, value) => void this.stored.set(key, value),
        remove: (key) => void this.stored.delete(key),
      },
      tabs: null,
      streams: false,
      signals: (hear) => {
        this.#signals.add(hear);
        return () => this.#signals.delete(hear);
      },
      ...more,
    };
  }

  /// The other tabs, with turns and news as browsers have them.
  tabs() {
    const take = async (name, act) => {
      let release;
      this.#locks.set(name, new Promise((done) => (release = done)));
      try {
        return await act();
      } finally {
        this.#locks.delete(name);
        release();
      }
    };
    return {
      inTurn: async (name, act) => {
        while (this.#locks.has(name)) await this.#locks.get(name);
        return take(name, act);
      },
      ifFree: async (name, act) => (this.#locks.has(name) ? "taken" : take(name, act)),
      open: (key, hear) => {
        const tab = { key, hear };
        this.#tabs.add(tab);
        return {
          publish: () => {
            for (const other of this.#tabs) if (other !== tab && other.key === key) queueMicrotask(other.hear);
          },
          close: () => this.#tabs.delete(tab),
        };
      },
    };
  }

  signal(name) {
    for (const hear of [...this.#signals]) hear(name);
  }

  /// Runs everything that is due in the next `ms`, in order.
  async run(ms) {
    const end = this.now + ms;
    for (;;) {
      await settle();
      const due = [...this.#timers].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (!due) break;
      this.#timers.delete(due);
      this.now = Math.max(this.now, due.at);
      due.run();
    }
    this.now = end;
  }

  /// Moves the time to the next timer, at most `ms` away, and runs it.
  async next(ms) {
    await settle();
    const at = Math.min(...[...this.#timers].map((timer) => timer.at), this.now + ms);
    await this.run(Math.max(0, at - this.now));
  }

  async #fetch(address, { method, headers, body, signal }) {
    const url = new URL(address);
    const call = url.pathname.replace("/traffic/", "");
    const seen = { call, method, headers, body: body === undefined ? null : JSON.parse(body), atMs: this.now, search: url.search };
    this.calls.push(seen);
    const aborted = new Promise((_, fail) => signal.addEventListener("abort", () => fail(new Error("aborted"))));
    aborted.catch(() => {});
    const answer = await Promise.race([Promise.resolve(this.#server(seen)), aborted]);
    if (answer?.stream) return streamed(answer.stream, aborted);
    const reply = httpOf(answer);
    if (reply === "silent") return aborted;
    if (reply === "lost") throw new TypeError("fetch failed");
    const endless = () => Promise.resolve({ done: false, value: new TextEncoder().encode("x".repeat(16_384)) });
    const broken = () => Promise.reject(new TypeError("terminated"));
    if (typeof reply === "string") return bodied(200, {}, reply === "endless" ? endless : broken);
    const { status } = reply;
    return bodied(status, reply.headers, once(reply.body));
  }
}

function once(text) {
  let isRead = false;
  return () => {
    const step = isRead ? { done: true } : { done: false, value: new TextEncoder().encode(text) };
    isRead = true;
    return Promise.resolve(step);
  };
}

function bodied(status, headers, read) {
  return {
    ok: status >= 200 && status < 300,
    status,
    // `fetch` joins the lines of a header, too.
    headers: new Headers(Object.entries(headers).flatMap(([name, lines]) => [lines].flat().map((line) => [name, line]))),
    body: { getReader: () => ({ read, cancel: () => Promise.resolve() }) },
    text: async () => {
      throw new Error("a body that can be read in pieces is");
    },
  };
}

/// A reply whose body comes as `pieces` says: an async iterable of texts.
function streamed(pieces, aborted) {
  const iterator = pieces[Symbol.asyncIterator]();
  const read = () =>
    Promise.race([aborted, iterator.next().then((piece) => (piece.done ? piece : { ...piece, value: new TextEncoder().encode(piece.value) }))]);
  return bodied(200, { "content-type": "text/event-stream" }, read);
}
