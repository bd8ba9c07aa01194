// Changes: previewed, confirmed and undone.
//
// Invariants: no change is made without a preview. A change names the state of the zone for which it was made (`If-
// Match`). If another operator was faster, the console shows that change and asks again.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { Refused, call, zonePath } from "./api.js";
import { toast } from "./frame.jsx";
import { useLive } from "./hooks.js";
import { drop, list, live, may, now_s, show, take, whoami } from "./live.js";
import { Editor, draftOf, readDraft } from "./editor.jsx";
import { secondOf } from "./instant.js";
import { inForce } from "./order.js";
import { DEFAULTS, MODES, differences, isZoneId, ofEvent, patchBetween, patchFor, patched, scaled } from "./policy.js";
import { Course, ModeBadge, changeText, eta, fieldName, shown } from "./parts.jsx";
import { begunDraws, courseOfChange, phaseAt } from "./schedule.js";
import { count, has, localOf, span, t } from "./words.js";

// --- jobs -------------------------------------------------------------------------------------------------------
// A job is a change to be made: {do: "patch", zone, patch} | {do: "create", id, definition} | {do: "delete", zone}.
// `zone` is the state for which it was made, with policy, notice, events and etag.

export const snapshot = (zone) =>
  structuredClone({ id: zone.id, etag: zone.etag, policy: zone.policy, notice: zone.notice ?? {}, events: zone.events ?? [] });

async function perform(job, dry) {
  const query = dry ? "?dry_run=true" : "";
  if (job.do === "create") return call("POST", `/zones${query}`, { body: { id: job.id, ...job.definition } });
  const path = zonePath(job.zone.id) + query;
  if (job.do === "delete") return call("DELETE", path, { ifMatch: job.zone.etag });
  return call("PATCH", path, { body: job.patch, ifMatch: job.zone.etag });
}

const idOf = (job) => job.id ?? job.zone.id;
const roleFor = (job) => (job.do === "patch" ? "operator" : "admin");

/** The job that undoes `change`. */
function wayBack(job, change) {
  if (job.do === "create") return { do: "delete", zone: snapshot(change.zone) };
  if (job.do === "delete") return { do: "create", id: job.zone.id, definition: change.before };
  return { do: "patch", zone: snapshot(change.zone), patch: patchBetween(change.zone, change.before) };
}

/** Stores the result of a change, announces it and offers an undo. */
function done(job, change, undone) {
  if (change.zone) take(change.zone);
  else drop(idOf(job));
  live.changes += 1;
  list();
  const back = wayBack(job, change);
  const what = job.do === "patch" ? changeText(differences(change.before, change.zone)) : "";
  const text = t(undone ? "done.undone" : `done.${job.do}`, { zone: idOf(job), what });
  toast(text, may(roleFor(back)) ? [t("undo"), () => undo(back)] : undefined);
}

/** Runs `job` without a preview: the undo of a change that was just made. */
async function undo(job) {
  try {
    done(job, await perform(job, false), true);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    open({ job, undoing: true });
  }
}

// --- open dialogs -----------------------------------------------------------------------------------------------

let opened = null;
let numbered = 0;

function open(what) {
  numbered += 1;
  opened = { n: numbered, ...what };
  show();
}

export function close() {
  opened = null;
  show();
}

/** Previews `patch` on `zone` and asks for confirmation. Calls `then` after the change. If the server refuses it, `refused` gets the
 * refusal and the job, and returns whether it shows the reason. Then the dialog closes. */
export const askPatch = (zone, patch, then, refused) => open({ job: { do: "patch", zone: snapshot(zone), patch }, then, refused });
export const askDelete = (zone, then) => open({ job: { do: "delete", zone: snapshot(zone) }, then });
export const askCreate = (id, definition) => open({ job: { do: "create", id, definition }, undoing: true });
export const askUndo = (zone, patch) => open({ job: { do: "patch", zone: snapshot(zone), patch }, undoing: true });
/** Opens the most frequent actions. */
export const quick = (zone) => open({ quick: zone.id });
export const createZone = () => open({ creating: true });
/** Asks for confirmation of something other than a change of a zone. */
export const askAny = (any) => open({ any });

export function Dialogs() {
  useLive();
  if (!opened) return null;
  const { n } = opened;
  if (opened.job) return <Confirm key={n} {...opened} />;
  if (opened.quick) return <Quick key={n} id={opened.quick} />;
  if (opened.creating) return <Create key={n} />;
  return <Any key={n} {...opened.any} />;
}

