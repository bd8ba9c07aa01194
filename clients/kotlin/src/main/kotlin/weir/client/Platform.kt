// What the client needs from the machine.
//
// Invariant: the other files use only what is passed to them, so tests own the time.

package weir.client

import java.security.SecureRandom
import kotlin.random.Random
import kotlinx.coroutines.CoroutineDispatcher
import kotlinx.coroutines.Dispatchers

/**
 * Keeps texts by key. A function may throw, and a call of more than 3 s counts as one that failed. The place then lasts as long as the process.
 */
public interface Storage {
    /** The text under the key, or null. */
    public suspend fun get(key: String): String?

    /** Keeps a text; null removes it. */
    public suspend fun set(key: String, value: String?)
}

/** A reply. `header` takes a name in small letters. */
internal class Reply(val status: Int, val header: (String) -> String?, val body: String)

/** Sends requests. */
internal fun interface Http {
    /**
     * Posts JSON and reads the reply. Throws an exception if there is none, and [Unreadable] if it is longer than [LONGEST_REPLY]. A caller
     * who is cancelled does not wait for it.
     */
    suspend fun post(address: String, body: String): Reply
}

/** The most bytes of a reply. Weir's have less than 2,000. */
internal const val LONGEST_REPLY: Int = 65_536

/** The machine. [jvm] and [android] make one. */
public class Platform internal constructor(
    internal val http: Http,
    internal val storage: Storage?,
    /** A clock that never jumps, in milliseconds. It may stand still while the device sleeps. */
    internal val steadyMs: () -> Double = { System.nanoTime() / 1e6 },
    /** The device's clock, in milliseconds since 1970. It may be wrong, and may jump. */
    internal val deviceMs: () -> Double = { System.currentTimeMillis().toDouble() },
    /** A number from 0 to less than 1. */
    internal val random: () -> Double = Random::nextDouble,
    /** A key that nobody can guess. */
    internal val newKey: () -> String = ::randomKey,
    /** Runs one thing at a time. */
    internal val dispatcher: CoroutineDispatcher = Dispatchers.Default.limitedParallelism(1),
)

private val secure = SecureRandom()

/** 128 random bits as 32 digits. */
private fun randomKey(): String = ByteArray(16).also(secure::nextBytes).joinToString("") { "%02x".format(it) }

/** A JVM from version 17 on. Without `storage`, a place lasts as long as the process. */
public fun jvm(storage: Storage? = null): Platform = Platform(JvmHttp(), storage)

/** Android from version 8 (API level 26) on. Without `storage`, a place lasts until the system ends the app. */
public fun android(storage: Storage? = null): Platform = Platform(AndroidHttp(), storage)
