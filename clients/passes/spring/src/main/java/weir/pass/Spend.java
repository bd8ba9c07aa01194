package weir.pass;

import java.time.Instant;

/** The record of spent passes, which all processes of a service must share. */
@FunctionalInterface
public interface Spend {
    /**
     * Records that the pass of this key was accepted, and returns whether it is the first time. It must be atomic among all that share the
     * record, and the key must be kept until the given time. It needs a time limit of its own.
     *
     * @throws Exception if the record does not answer; then nobody enters
     */
    boolean spend(String key, Instant until) throws Exception;
}
