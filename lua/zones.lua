-- The zones that the store keeps, with their policies.
--
-- KEYS  1 the register: hash zone -> policy as text, and "#rev" -> how often it changed
-- ARGV  1 the revision the server has (-1 for none); then any number of threes: zone, policy, and 1 where a zone that
--       is there takes the policy, 0 where it keeps its own
-- Returns {revision, then zone and policy alternately where that revision is not the server's}. A register older than
--       the server's was lost: -1 comes back, nothing was changed, and the server shall put what it remembers.
-- Cost  about 2 us where nothing changed; 0.2 us a zone otherwise.

local rev = tonumber(redis.call('HGET', KEYS[1], '#rev') or '0')
local has = tonumber(ARGV[1])
if has > rev then return { '-1' } end
for i = 2, #ARGV, 3 do
  local zone, policy = ARGV[i], ARGV[i + 1]
  local kept = redis.call('HGET', KEYS[1], zone)
  if not kept or (ARGV[i + 2] == '1' and kept ~= policy) then
    redis.call('HSET', KEYS[1], zone, policy)
    rev = redis.call('HINCRBY', KEYS[1], '#rev', 1)
  end
end
local reply = { string.format('%d', rev) }
if rev ~= has then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if all[i] ~= '#rev' then
      reply[#reply + 1], reply[#reply + 2] = all[i], all[i + 1]
    end
  end
end
return reply
