package weir.pass;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;
import static weir.pass.Vectors.number;
import static weir.pass.Vectors.text;

import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.RedisStringCommands.SetOption;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.RedisCallback;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.types.Expiration;

/** The verifier, with the vectors that all verifiers share. */
class PassesTest {
    private static final String GOOD = text(Vectors.FIRST, "pass");

    private final List<Publisher> publishers = new ArrayList<>();
    /** What the clocks of the verifiers show, in seconds since 1970. */
    private final AtomicLong now = new AtomicLong(number(Vectors.FIRST, "now"));

    @AfterEach
    void close() {
        publishers.forEach(Publisher::close);
    }

    private Publisher publish(String set) throws Exception {
        Publisher at = new Publisher(Vectors.SETS);
        publishers.add(at);
        at.what = Map.of("set", set);
        return at;
    }

    private Passes passes(Publisher at, Spend spend) {
        Passes passes = new Passes(at.address(), text(Vectors.ALL, "zone"), text(Vectors.ALL, "audience"), spend,
                () -> Instant.ofEpochSecond(now.get()), () -> TimeUnit.SECONDS.toNanos(now.get()));
        // Short only where nothing comes.
        passes.keys.limit = Duration.ofSeconds(20);
        return passes;
    }

    private static String said(Passes passes, String pass) {
        try {
            passes.accept(pass);
            return "ok";
        } catch (Refusal refusal) {
            return refusal.code().toString();
        }
    }

    @Test
    void everyPassIsJudgedAsTheVectorsSay() throws Exception {
        Publisher at = publish("all");
        List<String> faults = new ArrayList<>();
        for (Object item : (List<?>) Vectors.ALL.get("cases")) {
            Map<?, ?> one = (Map<?, ?>) item;
            at.what = Map.of("set", text(one, "jwks"));
            now.set(number(one, "now"));
            String said = said(passes(at, null), text(one, "pass"));
            if (!said.equals(one.get("expect"))) {
                faults.add(one.get("name") + ": " + said + " instead of " + one.get("expect"));
            }
            if (one.get("claims") instanceof Map<?, ?> claims) {
                assertEquals(new Pass(text(claims, "zone"), text(claims, "jti"), Instant.ofEpochSecond(number(claims, "exp"))),
                        passes(at, null).accept(text(one, "pass")));
            }
        }
        assertEquals(List.of(), faults);
    }

    @Test
    void aHalfOfZerosIsNoSignatureWhateverJavaSays() {
        byte[] mark = new byte[64];
        mark[0] = 1;
        assertEquals(false, Key.hasTwoHalves(mark));
        mark[63] = 1;
        assertEquals(true, Key.hasTwoHalves(mark));
        mark[0] = 0;
        assertEquals(false, Key.hasTwoHalves(mark));
    }

    @TestFactory
    Stream<DynamicTest> everyScenarioOfTheVectors() {
        return ((List<?>) Vectors.ALL.get("scenarios")).stream().map(item -> (Map<?, ?>) item)
                .map(scenario -> dynamicTest(text(scenario, "name"), () -> play((List<?>) scenario.get("steps"))));
    }

    private void play(List<?> steps) throws Exception {
        Publisher at = publish("none");
        Passes passes = passes(at, null);
        long epoch = number(Vectors.ALL, "epoch");
        for (int i = 0; i < steps.size(); i++) {
            Map<?, ?> step = (Map<?, ?>) steps.get(i);
            if (step.get("serve") instanceof Map<?, ?> what) {
                at.what = what;
                boolean comesNever = what.containsKey("hang") || what.containsKey("trickle");
                passes.keys.limit = comesNever ? Duration.ofMillis(500) : Duration.ofSeconds(20);
            }
            if (step.get("fetches") instanceof Double fetches) {
                assertEquals(fetches.intValue(), at.fetches.get(), "fetches at step " + i);
            }
            if (step.get("pass") instanceof String pass) {
                now.set(epoch + number(step, "at"));
                String when = "step " + i + ", at " + step.get("at") + " s";
                try {
                    passes.accept(pass);
                    assertEquals(step.get("expect"), "ok", when);
                } catch (Refusal refusal) {
                    assertEquals(step.get("expect"), refusal.code().toString(), when);
                    if (step.get("retry_after") instanceof Double after) {
                        assertEquals(after.longValue(), refusal.retryAfterSeconds(), when);
                    }
                }
            }
        }
    }

