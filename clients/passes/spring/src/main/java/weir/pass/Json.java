package weir.pass;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Reads JSON as RFC 8259 defines it. Spring has no reader of its own, and the readers that applications bring differ.
 *
 * <p>Invariant: what is not JSON is an {@link IllegalArgumentException}, whatever it is.
 */
final class Json {
    /** How deep lists and objects may be in each other. Passes and keys need four. */
    private static final int DEEPEST = 64;

    private static final Pattern NUMBER = Pattern.compile("-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?");

    private final String text;
    private int at;
    private int depth;

    private Json(String text) {
        this.text = text;
    }

    /**
     * The value of a text in UTF-8: a {@link Map}, {@link List}, {@link String}, {@link Double}, {@link Boolean}, or null. The last of two
     * members with one name counts.
     *
     * @throws IllegalArgumentException if it is not JSON
     */
    static Object read(byte[] bytes) {
        try {
            Json json = new Json(StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString());
            Object value = json.value();
            json.skipSpace();
            if (json.at < json.text.length()) {
                throw json.fault("more text");
            }
            return value;
        } catch (CharacterCodingException fault) {
            throw new IllegalArgumentException("not UTF-8", fault);
        }
    }

    /**
     * The members of a text that must be an object.
     *
     * @throws IllegalArgumentException if it is not
     */
    static Map<?, ?> readObject(byte[] bytes) {
        if (read(bytes) instanceof Map<?, ?> members) {
            return members;
        }
        throw new IllegalArgumentException("not an object");
    }

    private Object value() {
        skipSpace();
        return switch (peek()) {
            case '{' -> object();
            case '[' -> list();
            case '"' -> string();
            case 't' -> word("true", true);
            case 'f' -> word("false", false);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Map<String, Object> object() {
        Map<String, Object> members = new HashMap<>();
        open();
        if (!closes('}')) {
            do {
                skipSpace();
                String name = string();
                skipSpace();
                expect(':');
                members.put(name, value());
            } while (goesOn('}'));
        }
        depth--;
        return members;
    }

    private List<Object> list() {
        List<Object> items = new ArrayList<>();
        open();
        if (!closes(']')) {
            do {
                items.add(value());
            } while (goesOn(']'));
        }
        depth--;
        return items;
    }

    private void open() {
        at++;
        if (++depth > DEEPEST) {
            throw fault("too deep");
        }
    }

    private boolean closes(char end) {
        skipSpace();
        if (peek() != end) {
            return false;
        }
        at++;
        return true;
    }

    /** Whether a comma follows. If not, the end must. */
    private boolean goesOn(char end) {
        if (closes(',')) {
            return true;
        }
        expect(end);
        return false;
    }

    private String string() {
        StringBuilder read = new StringBuilder();
        expect('"');
        for (;;) {
            char c = next();
            if (c == '"') {
                return read.toString();
            }
            if (c < ' ') {
                throw fault("a control character");
            }
            read.append(c == '\\' ? escaped() : c);
        }
    }

    private char escaped() {
        char c = next();
        return switch (c) {
            case '"', '\\', '/' -> c;
            case 'b' -> '\b';
            case 'f' -> '\f';
            case 'n' -> '\n';
            case 'r' -> '\r';
            case 't' -> '\t';
            case 'u' -> (char) (hex() << 12 | hex() << 8 | hex() << 4 | hex());
            default -> throw fault("an unknown escape");
        };
    }

    private int hex() {
        char c = next();
        int digit = c < 128 ? Character.digit(c, 16) : -1;
        if (digit < 0) {
            throw fault("not a hexadecimal digit");
        }
        return digit;
    }

    private Double number() {
        Matcher found = NUMBER.matcher(text).region(at, text.length());
        if (!found.lookingAt()) {
            throw fault("not a value");
        }
        at = found.end();
        return Double.valueOf(found.group());
    }

    private Boolean word(String word, Boolean meaning) {
        if (!text.startsWith(word, at)) {
            throw fault("not a value");
        }
        at += word.length();
        return meaning;
    }

    private void skipSpace() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    /** The next character, or 0 at the end. */
    private char peek() {
        return at < text.length() ? text.charAt(at) : 0;
    }

    private char next() {
        if (at == text.length()) {
            throw fault("it ends early");
        }
        return text.charAt(at++);
    }

    private void expect(char wanted) {
        if (peek() != wanted) {
            throw fault("no " + wanted);
        }
        at++;
    }

    private IllegalArgumentException fault(String what) {
        return new IllegalArgumentException("not JSON: " + what + " at character " + at);
    }
}
