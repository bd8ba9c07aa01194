-- Registers a server, and returns all servers that share this Redis. Each server calls this every few seconds.
--
-- KEYS  1 hash: server -> when it last registered, by this clock in milliseconds, a space, and its description
-- ARGV  1 the server; 2 its description; 3 how long a server stays listed without registering, in milliseconds; 4 how many
--       servers are listed at most: a further server gets the list, but is not listed; 0 only looks, and changes nothing
-- Returns {now, then server and entry alternately}, this server included
-- Cost  about 5 us, and 0.5 us per server.

local time = redis.call('TIME')
local now, silence = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[3])
local most = tonumber(ARGV[4])
local all = redis.pcall('HGETALL', KEYS[1])
if all.err then
  -- A value of another type is no list.
  if most > 0 then redis.call('UNLINK', KEYS[1]) end
  all = {}
end
local reply, known = { string.format('%.0f', now) }, 0
for i = 1, #all, 2 do
  local seen = tonumber(string.match(all[i + 1], '^%d+') or '')
  -- A later instant comes from another clock, before a failover.
  if not seen or now - seen > silence or seen - now > silence then
    if most > 0 then redis.call('HDEL', KEYS[1], all[i]) end
  elseif all[i] ~= ARGV[1] then
    known = known + 1
    reply[#reply + 1], reply[#reply + 2] = all[i], all[i + 1]
  end
end
local mine = string.format('%.0f ', now) .. ARGV[2]
if known < most then
  redis.call('HSET', KEYS[1], ARGV[1], mine)
  redis.call('PEXPIRE', KEYS[1], silence)
end
reply[#reply + 1], reply[#reply + 2] = ARGV[1], mine
return reply
