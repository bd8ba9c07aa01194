-- Decides claims. A holder enters if there are more free slots than present people ahead.
--
-- KEYS  see zone.lua; the segments of the claims, and the known segments of the front
-- ARGV  after zone.lua's: the claims (1 to 64), 10 bytes each: epoch (4), number (6); sorted by number, each once
-- Returns zone.lua's, then the verdicts, 21 bytes each, in the order of the claims
-- Cost  about 45 us, and 12 us per claim. Each segment between the front and a claim adds 1 us.

local from, fault = begin(function(from)
  local claims = ARGV[from]
  for at = 1, #claims, 10 do
    local _, seq = unpack_struct('>I4I6', claims, at)
    if not by_index[segment_of(seq)] then return 'WEIR_KEYS ' .. int(z.next) .. ' a claim\'s segment is missing' end
  end
end, true)
if fault then return fault end
end_missed_appointments()

-- How many tickets wait and how many are present in the segments before `index`. Calls come in the order of the line, so
-- each segment is counted once.
local counted, live_before, present_before = 0, 0, 0
local function before(index)
  local others = {}
  for i = counted, index - 1 do
    local s = by_index[i]
    if s then
      live_before, present_before = live_before + s.live, present_before + s.present
    else
      others[#others + 1] = int(i)
    end
  end
  counted = max(counted, index)
  for i = 1, #others, 1000 do
    local rows = call('HMGET', KEYS[4], unpack(others, i, min(i + 999, #others)))
    for j = 1, #rows do
      if rows[j] then
        local live, present = string.match(rows[j], '(%d+) (%d+)')
        live_before, present_before = live_before + tonumber(live), present_before + tonumber(present)
      end
    end
  end
  return live_before, present_before
end

-- Whether a ticket that a server saw gone may wait again, though no server was told that it entered: everybody was asked, or half of the
-- time is over in which servers can say so.
local function is_unlikely_in()
  return not is_recovering() or z.now >= max(z.hold_until, floor((z.hold_until + z.recover_until) / 2))
end

-- How many numbers behind the ticket of an unknown line its others may have.
local AHEAD = 16 * SEGMENT

-- From which number on this epoch gave out none because a ticket proved to have a later one, when that was first so; nil if it was not.
local function moved_ahead_from()
  local epoch, number = string.match(call('HGET', KEYS[4], 'ahead') or '', '(%d+) (%d+)')
  return tonumber(epoch) == z.epoch and tonumber(number) or nil
end

-- The numbers of this ticket's segment that no known line gave out: the first one, and the first one behind them. Nil if this ticket's
-- number is not among them. They are below this line's first number, or in a segment in which nobody has a ticket, or in the first segment
-- of the last epoch and before its first number, or behind the last number, or behind the last one before the numbers moved ahead. The
-- process that begins an epoch chooses where it begins, and an epoch may be lost with all servers that knew of it. Only one epoch gets such
-- numbers, see `note_proved`.
local function unclaimed_numbers(s, seq)
  local first, used = s.index * SEGMENT, z.floor
  local last = first + SEGMENT
  for at = 1, #past, 32 do
    local _, rev, from_seq, limit = unpack_struct('>i8i8i8i8', past, at)
    if rev ~= PROVED then used = max(used, limit) elseif from_seq < last and limit > first then return nil end
  end
  if seq < z.floor then
    if s.known then return nil end
    return first, min(last, z.floor)
  end
  if seq < z.start and s.index >= z.base and (not s.known or first >= used) then
    return max(first, z.floor), min(last, z.start)
  end
  if seq >= z.next then return max(first, z.next), last end
  if seq > z.start and s.index >= z.base and not s.known then return first, last end
  local ahead = moved_ahead_from()
  if ahead and seq >= ahead and ahead >= first then return ahead, last end
end

-- Notes in the list of past epochs that this epoch has these numbers. Returns whether there was room for that.
local function note_proved(epoch, first, limit)
  for at = 1, #past, 32 do
    local of, rev, from_seq, to = unpack_struct('>i8i8i8i8', past, at)
    if of == epoch and rev == PROVED and (to == first or from_seq == limit) then
      local row = pack('>i8i8i8i8', of, PROVED, min(from_seq, first), max(to, limit))
      past = string.sub(past, 1, at - 1) .. row .. string.sub(past, at + 32)
      return true
    end
  end
  if #past >= PAST then return false end
  past = pack('>i8i8i8i8', epoch, PROVED, first, limit) .. past
  return true
end

-- Whether the state, or a server, knows of this epoch.
local function is_known(epoch)
  if epoch == z.epoch then return true end
  for at = 1, #past, 32 do
    if unpack_struct('>i8', past, at) == epoch then return true end
  end
  return false
end

-- The verdict where the state was lost, and whether the ticket waits is not known yet. It has the rank 0, which no waiting ticket has.
local function not_yet() return waiting_verdict(0, 0, z.period, -1) end

-- A number that a draw dealt may be claimed with tokens of several epochs: the second claim gets the verdict of the first one.
local claims, verdicts, asking, again, last_seq, last_at = ARGV[from], {}, {}, {}, -1, 0
for at = 1, #claims, 10 do
  local epoch, seq = unpack_struct('>I4I6', claims, at)
  local i = (at + 9) / 10
  local s, bit = by_index[segment_of(seq)], seq % SEGMENT
  local of_line, unknown = is_of_line(epoch, seq)
  verdicts[i] = gone_verdict()
  -- No ticket is reported as gone before all servers had time to say what they remember.
  if of_line == nil and z.now >= z.hold_until and z.now < z.recover_until then
    local first, limit = unclaimed_numbers(s, seq)
    if first and note_proved(epoch, first, limit) then
      -- No server has told of the ticket's epoch, and no line that is known has numbers here. The ticket itself proves the place. Others
      -- may have later numbers, and who comes now stands behind them.
      of_line, unknown, z.base = true, true, min(z.base, s.index)
      if seq >= z.next then
        if not moved_ahead_from() then call('HSET', KEYS[4], 'ahead', int(z.epoch) .. ' ' .. int(z.next)) end
        z.next = limit + AHEAD
      end
    end
  end
  -- A number that was dealt, and that was in use by an epoch that was lost, though the line of this state has left it behind.
  if unknown and s.index < z.base and z.now >= z.hold_until and not is_known(epoch) then z.base = s.index end
  if not of_line and (z.now < z.recover_until or may_be_dealt()) then
    -- The servers on the list may all have spoken, but the list of this state need not have the one that knows this epoch, or this deal.
    verdicts[i] = not_yet()
  elseif of_line and seq == last_seq then
    again[i] = last_at
  elseif of_line then
    last_seq, last_at = seq, i
    if s.index >= z.base then touch(s) end
    local stamp = call('GETRANGE', s.entry_key, bit * 12, bit * 12 + 11)
    local out_at, out_unix, life, live = 0, 0, 0, false
    if #stamp == 12 then out_at, out_unix, life = unpack_struct('>I6I4I2', stamp) end
    if out_at > 0 then
      -- Without a life, its holder left.
      if life > 0 and is_valid(out_at, life) then verdicts[i] = entered_verdict(out_at, out_unix, life) end
    elseif s.index >= z.base then
      live = call('GETBIT', s.live_key, bit) == 1
      if live and not s.known then start_segment(s) end
      local is_lost = epoch ~= z.epoch and call('GETBIT', s.lost_key, bit) == 1
      local may_wait = not live and z.now < z.recover_until and (is_lost and is_unlikely_in() or unknown and not is_lost)
      if may_wait and call('GETBIT', s.lost_key, SEGMENT + bit) == 0 then
        -- A lost state gave out this number, and no server remembers it. Or a server saw that it did not wait any more, but
        -- none was told of an entry, so its holder was not either. The ticket itself proves the place. Of a number that was dealt, this
        -- state may know all the same that its holder gave it up.
        if not s.known then start_segment(s) end
        -- The segment may have been freed.
        call('PERSIST', s.entry_key)
        call('SETBIT', s.live_key, bit, 1)
        call('SETBIT', s.lost_key, bit, 0)
        set_live(s, s.live + 1)
        live = true
      end
      if live then
        local due = call('ZSCORE', KEYS[3], int(seq))
        local was_here = false
        if due then
          due = tonumber(due)
          local poll_in = due % POLL_SCALE
          if poll_in > 0 then
            local asked = (due - poll_in) / POLL_SCALE + z.due_base + z.paused - poll_in - 2 * GRACE_MS
            local sum = z.lateness * 15 + min(max(z.now - asked, -500), 1500)
            z.lateness = sum >= 0 and floor(sum / 16) or -floor(-sum / 16)
            was_here = floor((asked - z.paused - poll_in) / generation_ms()) >= s.generation
          end
        end
        if call('SETBIT', s.here_key, bit, 1) == 0 then set_present(s, s.present + 1) end
        if not was_here then
          for plane = 1, 4 do call('SETBIT', s.ages[plane], bit, 0) end
        end
        asking[#asking + 1] = { seq = seq, s = s, bit = bit, verdict = i }
      end
    end
    local may_come_back = out_at == 0 and not live and epoch ~= z.epoch
    if may_come_back and (is_recovering() or may_be_dealt() and call('GETBIT', s.lost_key, SEGMENT + bit) == 0) then
      -- Another server may remember that it entered, or the ticket has the number from before a deal that was lost.
      verdicts[i] = not_yet()
    end
  end
end

-- The positions before any claim of this call enters. A claim may have moved the base back.
counted = z.base
local last_index, last_bit, live_here, present_here = -1, 0, 0, 0
for _, ask in ipairs(asking) do
  local s, bit = ask.s, ask.bit
  if s.index ~= last_index then last_index, last_bit, live_here, present_here = s.index, 0, 0, 0 end
  if bit > last_bit then
    live_here = live_here + call('BITCOUNT', s.live_key, last_bit, bit - 1, 'BIT')
    present_here = present_here + call('BITCOUNT', s.here_key, last_bit, bit - 1, 'BIT')
    last_bit = bit
  end
  local live, present = before(s.index)
  ask.live, ask.present = live + live_here, present + present_here
end

local slots_free = 0
if z.mode == OPEN then
  slots_free = math.huge
elseif not is_held() then
  slots_free = min(free(true), room())
end
local admitted, left, waiters, positions = 0, {}, {}, {}
local stamp = stamp_of_now()
for _, ask in ipairs(asking) do
  if ask.present < slots_free then
    local s = ask.s
    call('SETBIT', s.live_key, ask.bit, 0)
    call('SETBIT', s.here_key, ask.bit, 0)
    call('SETRANGE', s.entry_key, ask.bit * 12, stamp)
    note_ended(s, ask.bit)
    s.stamped = 1
    set_live(s, s.live - 1)
    set_present(s, s.present - 1)
    begin_visit(s, ask.bit)
    left[#left + 1] = int(ask.seq)
    admitted = admitted + 1
    verdicts[ask.verdict] = entered_verdict(z.now, unix_s(), z.ttl)
  else
    waiters[#waiters + 1] = { ask.seq, ask.live - admitted, ask.present - admitted }
    positions[#waiters] = ask.verdict
  end
end
if admitted > 0 then
  call('ZREM', KEYS[3], unpack(left))
  z.used = z.used + admitted
  note_entries(admitted)
end
local still_waiting = positions_of(waiters)
for i = 1, #still_waiting do verdicts[positions[i]] = still_waiting[i] end
for i, at in pairs(again) do verdicts[i] = verdicts[at] end
return finish(table.concat(verdicts), int(unix_s()))
