package weir.pass;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * The keys that Weir publishes.
 *
 * <p>Invariants: they are fetched at most once in 10 s, however many passes name unknown keys. A key that is not published any more is used
 * for a minute at most, unless Weir does not answer: then for an hour, which is as long as any pass is valid. Whoever shows a pass of a known
 * key waits for a fetch during its first second only. A text of keys that is wrong in any way replaces nothing. A key is unknown only if the
 * last fetch succeeded without it, and began after its name was asked for or the key was withdrawn. Otherwise, a later fetch may bring it.
 */
final class Keys {
    /** After this time the keys are fetched again, because one may have been withdrawn. */
    private static final long FRESH_NANOS = TimeUnit.MINUTES.toNanos(1);
    /** The shortest time between two fetches. */
    private static final long PAUSE_NANOS = TimeUnit.SECONDS.toNanos(10);
    /** Older keys are not used. */
    private static final long OLDEST_NANOS = TimeUnit.HOURS.toNanos(1);
    private static final int MAX_BYTES = 65_536;
    private static final int MAX_KEYS = 32;

    /** What was fetched last, when by the steady clock, and which names the last fetch did not bring. */
    private record Known(Map<String, Key> keys, long fetchedNanos, Set<String> missed) {}

    /**
     * A fetch.
     *
     * @param atNanos when it began, by the steady clock
     * @param over is complete when it has ended
     * @param soon is complete then, too, and when a fifth of the time limit has passed: then Weir is taken to be away wherever a known key
     *     will do
     */
    private record Asking(long atNanos, CompletableFuture<Void> over, CompletableFuture<Void> soon) {}

