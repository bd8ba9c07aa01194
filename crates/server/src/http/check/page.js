// The waiting page at the address that the visitor asked for. The server has written its first state; this script asks again,
// shows what the server says in the same words, and loads the address when it is the visitor's turn.
"use strict";
(() => {
  const { period_ms, resend, texts } = JSON.parse(document.getElementById("weir").textContent);
  const SLOWEST_MS = 15_000;
  // The shortest time between two announcements to screen readers about the line's movement.
  const ANNOUNCE_MS = 60_000;
  const element = (name) => document.querySelector(`[data-weir="${name}"]`);
  let announced_at = Date.now();
  let failures = 0;

  /// Writes a text only if it changed, so that screen readers do not repeat it.
  function write(name, text, hidden = false) {
    const at = element(name);
    if (at.textContent !== text) at.textContent = text;
    at.hidden = hidden;
  }

  function announce(text, now) {
    if (!now && Date.now() - announced_at < ANNOUNCE_MS) return;
    announced_at = Date.now();
    write("announcement", text);
  }

  function go() {
    location.reload();
  }

  /// It is the visitor's turn. What was sent with a form has to be sent again by its sender.
  function entered() {
    if (!resend) return go();
    document.title = texts.entered;
    write("heading", texts.entered);
    write("explanation", texts.resend);
    element("place").hidden = true;
    write("trouble", "", true);
    element("go").hidden = false;
    announce(`${texts.entered}. ${texts.resend}`, true);
  }

  function show({ title, heading, rank, eta, reason, explanation, notice, announcement }) {
    const news = heading !== element("heading").textContent || (reason && reason !== element("reason").textContent);
    document.title = title;
    write("heading", heading);
    write("rank", rank);
    write("eta", eta);
    write("reason", reason, !reason);
    write("explanation", explanation);
    write("notice", notice, !notice);
    element("place").hidden = !rank;
    write("trouble", "", true);
    announce(reason ? `${reason} ${announcement}` : announcement, news);
  }

  /// Asks once. Returns the time until the next question, or nothing if there is none.
  async function ask() {
    const patience = new AbortController();
    const timer = setTimeout(() => patience.abort(), SLOWEST_MS);
    try {
      // The question is a GET. It says whether the page stands in place of the reply to a form.
      const headers = { accept: "application/json", "weir-poll": resend ? "form" : "page" };
      const reply = await fetch(location.href, { headers, signal: patience.signal, cache: "no-store", redirect: "manual" });
      const said = await reply.json().catch(() => ({}));
      failures = 0;
      if (said.canEnter) return entered();
      // Nobody asks the visitor to wait any more.
      if (reply.type === "opaqueredirect" || (reply.ok && !said.shown)) return entered();
      if (!said.shown) throw new Error("not Weir's reply");
      show(said.shown);
      return said.shown.period_ms;
    } catch {
      failures += 1;
      const is_news = element("trouble").hidden;
      write("trouble", texts.offline);
      if (is_news) announce(texts.offline, true);
      return Math.min(SLOWEST_MS, 1_000 * 2 ** failures) * (0.5 + Math.random() / 2);
    } finally {
      clearTimeout(timer);
    }
  }

  async function run(pause_ms) {
    // Up to 5 % early, at random. The server delays an early reply, but cannot help a late one.
    while (pause_ms) {
      await new Promise((done) => setTimeout(done, pause_ms * (1 - Math.random() / 20)));
      pause_ms = await ask();
    }
  }

  element("go").addEventListener("click", go);
  // A page from the browser's memory may be old.
  addEventListener("pageshow", (event) => event.persisted && go());
  run(period_ms);
})();
