// One place in a line of Weir: takes it, keeps it, and says what happens with it.
//
// Invariants: only the server ends a place. At most one loop asks for a place at a time. The told wait grows only together with a reason.
// The device's clock decides only how old stored figures are, and to ask sooner. Everything runs in `scope`, one thing at a time.

package weir.client

import java.net.URI
import kotlin.math.max
import kotlin.math.min
import kotlin.math.roundToLong
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Job
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.flow.asStateFlow
import kotlinx.coroutines.flow.combine
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.launch
import kotlinx.coroutines.withTimeoutOrNull

/**
 * No zone keeps a place longer than this without a poll. If the server says that an older place is gone, it belonged to an earlier visit,
 * and a new one is taken without asking.
 */
private const val OLD_MS = 3_600_000.0

/** The key of a place that is being taken is stored under the place's name and this. */
private const val JOIN_KEY = " key"

/** For how long a later start uses that key again. The server remembers keys for two minutes. */
private const val JOIN_KEY_MS = 100_000.0

/** A key may be from this far in the future: the device's clock was put right meanwhile. */
private const val JOIN_KEY_AHEAD_MS = 10_000.0

/** A key that Weir takes. Whoever can write into the storage may have written anything. */
private val A_JOIN_KEY = Regex("[A-Za-z0-9_-]{22,64}")

/** The status of a reply to `leave`. */
private const val NO_CONTENT = 204

/** How often the end of a place is told at most, where it is not known whether Weir has heard of it. */
private const val MOST_LEAVES = 6

/** A pause before the next time that is longer is not worth it: the place or visit ends by itself. */
private const val LONGEST_LEAVE_PAUSE_MS = 60_000.0

/** The expected wait from now, in seconds. The real wait is within the range in nine of ten cases. */
public data class Eta(public val low: Long, public val seconds: Long, public val high: Long)

/** Where the user stands. */
public sealed interface State {
    /** What went wrong, or null. */
    public val trouble: Trouble?

    /** The user has no place yet. */
    public data class Joining(override val trouble: Trouble?) : State

    /**
     * The user waits. After a failed call [trouble] says so; the place is kept, and the client asks again.
     *
     * @property rank from 1
     * @property eta null: nobody knows, because the zone lets nobody in
     * @property progress from 0 to 1; it never falls, but for a draw: it is 0 until the order is drawn
     * @property reason why the wait is unknown or longer than before
     * @property isStale the store does not answer, and the figures are the last known ones
     * @property opensInMs how long it is until the zone opens, in milliseconds from now; 0 if it is open
     * @property stock what is left, where the operators tell it
     * @property isBeyondStock everything may be sold out before it is the user's turn
     */
    public data class Waiting(
        public val rank: Long,
        public val eta: Eta?,
        public val progress: Double,
        public val reason: Reason?,
        public val isStale: Boolean,
        public val opensInMs: Long,
        public val stock: Stock?,
        public val isBeyondStock: Boolean,
        override val trouble: Trouble?,
    ) : State

    /**
     * The user may enter.
     *
     * @property pass the proof for your service
     * @property again this app received the pass before, and it may be used up: let the user decide between it and a new place
     */
    public data class Entered(public val pass: String, public val again: Boolean) : State {
        override val trouble: Nothing? get() = null
    }

    /** There is no way on: the place is lost, or something must change. [Trouble.action] says which. */
    public data class Ended(override val trouble: Trouble) : State

    /** The user gave up the place, or ended the visit. */
    public data object Left : State {
        override val trouble: Nothing? get() = null
    }
}

/**
 * Why [Place.entry] came to nothing.
 *
 * @property state the state without a way on, or null after [Place.stop]
 */
public class NoEntry(public val state: State?) : Exception(
    when (state) {
        null -> "stopped"
        is State.Ended -> "${state.trouble.code}: ${state.trouble.detail.ifEmpty { state.trouble.title }}"
        else -> "left"
    },
)

/** One loop that asks for a place. */
private class Run {
    lateinit var job: Job
    var isOver = false

    /** Whether it asks for its first token. Whoever ends that call loses its reply, and with it a place. So it goes on. */
    var isJoining = false

    /** The key of a `wait` that was sent, and whose reply is not known: there may be a place that only the key finds. */
    var lostKey: String? = null

