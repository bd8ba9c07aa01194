package weir.pass;

import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Locale;

/** A pass is not accepted. {@link #answer} tells callers the code, and nothing of the cause. */
public final class Refusal extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Why a pass is not accepted. In a reply the names are in small letters. */
    public enum Code {
        /** The request has none. */
        NO_PASS("A pass is needed"),
        /** It is not a pass of Weir. */
        UNREADABLE("This is not a pass"),
        /** Weir does not publish its key. */
        UNKNOWN_KEY("The pass is signed by an unknown key"),
        /** The signature does not match. */
        FORGED("The pass is forged"),
        /** By this machine's clock. */
        NOT_YET_VALID("The pass is not valid yet"),
        /** By this machine's clock. */
        EXPIRED("The pass has expired"),
        /** It is for another audience or zone. */
        OTHER_SERVICE("The pass is for another service"),
        /** It was accepted before. */
        SPENT("The pass was used already"),
        /** Whether Weir publishes its key is not known, and cannot be asked now. */
        KEYS_AWAY("Passes cannot be checked now"),
        /** The record of spent passes does not answer, or is full. */
        RECORD_AWAY("Passes cannot be accepted now");

        private final String title;

        Code(String title) {
            this.title = title;
        }

        @Override
        public String toString() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    private final Code code;
    private final Duration after;

    Refusal(Code code) {
        this(code, null);
    }

    Refusal(Code code, Throwable cause) {
        this(code, cause, Duration.ofSeconds(10));
    }

    Refusal(Code code, Throwable cause, Duration after) {
        super(code.title, cause);
        this.code = code;
        this.after = after;
    }

    /** Why. The cause of this exception, if it has one, is for the log. */
    public Code code() {
        return code;
    }

    /** The status of the reply: 401; or 503, if the fault is not the pass. */
    public int status() {
        return code == Code.KEYS_AWAY || code == Code.RECORD_AWAY ? 503 : 401;
    }

    /** After how many seconds the pass may be shown again, if the status is 503. */
    public long retryAfterSeconds() {
        return Math.max(1, after.plusSeconds(1).minusNanos(1).toSeconds());
    }

    /**
     * Answers with a problem document (RFC 9457).
     *
     * @throws IOException if the client is gone
     */
    public void answer(HttpServletResponse response) throws IOException {
        response.setStatus(status());
        response.setContentType("application/problem+json");
        response.setHeader("Cache-Control", "no-store");
        if (status() == 503) {
            response.setHeader("Retry-After", String.valueOf(retryAfterSeconds()));
        } else if (code == Code.NO_PASS) {
            // A request without a pass is told no error, as RFC 6750 says.
            response.setHeader("WWW-Authenticate", "Bearer realm=\"weir\"");
        } else {
            response.setHeader("WWW-Authenticate",
                    "Bearer realm=\"weir\", error=\"invalid_token\", error_description=\"" + code.title + "\"");
        }
        String body = "{\"type\":\"about:blank\",\"title\":\"%s\",\"status\":%d,\"code\":\"%s\"}".formatted(code.title, status(), code);
        // Not the writer, which would add a charset to the type.
        response.getOutputStream().write(body.getBytes(StandardCharsets.US_ASCII));
    }
}
