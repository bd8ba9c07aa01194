// What happened, as the server remembers it: changes of zones with their authors, stores lost and back, reloads.
//
// Invariant: an event of one of these kinds is listed by the server's record only, so it is listed once, with its author, also if it
// happened before this page was opened.

import { call } from "./api.js";

/** The kind of a change, as the stream of events names it. */
function kindOf({ before, after }) {
  if (!before) return "ZoneAdded";
  if (!after) return "ZoneRemoved";
  if (before.policy.mode !== after.policy.mode) return "ModeChanged";
  if (JSON.stringify(before.policy) !== JSON.stringify(after.policy)) return "PolicyChanged";
  return JSON.stringify(before.events ?? []) === JSON.stringify(after.events ?? []) ? "NoticeChanged" : "ScheduleChanged";
}

/** Rows of the feed, the newest first, from the replies about changes and about past events. */
export function rowsOf(changes, events) {
  const ofChange = (change) => ({ kind: kindOf(change), change: true, ...change });
  const rows = [...changes.map(ofChange), ...events].sort((a, b) => b.at - a.at);
  // Two rows of one moment are told apart by their place behind it, which stays when newer ones come.
  const seen = new Map();
  for (const row of rows.toReversed()) {
    const moment = `${row.at} ${row.kind} ${row.zone ?? ""}`;
    const nth = (seen.get(moment) ?? 0) + 1;
    seen.set(moment, nth);
    row.n = `${moment} ${nth}`;
  }
  return rows;
}

/** Asks the server. @throws {Refused} */
export async function history() {
  const [{ changes }, { events }] = await Promise.all([call("GET", "/changes"), call("GET", "/events/past")]);
  return rowsOf(changes, events);
}
