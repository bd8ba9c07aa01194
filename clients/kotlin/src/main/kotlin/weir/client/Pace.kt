// When to ask again. Pure: random numbers and times are arguments.
//
// Invariants: the client asks up to 5 % before the period that it was told has passed, and never after it by its own choice. It never
// tries again before `Retry-After` of Weir. No pause is longer than a day.

package weir.client

import java.time.DateTimeException
import java.time.Duration
import java.time.ZonedDateTime
import java.time.format.DateTimeFormatter.RFC_1123_DATE_TIME
import java.time.format.ResolverStyle
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

/** Seconds, or those of several lines. */
private val SECONDS = Regex("[0-9]+(?:[ \\t]*,[ \\t]*[0-9]+)*")

/** A date of HTTP, as RFC 9110 lets it be sent. */
private val DATE = Regex("[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")

/**
 * The milliseconds of a `Retry-After`; 0 if there is none or it cannot be read. Weir sends seconds. A proxy may add a line of its own,
 * which is joined with a comma: the longest counts. A proxy may also send a date, which is compared with the reply's own `Date`, because the
 * device's clock may be wrong.
 */
internal fun retryAfterMs(retryAfter: String?, date: String?): Double {
    val text = retryAfter?.trim() ?: return 0.0
    if (SECONDS.matches(text)) return text.split(",").maxOf { it.trim().toDouble() } * 1_000
    val pause = Duration.between(timeOf(date.orEmpty()) ?: return 0.0, timeOf(text) ?: return 0.0)
    return max(0.0, pause.toMillis().toDouble())
}

/** The time of a date of HTTP, or null. The format of the JDK takes more for one: other zones, and days with one digit. */
private fun timeOf(text: String): ZonedDateTime? = try {
    if (DATE.matches(text)) ZonedDateTime.parse(text, RFC_1123_DATE_TIME.withResolverStyle(ResolverStyle.STRICT)) else null
} catch (_: DateTimeException) {
    null
}
