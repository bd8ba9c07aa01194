-- Takes in polls, does what is due for the segments passed, and returns their bits and counts.
--
-- KEYS  see zone.lua; the segments to update, a part of the line
-- ARGV  after zone.lua's: for each segment passed, five: the newest revision that the server has; the offset of the
--       polls in its bitmap (bytes); the polls, which may be empty; and of how many tickets the server wants the entries, from which one on
--       then 1 if the server wants the counts of all segments, from which it makes its view
--       then the longest polling period that the server tells, or may soon tell; 0 if that is the policy's
-- Returns zone.lua's, then: end of the front; end of its approach; the counts of all segments from the first on ("live present generation
--         seen_all rev front near" each, empty for a segment without any; none if not asked for); the revision of each segment
--         passed; the live bits of those that are newer than the server's (empty for the others); the bits of who does not come back of
--         those where these are newer, and of those that the line has left behind; the entries that were wanted; and the servers that make
--         decisions and called lately, each with a space and when that was (none if the counts were not asked for)
-- Cost  about 30 us; 20 us per segment with polls, 25 us more when a generation ends; with the counts, 0.2 us per segment
--       of the line, and 1 us for each ticket that comes into the front.

local OF_SEGMENT = 5
local from, fault = begin(nil, true)
if fault then return fault end
local behind = from + #segments * OF_SEGMENT
local longest = tonumber(ARGV[behind + 1])
if longest > z.period then
  begin_approach(longest_period_ms())
  note_longest_period(longest)
end
end_missed_appointments()
-- `string.rep` copies each byte by itself.
local function zeros(count) return string.rep(string.rep('\0', 64), floor(count / 64)) .. string.rep('\0', count % 64) end
-- Notes the holders as heard who polled.
local function hear_polls(s, at, polls)
  if #polls == 0 or s.live == 0 then return end
  local polled, spare = KEYS[6], KEYS[7]
  call('SETRANGE', polled, at, polls)
  call('BITOP', 'AND', polled, polled, s.live_key)
  reset_ages(s.ages)
  -- In the front, only a claim makes a holder present.
  local whole, rest = floor(s.front / 8), s.front % 8
  if whole > 0 then call('SETRANGE', polled, 0, zeros(whole)) end
  if rest > 0 then call('BITFIELD', polled, 'SET', 'u' .. rest, whole * 8, 0) end
  call('BITOP', 'OR', s.here_key, s.here_key, polled)
  set_present(s, call('BITCOUNT', s.here_key))
  call('DEL', polled, spare)
end

