// The waiting page: displays the events of weir.js, and goes on with the pass. In a template, `data-weir` marks elements whose
// content is filled in, and `data-when` lists the states in which an element is visible. A template may leave out any of them.
"use strict";
(() => {
  const { zone, lang, idle_timeout_s, target, texts, ...settings } = JSON.parse(document.getElementById("weir").textContent);
  const NOTICE_MS = 60_000;
  /// How long a page is not led to again, in ms.
  const LED_MS = 60_000;
  // The shortest time between two announcements to screen readers about the line's movement.
  const ANNOUNCE_MS = 60_000;
  // The shortest time for which a reason is visible.
  const REASON_MS = 30_000;
  // The shortest time between two requests for labels, unless the page has none yet.
  const LABELS_MS = 4_000;
  // People enter so long after the list of a draw is closed.
  const DRAW_MS = 30_000;
  // The longest time until the page asks of which event the draw is that begins while the page is open.
  const LEARN_MS = 10_000;
  // How long the button to leave asks whether it was meant.
  const SURE_MS = 6_000;

  const all = (name) => document.querySelectorAll(`[data-weir~="${name}"]`);
  const number = new Intl.NumberFormat(lang);
  const say = (key, values = {}) => (texts[key] ?? "").replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
  const count = (unit, n) => say(n === 1 ? `${unit}_one` : unit, { n: number.format(n) });

  /// Writes a text only if it changed, so that screen readers do not repeat it.
  function write(name, text) {
    for (const element of all(name)) {
      if (element.textContent !== text) element.textContent = text;
      if (["reason", "trouble", "notice", "beyond", "drawn"].includes(name)) element.hidden = !text;
    }
  }

  function span(minutes) {
    const [hours, rest] = [Math.floor(minutes / 60), minutes % 60];
    return [hours && count("hours", hours), rest && count("minutes", rest)].filter(Boolean).join(" ");
  }

  /// A range of seconds in words. The words get coarser only as the range grows.
  function words({ low, high }) {
    if (high <= 60) return say("eta_soon");
    if (high < 120) {
      const [from, to] = [Math.floor(low / 10) * 10, Math.ceil(high / 10) * 10];
      if (from < 10) return say("eta_up_to", { high: kept_for(to) });
      if (from === to) return say("eta_about", { high: kept_for(to) });
      return say("eta_seconds_range", { low: from, high: to });
    }
    // Beyond an hour, minutes are rounded to tens.
    const step = (seconds) => (seconds > 3_600 ? 600 : 60);
    const from = (Math.floor(low / step(low)) * step(low)) / 60;
    const to = (Math.ceil(high / step(high)) * step(high)) / 60;
    if (from < 1) return say("eta_up_to", { high: span(to) });
    if (from === to) return say("eta_about", { high: span(to) });
    if (to < 60) return say("eta_minutes_range", { low: from, high: to });
    return say("eta_range", { low: span(from), high: span(to) });
  }

  function kept_for(seconds) {
    return seconds % 60 === 0 && seconds > 60 ? span(seconds / 60) : count("seconds", seconds);
  }
  /// How long something takes still, in words.
  const until = (seconds) => (seconds > 120 ? span(Math.ceil(seconds / 60)) : count("seconds", seconds));
  const idle = idle_timeout_s ? kept_for(idle_timeout_s) : say("a_while");

  let state = "connecting";
  // Times by performance.now(), which does not jump as the device's clock may.
  let announced_at = -Infinity;
  let reason_until = 0;
  // Whether a trouble is shown, or a reason that stays for as long as it is true. When it ends, that is announced, too.
  let is_troubled = false;
  let is_halted = false;
  let pass = null;
  // When the zone opens; null if it is open, or nobody knows. By the server's clock, which says how long it is still.
  let opens_at = null;
  // The event of whose draw people get receipts; null if there is none, or the page does not know it yet.
  let draw = settings.draw ?? null;
  // Whether the order is to be drawn by lot, and is not yet.
  let is_undrawn = false;
  // Whether the operators hold the zone. Then nobody knows when the list is closed.
  let is_held = false;
  let learn_timer;
  // The place as it is shown, and why the wait is as it is, or what else is said beside it.
  let shown_place = "";
  let shown_why = "";
  // What is left, as the last reply said; null if nothing is told. Its labels and prices are fetched beside it.
  let stock = null;
  let labels = { texts: null, tiers: [] };
  let is_fetching = false;
  let fetched_at = -Infinity;
  let is_beyond = false;
  let beyond_until = 0;
  let sure_timer;

  function announce(text, now = true) {
    if (!now && performance.now() - announced_at < ANNOUNCE_MS) return;
    announced_at = performance.now();
    write("announcement", text);
  }

  function show(next, explanation = `explanation_${next}`, values = {}) {
    write("explanation", say(explanation, { idle, ...values }));
    if (next === state) return;
    state = next;
    document.documentElement.dataset.state = next;
    write("heading", say(`heading_${next}`));
    for (const element of document.querySelectorAll("[data-when]")) {
      element.hidden = !element.dataset.when.split(" ").includes(next);
    }
    for (const element of all("go")) element.hidden ||= !target;
    offer_to_leave();
    if (next === "connecting") write("drawn", "");
    offer_draw();
    if (next !== "waiting") {
      document.title = `${say(`heading_${next}`)} · ${texts.title}`;
      announce(`${say(`heading_${next}`)}. ${say(explanation, { idle, ...values })}`);
    }
  }

  /// Fetches the labels and prices that belong to the numbers of the replies.
  async function fetch_labels() {
    if (is_fetching) return;
    is_fetching = true;
    // Everybody who waits hears of new labels at the same moment. Servers may say different things for a while, and an older one knows no
    // labels: each try comes later than the one before.
    const since_ms = performance.now() - fetched_at;
    let pause_ms = Math.max(labels.texts === null ? 0 : 2_000 * Math.random(), since_ms < LABELS_MS ? LABELS_MS - since_ms : 0);
    for (let longest_ms = 4_000; stock && stock.texts !== labels.texts; longest_ms = Math.min(64_000, 2 * longest_ms)) {
      await new Promise((done) => setTimeout(done, pause_ms));
      pause_ms = longest_ms * (0.5 + Math.random() / 2);
      // The address has the tag, so that no cache answers with older labels.
      const query = new URLSearchParams({ zone, texts: stock?.texts ?? "" });
      const reply = await fetch(`../traffic/stock?${query}`).catch(() => null);
      if (reply?.ok) labels = await reply.json().catch(() => labels);
      fetched_at = performance.now();
      if (stock) show_stock();
    }
    is_fetching = false;
  }

  function price({ currency, from, to }) {
    const money = new Intl.NumberFormat(lang, { style: "currency", currency });
    return [...new Set([from, to].map((amount) => money.format(Number(amount))))].join("–");
  }

  const pieces = (left) => (left === null ? "" : left === 0 ? say("sold_out") : say("left", { n: number.format(left) }));
  const spoken = (texts) => texts[[lang, "en", ...Object.keys(texts)].find((tag) => tag in texts)] ?? "";

  function show_stock() {
    const tiers = stock && stock.texts === labels.texts ? labels.tiers : [];
    for (const element of all("stock")) element.hidden = tiers.length === 0;
    for (const list of all("tiers")) {
      while (list.children.length > tiers.length) list.lastElementChild.remove();
      tiers.forEach((tier, at) => {
        if (!list.children[at]) {
          const item = list.appendChild(document.createElement("li"));
          const parts = [["bdi", "label"], ["span", "price"], ["span", "count"]];
          for (const [kind, name] of parts) item.appendChild(document.createElement(kind)).className = name;
        }
        const item = list.children[at];
        const left = stock.remaining[tier.id] ?? null;
        item.className = left === 0 ? "gone" : "";
        [spoken(tier.label), tier.price ? price(tier.price) : "", pieces(left)].forEach((text, part) => {
          if (item.children[part].textContent !== text) item.children[part].textContent = text;
        });
      });
    }
  }

  /// Shows what is left. Returns what is to be announced: a tier that is sold out now, or that everything may be before the user's turn.
  function left(now, beyond) {
    const before = stock;
    stock = now;
    if (stock && stock.texts !== labels.texts) fetch_labels();
    show_stock();
    const gone = stock && before?.texts === stock.texts ? labels.tiers.filter(({ id }) => before.remaining[id] && stock.remaining[id] === 0) : [];
    const news = gone.map(({ label }) => say("tier_gone", { tier: spoken(label) }));
    const total = Object.values(stock?.remaining ?? {}).reduce((sum, of_tier) => sum + of_tier, 0);
    const was_beyond = is_beyond;
    is_beyond = beyond;
    if (beyond) {
      const text = say(total ? "beyond" : "beyond_all", { n: number.format(total) });
      if (!was_beyond || total === 0) news.push(text);
      write("beyond", text);
    } else if (was_beyond && stock) {
      beyond_until = performance.now() + REASON_MS;
      write("beyond", say("beyond_over"));
      news.push(say("beyond_over"));
    } else if (!stock || performance.now() >= beyond_until) {
      // Where nothing is told any more, nobody knows whether more came back.
      write("beyond", "");
    }
    offer_to_leave();
    return news.join(" ");
  }

  function offer_to_leave() {
    for (const button of all("leave")) button.hidden = !(is_beyond && state === "waiting");
  }

  /// What the server publishes at this path, as JSON; null if it does not answer.
  async function published(path) {
    const reply = await fetch(`../${path}`).catch(() => null);
    return reply?.ok ? reply.json().catch(() => null) : null;
  }
  const of_zone = encodeURIComponent(zone);

  /// Asks of which event the draw is. All who have the page open see a pre-queue begin at the same moment, so they ask one after another.
  function learn_draw() {
    learn_timer ??= setTimeout(async () => {
      const said = await published(`zones/${of_zone}/rules`);
      learn_timer = undefined;
      if (said) draw = said.draw ?? null;
      offer_draw();
    }, LEARN_MS * Math.random());
  }

  /// Offers what there is of a draw: the checkpoint once the list is closed, and receipt and record once the order is drawn.
  function offer_draw() {
    const has_place = ["waiting", "entered", "again", "gone"].includes(state);
    const is_closed = opens_at === null ? !is_held : opens_at - performance.now() <= DRAW_MS;
    const is_over = draw !== null && has_place && !is_undrawn;
    const is_frozen = draw !== null && has_place && is_undrawn && is_closed;
    const offers = { draw: is_over || is_frozen, checkpoint: is_frozen, receipt: is_over, record: is_over, verifier: is_over };
    for (const [name, is_offered] of Object.entries(offers)) for (const element of all(name)) element.hidden = !is_offered;
    const path = `../draws/${of_zone}/${encodeURIComponent(draw ?? "")}`;
    for (const [name, href] of [["checkpoint", path], ["record", `${path}/record`]]) {
      for (const link of all(name)) Object.assign(link, { href, download: `${name}-${draw}.json` });
    }
  }

  function save(name, text) {
    const href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    Object.assign(document.createElement("a"), { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  }

  /// Saves the receipt of this place, and says which place was drawn.
  async function receipt() {
    let said;
    try {
      const text = await place.receipt(draw);
      const { position, checkpoint } = JSON.parse(text);
      const of = /^in-line (\d+)$/m.exec(checkpoint)?.[1];
      save(`receipt-${draw}.json`, text);
      said = position === null ? say("receipt_left") : say("receipt_drawn", { position: number.format(position), of: number.format(of) });
    } catch ({ code }) {
      said = say(code === "no_draw" ? "receipt_none" : "receipt_away");
    }
    write("drawn", said);
    announce(said);
  }

  /// The user gives up the place. A second press is needed, because the place is lost by it.
  function leave() {
    const is_sure = sure_timer !== undefined;
    clearTimeout(sure_timer);
    sure_timer = is_sure ? undefined : setTimeout(() => ((sure_timer = undefined), write("leave", say("leave"))), SURE_MS);
    write("leave", say(is_sure ? "leave" : "leave_sure"));
    if (!is_sure) return;
    place.leave();
    show("left");
  }

  /// What is said until the zone opens, in so many milliseconds.
  function before_opening(ms) {
    if (is_undrawn) return ms > DRAW_MS ? "draw" : "frozen";
    return draw === null ? "early" : "drawn";
  }

  /// Shows why the wait is as it is. Returns the words.
  function show_reason(why, ms) {
    const words = why ? say(`reason_${why}`, { opens: until(Math.ceil(ms / 1_000)), rank: shown_place }) : "";
    write("reason", words);
    for (const element of all("reason")) element.dataset.reason = why ?? "";
    shown_why = why ?? "";
    return words;
  }

  function countdown() {
    if (opens_at === null || state !== "waiting") return;
    const ms = opens_at - performance.now();
    if (ms <= 0) return write("reason", say(is_undrawn ? "reason_drawing" : "reason_opening"));
    const why = before_opening(ms);
    const is_news = why !== shown_why;
    const words = show_reason(why, ms);
    if (!is_news) return;
    offer_draw();
    announce(words);
  }

  function waiting({ rank, progress, eta, reason, stale, opens_in_ms, stock: now_left, beyond_stock }) {
    const arrived = state !== "waiting";
    show("waiting");
    write("trouble", "");
    // Before a draw nobody has a rank, and whoever came early is not further on.
    const was_undrawn = is_undrawn;
    is_held = reason === "held";
    is_undrawn = reason === "draw" || (is_undrawn && reason === "held");
    // The operators may take a draw back until its list is closed.
    if (was_undrawn && !is_undrawn && opens_in_ms > DRAW_MS) draw = null;
    if (draw === null && (is_undrawn || was_undrawn)) learn_draw();
    // The rule says it in other words now.
    if (was_undrawn && !is_undrawn && [...all("rules")].some(({ open }) => open)) setTimeout(rules, LEARN_MS * Math.random());
    shown_place = is_undrawn ? say("rank_undrawn") : number.format(rank);
    write("rank", shown_place);
    write("eta", eta ? words(eta) : say("eta_unknown"));
    for (const bar of all("progress")) [bar.value, bar.hidden] = [progress, is_undrawn];
    document.title = say("title_waiting", { rank: shown_place, title: texts.title });
    opens_at = opens_in_ms ? performance.now() + opens_in_ms : null;
    offer_draw();
    const of_stock = left(now_left, beyond_stock);
    const before = opens_at && before_opening(opens_in_ms);
    const why = before ?? (reason === "draw" ? "drawing" : (reason ?? (stale ? "stale" : null)));
    const lasts = ["early", "draw", "frozen", "drawn", "drawing", "held", "stale"].includes(why);
    const is_over = is_troubled || (is_halted && !lasts);
    [is_troubled, is_halted] = [false, lasts];
    if (why) reason_until = performance.now() + (lasts ? 0 : REASON_MS);
    if (why || performance.now() >= reason_until) {
      const is_news = why && why !== shown_why;
      const said = show_reason(why, opens_in_ms);
      if (is_news || (lasts && is_over)) return announce(`${said} ${of_stock}`.trim());
    }
    if (of_stock) return announce(of_stock);
    const now = { rank: shown_place, eta: eta ? words(eta) : say("eta_unknown"), opens: until(Math.ceil(opens_in_ms / 1_000)) };
    const text = { draw: "announce_draw", frozen: "reason_frozen", drawing: "reason_drawing", held: "reason_held" }[is_undrawn ? why : ""];
    announce(say(text ?? "announce_waiting", now), arrived || is_over);
  }

  /// Goes on to the operator's page. The pass is in a form or after the #, so that no address with it is sent or logged.
  function go() {
    if (target.by === "fragment") {
      location.assign(`${target.url}#${new URLSearchParams({ pass })}`);
      return;
    }
    const form = document.createElement("form");
    Object.assign(form, { method: "post", action: target.url });
    const field = document.createElement("input");
    Object.assign(field, { type: "hidden", name: "pass", value: pass });
    form.append(field);
    document.body.append(form);
    form.submit();
    form.remove();
  }

  function entered({ pass: given, again }) {
    pass = given;
    write("trouble", "");
    if (!target) return show("entered", "explanation_entered_nowhere");
    show(again ? "again" : "entered");
    // A pass that may have been spent already could be refused. The user decides.
    if (!again) go();
  }

  /// Goes on to the page that the closed zone's event names. Pages that lead to each other would do so for ever, so each is shown once a
  /// minute; without storage, only a page of another host.
  function goes_on(page) {
    const to = new URL(page, location.href);
    try {
      const led = `weir led to ${to.origin}${decodeURI(to.pathname)}`;
      if (Math.abs(Date.now() - Number(sessionStorage.getItem(led))) < LED_MS) return false;
      sessionStorage.setItem(led, Date.now());
    } catch {
      if (to.origin === location.origin) return false;
    }
    location.replace(to);
    return true;
  }

  function problem({ code, final, retry, page }) {
    if (final) {
      const known = { gone: "gone", bad_token: "gone", unknown_zone: "unknown" };
      write("trouble", "");
      return show(known[code] ?? "refused", undefined, { code });
    }
    const has_place = state === "waiting";
    const outside = { zone_closed: "closed", zone_full: "full" }[code];
    if (outside && !has_place) {
      write("trouble", "");
      if (page && goes_on(page)) return;
      return show(outside);
    }
    const values = { idle, retry: kept_for(retry) };
    const limited = has_place ? "too_many_requests" : "joining_too_many";
    const text = { offline: has_place ? "offline" : "away", too_many_requests: limited, too_many_connections: limited }[code] ?? "away";
    const is_news = [...all("trouble")].some((element) => element.hidden);
    is_troubled = true;
    write("trouble", say(`trouble_${text}`, values));
    if (is_news) announce(say(`trouble_${text}`, values));
  }

  async function notice() {
    if (document.visibilityState === "visible") {
      const reply = await fetch(`../traffic/notice?${new URLSearchParams({ zone })}`).catch(() => null);
      if (reply?.ok) {
        const { notice: by_language } = await reply.json();
        const language = [lang, "en", ...Object.keys(by_language)].find((tag) => tag in by_language);
        const text = by_language[language] ?? "";
        const is_news = text && [...all("notice")].some((element) => element.textContent !== text);
        for (const element of all("notice")) if (language) element.lang = language;
        write("notice", text);
        if (is_news) announce(text);
      }
    }
    setTimeout(notice, NOTICE_MS * (0.75 + Math.random() / 2));
  }

  /// The published rule of the zone, in words. It is fetched when the user opens it.
  async function rules() {
    const said = await published(`zones/${of_zone}/rules`);
    const lines = said ? [...(said.words[lang] ?? said.words.en)] : [say("rules_away")];
    const at = said?.changed && new Date(said.changed).toLocaleString(lang, { dateStyle: "long", timeStyle: "short" });
    if (at) lines.push(say("rules_changed", { at }));
    if (said?.auditRecord) lines.push(say("rules_record", said.auditRecord));
    for (const list of all("rule")) {
      list.replaceChildren(...lines.map((line) => Object.assign(document.createElement("li"), { textContent: line })));
    }
  }

  const place = globalThis.Weir.wait({ zone });
  place.addEventListener("waiting", (e) => waiting(e.detail));
  place.addEventListener("entered", (e) => entered(e.detail));
  place.addEventListener("problem", (e) => problem(e.detail));
  for (const button of all("anew")) {
    button.addEventListener("click", () => {
      show("connecting");
      // The button is hidden now. Keyboard users continue from the heading.
      for (const heading of all("heading")) (heading.tabIndex = -1), heading.focus();
      place.anew();
    });
  }
  for (const button of all("leave")) button.addEventListener("click", leave);
  for (const details of all("rules")) {
    // Without a script it would open to nothing.
    details.hidden = false;
    details.addEventListener("toggle", () => details.open && rules());
  }
  for (const button of all("receipt")) button.addEventListener("click", receipt);
  for (const button of all("go")) button.addEventListener("click", go);
  for (const button of all("reload")) button.addEventListener("click", () => location.reload());
  notice();
  setInterval(countdown, 1_000);
})();
