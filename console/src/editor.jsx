// The fields of a definition for editing.
//
// Invariant: a draft keeps the text as it was typed, even if it is not a number. It becomes a definition only as a whole.

import { useState } from "preact/hooks";

import { isSure, readInstant } from "./instant.js";
import { now_s } from "./live.js";
import { INSTANTS, MAX_LANGUAGES, MAX_NOTICE, NUMBERS, WORDS, faults as faultsOf, noticeFault } from "./policy.js";
import { count, localOf, span, t } from "./words.js";

/** The draft of a definition. */
export function draftOf({ policy, notice, events }) {
  const texts = {};
  for (const { field } of INSTANTS) texts[field] = policy[field] ?? "";
  for (const { field } of NUMBERS) texts[field] = String(policy[field]);
  for (const { field } of WORDS) texts[field] = policy[field];
  return { ...texts, notice: noticesOf(notice), events: events ?? [] };
}

/** The texts of a notice for editing. */
export const noticesOf = (notice) =>
  Object.entries(notice ?? {}).sort(([a], [b]) => (a < b ? -1 : 1)).map(([tag, text], n) => ({ n, tag, text }));

/** Reads the texts of a notice, and notes the faults by their numbers. */
export function readNotices(notices, faults) {
  const notice = {};
  for (const { n, tag, text } of notices) {
    const fault = tag in notice ? "notice.twice" : noticeFault(tag, text);
    if (fault) faults[`notice ${n}`] = t(fault);
    notice[tag] = text;
  }
  return notice;
}

/** Reads a draft: `definition`, or null with `faults` by field. */
export function readDraft(draft) {
  const policy = {};
  for (const { field } of WORDS) policy[field] = draft[field];
  for (const { field } of NUMBERS) policy[field] = /^\s*\d{1,9}\s*$/.test(draft[field]) ? Number(draft[field]) : Number.NaN;
  const faults = {};
  for (const [field, { low, high }] of Object.entries(faultsOf(policy))) faults[field] = t("range", { low, high });
  for (const { field } of INSTANTS) {
    const text = draft[field].trim();
    const { fault } = text ? readInstant(text) : {};
    // What is not read here may be right. The server decides.
    if (isSure(fault)) faults[field] = t(fault);
    policy[field] = text || null;
  }
  const notice = readNotices(draft.notice, faults);
  const isRight = Object.keys(faults).length === 0;
  return { definition: isRight ? { policy, notice, events: draft.events } : null, faults };
}

function NumberField({ field, low, high, draft, fault, disabled, why, onInput }) {
  const id = `field-${field}`;
  return (
    <div class="field">
      <label for={id}>{t(`field.${field}`)}</label>
      <input
        id={id}
        inputMode="numeric"
        autocomplete="off"
        value={draft[field]}
        disabled={disabled}
        aria-invalid={Boolean(fault)}
        aria-describedby={`${id}-how ${why ?? ""}`}
        onInput={(event) => onInput(event.target.value)}
        onKeyDown={(event) => {
          const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
          const value = Number(draft[field]);
          if (!by || !Number.isInteger(value)) return;
          event.preventDefault();
          // The step is a tenth of the magnitude: 10,000 changes by 1,000.
          const step = Math.max(1, 10 ** (Math.floor(Math.log10(Math.max(1, value))) - 1));
          onInput(String(Math.min(high, Math.max(low, value + by * step))));
        }}
      />
      <small id={`${id}-how`} class={fault ? "fault" : "muted"}>{fault ?? t(`field.${field}.how`)}</small>
    </div>
  );
}

/** What the clocks here show at an instant that is written as `text`, and how far away it is. */
export function Here({ text }) {
  const { unix_s, fault } = readInstant(text);
  if (fault) return t(fault);
  const away_s = unix_s - now_s();
  return t(away_s > 0 ? "instant.ahead" : "instant.past", { here: localOf(unix_s), span: span(Math.abs(away_s)) });
}

function InstantField({ field, draft, fault, disabled, why, onInput }) {
  const id = `field-${field}`;
  const text = draft[field].trim();
  return (
    <div class="field instant">
      <label for={id}>{t(`field.${field}`)}</label>
      <input
        id={id}
        autocomplete="off"
        spellcheck={false}
        value={draft[field]}
        placeholder={t("instant.none")}
        disabled={disabled}
        aria-invalid={Boolean(fault)}
        aria-describedby={`${id}-here ${id}-how ${why ?? ""}`}
        onInput={(event) => onInput(event.target.value)}
      />
      <small id={`${id}-here`} class={fault ? "fault" : "here"}>{fault ?? (text && <Here text={text} />)}</small>
      <small id={`${id}-how`} class="muted">{t(`field.${field}.how`)}</small>
    </div>
  );
}

