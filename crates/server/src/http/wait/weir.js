// weir.js: keeps a place in a line of Weir for web pages. docs/app/waiting-page.md describes its interface.
//
// The place is in localStorage, one for each zone and server, so that reloads and other tabs share it. One tab at a time follows it
// by a stream, because browsers open few connections to a host, and the other tabs show what it stores. A tab that hears nothing
// polls, and so do all if streams fail. Where the browser refuses storage or locks, the place lasts as long as the page, and the
// page polls. The told wait grows only together with a reason.
//
// The device's clock may be wrong and may jump. It never decides what is shown, and only the server ends a place.
"use strict";
(() => {
  const HOME = new URL(".", document.currentScript?.src ?? location.href).href;
  // A stream sends data every 5 s. After this much silence it is treated as broken.
  const SILENT_MS = 12_000;
  // The pause after a stream that delivered nothing. A proxy may buffer streams, and that does not change soon.
  const NO_STREAM_MS = 60_000;
  const SLOWEST_MS = 15_000;
  // No zone keeps a place longer than this without a poll. If the server says that an older place is gone, it belonged to an earlier
  // visit, and a new one is taken without asking.
  const OLD_MS = 3_600_000;
  const LONGEST = 65_536;

  /// A clock that never jumps, in milliseconds.
  const now = () => performance.now();

  /// Starts to measure how long something takes, in milliseconds. The steady clock may stand still while the device sleeps, so the
  /// device's own clock counts if it shows more. Only for deciding when to ask again: an early question does no harm.
  function stopwatch() {
    const [steady, device] = [now(), Date.now()];
    return () => Math.max(now() - steady, Date.now() - device);
  }

  class Problem extends Error {
    constructor(code, { status = 0, title = code, detail = "", retry_ms = 0 } = {}) {
      super(detail || title);
      Object.assign(this, { code, title, detail, retry_ms });
      // Whether another request would be refused as well.
      this.final = status >= 400 && status < 500 && status !== 408 && status !== 429;
    }

    static async of(response) {
      const retry_ms = 1_000 * Number(response.headers.get("retry-after") ?? 0) || 0;
      const { status } = response;
      const said = await response.json().catch(() => ({}));
      // A reply without a code does not come from Weir. A proxy in between has a problem.
      return typeof said.code === "string" ? new Problem(said.code, { ...said, status, retry_ms }) : new Problem("away", { retry_ms });
    }
  }

  class Place extends EventTarget {
    #server;
    #zone;
    #key;
    #kept = null;
    // The text in the storage that #kept was read from or written as.
    #stored = null;
    // When the wait in #kept was told, by now().
    #told_at = 0;
    // Whether the place in the storage is from long ago, by the device's clock.
    #is_old = false;
    #over = false;
    #failures = 0;
    // Whether the browser grants locks: not without HTTPS, with blocked cookies, or in a sandboxed frame.
    #has_locks = true;
    #no_stream_until = 0;
    #silence = stopwatch();
    #stream = null;
    #call = null;
    #wake = null;
    #put_off = null;
    #release = null;
    #eager = false;
    #has_warned = false;
    #life = new AbortController();

    constructor({ zone, server = HOME }) {
      super();
      if (typeof zone !== "string" || !zone) throw new TypeError("Weir.wait: zone must be a zone's id");
      this.#zone = zone;
      this.#server = new URL(server.endsWith("/") ? server : `${server}/`, location.href).href;
      this.#key = `weir ${this.#server} ${zone}`;
      const { signal } = this.#life;
      const look = () => document.visibilityState === "visible" && this.#look();
      document.addEventListener("visibilitychange", look, { signal });
      document.addEventListener("resume", look, { signal });
      addEventListener("pageshow", (e) => (e.persisted && this.#over ? this.#back() : look()), { signal });
      addEventListener("online", () => this.#look(true), { signal });
      addEventListener("offline", () => this.#stream?.abort(), { signal });
      addEventListener("storage", (e) => e.key === this.#key && this.#news_of_other_tab(), { signal });
      // The caller adds listeners first.
      queueMicrotask(() => this.#run());
    }

    /// Stops polling. The place stays until the zone evicts silent tickets.
    stop() {
      this.#life.abort();
      this.#end();
    }

    /// The user entered, and came back to this page in the browser's memory: by now the pass may be used up, or expired.
    #back() {
      if (!this.#kept?.entered) return;
      this.#over = false;
      this.#run();
    }

    #end() {
      this.#over = true;
      this.#stream?.abort();
      this.#call?.abort();
      this.#release?.();
      this.#wake?.(true);
    }

    /// Takes a new place at the end of the line. For use after `entered` or a final `problem`.
    anew() {
      if (!this.#over || this.#life.signal.aborted) return;
      this.#keep(null);
      this.#release?.();
      [this.#over, this.#failures] = [false, 0];
      this.#run();
    }

    /// The user gives up the place, or is done after `entered`. Somebody else moves up, or may enter where the number of people inside is
    /// limited. Afterwards, anew() takes a new place.
    leave() {
      this.#load();
      const token = this.#kept?.token;
      this.#end();
      this.#keep(null);
      if (!token) return;
      // Unlike fetch, this also works while the page closes. A string needs no permission of another origin first.
      navigator.sendBeacon(`${this.#server}traffic/leave`, JSON.stringify({ zoneId: this.#zone, token }));
    }

    #tell(name, detail) {
      if (!this.#life.signal.aborted) this.dispatchEvent(new CustomEvent(name, { detail }));
    }

    async #run() {
      while (!this.#over) {
        let pause_ms;
        try {
          pause_ms = await this.#step();
          this.#failures = 0;
        } catch (problem) {
          pause_ms = this.#trouble(problem);
        }
        if (!this.#over) await this.#pause(pause_ms);
      }
    }

    /// Polls once, or follows a stream to its end. Returns the time until the next step, in milliseconds.
    async #step() {
      this.#load();
      if (this.#kept && this.#may_stream()) {
        const retry_ms = await this.#locked("", { ifAvailable: true }, (lock) => (lock ? this.#listen() : null), () => null);
        if (retry_ms !== null) return retry_ms;
      }
      if (this.#kept) return this.#heard(await this.#ask("entry"));
      // Two tabs that are opened together take one place together.
      const join = async () => {
        this.#load();
        return this.#kept ? 0 : this.#heard(await this.#ask("wait"));
      };
      const pause_ms = await this.#locked(" join", {}, join);
      return this.#may_stream() ? 0 : pause_ms;
    }

    /// Runs `act` with a lock that the tabs share. `without` runs instead where the browser has no locks, or refuses them.
    async #locked(name, options, act, without = act) {
      let granted = false;
      try {
        return await navigator.locks.request(this.#key + name, options, (lock) => {
          granted = true;
          return act(lock);
        });
      } catch (fault) {
        if (granted) throw fault;
        this.#has_locks = false;
        return without();
      }
    }

    async #ask(call) {
      const body = JSON.stringify({ zoneId: this.#zone, token: this.#kept?.token });
      const headers = { "content-type": "application/json" };
      const patience = new AbortController();
      const timer = setTimeout(() => patience.abort(), SLOWEST_MS);
      this.#call = patience;
      try {
        const address = `${this.#server}traffic/${call}`;
        const response = await fetch(address, { method: "POST", headers, body, signal: patience.signal, cache: "no-store" });
        if (!response.ok) throw await Problem.of(response);
        return await response.json();
      } finally {
        clearTimeout(timer);
      }
    }

    #heard({ canEnter, token, pass, waiting }) {
      // The user left meanwhile.
      if (this.#over) return 0;
      if (canEnter) return this.#enter(token, pass);
      this.#wait(waiting, token);
      // Up to 5 % early, at random. The server delays an early reply, but cannot help a late poll.
      return waiting.pollingPeriod * (1 - Math.random() / 20);
    }

    #wait({ rank, etaSeconds, etaRange, reason = null, stale, pollingPeriod, opensInMs = 0, stock = null, beyondStock = false }, token) {
      const kept = this.#kept ?? {};
      const first = Math.max(kept.first ?? 0, rank);
      let eta = etaRange && [etaRange[0], etaSeconds, etaRange[1]];
      // Each range is a new estimate. If its end moves back by more than the server's own tolerance for the told wait, 2 s and a tenth,
      // that is a reason. Less is not displayed.
      if (eta && kept.eta && !reason) {
        const [, told, end] = this.#eta_now();
        if (eta[2] > end + 2 + eta[2] / 10) {
          reason = "unsure";
        } else {
          eta[1] = Math.min(eta[1], told);
          eta[2] = Math.max(eta[1], Math.min(eta[2], end));
          eta[0] = Math.min(eta[0], eta[1]);
        }
      }
      const progress = Math.max(kept.progress ?? 0, 1 - rank / (first + 1));
      this.#told_at = now();
      const told = { first, progress, eta, rank, reason, stale, opens_ms: opensInMs, period_ms: pollingPeriod, stock, beyond_stock: beyondStock };
      this.#keep({ token: token ?? kept.token, heard: Date.now(), ...told });
      this.#tell_wait();
    }

    /// The wait that was told, from now: its shortest, expected and longest seconds.
    #eta_now() {
      return this.#kept.eta.map((seconds) => seconds - (now() - this.#told_at) / 1_000);
    }

    #tell_wait() {
      const { rank, progress, reason, stale, eta, opens_ms = 0, stock = null, beyond_stock = false } = this.#kept;
      const [low, seconds, high] = eta ? this.#eta_now().map((s) => Math.max(0, Math.round(s))) : [];
      const opens_in_ms = Math.max(0, Math.round(opens_ms - (now() - this.#told_at)));
      this.#tell("waiting", { rank, progress, eta: eta && { low, seconds, high }, reason, stale, opens_in_ms, stock, beyond_stock });
    }

    async #enter(token, pass) {
      this.#over = true;
      this.#load();
      const again = Boolean(this.#kept?.entered) || !(await this.#is_first());
      this.#keep({ token, heard: Date.now(), entered: true });
      this.#tell("entered", { pass, again });
      return 0;
    }

    /// Whether this is the first of the tabs that learn of the entry at the same moment. The first one keeps a lock while it is
    /// open. A later tab finds the entry in the storage.
    #is_first() {
      return new Promise((done) => {
        const hold = (lock) => {
          done(lock !== null);
          return lock && new Promise((release) => (this.#release = release));
        };
        this.#locked(" in", { ifAvailable: true }, hold, () => done(true));
      });
    }

    #may_stream() {
      return this.#has_locks && this.#failures === 0 && now() >= this.#no_stream_until;
    }

    /// Follows a stream to its end. Uses fetch instead of EventSource, so that the token is in a header and not in an address,
    /// and a refusal has a body.
    async #listen() {
      const stream = new AbortController();
      this.#stream = stream;
      let timer;
      const alive = () => {
        this.#silence = stopwatch();
        clearTimeout(timer);
        timer = setTimeout(() => stream.abort(), SILENT_MS);
      };
      let retry_ms = 1_000;
      let told = false;
      try {
        alive();
        const headers = { accept: "text/event-stream", "last-event-id": this.#kept.token };
        const address = `${this.#server}traffic/stream?${new URLSearchParams({ zone: this.#zone })}`;
        const response = await fetch(address, { headers, signal: stream.signal, cache: "no-store" });
        if (!response.ok) {
          const problem = await Problem.of(response);
          if (problem.code !== "too_many_streams") throw problem;
          // Other users behind this address have its streams. A poll keeps the place.
          this.#no_stream_until = now() + NO_STREAM_MS;
          return 0;
        }
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let text = ""; ; ) {
          const { done, value } = await reader.read();
          if (done || text.length > LONGEST) break;
          alive();
          const events = (text + value).split("\n\n");
          text = events.pop();
          for (const { id, event, data, retry } of events.map(fields)) {
            if (retry) retry_ms = Number(retry) || retry_ms;
            if (event === "wait") {
              this.#wait(JSON.parse(data), id);
              [told, this.#failures] = [true, 0];
            } else if (event === "enter") {
              return await this.#heard(JSON.parse(data));
            } else if (event === "problem") {
              throw new Problem(JSON.parse(data).code, JSON.parse(data));
            }
          }
        }
      } catch (fault) {
        if (fault instanceof Problem) throw fault;
      } finally {
        clearTimeout(timer);
        stream.abort();
        this.#stream = null;
      }
      // After a stream without events, poll for a while. A poll reports what is wrong.
      if (!told) this.#no_stream_until = now() + NO_STREAM_MS;
      return told ? retry_ms : 0;
    }

    /// Reports a problem. Returns the time until the next try, in milliseconds.
    #trouble(fault) {
      if (this.#over) return 0;
      // Other errors come from the network. fetch gives no details.
      const problem = fault instanceof Problem ? fault : new Problem("offline");
      // A user who entered, or waited long ago, and comes back starts again.
      if ((this.#kept?.entered || this.#is_old) && (problem.code === "gone" || problem.code === "bad_token")) {
        this.#keep(null);
        return 0;
      }
      const { code, title, detail, final } = problem;
      const longest_ms = Math.min(SLOWEST_MS, 1_000 * 2 ** this.#failures);
      this.#failures += 1;
      // A closed zone says when to come for the next pre-queue. Whoever comes later than that has a later place.
      const least_ms = code === "zone_closed" && problem.retry_ms ? 0 : longest_ms * (1 - Math.random() / 2);
      const retry_ms = Math.max(problem.retry_ms * (1 + Math.random() / 4), least_ms);
      if (final) this.#over = true;
      this.#tell("problem", { code, title, detail, final, retry: final ? null : Math.ceil(retry_ms / 1_000) });
      this.#eager = problem.code === "offline";
      // The network was the cause, not the stream.
      if (this.#eager) this.#no_stream_until = 0;
      if (this.#eager) this.#warn();
      return retry_ms;
    }

    /// Browsers do not tell a page why it may not read a reply. Tells the developer, once.
    #warn() {
      if (this.#has_warned || !navigator.onLine || new URL(this.#server).origin === globalThis.origin) return;
      this.#has_warned = true;
      const cure = globalThis.origin === "null" ? "this page has no origin, because it is in a sandbox without allow-same-origin" : `add "${globalThis.origin}" to cors_origins`;
      console.warn(`weir.js: no reply of ${this.#server} can be read. If the network tab shows 403 foreign_origin: ${cure}. If it shows no status, the server is not reachable.`);
    }

    async #pause(ms) {
      await new Promise((done) => {
        let timer, elapsed;
        this.#put_off = (more_ms) => {
          clearTimeout(timer);
          [ms, elapsed, timer] = [more_ms, stopwatch(), setTimeout(done, more_ms)];
        };
        // Timers of hidden or sleeping pages fire late. When the user looks again, a due timer fires at once.
        this.#wake = (at_once) => {
          if (!at_once && elapsed() < ms) return;
          clearTimeout(timer);
          done();
        };
        this.#put_off(ms);
      });
      this.#put_off = null;
    }

    /// The page became visible, or the network is back.
    #look(is_online = false) {
      if (this.#stream && this.#silence() > SILENT_MS / 2) this.#stream.abort();
      this.#wake?.(is_online && this.#eager);
    }

    /// Takes over what the storage has, if this tab does not know it yet. Returns whether it did.
    #load() {
      try {
        const stored = localStorage.getItem(this.#key);
        if (stored === this.#stored) return false;
        const kept = JSON.parse(stored);
        if (typeof kept?.token !== "string") return false;
        // Before a reload, only the device's clock measured time. If it was set back meanwhile, the told wait does not count any more.
        const age_ms = this.#kept ? 0 : Date.now() - kept.heard;
        this.#is_old = !(age_ms < OLD_MS);
        this.#told_at = now() - age_ms;
        if (!Array.isArray(kept.eta) || age_ms < 0 || this.#is_old) kept.eta = null;
        [this.#kept, this.#stored] = [kept, stored];
        return true;
      } catch {
        // Without storage, the place lasts as long as the page.
        return false;
      }
    }

    #keep(kept) {
      this.#kept = kept;
      this.#is_old = false;
      try {
        this.#stored = kept && JSON.stringify(kept);
        if (kept) localStorage.setItem(this.#key, this.#stored);
        else localStorage.removeItem(this.#key);
      } catch {
        // Without storage, as above.
      }
    }

    /// Another tab stored something. This tab shows it, and asks the server only if no more comes.
    #news_of_other_tab() {
      if (this.#over || !this.#load()) return;
      if (this.#kept.entered) return this.#wake?.(true);
      const { rank, period_ms } = this.#kept;
      if (!(rank && period_ms && this.#put_off)) return;
      this.#failures = 0;
      // If nothing more comes, one of the tabs asks first, and the others hear it.
      this.#put_off(period_ms * 1.05 + 500 * (1 + Math.random()));
      this.#tell_wait();
    }
  }

  /// The fields of one server-sent event.
  function fields(text) {
    return Object.fromEntries(text.split("\n").map((line) => line.split(/: ?(.*)/s).slice(0, 2)));
  }

  globalThis.Weir = Object.freeze({ wait: (options) => new Place(options) });
})();
