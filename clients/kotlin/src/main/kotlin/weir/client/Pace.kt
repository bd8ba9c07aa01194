// When to ask again. Pure: random numbers and times are arguments.
//
// Invariants: the client asks up to 5 % before the period that it was told has passed, and never after it by its own choice. It never
// tries again before `Retry-After` of Weir. No pause is longer than a day.

package weir.client

import java.time.DateTimeException
import java.time.Duration
import java.time.ZonedDateTime
import java.time.format.DateTimeFormatter.RFC_1123_DATE_TIME
import kotlin.math.max
import kotlin.math.min

/** The longest time that a call may take, in milliseconds. It is also the longest back-off without a `Retry-After`. */
internal const val SLOWEST_MS: Long = 15_000

/**
 * The longest `Retry-After` of a reply that is not Weir's, in milliseconds: SLOWEST_MS with the quarter that is added to it. Whoever sends it
 * does not know that a silent place is lost.
 */
internal const val LONGEST_AWAY_MS: Double = SLOWEST_MS / 1.25

/** The longest pause, in milliseconds: a day. Whoever is told to wait longer asks once a day. */
private const val LONGEST_PAUSE_MS = 86_400_000.0

/** The shortest and the longest period that a reply may tell, in milliseconds. Weir tells 60 s at most. */
private const val SHORTEST_PERIOD_MS = 100.0
private const val LONGEST_PERIOD_MS = 600_000.0

/** A told period that is not absurd, in milliseconds. */
internal fun periodWithin(toldMs: Double): Double = toldMs.coerceIn(SHORTEST_PERIOD_MS, LONGEST_PERIOD_MS)

/** The pause until the next poll, in milliseconds. The server delays an early reply, but cannot help a late poll. */
internal fun untilPoll(periodMs: Double, random: Double): Double = periodMs * (1 - random / 20)

/**
 * The pause after a failure, in milliseconds.
 *
 * Without `Retry-After` it doubles with each failure up to 15 s, less up to a half at random. With it, it is at least that, and up to a
 * quarter more, so that a crowd does not come back at once. A closed zone tells the instant of its next opening: there the back-off does
 * not count, because a later comer gets a later place.
 */
internal fun untilRetry(problem: Problem, failures: Int, random: () -> Double): Double {
    val backoffMs = min(SLOWEST_MS.toDouble(), 1_000.0 * (1 shl min(failures, 10))) * (1 - random() / 2)
    val leastMs = if (problem.code == "zone_closed" && problem.retryAfterMs > 0) 0.0 else backoffMs
    return min(LONGEST_PAUSE_MS, max(problem.retryAfterMs * (1 + random() / 4), leastMs))
}

/**
 * The milliseconds of a `Retry-After`; 0 if there is none or it cannot be read. Weir sends seconds. A proxy may send a date, which is
 * compared with the reply's own `Date`, because the device's clock may be wrong.
 */
internal fun retryAfterMs(retryAfter: String?, date: String?): Double {
    val text = retryAfter?.trim() ?: return 0.0
    if (text.isNotEmpty() && text.all { it in '0'..'9' }) return text.toDouble() * 1_000
    return try {
        val pause = Duration.between(ZonedDateTime.parse(date ?: "", RFC_1123_DATE_TIME), ZonedDateTime.parse(text, RFC_1123_DATE_TIME))
        max(0.0, pause.toMillis().toDouble())
    } catch (_: DateTimeException) {
        0.0
    }
}
