-- Creates the state of a new zone, before the register has the zone. So who finds a zone in the register and no state knows that its state
-- was lost. A server that is about to create one may stand still while another one does, people enter, and that state is lost. So it asks for
-- a mark here first, then sees that the register does not have the zone, and then creates the state if the mark was not lost either.
--
-- KEYS  see zone.lua; no segments; then the mark, which several servers may share
-- ARGV  1-7 as in zone.lua (n = 0, and 0 0 for epoch and rev); then, to ask for a mark, a random text; to create the state, the mark, and the
--       policy, see POLICY in zone.lua
-- Returns {the mark}, '' if there is a state; then {1} if there is a state now, {0} if the mark is gone
-- Cost  about 15 us

-- How long a server may take between its two calls.
local MARK_MS = 5000
local key, text, creates = KEYS[FIXED + 1], ARGV[8], #ARGV > 8
if call('EXISTS', KEYS[1]) == 1 then return { creates and '1' or '' } end
local kept = redis.pcall('GET', key)
-- What is of another type is as good as lost.
if type(kept) == 'table' then kept = false end
if not creates then
  kept = kept or text
  call('SET', key, kept, 'PX', MARK_MS)
  return { kept }
end
if kept ~= text then return { '0' } end
call('DEL', key)
create(nil, 9, true)
call('SET', KEYS[1], header())
return { '1' }
