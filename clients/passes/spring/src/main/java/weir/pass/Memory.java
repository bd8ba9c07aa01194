package weir.pass;

import java.time.Instant;
import java.time.InstantSource;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;

/** A record of spent passes in this process. It knows nothing of other processes, and forgets all when the process ends. */
final class Memory implements Spend {
    /** How many passes one process remembers: some minutes' worth. */
    static final int MOST = 1_000_000;

    private final InstantSource clock;
    private final int most;
    private final Map<String, Instant> spent = new HashMap<>();
    /** When to look for what has expired: not before something has, and once in a second at most. A look goes through all. */
    private Instant look = Instant.MAX;

    Memory(InstantSource clock, int most) {
        this.clock = clock;
        this.most = most;
    }

    @Override
    public synchronized boolean spend(String key, Instant until) {
        if (spent.size() >= most) {
            Instant now = clock.instant();
            if (look.isBefore(now)) {
                spent.values().removeIf(end -> end.isBefore(now));
                look = later(now.plusSeconds(1), spent.isEmpty() ? Instant.MAX : Collections.min(spent.values()));
            }
        }
        if (spent.containsKey(key)) {
            return false;
        }
        if (spent.size() >= most) {
            throw new IllegalStateException(most + " passes are remembered already");
        }
        spent.put(key, until);
        look = until.isBefore(look) ? until : look;
        return true;
    }

    private static Instant later(Instant one, Instant other) {
        return one.isBefore(other) ? other : one;
    }
}
