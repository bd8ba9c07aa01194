package weir.pass;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A Weir that publishes keys as the steps of a scenario say, on a free port of this machine. The JDK's own server sends neither informational
 * replies nor less than it says.
 */
final class Publisher implements AutoCloseable {
    /** How it answers: the field `serve` of a step. */
    volatile Map<?, ?> what = Map.of();
    final AtomicInteger fetches = new AtomicInteger();

    private final Map<?, ?> sets;
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final CountDownLatch closed = new CountDownLatch(1);

    Publisher(Map<?, ?> sets) throws IOException {
        this.sets = sets;
        threads.execute(this::serve);
    }

    String address() {
        return "http://127.0.0.1:" + server.getLocalPort();
    }

    private void serve() {
        while (true) {
            try {
                Socket connection = server.accept();
                threads.execute(() -> answer(connection));
            } catch (IOException end) {
                return;
            }
        }
    }

    private void answer(Socket connection) {
        try (connection) {
            var head = new BufferedReader(new InputStreamReader(connection.getInputStream(), StandardCharsets.ISO_8859_1));
            String path = head.readLine().split(" ")[1];
            boolean isFresh = false;
            for (String line = head.readLine(); !line.isEmpty(); line = head.readLine()) {
                isFresh |= line.equalsIgnoreCase("Cache-Control: no-cache");
            }
            answer(connection.getOutputStream(), path, isFresh);
        } catch (IOException end) {
            // The verifier does not read any more.
        }
    }

    private void answer(OutputStream to, String path, boolean isFresh) throws IOException {
        Map<?, ?> how = what;
        if (path.equals("/elsewhere")) {
            send(to, 200, "", Vectors.write(sets.get("a")), 0);
            return;
        }
        fetches.incrementAndGet();
        if (!isFresh) {
            // As a cache does that has older keys.
            send(to, 200, "", "{\"keys\":[]}", 0);
        } else if (how.containsKey("hang")) {
            isClosedWithin(Long.MAX_VALUE);
        } else if (how.containsKey("redirect")) {
            send(to, 302, "Location: /elsewhere\r\n", "", 0);
        } else if (how.containsKey("trickle") || how.containsKey("endless")) {
            write(to, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            String piece = " ".repeat(how.containsKey("endless") ? 16_384 : 1);
            while (!isClosedWithin(how.containsKey("endless") ? 0 : 100)) {
                write(to, piece);
            }
        } else {
            if (how.containsKey("hints")) {
                write(to, "HTTP/1.1 102 Processing\r\n\r\n");
                write(to, "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n");
            }
            String set = how.containsKey("set") ? Vectors.write(sets.get(how.get("set"))) : "{}";
            String text = how.get("body") instanceof String body ? body : set;
            int padding = how.get("padding") instanceof Double bytes ? bytes.intValue() : 0;
            int status = how.get("status") instanceof Double code ? code.intValue() : 200;
            send(to, status, "", text + " ".repeat(padding), how.containsKey("cut") ? 1 : 0);
        }
    }

    /** Sends a reply. It says that its text has as many bytes more as `missing`. */
    private static void send(OutputStream to, int status, String headers, String text, int missing) throws IOException {
        int length = text.getBytes(StandardCharsets.UTF_8).length + missing;
        write(to, "HTTP/1.1 " + status + " Some\r\n" + headers + "Content-Length: " + length + "\r\nConnection: close\r\n\r\n" + text);
    }

    private static void write(OutputStream to, String text) throws IOException {
        to.write(text.getBytes(StandardCharsets.UTF_8));
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
        try {
            server.close();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        } finally {
            threads.shutdownNow();
        }
    }
}
