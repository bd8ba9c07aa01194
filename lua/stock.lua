-- Keeps what is left in the zones: one entry per zone, which says when it was set and what was set. No script of the line reads it.
--
-- An instant is in microseconds since 1970 by the clock of the node that set it, and later than all that were known then. So of two
-- entries of a zone the one with the later instant counts, also if the hash was lost and servers write back what they remember.
--
-- KEYS  1 hash: zone -> the instant, a space, and a text, which is empty if nothing is told any more; "#at" -> the latest instant
-- ARGV  1 the latest instant that the server has (0 for none: it gets everything); 2 the mode: '' look; 'set' takes the zone (3) from the
--       entry of an instant (4, 0 for no entry) to a text (5); 'again' takes zones and entries alternately, those that are later
--       than what is kept
-- Returns {'1' if done; '0' if the zone has another entry than expected; '2' if too many zones have one, the latest instant, then zone and
--         entry alternately: those later than what the server has, and after '0' the zone's}
-- Cost  about 2 us if nothing changed; otherwise 0.5 us per zone.

local MOST, DAY = 4096, 86400000000

local has, mode = tonumber(ARGV[1]), ARGV[2]
local at = redis.pcall('HGET', KEYS[1], '#at')
if type(at) == 'table' then
  -- A value of another type is no such hash.
  redis.call('UNLINK', KEYS[1])
  at = false
end
at = tonumber(at or '') or 0

local function instant(entry) return tonumber(string.match(entry or '', '^%d+') or '') or 0 end

-- Whether there is room for one more zone. Entries that tell nothing any more make room after a day, when all servers know of them.
local function has_room(now)
  local all, kept = redis.call('HGETALL', KEYS[1]), 0
  for i = 1, #all, 2 do
    if string.match(all[i + 1], '^%d+ $') and now - instant(all[i + 1]) > DAY then
      redis.call('HDEL', KEYS[1], all[i])
    elseif all[i] ~= '#at' then
      kept = kept + 1
    end
  end
  return kept < MOST
end

local done, reply = '1', {}
if mode == 'set' then
  local zone = ARGV[3]
  local entry = redis.call('HGET', KEYS[1], zone)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if instant(entry) ~= tonumber(ARGV[4]) then
    done = '0'
    if entry and instant(entry) <= has then reply = { zone, entry } end
  elseif not entry and not has_room(now) then
    done = '2'
  else
    at = math.max(now, at + 1, has + 1)
    local text = string.format('%.0f', at)
    redis.call('HSET', KEYS[1], '#at', text, zone, text .. ' ' .. ARGV[5])
  end
elseif mode == 'again' then
  for i = 3, #ARGV, 2 do
    if instant(redis.call('HGET', KEYS[1], ARGV[i])) < instant(ARGV[i + 1]) then
      at = math.max(at, instant(ARGV[i + 1]))
      redis.call('HSET', KEYS[1], '#at', string.format('%.0f', at), ARGV[i], ARGV[i + 1])
    end
  end
end
if at > has then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if all[i] ~= '#at' and instant(all[i + 1]) > has then
      reply[#reply + 1], reply[#reply + 2] = all[i], all[i + 1]
    end
  end
end
table.insert(reply, 1, string.format('%.0f', at))
table.insert(reply, 1, done)
return reply
