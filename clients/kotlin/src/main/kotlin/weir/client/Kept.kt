// What the storage holds, as JSON: the same as the client for JavaScript.

package weir.client

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
            val token = fields["token"] as? String ?: throw Unreadable("no token")
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
        fun of(fields: Map<*, *>): Figures? {
            fun number(name: String) = fields[name] as? Double
            val rank = number("rank")?.toLong() ?: return null
            val eta = (fields["eta"] as? List<*>)?.map { it as? Double ?: return null }
            return Figures(
                rank = rank,
                first = number("first")?.toLong() ?: rank,
                progress = number("progress") ?: 0.0,
                eta = eta?.takeIf { it.size == 3 }?.let { (low, seconds, high) -> Range(low, seconds, high) },
                reason = (fields["reason"] as? String)?.let { text -> Reason.entries.find { it.name.lowercase() == text } },
                isStale = fields["stale"] == true,
                opensMs = number("opens_ms") ?: 0.0,
                stock = stockOf(fields["stock"]),
                isBeyondStock = fields["beyond_stock"] == true,
            )
        }
    }
}
