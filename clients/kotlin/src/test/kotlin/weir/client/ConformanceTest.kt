// Every case of clients/conformance in virtual time with many random numbers, where each time is judged exactly.

package weir.client

import java.io.IOException
import java.nio.file.Files
import java.nio.file.Path
import kotlin.random.Random
import kotlinx.coroutines.ExperimentalCoroutinesApi
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.launch
import kotlinx.coroutines.test.StandardTestDispatcher
import kotlinx.coroutines.test.TestScope
import kotlinx.coroutines.yield
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.DynamicTest
import org.junit.jupiter.api.DynamicTest.dynamicTest
import org.junit.jupiter.api.TestFactory

private const val SEEDS = 25

/** The place in the storage. */
private const val PLACE = "weir https://weir.test/ Z"

/** Texts by key, in memory. */
internal class Texts : Storage {
    val all = mutableMapOf<String, String>()

    override suspend fun get(key: String): String? = all[key]

    override suspend fun set(key: String, value: String?) {
        if (value == null) all -= key else all[key] = value
    }
}

/** The text in the storage of a place from before. */
internal fun keptOf(kept: Map<*, *>, deviceMs: Double): String =
    writeJson(mapOf("token" to kept["token"], "heard" to deviceMs - kept["age_ms"] as Double) + (kept - "token" - "age_ms"))

@OptIn(ExperimentalCoroutinesApi::class)
class ConformanceTest {
    private val cases = (readJson(Files.readString(Path.of("../conformance/cases.json"))) as List<*>).map(::fieldsOf)

    @TestFactory
    fun everyCaseInVirtualTime(): List<DynamicTest> = cases.map { one ->
        dynamicTest(one["name"] as String) {
            for (seed in 1..SEEDS) assertEquals(emptyList<String>(), played(one, seed), "seed $seed")
        }
    }

    private fun played(one: Map<*, *>, seed: Int): List<String> {
        val world = TestScope(StandardTestDispatcher())
        val nowMs = { world.testScheduler.currentTime.toDouble() }
        var deviceOffsetMs = 1_700_000_000_000.0
        val script = Script(one)
        val states = mutableListOf<State>()
        lateinit var place: Place

        fun user(what: Any?) = if (what == "leave") place.leave() else place.anew()
        suspend fun settle() = repeat(20) { yield() }
        suspend fun act() {
            while (true) {
                // Actions happen when everything before them has been heard.
                settle()
                val step = script.action() ?: return
                step["user"]?.let(::user)
                step["signal"]?.let { if (it == "online") place.online() else place.shown() }
                (step["clock"] as Map<*, *>?)?.let { deviceOffsetMs += it["device_ms"] as Double }
                // Times count from the last thing that happened.
                if ("signal" in step && one["slow"] != true) script.replied(nowMs())
            }
        }
        val http = Http { address, body ->
            val step = script.call(address.removePrefix("https://weir.test/traffic/"), fieldsOf(readJson(body)), nowMs())
            step["user"]?.let {
                user(it)
                settle()
            }
            script.replied(nowMs())
            world.launch { act() }
            when (step["reply"]) {
                "silent" -> awaitCancellation()
                "lost", "broken" -> throw IOException("the connection broke")
                "endless" -> throw Unreadable("too long")
                else -> replyOf(step["reply"])!!
            }
        }
        val storage = Texts()
        (one["kept"] as Map<*, *>?)?.let { storage.all[PLACE] = keptOf(it, deviceOffsetMs) }
        (one["key"] as Map<*, *>?)?.let { storage.all["$PLACE key"] = "${it["text"]} ${deviceOffsetMs - it["age_ms"] as Double}" }
        val platform = Platform(
            http = http,
            storage = storage,
            steadyMs = nowMs,
            deviceMs = { nowMs() + deviceOffsetMs },
            random = Random(seed)::nextDouble,
            dispatcher = StandardTestDispatcher(world.testScheduler),
        )
        place = begin("https://weir.test", "Z", platform, states::add)
        // To the end: then the client waits for nothing more.
        world.testScheduler.advanceUntilIdle()
        val leftKey = "$PLACE key" in storage.all && states.last() !is State.Joining
        return script.judge(states.map(::formOf), one["states"] as List<*>) + listOf("it left its key in the storage").filter { leftKey }
    }
}
