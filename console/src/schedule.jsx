// The events of a zone: the list with their countdowns, and the form that adds or changes one.
//
// Invariants: a draft keeps what was typed, as date and time or as text. It belongs to the state of the zone at which it was begun. A
// change sends all events; those that a colleague changed meanwhile stay as they are.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { askPatch, snapshot } from "./change.jsx";
import { Here, Notices, noticesOf, readNotices } from "./editor.jsx";
import { allZones, hereZone, isSure, isZone, partsOf, readInstant, secondOf, writeInstant } from "./instant.js";
import { live, now_s as serverNow } from "./live.js";
import { Course, instant, shownPart } from "./parts.jsx";
import { NUMBERS, isZoneId } from "./policy.js";
import { FALLBACKS, MAX_EVENTS, MOMENTS, ORDERS, OUTSIDE, PAGES, PARTS, USUAL_PREQUEUE_S, begunDraws, courseOfChange, eventFaults, rebased, refusedPart, sortedEvents, stateOf } from "./schedule.js";
import { has, span, t } from "./words.js";

const COUNTS = ["admit_per_minute", "max_active"];
const TONES = { before: "note", prequeue: "warn", drawing: "warn", open: "good", over: "" };

// --- drafts -----------------------------------------------------------------------------------------------------

/** A moment for editing: date and time in the zone of the event, or a text. */
function momentOf(written, zone) {
  const parts = partsOf(written);
  return parts?.zone === zone ? { date: parts.date, time: parts.time, text: null } : { date: "", time: "", text: written };
}

/** A moment as it is sent; empty while the date or the time is missing. */
const writtenOf = ({ date, time, text }, zone) => (text !== null ? text.trim() : date && time ? `${date}T${time}[${zone}]` : "");

const BLANK = { date: "", time: "", text: null };

function draftOf(event) {
  const zone = event ? MOMENTS.map((name) => partsOf(event[name])?.zone).find(Boolean) ?? hereZone() : hereZone();
  return {
    id: event?.id ?? "",
    zone,
    ...Object.fromEntries(MOMENTS.map((name) => [name, event ? momentOf(event[name], zone) : BLANK])),
    /** Until it is typed, the beginning of the pre-queue follows the start. */
    follows: !event,
    before: event?.before ?? "usual",
    after: event?.after ?? "usual",
    ...Object.fromEntries(Object.keys(PAGES).map((name) => [name, event?.[name] ?? ""])),
    order: event?.order ?? "arrival",
    randomness: event?.randomness ?? "drand",
    fallback: event?.fallback ?? "wait",
    ...Object.fromEntries(COUNTS.map((name) => [name, event?.[name] === undefined ? "" : String(event[name])])),
    notice: noticesOf(event?.notice),
  };
}

/** The draft with the pre-queue at its usual distance from the start, if nobody typed another one. */
function following(draft) {
  const begins_s = secondOf(writtenOf(draft.begins, draft.zone));
  if (!draft.follows || begins_s === null || !isZone(draft.zone)) return draft;
  return { ...draft, prequeue_from: momentOf(writeInstant(begins_s - USUAL_PREQUEUE_S, draft.zone), draft.zone) };
}

