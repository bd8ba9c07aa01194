// What a place needs from the machine that it runs on. Nothing else in this package touches a clock, a network, a storage or a DOM,
// except the modules that make a platform: browser.ts, native.ts and node.ts.
//
// Invariant: `place.ts`, `kept.ts`, `reply.ts`, `problem.ts`, `pace.ts` and `stream.ts` use only what is passed to them, so tests own the
// time.

/** The part of a `fetch` reply that the client reads. */
export interface Reply {
  readonly ok: boolean;
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  /** Absent where `fetch` cannot stream, as in React Native. */
  readonly body?: { getReader(): Reader } | null;
  text(): Promise<string>;
}

/** Reads a body piece by piece. */
export interface Reader {
  read(): Promise<{ done: boolean; value?: Uint8Array | undefined }>;
  cancel(): Promise<void>;
}

/** What the client asks `fetch` for. */
export interface Request {
  method: "GET" | "POST";
  headers: Record<string, string>;
  body?: string;
  signal: AbortSignal;
  /** The request goes on while the page closes. */
  keepalive?: boolean;
  cache: "no-store";
  /** Weir sends no redirects. Another host must get no token, and the page of a captive portal is no reply. */
  redirect: "manual";
}

/**
 * Keeps texts by key. A method may throw or reject, as where a browser blocks storage, and a call of more than 3 s counts as one that failed.
 * The place then lasts as long as the page.
 */
export interface Storage {
  get(key: string): string | null | Promise<string | null>;
  set(key: string, value: string): void | Promise<void>;
  remove(key: string): void | Promise<void>;
}

/** The other tabs of the same person. They share the storage. */
export interface Tabs {
  /** Runs `act` when no other tab runs one under this name, or has done so for long, and returns its result. */
  inTurn<T>(name: string, act: () => Promise<T>): Promise<T>;
  /**
   * Runs `act` if no other tab runs one under this name now.
   * `"taken"`: another tab does. `"unknown"`: this browser cannot say.
   */
  ifFree<T>(name: string, act: () => Promise<T>): Promise<T | "taken" | "unknown">;
  /** Calls `hear` when another tab publishes that the text under `key` changed. `publish` tells the others. `close` ends both. */
  open(key: string, hear: () => void): { publish(): void; close(): void };
}

/**
 * What happened to the page or the app.
 * - `shown`: the user looks at it again. Timers may be late.
 * - `online`: there may be a network again. `offline`: there is none.
 * - `restored`: a browser shows the page from its memory, as it was when the user left it.
 */
export type Signal = "shown" | "online" | "offline" | "restored";

/** The machine. */
export interface Platform {
  fetch(address: string, request: Request): Promise<Reply>;
  /** A clock that never jumps, in milliseconds. It may stand still while the device sleeps. */
  steadyMs(): number;
  /** The device's clock, in milliseconds since 1970. It may be wrong, and may jump. */
  deviceMs(): number;
  /** A number from 0 to less than 1. */
  random(): number;
  /** A key that nobody can guess. Null where there is none: a `wait` whose reply is lost then takes a second place. */
  key(): string | null;
  /** Calls `run` once after `ms`, at most 2^31 - 1. Returns a function that prevents it. */
  timer(ms: number, run: () => void): () => void;
  storage: Storage | null;
  tabs: Tabs | null;
  /** Whether a reply's body can be read while it arrives, so that streams work. */
  streams: boolean;
  /** Calls `hear` for each signal. Returns a function that ends this. */
  signals(hear: (signal: Signal) => void): () => void;
  /** Sends a text also while the page closes, where `fetch` cannot. The text is sent by `fetch`, too, whose reply can be read. */
  beacon?(address: string, text: string): void;
  /** Tells the developer about a mistake of the setup, once. */
  warn?(server: string): void;
}
