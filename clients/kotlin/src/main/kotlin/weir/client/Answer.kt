// Reads replies. Nothing that a server or a proxy sends is trusted: sizes, types and ranges are checked here, and only here. Kept.kt uses
// the same checks for the storage.
//
// Invariant: an `Answer` has the types that it says. Unknown fields are ignored, because a newer server may have them.

package weir.client

import kotlin.math.floor

/** The longest token and the longest pass, in characters. */
internal const val LONGEST_TOKEN = 1_024
private const val LONGEST_PASS = 8_192

/** The longest name of the texts of what is left, in characters. */
private const val LONGEST_NAME = 64

/** The most tiers of a zone. */
private const val MOST_TIERS = 16

/** The largest whole number that JSON's readers agree on: 2^53 - 1. */
internal const val MOST = 9_007_199_254_740_991.0

/** Why the wait is longer than before, or not known. docs/app/polling.md describes each. */
public enum class Reason {
    HELD, DRAW, SLOWED, INTERRUPTED, RETURNED, SLOWER,

    /** Only the end of the range became later. */
    UNSURE,
    ;

    internal companion object {
        /** A reason that this version does not know still explains a longer wait. */
        fun of(text: String): Reason = entries.find { it != UNSURE && it.name.lowercase() == text } ?: SLOWER
    }
}

/**
 * What is left.
 *
 * @property texts names the labels and prices that belong to it
 * @property remaining how many pieces, by tier; null for a tier of which nobody knows
 */
public data class Stock(public val texts: String, public val remaining: Map<String, Long?>)

/** The shortest, the expected and the longest wait, in seconds. */
internal data class Range(val low: Double, val seconds: Double, val high: Double)

/** What `wait` and `entry` answer. */
internal sealed interface Answer {
    val token: String
}

internal class Enters(override val token: String, val pass: String) : Answer

internal class Waits(
    override val token: String,
    val rank: Long,
    val eta: Range?,
    val reason: Reason?,
    val isStale: Boolean,
    val periodMs: Double,
    val opensInMs: Double,
    val stock: Stock?,
    val isBeyondStock: Boolean,
) : Answer

/** The answer of a reply. Throws [Unreadable]. */
internal fun answerOf(body: String): Answer {
    val fields = fieldsOf(readJson(body))
    val token = textOf(fields["token"], LONGEST_TOKEN)
    return when (fields["canEnter"]) {
        true -> Enters(token, textOf(fields["pass"], LONGEST_PASS))
        false -> waitsOf(token, fieldsOf(fields["waiting"]))
        else -> throw Unreadable("neither entered nor waiting")
    }
}

private fun waitsOf(token: String, fields: Map<*, *>): Waits {
    val range = fields["etaRange"] as? List<*>
    if (range != null && range.size != 2) throw Unreadable("not a range")
    val eta = range?.let { Range(countOf(it[0]), countOf(fields["etaSeconds"]), countOf(it[1])) }
    if (eta != null && eta.low > eta.high) throw Unreadable("not a range")
    return Waits(
        token = token,
        rank = rankOf(fields["rank"]),
        eta = eta,
        reason = (fields["reason"] as? String)?.let(Reason::of),
        isStale = fields["stale"] == true,
        periodMs = periodWithin(countOf(fields["pollingPeriod"])),
        opensInMs = if ("opensInMs" in fields) countOf(fields["opensInMs"]) else 0.0,
        stock = stockOf(fields["stock"]),
        isBeyondStock = fields["beyondStock"] == true,
    )
}

/** What is left, of a reply or of the storage. Throws [Unreadable]. */
internal fun stockOf(value: Any?): Stock? {
    if (value == null) return null
    val fields = fieldsOf(value)
    val tiers = fieldsOf(fields["remaining"])
    if (tiers.size > MOST_TIERS) throw Unreadable("too many tiers")
    val remaining = tiers.entries.associate { (tier, left) -> tier as String to left?.let { countOf(it).toLong() } }
    return Stock(textOf(fields["texts"], LONGEST_NAME), remaining)
}

internal fun fieldsOf(value: Any?): Map<*, *> = value as? Map<*, *> ?: throw Unreadable("not an object")

internal fun textOf(value: Any?, longest: Int): String =
    (value as? String)?.takeIf { it.isNotEmpty() && it.length <= longest } ?: throw Unreadable("not a text of the right length")

/** A whole number from `least` on. */
internal fun countOf(value: Any?, least: Double = 0.0): Double =
    (value as? Double)?.takeIf { it in least..MOST && it == floor(it) } ?: throw Unreadable("not a count")

/** A rank: the first one in the line has 1. */
internal fun rankOf(value: Any?): Long = countOf(value, least = 1.0).toLong()