/** Reads a draft: the event, what is wrong by part, and what is missing. */
function readDraft(draft, others) {
  const moments = Object.fromEntries(MOMENTS.map((name) => [name, writtenOf(draft[name], draft.zone)]));
  const event = { id: draft.id, ...moments, before: draft.before, after: draft.after };
  for (const [name, of] of Object.entries(PAGES)) if (draft[of] === "closed" && draft[name].trim() !== "") event[name] = draft[name].trim();
  const [faults, missing] = [{}, {}];
  if (draft.id === "") missing.id = t("event.needed");
  else if (!isZoneId(draft.id)) faults.id = t("event.id.wrong", { id: draft.id });
  for (const name of MOMENTS) {
    if (moments[name] === "") missing[name] = t("event.needed");
    else if (isSure(readInstant(moments[name]).fault)) faults[name] = t(readInstant(moments[name]).fault);
  }
  for (const name of COUNTS) {
    const { low, high } = NUMBERS.find(({ field }) => field === name);
    const typed = draft[name].trim();
    if (typed === "") continue;
    const value = /^\d{1,9}$/.test(typed) ? Number(typed) : Number.NaN;
    if (!(value >= low && value <= high)) faults[name] = t("range", { low, high });
    event[name] = value;
  }
  if (draft.order === "draw") Object.assign(event, { order: "draw", randomness: draft.randomness.trim(), fallback: draft.fallback });
  if (draft.order === "draw" && !/^(drand|stated: .+)$/.test(event.randomness)) faults.randomness = t("event.randomness.how");
  const notice = readNotices(draft.notice, faults);
  if (Object.keys(notice).length > 0) event.notice = notice;
  for (const [part, [key, values]] of Object.entries(eventFaults(event, others))) faults[part] ??= t(key, values);
  return { event, faults, missing };
}

// --- the section ------------------------------------------------------------------------------------------------

export function Schedule({ zone, listed, isMine }) {
  /** What is edited: `{base, id, draft}`, where `id` is null for a new event. */
  const [form, set] = useState(null);
  const heading = useRef(null);
  const events = sortedEvents(zone.events);
  const now_s = serverNow();
  const [over, ahead] = [events.filter((event) => stateOf(event, now_s) === "over"), events.filter((event) => stateOf(event, now_s) !== "over")];
  const begin = (event) => set({ base: snapshot(zone), id: event?.id ?? null, draft: draftOf(event) });
  const [ended, setEnded] = useState(0);
  // After the dialog has given the focus back: the form, which had it, is gone.
  useEffect(() => {
    if (ended > 0) heading.current?.focus();
  }, [ended]);
  const end = () => {
    set(null);
    setEnded(ended + 1);
  };
  /** A form for another event goes on from the state after the deletion, if it was begun on the state before. */
  const without = (id, etag) => (form) => {
    if (!form || form.id === id) return null;
    return form.base.etag === etag ? { ...form, base: snapshot(live.zones.get(zone.id)) } : form;
  };
  const remove = ({ id }) => {
    // The zone is another one by the time of the deletion.
    const { etag } = zone;
    askPatch(zone, { events: events.filter((event) => event.id !== id) }, () => set(without(id, etag)));
  };
  const one = (event) => (
    <Event key={event.id} event={event} zone={zone.id} draw={zone.draw?.event === event.id ? zone.draw : null} armed={armedOf(listed, event)} now_s={now_s} isMine={isMine} change={() => begin(event)} remove={() => remove(event)} />
  );
  return (
    <section class="schedule" aria-labelledby="schedule-title">
      <div class="tools">
        <h2 id="schedule-title" ref={heading} tabindex="-1">{t("schedule")}</h2>
        <span class="space" />
        {isMine && <button type="button" disabled={form !== null || events.length >= MAX_EVENTS} onClick={() => begin(null)}>{t("event.new")}</button>}
      </div>
      {events.length === 0 && !form && <p class="muted">{t("schedule.none")}</p>}
      {ahead.length > 0 && zone.policy.mode !== "auto" && <p class="warning mild">{t("schedule.stopped", { mode: t(`mode.${zone.policy.mode}`) })}</p>}
      {ahead.length > 0 && <ul class="scheduled">{ahead.map(one)}</ul>}
      {over.length > 0 && (
        <details>
          <summary>{t("schedule.over", { n: over.length })}</summary>
          <ul class="scheduled">{over.map(one)}</ul>
        </details>
      )}
      {form && isMine && <EventForm key={form.id ?? ""} form={form} set={set} end={end} zone={zone} />}
    </section>
  );
}

/** Which servers have read an event, if the server listed the event as it is now. */
const armedOf = (listed, event) => listed.find((one) => JSON.stringify(one.event) === JSON.stringify(event))?.armed ?? null;

