-- Gives out tickets at the end of the line. If nobody is present in the line, as many holders enter as the minute has slots. Somebody who
-- joined before with the same key gets that ticket, and no new one.
--
-- KEYS  see zone.lua; the segments that the new numbers are in; then a string for each key of a join: the ticket (epoch 4, number 6,
--       issued 6)
-- ARGV  after zone.lua's: how many people join (1 to 1,024); which of them has which key, two bytes for each key, in their order; how long
--       keys are kept, in milliseconds; and how many in each minute at most
-- Returns zone.lua's, then: first number, how many entered (the first ones), unix seconds of the entry, live ahead and
--         present ahead of the first who waits; the verdicts (21 bytes each) of the waiting tickets of the front; the
--         positions of the others follow from the first; and for each key its ticket (16 bytes) if it is an earlier one, else zeros
-- Cost  about 45 us for 1 or for 64 tickets, and up to 2 us more for each ticket of the front; independent of the line's
--         length. About 3 us more for each key.

local function refuses(from)
  local count = tonumber(ARGV[from])
  if not (by_index[segment_of(z.next)] and by_index[segment_of(z.next + count - 1)]) then
    return 'WEIR_KEYS ' .. int(z.next) .. ' begins the line\'s end'
  end
end

-- Sets the bits of consecutive tickets.
local function set_run(key, bit, count)
  local operations = {}
  while count > 0 do
    local width = min(count, 32)
    operations[#operations + 1] = 'SET'
    operations[#operations + 1] = 'u' .. width
    operations[#operations + 1] = bit
    operations[#operations + 1] = int(2 ^ width - 1)
    bit, count = bit + width, count - width
  end
  call('BITFIELD', key, unpack(operations))
end

-- A segment that gets its first tickets, from this one on. What its keys have of these numbers is of a line that was lost.
local function begin_segment(s, bit)
  call('UNLINK', s.live_key, s.here_key, s.lost_key, s.in_key, unpack(s.ages))
  if call('EXISTS', s.entry_key) == 1 then cut(s.entry_key, bit * 96) end
  start_segment(s)
end

-- Calls `act` for each segment of consecutive numbers.
local function by_segment(seq, count, act)
  while count > 0 do
    local here = min(count, SEGMENT - seq % SEGMENT)
    local s = by_index[segment_of(seq)]
    if not s.known then begin_segment(s, seq % SEGMENT) end
    act(s, seq % SEGMENT, here)
    seq, count = seq + here, count - here
  end
end

local from, fault = begin(refuses)
if fault then return fault end
local count, first = tonumber(ARGV[from]), z.next

-- The tickets that keys have already, and the numbers that the others will have.
local first_key, keyed = FIXED + #segments * PER_SEGMENT + 1, #ARGV[from + 1] / 2
local earlier, numbers = {}, {}
if keyed > 0 then
  local kept, with, known = call('MGET', unpack(KEYS, first_key)), {}, 0
  for i = 1, keyed do
    local key, ticket = KEYS[first_key + i - 1], kept[i]
    if ticket and #ticket == 16 then
      earlier[i] = ticket
    elseif with[key] then
      -- Two calls with one key came together.
      earlier[i] = with[key]
    else
      numbers[i] = first + unpack_struct('>I2', ARGV[from + 1], 2 * i - 1) - known
      with[key] = pack('>I4I6I6', z.epoch, numbers[i], z.now)
    end
    if earlier[i] then known = known + 1 end
  end
  count = count - known
  local minute = floor(z.now / MINUTE_MS)
  local of, noted = string.match(call('HGET', KEYS[4], 'keys') or '', '(%d+) (%d+)')
  noted = tonumber(of) == minute and tonumber(noted) or 0
  local most = tonumber(ARGV[from + 3])
  for i = 1, keyed do
    if numbers[i] and noted < most then
      call('SET', KEYS[first_key + i - 1], with[KEYS[first_key + i - 1]], 'PX', ARGV[from + 2])
      noted = noted + 1
    end
    earlier[i] = earlier[i] or string.rep('\0', 16)
  end
  call('HSET', KEYS[4], 'keys', int(minute) .. ' ' .. int(noted))
end

local last = by_index[segment_of(first)]
touch(last)
local admitted = 0
if z.mode == OPEN then
  admitted = count
elseif not is_held() and z.present == 0 then
  admitted = min(free(false), room(), count)
end
z.next, z.joined = first + count, z.joined + count
if admitted > 0 then
  local stamp = stamp_of_now()
  by_segment(first, admitted, function(s, bit, n)
    call('SETRANGE', s.entry_key, bit * 12, string.rep(stamp, n))
    set_run(s.lost_key, SEGMENT + bit, n)
    s.changed, s.rev, s.stamped, s.ended = true, z.rev, 1, z.rev
    for i = 0, z.max_active > 0 and n - 1 or -1 do begin_visit(s, bit + i) end
  end)
  note_entries(admitted)
end
local ahead, present_ahead, verdicts = z.live, z.present, {}
if admitted < count then
  by_segment(first + admitted, count - admitted, function(s, bit, n)
    set_run(s.live_key, bit, n)
    set_run(s.here_key, bit, n)
    set_live(s, s.live + n)
    set_present(s, s.present + n)
  end)
  -- Only tickets of the front have appointments.
  local at_front = is_auto() and min(max(front_limit() - present_ahead, 0), count - admitted) or 0
  local tickets = {}
  for i = 0, at_front - 1 do tickets[i + 1] = { first + admitted + i, ahead + i, present_ahead + i } end
  verdicts = positions_of(tickets)
end
return finish(int(first), admitted, int(unix_s()), int(ahead), int(present_ahead), table.concat(verdicts), table.concat(earlier))
