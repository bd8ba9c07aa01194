-- Lets holders leave: a holder who waits gives up the place, and a visit ends. See `Zone::leave` in the crate `admission`.
--
-- KEYS  see zone.lua; the segments of the leavers. Then for each of these segments: i0, i1, i2, i3, left, as in visits.lua; and
--         bound  hash: epoch:number -> the address that the entry is bound to, see bind.lua
-- ARGV  after zone.lua's: the leavers (1 to 64), 19 bytes each: epoch (4), number (6), what shows that the holder may leave (1): 0 the name of
--       the entry, 1 the token, 2 an open visit; and the address, zeros for any (8)
-- Returns zone.lua's, then one digit for each leaver:
--       0  the place is free         1  the visit is over          2  it had ended before
--       3  the holder waits          4  bound to another address   5  this line never gave out the ticket
--       6  the state was lost, or a draw is due, and whether the ticket waits is not known yet
-- Cost  about 30 us, and 15 us per leaver.

local PLACE, VISIT, GONE, WAITS, ELSEWHERE, UNKNOWN, NOT_YET = '0', '1', '2', '3', '4', '5', '6'
local TOKEN, OPEN_VISIT = 1, 2
local OF_SEGMENT = 6

local from, fault = begin(function(from)
  for at = 1, #ARGV[from], 19 do
    local _, seq = unpack_struct('>I4I6', ARGV[from], at)
    if not by_index[segment_of(seq)] then return 'WEIR_KEYS ' .. int(z.next) .. ' a leaver\'s segment is missing' end
  end
end, true)
if fault then return fault end

for i = 1, #segments do
  local s, key = segments[i], FIXED + #segments * PER_SEGMENT + (i - 1) * OF_SEGMENT
  s.visit_ages = { KEYS[key + 1], KEYS[key + 2], KEYS[key + 3], KEYS[key + 4] }
  s.left_key, s.bound_key = KEYS[key + 5], KEYS[key + 6]
end

-- A server may still remember that the holder waits. The ticket does not wait again, as if it had entered and left: without a life, no
-- server is asked for the entry.
local function end_for_good(s, bit)
  if z.now >= z.recover_until then return end
  call('SETBIT', s.lost_key, bit, 1)
  note_ended(s, bit)
  call('SETRANGE', s.entry_key, bit * 12, pack('>I6I4I2', z.now, unix_s(), 0))
  s.stamped, s.changed = 1, s.known
  if not s.known then keep_entries(s) end
end

-- A holder who waits gives up the place.
local function give_up(s, seq, bit)
  call('SETBIT', s.live_key, bit, 0)
  if call('SETBIT', s.here_key, bit, 0) == 1 then set_present(s, s.present - 1) end
  for plane = 1, 4 do call('SETBIT', s.ages[plane], bit, 0) end
  set_live(s, s.live - 1)
  note_ended(s, bit)
  call('ZREM', KEYS[3], int(seq))
  z.evicted = z.evicted + 1
  end_for_good(s, bit)
end

-- When the marks of who left of a segment end; 0 for none.
local function left_until_of(s)
  local _, _, left_until = read_visits_row(call('HGET', KEYS[4], 'v' .. int(s.index)))
  return left_until
end

-- Marks the visit as left, so that servers know it, and counts it no more. If it was not counted, it was one of those who had not shown
-- themselves.
local function end_visit(s, bit)
  local row = 'v' .. int(s.index)
  local turned, left_rev, left_until, idle = read_visits_row(call('HGET', KEYS[4], row))
  if left_until > 0 and left_until <= z.now then
    call('UNLINK', s.left_key)
    left_rev, left_until = 0, 0
  end
  local is_new = call('SETBIT', s.left_key, bit, 1) == 0
  if is_new then
    left_rev, left_until = z.rev, z.now + visit_ms()
    call('PEXPIRE', s.left_key, 2 * visit_ms())
    note_inside(s.index, 0)
  end
  if call('SETBIT', s.in_key, bit, 0) == 1 then
    z.inside, z.ended = max(z.inside - 1, 0), z.ended + 1
    for plane = 1, 4 do call('SETBIT', s.visit_ages[plane], bit, 0) end
  elseif is_new then
    z.unseen = max(z.unseen - 1, 0)
  end
  call('HSET', KEYS[4], row, visits_row(turned, left_rev, left_until, idle))
end

local function leave_one(epoch, seq, proof, address)
  local of_line, unknown = is_of_line(epoch, seq)
  if not of_line and (z.now < z.recover_until or may_be_dealt()) then return NOT_YET end
  -- The numbers below this epoch's first one are those of other epochs.
  if not of_line or epoch == z.epoch and seq < z.start then return UNKNOWN end
  local s, bit = by_index[segment_of(seq)], seq % SEGMENT
  if s.index >= z.base then
    touch(s)
    if call('GETBIT', s.live_key, bit) == 1 then
      if proof ~= TOKEN then return WAITS end
      give_up(s, seq, bit)
      return PLACE
    end
  end
  local stamp, out_at, life = call('GETRANGE', s.entry_key, bit * 12, bit * 12 + 11), 0, 0
  if #stamp == 12 then
    local _
    out_at, _, life = unpack_struct('>I6I4I2', stamp)
  end
  local is_in = out_at > 0 and life > 0 and is_valid(out_at, life)
  local is_proven = proof == OPEN_VISIT and not (left_until_of(s) > z.now and call('GETBIT', s.left_key, bit) == 1)
  if not is_in and not is_proven and not (z.max_active > 0 and call('GETBIT', s.in_key, bit) == 1) then
    -- A server may remember that it waits, or that it entered; or the number is the one from before a deal that was lost.
    if out_at == 0 and (unknown and z.now < z.recover_until or epoch ~= z.epoch and may_be_dealt()) then return NOT_YET end
    return GONE
  end
  if is_in and address ~= '\0\0\0\0\0\0\0\0' then
    local bound = call('HGET', s.bound_key, int(epoch) .. ':' .. int(seq))
    if bound and bound ~= address then return ELSEWHERE end
  end
  if is_in then
    call('SETRANGE', s.entry_key, bit * 12 + 10, '\0\0')
  elseif out_at == 0 then
    end_for_good(s, bit)
  end
  if z.max_active > 0 then end_visit(s, bit) end
  return VISIT
end

local leavers, departures = ARGV[from], {}
for at = 1, #leavers, 19 do
  local epoch, seq, proof = unpack_struct('>I4I6I1', leavers, at)
  departures[#departures + 1] = leave_one(epoch, seq, proof, string.sub(leavers, at + 11, at + 18))
end
return finish(table.concat(departures))
