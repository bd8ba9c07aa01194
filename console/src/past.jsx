// The events of a zone that are over, and those that were deleted or moved: their sums, and the data of their reports.
//
// Invariant: every figure is that of the server's report, which `weir event report` writes, too. Reports are fetched one after the other,
// without their minutes; one whose time is over is fetched once.

import { useEffect, useRef, useState } from "preact/hooks";

import { Refused, call, zonePath } from "./api.js";
import { say } from "./frame.jsx";
import { secondOf } from "./instant.js";
import { count, dayOf, localOf, span, spokenOf, t } from "./words.js";

const COLUMNS = ["event", "began", "lasted", "order", "joined", "entered", "left", "longest", "data"];

/** The name of an event may have been used before, so its beginning says which one it is. */
const reportPath = (zone, { id, begins }) => `${zonePath(zone)}/events/${encodeURIComponent(id)}/report?begins=${encodeURIComponent(begins)}`;

/** When an event began, on the clock of this place if that can be computed. */
const beganOf = ({ begins }) => {
  const begins_s = secondOf(begins);
  return begins_s === null ? begins : localOf(begins_s);
};

/** Another definition of an event has another report. */
const keyOf = ({ event, deleted_at }) => JSON.stringify([event, deleted_at]);

const longest = ({ waits_known, longest_wait_s }) => (waits_known > 0 ? span(longest_wait_s) : "–");

/** Hands a document to the browser, which saves it as a file. */
function save(name, value) {
  const url = URL.createObjectURL(new Blob([`${JSON.stringify(value, null, 2)}\n`], { type: "application/json" }));
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: name });
  link.click();
  URL.revokeObjectURL(url);
}

/** The past ones of `events`, which the server listed, the last one first. */
const pastOf = (events) => events.filter(({ is }) => is === "over").reverse();

export function PastEvents({ id, events }) {
  const [, again] = useState(0);
  /** The reports by what they are about: the report, or why there is none. */
  const reports = useRef(new Map());
  const [fault, setFault] = useState("");
  const latest = useRef(events);
  latest.current = events;
  const isBusy = useRef(false);
  const isGone = useRef(false);
  useEffect(() => () => (isGone.current = true), []);
  const fetchReports = async () => {
    for (const one of pastOf(latest.current)) {
      const known = reports.current.get(keyOf(one));
      if (known?.made >= known?.to) continue;
      try {
        reports.current.set(keyOf(one), await call("GET", `${reportPath(id, one.event)}&minutes=false`));
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        if (!known) reports.current.set(keyOf(one), { why: error.message || error.code });
      }
      if (isGone.current) return;
      again((n) => n + 1);
    }
  };
  useEffect(() => {
    if (isBusy.current) return;
    isBusy.current = true;
    fetchReports().finally(() => (isBusy.current = false));
  }, [events]);
  const past = pastOf(events);
  if (past.length === 0) return null;

  const download = async ({ event }) => {
    setFault("");
    try {
      save(`${id}-${event.id}.json`.replaceAll(":", "_"), await call("GET", reportPath(id, event)));
      say(t("past.saved", { id: event.id }));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setFault(t("past.refused", { id: event.id, why: error.message || error.code }));
    }
  };
  const reportOf = (one) => reports.current.get(keyOf(one));
  const figure = (one, of) => {
    const report = reportOf(one);
    return report?.sums ? of(report.sums) : report ? "–" : "…";
  };
  const notes = past.flatMap((one) => {
    const report = reportOf(one);
    const texts = report?.why ? [t("past.unknown", { why: report.why })] : (report?.missing ?? []).map(spokenOf);
    return texts.map((text) => [one.event, text]);
  });
  return (
    <section class="past" aria-labelledby="past-title">
      <h2 id="past-title">{t("past")}</h2>
      <table class="plain cards" role="table" aria-labelledby="past-title">
        <thead role="rowgroup">
          <tr role="row">{COLUMNS.map((column) => <th role="columnheader" scope="col">{t(`past.${column}`)}</th>)}</tr>
        </thead>
        <tbody role="rowgroup">
          {past.map((one) => {
            const { event, deleted_at } = one;
            const [begins_s, ends_s] = [secondOf(event.begins), secondOf(event.ends)];
            const cells = {
              began: beganOf(event),
              lasted: begins_s === null || ends_s === null ? "–" : span(ends_s - begins_s),
              order: t(`order.${event.order ?? "arrival"}`),
              joined: figure(one, ({ joined }) => count(joined)),
              entered: figure(one, ({ entered }) => count(entered)),
              left: figure(one, ({ left }) => count(left)),
              longest: figure(one, longest),
            };
            return (
              <tr role="row" key={keyOf(one)}>
                <th role="rowheader" scope="row">
                  {event.id}
                  {deleted_at !== null && <> <span class="badge warn" title={dayOf(deleted_at)}>{t("past.deleted")}</span></>}
                </th>
                {Object.entries(cells).map(([name, cell]) => <td role="cell" data-label={t(`past.${name}`)}>{cell}</td>)}
                <td role="cell" data-label={t("past.data")}>
                  <button type="button" onClick={() => download(one)}>{t("past.save")}<span class="unseen"> {event.id}, {beganOf(event)}</span></button>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {fault && <p class="then danger" role="alert">{fault}</p>}
      {notes.length > 0 && <ul class="muted">{notes.map(([event, text]) => <li><b>{event.id}</b> ({beganOf(event)}): {text}</li>)}</ul>}
      <p class="muted">{t("past.how")}</p>
    </section>
  );
}
