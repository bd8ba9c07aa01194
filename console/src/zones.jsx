// All zones in one table, busiest first, live.
//
// Invariants: only visible rows are in the page, however many zones there are. The row with the focus keeps it and always
// stays in the page. The order pauses while the operator points at the table or moves in it, for a short time.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { useLive, useMedia, usePage } from "./hooks.js";
import { live, may } from "./live.js";
import { COLUMNS, FILTERS, found, inForce, slotUse, sorted } from "./order.js";
import { Denied, ModeBadge, Rate, Spark, Tile, eta, etaRange, use } from "./parts.jsx";
import { createZone, quick } from "./change.jsx";
import { say } from "./frame.jsx";
import { count, t } from "./words.js";

/** The height of a row in px: in the table, and as a card on a phone. */
const ROW = 38;
const CARD = 150;
/** The number of additional rows above and below the visible ones. */
const SPARE = 8;
/** How long the order pauses after the operator moved in the table, in ms. */
const REST_MS = 3_000;

/** The selection, kept while other pages are shown. */
const chosen = { by: "waiting", down: true, search: "", filter: "all" };

/** The visible rows: `[from, to)`. */
function useSight(body, many, height) {
  const [sight, set] = useState([0, 40]);
  useLayoutEffect(() => {
    const look = () => {
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const from = Math.max(0, Math.floor(-top / height) - SPARE);
      const to = Math.min(many, Math.ceil((innerHeight - top) / height) + SPARE);
      set((was) => (was[0] === from && was[1] === to ? was : [from, to]));
    };
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [many, height]);
  return sight;
}

export function Zones() {
  const live = useLive();
  const heading = usePage(t("nav.zones"));
  const phone = useMedia("(max-width: 760px)");
  const height = phone ? CARD : ROW;
  const [, redraw] = useState(0);
  const choose = (what) => {
    Object.assign(chosen, what);
    order.current.key = "";
    redraw((n) => n + 1);
  };
  const searching = useRef(null);
  const body = useRef(null);
  const order = useRef({ key: "", at: 0, ids: [] });
  const moved = useRef(Number.NEGATIVE_INFINITY);
  const focused = useRef(null);

  const all = [...live.zones.values()];
  const now = performance.now();
  const key = `${chosen.by} ${chosen.down} ${chosen.search} ${chosen.filter} ${all.length}`;
  if (key !== order.current.key || (now - moved.current > REST_MS && now - order.current.at > 900)) {
    const ids = sorted(found(all, chosen.search, chosen.filter), chosen).map((zone) => zone.id);
    order.current = { key, at: now, ids };
  }
  const rows = order.current.ids.filter((id) => live.zones.has(id));
  const [from, to] = useSight(body, rows.length, height);

  useEffect(() => {
    const pressed = (event) => {
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || document.querySelector("dialog[open]");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        searching.current?.focus();
        searching.current?.select();
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);

  // A row that moves in the page would lose the focus.
  useLayoutEffect(() => {
    const [id, what] = focused.current ?? [];
    if (id && document.activeElement === document.body) {
      body.current?.querySelector(`[data-zone="${CSS.escape(id)}"] ${what}`)?.focus({ preventScroll: true });
    }
  });

  const shownRows = [];
  for (let at = from; at < Math.min(to, rows.length); at += 1) shownRows.push(at);
  const held = focused.current ? rows.indexOf(focused.current[0]) : -1;
  if (held >= 0 && held < from) shownRows.unshift(held);
  if (held >= to) shownRows.push(held);

  /** Focuses the row at `at`, after scrolling it into view if necessary. */
  const go = (at, what) => {
    const to = Math.max(0, Math.min(rows.length - 1, at));
    focused.current = [rows[to], what];
    const top = body.current.getBoundingClientRect().top + scrollY + to * height;
    if (top < scrollY + 150) scrollTo(0, top - 150);
    if (top + height > scrollY + innerHeight) scrollTo(0, top + height - innerHeight + 8);
    redraw((n) => n + 1);
    requestAnimationFrame(() => {
      body.current?.querySelector(`[data-zone="${CSS.escape(rows[to])}"] ${what}`)?.focus({ preventScroll: true });
    });
  };
  const pressed = (event) => {
    moved.current = performance.now();
    const row = event.target.closest("[data-zone]");
    if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
    const at = rows.indexOf(row.dataset.zone);
    const page = Math.max(1, Math.floor(innerHeight / height) - 4);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: rows.length - 1 }[
      event.key
    ];
    if (to === undefined) return;
    event.preventDefault();
    go(to, event.target.matches("button") ? "button" : "a");
  };

  const sort = (by) => {
    const down = chosen.by === by ? !chosen.down : by !== "zone";
    choose({ by, down });
    say(t("sorted", { column: t(`column.${by}`), way: t(down ? "descending" : "ascending") }));
  };
  const search = (text) => {
    choose({ search: text });
    say(t("zones.found", { n: found(all, text, chosen.filter).length }));
  };

  const drawn = [];
  let last = -1;
  for (const at of shownRows) {
    if (at > last + 1) drawn.push(<tr key={`gap ${last}`} class="gap" aria-hidden="true" style={{ height: `${(at - last - 1) * height}px` }}><td colspan="9" /></tr>);
    drawn.push(<Row key={rows[at]} zone={live.zones.get(rows[at])} at={at} />);
    last = at;
  }
  if (last + 1 < rows.length) drawn.push(<tr key="gap end" class="gap" aria-hidden="true" style={{ height: `${(rows.length - last - 1) * height}px` }}><td colspan="9" /></tr>);

  return (
    <main id="main">
      <div class="head">
        <h1 ref={heading} tabindex="-1">{t("nav.zones")}</h1>
        <Summary zones={all} />
      </div>
      <div class="tools">
        <label class="search">
          <span class="unseen">{t("search")}</span>
          <input
            ref={searching}
            type="search"
            placeholder={t("search")}
            value={chosen.search}
            onInput={(event) => search(event.target.value)}
            onKeyDown={(event) => {
              if (event.key === "Escape") search("");
              if (event.key === "ArrowDown" && rows.length > 0) {
                event.preventDefault();
                go(0, "a");
              }
            }}
            aria-keyshortcuts="/"
          />
          <kbd aria-hidden="true">/</kbd>
        </label>
        <div class="chips" role="group" aria-label={t("filter")}>
          {Object.keys(FILTERS).map((filter) => (
            <button
              type="button"
              class={filter === "stale" && all.some(FILTERS.stale) ? "chip bad" : "chip"}
              aria-pressed={chosen.filter === filter}
              onClick={() => choose({ filter })}
            >
              {t(`filter.${filter}`)} <span class="n">{count(all.filter(FILTERS[filter]).length)}</span>
            </button>
          ))}
        </div>
        <label class="phone-only sort-by">
          {t("sort")}{" "}
          <select value={chosen.by} onChange={(event) => choose({ by: event.target.value, down: event.target.value !== "zone" })}>
            {COLUMNS.map((column) => <option value={column}>{t(`column.${column}`)}</option>)}
          </select>
        </label>
        <span class="space" />
        {may("admin") && <button type="button" onClick={() => createZone()}>{t("zone.new")}</button>}
      </div>
      {!may("operator") && <Denied role="operator" id="why-not" />}
      {live.known && rows.length === 0 && <p class="empty">{t(all.length > 0 ? "zones.noneFound" : "zones.none")}</p>}
      {!live.known && <p class="empty">{t("loading")}</p>}
      <table
        class="zones"
        role="table"
        aria-label={t("nav.zones")}
        aria-rowcount={rows.length + 1}
        hidden={rows.length === 0}
      >
        <thead role="rowgroup">
          <tr role="row" aria-rowindex="1">
            {COLUMNS.map((column) => (
              <th
                role="columnheader"
                scope="col"
                class={`c-${column}`}
                aria-sort={chosen.by === column ? (chosen.down ? "descending" : "ascending") : "none"}
              >
                <button type="button" onClick={() => sort(column)}>
                  {t(`column.${column}`)}
                  <span class="arrow" aria-hidden="true">{chosen.by === column ? (chosen.down ? "▼" : "▲") : ""}</span>
                </button>
              </th>
            ))}
            <th role="columnheader" scope="col" class="c-trend">{t("column.trend")}</th>
            <th role="columnheader" scope="col" class="c-act"><span class="unseen">{t("column.act")}</span></th>
          </tr>
        </thead>
        <tbody
          ref={body}
          role="rowgroup"
          onKeyDown={pressed}
          onPointerMove={() => (moved.current = performance.now())}
          onFocusIn={(event) => {
            const row = event.target.closest("[data-zone]");
            focused.current = row && [row.dataset.zone, event.target.matches("button") ? "button" : "a"];
          }}
          onFocusOut={(event) => {
            if (event.relatedTarget && !body.current.contains(event.relatedTarget)) focused.current = null;
          }}
        >
          {drawn}
        </tbody>
      </table>
    </main>
  );
}

function Row({ zone, at }) {
  const { now } = zone;
  const policy = inForce(zone);
  const cell = (column, what, more = {}) => (
    <td role="cell" class={`c-${column}`} data-label={t(`column.${column}`)} {...more}>{what}</td>
  );
  return (
    <tr
      role="row"
      aria-rowindex={at + 2}
      data-zone={zone.id}
      class={`${now.stale ? "stale" : ""} ${now.waiting > 0 ? "hot" : ""} ${at % 2 ? "odd" : ""}`}
    >
      <th role="rowheader" scope="row" class="c-zone">
        <a href={`#/zones/${encodeURIComponent(zone.id)}`}>{zone.id}</a>
        {now.stale && <span class="badge warn">{t("zone.stale")}</span>}
        {zone.draw?.overdue_s > 0 && <span class="badge warn">{t("zone.draw.overdue")}</span>}
      </th>
      {cell("mode", <ModeBadge mode={policy.mode} />)}
      {cell("waiting", count(now.waiting))}
      {cell("present", count(now.present))}
      {cell("entered", <Rate entered={now.entered_last_minute} limit={policy.admit_per_minute} mode={policy.mode} />)}
      {cell("eta", eta(zone), { title: etaRange(zone) })}
      {cell("use", use(slotUse(zone)))}
      {cell("trend", <Spark points={[...zone.trend, { at: (Date.now() + live.ahead) / 1_000, waiting: now.waiting }]} />)}
      <td role="cell" class="c-act">
        <button
          type="button"
          class="quiet"
          aria-label={t("zone.change", { zone: zone.id })}
          aria-describedby={may("operator") ? undefined : "why-not"}
          title={t("zone.change", { zone: zone.id })}
          disabled={!may("operator")}
          onClick={() => quick(zone)}
        >
          ⋯
        </button>
      </td>
    </tr>
  );
}

function Summary({ zones }) {
  const sum = (of) => zones.reduce((total, zone) => total + of(zone), 0);
  const lines = zones.filter((zone) => zone.now.waiting > 0).length;
  return (
    <dl class="tiles">
      <Tile label={t("sum.waiting")} value={count(sum((zone) => zone.now.waiting))} />
      <Tile label={t("sum.lines")} value={count(lines)} note={t("sum.of", { n: zones.length })} />
      <Tile label={t("sum.entered")} value={count(sum((zone) => zone.now.entered_last_minute))} />
    </dl>
  );
}
