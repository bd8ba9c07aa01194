package line;

import com.fasterxml.jackson.annotation.JsonInclude;
import io.lettuce.core.RedisClient;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.api.async.RedisAsyncCommands;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.UUID;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.web.context.WebServerInitializedEvent;
import org.springframework.context.event.EventListener;
import org.springframework.core.io.ClassPathResource;
import org.springframework.http.HttpStatus;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;
import reactor.core.publisher.Mono;

/**
 * A waiting line with few costs: WebFlux, one call of a script for each request, and one connection to Redis for all calls. The places
 * are in a sorted set of Redis, and the times of the last polls in another one. Requests and replies have the form of Weir's.
 */
@SpringBootApplication
@EnableScheduling
@RestController
public class Line {
    record Ask(String zoneId, String token) {}

    record Waiting(long rank, long etaSeconds, long[] etaRange, int pollingPeriod, boolean stale) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    record Reply(boolean canEnter, String token, Waiting waiting, String pass) {}

    private final RedisAsyncCommands<String, String> redis;
    private final String ask = text("ask.lua");
    private final String askSha;
    private final String sweep = text("sweep.lua");
    private final List<String> zones;
    private final String admitPerMinute;
    private final int pollingPeriodMs;
    private final long idleTimeoutMs;
    private final String filler;

    Line(@Value("${line.redis}") String url, @Value("${line.zones}") List<String> zones,
            @Value("${line.admit-per-minute}") String admitPerMinute, @Value("${line.polling-period-ms}") int pollingPeriodMs,
            @Value("${line.idle-timeout-ms}") long idleTimeoutMs, @Value("${line.token-length}") int tokenLength) {
        this.redis = RedisClient.create(url).connect().async();
        this.askSha = redis.scriptLoad(ask).toCompletableFuture().join();
        this.zones = zones;
        this.admitPerMinute = admitPerMinute;
        this.pollingPeriodMs = pollingPeriodMs;
        this.idleTimeoutMs = idleTimeoutMs;
        // Tokens as long as Weir's, so that requests and replies are. Redis gets the first part, which is as short as usual.
        this.filler = "-".repeat(Math.max(0, tokenLength - 36));
    }

    @PostMapping("/traffic/wait")
    Mono<Reply> take(@RequestBody Ask request) {
        return answer(request.zoneId(), UUID.randomUUID() + filler, "1");
    }

    @PostMapping("/traffic/entry")
    Mono<Reply> poll(@RequestBody Ask request) {
        return answer(request.zoneId(), request.token(), "0");
    }

    private Mono<Reply> answer(String zone, String token, String joins) {
        if (!zones.contains(zone) || token.length() < 36) {
            throw new ResponseStatusException(HttpStatus.BAD_REQUEST);
        }
        String[] keys = {key(zone, "line"), key(zone, "presence"), key(zone, "last"), key(zone, "entries")};
        String person = token.substring(0, 36), now = Long.toString(System.currentTimeMillis());
        return Mono.fromCompletionStage(
                        redis.<Long>evalsha(askSha, ScriptOutputType.INTEGER, keys, person, now, admitPerMinute, joins))
                .map(rank -> reply(token, rank));
    }

    private Reply reply(String token, long rank) {
        if (rank == -2) {
            throw new ResponseStatusException(HttpStatus.GONE);
        }
        if (rank == -1) {
            return new Reply(true, token, null, UUID.randomUUID().toString());
        }
        long eta = (rank + 1) * 60 / Long.parseLong(admitPerMinute);
        return new Reply(false, token, new Waiting(rank + 1, eta, new long[] {eta * 9 / 10, eta * 11 / 10}, pollingPeriodMs, false), null);
    }

    @Scheduled(fixedRate = 1000)
    void evict() {
        String since = Long.toString(System.currentTimeMillis() - idleTimeoutMs);
        for (String zone : zones) {
            redis.eval(sweep, ScriptOutputType.INTEGER, new String[] {key(zone, "line"), key(zone, "presence")}, since);
        }
    }

    private static String key(String zone, String name) {
        return "{" + zone + "}:" + name;
    }

    private static String text(String name) {
        try {
            return new ClassPathResource(name).getContentAsString(StandardCharsets.UTF_8);
        } catch (IOException missing) {
            throw new IllegalStateException(missing);
        }
    }

    @EventListener
    void started(WebServerInitializedEvent event) {
        System.out.println("listening on http://127.0.0.1:" + event.getWebServer().getPort());
    }

    public static void main(String[] args) {
        SpringApplication.run(Line.class, args);
    }
}
