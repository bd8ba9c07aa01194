-- Defines a zone anew, or deletes it, where its definition is the one expected.
--
-- KEYS  1 the register, see register.lua; 2 this very change: a client that lost the answer asks again. May be left out
--       where the slot is on its way, and the two keys are in two places
-- ARGV  1 the revision the server has (0 for none); 2 zone; 3 the definition that is expected, '' for none; 4 the new one,
--       '' for none; 5 for how many seconds it is remembered that this was done
-- Returns {1} where it is done; {0, the definition that is there, '' for none}; {-1} where something is lost that the
--       server had
-- Cost  about 5 us.

local made = KEYS[2]
if made and redis.call('EXISTS', made) == 1 then return { '1' } end
if lost(tonumber(ARGV[1])) then return { '-1' } end
local now = redis.call('HGET', KEYS[1], ARGV[2]) or ''
if now ~= ARGV[3] then return { '0', now } end
if now ~= ARGV[4] then
  set_rev(kept and rev + 1 or begun())
  if ARGV[4] == '' then
    redis.call('HDEL', KEYS[1], ARGV[2])
  else
    redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
  end
end
if made then redis.call('SET', made, '1', 'EX', ARGV[5]) end
return { '1' }