/** Whether all servers have read an event, and which have not. */
function Armed({ armed: { servers, with: count, without, unknown } }) {
  if (count === servers) return <p class="muted">{t(servers === 1 ? "armed.one" : "armed.all", { n: servers })}</p>;
  return (
    <p class={without.length > 0 ? "warning mild" : "muted"}>
      {t("armed.some", { n: servers, armed: count })}
      {without.length > 0 && ` ${t("armed.without", { names: without.join(", ") })}`}
      {unknown.length > 0 && ` ${t("armed.unknown", { names: unknown.join(", ") })}`}
    </p>
  );
}

/** What a draw waits for whose event has begun, and since when people should be entering. */
function Drawing({ draw: { event, waits_for, round, source, overdue_s, trouble }, zone }) {
  if (!waits_for) return null;
  return (
    <p class={overdue_s > 0 ? "warning mild" : "muted"}>
      {has(`draw.${waits_for}`) && t(`draw.${waits_for}`, { round: String(round), source, zone, event })}
      {overdue_s > 0 && <> <b>{t("draw.overdue", { span: span(overdue_s) })}</b></>}
      {trouble && waits_for !== "value" && ` ${t("draw.trouble", { why: trouble })}`}
    </p>
  );
}

function Event({ event, zone, draw, armed, now_s, isMine, change, remove }) {
  const state = draw?.waits_for ? "drawing" : stateOf(event, now_s);
  const until = state === "open" || state === "drawing" ? "ends" : "begins";
  const rest = PARTS.filter((name) => !MOMENTS.includes(name) && name !== "notice" && event[name] !== undefined && event[name] !== "usual");
  return (
    <li>
      <div class="what">
        <strong>{event.id}</strong>{" "}
        {state && <span class={`badge ${TONES[state]}`}>{t(`phase.${state}`)}</span>}{" "}
        {state && state !== "over" && (
          <span class="muted" role="timer">{t(`event.in.${until}`, { span: span(Math.ceil(secondOf(event[until]) - now_s)) })}</span>
        )}
      </div>
      <dl>
        {MOMENTS.map((name) => [<dt>{t(`event.part.${name}`)}</dt>, <dd>{instant(event[name])}</dd>])}
        {rest.map((name) => [<dt>{t(`event.part.${name}`)}</dt>, <dd>{shownPart(name, event[name])}</dd>])}
        {Object.entries(event.notice ?? {}).map(([tag, text]) => [<dt>{t("field.notice", { tag })}</dt>, <dd lang={tag}>{text}</dd>])}
      </dl>
      {draw && <Drawing draw={draw} zone={zone} />}
      {armed && <Armed armed={armed} />}
      {isMine && (
        <div class="acts">
          <button type="button" onClick={change}>{t("event.change")}<span class="unseen"> {event.id}</span></button>
          <button type="button" class="danger" onClick={remove}>{t("event.delete")}<span class="unseen"> {event.id}</span></button>
        </div>
      )}
    </li>
  );
}

// --- the form ---------------------------------------------------------------------------------------------------

