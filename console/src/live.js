// The console's state, kept up to date: zones from a stream of events and from polling, the signed-in operator, and the
// feed.
//
// Invariants: the list of zones is polled even while the stream works, so a lost event costs seconds. Data on screen
// shows its age. Everything that grows has a limit.

import { Refused, call, openEvents } from "./api.js";
import { keepToken, tokenOf } from "./kept.js";
import { inForce, slotUse, slotsBetween } from "./order.js";
import { policyAt } from "./schedule.js";
import { read } from "./sse.js";

/** How often all zones are polled, in ms: with and without a stream. */
const LIST_MS = 2_000;
const POLL_MS = 1_000;
/** How often the trend lines are fetched. They have one point per minute. */
const TREND_MS = 30_000;
/** Older data is shown as out of date, ms. */
const STALE_MS = 5_000;
/** A stream without data for this time is dead, ms. The server sends something every 5 s. */
const SILENCE_MS = 12_000;
/** The number of samples that are kept per zone: five minutes, one per second. */
const SAMPLES = 300;
/** How often a sample of an idle zone is noted, in ms. */
const IDLE_MS = 20_000;
/** The number of events that the feed keeps. */
export const FEED = 500;
/** The shortest time between two reasons to ask what happened, ms. */
const HAPPENED_MS = 1_000;
/** The shortest time between two renderings, ms. */
const SHOW_MS = 250;

/** Kinds that are always requested: those that the table needs, and rare ones. */
export const RARE = [
  "ModeChanged", "PolicyChanged", "NoticeChanged", "ZoneAdded", "ZoneRemoved", "StoreLost", "StoreBack", "AdmittedUnseen", "Reloaded",
  "Limited", "Refused", "Evicted",
];
/** Kinds that the server remembers, with their authors. The feed lists them from there; an event only says that there is news. */
export const PAST = ["ModeChanged", "PolicyChanged", "NoticeChanged", "DefinitionChanged", "ZoneAdded", "ZoneRemoved", "StoreLost", "StoreBack", "Reloaded"];
/** Kinds that only the server's record has: what operators did to the server, its routes and the events of zones. */
export const ACTS = ["Drained", "Undrained", "RoutesChanged", "ScheduleChanged"];
/** Kinds of which a busy zone has thousands. They are requested only while they are shown. */
export const BUSY = ["Joined", "Entered", "StoreCalled"];
const WANTED = ["Tallied", "DefinitionChanged", ...RARE];

export const live = {
  /** The signed-in operator, as the server reports; null before its reply. */
  me: null,
  /** Why a token must be entered: null, "needed", or "refused". */
  login: null,
  /** Zones by name. */
  zones: new Map(),
  /** Whether the list of zones has arrived at least once. */
  known: false,
  /** When the list of zones last arrived: by `performance.now()`, and by the server's clock. */
  heardAt: 0,
  asOf: 0,
  /** The server's clock minus ours, in ms. */
  ahead: 0,
  /** How long the last list took to arrive, in ms. */
  took: 0,
  /** Why the last request for the list failed, or null. */
  fault: null,
  /** Whether the stream of events is open. */
  streaming: false,
  /** The events of the feed, newest first, at most FEED. */
  feed: [],
  /** The number of events that the server dropped because this page was too slow. */
  lost: 0,
  /** Increases with each change of a zone. */
  changes: 0,
  /** Increases when something happened that the server remembers. */
  happened: 0,
};

/** The time by the server's clock, in seconds since 1970: that of the last list, and the time since then. The clock of this device may be
 * wrong, and may jump. */
export const now_s = () => (live.known ? live.asOf + performance.now() - live.heardAt : Date.now()) / 1_000;

/** Notes the policy in force in a zone: its own, or that of an event. */
function judge(row) {
  row.force = policyAt(row, now_s());
}

const watchers = new Set();
let due = 0;

/** Calls `watcher` after changes, at most every SHOW_MS. Returns a function that ends it. */
export function watch(watcher) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

export function show() {
  clearTimeout(due);
  due = 0;
  for (const watcher of [...watchers]) watcher();
}

function showSoon() {
  due ||= setTimeout(show, SHOW_MS);
}

/** The age of the data on screen, in ms. */
export const age = () => (live.known ? performance.now() - live.heardAt : 0);

