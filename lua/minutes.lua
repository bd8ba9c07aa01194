-- Keeps what servers counted in the minutes of one day of a zone, or reads it. No script of the line reads it, so its loss costs nothing
-- but the statistics.
--
-- KEYS  1 hash: the minute of the day -> the counts, of which the first 8 bytes are their weight; the minute of the day and 'w' -> what
--         each server alone knows: for each server its name (8 bytes), a length (1 byte), and that many bytes
-- ARGV  1 how long the day is kept from now on, in milliseconds, or empty to read
--       to keep: 2 the name of the server, 8 bytes; then for each minute: its number in the day, the counts, and what this server knows,
--       which may be empty. Heavier counts replace lighter ones. What a server knows replaces what it said before
--       to read: the numbers of the minutes
-- Returns {for each minute that was asked for and has counts: its number, the counts, what the servers know}
-- Cost  about 10 us for a minute that is kept; 2 us for one that is read.

local PARTS_MAX = 64

local function weight(counts)
  if not counts or #counts < 8 then return -1 end
  return (struct.unpack('>I8', counts))
end

local function with_part(parts, server, part)
  local kept, at = {}, 1
  while at + 8 <= #parts do
    local next_at = at + 9 + string.byte(parts, at + 8)
    -- What is cut off is left out.
    if next_at > #parts + 1 then break end
    if string.sub(parts, at, at + 7) ~= server then kept[#kept + 1] = string.sub(parts, at, next_at - 1) end
    at = next_at
  end
  if #kept < PARTS_MAX then kept[#kept + 1] = server .. string.char(#part) .. part end
  return table.concat(kept)
end

-- A value of another type is an error to read, and is replaced like any other.
local is_other = type(redis.pcall('HGET', KEYS[1], '0')) == 'table'

if ARGV[1] == '' then
  local reply = {}
  if is_other then return reply end
  for i = 2, #ARGV do
    local kept = redis.call('HMGET', KEYS[1], ARGV[i], ARGV[i] .. 'w')
    if weight(kept[1]) >= 0 then
      local at = #reply
      reply[at + 1], reply[at + 2], reply[at + 3] = ARGV[i], kept[1], kept[2] or ''
    end
  end
  return reply
end

if is_other then redis.call('UNLINK', KEYS[1]) end
for i = 3, #ARGV, 3 do
  local minute, counts, part = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local kept = redis.call('HMGET', KEYS[1], minute, minute .. 'w')
  if weight(counts) > weight(kept[1]) then redis.call('HSET', KEYS[1], minute, counts) end
  if part ~= '' then redis.call('HSET', KEYS[1], minute .. 'w', with_part(kept[2] or '', ARGV[2], part)) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {}
