// The feed of events: what the server remembers, and what happens while the page is open.
//
// Invariant: the feed can be paused. Events that arrive meanwhile are kept up to the limit of the feed, and counted.

import { useEffect, useState } from "preact/hooks";

import { Refused } from "./api.js";
import { history } from "./history.js";
import { useEvery, useLive, usePage } from "./hooks.js";
import { ACTS, BUSY, FEED, RARE, want } from "./live.js";
import { changeText, shown } from "./parts.jsx";
import { differences } from "./policy.js";
import { count, dayOf, has, span, t } from "./words.js";

/** How often the server is asked what happened if the stream says nothing, in ms. */
const ASK_MS = 10_000;

/** The number of rows that are drawn. */
const ROWS = 200;
/** The selection, kept while other pages are shown. */
const chosen = { kinds: new Set([...RARE, ...ACTS]), zone: "", stopped: null };

const TONES = {
  StoreLost: "bad", AdmittedUnseen: "bad", Limited: "warn", Refused: "warn", StoreBack: "good", ZoneAdded: "good",
  ModeChanged: "note", PolicyChanged: "note", NoticeChanged: "note", ScheduleChanged: "note", ZoneRemoved: "note",
};

/** What a change changed. */
const changed = ({ before, after }) => changeText(differences(before, after));

/** Who did it, if a person did. A change without an author was made at another server, or in the file. */
function author({ change, who, role }) {
  if (who) return t("changes.by", { who, role: role ? t(`role.${role}`) : "" });
  return change ? t("changes.elsewhere") : "–";
}

/** The text of an event. */
function told(event) {
  if (event.change && event.before && event.after) return changed(event);
  const { kind, n: _, at: __, zone: ___, ...fields } = event;
  if (event.change) fields.policy = event.after?.policy;
  if (!has(`event.${kind}`)) return JSON.stringify(fields);
  const values = { ...fields };
  if (kind === "ModeChanged") values.mode = t(`mode.${fields.mode}`);
  if (kind === "Refused") values.why = has(`refused.why.${fields.why}`) ? t(`refused.why.${fields.why}`) : fields.why;
  if (kind === "Entered") Object.assign(values, { waited: span(fields.waited_ms / 1_000), told: span(fields.told_s) });
  if (kind === "StoreBack") values.away = span(fields.away_ms / 1_000);
  if (kind === "Limited") values.after = span(fields.retry_after_s);
  if (kind === "StoreCalled") values.end = t(fields.ok ? "event.ok" : "event.failed");
  if (kind === "Reloaded") return t(fields.ok ? "event.Reloaded" : "event.Reloaded.bad");
  if (fields.policy) {
    values.mode = t(`mode.${fields.policy.mode}`);
    values.rate = shown("admit_per_minute", fields.policy.admit_per_minute);
  }
  return t(`event.${kind}`, values);
}

export function Events() {
  const live = useLive();
  const heading = usePage(t("nav.events"));
  const [, redraw] = useState(0);
  const choose = (what) => {
    Object.assign(chosen, what);
    want(BUSY.filter((kind) => chosen.kinds.has(kind)));
    redraw((n) => n + 1);
  };
  useEffect(() => {
    want(BUSY.filter((kind) => chosen.kinds.has(kind)));
    return () => want([]);
  }, []);
  const flip = (kind) => {
    const kinds = new Set(chosen.kinds);
    if (!kinds.delete(kind)) kinds.add(kind);
    choose({ kinds });
  };
  const [past, setPast] = useState([]);
  const [fault, setFault] = useState(null);
  useEvery(ASK_MS, async (isOver) => {
    try {
      const heard = await history();
      if (!isOver()) setPast(heard);
      setFault(null);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setFault(error);
    }
  }, [live.happened]);
  const all = [...past, ...live.feed].sort((a, b) => b.at - a.at);
  const feed = chosen.stopped ?? all;
  const known = new Set(chosen.stopped?.map((event) => event.n));
  const missed = chosen.stopped ? all.filter((event) => !known.has(event.n)).length : 0;
  const search = chosen.zone.toLowerCase();
  const rows = feed
    .filter((event) => chosen.kinds.has(event.kind) && (search === "" || (event.zone ?? "").toLowerCase().includes(search)))
    .slice(0, ROWS);
  const kind = (name) => (
    <button type="button" class="chip" aria-pressed={chosen.kinds.has(name)} onClick={() => flip(name)}>
      {t(`kind.${name}`)}
    </button>
  );
  return (
    <main id="main">
      <div class="head">
        <h1 ref={heading} tabindex="-1">{t("nav.events")}</h1>
        <span class="space" />
        <button type="button" onClick={() => choose({ stopped: chosen.stopped ? null : all })}>
          {chosen.stopped ? t("feed.go") : t("feed.stop")}
        </button>
      </div>
      <div class="tools">
        <label class="search">
          <span class="unseen">{t("feed.zone")}</span>
          <input type="search" placeholder={t("feed.zone")} value={chosen.zone} onInput={(event) => choose({ zone: event.target.value })} />
        </label>
        <div class="chips" role="group" aria-label={t("feed.rare")}>{[...RARE, ...ACTS].map(kind)}</div>
        <div class="chips" role="group" aria-label={t("feed.busy")}>
          <span class="muted">{t("feed.busy")}</span> {BUSY.map(kind)}
        </div>
      </div>
      <p class="muted">
        {chosen.stopped ? t("feed.stopped", { n: missed >= FEED ? `${count(FEED)}+` : missed }) : t("feed.how", { n: FEED })}
      </p>
      {live.lost > 0 && <p class="warning mild">{t("lost", { n: live.lost })}</p>}
      {fault && <p class="warning mild">{t("feed.past.away")}</p>}
      {!live.streaming && <p class="warning mild">{t("feed.away")}</p>}
      {rows.length === 0 ? (
        <p class="empty">{t("feed.none")}</p>
      ) : (
        <table class="feed" aria-label={t("nav.events")}>
          <thead>
            <tr>
              <th scope="col">{t("column.time")}</th>
              <th scope="col">{t("column.kind")}</th>
              <th scope="col">{t("column.zone")}</th>
              <th scope="col">{t("column.what")}</th>
              <th scope="col">{t("column.who")}</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((event) => (
              <tr key={event.n}>
                <td><time dateTime={new Date(event.at).toISOString()}>{dayOf(event.at)}</time></td>
                <td><span class={`badge ${TONES[event.kind] ?? ""}`}>{t(`kind.${event.kind}`)}</span></td>
                <td>{event.zone ? <a href={`#/zones/${encodeURIComponent(event.zone)}`}>{event.zone}</a> : "–"}</td>
                <td>{told(event)}</td>
                <td>{author(event)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </main>
  );
}
