-- The servers that share this Redis: each says every few seconds that it is there.
--
-- KEYS  1 hash: server -> when it was last heard, on this clock in milliseconds, a space, and what it says of itself
-- ARGV  1 the server; 2 what it says of itself; 3 after how long a silence a server is forgotten, in milliseconds; 4 how many
--       are kept at most: one more is told of the others, and not kept
-- Returns {now, then server and its entry alternately}, this server's with them
-- Cost  about 5 us, and 0.5 us a server.

local time = redis.call('TIME')
local now, silence = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[3])
local all = redis.call('HGETALL', KEYS[1])
local reply, known = { string.format('%.0f', now) }, 0
for i = 1, #all, 2 do
  local seen = tonumber(string.match(all[i + 1], '^%d+') or '')
  -- What is of later comes from another clock, before a failover.
  if not seen or now - seen > silence or seen - now > silence then
    redis.call('HDEL', KEYS[1], all[i])
  elseif all[i] ~= ARGV[1] then
    known = known + 1
    reply[#reply + 1], reply[#reply + 2] = all[i], all[i + 1]
  end
end
local mine = string.format('%.0f ', now) .. ARGV[2]
if known < tonumber(ARGV[4]) then
  redis.call('HSET', KEYS[1], ARGV[1], mine)
  redis.call('PEXPIRE', KEYS[1], silence)
end
reply[#reply + 1], reply[#reply + 2] = ARGV[1], mine
return reply
