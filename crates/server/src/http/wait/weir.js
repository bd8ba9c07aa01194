// weir.js: keeps a place in a line of Weir for web pages. docs/app/waiting-page.md describes its interface.
//
// The place is in localStorage, one for each zone and server, so that reloads and other tabs share it. One tab at a time follows it
// by a stream, because browsers open few connections to a host; other tabs poll, and so do all if streams fail. The told wait
// grows only together with a reason.
"use strict";
(() => {
  const HOME = new URL(".", document.currentScript?.src ?? location.href).href;
  // A stream sends data every 5 s. After this much silence it is treated as broken.
  const SILENT_MS = 12_000;
  // The pause after a stream that delivered nothing. A proxy may buffer streams, and that does not change soon.
  const NO_STREAM_MS = 60_000;
  const SLOWEST_MS = 15_000;
  // No zone keeps a place longer than this without a poll. An older place belongs to an earlier visit.
  const OLD_MS = 3_600_000;
  const LONGEST = 65_536;

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
    #over = false;
    #failures = 0;
    #no_stream_until = 0;
    #heard_at = 0;
    #stream = null;
    #call = null;
    #wake = null;
    #release = null;
    #eager = false;
    #due_at = 0;
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
      addEventListener("pageshow", look, { signal });
      addEventListener("online", () => this.#look(true), { signal });
      addEventListener("offline", () => this.#stream?.abort(), { signal });
      addEventListener("storage", (e) => e.key === this.#key && this.#kept_elsewhere(), { signal });
      // The caller adds listeners first.
      queueMicrotask(() => this.#run());
    }

    /// Stops polling. The place stays until the zone evicts silent tickets.
    stop() {
      this.#life.abort();
      this.#end();
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
        const retry_ms = await navigator.locks.request(this.#key, { ifAvailable: true }, (lock) => lock && this.#listen());
        if (retry_ms !== null) return retry_ms;
      }
      if (this.#kept) return this.#heard(await this.#ask("entry"));
      // Two tabs that are opened together take one place together.
      const join = async () => {
        this.#load();
        return this.#kept ? 0 : this.#heard(await this.#ask("wait"));
      };
      const pause_ms = await (navigator.locks ? navigator.locks.request(`${this.#key} join`, join) : join());
      return this.#may_stream() ? 0 : pause_ms;
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

    #wait({ rank, etaSeconds, etaRange, reason = null, stale }, token) {
      const now = Date.now();
      const kept = this.#kept ?? {};
      const first = Math.max(kept.first ?? 0, rank);
      let eta = etaRange && [etaRange[0], etaSeconds, etaRange[1]].map((s) => now + 1_000 * s);
      // Each range is a new estimate. If its end moves back by more than the server's own tolerance for the told wait, 2 s and a tenth,
      // that is a reason. Less is not displayed.
      if (eta && kept.eta && !reason) {
        const [, told, end] = kept.eta;
        eta[1] = Math.min(eta[1], told);
        if (eta[2] > end + 2_000 + (eta[2] - now) / 10) reason = "unsure";
        else eta[2] = Math.max(eta[1], Math.min(eta[2], end));
        eta[0] = Math.min(eta[0], eta[1]);
      }
      const progress = Math.max(kept.progress ?? 0, 1 - rank / (first + 1));
      this.#keep({ token: token ?? kept.token, heard: now, first, progress, eta });
      const [low, seconds, high] = (eta ?? []).map((at) => Math.max(0, Math.round((at - now) / 1_000)));
      this.#tell("waiting", { rank, progress, eta: eta && { low, seconds, high }, reason, stale });
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
      if (!navigator.locks) return true;
      return new Promise((done) => {
        navigator.locks.request(`${this.#key} in`, { ifAvailable: true }, (lock) => {
          done(lock !== null);
          return lock && new Promise((release) => (this.#release = release));
        });
      });
    }

    #may_stream() {
      return Boolean(navigator.locks) && this.#failures === 0 && Date.now() >= this.#no_stream_until;
    }

    /// Follows a stream to its end. Uses fetch instead of EventSource, so that the token is in a header and not in an address,
    /// and a refusal has a body.
    async #listen() {
      const stream = new AbortController();
      this.#stream = stream;
      let timer;
      const alive = () => {
        this.#heard_at = Date.now();
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
          this.#no_stream_until = Date.now() + NO_STREAM_MS;
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
      if (!told) this.#no_stream_until = Date.now() + NO_STREAM_MS;
      return told ? retry_ms : 0;
    }

    /// Reports a problem. Returns the time until the next try, in milliseconds.
    #trouble(fault) {
      if (this.#over) return 0;
      // Other errors come from the network. fetch gives no details.
      const problem = fault instanceof Problem ? fault : new Problem("offline");
      // A user who entered and comes back much later starts again.
      if (this.#kept?.entered && (problem.code === "gone" || problem.code === "bad_token")) {
        this.#keep(null);
        return 0;
      }
      const { code, title, detail, final } = problem;
      const longest_ms = Math.min(SLOWEST_MS, 1_000 * 2 ** this.#failures);
      this.#failures += 1;
      const retry_ms = Math.max(problem.retry_ms * (1 + Math.random() / 4), longest_ms * (1 - Math.random() / 2));
      if (final) this.#over = true;
      this.#tell("problem", { code, title, detail, final, retry: final ? null : Math.ceil(retry_ms / 1_000) });
      this.#eager = problem.code === "offline";
      // The network was the cause, not the stream.
      if (this.#eager) this.#no_stream_until = 0;
      return retry_ms;
    }

    #pause(ms) {
      this.#due_at = Date.now() + ms;
      return new Promise((done) => {
        const timer = setTimeout(done, ms);
        // Timers of hidden or sleeping pages fire late. When the user looks again, a due timer fires at once.
        this.#wake = (now) => {
          if (!now && Date.now() < this.#due_at) return;
          clearTimeout(timer);
          done();
        };
      });
    }

    /// The page became visible, or the network is back.
    #look(is_online = false) {
      if (this.#stream && Date.now() - this.#heard_at > SILENT_MS / 2) this.#stream.abort();
      this.#wake?.(is_online && this.#eager);
    }

    #load() {
      try {
        const kept = JSON.parse(localStorage.getItem(this.#key));
        if (typeof kept?.token === "string" && Date.now() - kept.heard < OLD_MS) this.#kept = kept;
      } catch {
        // Without storage, the place lasts as long as the page.
      }
    }

    #keep(kept) {
      this.#kept = kept;
      try {
        if (kept) localStorage.setItem(this.#key, JSON.stringify(kept));
        else localStorage.removeItem(this.#key);
      } catch {
        // Without storage, as above.
      }
    }

    /// Another tab stored something. If the user entered, this tab shows it at once.
    #kept_elsewhere() {
      this.#load();
      if (this.#kept?.entered) this.#wake?.(true);
    }
  }

  /// The fields of one server-sent event.
  function fields(text) {
    return Object.fromEntries(text.split("\n").map((line) => line.split(/: ?(.*)/s).slice(0, 2)));
  }

  globalThis.Weir = Object.freeze({ wait: (options) => new Place(options) });
})();