-- Moves the end of the front in one segment. Present tickets that come into it get appointments. They replace earlier
-- ones, because polls may have been answered from the view since those were made.
local function move_front(s, front_end)
  local before, first = s.front, s.index * SEGMENT
  local to = is_auto() and min(max(front_end - first, 0), SEGMENT) or 0
  if to == before then return end
  s.front, s.changed = to, true
  if to < before then return end
  local first_byte, made, at = floor(before / 8), {}, 0
  local bytes = call('GETRANGE', s.here_key, first_byte, floor((to - 1) / 8))
  while true do
    at = string.find(bytes, '[^%z]', at + 1)
    if not at then break end
    local byte, ticket = string.byte(bytes, at), (first_byte + at - 1) * 8
    for bit = 7, 0, -1 do
      if byte >= 2 ^ bit then
        byte = byte - 2 ^ bit
        if ticket >= before and ticket < to then
          -- As its holder was told.
          made[#made + 1] = due_score(0, ticket < s.near and longest_near_period_ms() or longest_period_ms())
          made[#made + 1] = int(first + ticket)
        end
      end
      ticket = ticket + 1
    end
  end
  for i = 1, #made, 2000 do call('ZADD', KEYS[3], unpack(made, i, min(i + 1999, #made))) end
  if #made > 0 then z.appointed = max(z.appointed, tonumber(made[#made]) + 1) end
end

for i = 1, #segments do
  local s = segments[i]
  local own = from + (i - 1) * OF_SEGMENT
  local at, polls = tonumber(ARGV[own + 1]), ARGV[own + 2]
  -- A report may arrive late if a call stalled. A holder who polled before a generation ended must survive its end.
  if is_behind(s) then hear_polls(s, at, polls) end
  touch(s)
  hear_polls(s, at, polls)
end

-- A full segment in which nobody waits any more is freed, wherever it is: nobody will wait there again. Its entries are
-- known for as long as passes last. The base moves past freed segments.
local function is_done(s)
  return s and s.live == 0 and z.next >= (s.index + 1) * SEGMENT and z.now >= z.recover_until
end
local function free_segment(s)
  keep_entries(s)
  -- Servers that have not beaten since its last entry still ask who does not come back, and for their entries.
  local ended = ended_of(s)
  call('UNLINK', s.lost_key)
  if #ended > 0 then note_left_behind(s, ended) end
  s.stamped, s.changed, s.is_freed = 0, true, true
end
for i = 1, #segments do
  local s = segments[i]
  -- Where nobody ever waited there are no bitmaps. Such a segment is at the base, because nobody waits before it either.
  if is_done(s) and call('UNLINK', s.live_key, s.here_key, unpack(s.ages)) > 0 then free_segment(s) end
end
while is_done(by_index[z.base]) do
  local s = by_index[z.base]
  if not s.is_freed then free_segment(s) end
  call('HDEL', KEYS[4], int(z.base))
  s.changed = false
  z.base = z.base + 1
end
if call('EXISTS', KEYS[3]) == 0 then z.due_base = z.now - z.paused end

-- The bit of the present ticket of a segment that is number `wanted`, from 1. The search begins at `near`, with steps that grow: an end
-- has moved little since the last beat.
local function nth_present(s, wanted, near)
  local function reaches(bit) return call('BITCOUNT', s.here_key, 0, bit, 'BIT') >= wanted end
  local low, high, step = 0, SEGMENT - 1, 1
  near = min(max(near - 1, 0), high)
  if reaches(near) then
    high = near
    while low < high do
      local before = max(high - step, low)
      if not reaches(before) then
        low = before + 1
        break
      end
      high, step = before, step * 8
    end
  else
    low = near + 1
    while low < high do
      local beyond = min(low + step - 1, high)
      if reaches(beyond) then
        high = beyond
        break
      end
      low, step = beyond + 1, step * 8
    end
  end
  while low < high do
    local middle = floor((low + high) / 2)
    if reaches(middle) then high = middle else low = middle + 1 end
  end
  return high
end

-- How often a server is noted on the list of servers, and how long eviction waits for one that has not called.
local function listing_ms() return min(floor(z.idle * 1000 / 6), 2000) end
local function silence_ms() return z.idle * 2000 end

-- Notes that the server called, and returns who did lately: the name, when that was, and whether it has retired. ANYBODY is among
-- them: somebody still has to speak, also after another loss. Servers that were silent for long are forgotten.
local function note_server()
  local name, all, called, is_noted = ARGV[6], call('HGETALL', KEYS[8]), {}, false
  local epoch = int(z.epoch)
  for i = 1, #all, 2 do
    local known, seen, state = string.match(all[i + 1], '(%d+) (%d+) ?(.*)')
    seen = tonumber(seen)
    local silent_ms = passed_since(seen)
    if all[i] == name then
      epoch, is_noted = known, silent_ms < listing_ms() and state ~= RETIRED
    elseif silent_ms > max(SERVER_MS, silence_ms()) then
      call('HDEL', KEYS[8], all[i])
    else
      called[#called + 1] = { all[i], seen, state == RETIRED }
    end
  end
  if name ~= '' then
    if not is_noted then call('HSET', KEYS[8], name, epoch .. ' ' .. int(z.now)) end
    called[#called + 1] = { name, z.now, false }
  end
  return called
end

-- The first ticket behind the first `wanted` present tickets, by the segments' counts. `near` is a guess; without it, the end of
-- the front.
local rows = {}
local function behind_present(wanted, near)
  local passed = 0
  for i = 1, #rows do
    local present = tonumber(string.match(rows[i], '%d+ (%d+)') or '0')
    if passed + present >= wanted then
      local s, first = by_index[z.base + i - 1], (z.base + i - 1) * SEGMENT
      return min(first + (s and nth_present(s, wanted - passed, near and near - first or s.front) or SEGMENT - 1) + 1, z.next)
    end
    passed = passed + present
  end
  return z.next
end

-- From now on, the holders below `near` count as told the near period. Those who have been silent for too long for that are not
-- present any more.
local function set_near(s, near)
  local before, age = s.near, present_age(longest_near_period_ms())
  if near == before then return end
  s.near, s.changed = near, true
  if near < before or age >= present_age(longest_period_ms()) then return end
  drop_older(s, age, near)
  set_present(s, call('BITCOUNT', s.here_key))
  call('DEL', KEYS[6], KEYS[7])
end

-- Moves the end of the approach, and returns it. See `move_approach` in the crate `admission`.
local function move_approach(front_end)
  local near_end, approach_end = 0, front_end
  if near_period_ms() < longest_period_ms() then
    local kept = call('HGET', KEYS[4], 'marks')
    if not is_auto() then
      if kept then call('HDEL', KEYS[4], 'marks') end
    else
      local warning = warning_ms(longest_period_ms())
      local near_ms = floor(near_period_ms() * 5 / 4) + 2000 + (present_age(longest_near_period_ms()) + 1) * generation_ms()
      local wanted = max(front_len(), floor(z.n * (near_ms + floor(warning * 5 / 4)) / MINUTE_MS))
      local marks = {}
      for number in string.gmatch(kept or '', '%d+') do marks[#marks + 1] = tonumber(number) end
      if marks[1] ~= heard(z.seen_all) then marks = { heard(z.seen_all) } end
      approach_end = max(front_end, behind_present(wanted, marks[#marks]))
      -- An instant and an end each, from the second number on.
      local made = #marks == 1 or marks[#marks - 1] + floor(warning / 4) <= z.now
      if made then
        marks[#marks + 1] = z.now
        marks[#marks + 1] = approach_end
      end
      local oldest = 2
      while marks[oldest + 2] and marks[oldest + 2] + warning <= z.now do oldest = oldest + 2 end
      if marks[oldest] + warning <= z.now then
        near_end = approach_end
        for i = oldest + 1, #marks, 2 do near_end = min(near_end, marks[i]) end
      end
      if made then
        local text = { int(heard(z.seen_all)) }
        for i = oldest, #marks do text[#text + 1] = int(marks[i]) end
        call('HSET', KEYS[4], 'marks', table.concat(text, ' '))
      end
    end
  end
  for i = 1, #segments do
    local s = segments[i]
    if s.known and s.index >= z.base then
      set_near(s, min(max(near_end - s.index * SEGMENT, 0), SEGMENT))
    end
  end
  return approach_end
end

local servers, front_end, approach_end = {}, z.next, 0
if ARGV[behind] ~= '1' then
  -- A server is on the list from its first call on.
  local name = ARGV[6]
  if name ~= '' and not call('HGET', KEYS[8], name) then call('HSET', KEYS[8], name, int(z.epoch) .. ' ' .. int(z.now)) end
else
  save_segments()
  for _, server in ipairs(note_server()) do
    local name, seen, has_retired = unpack(server)
    local silent_ms = passed_since(seen)
    if silent_ms <= SERVER_MS then servers[#servers + 1] = name .. ' ' .. int(min(seen, z.now)) end
    -- A server that can't reach Redis, or stands still, may have heard people who look silent here. When it is back it
    -- reports their polls, or they have two periods to ask again.
    if not has_retired and silent_ms > listing_ms() + 3000 and silent_ms <= silence_ms() then
      z.spare_until = max(z.spare_until, back_at(longest_period_ms()))
    end
  end
  table.sort(servers)
  local names = {}
  for i = z.base, segment_of(max(z.next - 1, z.base * SEGMENT)) do names[#names + 1] = int(i) end
  for i = 1, #names, 1000 do
    local some = call('HMGET', KEYS[4], unpack(names, i, min(i + 999, #names)))
    for j = 1, #some do rows[#rows + 1] = some[j] or '' end
  end
  -- Between two lines there are segments without tickets. Once the first line has ended, the base moves past them.
  if rows[1] == '' and z.now >= z.recover_until then
    local used, last = 1, segment_of(z.next)
    while rows[used] == '' and z.base + used - 1 < last do used = used + 1 end
    rows = { unpack(rows, used) }
    z.base = z.base + used - 1
  end
  if z.mode == HOLD or z.mode == CLOSED or z.mode == AUTO and is_undrawn() then
    front_end = z.base * SEGMENT
  elseif z.mode == AUTO then
    -- The front ends behind the last present ticket whose slot becomes free soon.
    local soon, wanted, too_many = z.now + floor(near_period_ms() * 5 / 4) + 2000, 0, front_limit()
    while wanted < too_many do
      local middle = floor((wanted + too_many) / 2)
      if slot_ms(middle) <= soon then wanted = middle + 1 else too_many = middle end
    end
    front_end = behind_present(max(wanted, 1))
  end
end
front_end = min(front_end, z.next)
if ARGV[behind] == '1' then
  -- A ticket that comes into the front gets an appointment by the period that people in the approach were told.
  approach_end = move_approach(front_end)
  for i = 1, #segments do
    local s = segments[i]
    if s.known and s.index >= z.base then
      move_front(s, front_end)
      -- Behind the last number there may be a segment without any.
      if rows[s.index - z.base + 1] then rows[s.index - z.base + 1] = row_of(s) end
    end
  end
end

-- Each server learns who does not come back, and the entries of those who entered by calls of other servers: if the state is lost, any of
-- them can say so.
local revs, bits, ended, entries = {}, {}, {}, {}
for i = 1, #segments do
  local s, own = segments[i], from + (i - 1) * OF_SEGMENT
  local has, wanted, first = tonumber(ARGV[own]), tonumber(ARGV[own + 3]), tonumber(ARGV[own + 4])
  revs[i], bits[i], ended[i], entries[i] = int(s.rev), '', '', ''
  local is_left_behind = s.index < z.base
  if not is_left_behind and s.rev > has then bits[i] = call('GET', s.live_key) or '\0' end
  if is_left_behind or s.ended > has then ended[i] = ended_of(s) end
  if wanted > 0 then entries[i] = call('GETRANGE', s.entry_key, first * 12, (first + wanted) * 12 - 1) end
end
return finish(int(front_end), int(approach_end), rows, revs, bits, ended, entries, servers)
