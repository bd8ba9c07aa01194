package weir.pass;

import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Accepts the passes of one zone, each once. It may be used by many threads. docs/app/clients.md describes what every verifier does.
 *
 * <p>Invariants: nothing in a pass is believed before its signature is verified, except which key to use. A name is first once, until its
 * pass cannot be accepted any more.
 */
public final class Passes {
    /** The largest difference between Weir's clock and this machine's. */
    private static final Duration LEEWAY = Duration.ofSeconds(5);
    /** How much longer than a pass is accepted its name is kept: the clocks of those that share the record may differ. */
    private static final Duration KEPT = Duration.ofSeconds(60);
    /** The longest pass, in characters. Weir's have less than 1,500. */
    private static final int MAX_PASS = 8_192;
    private static final double MAX_SECONDS = 1e12;
    /** A name is part of a key in the record of spent passes. */
    private static final Pattern NAME = Pattern.compile("[\\x21-\\x7e]{1,256}");
    private static final Pattern BEARER = Pattern.compile("[Bb][Ee][Aa][Rr][Ee][Rr] +(\\S+)");

    private final String zone;
    private final String audience;
    private final Spend spend;
    private final InstantSource clock;
    /** Tests change its time limit. */
    final Keys keys;

    /** Passes for the audience {@code weir}, which is Weir's default, with the memory of this process as the record of spent passes. */
    public Passes(String weir, String zone) {
        this(weir, zone, "weir", null);
    }

    /** Passes for the audience {@code weir}, which is Weir's default. */
    public Passes(String weir, String zone, Spend spend) {
        this(weir, zone, "weir", spend);
    }

    /**
     * @param weir the address of Weir, such as {@code https://weir.example}
     * @param zone the zone of the passes
     * @param audience Weir's {@code pass.audience}
     * @param spend the record of spent passes, or null for the memory of this process
     * @throws IllegalArgumentException if the address is not one of http or https, or the zone or the audience is empty
     */
    public Passes(String weir, String zone, String audience, Spend spend) {
        this(weir, zone, audience, spend, InstantSource.system(), System::nanoTime);
    }

    /** The same with other clocks, for tests. */
    Passes(String weir, String zone, String audience, Spend spend, InstantSource clock, LongSupplier steadyNanos) {
        if (zone.isEmpty() || audience.isEmpty()) {
            throw new IllegalArgumentException("zone and audience must not be empty");
        }
        URI address;
        try {
            address = URI.create(weir.replaceAll("/+$", "") + "/.well-known/jwks.json");
        } catch (IllegalArgumentException fault) {
            throw notAnAddress(weir, fault);
        }
        if (address.getHost() == null || !List.of("http", "https").contains(address.getScheme())) {
            throw notAnAddress(weir, null);
        }
        this.zone = zone;
        this.audience = audience;
        this.clock = clock;
        this.spend = spend == null ? new Memory(clock, Memory.MOST) : spend;
        this.keys = new Keys(address, steadyNanos);
    }

    private static IllegalArgumentException notAnAddress(String weir, Exception fault) {
        return new IllegalArgumentException("weir must be an address such as https://weir.example, not \"" + weir + "\"", fault);
    }

    /**
     * Accepts a pass, for example the field {@code pass} of a form. It blocks while keys are fetched, and until the record answers.
     *
     * @throws Refusal if it is not accepted; the pass is not spent then, except with {@code record_away}: it may be spent
     */
    public Pass accept(String text) {
        Pass pass = verify(text);
        boolean isFirst;
        try {
            isFirst = spend.spend("weir:spent:" + pass.jti(), pass.expires().plus(LEEWAY).plus(KEPT));
        } catch (Exception fault) {
            if (fault instanceof InterruptedException) {
                Thread.currentThread().interrupt();
            }
            throw new Refusal(Refusal.Code.RECORD_AWAY, fault);
        }
        if (!isFirst) {
            throw new Refusal(Refusal.Code.SPENT);
        }
        return pass;
    }

    /**
     * Accepts the pass of {@code Authorization: Bearer …}.
     *
     * @param authorization the value of the header, or null
     * @throws Refusal as {@link #accept}
     */
    Pass acceptBearer(String authorization) {
        Matcher found = BEARER.matcher(authorization == null ? "" : authorization);
        if (!found.matches()) {
            throw new Refusal(Refusal.Code.NO_PASS);
        }
        return accept(found.group(1));
    }

    /** The pass of a text. Does not spend it. */
    private Pass verify(String text) {
        // A form may lack the field.
        String[] parts = text != null && text.length() <= MAX_PASS ? text.split("\\.", -1) : new String[0];
        if (parts.length != 3) {
            throw new Refusal(Refusal.Code.UNREADABLE);
        }
        Map<?, ?> head = fieldsOf(parts[0]);
        // Nothing critical is known here, so RFC 7515 demands a refusal.
        if (!(head.get("kid") instanceof String kid) || head.containsKey("crit")) {
            throw new Refusal(Refusal.Code.UNREADABLE);
        }
        bytesOf(parts[1]);
        byte[] mark = bytesOf(parts[2]);
        Key key = keys.find(kid);
        byte[] signed = (parts[0] + "." + parts[1]).getBytes(StandardCharsets.US_ASCII);
        if (!key.algorithm().equals(head.get("alg")) || !key.verifies(signed, mark)) {
            throw new Refusal(Refusal.Code.FORGED);
        }
        return judge(fieldsOf(parts[1]));
    }

    /** Looks at the claims of a pass whose signature is right. */
    private Pass judge(Map<?, ?> claims) {
        Instant begins = timeOf(claims.get("nbf"));
        Instant expires = timeOf(claims.get("exp"));
        if (!(claims.get("jti") instanceof String jti) || !NAME.matcher(jti).matches()) {
            throw new Refusal(Refusal.Code.UNREADABLE);
        }
        Instant now = clock.instant();
        if (now.isBefore(begins.minus(LEEWAY))) {
            throw new Refusal(Refusal.Code.NOT_YET_VALID);
        }
        if (!now.isBefore(expires.plus(LEEWAY))) {
            throw new Refusal(Refusal.Code.EXPIRED);
        }
        Object aud = claims.get("aud");
        boolean isOurs = audience.equals(aud) || (aud instanceof List<?> several && several.contains(audience));
        if (!isOurs || !zone.equals(claims.get("zone"))) {
            throw new Refusal(Refusal.Code.OTHER_SERVICE);
        }
        return new Pass(zone, jti, expires);
    }

    private static Map<?, ?> fieldsOf(String part) {
        try {
            return Json.readObject(bytesOf(part));
        } catch (IllegalArgumentException fault) {
            throw new Refusal(Refusal.Code.UNREADABLE, fault);
        }
    }

    private static byte[] bytesOf(String part) {
        try {
            return Key.decode(part);
        } catch (IllegalArgumentException fault) {
            throw new Refusal(Refusal.Code.UNREADABLE, fault);
        }
    }

    /** The time of a claim, which is in seconds since 1970. */
    private static Instant timeOf(Object claim) {
        if (claim instanceof Double seconds && Math.abs(seconds) <= MAX_SECONDS) {
            return Instant.ofEpochMilli((long) (seconds * 1_000));
        }
        throw new Refusal(Refusal.Code.UNREADABLE);
    }
}
