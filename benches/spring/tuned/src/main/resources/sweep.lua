-- Evicts up to 1,000 people who were silent for too long.
-- KEYS: the line, the presence
-- ARGV: the time in ms since when a person must have asked
local silent = redis.call('ZRANGE', KEYS[2], '-inf', '(' .. ARGV[1], 'BYSCORE', 'LIMIT', 0, 1000)
for _, person in ipairs(silent) do
    redis.call('ZREM', KEYS[1], person)
    redis.call('ZREM', KEYS[2], person)
end
return #silent
