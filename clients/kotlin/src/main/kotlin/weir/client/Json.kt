// Reads and writes JSON as RFC 8259 defines it. The JVM has no reader of its own, and Android's reads texts that are not JSON.
//
// Invariant: what is not JSON is an `Unreadable`, whatever it is.

package weir.client

/** How deep lists and objects may be in each other. Replies of Weir need four. */
private const val DEEPEST = 64
private val NUMBER = Regex("-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

/** A reply that Weir would not send. */
internal class Unreadable(message: String) : Exception(message)

/**
 * The value of a text: a `Map`, a `List`, a `String`, a `Double`, a `Boolean` or null. The last of two members with one name counts.
 * Throws [Unreadable].
 */
internal fun readJson(text: String): Any? = JsonReader(text).whole()

/** The text of such a value. */
internal fun writeJson(value: Any?): String = when (value) {
    is Map<*, *> -> value.entries.joinToString(",", "{", "}") { (name, member) -> "${quote(name as String)}:${writeJson(member)}" }
    is List<*> -> value.joinToString(",", "[", "]", transform = ::writeJson)
    is String -> quote(value)
    else -> value.toString()
}

private fun quote(text: String): String = buildString {
    append('"')
    for (c in text) {
        when {
            c == '"' || c == '\\' -> append('\\').append(c)
            c < ' ' -> append("\\u%04x".format(c.code))
            else -> append(c)
        }
    }
    append('"')
}

private class JsonReader(private val text: String) {
    private var at = 0
    private var depth = 0

    fun whole(): Any? {
        val value = value()
        skipSpace()
        if (at < text.length) throw fault("more text")
        return value
    }

    private fun value(): Any? {
        skipSpace()
        return when (peek()) {
            '{' -> members()
            '[' -> items()
            '"' -> string()
            't' -> word("true", true)
            'f' -> word("false", false)
            'n' -> word("null", null)
            else -> number()
        }
    }

    private fun members(): Map<String, Any?> = buildMap {
        within('}') {
            skipSpace()
            val name = string()
            skipSpace()
            expect(':')
            put(name, value())
        }
    }

    private fun items(): List<Any?> = buildList { within(']') { add(value()) } }

    /** Reads items and the commas between them, until the end. */
    private inline fun within(end: Char, item: () -> Unit) {
        at++
        if (++depth > DEEPEST) throw fault("too deep")
        if (!skips(end)) {
            do item() while (skips(','))
            expect(end)
        }
        depth--
    }

    private fun skips(wanted: Char): Boolean {
        skipSpace()
        if (peek() != wanted) return false
        at++
        return true
    }

    private fun string(): String = buildString {
        expect('"')
        while (true) {
            val c = next()
            when {
                c == '"' -> return@buildString
                c < ' ' -> throw fault("a control character")
                c == '\\' -> append(escaped())
                else -> append(c)
            }
        }
    }

    private fun escaped(): Char = when (val c = next()) {
        '"', '\\', '/' -> c
        'b' -> '\b'
        'f' -> '\u000c'
        'n' -> '\n'
        'r' -> '\r'
        't' -> '\t'
        'u' -> (1..4).fold(0) { code, _ -> code * 16 + hex() }.toChar()
        else -> throw fault("an unknown escape")
    }

    private fun hex(): Int = when (val c = next()) {
        in '0'..'9' -> c - '0'
        in 'a'..'f' -> c - 'a' + 10
        in 'A'..'F' -> c - 'A' + 10
        else -> throw fault("not a hexadecimal digit")
    }

    private fun number(): Double {
        val found = NUMBER.matchAt(text, at) ?: throw fault("not a value")
        at = found.range.last + 1
        return found.value.toDouble()
    }

    private fun word(word: String, meaning: Boolean?): Boolean? {
        if (!text.startsWith(word, at)) throw fault("not a value")
        at += word.length
        return meaning
    }

    private fun skipSpace() {
        while (at < text.length && text[at] in " \t\r\n") at++
    }

    private fun peek(): Char? = text.getOrNull(at)

    private fun next(): Char = (peek() ?: throw fault("it ends early")).also { at++ }

    private fun expect(wanted: Char) {
        if (peek() != wanted) throw fault("no $wanted")
        at++
    }

    private fun fault(what: String) = Unreadable("not JSON: $what at character $at")
}
