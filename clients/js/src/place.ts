// One place in a line of Weir: takes it, keeps it, and says what happens with it.
//
// The place is in the storage, one for each zone and server, so that reloads and other tabs share it. A tab follows it by a stream if the
// platform can, and polls otherwise. The tabs of one person ask like one: the news of each puts off the polls of the others. A tab that
// hears nothing asks for itself.
//
// Invariants: only the server ends a place. At most one loop asks for a place at a time. The told wait grows only together with a reason.
// The device's clock decides only how old stored figures are, and to ask sooner.

import { inTime, keptOf, type Kept } from "./kept.js";
import { isKey } from "./key.js";
import { REOPEN_MS, SLOWEST_MS, reopenWithin, untilOwnPoll, untilPoll, untilReopen, untilRetry } from "./pace.js";
import type { Platform, Reply, Request, Signal, Storage } from "./platform.js";
import { Problem, problemOf, problemOfReply, type Trouble } from "./problem.js";
import { Unreadable, answerOf, idOf, jsonOf, textOf, waitingOf, type Answer, type Reason, type Stock, type Waiting } from "./reply.js";
import { events } from "./stream.js";

/** A stream sends data every 5 s. After this much silence it is treated as broken. */
const SILENT_MS = 12_000;
/**
 * A stream tells something in each polling period. If that is late by this much, the place polls. The poll comes in time for it: a place lasts
 * for 10 s and for three periods at least.
 */
const LATE_MS = 5_000;
/** The pause after streams that were refused, delivered nothing, or did not last. Proxies do that, and it does not change soon. */
const NO_STREAM_MS = 60_000;
/** A stream that ends sooner, or within its own polling period, did not last: it costs more than polls. */
const LASTING_MS = 10_000;
/** The most streams of all tabs and zones to one Weir. By HTTP/1.1 a browser has six connections to a host, and polls need some, too. */
const MOST_STREAMS = 3;
/** After this many streams in a row that did not last, the place polls for a while. */
const MOST_SHORT = 3;
/**
 * No zone keeps a place longer than this without a poll. If the server says that an older place is gone, it belonged to an earlier visit,
 * and a new one is taken without asking.
 */
const OLD_MS = 3_600_000;

/** How often the end of a place is told at most, where it is not known whether Weir has heard of it. */
const MOST_LEAVES = 6;
/** A pause before the next time that is longer is not worth it: the place or visit ends by itself. In Node it would keep the process. */
const LONGEST_LEAVE_PAUSE_MS = 60_000;

/** What each request says of caches and redirects. */
const ALWAYS = { cache: "no-store", redirect: "manual" } as const;

/** The call that ends a place or visit. It may be the last one of a page. */
const LEAVE = "traffic/leave";

/** The key of a place that is being taken is stored under the place's name and this. */
const KEY = " key";

/** For how long a later start uses that key again. The server remembers keys for two minutes. */
const KEY_MS = 100_000;

/** A key may be from this far in the future: the device's clock was put right meanwhile. */
const KEY_AHEAD_MS = 10_000;

/** The expected wait from now, in seconds. The real wait is within the range in nine of ten cases. */
export interface Eta {
  readonly low: number;
  readonly seconds: number;
  readonly high: number;
}

/** Where the user stands. */
export type State =
  /** The user has no place yet. */
  | { readonly kind: "joining"; readonly trouble: Trouble | null }
  | {
      readonly kind: "waiting";
      /** From 1. */
      readonly rank: number;
      /** `null`: nobody knows, because the zone lets nobody in. */
      readonly eta: Eta | null;
      /** From 0 to 1. It never falls, but for a draw: it is 0 until the order is drawn. */
      readonly progress: number;
      /** Why the wait is unknown or longer than before. `unsure`: only the end of the range became later. */
      readonly reason: Reason | "unsure" | null;
      /** The store does not answer, or answers late. The figures are the last known ones. */
      readonly stale: boolean;
      /** How long it is until the zone opens, in milliseconds from now; 0 if it is open. */
      readonly opensInMs: number;
      /** What is left, where the operators tell it. */
      readonly stock: Stock | null;
      /** Everything may be sold out before it is the user's turn. */
      readonly beyondStock: boolean;
      /** The last call failed. The place is kept, and the client asks again. */
      readonly trouble: Trouble | null;
    }
  | {
      readonly kind: "entered";
      /** The proof for your service. */
      readonly pass: string;
      /** This browser or app received the pass before. It may be used up: let the user decide between it and a new place. */
      readonly again: boolean;
      readonly trouble: null;
    }
  /** The place is lost, or something must change: `trouble.action` says which. */
  | { readonly kind: "ended"; readonly trouble: Trouble }
  /** The user gave up the place, or ended the visit. */
  | { readonly kind: "left"; readonly trouble: null };