    private final HttpRequest request;
    /** A clock that never jumps. */
    private final LongSupplier steadyNanos;
    // A redirect would let somebody else say which keys there are.
    private final HttpClient client =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).followRedirects(HttpClient.Redirect.NEVER).build();
    /** The time limit of a fetch. Tests change it. */
    volatile Duration limit = Duration.ofSeconds(5);

    /** Null: never fetched. */
    private volatile Known known;
    /** Why the last fetch says nothing about a key. */
    private volatile Exception fault;
    /** Held for a moment, for the two below. */
    private final ReentrantLock lock = new ReentrantLock();
    /** The last fetch. Null: there was none. */
    private Asking asking;
    /** Names that were asked for since it began, at most {@link #MAX_KEYS}. */
    private Set<String> wanted = new HashSet<>();

    Keys(URI address, LongSupplier steadyNanos) {
        // A cache in between would keep a withdrawn key for its own time, and a new one away.
        this.request = HttpRequest.newBuilder(address).header("Accept", "application/jwk-set+json")
                .header("Cache-Control", "no-cache").build();
        this.steadyNanos = steadyNanos;
    }

    /**
     * The key of this name. It may block for as long as a fetch takes, or for a fifth of its limit if the key is known.
     *
     * @throws Refusal if it is unknown, or if that cannot be asked now
     */
    Key find(String kid) {
        Known now = known;
        if (isReady(now, kid)) {
            return now.keys().get(kid);
        }
        Asking asked = refresh(kid);
        // An interrupt of this caller does not end it, because others wait for the keys, too.
        (age(now) < OLDEST_NANOS && now.keys().containsKey(kid) ? asked.soon() : asked.over()).join();
        now = known;
        if (age(now) < OLDEST_NANOS) {
            Key key = now.keys().get(kid);
            if (key != null) {
                return key;
            }
            if (now.missed().contains(kid)) {
                throw new Refusal(Refusal.Code.UNKNOWN_KEY);
            }
        }
        throw new Refusal(Refusal.Code.KEYS_AWAY, fault, Duration.ofNanos(asked.atNanos() + PAUSE_NANOS - steadyNanos.getAsLong()));
    }

    private boolean isReady(Known now, String kid) {
        return age(now) < FRESH_NANOS && now.keys().containsKey(kid);
    }

    private long age(Known of) {
        return of == null ? Long.MAX_VALUE : steadyNanos.getAsLong() - of.fetchedNanos();
    }

    /** Begins to fetch the keys, once for all who ask meanwhile, unless the last fetch was a moment ago. Returns the last fetch. */
    private Asking refresh(String kid) {
        lock.lock();
        try {
            long nowNanos = steadyNanos.getAsLong();
            // Another caller may have fetched them meanwhile.
            if (asking == null || (!isReady(known, kid) && nowNanos - asking.atNanos() >= PAUSE_NANOS)) {
                wanted.add(kid);
                asking = fetch(nowNanos, wanted);
                wanted = new HashSet<>();
            } else if (wanted.size() < MAX_KEYS) {
                wanted.add(kid);
            }
            return asking;
        } finally {
            lock.unlock();
        }
    }

    /** @param missed names that were asked for before */
    private Asking fetch(long nowNanos, Set<String> missed) {
        long ms = limit.toMillis();
        CompletableFuture<HttpResponse<byte[]>> call = client.sendAsync(request, head -> new Limited());
        CompletableFuture<Void> over = call.copy().orTimeout(ms, TimeUnit.MILLISECONDS).handle((reply, failure) -> {
            call.cancel(true);
            take(reply, failure, missed);
            return null;
        });
        return new Asking(nowNanos, over, over.copy().completeOnTimeout(null, ms / 5, TimeUnit.MILLISECONDS));
    }

    private void take(HttpResponse<byte[]> reply, Throwable failure, Set<String> missed) {
        Known before = known;
        try {
            if (failure != null) {
                throw new IOException("the keys cannot be fetched from " + request.uri(), failure);
            }
            if (reply.statusCode() != 200) {
                throw new IOException("Weir answers " + reply.statusCode() + " at " + request.uri());
            }
            Map<String, Key> keys = keysOf(reply.body());
            if (before != null) {
                missed.addAll(before.keys().keySet());
            }
            known = new Known(keys, steadyNanos.getAsLong(), missed);
            fault = new IOException("the keys were fetched a moment ago, without the key of this pass");
        } catch (IOException | RuntimeException wrong) {
            fault = wrong;
            known = before == null ? null : new Known(before.keys(), before.fetchedNanos(), Set.of());
        }
    }

    private static Map<String, Key> keysOf(byte[] text) {
        if (!(Json.readObject(text).get("keys") instanceof List<?> jwks)) {
            throw new IllegalArgumentException("the text of keys has no list of keys");
        }
        if (jwks.size() > MAX_KEYS) {
            throw new IllegalArgumentException("there are more than " + MAX_KEYS + " keys");
        }
        Map<String, Key> keys = new HashMap<>();
        for (Object one : jwks) {
            if (one instanceof Map<?, ?> jwk && jwk.get("kid") instanceof String kid) {
                Key key = Key.of(jwk);
                if (key != null) {
                    // The first of two keys with one name counts.
                    keys.putIfAbsent(kid, key);
                }
            }
        }
        return keys;
    }

    /** Reads a body of {@link #MAX_BYTES} at most. */
    private static final class Limited implements HttpResponse.BodySubscriber<byte[]> {
        private final CompletableFuture<byte[]> body = new CompletableFuture<>();
        private final ByteArrayOutputStream read = new ByteArrayOutputStream();
        private Flow.Subscription subscription;

        @Override
        public CompletionStage<byte[]> getBody() {
            return body;
        }

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            this.subscription = subscription;
            subscription.request(Long.MAX_VALUE);
        }

        @Override
        public void onNext(List<ByteBuffer> pieces) {
            for (ByteBuffer piece : pieces) {
                if (read.size() + piece.remaining() > MAX_BYTES) {
                    subscription.cancel();
                    body.completeExceptionally(new IOException("the keys have more than " + MAX_BYTES + " bytes"));
                    return;
                }
                byte[] bytes = new byte[piece.remaining()];
                piece.get(bytes);
                read.writeBytes(bytes);
            }
        }

        @Override
        public void onError(Throwable failure) {
            body.completeExceptionally(failure);
        }

        @Override
        public void onComplete() {
            body.complete(read.toByteArray());
        }
    }
}