/** A dialog that holds the focus while it is open and returns it afterwards. */
function Dialog({ title, children, wide }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    const element = box.current;
    const from = document.activeElement;
    element.showModal();
    return () => {
      element.close();
      if (from?.isConnected) from.focus();
      else document.querySelector("main h1")?.focus();
    };
  }, []);
  return (
    <dialog
      ref={box}
      class={wide ? "wide" : ""}
      aria-labelledby="dialog-title"
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onKeyDown={(event) => {
        if (event.key === "Escape") {
          event.preventDefault();
          close();
        }
      }}
    >
      <h2 id="dialog-title" tabindex="-1">{title}</h2>
      {children}
    </dialog>
  );
}

// --- confirm ----------------------------------------------------------------------------------------------------

/** The consequences of a change, as keys of texts with their values. */
function consequences(job, before, after) {
  if (job.do === "delete") return [["then.delete", {}]];
  if (job.do === "create" || !before) return [];
  const found = [];
  const waiting = live.zones.get(idOf(job))?.now.waiting ?? 0;
  const [was, is] = [before.policy, after.policy];
  if (was.mode !== is.mode) found.push([`then.${is.mode}`, { waiting, rate: is.admit_per_minute }]);
  if (was.admit_per_minute !== is.admit_per_minute) {
    found.push([is.admit_per_minute > was.admit_per_minute ? "then.faster" : "then.slower", { rate: is.admit_per_minute }]);
  }
  if (was.sub_windows !== is.sub_windows) {
    found.push(["then.sub", { n: Math.ceil(is.admit_per_minute / is.sub_windows), s: 60 / is.sub_windows }]);
  }
  if (was.polling_period_ms !== is.polling_period_ms) {
    found.push([is.polling_period_ms > was.polling_period_ms ? "then.rarer" : "then.oftener", {}]);
  }
  if (was.opens_at !== is.opens_at) {
    const opens_s = secondOf(is.opens_at);
    if (opens_s === null) found.push(["then.opens.none", {}]);
    else if (opens_s <= now_s()) found.push(["then.opens.past", {}]);
    else found.push(["then.opens", { at: localOf(opens_s), span: span(opens_s - now_s()), rate: is.admit_per_minute }]);
    if (opens_s !== null && is.mode !== "auto") found.push(["then.opens.mode", { mode: t(`mode.${is.mode}`) }]);
  }
  const { is: phase, event } = phaseAt(after.events, now_s());
  const isOwn = (field) => was[field] !== is[field] && event?.[field] !== undefined && (phase === "prequeue" || phase === "open");
  if (isOwn("admit_per_minute") || isOwn("max_active")) found.push(["then.event", { id: event.id }]);
  for (const { id } of begunDraws(before.events, after.events, now_s())) found.push(["then.draw.begun", { id }]);
  const areEvents = JSON.stringify(before.events) !== JSON.stringify(after.events);
  if (areEvents && is.mode !== "auto") found.push(["schedule.stopped", { mode: t(`mode.${is.mode}`) }]);
  return found;
}

/** Whether the waits before and after a change can be compared: the server plans with the zone's own policy, and an event has another. */
const areWaitsKnown = (before, after) =>
  [before, after].every((definition) => !definition || phaseAt(definition.events, now_s()).is === "usual");

const isDanger = (job, after) =>
  job.do === "delete" || ["closed", "open"].includes(job.patch?.policy?.mode) || (after?.policy.mode === "closed" && job.do === "create");

/** The reason of a refusal as text. */
function refusal(error, dry) {
  const { problem, code } = error;
  if (code === "unreachable") return t(dry ? "refused.unreachable.dry" : "refused.unreachable");
  if (code === "forbidden") return t("refused.forbidden");
  if (code === "out_of_range" && problem.field) {
    const field = has(`field.${problem.field}`) ? fieldName(problem.field) : String(problem.field);
    return t("refused.out_of_range", { field, low: Number(problem.low), high: Number(problem.high) });
  }
  if (has(`refused.${code}`)) return t(`refused.${code}`);
  return t("refused", { status: error.status, code: code || "?", detail: problem.detail ?? "" });
}

