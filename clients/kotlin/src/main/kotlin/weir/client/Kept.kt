// What the storage holds, as JSON: the same as the client for JavaScript. Whoever can write there may have written anything.

package weir.client

import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.TimeoutCancellationException
import kotlinx.coroutines.async
import kotlinx.coroutines.withTimeout

/** The longest time that a call of the storage may take, in milliseconds. */
private const val SLOWEST_STORAGE_MS = 3_000L

/** A storage whose calls fail after [SLOWEST_STORAGE_MS]. After that it is not asked again. The calls run in `scope`. */
internal class InTime(private val storage: Storage, private val scope: CoroutineScope) : Storage {
    private var isSilent = false

    override suspend fun get(key: String): String? = limited { storage.get(key) }

    override suspend fun set(key: String, value: String?) = limited { storage.set(key, value) }

    private suspend fun <T> limited(ask: suspend () -> T): T {
        if (isSilent) throw silent()
        // A caller does not wait for a call that cannot be cancelled.
        val answer = scope.async(start = CoroutineStart.UNDISPATCHED) { ask() }
        try {
            return withTimeout(SLOWEST_STORAGE_MS) { answer.await() }
        } catch (_: TimeoutCancellationException) {
            isSilent = true
            throw silent()
        } finally {
            answer.cancel()
        }
    }

    private fun silent() = IllegalStateException("the storage does not answer")
}

/**
 * A place.
 *
 * @property heardMs when the server spoke last, by the device's clock
 * @property figures what was told last; null before the first reply
 * @property hasEntered whether the user received the pass
 */
internal class Kept(val token: String, val heardMs: Double, val figures: Figures? = null, val hasEntered: Boolean = false) {
    fun write(): String = writeJson(
        buildMap {
            put("token", token)
            put("heard", heardMs)
            if (hasEntered) put("entered", true)
            if (figures != null) putAll(figures.fields())
        },
    )

    companion object {
        /** Throws [Unreadable]. */
        fun read(text: String): Kept {
            val fields = fieldsOf(readJson(text))
            val token = textOf(fields["token"], LONGEST_TOKEN)
            // Weir's are of printable ASCII.
            if (token.any { it !in '!'..'~' }) throw Unreadable("no token")
            val heardMs = fields["heard"] as? Double ?: throw Unreadable("no time")
            return Kept(token, heardMs, Figures.of(fields), fields["entered"] == true)
        }
    }
}

/**
 * What was told last.
 *
 * @property first the highest rank so far
 * @property progress from 0 to 1; it falls only to 0, before a draw
 * @property eta from the time at which it was told
 * @property opensMs from the time at which it was told
 */
internal data class Figures(
    val rank: Long,
    val first: Long,
    val progress: Double,
    val eta: Range?,
    val reason: Reason?,
    val isStale: Boolean,
    val opensMs: Double,
    val stock: Stock?,
    val isBeyondStock: Boolean,
) {
    fun fields(): Map<String, Any?> = mapOf(
        "rank" to rank,
        "first" to first,
        "progress" to progress,
        "eta" to eta?.let { listOf(it.low, it.seconds, it.high) },
        "reason" to reason?.name?.lowercase(),
        "stale" to isStale,
        "opens_ms" to opensMs,
        "stock" to stock?.let { mapOf("texts" to it.texts, "remaining" to it.remaining) },
        "beyond_stock" to isBeyondStock,
    )

    companion object {
        /** The figures of a place, or null if one of them is missing or damaged. The place counts. */
        fun of(fields: Map<*, *>): Figures? = try {
            val rank = rankOf(fields["rank"])
            Figures(
                rank = rank,
                first = fields["first"]?.let { countOf(it) }?.toLong() ?: rank,
                progress = fields["progress"]?.let(::shareOf) ?: 0.0,
                eta = (fields["eta"] as? List<*>)?.let(::rangeOf),
                reason = (fields["reason"] as? String)?.let { text -> Reason.entries.find { it.name.lowercase() == text } },
                isStale = fields["stale"] == true,
                opensMs = fields["opens_ms"]?.let { countOf(it) } ?: 0.0,
                stock = stockOf(fields["stock"]),
                isBeyondStock = fields["beyond_stock"] == true,
            )
        } catch (_: Unreadable) {
            null
        }

        private fun shareOf(value: Any): Double = (value as? Double)?.takeIf { it in 0.0..1.0 } ?: throw Unreadable("not a share")

        /** A told wait counts down, also below 0 and by parts of a second. */
        private fun rangeOf(eta: List<*>): Range {
            val numbers = eta.map { (it as? Double)?.takeIf { number -> number in -MOST..MOST } ?: throw Unreadable("not a wait") }
            if (numbers.size != 3 || numbers[0] > numbers[2]) throw Unreadable("not a range")
            return Range(numbers[0], numbers[1], numbers[2])
        }
    }
}
