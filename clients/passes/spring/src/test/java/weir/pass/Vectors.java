package weir.pass;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** The vectors that all verifiers share. */
final class Vectors {
    static final Map<?, ?> ALL = read();
    static final Map<?, ?> SETS = (Map<?, ?>) ALL.get("sets");
    /** The first case: a good pass. */
    static final Map<?, ?> FIRST = (Map<?, ?>) ((List<?>) ALL.get("cases")).get(0);

    private Vectors() {}

    private static Map<?, ?> read() {
        try {
            return Json.readObject(Files.readAllBytes(Path.of("../vectors.json")));
        } catch (IOException fault) {
            throw new UncheckedIOException(fault);
        }
    }

    static long number(Map<?, ?> of, String name) {
        return ((Double) of.get(name)).longValue();
    }

    static String text(Map<?, ?> of, String name) {
        return (String) of.get(name);
    }

    /** The JSON of a part of the vectors. Its texts need no escapes but these. */
    static String write(Object value) {
        if (value instanceof Map<?, ?> members) {
            return members.entrySet().stream().map(one -> write(one.getKey()) + ":" + write(one.getValue()))
                    .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof List<?> items) {
            return items.stream().map(Vectors::write).collect(Collectors.joining(",", "[", "]"));
        }
        return value instanceof String text ? '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"' : String.valueOf(value);
    }
}