function EventForm({ form: { base, id, draft }, set, end, zone }) {
  const box = useRef(null);
  /** What the server refused, and whether the form was sent with something missing. */
  const [refused, setRefused] = useState(null);
  const [tried, setTried] = useState(0);
  useEffect(() => {
    box.current.querySelector("input:not(:disabled)")?.focus();
  }, []);
  useEffect(() => {
    if (refused || tried > 0) box.current.querySelector('[aria-invalid="true"], [role="alert"]')?.focus();
  }, [refused, tried]);

  const others = base.events.filter((event) => event.id !== id);
  const { event, faults: wrong, missing } = readDraft(draft, others);
  const faults = { ...(refused?.part ? { [refused.part]: refused.why } : {}), ...(tried > 0 ? missing : {}), ...wrong };
  const isWhole = Object.keys(wrong).length === 0 && Object.keys(missing).length === 0;
  const wanted = sortedEvents([...others, event]);
  const now_s = serverNow();
  const steps = isWhole ? courseOfChange(base, { policy: base.policy, events: wanted }, now_s) : [];

  const put = (what) => {
    setRefused(null);
    set({ base, id, draft: following({ ...draft, ...what }) });
  };
  const submit = (sent) => {
    sent.preventDefault();
    if (!isWhole) return setTried(tried + 1);
    setRefused(null);
    askPatch(base, { events: rebased(base.events, wanted, base.events) }, end, (error, job) => {
      if (error.status !== 400 && error.status !== 422) return false;
      // The draft goes on from the state that the refused change was for.
      set({ base: job.zone, id, draft });
      setRefused(refusedPart(error.problem, event.id, job.patch.events));
      return true;
    });
  };
  const zones = useMemo(() => allZones().map((name) => <option value={name} />), []);
  const label = id ? t("event.change.long", { id }) : t("event.new");
  const part = (name) => t(`event.part.${name}`);
  const fieldId = (name) => `event-${name}`;
  const hint = (name, text) => (
    <small id={`event-${name}-how`} class={faults[name] ? "fault" : "muted"}>{faults[name] ?? text}</small>
  );
  const count = (name) => (
    <div class="field">
      <label for={fieldId(name)}>{part(name)}</label>
      <input
        id={fieldId(name)}
        inputMode="numeric"
        autocomplete="off"
        value={draft[name]}
        placeholder={shownPart(name, base.policy[name])}
        aria-invalid={Boolean(faults[name])}
        aria-describedby={`event-${name}-how`}
        onInput={(typed) => put({ [name]: typed.target.value })}
      />
      {hint(name, t("event.count.how"))}
    </div>
  );
  const choice = (name, words, of) => (
    <div class="field">
      <label for={fieldId(name)}>{part(name)}</label>
      <select id={fieldId(name)} value={draft[name]} aria-describedby={`event-${name}-how`} onChange={(chosen) => put({ [name]: chosen.target.value })}>
        {words.map((word) => <option value={word}>{t(`${of}.${word}`)}</option>)}
      </select>
      {hint(name, t(`event.${name}.how`))}
    </div>
  );
  const text = (name, how = t(`event.${name}.how`)) => (
    <div class="field">
      <label for={fieldId(name)}>{part(name)}</label>
      <input
        id={fieldId(name)}
        autocomplete="off"
        spellcheck={false}
        value={draft[name]}
        aria-invalid={Boolean(faults[name])}
        aria-describedby={`event-${name}-how`}
        onInput={(typed) => put({ [name]: typed.target.value })}
      />
      {hint(name, how)}
    </div>
  );
  const draw = draft.order === "draw" && (
    <>
      {text("randomness")}
      {choice("fallback", FALLBACKS, "fallback")}
    </>
  );
  return (
    <form class="event" onSubmit={submit} noValidate ref={box} aria-label={label}>
      <h3>{label}</h3>
      {!id && (
        <div class="field">
          <label for="event-id">{part("id")}</label>
          <input
            id="event-id"
            autocomplete="off"
            spellcheck={false}
            maxLength={64}
            value={draft.id}
            aria-invalid={Boolean(faults.id)}
            aria-describedby="event-id-how"
            onInput={(typed) => put({ id: typed.target.value.trim() })}
          />
          {hint("id", t("zone.id.how"))}
        </div>
      )}
      <div class="field wide">
        <label for="event-zone">{t("event.zone")}</label>
        <input
          id="event-zone"
          list="time-zones"
          autocomplete="off"
          spellcheck={false}
          value={draft.zone}
          aria-invalid={!isZone(draft.zone)}
          aria-describedby="event-zone-how"
          onInput={(typed) => put({ zone: typed.target.value.trim() })}
        />
        <datalist id="time-zones">{zones}</datalist>
        <small id="event-zone-how" class={isZone(draft.zone) ? "muted" : "fault"}>{t(isZone(draft.zone) ? "event.zone.how" : "instant.zone")}</small>
      </div>
      {["begins", "prequeue_from", "ends"].map((name) => (
        <MomentField
          key={name}
          name={name}
          moment={draft[name]}
          zone={draft.zone}
          fault={faults[name]}
          how={name === "prequeue_from" ? t("event.prequeue_from.how") : ""}
          set={(moment) => put({ [name]: moment, ...(name === "prequeue_from" ? { follows: false } : {}) })}
        />
      ))}
      {choice("order", ORDERS, "order")}
      {draw}
      {choice("before", OUTSIDE, "outside")}
      {draft.before === "closed" && text("before_page", t("event.page.how"))}
      {choice("after", OUTSIDE, "outside")}
      {draft.after === "closed" && text("after_page", t("event.page.how"))}
      {COUNTS.map(count)}
      <Notices draft={draft} faults={faults} set={(notice) => put({ notice })} name="event-notice" legend={t("event.notice")} />
      {faults.notice && <p class="fault" role="alert" tabindex="-1">{faults.notice}</p>}
      {refused && !refused.part && <p class="then danger" role="alert" tabindex="-1">{t("event.refused", { why: refused.why })}</p>}
      {base.policy.mode !== "auto" && <p class="then danger">{t("schedule.stopped", { mode: t(`mode.${base.policy.mode}`) })}</p>}
      {isWhole && steps.length === 0 && (secondOf(event.ends) ?? Number.POSITIVE_INFINITY) <= now_s && <p class="then">{t("course.over")}</p>}
      {isWhole && begunDraws(base.events, [event], now_s).map(({ id }) => <p class="then">{t("then.draw.begun", { id })}</p>)}
      <Course steps={steps} now_s={now_s} />
      {base.etag !== zone.etag && <p class="warning mild">{t("retune.meanwhile")}</p>}
      <div class="ends">
        <button type="button" onClick={end}>{t("cancel")}</button>
        <button type="submit" class="main">{t("review")}</button>
      </div>
    </form>
  );
}

