// One zone: its figures over time, and its controls.
//
// Invariant: a draft belongs to the state of the zone at which it was begun, so that a change made meanwhile is shown in
// the preview and not overwritten.

import { useEffect, useRef, useState } from "preact/hooks";

import { Refused, call, zonePath } from "./api.js";
import { ChangeList } from "./changes.jsx";
import { Levers, askDelete, askPatch, snapshot } from "./change.jsx";
import { Chart } from "./chart.jsx";
import { Editor, draftOf, readDraft } from "./editor.jsx";
import { say } from "./frame.jsx";
import { useEvery, useLive, usePage } from "./hooks.js";
import { may, now_s as serverNow } from "./live.js";
import { inForce, slotUse } from "./order.js";
import { Denied, Tile, eta, etaRange, use } from "./parts.jsx";
import { PastEvents } from "./past.jsx";
import { INSTANTS, patchBetween } from "./policy.js";
import { nextOpening, phaseAt } from "./schedule.js";
import { Schedule } from "./schedule.jsx";
import { series } from "./series.js";
import { Stock } from "./stock.jsx";
import { count, dayOf, localOf, part, span, t } from "./words.js";

/** The time ranges of the charts, in minutes. */
const RANGES = [5, 30, 180, 360];
const STATS_MS = 10_000;
/** How often the list of events is fetched, in ms. */
const EVENTS_MS = 3_000;
let range = 30;

export function Zone({ id }) {
  const live = useLive();
  const heading = usePage(id);
  const [stats, setStats] = useState(null);
  const [fault, setFault] = useState(null);
  const [, redraw] = useState(0);
  useEvery(STATS_MS, async (isOver) => {
    try {
      const heard = await call("GET", `${zonePath(id)}/stats?minutes=${Math.max(30, range)}`);
      if (!isOver()) setStats(heard);
      setFault(null);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setFault(error);
    }
  }, [id, range]);

  /** The zone's events as the server lists them: with those that were deleted, and with the servers that have read them. */
  const [listed, setListed] = useState([]);
  useEvery(EVENTS_MS, async (isOver) => {
    try {
      const { events } = await call("GET", `${zonePath(id)}/events`);
      if (!isOver()) setListed(events);
    } catch (error) {
      // What was shown stays. The mark at the top says that the server does not answer.
      if (!(error instanceof Refused)) throw error;
    }
  }, [id]);

  const zone = live.zones.get(id);
  if (!zone) {
    return (
      <main id="main">
        <p class="crumb"><a href="#/">← {t("nav.zones")}</a></p>
        <h1 ref={heading} tabindex="-1">{id}</h1>
        <p class="empty">{t(live.known ? "zone.unknown" : "loading")}</p>
      </main>
    );
  }
  const { now } = zone;
  const policy = inForce(zone);
  const isMine = may("operator");
  const now_s = serverNow();
  const shown = series(stats?.minutes ?? [], zone.samples, now_s, range);
  // A new zone has no long history.
  const long_s = Math.min(range * 60, Math.max(60, Math.round(now_s - (shown.at[0] ?? now_s))));
  const here = stats?.here;
  return (
    <main id="main" class="zone">
      <p class="crumb"><a href="#/">← {t("nav.zones")}</a></p>
      <div class="head">
        <h1 ref={heading} tabindex="-1">{id}</h1>
        {now.stale && <span class="badge warn">{t("zone.stale.long")}</span>}
        <span class="space" />
        <Levers zone={zone} disabled={!isMine} why={isMine ? undefined : "why-not"} />
      </div>
      {now.away && <p class="warning mild">{t("zone.away", { ...now.away, since: dayOf(now.away.since) })}</p>}
      <Opening zone={zone} now_s={now_s} />
      {!isMine && <Denied role="operator" id="why-not" />}
      <dl class="tiles">
        <Tile label={t("column.waiting")} value={count(now.waiting)} note={t("tile.present", { n: now.present })} />
        <Tile label={t("column.entered")} value={count(now.entered_last_minute)} note={t("tile.of", { n: policy.admit_per_minute })} />
        {now.inside !== null && <Tile label={t("tile.inside")} value={count(now.inside)} note={t("tile.of", { n: policy.max_active })} />}
        <Tile label={t("column.eta")} value={eta(zone)} note={etaRange(zone)} />
        <Tile label={t("column.use")} value={use(slotUse(zone))} note={t("tile.use")} />
        {here && here.waits_s.count > 0 && (
          <Tile label={t("tile.waits")} value={span(here.waits_s.p50)} note={t("tile.waits.note", { p90: span(here.waits_s.p90), p99: span(here.waits_s.p99) })} />
        )}
        {here && here.told_last_hour.count > 0 && (
          <Tile
            label={t("tile.range")}
            value={part(here.told_last_hour.in_range)}
            note={t("tile.range.note", { n: here.told_last_hour.count, error: part(here.told_last_hour.error_share) })}
          />
        )}
        {here && here.told_ratio.count > 0 && (
          <Tile label={t("tile.told")} value={part(here.told_ratio.p50)} note={t("tile.told.note", { p10: part(here.told_ratio.p10), p90: part(here.told_ratio.p90) })} />
        )}
      </dl>
      <div class="columns">
        <div class="charts">
          <div class="tools">
            <h2>{t("charts")}</h2>
            <span class="space" />
            <div class="segments" role="group" aria-label={t("range.what")}>
              {RANGES.map((minutes) => (
                <button
                  type="button"
                  aria-pressed={range === minutes}
                  onClick={() => {
                    range = minutes;
                    redraw((n) => n + 1);
                  }}
                >
                  {span(minutes * 60)}
                </button>
              ))}
            </div>
          </div>
          {fault && <p class="warning mild">{t("stats.away", { code: fault.code || fault.status })}</p>}
          <Chart
            key={`waiting ${range}`}
            title={t("column.waiting")}
            at={shown.at}
            unit="count"
            sync={id}
            long_s={long_s}
            lines={[{ label: t("column.waiting"), values: shown.waiting, color: "--chart-1", fill: "--chart-1-fill" }]}
          />
          <Chart
            key={`entered ${range}`}
            title={t("chart.entered")}
            at={shown.at}
            unit="count"
            sync={id}
            long_s={long_s}
            lines={[
              { label: t("chart.entered"), values: shown.entered, color: "--chart-2" },
              { label: t("chart.limit"), values: shown.limit, color: "--chart-limit", dash: [5, 4], stepped: true },
            ]}
          />
          <Chart
            key={`use ${range}`}
            title={t("column.use")}
            at={shown.at}
            unit="part"
            sync={id}
            long_s={long_s}
            lines={[{ label: t("column.use"), values: shown.use, color: "--chart-3" }]}
          />
        </div>
        <div class="side">
          <Schedule zone={zone} listed={listed} isMine={isMine} />
          <Stock id={id} isMine={isMine} />
          <Retune zone={zone} disabled={!isMine} />
          <section aria-label={t("nav.changes")}>
            <h2>{t("nav.changes")}</h2>
            <ChangeList zone={id} />
          </section>
          <section>
            <button
              type="button"
              class="danger"
              disabled={!may("admin")}
              aria-describedby={may("admin") ? undefined : "why-not-delete"}
              onClick={() => askDelete(zone, () => (location.hash = "#/"))}
            >
              {t("zone.delete")}
            </button>
            {!may("admin") && <Denied role="admin" id="why-not-delete" />}
          </section>
        </div>
      </div>
      <PastEvents key={id} id={id} events={listed} />
    </main>
  );
}

