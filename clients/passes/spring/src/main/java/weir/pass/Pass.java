package weir.pass;

import java.time.Instant;

/**
 * What a pass says.
 *
 * @param zone the zone that the holder entered
 * @param jti the name of the entry
 * @param expires when the pass ends
 */
public record Pass(String zone, String jti, Instant expires) {}
