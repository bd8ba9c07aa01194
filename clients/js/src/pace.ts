// When to ask again. Pure: random numbers and times are arguments.
//
// Invariants: the client asks up to 5 % before the period that it was told has passed, and never after it by its own choice. It never
// tries again before `Retry-After` of Weir. No pause is longer than LONGEST_PAUSE_MS, because timers of 2^31 ms and more fire at once.

/** The longest time that a call may take, in milliseconds. It is also the longest back-off without a `Retry-After`. */
export const SLOWEST_MS = 15_000;

/**
 * The longest `Retry-After` of a reply that is not Weir's, in milliseconds: SLOWEST_MS with the quarter that is added to it. Whoever sends it
 * does not know that a silent place is lost.
 */
export const LONGEST_AWAY_MS = SLOWEST_MS / 1.25;

/** The longest pause, in milliseconds: a day. Whoever is told to wait longer asks once a day. */
export const LONGEST_PAUSE_MS = 86_400_000;

/** The shortest and the longest period that a reply may tell, in milliseconds. Weir tells 60 s at most. */
const SHORTEST_PERIOD_MS = 100;
const LONGEST_PERIOD_MS = 600_000;

const within = (least: number, value: number, most: number): number => Math.min(Math.max(value, least), most);

/** A told period that is not absurd, in milliseconds. */
export const periodWithin = (toldMs: number): number => within(SHORTEST_PERIOD_MS, toldMs, LONGEST_PERIOD_MS);

/** The pause until the next poll, in milliseconds. The server delays an early reply, but cannot help a late poll. */
export const untilPoll = (periodMs: number, random: number): number => periodMs * (1 - random / 20);

/** The pause until a stream is opened again, in milliseconds, unless it says another one. Weir's say 1 to 3 s, spread over the line. */
export const REOPEN_MS = 1_000;

/** The pause that a stream's `retry` says, in milliseconds. Whatever is no number of milliseconds says nothing. */
export const reopenWithin = (retry: string): number =>
  /^\d+$/.test(retry) ? within(SHORTEST_PERIOD_MS, Number(retry), SLOWEST_MS) : REOPEN_MS;

/**
 * The pause until a stream is opened again, in milliseconds, where `short` streams in a row did not last. It doubles with each of them after
 * the first, up to 15 s, and is up to a quarter more, so that a crowd does not come back at once.
 */
export const untilReopen = (toldMs: number, short: number, random: number): number =>
  Math.min(SLOWEST_MS, toldMs * 2 ** Math.max(0, short - 1)) * (1 + random / 4);

/** The pause of a tab that just heard news from another one, in milliseconds. If the other tab falls silent, one of the rest asks first. */
export const untilOwnPoll = (periodMs: number, random: number): number => periodMs * 1.05 + 500 * (1 + random);

/**
 * The pause after a failure, in milliseconds.
 * Without `Retry-After` it doubles with each failure up to 15 s, less up to a half at random. With it, it is at least that, and up to a
 * quarter more, so that a crowd does not come back at once. A closed zone tells the instant of its next opening: there the
 * back-off does not count, because a later comer gets a later place.
 */
export function untilRetry(problem: { code: string; retryAfterMs: number }, failures: number, random: () => number): number {
  const backoffMs = Math.min(SLOWEST_MS, 1_000 * 2 ** Math.min(failures, 10)) * (1 - random() / 2);
  const leastMs = problem.code === "zone_closed" && problem.retryAfterMs > 0 ? 0 : backoffMs;
  return Math.min(LONGEST_PAUSE_MS, Math.max(problem.retryAfterMs * (1 + random() / 4), leastMs));
}

/**
 * The milliseconds of a `Retry-After`; 0 if there is none or it cannot be read. Weir sends seconds. A proxy may add a line of its own,
 * which `fetch` joins with a comma: the longest counts. A proxy may also send a date, which is compared with the reply's own `Date`, because
 * the device's clock may be wrong.
 */
export function retryAfterMs(headers: { get(name: string): string | null }): number {
  const text = headers.get("retry-after")?.trim() ?? "";
  if (/^\d+(?:[ \t]*,[ \t]*\d+)*$/.test(text)) return Math.max(...text.split(",").map(Number)) * 1_000;
  const ms = dateMs(text) - dateMs(headers.get("date") ?? "");
  return Number.isFinite(ms) ? Math.max(0, ms) : 0;
}

/** The time of a date of HTTP, as RFC 9110 lets it be sent. `Date.parse` takes much more for a date: also "2, 2", a day in 2001. */
function dateMs(text: string): number {
  const ms = Date.parse(text);
  return new Date(ms).toUTCString() === text ? ms : NaN;
}
