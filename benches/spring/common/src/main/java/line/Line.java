package line;

import com.fasterxml.jackson.annotation.JsonInclude;
import java.util.List;
import java.util.UUID;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.web.context.WebServerInitializedEvent;
import org.springframework.context.event.EventListener;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.http.HttpStatus;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;

/**
 * A waiting line as tutorials build it: Spring MVC on Tomcat, and StringRedisTemplate with one command after the other. The line is a
 * sorted set by the time of joining, and another one has the times of the last polls. A timer lets people enter.
 * Requests and replies have the form of Weir's; in addition, the length of the line is told.
 */
@SpringBootApplication
@EnableScheduling
@RestController
public class Line {
    record Ask(String zoneId, String token) {}

    record Waiting(long rank, long length, long etaSeconds, long[] etaRange, int pollingPeriod, boolean stale) {}

    @JsonInclude(JsonInclude.Include.NON_NULL)
    record Reply(boolean canEnter, String token, Waiting waiting, String pass) {}

    private final StringRedisTemplate redis;
    private final List<String> zones;
    private final long admitPerMinute;
    private final int pollingPeriodMs;
    private final long idleTimeoutMs;
    private final String filler;

    Line(StringRedisTemplate redis, @Value("${line.zones}") List<String> zones, @Value("${line.admit-per-minute}") long admitPerMinute,
            @Value("${line.polling-period-ms}") int pollingPeriodMs, @Value("${line.idle-timeout-ms}") long idleTimeoutMs,
            @Value("${line.token-length}") int tokenLength) {
        this.redis = redis;
        this.zones = zones;
        this.admitPerMinute = admitPerMinute;
        this.pollingPeriodMs = pollingPeriodMs;
        this.idleTimeoutMs = idleTimeoutMs;
        // Tokens as long as Weir's, so that requests and replies are. Redis gets the first part, which is as short as usual.
        this.filler = "-".repeat(Math.max(0, tokenLength - 36));
    }

    @PostMapping("/traffic/wait")
    Reply take(@RequestBody Ask request) {
        String token = UUID.randomUUID() + filler;
        check(request.zoneId(), token);
        redis.opsForZSet().add(key(request.zoneId(), "line"), person(token), System.currentTimeMillis());
        return answer(request.zoneId(), token);
    }

    @PostMapping("/traffic/entry")
    Reply poll(@RequestBody Ask request) {
        check(request.zoneId(), request.token());
        return answer(request.zoneId(), request.token());
    }

    private Reply answer(String zone, String token) {
        Long rank = redis.opsForZSet().rank(key(zone, "line"), person(token));
        if (rank == null) {
            if (redis.opsForSet().remove(key(zone, "entered"), person(token)) == 0) {
                throw new ResponseStatusException(HttpStatus.GONE);
            }
            return new Reply(true, token, null, UUID.randomUUID().toString());
        }
        redis.opsForZSet().add(key(zone, "presence"), person(token), System.currentTimeMillis());
        long length = redis.opsForZSet().zCard(key(zone, "line"));
        long eta = (rank + 1) * 60 / admitPerMinute;
        long[] range = {eta * 9 / 10, eta * 11 / 10};
        return new Reply(false, token, new Waiting(rank + 1, length, eta, range, pollingPeriodMs, false), null);
    }

    @Scheduled(fixedRate = 60_000)
    void admit() {
        for (String zone : zones) {
            for (var first : redis.opsForZSet().popMin(key(zone, "line"), admitPerMinute)) {
                redis.opsForSet().add(key(zone, "entered"), first.getValue());
                redis.opsForZSet().remove(key(zone, "presence"), first.getValue());
            }
        }
    }

    @Scheduled(fixedRate = 1000)
    void evict() {
        long since = System.currentTimeMillis() - idleTimeoutMs;
        for (String zone : zones) {
            for (String silent : redis.opsForZSet().rangeByScore(key(zone, "presence"), 0, since, 0, 1000)) {
                redis.opsForZSet().remove(key(zone, "line"), silent);
                redis.opsForZSet().remove(key(zone, "presence"), silent);
            }
        }
    }

    private void check(String zone, String token) {
        if (!zones.contains(zone) || token.length() < 36) {
            throw new ResponseStatusException(HttpStatus.BAD_REQUEST);
        }
    }

    private static String person(String token) {
        return token.substring(0, 36);
    }

    private static String key(String zone, String name) {
        return zone + ":" + name;
    }

    @EventListener
    void started(WebServerInitializedEvent event) {
        System.out.println("listening on http://127.0.0.1:" + event.getWebServer().getPort());
    }

    public static void main(String[] args) {
        SpringApplication.run(Line.class, args);
    }
}