    /** How many of a hundred callers enter who show the good pass at once, in turn to each of the verifiers. */
    private static long enterAtOnce(Passes... verifiers) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(100);
        try {
            List<Callable<String>> callers = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                Passes passes = verifiers[i % verifiers.length];
                callers.add(() -> said(passes, GOOD));
            }
            long entered = 0;
            for (var one : threads.invokeAll(callers)) {
                entered += one.get().equals("ok") ? 1 : 0;
            }
            return entered;
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void aFormWithoutTheFieldHasNoPass() throws Exception {
        Passes passes = passes(publish("all"), null);
        assertEquals(Refusal.Code.UNREADABLE, assertThrows(Refusal.class, () -> passes.accept(null)).code());
    }

    @Test
    void ofAHundredWhoShowOnePassAtOnceOneEnters() throws Exception {
        Publisher at = publish("all");
        Passes passes = passes(at, null);
        assertEquals(1, enterAtOnce(passes, passes));
        assertEquals(1, at.fetches.get(), "the keys are fetched once");
    }

    /** Calls {@code act} with a connection to this Redis, as docs/app/clients.md says it. */
    private static void withRedis(String host, int port, ThrowingConsumer<StringRedisTemplate> act) throws Exception {
        LettuceConnectionFactory connections = new LettuceConnectionFactory(new RedisStandaloneConfiguration(host, port),
                LettuceClientConfiguration.builder().commandTimeout(Duration.ofSeconds(2)).build());
        connections.afterPropertiesSet();
        connections.start();
        try {
            act.accept(new StringRedisTemplate(connections));
        } finally {
            connections.destroy();
        }
    }

    private interface ThrowingConsumer<T> {
        void accept(T value) throws Exception;
    }

    /**
     * As docs/app/clients.md says it, with a prefix: the tests of other languages use this Redis, too. The clock is that of the service.
     */
    private static Spend record(StringRedisTemplate template, String prefix, InstantSource clock) {
        return (key, until) -> {
            byte[] mine = UUID.randomUUID().toString().getBytes(StandardCharsets.US_ASCII);
            byte[] name = (prefix + key).getBytes(StandardCharsets.US_ASCII);
            Expiration life = Expiration.from(Duration.between(clock.instant(), until));
            byte[] found = template.execute((RedisCallback<byte[]>) redis ->
                    redis.stringCommands().setGet(name, mine, life, SetOption.ifAbsent()));
            return found == null || Arrays.equals(found, mine);
        };
    }

    @Test
    @EnabledIfEnvironmentVariable(named = "PASSES_REDIS", matches = ".+", disabledReason = "PASSES_REDIS names no Redis")
    void aPassIsNotTakenForASpentOneWhereAReplyOfRedisIsLost() throws Exception {
        URI redis = URI.create(System.getenv("PASSES_REDIS"));
        try (LosingProxy proxy = new LosingProxy(redis.getHost(), redis.getPort())) {
            withRedis("127.0.0.1", proxy.port(), template -> {
                Passes passes = passes(publish("all"), record(template, "java-lost:", Instant::now));
                assertEquals(List.of("ok", "spent"), List.of(said(passes, GOOD), said(passes, GOOD)));
            });
            assertTrue(proxy.hasLost());
        }
    }

    @Test
    @EnabledIfEnvironmentVariable(named = "PASSES_REDIS", matches = ".+", disabledReason = "PASSES_REDIS names no Redis")
    void servicesThatShareARedisAcceptAPassOnce() throws Exception {
        URI redis = URI.create(System.getenv("PASSES_REDIS"));
        withRedis(redis.getHost(), redis.getPort(), template -> {
            Spend spend = record(template, "java:", () -> Instant.ofEpochSecond(now.get()));
            assertEquals(1, enterAtOnce(passes(publish("all"), spend), passes(publish("all"), spend)));
            long life = template.getExpire("java:weir:spent:TEST_ZONE/0000002a/1");
            assertTrue(life > 300 && life <= 1_900_000_365 - now.get(), "it is kept for " + life + " s");
        });
    }

