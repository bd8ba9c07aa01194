-- One call for `wait` and `entry`: takes a place (only `wait`), notes the presence, enters if a slot is free, tells the rank.
-- KEYS: the line, the presence, the last place given, the entries of this minute
-- ARGV: the person, the time in ms, the entries allowed in a minute, 1 for `wait`
-- It returns the rank from 0, -1 if the person enters, -2 if the person is not in the line.
if ARGV[4] == '1' then
    redis.call('ZADD', KEYS[1], redis.call('INCR', KEYS[3]), ARGV[1])
end
local rank = redis.call('ZRANK', KEYS[1], ARGV[1])
if not rank then
    return -2
end
local allowed = tonumber(ARGV[3])
if rank < allowed and rank < allowed - tonumber(redis.call('GET', KEYS[4]) or '0') then
    redis.call('ZREM', KEYS[1], ARGV[1])
    redis.call('ZREM', KEYS[2], ARGV[1])
    if redis.call('INCR', KEYS[4]) == 1 then
        redis.call('EXPIRE', KEYS[4], 60)
    end
    return -1
end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
return rank