/** Whether the data is too old to act on. A list that takes long to arrive may be older by that time. */
export const isStale = () => live.known && age() > Math.max(STALE_MS, 3 * live.took);

/** `live`, `polling`, `stale`, or `connecting`. */
export const state = () => (!live.known ? "connecting" : isStale() ? "stale" : live.streaming ? "live" : "polling");

const ROLES = ["viewer", "operator", "admin"];
/** Whether the operator has the rights of `role`. */
export const may = (role) => ROLES.indexOf(live.me?.role) >= ROLES.indexOf(role);

// --- zones ------------------------------------------------------------------------------------------------------

const TOTALS = ["joined", "entered", "evicted", "slots_offered", "slots_used"];

const totals = (now) => Object.fromEntries(TOTALS.map((total) => [total, now[total]]));

/** Notes a sample of a zone, and its use of slots in the last minute. */
function sample(row, at) {
  const now = row.now;
  const last = row.samples.at(-1);
  if (last && TOTALS.some((total) => now[total] < last[total])) row.samples.length = 0;
  if (last && at - last.at < 500) row.samples.pop();
  const { waiting, entered_last_minute } = now;
  const seen = { at, waiting, entered_last_minute, limit: inForce(row).admit_per_minute, ...totals(now) };
  row.samples.push(seen);
  if (row.samples.length > SAMPLES) row.samples.splice(0, row.samples.length - SAMPLES);
  row.recent = slotsBetween(row.samples, at - 66_000);
  seen.use = slotUse(row);
}

/** Stores a zone as the API returned it. */
export function take(zone, at = Date.now() + live.ahead) {
  let row = live.zones.get(zone.id);
  if (!row) {
    row = { id: zone.id, samples: [], recent: null, trend: [] };
    live.zones.set(zone.id, row);
  }
  const { trend, ...rest } = zone;
  Object.assign(row, rest);
  judge(row);
  if (trend) row.trend = trend;
  const last = row.samples.at(-1);
  // An idle zone has no events, so its samples are noted less often.
  if (!last || !live.streaming || at - last.at > IDLE_MS || TOTALS.some((total) => last[total] !== row.now[total])) {
    sample(row, at);
  }
  return row;
}

/** Forgets a zone that was deleted. */
export function drop(id) {
  live.zones.delete(id);
}

let trendAt = Number.NEGATIVE_INFINITY;
let listTimer = 0;
let listing = false;
let again = false;

/** Fetches all zones, again and again. */
export async function list() {
  // One request at a time. A caller that arrives meanwhile waits for the next request, which starts later.
  if (listing) {
    again = true;
    return;
  }
  listing = true;
  clearTimeout(listTimer);
  const start = performance.now();
  const withTrend = start - trendAt > TREND_MS;
  try {
    const heard = await call("GET", withTrend ? "/zones?trend=30" : "/zones");
    live.took = performance.now() - start;
    live.ahead = heard.at - Date.now();
    live.asOf = heard.at;
    live.heardAt = performance.now();
    live.known = true;
    live.fault = null;
    const names = new Set();
    for (const zone of heard.zones) {
      names.add(zone.id);
      take(zone, heard.at);
    }
    for (const id of live.zones.keys()) if (!names.has(id)) drop(id);
    if (withTrend) {
      trendAt = start;
      whoami();
    }
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    live.fault = error;
    if (error.status === 401) needLogin();
  } finally {
    listing = false;
  }
  if (live.login) return;
  show();
  const usual = live.streaming ? LIST_MS : POLL_MS;
  const pause = again ? 0 : Math.max(usual, 4 * live.took) - (performance.now() - start);
  again = false;
  listTimer = setTimeout(list, Math.max(50, pause));
}

// --- events -----------------------------------------------------------------------------------------------------

let wanted = WANTED;
let stream = null;
let streamTimer = 0;
let tries = 0;
let numbered = 0;

let happenedTimer = 0;

/** Says at once that something happened, and once more after a second: for what happened meanwhile, and for an author who is noted
 * a moment later. */
function happened() {
  if (happenedTimer) return;
  live.happened += 1;
  happenedTimer = setTimeout(() => {
    happenedTimer = 0;
    live.happened += 1;
    show();
  }, HAPPENED_MS);
}