/** The fields. `set` receives the next draft. */
export function Editor({ draft, faults, set, disabled, why }) {
  const put = (field) => (value) => set({ ...draft, [field]: value });
  const number = (one) => (
    <NumberField
      key={one.field}
      {...one}
      draft={draft}
      fault={faults[one.field]}
      disabled={disabled}
      why={why}
      onInput={put(one.field)}
    />
  );
  const choice = ({ field, words }) => (
    <fieldset key={field} class="field" disabled={disabled} aria-describedby={why}>
      <legend>{t(`field.${field}`)}</legend>
      {words.map((value) => (
        <label class="radio">
          <input type="radio" name={field} value={value} checked={draft[field] === value} onChange={() => put(field)(value)} />
          <span>{t(`${field}.${value}`)} <small class="muted">{t(`${field}.${value}.long`)}</small></span>
        </label>
      ))}
    </fieldset>
  );
  const moment = ({ field }) => (
    <InstantField key={field} field={field} draft={draft} fault={faults[field]} disabled={disabled} why={why} onInput={put(field)} />
  );
  const rest = NUMBERS.filter((one) => !one.main);
  const isBadBelow = rest.some((one) => faults[one.field]);
  return (
    <>
      {WORDS.filter((one) => one.main).map(choice)}
      {NUMBERS.filter((one) => one.main).map(number)}
      {INSTANTS.map(moment)}
      <Notices draft={draft} faults={faults} set={put("notice")} disabled={disabled} why={why} />
      <details open={isBadBelow || undefined}>
        <summary>{t("more")}</summary>
        {rest.map(number)}
        {WORDS.filter((one) => !one.main).map(choice)}
      </details>
    </>
  );
}

/** The texts for people who wait. `name` tells the forms of a page apart. */
export function Notices({ draft, faults, set, disabled, why, name = "notice", legend = t("notice") }) {
  const notices = draft.notice;
  const [wanted, want] = useState("");
  const change = (n, what) => set(notices.map((one) => (one.n === n ? { ...one, ...what } : one)));
  const add = (tag) => {
    set([...notices, { n: Math.max(0, ...notices.map((one) => one.n)) + 1, tag, text: "" }]);
    want("");
  };
  const usual = ["ko", "en"].filter((tag) => !notices.some((one) => one.tag === tag));
  const isBad = wanted !== "" && (noticeFault(wanted, "-") || notices.some((one) => one.tag === wanted));
  return (
    <fieldset class="field notices" disabled={disabled} aria-describedby={why}>
      <legend>{legend}</legend>
      <small class="muted">{t("notice.how")}</small>
      {notices.map(({ n, tag, text }) => (
        <div class="notice" key={n}>
          <label for={`${name}-${n}`}><span class="badge">{tag}</span> <span class="muted">{count([...text].length)} / {count(MAX_NOTICE)}</span></label>
          <button type="button" class="quiet" aria-label={t("notice.remove", { tag })} onClick={() => set(notices.filter((one) => one.n !== n))}>✕</button>
          <textarea
            id={`${name}-${n}`}
            rows={2}
            lang={tag}
            aria-label={t("field.notice", { tag })}
            aria-invalid={Boolean(faults[`notice ${n}`])}
            value={text}
            onInput={(event) => change(n, { text: event.target.value })}
          />
          {faults[`notice ${n}`] && <small class="fault">{faults[`notice ${n}`]}</small>}
        </div>
      ))}
      {notices.length < MAX_LANGUAGES && (
        <div class="add">
          {usual.map((tag) => <button type="button" onClick={() => add(tag)}>+ {tag}</button>)}
          <input
            aria-label={t("notice.tag")}
            placeholder={t("notice.tag")}
            size={10}
            maxLength={35}
            value={wanted}
            aria-invalid={Boolean(isBad)}
            onInput={(event) => want(event.target.value.trim().toLowerCase())}
          />
          <button type="button" disabled={wanted === "" || Boolean(isBad)} onClick={() => add(wanted)}>{t("add")}</button>
        </div>
      )}
    </fieldset>
  );
}