/** A moment of an event: date and time, or a text. */
function MomentField({ name, moment, zone, fault, how, set }) {
  const label = t(`event.part.${name}`);
  const written = writtenOf(moment, zone);
  const isText = moment.text !== null;
  const known_s = secondOf(written);
  const id = `event-${name}`;
  const shared = { "aria-invalid": Boolean(fault), "aria-describedby": `${id}-how` };
  // Fields hold whole minutes. What they cannot hold stays a text.
  const parts = isText && known_s !== null && isZone(zone) ? partsOf(writeInstant(known_s, zone)) : null;
  const turn = () => {
    if (!isText) set({ ...moment, text: written });
    else set(parts ? { date: parts.date, time: parts.time, text: null } : BLANK);
  };
  return (
    <fieldset class="field moment">
      <legend>{label}</legend>
      <div class="row">
        {isText ? (
          <input
            class="long"
            autocomplete="off"
            spellcheck={false}
            aria-label={t("moment.text", { label })}
            placeholder={t("moment.form")}
            value={moment.text}
            {...shared}
            onInput={(event) => set({ ...moment, text: event.target.value })}
          />
        ) : (
          <>
            <input type="date" aria-label={t("moment.date", { label })} value={moment.date} {...shared} onInput={(event) => set({ ...moment, date: event.target.value })} />
            <input type="time" aria-label={t("moment.time", { label })} value={moment.time} {...shared} onInput={(event) => set({ ...moment, time: event.target.value })} />
          </>
        )}
        <button type="button" disabled={isText && written !== "" && !parts} onClick={turn}>{t(isText ? "moment.asFields" : "moment.asText")}<span class="unseen"> {label}</span></button>
      </div>
      <small id={`${id}-how`} class={fault ? "fault" : "muted"}>{fault ?? (written ? <Here text={written} /> : how)}</small>
    </fieldset>
  );
}
