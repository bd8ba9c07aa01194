package weir.client

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Test

class JsonTest {
    @Test
    fun whatIsJsonIsRead() {
        assertEquals(
            mapOf("a" to listOf(1.0, -0.5, 1e3, true, false, null), "b" to emptyMap<String, Any>(), "c" to emptyList<Any>()),
            readJson(" {\"a\" : [1, -0.5,1e3,\ttrue,false,null],\r\n\"b\":{ },\"c\":[ ]} "),
        )
        assertEquals("\"\\/\b\u000c\n\r\t가😀", readJson(""""\"\\\/\b\f\n\r\t가\ud83d\ude00""""))
        assertEquals(mapOf("a" to 2.0), readJson("""{"a":1,"a":2}"""), "the last one counts")
    }

    @Test
    fun whatIsNotJsonIsRefused() {
        val texts = listOf(
            "", " ", "{", "[", "\"", """{"a"}""", """{"a":}""", """{"a":1,}""", "{a:1}", "[1,]", "[,1]", "[1 2]", "01", "1.", ".5", "+1",
            "-", "1e", "0x1", "NaN", "Infinity", "tru", "nul", "True", "'a'", "\"\n\"", """"\x"""", """"\u12"""", """"\uzzzz"""", "\"\\",
            "1 2", "{}x", "[1]]", "// a\n1", "\u00a01", "[".repeat(65) + "]".repeat(65), "[".repeat(100_000),
        )
        for (text in texts) assertThrows(Unreadable::class.java, { readJson(text) }, text)
    }

    @Test
    fun whatIsWrittenIsReadAgain() {
        val value = mapOf("a\"\\\n\u0000가" to listOf("\u001f", 1.5, null, true, mapOf("b" to emptyList<Any>())))
        assertEquals(value, readJson(writeJson(value)))
    }
}
