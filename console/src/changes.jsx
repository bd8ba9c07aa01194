// The list of changes, with their authors and an undo.
//
// Invariant: an undo is a change like any other and is previewed too.

import { useState } from "preact/hooks";

import { Refused, call } from "./api.js";
import { askCreate, askDelete, askUndo } from "./change.jsx";
import { useEvery, useLive, usePage } from "./hooks.js";
import { live, may } from "./live.js";
import { Denied, changeText, fieldName, shown } from "./parts.jsx";
import { differences, ofEvent, patchBetween, patchFor, patched } from "./policy.js";
import { dayOf, t } from "./words.js";

const ASK_MS = 10_000;

export function Changes() {
  useLive();
  const heading = usePage(t("nav.changes"));
  return (
    <main id="main">
      <div class="head"><h1 ref={heading} tabindex="-1">{t("nav.changes")}</h1></div>
      <p class="muted">{t("changes.how")}</p>
      {!may("operator") && <Denied role="operator" id="why-not" />}
      <ChangeList />
    </main>
  );
}

/** The changes of one zone, or of all zones. */
export function ChangeList({ zone }) {
  const live = useLive();
  const [heard, set] = useState(null);
  const [fault, setFault] = useState(null);
  useEvery(ASK_MS, async (isOver) => {
    try {
      const answer = await call("GET", zone ? `/changes?zone=${encodeURIComponent(zone)}` : "/changes");
      if (!isOver()) set(answer.changes);
      setFault(null);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setFault(error);
    }
  }, [zone, live.changes]);
  if (!heard) return <p class="empty">{t(fault ? "changes.away" : "loading")}</p>;
  if (heard.length === 0) return <p class="empty">{t("changes.none")}</p>;
  return (
    <ol class="changes">
      {heard.map((change) => <Change key={`${change.at} ${change.zone}`} change={change} withZone={!zone} />)}
    </ol>
  );
}

function Change({ change, withZone }) {
  const { at, who, role, zone, before, after } = change;
  const now = live.zones.get(zone);
  const back = before && after && now ? patchFor(patchBetween(after, before), after, now) : null;
  const isBack = back && Object.keys(patchBetween(now, patched(now, back))).length === 0;
  const undo = () => {
    if (before && after) askUndo(now, back);
    else if (after) askDelete(now);
    else askCreate(zone, before);
  };
  const can = may(before && after ? "operator" : "admin") && (after ? Boolean(now) : !now) && !isBack;
  return (
    <li>
      <div class="what">
        {withZone && <><a href={`#/zones/${encodeURIComponent(zone)}`}>{zone}</a>{" "}</>}
        {!before && <span>{t("changes.created")}</span>}
        {!after && <span>{t("changes.deleted")}</span>}
        {before && after && (
          <ul>
            {differences(before, after).map((row) => (
              <li>
                {ofEvent(row.field)?.part === "" ? changeText([row]) : <>{fieldName(row.field)} <del>{shown(row.field, row.before)}</del> → <ins>{shown(row.field, row.after)}</ins></>}
              </li>
            ))}
          </ul>
        )}
      </div>
      <div class="by muted">
        <time dateTime={new Date(at).toISOString()}>{dayOf(at)}</time>
        {" · "}
        {who ? t("changes.by", { who, role: role ? t(`role.${role}`) : "" }) : t("changes.elsewhere")}
      </div>
      <button type="button" disabled={!can} onClick={undo}>
        {t(isBack ? "undone" : "undo")}
        <span class="unseen"> {zone}, {dayOf(at)}</span>
      </button>
    </li>
  );
}