    @Test
    @EnabledIfEnvironmentVariable(named = "PASSES_REDIS", matches = ".+", disabledReason = "PASSES_REDIS names no Redis")
    void aRedisWhoseClockIsAheadDoesNotForgetASpentPass() throws Exception {
        URI redis = URI.create(System.getenv("PASSES_REDIS"));
        withRedis(redis.getHost(), redis.getPort(), template -> {
            Instant behind = Instant.now().minusSeconds(3_600);
            Spend spend = record(template, "java-ahead:", () -> behind);
            assertEquals(true, spend.spend("a", behind.plusSeconds(365)));
            assertEquals(false, spend.spend("a", behind.plusSeconds(365)));
        });
    }

    @Test
    void nobodyEntersWithoutTheSharedRecord() throws Exception {
        Exception away = new Exception("no Redis");
        List<Object> asked = new ArrayList<>();
        Passes passes = passes(publish("all"), (key, until) -> {
            asked.add(key);
            asked.add(until.getEpochSecond());
            throw away;
        });
        Refusal refusal = assertThrows(Refusal.class, () -> passes.accept(GOOD));
        assertEquals(List.of("weir:spent:TEST_ZONE/0000002a/1", 1_900_000_365L), asked);
        assertEquals(List.of(Refusal.Code.RECORD_AWAY, 503, away), List.of(refusal.code(), refusal.status(), refusal.getCause()));
    }

    @Test
    void nobodyWaitsLongForAWeirThatHangsWhereTheKeyIsKnown() throws Exception {
        Publisher at = publish("all");
        Passes passes = passes(at, null);
        passes.keys.limit = Duration.ofSeconds(10);
        assertEquals("ok", said(passes, GOOD));
        at.what = Map.of("hang", true);
        now.addAndGet(61);
        long begun = System.nanoTime();
        for (int i = 0; i < 4; i++) {
            assertEquals("spent", said(passes, GOOD));
        }
        long tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begun);
        assertTrue(tookMs < 7_500, "it waits for a fifth of the limit, and once; it waited " + tookMs + " ms");
        assertEquals(2, at.fetches.get());
    }

    @Test
    void theMemoryHasALimitAndForgetsWhatHasExpired() {
        AtomicLong seconds = new AtomicLong();
        InstantSource clock = () -> Instant.ofEpochSecond(seconds.get());
        Memory memory = new Memory(clock, 2);
        assertEquals(true, memory.spend("a", Instant.ofEpochSecond(10)));
        assertEquals(false, memory.spend("a", Instant.ofEpochSecond(10)));
        assertEquals(true, memory.spend("b", Instant.ofEpochSecond(20)));
        assertThrows(IllegalStateException.class, () -> memory.spend("c", Instant.ofEpochSecond(30)));
        seconds.set(11);
        assertEquals(true, memory.spend("c", Instant.ofEpochSecond(30)));
        assertEquals(false, memory.spend("b", Instant.ofEpochSecond(20)));
    }

    @Test
    void aFullMemoryLooksForWhatHasExpiredOnceInASecondAtMost() {
        AtomicLong seconds = new AtomicLong();
        Memory memory = new Memory(() -> Instant.ofEpochSecond(seconds.get()), 2);
        assertEquals(true, memory.spend("a", Instant.ofEpochSecond(10)));
        assertEquals(true, memory.spend("b", Instant.ofEpochSecond(11)));
        seconds.set(11);
        assertEquals(true, memory.spend("c", Instant.ofEpochSecond(30)));
        seconds.set(12);
        assertThrows(IllegalStateException.class, () -> memory.spend("d", Instant.ofEpochSecond(30)));
        seconds.set(13);
        assertEquals(true, memory.spend("d", Instant.ofEpochSecond(30)));
    }

    @Test
    void optionsThatCannotBeRightAreRefused() {
        for (String weir : List.of("weir.example", "ftp://w", "http://", "http://a b", "")) {
            assertThrows(IllegalArgumentException.class, () -> new Passes(weir, "Z"), weir);
        }
        assertThrows(IllegalArgumentException.class, () -> new Passes("http://w", ""));
        assertThrows(IllegalArgumentException.class, () -> new Passes("http://w", "Z", "", null));
    }
}