/** Why `entry()` came to nothing. */
export class NoEntry extends Error {
  /** The state without a way on, or `null` after `stop()`. */
  readonly state: State | null;

  constructor(state: State | null) {
    super(state?.kind === "ended" ? `${state.trouble.code}: ${state.trouble.detail || state.trouble.title}` : (state?.kind ?? "stopped"));
    this.name = "NoEntry";
    this.state = state;
  }
}

/** One loop that asks for a place. */
class Run {
  readonly #life = new AbortController();
  /** What its end means for a place that a late reply brings: it is given up, or kept for the next start. */
  lateReply: "give up" | "keep" | null = null;
  /** The key of a `wait` that was sent, and whose reply is not known: there may be a place that only the key finds. */
  lostKey: string | null = null;

  get signal(): AbortSignal {
    return this.#life.signal;
  }

  get isOver(): boolean {
    return this.#life.signal.aborted;
  }

  end(lateReply: Run["lateReply"] = null): void {
    this.lateReply ??= lateReply;
    this.#life.abort();
  }
}

/** One person's place in one zone. */
export class Place {
  readonly #platform: Platform;
  readonly #server: string;
  readonly #zone: string;
  readonly #key: string;
  readonly #storage: Storage | null;
  readonly #listeners = new Set<(state: State) => void>();
  /** Those who wait for the entry. `stop()` tells them `null`. */
  readonly #waiters = new Set<(state: null) => void>();
  #state: State = { kind: "joining", trouble: null };
  #kept: Kept | null = null;
  /** The text in the storage that was read or written last. It is not read again. */
  #stored: string | null = null;
  /** The key of the place that is being taken. It is in the storage, too: the reply may be lost with the page. */
  #joinKey: string | null = null;
  /** Whether that key was sent before: the place that it has may have ended before anybody saw it. */
  #isKeySent = false;
  /** The key of such a place. It is not sent again, also if the storage does not let it go. */
  #goneKey: string | null = null;
  /** When the wait in `#kept` was told, by the steady clock. */
  #toldAt = 0;
  /** Whether the place in the storage is from long ago, by the device's clock. */
  #isOld = false;
  /** The user asked for a new place, and this tab has none yet. A place of another tab that is lost is then replaced without asking. */
  #wantsNew = false;
  /** The storage refused something, so what it has may be from long ago: it is not read any more. */
  #isStorageLost = false;
  /** The running loop, or the last one. */
  #run = new Run();
  /** What is being written to the storage. */
  #writing: Promise<void> | null = null;
  readonly #tab: { publish(): void; close(): void } | null;
  #isStopped = false;
  #failures = 0;
  #isOffline = false;
  #noStreamUntil = -Infinity;
  /** How many of the last streams in a row did not last. */
  #shortStreams = 0;
  #stream: { abort(): void; silence(): number } | null = null;
  #pausing: { putOff(ms: number): void; wake(atOnce: boolean): void } | null = null;
  /** Ends the hold of the first tab that entered. */
  #release: (() => void) | null = null;
  #hasWarned = false;
  readonly #unlisten: () => void;

