package weir.pass;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicBoolean;

/** A proxy before a Redis. The first command about a spent pass reaches Redis, but the connection ends before its reply. */
final class LosingProxy implements AutoCloseable {
    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final AtomicBoolean hasLost = new AtomicBoolean();

    LosingProxy(String host, int port) throws IOException {
        threads.execute(() -> {
            try {
                while (true) {
                    Socket near = listener.accept();
                    Socket far = new Socket(host, port);
                    AtomicBoolean loses = new AtomicBoolean();
                    threads.execute(() -> carry(near, far, loses, true));
                    threads.execute(() -> carry(far, near, loses, false));
                }
            } catch (IOException end) {
                // The test has ended.
            }
        });
    }

    private void carry(Socket from, Socket to, AtomicBoolean loses, boolean isCommand) {
        try (from; to) {
            InputStream in = from.getInputStream();
            byte[] bytes = new byte[16_384];
            for (int length; (length = in.read(bytes)) >= 0;) {
                if (isCommand && new String(bytes, 0, length, StandardCharsets.ISO_8859_1).contains("weir:spent:")
                        && hasLost.compareAndSet(false, true)) {
                    loses.set(true);
                }
                if (!isCommand && loses.get()) {
                    return;
                }
                to.getOutputStream().write(bytes, 0, length);
            }
        } catch (IOException end) {
            // One side has ended, so both do.
        }
    }

    int port() {
        return listener.getLocalPort();
    }

    boolean hasLost() {
        return hasLost.get();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        threads.shutdownNow();
    }
}
