package weir.pass;

import java.time.Instant;
import java.time.InstantSource;
import java.util.HashMap;
import java.util.Map;

/** A record of spent passes in this process. It knows nothing of other processes, and forgets all when the process ends. */
final class Memory implements Spend {
    /** How many passes one process remembers: some minutes' worth. */
    static final int MOST = 1_000_000;

    private final InstantSource clock;
    private final int most;
    private final Map<String, Instant> spent = new HashMap<>();

    Memory(InstantSource clock, int most) {
        this.clock = clock;
        this.most = most;
    }

    @Override
    public synchronized boolean spend(String key, Instant until) {
        if (spent.size() >= most) {
            Instant now = clock.instant();
            spent.values().removeIf(end -> end.isBefore(now));
        }
        if (spent.containsKey(key)) {
            return false;
        }
        if (spent.size() >= most) {
            throw new IllegalStateException(most + " passes are remembered already");
        }
        spent.put(key, until);
        return true;
    }
}