const hasEvents = (row) => (row.events ?? []).length > 0;

function hear(name, data) {
  if (name === "lost") {
    live.lost += JSON.parse(data).count;
    list();
    return;
  }
  if (name !== "message") return;
  const event = JSON.parse(data);
  const row = live.zones.get(event.zone);
  switch (event.kind) {
    case "Tallied":
      if (row) {
        const { kind: _, zone: __, admit_per_minute, ...now } = event;
        Object.assign(row.now, now);
        // While an event lasts, this is the event's rate.
        if (!hasEvents(row)) row.policy.admit_per_minute = admit_per_minute;
        judge(row);
        sample(row, Date.now() + live.ahead);
        showSoon();
      }
      return;
    case "PolicyChanged":
    case "ModeChanged":
      // The stream tells the policy in force. Where events change it, only the list has the zone's own.
      if (row && event.policy && !hasEvents(row)) row.policy = event.policy;
      if (row && event.mode && !hasEvents(row)) row.policy = { ...row.policy, mode: event.mode };
      if (row) judge(row);
      live.changes += 1;
      list();
      break;
    case "NoticeChanged":
    case "DefinitionChanged":
    case "ZoneAdded":
    case "ZoneRemoved":
    case "Reloaded":
      live.changes += 1;
      list();
      break;
    default:
  }
  if (PAST.includes(event.kind)) {
    happened();
    showSoon();
    return;
  }
  numbered += 1;
  live.feed.unshift({ n: numbered, at: Date.now() + live.ahead, ...event });
  if (live.feed.length > FEED) live.feed.length = FEED;
  showSoon();
}

/** Reads the stream of events, and reconnects when it ends. */
async function listen() {
  clearTimeout(streamTimer);
  stream?.abort();
  const mine = new AbortController();
  stream = mine;
  let silence = 0;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => mine.abort(), SILENCE_MS);
  };
  try {
    heard();
    const response = await openEvents(wanted, mine.signal);
    tries = 0;
    live.streaming = true;
    list();
    await read(response, (name, data) => {
      heard();
      hear(name, data);
    });
  } catch (error) {
    if (error.status === 401) needLogin();
  }
  clearTimeout(silence);
  // A stream is open already.
  if (stream !== mine) return;
  live.streaming = false;
  if (live.login) return;
  show();
  list();
  tries += 1;
  const pause = Math.min(10_000, 500 * 2 ** tries) * (0.75 + Math.random() / 2);
  streamTimer = setTimeout(listen, pause);
}

/** Also requests these busy `kinds` from now on. */
export function want(kinds) {
  const now = [...WANTED, ...kinds];
  if (now.join() === wanted.join()) return;
  wanted = now;
  if (live.me && !live.login) listen();
}

// --- the operator -------------------------------------------------------------------------------------------------

function needLogin() {
  live.login = tokenOf() ? "refused" : "needed";
  live.me = null;
  stop();
  show();
}

function stop() {
  clearTimeout(listTimer);
  clearTimeout(streamTimer);
  const mine = stream;
  stream = null;
  mine?.abort();
  live.streaming = false;
}

/** Fetches the operator again, because roles and tokens change. */
export async function whoami() {
  try {
    live.me = await call("GET", "/whoami");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 401) needLogin();
  }
  show();
}

/** Starts: fetches the operator, then the zones. It retries until the server answers. */
export async function begin() {
  try {
    live.me = await call("GET", "/whoami");
    live.login = null;
    live.fault = null;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    live.fault = error;
    if (error.status === 401) return needLogin();
    show();
    setTimeout(begin, POLL_MS);
    return;
  }
  show();
  list();
  listen();
}

/** Signs in with a token. @throws {Refused} if the server does not accept it. */
export async function enter(token) {
  await call("GET", "/whoami", { token });
  keepToken(token);
  await begin();
}

/** Forgets the token and all data that was fetched with it. */
export function leave() {
  keepToken(null);
  Object.assign(live, { known: false, zones: new Map(), feed: [], lost: 0 });
  trendAt = Number.NEGATIVE_INFINITY;
  needLogin();
}

globalThis.document?.addEventListener("visibilitychange", () => {
  if (!document.hidden && live.me) list();
});
