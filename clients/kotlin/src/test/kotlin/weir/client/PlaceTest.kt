package weir.client

import kotlin.coroutines.suspendCoroutine
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.ExperimentalCoroutinesApi
import kotlinx.coroutines.async
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.test.StandardTestDispatcher
import kotlinx.coroutines.test.TestScope
import kotlinx.coroutines.test.runTest
import kotlinx.coroutines.withTimeout
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Test

@OptIn(ExperimentalCoroutinesApi::class)
class PlaceTest {
    private val entered = Reply(200, { null }, """{"canEnter":true,"token":"t","pass":"p"}""")
    private val waiting =
        Reply(200, { null }, """{"canEnter":false,"token":"t","waiting":{"rank":2,"pollingPeriod":500,"etaRange":null}}""")
    private val left = Reply(204, { null }, "")

    private fun TestScope.platform(storage: Storage? = null, http: Http) = Platform(
        http = http,
        storage = storage,
        steadyMs = { testScheduler.currentTime.toDouble() },
        deviceMs = { testScheduler.currentTime.toDouble() },
        dispatcher = StandardTestDispatcher(testScheduler),
    )

    @Test
    fun entryReturnsThePassAndSaysWhyThereIsNone() = runTest {
        val replies = ArrayDeque(listOf(waiting, entered))
        val place = place("https://weir.test", "Z", platform { _, _ -> replies.removeFirst() })
        assertEquals(State.Entered("p", again = false), place.entry())
        place.leave()
        testScheduler.runCurrent()
        assertEquals(State.Left, assertThrows(NoEntry::class.java) { runBlocking { place.entry() } }.state)
    }

    @Test
    fun stopEndsTheWaitForTheEntryAndAsksNoMore() = runTest {
        var calls = 0
        val place = place("https://weir.test", "Z", platform { _, _ -> waiting.also { calls++ } })
        val entry = async { runCatching { place.entry() }.exceptionOrNull() as NoEntry }
        testScheduler.advanceTimeBy(100)
        place.stop()
        assertEquals(null, entry.await().state)
        testScheduler.advanceUntilIdle()
        assertEquals(1, calls)
    }

    @Test
    fun thePlaceOfALateFirstReplyIsKeptAfterAStop() = runTest {
        val reply = CompletableDeferred<Reply>()
        val storage = Texts()
        val place = place("https://weir.test/", "Z", platform(storage) { _, _ -> reply.await() })
        testScheduler.advanceTimeBy(100)
        place.stop()
        testScheduler.runCurrent()
        reply.complete(waiting)
        testScheduler.advanceUntilIdle()
        assertEquals("t", Kept.read(storage.all.getValue("weir https://weir.test/ Z")).token)
    }

    @Test
    fun aStartAfterALostFirstReplyTakesTheSamePlaceForAWhile() = runTest {
        for ((laterMs, isSame) in listOf(2_000.0 to true, 99_000.0 to true, 120_000.0 to false, -2_000.0 to true, -60_000.0 to false)) {
            val (bodies, storage) = mutableListOf<String>() to Texts()
            var deviceMs = 1_000_000.0
            suspend fun start() {
                val http = Http { _, body -> bodies.add(body).let { CompletableDeferred<Reply>().await() } }
                val own = Platform(
                    http = http,
                    storage = storage,
                    steadyMs = { testScheduler.currentTime.toDouble() },
                    deviceMs = { deviceMs },
                    dispatcher = StandardTestDispatcher(testScheduler),
                )
                val place = place("https://weir.test/", "Z", own)
                testScheduler.runCurrent()
                place.stop()
            }
            start()
            deviceMs += laterMs
            start()
            val keys = bodies.map { fieldsOf(readJson(it))["idempotencyKey"] }
            assertEquals(isSame, keys[0] == keys[1], "$laterMs ms later: $keys")
        }
    }

    /** A storage that takes 30 ms for each call. */
    private class Slow(val texts: Texts = Texts()) : Storage {
        override suspend fun get(key: String): String? = delay(30).let { texts.get(key) }

        override suspend fun set(key: String, value: String?) = delay(30).also { texts.set(key, value) }
    }

    @Test
    fun whoeverLeavesWhileTheStorageIsReadSendsNoWaitAfterwards() = runTest {
        for (leaveAtMs in listOf(0L, 5L, 35L, 65L, 95L)) {
            val (bodies, storage) = mutableListOf<String>() to Slow()
            val platform = platform(storage) { _, body -> waiting.also { bodies += body } }
            val place = place("https://weir.test/", "Z", platform)
            testScheduler.advanceTimeBy(leaveAtMs)
            place.leave()
            testScheduler.runCurrent()
            val before = bodies.size
            testScheduler.advanceTimeBy(400)
            val later = bodies.drop(before).filter { it.contains("idempotencyKey") }
            assertEquals(emptyList<String>(), later, "left after $leaveAtMs ms")
            place.anew()
            testScheduler.advanceTimeBy(400)
            assertEquals(true, place.state.value is State.Waiting, "left after $leaveAtMs ms")
            val keys = bodies.mapNotNull { fieldsOf(readJson(it))["idempotencyKey"] }
            assertEquals(keys.size, keys.toSet().size, "left after $leaveAtMs ms: each place has a key of its own")
            place.stop()
            testScheduler.advanceUntilIdle()
        }
    }

