-- Changes a zone's policy. Tickets keep their places. A zone without a state begins as after a loss: new.lua has created the state of one
-- that is new.
--
-- KEYS  see zone.lua; no segments
-- ARGV  1-7 as in zone.lua (n = 0); then 1 if the policy counts only where there is no state: a server that has not seen the zone does
--       not know its time; otherwise 0; then the policy, see POLICY in zone.lua
-- Returns zone.lua's
-- Errors  WEIR_LOST  the server knows the zone, but it does not exist any more
-- Cost  about 30 us.

local is_there = call('EXISTS', KEYS[1]) == 1
if not is_there then
  if tonumber(ARGV[1]) > 0 then return redis.error_reply('WEIR_LOST there is no such zone any more') end
  create(nil, 9, false)
  call('SET', KEYS[1], header())
end
local from, fault = begin()
if fault then return fault end
local changed = false
for i = 1, is_there and ARGV[from] == '1' and 0 or #POLICY do changed = changed or z[POLICY[i]] ~= tonumber(ARGV[from + i]) end
if changed then
  local n, period, longest, idle = z.n, z.period, longest_period_ms(), z.idle
  local ttl, max_active, opens_at = z.ttl, z.max_active, z.opens_at
  for i = 1, #POLICY do z[POLICY[i]] = tonumber(ARGV[from + i]) end
  if z.opens_at ~= opens_at then z.opens = opening() end
  z.policy_rev = z.policy_rev + 1
  if max_active == 0 then begin_blind() end
  if z.max_active == 0 then z.ended, z.unseen, z.unseen_until, z.unseen_told = 0, 0, 0, 0 end
  -- The passes that were given keep their longer life.
  if z.ttl < ttl then z.keep_until = max(z.keep_until, z.now + ttl * 1000) end
  -- Of a minute of which nobody knows anything, nobody knows either how many were allowed in it.
  if z.n > n and presumed_slots() > 0 and call('HGET', KEYS[8], ANYBODY) then
    local counts, instants = taken_slots()
    z.presumed = z.presumed + z.n - n
    write_presumed(counts, instants)
  end
  -- The bounds of the windows have moved: search them from the beginning of the log.
  z.minute_from, z.minute_before, z.sub_from, z.sub_before = z.first, z.total_first, z.first, z.total_first
  advance_window()
  begin_approach(longest)
  -- Ages are counted in another unit from now on.
  if idle ~= z.idle then z.seen_all = z.seen_all + 1 end
  if z.period < period then note_longest_period(period) end
  if z.idle < idle then z.spare_until = max(z.spare_until, back_at(longest)) end
end
return finish()