/** When the zone opens, by the server's clock, and what an event makes of the mode. */
function Opening({ zone, now_s }) {
  const opens_s = nextOpening(zone, now_s);
  const isAhead = opens_s !== null;
  const [wasAhead, set] = useState(isAhead);
  useEffect(() => {
    if (wasAhead && !isAhead && inForce(zone).mode === "auto" && !zone.draw?.waits_for) say(t("opens.said", { zone: zone.id }));
    set(isAhead);
  }, [isAhead]);
  const { is, event } = phaseAt(zone.events, now_s);
  const outside = is === "before" ? event.before : is === "after" ? event.after : null;
  return (
    <>
      {isAhead && (
        <p class="opens" role="timer">
          <strong>{t("opens", { span: span(Math.ceil(opens_s - now_s)) })}</strong> <span class="muted">{localOf(opens_s)}</span>
        </p>
      )}
      {outside && zone.policy.mode === "auto" && <p class="opens">{t("zone.outside", { mode: t(`mode.${outside}`), id: event.id })}</p>}
    </>
  );
}

function Retune({ zone, disabled }) {
  const fresh = () => {
    const base = snapshot(zone);
    return { base, draft: draftOf(base) };
  };
  const [refused, setRefused] = useState({});
  const [begun, set] = useState(null);
  // Until something is typed, the fields show the current definition.
  const { base, draft } = begun ?? fresh();
  const read = readDraft(draft);
  const patch = read.definition ? patchBetween(base, read.definition) : null;
  const isChanged = !patch || Object.keys(patch).length > 0;
  const box = useRef(null);
  /** Shows the server's reason at the field, if the field is an instant: other fields have their ranges here. */
  const show = ({ problem }) => {
    const [, field, why] = /^`policy\.(\w+)`: ([^]*)$/.exec(problem.detail ?? "") ?? [];
    if (!INSTANTS.some((one) => one.field === field)) return false;
    setRefused({ [field]: why });
    return true;
  };
  useEffect(() => {
    if (Object.keys(refused).length > 0) box.current.querySelector('[aria-invalid="true"]')?.focus();
  }, [refused]);
  const submit = (event) => {
    event.preventDefault();
    if (patch && isChanged) askPatch(base, patch, () => set(null), show);
  };
  return (
    <section aria-label={t("retune")}>
      <h2>{t("retune")}</h2>
      <form onSubmit={submit} noValidate ref={box}>
        <Editor
          draft={draft}
          faults={{ ...refused, ...read.faults }}
          disabled={disabled}
          why={disabled ? "why-not" : undefined}
          set={(next) => {
            set({ base, draft: next });
            setRefused({});
          }}
        />
        {begun && base.etag !== zone.etag && <p class="warning mild">{t("retune.meanwhile")}</p>}
        <div class="ends sticky">
          <button
            type="button"
            disabled={!begun}
            onClick={() => {
              set(null);
              setRefused({});
            }}
          >
            {t("reset")}
          </button>
          <button type="submit" class="main" disabled={disabled || !patch || !isChanged}>{t("review")}</button>
        </div>
      </form>
    </section>
  );
}