function Confirm({ job: first, then, undoing, refused }) {
  const [job, setJob] = useState(first);
  const [step, set] = useState({ is: "asking" });
  const [typed, setTyped] = useState("");
  const go = useRef(null);
  const title = useRef(null);

  const failed = async (error, dry) => {
    if (!(error instanceof Refused)) throw error;
    // The role may have changed.
    if (error.status === 401 || error.status === 403) whoami();
    if (error.status !== 412) {
      if (refused?.(error, job)) return close();
      return set({ is: "refused", error, dry });
    }
    // The problem document holds the current zone; if it does not, fetch it.
    let now = error.problem.zone;
    try {
      now ??= await call("GET", zonePath(idOf(job)));
    } catch {
      return set({ is: "refused", error, dry });
    }
    if (now?.now) take(now);
    set({ is: "conflict", now: snapshot(now) });
  };
  useEffect(() => {
    let over = false;
    set({ is: "asking" });
    perform(job, true).then(
      (change) => over || set({ is: "shown", change }),
      (error) => over || failed(error, true),
    );
    return () => {
      over = true;
    };
  }, [job]);
  useEffect(() => {
    if (step.is === "shown" && job.do !== "delete") go.current?.focus();
    else if (step.is === "conflict" || step.is === "refused") go.current?.focus();
  }, [step.is]);

  const apply = async (event) => {
    event.preventDefault();
    set({ ...step, is: "applying" });
    try {
      const change = await perform(job, false);
      close();
      done(job, change, undoing && job.do === "patch");
      then?.();
    } catch (error) {
      await failed(error, false);
    }
  };

  const zone = idOf(job);
  const heading = t(undoing ? "confirm.undo" : `confirm.${job.do}`, { zone });
  const before = step.change?.before ?? null;
  const after = step.change?.zone ?? (job.do === "patch" ? patched(job.zone, job.patch) : null);
  const rows = step.change && job.do !== "delete" ? differences(before, after) : [];
  const nothing = step.change && job.do === "patch" && rows.length === 0;
  const danger = isDanger(job, after);
  return (
    <Dialog title={heading}>
      <form onSubmit={apply}>
        {step.is === "asking" && <p class="muted">{t("confirm.asking")}</p>}
        {step.change && (
          <>
            {nothing && <p>{t("confirm.nothing")}</p>}
            {rows.length > 0 && <Differences rows={rows} isNew={job.do === "create"} />}
            {consequences(job, before, after).map(([key, values]) => (
              <p class={danger ? "then danger" : "then"}>{t(key, values)}</p>
            ))}
            {after && before && <Course steps={courseOfChange(before, after, now_s())} now_s={now_s()} />}
            <Etas etas={areWaitsKnown(before, after) ? step.change.etas ?? [] : []} />
            {job.do === "delete" && (
              <label class="typed">
                {t("confirm.type", { zone })}
                <input value={typed} autocomplete="off" spellcheck={false} onInput={(event) => setTyped(event.target.value)} />
              </label>
            )}
          </>
        )}
        {step.is === "conflict" && (
          <>
            <p class="then danger" role="alert">{t("conflict")}</p>
            <Differences rows={differences(job.zone, step.now)} was={t("conflict.was")} is={t("conflict.is")} />
            <p>{t("conflict.how")}</p>
          </>
        )}
        {step.is === "refused" && <p class="then danger" role="alert">{refusal(step.error, step.dry)}</p>}
        <div class="ends">
          <button type="button" onClick={close}>{t(step.is === "refused" || nothing ? "close" : "cancel")}</button>
          {step.is === "conflict" && (
            <button type="button" class="main" ref={go} onClick={() => setJob({ ...job, zone: step.now, patch: job.patch && patchFor(job.patch, job.zone, step.now) })}>
              {t("conflict.again")}
            </button>
          )}
          {(step.is === "asking" || step.change) && !nothing && step.is !== "conflict" && step.is !== "refused" && (
            <button
              type="submit"
              ref={go}
              class={danger ? "main danger" : "main"}
              disabled={step.is !== "shown" || (job.do === "delete" && typed !== zone)}
            >
              {step.is === "applying" ? t("confirm.applying") : t(danger && job.do === "patch" ? `confirm.do.${after.policy.mode}` : `confirm.do.${job.do}`)}
            </button>
          )}
        </div>
      </form>
    </Dialog>
  );
}

