-- A server has reported everything that it heard, and calls no more: it stops. Nobody has to be spared for what it might have
-- heard. It still has to say what it decided if the state is lost now, so it stays on the list for as long as that matters.
--
-- KEYS  see zone.lua; no segments
-- ARGV  zone.lua's
-- Returns zone.lua's
-- Cost  about 20 us

local from, fault = begin()
if fault then return fault end
local epoch = string.match(call('HGET', KEYS[8], ARGV[6]) or '', '%d+')
if epoch then call('HSET', KEYS[8], ARGV[6], epoch .. ' ' .. int(z.now) .. ' ' .. RETIRED) end
return finish()
