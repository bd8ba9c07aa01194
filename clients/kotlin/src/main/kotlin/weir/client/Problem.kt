// What went wrong, and what a client does about it: the table of docs/app/errors.md.
//
// Invariant: only a reply of Weir with a status of 4xx ends a place. Whatever a network or a proxy does, the client tries again.

package weir.client

import kotlin.math.min

private const val LONGEST_TEXT = 1_000
private val CODE = Regex("[a-z0-9_]{1,64}")

/** The address of a page as operators may write it: a web page without a user, or a path of Weir's host. */
private val PAGE = Regex("""(?=[!#-;=?-\[\]-~]{1,1000}$)(https?://[^/?#@]+([/?#].*)?|/(?!/).*)""")

/** What a client does. */
public enum class Action {
    /** The client asks again by itself. */
    RETRY,

    /** The place is lost. The user decides whether to take a new one, at the end of the line. */
    NEW_PLACE,

    /** Another try fails, too. An app, an address or a setting must change. */
    GIVE_UP,
}

/**
 * A failure, in the words of Weir.
 *
 * @property code a code of Weir's errors; `offline`: no reply; `away`: a reply that is not from Weir
 * @property title one line for people, in English
 * @property detail what exactly is wrong, in English, or an empty text
 * @property retryMs when the client asks again, in milliseconds from now; 0 unless [action] is [Action.RETRY]
 * @property page the address of a page to which people can go on meanwhile, because the zone is closed around an event that names it;
 * empty without one
 */
public data class Trouble(
    public val code: String,
    public val title: String,
    public val detail: String,
    public val action: Action,
    public val retryMs: Long,
    public val page: String,
)

/**
 * A call that did not succeed.
 *
 * @property retryAfterMs what `Retry-After` said, in milliseconds; 0 without it
 */
internal class Problem(
    val code: String,
    status: Int = 0,
    val title: String = code,
    val detail: String = "",
    val retryAfterMs: Double = 0.0,
    val page: String = "",
) : Exception(detail.ifEmpty { title }) {
    val action: Action = when {
        status !in 400..499 || status == 408 || status == 429 -> Action.RETRY
        code == "gone" || code == "bad_token" -> Action.NEW_PLACE
        else -> Action.GIVE_UP
    }

    fun trouble(retryMs: Long): Trouble = Trouble(code, title, detail, action, retryMs, page)
}

/**
 * The problem of a reply that is not 2xx. A document without the type of its code is not from Weir: a proxy in between has a problem, and may
 * have codes of its own.
 */
internal fun problemOf(reply: Reply): Problem {
    val pauseMs = retryAfterMs(reply.header("retry-after"), reply.header("date"))
    val document = try {
        readJson(reply.body) as? Map<*, *>
    } catch (_: Unreadable) {
        null
    }
    val code = document?.get("code") as? String
    if (code == null || !CODE.matches(code) || document["type"] != "urn:weir:problem:$code") {
        return Problem("away", retryAfterMs = min(pauseMs, LONGEST_AWAY_MS))
    }
    fun text(name: String) = (document[name] as? String).orEmpty().take(LONGEST_TEXT)
    val page = (document["page"] as? String)?.takeIf(PAGE::matches).orEmpty()
    return Problem(code, reply.status, text("title").ifEmpty { code }, text("detail"), pauseMs, page)
}