    /** What its end means for a place that a late reply brings: it is given up, or kept for the next start. */
    var lateReply = Late.NONE

    enum class Late { NONE, GIVE_UP, KEEP }
}

/** A pause, and how to end it. */
private class Pausing(val ms: Long, val elapsedMs: () -> Double) {
    val woken = CompletableDeferred<Unit>()
}

/** One person's place in one zone. All functions may be called from any thread. */
public class Place internal constructor(
    private val platform: Platform,
    /** Ends with a slash. */
    private val server: String,
    private val zone: String,
    /** Hears each state. [state] leaves states out that follow each other at once. */
    private val hear: (State) -> Unit = {},
) {
    private val key = "weir $server $zone"
    private val scope = CoroutineScope(SupervisorJob() + platform.dispatcher)
    private val storage = platform.storage?.let { InTime(it, scope) }
    private val current = MutableStateFlow<State>(State.Joining(null))
    private val isStopped = MutableStateFlow(false)
    private var kept: Kept? = null

    /** The text in the storage that was read or written last. It is not read again. */
    private var stored: String? = null

    /** The key of the place that is being taken. It is in the storage, too: the reply may be lost with the process. */
    private var joinKey: String? = null

    /** Whether that key was sent before: the place that it has may have ended before anybody saw it. */
    private var isKeySent = false

    /** The key of such a place. It is not sent again, also if the storage does not let it go. */
    private var goneKey: String? = null

    /** When the wait in [kept] was told, by the steady clock. */
    private var toldAtMs = 0.0

    /** Whether the place in the storage is from long ago, by the device's clock. */
    private var isOld = false

    /** The storage refused something, so what it has may be from long ago: it is not read any more. */
    private var isStorageLost = false

    /** The running loop, or the last one. */
    private lateinit var run: Run

    /** The last write to the storage. */
    private var writing: Job? = null
    private var failures = 0
    private var isOffline = false
    private var pausing: Pausing? = null

    init {
        scope.launch { begin() }
    }

    /** Where the user stands now. */
    public val state: StateFlow<State> = current.asStateFlow()

    /** Waits for the entry. Throws [NoEntry] when there is no way on: the place ended or was left, or [stop] was called. */
    public suspend fun entry(): State.Entered {
        val end = combine(current, isStopped) { state, stopped -> if (stopped) null else state }
            .first { it !is State.Joining && it !is State.Waiting }
        return end as? State.Entered ?: throw NoEntry(end)
    }

    /** Takes a new place at the end of the line. It works after `Entered`, `Ended` and `Left`; otherwise nothing happens. */
    public fun anew() {
        act {
            if (current.value is State.Joining || current.value is State.Waiting) return@act
            end(Run.Late.NONE)
            keep(null)
            failures = 0
            show(State.Joining(null))
            begin()
        }
    }

    /** Gives up the place, or tells Weir after the entry that the user is done. */
    public fun leave() {
        act {
            val token = kept?.token
            val mayBeStored = token == null && current.value is State.Joining
            end(Run.Late.GIVE_UP)
            if (mayBeStored) giveUpStored() else keep(null)
            if (token != null) {
                run.lostKey = null
                giveUp(token)
            }
            giveUpLost(run)
            show(State.Left)
        }
    }

    /** Asks no more and says no more. The place stays for the zone's `idle_timeout_s`, and a later start finds it in the storage. */
    public fun stop() {
        act {
            isStopped.value = true
            end(Run.Late.KEEP)
        }
    }

    /** The user looks at the app again: a poll that is due is sent at once, because timers may be late. */
    public fun shown() {
        act { wake(atOnce = false) }
    }

    /** There may be a network again: if a lost network was the cause of the pause, the client asks at once. */
    public fun online() {
        act { wake(atOnce = isOffline) }
    }

    private fun act(what: () -> Unit) {
        scope.launch { if (!isStopped.value) what() }
    }

    private fun begin() {
        val next = Run()
        run = next
        next.job = scope.launch { loop(next) }
    }

    private fun end(lateReply: Run.Late) {
        if (run.lateReply == Run.Late.NONE) run.lateReply = lateReply
        run.isOver = true
        if (!run.isJoining) run.job.cancel()
    }

    private fun show(state: State) {
        if (isStopped.value) return
        current.value = state
        hear(state)
    }

    private suspend fun loop(run: Run) {
        while (!run.isOver) {
            val pauseMs = try {
                step(run).also {
                    failures = 0
                    isOffline = false
                }
            } catch (end: CancellationException) {
                throw end
            } catch (fault: Exception) {
                if (run.isOver) return giveUpLost(run)
                fail(run, fault)
            }
            if (!run.isOver) pause(pauseMs)
        }
    }

    /** Asks once. Returns the time until the next step, in milliseconds. */
    private suspend fun step(run: Run): Double {
        load()
        if (run.isOver) return 0.0
        val token = kept?.token
        val answer = if (token == null) join(run) ?: return 0.0 else ask("entry", "token", token)
        return take(run, answer)
    }

    /** Asks for a place. Returns null if the user left before that. */
    private suspend fun join(run: Run): Answer? {
        val key = keyOfJoin(run)
        if (run.isOver) return null
        run.isJoining = true
        run.lostKey = key
        try {
            return ask("wait", "idempotencyKey", key).also { run.lostKey = null }
        } catch (problem: Problem) {
            // Weir refused it.
            if (problem.code != "offline" && problem.code != "away") run.lostKey = null
            throw problem
        } finally {
            run.isJoining = false
        }
    }

    private suspend fun ask(call: String, field: String, value: String): Answer {
        val reply = post(call, field, value)
        if (reply.status !in 200..299) throw problemOf(reply)
        return answerOf(reply.body)
    }

    /** The key of this `wait`, which is the same until the place is known: whoever sends it again gets the same place. */
    private suspend fun keyOfJoin(run: Run): String {
        joinKey?.let { return it }
        val nowMs = platform.deviceMs()
        var made = platform.newKey()
        isKeySent = false
        try {
            writing?.join()
            val (stored, at) = storage?.get(key + JOIN_KEY).orEmpty().split(" ").let { it.first() to it.last().toDoubleOrNull() }
            val isRecent = at != null && nowMs - at in -JOIN_KEY_AHEAD_MS..JOIN_KEY_MS
            if (A_JOIN_KEY.matches(stored) && stored != goneKey && isRecent) {
                made = stored
                isKeySent = true
            } else {
                storage?.set(key + JOIN_KEY, "$made $nowMs")
            }
        } catch (end: CancellationException) {
            throw end
        } catch (_: Exception) {
            // Without storage, the key lasts as long as the process.
        }
        if (!run.isOver) joinKey = made
        return made
    }

    private suspend fun post(call: String, field: String, value: String): Reply {
        val body = mapOf("zoneId" to zone, field to value)
        val reply = withTimeoutOrNull(SLOWEST_MS) { platform.http.post("${server}traffic/$call", writeJson(body)) }
        return reply ?: throw Problem("offline")
    }

    /** Takes an answer over. Returns the time until the next poll, in milliseconds. */
    private fun take(run: Run, answer: Answer): Double {
        if (run.isOver) {
            // This is the late reply to a first `wait`.
            when (run.lateReply) {
                Run.Late.GIVE_UP -> giveUp(answer.token)
                Run.Late.KEEP -> keep(Kept(answer.token, platform.deviceMs()))
                Run.Late.NONE -> {}
            }
            return 0.0
        }
        return when (answer) {
            is Enters -> {
                val again = kept?.hasEntered == true
                run.isOver = true
                keep(Kept(answer.token, platform.deviceMs(), hasEntered = true))
                show(State.Entered(answer.pass, again))
                0.0
            }
            is Waits -> {
                // One instant for both, so that what was just told is shown as it was told.
                val nowMs = platform.steadyMs()
                keepWaiting(answer, nowMs)
                showWaiting(null, nowMs)
                untilPoll(answer.periodMs, platform.random())
            }
        }
    }

    private fun keepWaiting(told: Waits, nowMs: Double) {
        val earlier = kept?.figures
        // Before a draw nobody has a rank: it says how many wait.
        val isUndrawn = told.reason == Reason.DRAW
        val first = if (isUndrawn) 0 else max(earlier?.first ?: 0, told.rank)
        var reason = told.reason
        var eta = told.eta
        // Each range is a new estimate. If its end moves back by more than the server's own tolerance for the told wait, 2 s and a tenth,
        // that is a reason. Less is not shown.
        val before = etaAt(nowMs)
        if (eta != null && before != null && reason == null) {
            if (eta.high > before.high + 2 + eta.high / 10) {
                reason = Reason.UNSURE
            } else {
                val seconds = min(eta.seconds, before.seconds)
                eta = Range(min(eta.low, seconds), seconds, max(seconds, min(eta.high, before.high)))
            }
        }
        val progress = if (isUndrawn) 0.0 else max(earlier?.progress ?: 0.0, 1 - told.rank / (first + 1.0))
        toldAtMs = nowMs
        val figures = Figures(told.rank, first, progress, eta, reason, told.isStale, told.opensInMs, told.stock, told.isBeyondStock)
        keep(Kept(told.token, platform.deviceMs(), figures))
    }

    /** The wait that was told, from this time of the steady clock. */
    private fun etaAt(nowMs: Double): Range? {
        val passed = (nowMs - toldAtMs) / 1_000
        return kept?.figures?.eta?.let { Range(it.low - passed, it.seconds - passed, it.high - passed) }
    }

    private fun showWaiting(trouble: Trouble?, nowMs: Double) {
        val figures = kept?.figures ?: return show(State.Joining(trouble))
        fun shownOf(value: Double) = max(0, value.roundToLong())
        show(
            State.Waiting(
                rank = figures.rank,
                eta = etaAt(nowMs)?.let { Eta(shownOf(it.low), shownOf(it.seconds), shownOf(it.high)) },
                progress = figures.progress,
                reason = figures.reason,
                isStale = figures.isStale,
                opensInMs = shownOf(figures.opensMs - (nowMs - toldAtMs)),
                stock = figures.stock,
                isBeyondStock = figures.isBeyondStock,
                trouble = trouble,
            ),
        )
    }

    /** Reports a failure. Returns the time until the next try, in milliseconds. */
    private fun fail(run: Run, fault: Exception): Double {
        val problem = fault as? Problem ?: Problem(if (fault is Unreadable) "away" else "offline")
        // A user who entered, or waited long ago, and comes back starts again.
        if (problem.action == Action.NEW_PLACE && (kept?.hasEntered == true || isOld)) {
            keep(null)
            return 0.0
        }
        // The reply to the first `wait` was lost, and the place ended before the user saw it. The new one has another key.
        if (problem.action == Action.NEW_PLACE && kept == null && joinKey != null && isKeySent) {
            goneKey = joinKey
            keep(null)
            return 0.0
        }
        if (problem.action != Action.RETRY) {
            run.isOver = true
            // No place was taken, so the next start asks with another key.
            if (kept == null) write {}
            show(State.Ended(problem.trouble(0)))
            return 0.0
        }
        val retryMs = untilRetry(problem, failures, platform.random)
        failures++
        isKeySent = true
        isOffline = problem.code == "offline"
        showWaiting(problem.trouble(retryMs.toLong() + 1), platform.steadyMs())
        return retryMs
    }

    /**
     * Starts to measure how long something takes, in milliseconds. The steady clock may stand still while the device sleeps, so the
     * device's own clock counts if it shows more.
     */
    private fun stopwatch(): () -> Double {
        val (steadyMs, deviceMs) = platform.steadyMs() to platform.deviceMs()
        return { max(platform.steadyMs() - steadyMs, platform.deviceMs() - deviceMs) }
    }

    private suspend fun pause(pauseMs: Double) {
        val pause = Pausing(pauseMs.toLong(), stopwatch())
        pausing = pause
        withTimeoutOrNull(pause.ms) { pause.woken.await() }
    }

    private fun wake(atOnce: Boolean) {
        val pause = pausing ?: return
        if (atOnce || pause.elapsedMs() >= pause.ms) pause.woken.complete(Unit)
    }

    /** Takes over what the storage has, if it is not known yet. Without storage, the place lasts as long as the process. */
    private suspend fun load() {
        val storage = storage ?: return
        val text = try {
            writing?.join()
            if (isStorageLost) null else storage.get(key)
        } catch (end: CancellationException) {
            throw end
        } catch (_: Exception) {
            null
        }
        if (text == null || text == stored) return
        val found = try {
            Kept.read(text)
        } catch (_: Unreadable) {
            return
        }
        // Before a new start, only the device's clock measured time. If it was set back meanwhile, the told times do not count any more.
        val ageMs = if (kept == null) platform.deviceMs() - found.heardMs else 0.0
        isOld = ageMs >= OLD_MS
        toldAtMs = platform.steadyMs() - max(0.0, ageMs)
        var figures = found.figures
        if (ageMs < 0 || isOld) figures = figures?.copy(eta = null)
        if (ageMs < 0) figures = figures?.copy(opensMs = 0.0)
        kept = Kept(found.token, found.heardMs, figures, found.hasEntered)
        stored = text
    }

    private fun keep(place: Kept?) {
        kept = place
        isOld = false
        val text = place?.write()
        // The text of a place that is over stays known: a storage that does not remove it brings the place back to nobody.
        if (text != null) stored = text
        write {
            try {
                it.set(key, text)
            } catch (fault: Exception) {
                // There is no room. An older text would say of an entered place that its pass is new.
                if (place?.hasEntered == true) it.set(key, null)
                throw fault
            }
        }
    }

    /** Gives up the place in the storage, which was not read yet. */
    private fun giveUpStored() = write { storage ->
        val text = if (isStorageLost) null else storage.get(key)
        if (text != null) {
            try {
                giveUp(Kept.read(text).token)
            } catch (_: Unreadable) {
                // It is no place.
            }
        }
        storage.set(key, null)
    }

    /** Writes to the storage what `put` writes, and that no place is being taken. */
    private fun write(put: suspend (Storage) -> Unit) {
        val (earlier, hadKey) = writing to (joinKey != null)
        joinKey = null
        val storage = storage ?: return
        writing = scope.launch {
            earlier?.join()
            try {
                try {
                    put(storage)
                } finally {
                    // Also where there is no room for the place: with the key, each start would get its pass as a new one.
                    if (hadKey) storage.set(key + JOIN_KEY, null)
                }
            } catch (end: CancellationException) {
                throw end
            } catch (_: Exception) {
                isStorageLost = true
            }
        }
    }

    /** Gives up the place of a `wait` whose reply was lost, if the user left and that call is not on its way any more. */
    private fun giveUpLost(run: Run) {
        val key = run.lostKey
        if (key == null || run.isJoining || run.lateReply != Run.Late.GIVE_UP) return
        run.lostKey = null
        giveUp(null, key)
    }

    /**
     * Tells Weir that the place or visit is over, until it has heard it: a few times, and also after [stop]. It is that of the token, or
     * the one that a `wait` with the key took.
     */
    private fun giveUp(token: String?, key: String = "") {
        scope.launch {
            var known = token
            for (failures in 0 until MOST_LEAVES) {
                val problem = try {
                    val found = known ?: ask("wait", "idempotencyKey", key).token.also { known = it }
                    val reply = post("leave", "token", found)
                    if (reply.status == NO_CONTENT) return@launch
                    problemOf(reply)
                } catch (end: CancellationException) {
                    throw end
                } catch (fault: Exception) {
                    fault as? Problem ?: Problem("offline")
                }
                val pauseMs = untilRetry(problem, failures, platform.random)
                // If Weir never hears it, the place is free after the zone's idle time. Any other refusal would come again.
                if (problem.action != Action.RETRY || pauseMs > LONGEST_LEAVE_PAUSE_MS) return@launch
                delay(pauseMs.toLong())
            }
        }
    }
}

/**
 * Resumes this person's place in the zone, or takes one.
 *
 * @param server the address of Weir, such as `https://weir.example`
 * @param zone the zone's id
 * @throws IllegalArgumentException if `zone` is empty or `server` is not an address of http or https
 */
public fun place(server: String, zone: String, platform: Platform = jvm()): Place = begin(server, zone, platform) {}

/** The same for tests, which hear each state. */
internal fun begin(server: String, zone: String, platform: Platform, hear: (State) -> Unit): Place {
    require(zone.isNotEmpty()) { "place: zone must be a zone's id" }
    val address = try {
        URI.create(if (server.endsWith("/")) server else "$server/")
    } catch (fault: IllegalArgumentException) {
        throw IllegalArgumentException(notAnAddress(server), fault)
    }
    require((address.scheme == "http" || address.scheme == "https") && address.host != null) { notAnAddress(server) }
    return Place(platform, address.toString(), zone, hear)
}

private fun notAnAddress(server: String) = "place: server must be an address such as https://weir.example, not \"$server\""