  /** Takes or resumes the place of this person in `zone`. `server` ends with a slash. The first request is sent after the caller's task. */
  constructor(platform: Platform, server: string, zone: string) {
    [this.#platform, this.#server, this.#zone, this.#key] = [platform, server, zone, `weir ${server} ${zone}`];
    this.#storage = platform.storage && inTime(platform.storage, platform.timer);
    this.#unlisten = platform.signals((signal) => this.#hear(signal));
    this.#tab = platform.tabs?.open(this.#key, () => void this.#hearOtherTab()) ?? null;
    const run = this.#run;
    // A component that is mounted and unmounted at once takes no place.
    queueMicrotask(() => void this.#loop(run));
  }

  /** Where the user stands now. The same object until something changes. */
  get state(): State {
    return this.#state;
  }

  /** Calls `listener` with each new state. Returns a function that ends this. */
  subscribe(listener: (state: State) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Waits for the entry. Rejects with `NoEntry` when there is no way on: the place ended or was left, or `stop()` was called. */
  entry(): Promise<{ pass: string; again: boolean }> {
    return new Promise((done, fail) => {
      const judge = (state: State | null) => {
        if (state?.kind === "joining" || state?.kind === "waiting") return;
        unsubscribe();
        this.#waiters.delete(judge);
        if (state?.kind === "entered") done({ pass: state.pass, again: state.again });
        else fail(new NoEntry(state));
      };
      const unsubscribe = this.subscribe(judge);
      this.#waiters.add(judge);
      judge(this.#isStopped ? null : this.#state);
    });
  }

  /** Takes a new place at the end of the line. It works after `entered`, `ended` and `left`; otherwise nothing happens. */
  anew(): void {
    if (this.#isStopped || this.#state.kind === "joining" || this.#state.kind === "waiting") return;
    this.#end();
    this.#forget();
    this.#wantsNew = true;
    this.#failures = 0;
    this.#show({ kind: "joining", trouble: null });
    this.#begin();
  }

  /** Gives up the place, or tells Weir after the entry that the user is done. It works while a page closes. */
  leave(): void {
    if (this.#isStopped) return;
    const token = this.#kept?.token;
    const isShared = this.#state.kind === "joining" || this.#state.kind === "waiting";
    this.#end("give up");
    // A place that ended or entered is this tab's own. Another tab may have taken a new one.
    if (!isShared) this.#forget();
    else if (token) this.#keep(null);
    else this.#giveUpStored();
    if (token) {
      this.#run.lostKey = null;
      this.#giveUp(token);
    }
    this.#show({ kind: "left", trouble: null });
  }

  /**
   * The receipt of this place in the draw of `event`: the text of a JSON file, as docs/app/draw.md describes it. Before and after the entry.
   * Rejects with `Problem`: `no_draw` if the order is not drawn yet or the place is not on the list, `no_place` without a place.
   */
  async receipt(event: string): Promise<string> {
    await this.#load();
    const token = this.#kept?.token;
    if (!token) throw new Problem("no_place");
    const path = `draws/${encodeURIComponent(this.#zone)}/${encodeURIComponent(event)}/receipt`;
    return this.#post(path, { token }, null, async (reply) => {
      if (!reply.ok) throw await problemOfReply(reply);
      return textOf(reply);
    });
  }

  /** Asks no more and says no more. The place stays for the zone's `idle_timeout_s`, and a later start finds it in the storage. */
  stop(): void {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#end("keep");
    this.#unlisten();
    this.#tab?.close();
    this.#listeners.clear();
    for (const waiter of this.#waiters) waiter(null);
  }

  #begin(): void {
    this.#run = new Run();
    void this.#loop(this.#run);
  }

  #end(lateReply: Run["lateReply"] = null): void {
    this.#run.end(lateReply);
    this.#release?.();
    this.#pausing?.wake(true);
  }

  #show(state: State): void {
    if (this.#isStopped) return;
    this.#state = state;
    for (const listener of [...this.#listeners]) {
      try {
        listener(state);
      } catch (fault) {
        // A mistake of the app is reported as one, and the place goes on.
        queueMicrotask(() => {
          throw fault;
        });
      }
    }
  }

  async #loop(run: Run): Promise<void> {
    while (!run.isOver) {
      let pauseMs: number;
      try {
        pauseMs = await this.#step(run);
        if (!run.isOver) this.#recovered();
      } catch (fault) {
        if (run.isOver) break;
        pauseMs = this.#fail(fault);
      }
      if (!run.isOver) await this.#pause(pauseMs);
    }
    if (run.lateReply === "give up" && run.lostKey) void this.#tellEnd(null, run.lostKey);
  }

  /** Polls once, or follows a stream to its end. Returns the time until the next step, in milliseconds. */
  async #step(run: Run): Promise<number> {
    await this.#load();
    if (run.isOver) return 0;
    if (this.#kept) {
      const streamed = this.#mayStream() ? await this.#followAlone(run, this.#kept.token) : "taken";
      if (run.isOver) return 0;
      if (typeof streamed === "number") return streamed;
      return this.#take(run, await this.#ask(run, "entry"));
    }
    // Two tabs that are opened together take one place together.
    const join = async () => {
      await this.#load();
      if (this.#kept || run.isOver) return 0;
      const answer = await this.#ask(run, "wait");
      // If this tab stood still for long, another one has taken the place, and may have gone on with it.
      if (!run.isOver && this.#platform.tabs) await this.#load();
      return this.#kept && !run.isOver ? 0 : this.#take(run, answer);
    };
    const pauseMs = await (this.#platform.tabs?.inTurn(`${this.#key} join`, join) ?? join());
    return this.#mayStream() ? 0 : pauseMs;
  }

  async #ask(run: Run, call: "wait" | "entry"): Promise<Answer> {
    const token = this.#kept?.token;
    const key = call === "wait" ? await this.#keyOfJoin(run) : null;
    // The user left meanwhile.
    if (run.isOver) throw new Problem("offline");
    // Whoever ends a first `wait` loses its reply, and with it a place. So it goes on, and `#take` keeps or gives up what it brings.
    const life = call === "wait" ? null : run.signal;
    run.lostKey = key;
    try {
      const answer = await this.#post(`traffic/${call}`, { token, ...(key && { idempotencyKey: key }) }, life, answerIn);
      run.lostKey = null;
      return answer;
    } catch (fault) {
      // Weir refused it.
      if (fault instanceof Problem && fault.code !== "offline" && fault.code !== "away") run.lostKey = null;
      throw fault;
    }
  }

  /** The key of this `wait`, which is the same until the place is known. */
  async #keyOfJoin(run: Run): Promise<string | null> {
    if (this.#joinKey) return this.#joinKey;
    const now = this.#platform.deviceMs();
    let key: string | null = null;
    this.#isKeySent = false;
    try {
      key = this.#platform.key();
      const [kept, at] = ((await this.#storage?.get(this.#key + KEY)) ?? "").split(" ");
      const ageMs = now - Number(at);
      const isRecent = ageMs >= -KEY_AHEAD_MS && ageMs < KEY_MS;
      if (kept && isKey(kept) && kept !== this.#goneKey && isRecent) [key, this.#isKeySent] = [kept, true];
      else if (key) await this.#storage?.set(this.#key + KEY, `${key} ${now}`);
    } catch {
      // Without storage, the key lasts as long as the page. Without good randomness, there is none.
    }
    if (!run.isOver) this.#joinKey = key;
    return key;
  }

  /** Makes a call and reads its reply. It fails when it takes too long, or when `life` ends, also where `fetch` ignores its signal. */
  #post<T>(path: string, fields: object, life: AbortSignal | null, read: (reply: Reply) => Promise<T>): Promise<T> {
    const limit = new AbortController();
    const isLast = path === LEAVE;
    // A text needs no permission of another origin first, for which a page that closes has no time.
    const headers = { "content-type": isLast ? "text/plain" : "application/json" };
    const body = JSON.stringify({ zoneId: this.#zone, ...fields });
    const request: Request = { method: "POST", headers, body, signal: limit.signal, keepalive: isLast, ...ALWAYS };
    return new Promise<T>((done, fail) => {
      const abort = () => {
        limit.abort();
        fail(new Problem("offline"));
      };
      const cancel = this.#platform.timer(SLOWEST_MS, abort);
      life?.addEventListener("abort", abort);
      const reply = this.#platform.fetch(`${this.#server}${path}`, request);
      reply.then(read).then(done, fail).finally(() => {
        cancel();
        life?.removeEventListener("abort", abort);
      });
    });
  }

  /** Takes an answer over. Returns the time until the next poll, in milliseconds. */
  async #take(run: Run, answer: Answer): Promise<number> {
    if (run.isOver) {
      // This is the late reply to a first `wait`.
      if (run.lateReply === "give up") this.#giveUp(answer.token);
      if (run.lateReply === "keep") this.#keep({ token: answer.token, heard: this.#platform.deviceMs() });
      return 0;
    }
    if (answer.canEnter) return this.#enter(run, answer.token, answer.pass);
    this.#keepWaiting(answer.waiting, answer.token);
    this.#showWaiting(null, 0);
    return untilPoll(answer.waiting.periodMs, this.#platform.random());
  }

  #keepWaiting({ rank, eta: told, reason: why, stale, periodMs, opensInMs, stock, beyondStock }: Waiting, token: string): void {
    const { first: earlierFirst = 0, progress: earlierProgress = 0 } = this.#kept ?? {};
    // Before a draw nobody has a rank: it says how many wait.
    const isUndrawn = why === "draw";
    const first = isUndrawn ? 0 : Math.max(earlierFirst, rank);
    let reason: Kept["reason"] = why;
    let eta: [number, number, number] | null = told ? [...told] : null;
    // Each range is a new estimate. If its end moves back by more than the server's own tolerance for the told wait, 2 s and a tenth, that
    // is a reason. Less is not shown.
    const shown = this.#etaNow();
    if (eta && shown && !reason) {
      if (eta[2] > shown[2] + 2 + eta[2] / 10) {
        reason = "unsure";
      } else {
        eta[1] = Math.min(eta[1], shown[1]);
        eta[2] = Math.max(eta[1], Math.min(eta[2], shown[2]));
        eta[0] = Math.min(eta[0], eta[1]);
      }
    }
    const progress = isUndrawn ? 0 : Math.max(earlierProgress, 1 - rank / (first + 1));
    this.#toldAt = this.#platform.steadyMs();
    const figures = { first, progress, eta, rank, reason, stale, opens_ms: opensInMs, period_ms: periodMs, stock, beyond_stock: beyondStock };
    this.#keep({ token, heard: this.#platform.deviceMs(), ...figures });
  }

  #sinceToldMs(): number {
    return this.#platform.steadyMs() - this.#toldAt;
  }

  /** The wait that was told, from now: its shortest, expected and longest seconds. */
  #etaNow(sinceToldMs = this.#sinceToldMs()): [number, number, number] | null {
    const left = (seconds: number) => seconds - sinceToldMs / 1_000;
    const eta = this.#kept?.eta;
    return eta ? [left(eta[0]), left(eta[1]), left(eta[2])] : null;
  }

  /** What was told just now is shown as it was told, so its caller says that no time has passed. */
  #showWaiting(trouble: Trouble | null = null, sinceToldMs = this.#sinceToldMs()): void {
    const kept = this.#kept;
    if (kept?.rank === undefined) return this.#show({ kind: "joining", trouble });
    const [low = 0, seconds = 0, high = 0] = (this.#etaNow(sinceToldMs) ?? []).map((s) => Math.max(0, Math.round(s)));
    this.#show({
      kind: "waiting",
      rank: kept.rank,
      eta: kept.eta ? { low, seconds, high } : null,
      progress: kept.progress ?? 0,
      reason: kept.reason ?? null,
      stale: kept.stale ?? false,
      opensInMs: Math.max(0, Math.round((kept.opens_ms ?? 0) - sinceToldMs)),
      stock: kept.stock ?? null,
      beyondStock: kept.beyond_stock ?? false,
      trouble,
    });
  }

  async #enter(run: Run, token: string, pass: string): Promise<number> {
    await this.#load();
    const again = Boolean(this.#kept?.entered) || !(await this.#isFirst(pass));
    if (run.isOver) return 0;
    run.end();
    this.#keep({ token, heard: this.#platform.deviceMs(), entered: true });
    this.#show({ kind: "entered", pass, again, trouble: null });
    return 0;
  }

  /**
   * Whether this is the first of the tabs that receive this pass at the same moment. The first one holds its turn for as long as it is
   * open. A later tab finds the entry in the storage.
   */
  #isFirst(pass: string): Promise<boolean> {
    const { tabs } = this.#platform;
    if (!tabs) return Promise.resolve(true);
    return new Promise((done) => {
      const hold = () => {
        done(true);
        return new Promise<void>((release) => (this.#release = release));
      };
      tabs.ifFree(`${this.#key} in ${idOf(pass)}`, hold).then((turn) => done(turn !== "taken"), () => done(true));
    });
  }

  #mayStream(): boolean {
    return this.#platform.streams && this.#failures === 0 && this.#platform.steadyMs() >= this.#noStreamUntil;
  }

  /** Follows a stream if no other tab does, and few are open. Returns the time until the next step, or why there was no stream. */
  async #followAlone(run: Run, token: string): Promise<number | "taken" | "unknown"> {
    const follow = () => this.#follow(run, token);
    const { tabs } = this.#platform;
    if (!tabs) return follow();
    return tabs.ifFree(this.#key, async () => {
      for (let slot = 1; slot <= MOST_STREAMS; slot += 1) {
        const followed = await tabs.ifFree(`weir ${this.#server} stream ${slot}`, follow);
        if (followed !== "taken") return followed;
      }
      return "taken";
    });
  }

  /** Follows a stream to its end. Not by `EventSource`, so the token is in a header and not in an address. */
  async #follow(run: Run, token: string): Promise<number> {
    const stream = new AbortController();
    const abort = () => stream.abort();
    run.signal.addEventListener("abort", abort);
    let silence = this.#stopwatch();
    let cancel = () => {};
    const alive = () => {
      silence = this.#stopwatch();
      cancel();
      cancel = this.#platform.timer(SILENT_MS, abort);
    };
    this.#stream = { abort, silence: () => silence() };
    // The period of the last event, or 0 if there was none in time.
    let [reopenMs, periodMs] = [REOPEN_MS, 0];
    let cancelNews = () => {};
    // A proxy may keep a stream alive whose server is gone. Only an event says that the user counts as present.
    const expectNews = (withinMs: number) => {
      cancelNews();
      cancelNews = this.#platform.timer(withinMs + LATE_MS, () => {
        periodMs = 0;
        abort();
      });
    };
    const lasted = this.#stopwatch();
    try {
      alive();
      expectNews(this.#kept?.period_ms ?? 0);
      const headers = { accept: "text/event-stream", "last-event-id": token };
      const address = `${this.#server}traffic/stream?zone=${encodeURIComponent(this.#zone)}`;
      const reply = await this.#platform.fetch(address, { method: "GET", headers, signal: stream.signal, ...ALWAYS });
      if (!reply.ok) {
        // It says nothing about the place: a proxy may refuse only streams, or change what they ask for. A poll keeps the place, and tells.
        this.#noStreamUntil = this.#platform.steadyMs() + NO_STREAM_MS;
        return 0;
      }
      const reader = reply.body?.getReader();
      for await (const { id, event, data, retry } of reader ? events(reader, alive) : []) {
        if (run.isOver) return 0;
        if (retry) reopenMs = reopenWithin(retry);
        if (event === "wait") {
          const told = waitingOf(JSON.parse(data ?? ""));
          this.#keepWaiting(told, id || this.#kept?.token || token);
          this.#showWaiting(null, 0);
          [periodMs, this.#failures] = [told.periodMs, 0];
          expectNews(periodMs);
        } else if (event === "enter") {
          const answer = answerOf(JSON.parse(data ?? ""));
          if (!answer.canEnter) break;
          return await this.#take(run, answer);
        } else if (event === "problem") {
          const document = JSON.parse(data ?? "") as { status?: unknown };
          throw problemOf(document, typeof document?.status === "number" ? document.status : 0);
        }
      }
    } catch (fault) {
      if (fault instanceof Problem) throw fault;
    } finally {
      cancel();
      cancelNews();
      stream.abort();
      run.signal.removeEventListener("abort", abort);
      this.#stream = null;
    }
    this.#shortStreams = lasted() < Math.max(LASTING_MS, periodMs) ? this.#shortStreams + 1 : 0;
    if (periodMs && this.#shortStreams < MOST_SHORT) return untilReopen(reopenMs, this.#shortStreams, this.#platform.random());
    // Poll for a while, after a stream without events at once: a poll reports what is wrong.
    this.#noStreamUntil = this.#platform.steadyMs() + NO_STREAM_MS;
    return periodMs && untilPoll(periodMs, this.#platform.random());
  }

  #recovered(): void {
    [this.#failures, this.#isOffline] = [0, false];
  }

  /** Reports a failure. Returns the time until the next try, in milliseconds. */
  #fail(fault: unknown): number {
    const problem = fault instanceof Problem ? fault : new Problem(fault instanceof Unreadable ? "away" : "offline");
    // A user who entered, or waited long ago, and comes back starts again. If the new place is refused, too, the user decides.
    if (problem.action === "new place" && this.#kept && (this.#kept.entered || this.#isOld || this.#wantsNew)) {
      this.#keep(null);
      return 0;
    }
    // The reply to the first `wait` was lost, and the place ended before the user saw it. The new one has another key.
    if (problem.action === "new place" && !this.#kept && this.#joinKey && this.#isKeySent) {
      this.#goneKey = this.#joinKey;
      this.#write(() => {});
      return 0;
    }
    const { code, title, detail, action, page } = problem;
    const trouble = (retryMs: number): Trouble => ({ code, title, detail, action, retryMs, page });
    if (action !== "retry") {
      this.#end();
      // No place was taken, so the next start asks with another key.
      if (!this.#kept) this.#write(() => {});
      this.#show({ kind: "ended", trouble: trouble(0) });
      return 0;
    }
    const retryMs = untilRetry(problem, this.#failures, () => this.#platform.random());
    this.#failures += 1;
    this.#isKeySent = true;
    this.#isOffline = code === "offline";
    if (this.#isOffline) {
      // The network was the cause, not the stream.
      this.#noStreamUntil = -Infinity;
      if (!this.#hasWarned) this.#platform.warn?.(this.#server);
      this.#hasWarned = true;
    }
    const told = trouble(Math.ceil(retryMs));
    if (this.#kept && !this.#kept.entered) this.#showWaiting(told);
    else this.#show({ kind: "joining", trouble: told });
    return retryMs;
  }

  /**
   * Starts to measure how long something takes, in milliseconds. The steady clock may stand still while the device sleeps, so the device's
   * own clock counts if it shows more.
   */
  #stopwatch(): () => number {
    const [steady, device] = [this.#platform.steadyMs(), this.#platform.deviceMs()];
    return () => Math.max(this.#platform.steadyMs() - steady, this.#platform.deviceMs() - device);
  }

  async #pause(pauseMs: number): Promise<void> {
    await new Promise<void>((done) => {
      let [ms, elapsed, cancel] = [0, this.#stopwatch(), () => {}];
      const putOff = (moreMs: number) => {
        cancel();
        [ms, elapsed] = [moreMs, this.#stopwatch()];
        cancel = this.#platform.timer(ms, done);
      };
      // Timers of hidden or sleeping pages fire late. When the user looks again, a due timer fires at once.
      const wake = (atOnce: boolean) => {
        if (!atOnce && elapsed() < ms) return;
        cancel();
        done();
      };
      this.#pausing = { putOff, wake };
      putOff(pauseMs);
    });
    this.#pausing = null;
  }

  #hear(signal: Signal): void {
    if (signal === "offline") return this.#stream?.abort();
    // The user entered, and came back to this page in the browser's memory: by now the pass may be used up, or expired.
    if (signal === "restored" && this.#state.kind === "entered") {
      this.#end();
      return this.#begin();
    }
    if (this.#stream && this.#stream.silence() > SILENT_MS / 2) this.#stream.abort();
    this.#pausing?.wake(signal === "online" && this.#isOffline);
  }

  /** Takes over what the storage has, if this tab does not know it yet. Returns whether it did. */
  async #load(): Promise<boolean> {
    try {
      await this.#writing;
      if (this.#isStorageLost) return false;
      const stored = (await this.#storage?.get(this.#key)) ?? null;
      if (stored === null || stored === this.#stored) return false;
      const kept = keptOf(stored);
      if (!kept) return false;
      // Before a reload, only the device's clock measured time. If it was set back meanwhile, the told times do not count any more.
      const ageMs = this.#kept ? 0 : this.#platform.deviceMs() - kept.heard;
      this.#isOld = !(ageMs < OLD_MS);
      this.#toldAt = this.#platform.steadyMs() - Math.max(0, ageMs);
      if (ageMs < 0 || this.#isOld) kept.eta = null;
      if (ageMs < 0) kept.opens_ms = 0;
      [this.#kept, this.#stored] = [kept, stored];
      return true;
    } catch {
      // Without storage, the place lasts as long as the page.
      return false;
    }
  }

  #keep(kept: Kept | null): void {
    [this.#kept, this.#isOld] = [kept, false];
    if (kept) this.#wantsNew = false;
    const text = kept && JSON.stringify(kept);
    // The text of a place that is over stays known: a storage that does not remove it brings the place back to nobody.
    if (text) this.#stored = text;
    this.#write(async (storage) => {
      if (text === null) return storage.remove(this.#key);
      try {
        await storage.set(this.#key, text);
      } catch (fault) {
        // There is no room. An older text would say of an entered place that its pass is new.
        if (kept?.entered) await storage.remove(this.#key);
        throw fault;
      }
    });
  }

  /** Forgets a place that is over. One that another tab has taken since stays in the storage, and this tab finds it there. */
  #forget(): void {
    const own = this.#stored;
    [this.#kept, this.#isOld] = [null, false];
    this.#write(async (storage) => {
      const stored = await storage.get(this.#key);
      const kept = stored === own ? null : keptOf(stored ?? "");
      // Each tab writes the entry into a place by itself: it is the same one.
      if (!kept || kept.entered) await storage.remove(this.#key);
    });
  }

  /** Gives up the place in the storage, which this tab has not read yet. */
  #giveUpStored(): void {
    this.#write(async (storage) => {
      const kept = this.#isStorageLost ? null : keptOf((await storage.get(this.#key)) ?? "");
      if (kept) this.#giveUp(kept.token);
      await storage.remove(this.#key);
    });
  }

  /** Writes to the storage what `put` writes, and that no place is being taken. */
  #write(put: (storage: Storage) => void | Promise<void>): void {
    const storage = this.#storage;
    const key = this.#joinKey;
    this.#joinKey = null;
    if (!storage) return;
    const all = async () => {
      try {
        await put(storage);
      } finally {
        // Also where there is no room for the place: with the key, each start would get its pass as a new one.
        if (key) await storage.remove(this.#key + KEY);
      }
      this.#tab?.publish();
    };
    // At once if nothing is being written, because the page may be closing. A storage that refuses is not asked again.
    const writing = (this.#writing ? this.#writing.then(all) : all()).catch(() => void (this.#isStorageLost = true)).then(() => {
      if (this.#writing === writing) this.#writing = null;
    });
    this.#writing = writing;
  }

  /** Another tab stored something. This tab shows it, and asks the server only if no more comes. */
  async #hearOtherTab(): Promise<void> {
    if (this.#run.isOver || !(await this.#load()) || !this.#kept) return;
    if (this.#kept.entered) return this.#pausing?.wake(true);
    const { rank, period_ms } = this.#kept;
    if (!rank || !period_ms || !this.#pausing) return;
    this.#recovered();
    this.#pausing.putOff(untilOwnPoll(period_ms, this.#platform.random()));
    this.#showWaiting();
  }

  /** Tells Weir that the place or visit is over, until it has heard it: a few times, and also after `stop()`. */
  #giveUp(token: string): void {
    const text = JSON.stringify({ zoneId: this.#zone, token });
    try {
      this.#platform.beacon?.(`${this.#server}${LEAVE}`, text);
    } catch {
      // Some browsers can be told to have none. The call does it as well, unless the page closes.
    }
    void this.#tellEnd(token);
  }

  /** Tells the end of the place of this token, or of the place that a `wait` with this key took. */
  async #tellEnd(token: string | null, key?: string): Promise<void> {
    for (let failures = 0; ; failures += 1) {
      try {
        token ??= (await this.#post("traffic/wait", { idempotencyKey: key }, null, answerIn)).token;
        return await this.#post(LEAVE, { token }, null, async (reply) => {
          if (reply.status !== 204) throw await problemOfReply(reply);
        });
      } catch (fault) {
        const problem = fault instanceof Problem ? fault : new Problem("offline");
        const pauseMs = untilRetry(problem, failures, () => this.#platform.random());
        // If Weir never hears it, the place is free after the zone's idle time. Any other refusal would come again.
        if (problem.action !== "retry" || failures + 1 >= MOST_LEAVES || pauseMs > LONGEST_LEAVE_PAUSE_MS) return;
        await new Promise<void>((done) => void this.#platform.timer(pauseMs, done));
      }
    }
  }
}

async function answerIn(reply: Reply): Promise<Answer> {
  if (!reply.ok) throw await problemOfReply(reply);
  return answerOf(await jsonOf(reply));
}

/** Begins a place. Throws a `TypeError` if `zone` is empty or `server` is not a plain address of http or https. */
export function begin(server: string, zone: string, platform: () => Platform): Place {
  if (typeof zone !== "string" || zone === "") throw new TypeError("wait: zone must be a zone's id");
  let address = "";
  try {
    // Only `href`: the other fields of React Native's URL throw up to 0.79.
    address = new URL(server.endsWith("/") ? server : `${server}/`, globalThis.location?.href).href;
  } catch {
    // Reported below.
  }
  if (/^https?:\/\/[^/?#@]+\/[^?#]*$/.test(address)) return new Place(platform(), address, zone);
  throw new TypeError(`wait: server must be an address like https://weir.example, not "${server}"`);
}
