// A case of clients/conformance/cases.json as a server plays it, in the same way as clients/conformance/script.mjs: it judges each call,
// and says what to reply. It knows no clock and no network.
//
// Invariant: a fault is kept when it happens, and a case passes only without faults and after its last step.

package weir.client

/** Whether `found` has everything that `wanted` has. Objects may have more. */
internal fun fits(wanted: Any?, found: Any?): Boolean =
    if (wanted is Map<*, *>) found is Map<*, *> && wanted.all { (name, value) -> fits(value, found[name]) } else wanted == found

internal class Script(one: Map<*, *>) {
    val faults = mutableListOf<String>()
    private val steps = ArrayDeque((one["steps"] as List<*>).map(::fieldsOf))
    private var repliedAtMs: Double? = null

    /** The key of the place that the client is taking, and the keys of places that it had or gave up. */
    private var key: String? = null
    private val usedKeys = mutableSetOf<String>()

    /** The key of the last place that the client had or gave up. */
    private var lastKey: String? = null

    val isOver get() = steps.isEmpty()

    /** Takes the next step if it is not a call: what the user, the app or the clock does. */
    fun action(): Map<*, *>? {
        if (steps.firstOrNull()?.containsKey("call") != false) return null
        return steps.removeFirst().also { if (it.containsKey("user")) endKey() }
    }

    /** Judges a call at a time. Returns its step: with the reply, and perhaps with what the user does before the reply. */
    fun call(call: String, body: Map<*, *>, atMs: Double): Map<*, *> {
        val step = steps.removeFirstOrNull()
        if (step?.get("call") == null) {
            faults += "an unexpected call of $call with $body; the next step is $step"
            return mapOf("reply" to mapOf("problem" to mapOf("status" to 404.0, "code" to "unexpected")))
        }
        if (step["call"] != call) faults += "called $call instead of ${step["call"]}"
        if (body["zoneId"] != "Z") faults += "$call is not for the zone Z: $body"
        val wanted = if (step["call"] == "wait") null else step["token"]
        val isRight = body["token"] == wanted || (step["call"] != "wait" && step["token"] == null)
        if (!isRight) faults += "$call came with the token ${body["token"]}, not $wanted"
        val isLate = step["late"] == true
        if (call == "wait" && !isLate) judgeKey(body["idempotencyKey"] as String?)
        // It looks for a place that nobody waits for any more.
        if (isLate && body["idempotencyKey"] != lastKey) faults += "wait came with another key than $lastKey"
        // Who asks for a place has taken it, and whoever leaves takes it no more. A place that is gone has another key than the next one.
        val problem = (step["reply"] as? Map<*, *>)?.get("problem") as? Map<*, *>
        if (call != "wait" || step["user"] != null || problem?.get("code") == "gone") endKey()
        val (least, most) = (step["after_ms"] as List<*>?)?.map { it as Double } ?: listOf(0.0, Double.POSITIVE_INFINITY)
        val after = repliedAtMs?.let { atMs - it } ?: 0.0
        if (after < least || after > most) faults += "$call came $after ms after the last reply, not within $least to $most"
        return step
    }

    /** A `wait` is repeated with its key until its place is known, and no key is used for two places. */
    private fun judgeKey(sent: String?) {
        if (sent?.matches(Regex("[A-Za-z0-9_-]{22,64}")) != true) faults += "wait came with the key $sent"
        if (sent in usedKeys) faults += "wait came with the key $sent of an earlier place"
        if (key != null && sent != key) faults += "wait was repeated with the key $sent, not $key"
        key = sent
    }

    private fun endKey() {
        key?.let {
            usedKeys += it
            lastKey = it
        }
        key = null
    }

    /** The reply to the last call was sent at this time. */
    fun replied(atMs: Double) {
        repliedAtMs = atMs
    }

    /** Compares what the client said with the case. Returns all faults of the case. */
    fun judge(states: List<Any?>, wanted: List<*>): List<String> {
        if (!isOver) faults += "the client did not come to: ${steps.first()}"
        val isSame = states.size == wanted.size && wanted.indices.all { fits(wanted[it], states[it]) }
        if (!isSame) faults += "the client said\n  ${states.joinToString("\n  ")}\ninstead of\n  ${wanted.joinToString("\n  ")}"
        return faults
    }
}

/** The reply of a step, or null for the word of one that never comes whole. */
internal fun replyOf(reply: Any?): Reply? {
    val fields = reply as? Map<*, *> ?: return null
    val headers = fields["headers"] as Map<*, *>? ?: emptyMap<String, String>()
    fun header(name: String) = headers[name].let { lines -> (lines as? List<*>)?.joinToString(", ") ?: lines as String? }
    fun json(status: Int, value: Any?) = Reply(status, ::header, writeJson(value))
    val (waiting, entered, problem) = listOf("waiting", "entered", "problem").map { fields[it] as Map<*, *>? }
    if (waiting != null) {
        val some = mapOf("etaSeconds" to 30.0, "etaRange" to listOf(20.0, 40.0), "stale" to false)
        return json(200, mapOf("canEnter" to false, "token" to waiting["token"], "waiting" to some + (waiting - "token")))
    }
    if (entered != null) return json(200, mapOf("canEnter" to true) + entered)
    if (problem != null) {
        return json((problem["status"] as Double).toInt(), mapOf("type" to "urn:weir:problem:${problem["code"]}", "title" to problem["code"]) + problem)
    }
    val raw = fieldsOf(fields["raw"])
    return Reply((raw["status"] as Double).toInt(), ::header, raw["body"] as String)
}

/** A state in the form of the cases, which is that of the client for JavaScript. */
internal fun formOf(state: State): Map<String, Any?> {
    val trouble = state.trouble?.run {
        val does = action.name.lowercase().replace('_', ' ')
        mapOf("code" to code, "title" to title, "detail" to detail, "action" to does, "retryMs" to retryMs.toDouble(), "page" to page)
    }
    val more = when (state) {
        is State.Waiting -> mapOf(
            "rank" to state.rank.toDouble(),
            "eta" to state.eta?.run { mapOf("low" to low.toDouble(), "seconds" to seconds.toDouble(), "high" to high.toDouble()) },
            "progress" to state.progress,
            "reason" to state.reason?.name?.lowercase(),
            "stale" to state.isStale,
            "opensInMs" to state.opensInMs.toDouble(),
        )
        is State.Entered -> mapOf("pass" to state.pass, "again" to state.again)
        else -> emptyMap()
    }
    return mapOf("kind" to state::class.simpleName!!.lowercase(), "trouble" to trouble) + more
}
