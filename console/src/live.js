// What the console knows, kept up to date: zones by a stream of events and by asking, who is asking, what happened.
//
// Invariants: the list of zones is asked for again and again whatever the stream says, so a lost event costs seconds;
// what is shown says how old it is; everything that grows has a limit.

import { Refused, call, openEvents } from "./api.js";
import { keepToken, tokenOf } from "./kept.js";
import { slotUse, slotsBetween } from "./order.js";
import { read } from "./sse.js";

/** How often all zones are asked for, in ms: beside a stream, and without one. */
const LIST_MS = 2_000;
const POLL_MS = 1_000;
/** How often the trend lines are asked for, which have a point a minute. */
const TREND_MS = 30_000;
/** Data that is older is shown as old. */
const STALE_MS = 5_000;
/** A stream says something every 5 s, if only that it is there. */
const SILENCE_MS = 12_000;
/** How many samples of a zone are kept: five minutes, one a second. */
const SAMPLES = 300;
/** How often an idle zone is noted, in ms. */
const IDLE_MS = 20_000;
/** How many events are kept for the feed. */
export const FEED = 500;
/** How often what has changed is shown. */
const SHOW_MS = 250;

/** Kinds that are always asked for: what the table needs, and what is rare. */
export const RARE = [
  "ModeChanged", "PolicyChanged", "NoticeChanged", "ZoneAdded", "ZoneRemoved", "StoreLost", "StoreBack", "AdmittedUnseen", "Reloaded",
  "Limited", "Refused", "Evicted",
];
/** Kinds that a hot zone has thousands of: asked for while somebody looks at them. */
export const BUSY = ["Joined", "Entered", "StoreCalled"];
const WANTED = ["Tallied", ...RARE];

export const live = {
  /** Who the server takes us for; null until it said. */
  me: null,
  /** Why a token is asked for: null, "needed", or "refused". */
  login: null,
  /** Zones by name. */
  zones: new Map(),
  /** Whether the zones were heard at least once. */
  known: false,
  /** When the zones were heard last: by `performance.now()`, and by the server's clock. */
  heardAt: 0,
  asOf: 0,
  /** The server's clock less ours, in ms. */
  ahead: 0,
  /** How long the last list took to come, in ms. */
  took: 0,
  /** Why the list did not come last time, or null. */
  fault: null,
  /** Whether the stream of events is open. */
  streaming: false,
  /** The newest first, at most FEED. */
  feed: [],
  /** Events that the server says we were too slow for. */
  lost: 0,
  /** Grows with each change of a zone that was heard of. */
  changes: 0,
};

const watchers = new Set();
let due = 0;

/** Calls `watcher` when something has changed, at most every SHOW_MS. Gives what ends that. */
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

/** How old what is shown is, in ms. */
export const age = () => (live.known ? performance.now() - live.heardAt : 0);

/** Whether what is shown is too old to be gone by. A list that takes long to come may be as old as that. */
export const isStale = () => live.known && age() > Math.max(STALE_MS, 3 * live.took);

/** `live`, `polling`, `stale`, or `connecting`. */
export const state = () => (!live.known ? "connecting" : isStale() ? "stale" : live.streaming ? "live" : "polling");

const ROLES = ["viewer", "operator", "admin"];
/** Whether we may do what `role` may. */
export const may = (role) => ROLES.indexOf(live.me?.role) >= ROLES.indexOf(role);

// --- zones ------------------------------------------------------------------------------------------------------

const TOTALS = ["joined", "entered", "evicted", "slots_offered", "slots_used"];

const totals = (now) => Object.fromEntries(TOTALS.map((total) => [total, now[total]]));

/** Notes what a zone was just seen to have, and what its slots came to in the last minute. */
function sample(row, at) {
  const now = row.now;
  const last = row.samples.at(-1);
  if (last && TOTALS.some((total) => now[total] < last[total])) row.samples.length = 0;
  if (last && at - last.at < 500) row.samples.pop();
  const { waiting, entered_last_minute } = now;
  const seen = { at, waiting, entered_last_minute, limit: row.policy.admit_per_minute, ...totals(now) };
  row.samples.push(seen);
  if (row.samples.length > SAMPLES) row.samples.splice(0, row.samples.length - SAMPLES);
  row.recent = slotsBetween(row.samples, at - 66_000);
  seen.use = slotUse(row);
}

/** Takes a zone as the API gave it. */
export function take(zone, at = Date.now() + live.ahead) {
  let row = live.zones.get(zone.id);
  if (!row) {
    row = { id: zone.id, samples: [], recent: null, trend: [] };
    live.zones.set(zone.id, row);
  }
  const { trend, ...rest } = zone;
  Object.assign(row, rest);
  if (trend) row.trend = trend;
  const last = row.samples.at(-1);
  // An idle zone has no events, and is told less often.
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

/** Asks for all zones, and goes on asking. */
export async function list() {
  // One at a time; who wants it meanwhile wants what is asked for after that.
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
        row.policy.admit_per_minute = admit_per_minute;
        sample(row, Date.now() + live.ahead);
        showSoon();
      }
      return;
    case "PolicyChanged":
    case "ModeChanged":
      if (row && event.policy) row.policy = event.policy;
      if (row && event.mode) row.policy = { ...row.policy, mode: event.mode };
      live.changes += 1;
      list();
      break;
    case "NoticeChanged":
    case "ZoneAdded":
    case "ZoneRemoved":
    case "Reloaded":
      live.changes += 1;
      list();
      break;
    default:
  }
  numbered += 1;
  live.feed.unshift({ n: numbered, at: Date.now() + live.ahead, ...event });
  if (live.feed.length > FEED) live.feed.length = FEED;
  showSoon();
}

/** Listens, and goes on listening. */
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
  // Somebody else listens already.
  if (stream !== mine) return;
  live.streaming = false;
  if (live.login) return;
  show();
  list();
  tries += 1;
  const pause = Math.min(10_000, 500 * 2 ** tries) * (0.75 + Math.random() / 2);
  streamTimer = setTimeout(listen, pause);
}

/** Also asks for `kinds` of the busy ones from now on. */
export function want(kinds) {
  const now = [...WANTED, ...kinds];
  if (now.join() === wanted.join()) return;
  wanted = now;
  if (live.me && !live.login) listen();
}

// --- who we are -------------------------------------------------------------------------------------------------

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

/** Asks again who we are: roles change, and so do tokens. */
export async function whoami() {
  try {
    live.me = await call("GET", "/whoami");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.status === 401) needLogin();
  }
  show();
}

/** Begins: says who we are, and then what there is. Tries for as long as nobody answers. */
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

/** Comes in with a token. @throws {Refused} where the server does not take it. */
export async function enter(token) {
  await call("GET", "/whoami", { token });
  keepToken(token);
  await begin();
}

/** Forgets the token and all that was seen with it. */
export function leave() {
  keepToken(null);
  Object.assign(live, { known: false, zones: new Map(), feed: [], lost: 0 });
  trendAt = Number.NEGATIVE_INFINITY;
  needLogin();
}

globalThis.document?.addEventListener("visibilitychange", () => {
  if (!document.hidden && live.me) list();
});
