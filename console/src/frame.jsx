// The frame around every page: navigation, state of the connection, the signed-in operator, and recent actions.
//
// Invariant: a screen reader announces only what matters: the connection lost and restored, finished actions, and search
// results.

import { useEffect, useState } from "preact/hooks";

import { useLive, useMedia } from "./hooks.js";
import { forget, keep, kept } from "./kept.js";
import { age, leave, show, state } from "./live.js";
import { LANGUAGES, choose, span, spoken, t, timeOf } from "./words.js";

// --- announcements ----------------------------------------------------------------------------------------------

const said = { text: "", at: 0 };
const toasts = [];
const MANY_TOASTS = 3;
let numbered = 0;

/** Lets screen readers announce `text`. */
export function say(text) {
  said.text = text;
  said.at += 1;
  show();
}

/** Shows `text` until it is dismissed, with an optional action: `[label, action]`. */
export function toast(text, action) {
  numbered += 1;
  toasts.push({ n: numbered, text, action });
  if (toasts.length > MANY_TOASTS) toasts.shift();
  show();
}

function putAway(n) {
  const at = toasts.findIndex((one) => one.n === n);
  if (at >= 0) toasts.splice(at, 1);
  show();
}

export function Toasts() {
  useLive();
  return (
    <>
      <div class="toasts" role="region" aria-label={t("toasts")} aria-live="polite">
        {toasts.map((one) => (
          <div key={one.n} class="toast">
            <span>{one.text}</span>
            {one.action && (
              <button
                type="button"
                onClick={() => {
                  putAway(one.n);
                  one.action[1]();
                }}
              >
                {one.action[0]}
              </button>
            )}
            <button type="button" class="quiet" aria-label={t("putAway")} onClick={() => putAway(one.n)}>✕</button>
          </div>
        ))}
      </div>
      {/* Said again even where it is the same. */}
      <p class="unseen" role="status">{said.text + "\u00a0".repeat(said.at % 2)}</p>
    </>
  );
}

// --- theme ------------------------------------------------------------------------------------------------------

export function dress() {
  const theme = kept("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

const isDark = () => {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

/** Whether the page is dark, by choice or by the system. */
export function useDark() {
  useMedia("(prefers-color-scheme: dark)");
  return isDark();
}

function turn() {
  const to = isDark() ? "light" : "dark";
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  if (to === system) forget("theme");
  else keep("theme", to);
  dress();
  show();
}

// --- the bar ----------------------------------------------------------------------------------------------------

const PAGES = [["", "nav.zones"], ["events", "nav.events"], ["changes", "nav.changes"], ["routes", "nav.routes"], ["servers", "nav.servers"]];

function Pulse() {
  const is = state();
  return (
    <span class={`pulse ${is}`} title={t(`state.${is}.long`)} data-state={is}>
      <span class="dot" aria-hidden="true" />
      {t(`state.${is}`)}
      {is === "stale" && <span class="secs"> {span(age() / 1_000)}</span>}
    </span>
  );
}

export function Bar({ page }) {
  const live = useLive();
  const dark = useDark();
  const me = live.me;
  return (
    <header class="bar">
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        document.querySelector("main h1")?.focus();
      }}>{t("skip")}</a>
      <a class="name" href="#/" aria-label="Weir">
        <img src="/admin/assets/icon.svg" alt="" width="24" height="24" />
        <span>Weir</span>
      </a>
      {me && (
        <nav aria-label={t("nav")}>
          {PAGES.map(([path, name]) => (
            <a href={`#/${path}`} aria-current={page === (path || "zones") ? "page" : undefined}>{t(name)}</a>
          ))}
        </nav>
      )}
      <span class="space" />
      {me && <Pulse />}
      {me && (
        <span class="me" title={t("me.long", { name: me.name, role: t(`role.${me.role}`), server: me.server, version: me.version })}>
          {me.name} <span class="badge">{t(`role.${me.role}`)}</span>
        </span>
      )}
      <span class="switches">
        {Object.keys(LANGUAGES).filter((language) => language !== spoken()).map((language) => (
          <button
            type="button"
            class="quiet"
            lang={language}
            onClick={() => {
              choose(language);
              show();
            }}
          >
            {LANGUAGES[language].language}
          </button>
        ))}
        <button type="button" class="quiet" aria-label={t(dark ? "theme.toLight" : "theme.toDark")} title={t(dark ? "theme.toLight" : "theme.toDark")} onClick={turn}>
          <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">
            <circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.6" />
            <path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" />
          </svg>
        </button>
        {me?.authenticated && <button type="button" class="quiet" onClick={leave}>{t("leave")}</button>}
      </span>
    </header>
  );
}

/** Shows clearly that the data on screen is out of date. */
export function Warning() {
  const live = useLive();
  const is = state();
  const [was, set] = useState(is);
  const { status, code } = live.fault ?? { status: 0 };
  const why = status ? t("stale.said", { status, code: code || "?" }) : t("stale.silent");
  useEffect(() => {
    if (was === "stale" && is !== "stale") say(t("back"));
    set(is);
  }, [is]);
  return (
    <div role="alert">
      {is === "stale" && (
        <p class="warning">
          <strong>{t("stale", { time: timeOf(live.asOf) })}</strong>{" "}
          {why}
        </p>
      )}
      {!live.known && live.fault && !live.login && <p class="warning"><strong>{t("stale.never")}</strong> {why}</p>}
    </div>
  );
}
