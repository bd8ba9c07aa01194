-- Defines or deletes a zone if its current definition is the expected one; the routes are changed in the same way.
--
-- KEYS  1 the register, see register.lua; 2 the mark of this change, because a client that lost the answer asks again. It
--       may be left out while the slot is being moved and the two keys are on two nodes
-- ARGV  1 the revision that the server has (0 for none); 2 when that register was created (0 if not known); 3 zone, or
--       "#routes"; 4 the expected definition, '' for none; 5 the new one, '' for none; 6 how long the mark is kept, in seconds;
--       7 until when it may be made, in milliseconds since 1970 by this node's clock; 0 for whenever. Earlier versions pass none
-- Returns {1, revision} if it is done; {1} if an earlier call did it; {0, the current definition, '' for none} if another
--         one was found; {2} if it came too late; {-1} if the register lost something that the server knows
-- Cost  about 5 us.

local made = KEYS[2]
if made and redis.call('EXISTS', made) == 1 then return { '1' } end
if lost(tonumber(ARGV[1]), tonumber(ARGV[2])) then return { '-1' } end
local now = redis.call('HGET', KEYS[1], ARGV[3]) or ''
if now ~= ARGV[4] then return { '0', now } end
if now ~= ARGV[5] then
  local ends = tonumber(ARGV[7] or '') or 0
  if ends > 0 then
    local time = redis.call('TIME')
    if time[1] * 1000 + math.floor(time[2] / 1000) >= ends then return { '2' } end
  end
  note_since(ARGV[3])
  set_rev(kept and rev + 1 or first_rev())
  if ARGV[5] == '' then
    redis.call('HDEL', KEYS[1], ARGV[3])
  else
    redis.call('HSET', KEYS[1], ARGV[3], ARGV[5])
  end
end
if made then redis.call('SET', made, '1', 'EX', ARGV[6]) end
return { '1', string.format('%.0f', rev) }