    @Test
    fun whoeverLeavesBeforeTheStorageWasReadGivesUpThePlaceThatItHas() = runTest {
        for (leaveAtMs in listOf(0L, 5L)) {
            val (calls, storage) = mutableListOf<String>() to Slow()
            storage.texts.all["weir https://weir.test/ Z"] = """{"token":"t0","heard":0}"""
            val platform = platform(storage) { address, body -> left.also { calls += "${address.substringAfterLast('/')} $body" } }
            val place = place("https://weir.test/", "Z", platform)
            testScheduler.advanceTimeBy(leaveAtMs)
            place.leave()
            testScheduler.advanceUntilIdle()
            assertEquals(listOf("""leave {"zoneId":"Z","token":"t0"}"""), calls, "left after $leaveAtMs ms")
            assertEquals(emptyMap<String, String>(), storage.texts.all)
        }
    }

    @Test
    fun aStorageThatNeverAnswersTakesNoPlaceAway() = runTest {
        suspend fun <T> never(): T = suspendCoroutine {}
        for (isWrittenOnly in listOf(false, true)) {
            val silent = object : Storage {
                override suspend fun get(key: String): String? = if (isWrittenOnly) null else never()

                override suspend fun set(key: String, value: String?): Unit = never()
            }
            val replies = ArrayDeque(listOf(waiting, waiting, waiting, entered))
            val place = place("https://weir.test", "Z", platform(silent) { _, _ -> replies.removeFirst() })
            assertEquals("p", withTimeout(8_000) { place.entry() }.pass)
        }
    }

    @Test
    fun aStorageThatFailsTakesNoPlaceAway() = runTest {
        val broken = object : Storage {
            override suspend fun get(key: String) = throw IllegalStateException("no storage")

            override suspend fun set(key: String, value: String?) = throw IllegalStateException("no storage")
        }
        val replies = ArrayDeque(listOf(waiting, entered))
        val place = place("https://weir.test", "Z", platform(broken) { _, _ -> replies.removeFirst() })
        assertEquals("p", place.entry().pass)
    }

    @Test
    fun aStorageThatCanBeReadOnlyIsNotAskedAgainAndAgain() = runTest {
        val readOnly = object : Storage {
            override suspend fun get(key: String) = """{"token":"old","heard":-4000000}"""

            override suspend fun set(key: String, value: String?) = throw IllegalStateException("the disk is full")
        }
        val gone = Reply(410, { null }, """{"type":"urn:weir:problem:gone","code":"gone"}""")
        var calls = 0
        val place = place("https://weir.test", "Z", platform(readOnly) { _, body ->
            check(++calls < 10) { "it asks again and again" }
            if (body.contains("\"old\"")) gone else entered
        })
        assertEquals("p", place.entry().pass)
        assertEquals(2, calls)
    }

    @Test
    fun aStorageWithRoomForTheKeyAndNotForThePlaceDoesNotBringAPassBackAsANewOne() = runTest {
        for (before in listOf(null, """{"token":"t0","heard":0}""")) {
            val texts = Texts()
            if (before != null) texts.all["weir https://weir.test/ Z"] = before
            val full = object : Storage {
                override suspend fun get(key: String) = texts.get(key)

                override suspend fun set(key: String, value: String?) {
                    check(value == null || key.endsWith(" key")) { "the disk is full" }
                    texts.set(key, value)
                }
            }
            val bodies = mutableListOf<String>()
            repeat(2) {
                val place = place("https://weir.test", "Z", platform(full) { _, body -> entered.also { bodies += body } })
                assertEquals("p", place.entry().pass)
                place.stop()
                testScheduler.advanceUntilIdle()
            }
            val keys = bodies.mapNotNull { fieldsOf(readJson(it))["idempotencyKey"] }
            assertEquals(if (before == null) 2 else 1, keys.toSet().size, "the second start takes a new place: $bodies")
        }
    }

    @Test
    fun aPlaceThatTheStorageDoesNotLetGoIsAskedForOnce() = runTest {
        val stubborn = object : Storage {
            override suspend fun get(key: String) = """{"token":"old","heard":-4000000}"""

            override suspend fun set(key: String, value: String?) {}
        }
        val gone = Reply(410, { null }, """{"type":"urn:weir:problem:gone","code":"gone"}""")
        val bodies = mutableListOf<String>()
        val place = place("https://weir.test", "Z", platform(stubborn) { _, body ->
            check(bodies.size < 10) { "it asks again and again" }
            bodies += body
            if (body.contains("\"old\"")) gone else entered
        })
        assertEquals("p", withTimeout(60_000) { place.entry() }.pass)
        assertEquals(2, bodies.size)
    }

    @Test
    fun aKeyWhosePlaceEndedUnseenIsSentNoMoreAlsoIfTheStorageDoesNotLetItGo() = runTest {
        val stubborn = object : Storage {
            override suspend fun get(key: String) = if (key.endsWith(" key")) "the-key-of-a-lost-reply 0" else null

            override suspend fun set(key: String, value: String?) {}
        }
        val gone = Reply(410, { null }, """{"type":"urn:weir:problem:gone","code":"gone"}""")
        val bodies = mutableListOf<String>()
        val place = place("https://weir.test", "Z", platform(stubborn) { _, body ->
            check(bodies.size < 10) { "it asks again and again" }
            gone.also { bodies += body }
        })
        val end = runCatching { withTimeout(60_000) { place.entry() } }.exceptionOrNull() as NoEntry
        assertEquals(Action.NEW_PLACE, end.state?.trouble?.action)
        assertEquals(listOf(true, false), bodies.map { it.contains("the-key-of-a-lost-reply") })
    }

    @Test
    fun aSetupThatCannotBeRightIsRefused() {
        for (server in listOf("weir.test", "ftp://weir.test", "http://", "http://a b", "")) {
            assertThrows(IllegalArgumentException::class.java, { place(server, "Z") }, server)
        }
        assertThrows(IllegalArgumentException::class.java) { place("https://weir.test", "") }
    }
}