function Differences({ rows, was, is, isNew }) {
  return (
    <table class="diff">
      <thead>
        <tr>
          <th scope="col">{t("diff.field")}</th>
          {!isNew && <th scope="col">{was ?? t("diff.before")}</th>}
          <th scope="col">{is ?? t("diff.after")}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ field, before, after }) => (
          <tr class={ofEvent(field) ? "event" : undefined}>
            <th scope="row">{fieldName(field)}</th>
            {!isNew && <td class="was">{shown(field, before)}</td>}
            <td class="is">{shown(field, after)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Etas({ etas }) {
  if (etas.length === 0) return null;
  const wait = (seconds) => (seconds === null || seconds === undefined ? t("eta.never") : seconds === 0 ? t("eta.now") : span(seconds));
  return (
    <table class="diff">
      <caption>{t("etas")}</caption>
      <thead>
        <tr>
          <th scope="col">{t("etas.place")}</th>
          <th scope="col">{t("diff.before")}</th>
          <th scope="col">{t("diff.after")}</th>
        </tr>
      </thead>
      <tbody>
        {etas.map(({ place, rank, before_s, after_s }) => (
          <tr>
            <th scope="row">{t(`etas.${place}`, { rank })}</th>
            <td class="was">{wait(before_s)}</td>
            <td class="is">{wait(after_s)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

// --- frequent actions ----------------------------------------------------------------------------------

/** Buttons for the mode and the rate of `zone`. */
export function Levers({ zone, disabled, why }) {
  const rate = zone.policy.admit_per_minute;
  const step = (by) => {
    const to = scaled(rate, by);
    return (
      <button
        type="button"
        disabled={disabled || to === rate}
        aria-describedby={why}
        onClick={() => askPatch(zone, { policy: { admit_per_minute: to } })}
      >
        {t(by < 1 ? "rate.half" : "rate.double")} <span class="n">{count(to)}</span>
      </button>
    );
  };
  return (
    <div class="levers">
      <div role="group" aria-label={t("field.mode")} class="segments">
        {MODES.map((mode) => (
          <button
            type="button"
            class={`mode-${mode}`}
            aria-pressed={zone.policy.mode === mode}
            aria-describedby={why}
            disabled={disabled}
            title={t(`mode.${mode}.long`)}
            onClick={() => zone.policy.mode !== mode && askPatch(zone, { policy: { mode } })}
          >
            {t(`mode.${mode}`)}
          </button>
        ))}
      </div>
      <div role="group" aria-label={t("field.admit_per_minute")} class="steps">
        {step(0.5)}
        {step(2)}
      </div>
    </div>
  );
}

function Quick({ id }) {
  const live = useLive();
  const zone = live.zones.get(id);
  if (!zone) return null;
  return (
    <Dialog title={id}>
      <p class="facts">
        <ModeBadge mode={inForce(zone).mode} />
        <span>{t("quick.facts", { waiting: zone.now.waiting, rate: inForce(zone).admit_per_minute, eta: eta(zone) })}</span>
      </p>
      <Levers zone={zone} />
      <div class="ends">
        <a class="button" href={`#/zones/${encodeURIComponent(id)}`} onClick={close}>{t("quick.more")}</a>
        <button type="button" onClick={close}>{t("cancel")}</button>
      </div>
    </Dialog>
  );
}

// --- a new zone -------------------------------------------------------------------------------------------------

function Create() {
  const [id, setId] = useState("");
  const [draft, set] = useState(() => draftOf({ policy: DEFAULTS, notice: {}, events: [] }));
  const read = readDraft(draft);
  const bad = id !== "" && !isZoneId(id);
  const taken = live.zones.has(id);
  const submit = (event) => {
    event.preventDefault();
    if (isZoneId(id) && !taken && read.definition) open({ job: { do: "create", id, definition: read.definition } });
  };
  return (
    <Dialog title={t("zone.new")} wide>
      <form onSubmit={submit} noValidate>
        <label class="field">
          <span>{t("zone.id")}</span>
          <input
            value={id}
            autocomplete="off"
            spellcheck={false}
            maxLength={64}
            aria-invalid={bad || taken}
            aria-describedby="zone-id-fault"
            onInput={(event) => setId(event.target.value.trim())}
          />
        </label>
        <p id="zone-id-fault" class={bad || taken ? "fault" : "muted"}>{t(taken ? "refused.zone_exists" : "zone.id.how")}</p>
        <Editor draft={draft} faults={read.faults} set={set} />
        <div class="ends">
          <button type="button" onClick={close}>{t("cancel")}</button>
          <button type="submit" class="main" disabled={!isZoneId(id) || taken || !read.definition}>{t("review")}</button>
        </div>
      </form>
    </Dialog>
  );
}

// --- anything else ----------------------------------------------------------------------------------------------

function Any({ title, text, label, act, said }) {
  const [error, set] = useState(null);
  const go = useRef(null);
  useEffect(() => go.current.focus(), []);
  const apply = async (event) => {
    event.preventDefault();
    try {
      await act();
      close();
      toast(said);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      set(error);
    }
  };
  return (
    <Dialog title={title}>
      <form onSubmit={apply}>
        <p class="then danger">{text}</p>
        {error && <p class="then danger" role="alert">{refusal(error, false)}</p>}
        <div class="ends">
          <button type="button" onClick={close}>{t("cancel")}</button>
          <button type="submit" class="main danger" ref={go}>{label}</button>
        </div>
      </form>
    </Dialog>
  );
}
