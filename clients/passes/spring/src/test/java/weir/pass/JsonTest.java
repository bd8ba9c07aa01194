package weir.pass;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class JsonTest {
    private static Object read(String text) {
        return Json.read(text.getBytes(StandardCharsets.UTF_8));
    }

    @Test
    void whatIsJsonIsRead() {
        assertEquals(Map.of("a", Arrays.asList(1.0, -0.5, 1e3, true, false, null), "b", Map.of(), "c", List.of()),
                read(" {\"a\" : [1, -0.5,1e3,\ttrue,false,null],\r\n\"b\":{ },\"c\":[ ]} "));
        assertEquals("\"\\/\b\f\n\r\t가😀", read("\"\\\"\\\\\\/\\b\\f\\n\\r\\t가\\ud83d\\ude00\""));
        assertEquals(Map.of("a", 2.0), read("{\"a\":1,\"a\":2}"), "the last one counts");
        assertEquals(Double.POSITIVE_INFINITY, read("1e999"));
    }

    @Test
    void whatIsNotJsonIsRefused() {
        for (String text : List.of("", " ", "{", "[", "\"", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "[1,]", "[,1]", "[1 2]", "01",
                "1.", ".5", "+1", "-", "1e", "0x1", "NaN", "Infinity", "tru", "nul", "True", "'a'", "\"\n\"", "\"\\x\"", "\"\\u12\"",
                "\"\\uzzzz\"", "\"\\u１２３４\"", "\"\\", "1 2", "{}x", "[1]]", "// a\n1", "\u00a01",
                "[".repeat(65) + "]".repeat(65), "[".repeat(100_000))) {
            assertThrows(IllegalArgumentException.class, () -> read(text), text);
        }
        assertThrows(IllegalArgumentException.class, () -> Json.read(new byte[] {'"', (byte) 0xff, '"'}));
    }
}
