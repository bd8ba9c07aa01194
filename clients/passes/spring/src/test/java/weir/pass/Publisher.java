package weir.pass;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** A Weir that publishes keys as the steps of a scenario say, on a free port of this machine. */
final class Publisher implements AutoCloseable {
    /** How it answers: the field `serve` of a step. */
    volatile Map<?, ?> what = Map.of();
    final AtomicInteger fetches = new AtomicInteger();

    private final Map<?, ?> sets;
    private final HttpServer server;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final CountDownLatch closed = new CountDownLatch(1);

    Publisher(Map<?, ?> sets) throws IOException {
        this.sets = sets;
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(threads);
        server.createContext("/.well-known/jwks.json", this::answer);
        server.createContext("/elsewhere", exchange -> send(exchange, 200, Vectors.write(sets.get("a"))));
        server.start();
    }

    String address() {
        return "http://127.0.0.1:" + server.getAddress().getPort();
    }

    private void answer(HttpExchange exchange) throws IOException {
        Map<?, ?> how = what;
        fetches.incrementAndGet();
        if (!"no-cache".equals(exchange.getRequestHeaders().getFirst("Cache-Control"))) {
            // As a cache does that has older keys.
            send(exchange, 200, "{\"keys\":[]}");
        } else if (how.containsKey("hang")) {
            isClosedWithin(Long.MAX_VALUE);
        } else if (how.containsKey("redirect")) {
            exchange.getResponseHeaders().set("Location", "/elsewhere");
            send(exchange, 302, "");
        } else if (how.containsKey("trickle") || how.containsKey("endless")) {
            exchange.sendResponseHeaders(200, 0);
            String piece = " ".repeat(how.containsKey("endless") ? 16_384 : 1);
            try (OutputStream body = exchange.getResponseBody()) {
                // It fails when the verifier does not read any more.
                while (!isClosedWithin(how.containsKey("endless") ? 0 : 100)) {
                    body.write(piece.getBytes(StandardCharsets.US_ASCII));
                    body.flush();
                }
            }
        } else {
            String set = how.containsKey("set") ? Vectors.write(sets.get(how.get("set"))) : "{}";
            String text = how.get("body") instanceof String body ? body : set;
            int padding = how.get("padding") instanceof Double bytes ? bytes.intValue() : 0;
            send(exchange, how.get("status") instanceof Double status ? status.intValue() : 200, text + " ".repeat(padding));
        }
    }

    private static void send(HttpExchange exchange, int status, String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, bytes.length == 0 ? -1 : bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    private boolean isClosedWithin(long ms) {
        try {
            return closed.await(ms, TimeUnit.MILLISECONDS);
        } catch (InterruptedException end) {
            return true;
        }
    }

    @Override
    public void close() {
        closed.countDown();
        server.stop(0);
        threads.shutdownNow();
    }
}
