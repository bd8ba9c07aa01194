// The waiting page at the address that the visitor asked for. The server has written its first state; this script asks again,
// shows what the server says in the same words, and loads the address when it is the visitor's turn.
"use strict";
(() => {
  const settings = JSON.parse(document.getElementById("weir").textContent);
  const { period_ms, resend, first, texts } = settings;
  const SLOWEST_MS = 15_000;
  // A browser keeps the cookie of a place for an hour.
  const COOKIE_MS = 3_500_000;
  // The shortest time between two announcements to screen readers about the line's movement.
  const ANNOUNCE_MS = 60_000;
  const element = (name) => document.querySelector(`[data-weir="${name}"]`);
  // By performance.now(), which does not jump as the device's clock may.
  let announced_at = performance.now();
  let failures = 0;
  let asked = 0;
  // The zones whose cookie Weir gave to the browser, which has not sent it back yet. Weir says them anew with each reply.
  let given = settings.given;
  // Another tab that leaves drops the cookie, too, also before this page has asked. So the page asks for another place, once.
  let is_asked_anew = false;
  let is_answered = false;
  // By the clock, which goes on while the device sleeps.
  let answered_at = Date.now();

  /// Writes a text only if it changed, so that screen readers do not repeat it.
  function write(name, text, hidden = false) {
    const at = element(name);
    if (at.textContent !== text) at.textContent = text;
    at.hidden = hidden;
  }

  function announce(text, now) {
    if (!now && performance.now() - announced_at < ANNOUNCE_MS) return;
    announced_at = performance.now();
    write("announcement", text);
  }

  /// A service worker of the site may have kept this page under the address, and would show it for ever.
  async function forget() {
    const names = await caches.keys();
    await Promise.all(names.map(async (name) => (await caches.open(name)).delete(location.href, { ignoreVary: true })));
  }

  function go() {
    // Caches are missing without HTTPS, and asking for them may be refused.
    const patience = new Promise((done) => setTimeout(done, 1_000));
    Promise.race([forget().catch(() => {}), patience]).then(() => location.reload());
  }

  /// The address with a number of its own, so that no cache answers in Weir's place.
  function address() {
    const url = new URL(location.href);
    url.hash = "";
    url.search += `${url.search ? "&" : "?"}weir-poll=${Date.now()}-${asked}`;
    return url;
  }

  /// What the page is, and which cookies it waits to see sent back. After an hour without an answer they may be over.
  function about() {
    const page = resend ? "form" : "page";
    const names = Date.now() - answered_at < COOKIE_MS ? given : [];
    return `${first && !is_answered ? "first" : page}; given=${names.join(" ")}`;
  }

  /// Takes in a reply of Weir. Others, of a proxy say, are failures like a lost connection.
  function answered(by) {
    failures = 0;
    is_answered = true;
    answered_at = Date.now();
    given = by.given ?? given;
    if (!given.length) is_asked_anew = false;
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

  function show({ title, heading, rank, eta, reason, stock = "", beyond = "", explanation, notice, announcement }) {
    // The end of a trouble or a reason is news, too: what was announced last is not true any more.
    const differs = Object.entries({ heading, reason, beyond }).some(([name, text]) => text !== element(name).textContent);
    const news = differs || !element("trouble").hidden;
    document.title = title;
    write("heading", heading);
    write("rank", rank);
    write("eta", eta);
    write("reason", reason, !reason);
    write("stock", stock, !stock);
    write("beyond", beyond, !beyond);
    write("explanation", explanation);
    write("notice", notice, !notice);
    element("place").hidden = !rank;
    write("trouble", "", true);
    announce([reason, beyond, announcement].filter(Boolean).join(" "), news);
  }

  /// Asks once. Returns the time until the next question, or nothing if there is none.
  async function ask() {
    const patience = new AbortController();
    const timer = setTimeout(() => patience.abort(), SLOWEST_MS);
    try {
      // The question is a GET.
      const headers = { accept: "application/json", "weir-poll": about() };
      const reply = await fetch(address(), { headers, signal: patience.signal, cache: "no-store", redirect: "manual" });
      const said = await reply.json().catch(() => ({}));
      asked += 1;
      if (said.canEnter) return entered();
      // Nobody asks the visitor to wait any more.
      if (reply.type === "opaqueredirect" || (reply.ok && !said.shown)) return entered();
      if (!said.shown) throw new Error("not Weir's reply");
      answered(said.shown);
      if (said.code === "no_cookie") {
        // The page asks for a reload. A page that a worker kept was given its cookie long ago, and must not come again.
        forget().catch(() => {});
        if (!is_asked_anew) {
          [is_asked_anew, given] = [true, []];
          return 1_000;
        }
      }
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
