-- Merges what a server remembers of a zone into a state that was lost, in whole or in part. The memories of several
-- servers may come in any order: gone tickets are united, entries are merged by instant, and a ticket waits if one server
-- saw it waiting and none saw it gone.
--
-- KEYS  see zone.lua; the segments of the memory. Then for each of these segments: i0, i1, i2, i3, left, as in visits.lua
-- ARGV  1-7 as in zone.lua, with 0 0 for epoch and rev, and the clock of the line that the server remembers; then its
--       memory: epoch, rev, next, first segment, start, born, floor; 1 if it remembers nothing else; how many
--       people may be inside, or -1 if it does not know; 1 if it watched the zone until it was lost; how many people had
--       entered; when the zone opens, by its clock, 0 for none; the draw by which the line was dealt last, the first number that it dealt,
--       and the first one behind, 0 for none; the leaps of the clock, as in the header; the servers that it knows of, each
--       with a space and when it last called, with spaces between; all segments of which it knows tickets and that its line
--       has not left behind, with spaces between; the line's earlier epochs, as in the header; the log of the last minute (10
--       bytes per record: instant 6, count 4); entries (18 bytes each: number 6, instant 6, unix seconds 4, life 2); the policy
--       as in policy.lua; then for each segment passed its live bits, its gone bits, the bits of those gone who do not come
--       back, because they entered or gave up the place, and those of whose visits ended, each of which may be empty
-- Returns zone.lua's, then 1 if the memory was merged, 0 if the state had it already, -1 if it is of a line whose numbers are
--         other people's now, so that its tickets end
-- Cost  about 60 us per segment, and 1 us for each record of the log and each entry.

-- How many arguments a segment has.
local BITS = 4
local w, log, out, policy_at = {}, nil, nil, nil
local LEAPS = { 'leaps_from', 'leapt', 'leap', 'leapt_before', 'leap_before' }
do
  local at = 8 + tonumber(ARGV[7])
  for i, name in ipairs({ 'epoch', 'rev', 'next', 'base', 'start', 'born', 'floor', 'last', 'inside', 'watched', 'entered',
    'opens', 'drawn', 'drawn_from', 'drawn_end' }) do
    w[name] = tonumber(ARGV[at + i - 1])
  end
  for i = 1, #LEAPS do w[LEAPS[i]] = tonumber(ARGV[at + 14 + i]) end
  at = at + 15 + #LEAPS
  w.servers, w.segments, w.past = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  log, out, policy_at = ARGV[at + 3], ARGV[at + 4], at + 5
end

-- The clock of the line that the server remembers.
local w_now = tonumber(ARGV[3])
local raw = call('GET', KEYS[1])
if raw then
  read_header(raw)
  -- The clocks of two lines are not comparable, and that of an earlier epoch is an upper bound at most.
  if z.born ~= w.born then
    ARGV[3], ARGV[4] = '0', '0'
  elseif w.epoch < z.epoch then
    ARGV[1] = int(w.epoch)
  end
else
  create(w.epoch, policy_at, true)
  z.born, z.floor, z.start, z.next, z.base = w.born, w.floor, w.start, w.next, w.base
  -- By the clock of the line that goes on.
  if z.opens > 0 and w.opens > 0 then z.opens = w.opens end
  z.drawn, z.drawn_from, z.drawn_end = w.drawn, w.drawn_from, w.drawn_end
  for i = 1, #LEAPS do z[LEAPS[i]] = w[LEAPS[i]] end
  begin_epoch(z.now, 0, 0)
  begin_blind()
  blind_since = 0
  call('SET', KEYS[1], header())
end
local from, fault = begin()
if fault then return fault end
for i = 1, #segments do
  local key = FIXED + #segments * PER_SEGMENT + (i - 1) * 5
  segments[i].visit_ages = { KEYS[key + 1], KEYS[key + 2], KEYS[key + 3], KEYS[key + 4] }
  segments[i].left_key = KEYS[key + 5]
end
-- By how much the line's clock is ahead of the one that the server remembers. Within a line, less than five seconds are the
-- delay of a call; more if the clock was set while no server knew it.
-- Servers know that clock to some milliseconds. What the first one of a line said counts for all, so that their entries meet.
local drift, is_first = z.now - w_now, true
do
  local first, until_epoch = string.match(call('HGET', KEYS[4], 'drift ' .. int(w.born)) or '', '(%-?%d+) (%d+)')
  if first and w.epoch < tonumber(until_epoch) and abs(drift - first) <= 5000 then
    drift, is_first = tonumber(first), false
  elseif z.born == w.born and abs(drift) <= 5000 then
    drift, is_first = 0, false
  end
end

-- The revision and the next number that the state knew of a past epoch.
local function find_past(epoch)
  for at = 1, #past, 32 do
    local of, rev, known = unpack_struct('>i8i8i8i8', past, at)
    if of == epoch and rev ~= PROVED then return rev, known end
  end
end

-- The epochs that the server tells of.
local told = { [w.epoch] = true }
for at = 1, #w.past, 32 do
  local epoch, rev = unpack_struct('>i8i8', w.past, at)
  if rev ~= PROVED then told[epoch] = true end
end

local function add_past(known, limit)
  past = string.sub(pack('>i8i8i8i8', w.epoch, 0, known, limit) .. past, 1, PAST)
end

-- The first number that the state and the server may not have in common. The newest epoch that both know says it: another process
-- may have gone on from there. Nil if there is no such epoch.
local function find_fork()
  if told[z.epoch] then return z.next end
  for at = 1, #past, 32 do
    local epoch, rev, fork = unpack_struct('>i8i8i8', past, at)
    if told[epoch] and rev ~= PROVED then return fork end
  end
end

local own_epoch, own_next = z.epoch, z.next
local taken, is_of_another_line = 1, false
local w_end = (segment_of(w.next + SEGMENT - 1) + 1) * SEGMENT

-- The segments of tickets that proved themselves to one of the two, and whose epoch the other one knows, too: these are the same people.
local function shared_segments()
  local known_here, shown_there, shared = { [z.epoch] = true }, {}, {}
  local function note(first, limit)
    for i = segment_of(first), segment_of(limit - 1) do shared[int(i)] = true end
  end
  for at = 1, #past, 32 do known_here[unpack_struct('>i8', past, at)] = true end
  for at = 1, #w.past, 32 do
    local epoch, rev, first, limit = unpack_struct('>i8i8i8i8', w.past, at)
    if rev == PROVED then
      shown_there[epoch] = true
      if known_here[epoch] then note(first, limit) end
    end
  end
  for at = 1, #past, 32 do
    local epoch, rev, first, limit = unpack_struct('>i8i8i8i8', past, at)
    if rev == PROVED and (told[epoch] or shown_there[epoch]) then note(first, limit) end
  end
  return shared
end

-- Whether the state has tickets where the server's line has some: of two lines, only one can have a segment.
local function is_in_the_way()
  local names, shared = {}, shared_segments()
  for name in string.gmatch(w.segments, '%d+') do names[#names + 1] = name end
  -- The server may not have heard of the last numbers of its line.
  for i = segment_of(w.next), segment_of(w_end) - 1 do names[#names + 1] = int(i) end
  for i = 1, #names, 1000 do
    local found = call('HMGET', KEYS[4], unpack(names, i, min(i + 999, #names)))
    for j = 1, #found do
      if found[j] and not shared[names[i + j - 1]] then return true end
    end
  end
  return false
end

local rev_known, known = find_past(w.epoch)
-- A ticket may have told of the epoch before. Servers follow only a later epoch than theirs.
if rev_known and w.epoch > z.epoch then begin_epoch(z.now, z.rev - 1, z.next, { w.epoch, z.next }) end
if w.epoch == z.epoch then
  -- begin() has counted this call.
  if w.rev >= z.rev then
    rev_known, known = z.rev - 1, z.next
    begin_epoch(z.now, rev_known, known, { w.epoch, w.next })
  end
elseif not rev_known then
  local fork = find_fork()
  if fork or z.born == w.born then
    -- Another process went on with an earlier state, or this state is older than the one that the server saw.
    rev_known, known = 0, min(fork or z.next, w.start)
    if w.epoch > z.epoch then
      begin_epoch(z.now, z.rev - 1, z.next, { w.epoch, w.next })
    else
      -- Another server may know later numbers of that epoch.
      if w.next > z.start then z.next = max(z.next, w_end) end
    end
    add_past(known, w.next > z.start and w_end or min(w_end, z.start))
    z.born = w.born
  else
    -- One of the lines was begun by a server that did not remember the other one. Each keeps its numbers, and new numbers are
    -- behind both. Servers follow only a later epoch than theirs.
    local is_taken = is_in_the_way()
    if w.epoch > z.epoch or w_end > z.start then
      begin_epoch(z.now, z.rev - 1, z.next, { w.epoch, is_taken and z.next or w.next })
    end
    if is_taken then
      taken = -1
    else
      rev_known, known = 0, 0
      add_past(0, w_end)
      is_of_another_line = true
    end
  end
end
-- The server may tell of earlier epochs that this state does not know. What the lost state knew of them does not count: this one
-- knows only what servers give back. Such an epoch that is before numbers of this state was put in front of them.
local front = 0
if taken == 1 then
  -- What tickets alone have proved is known now.
  local others, kept = {}, {}
  for at = 1, #past, 32 do
    local epoch, rev = unpack_struct('>i8i8', past, at)
    if rev ~= PROVED or not told[epoch] then kept[#kept + 1] = string.sub(past, at, at + 31) end
  end
  past = table.concat(kept)
  for at = 1, #w.past, 32 do
    local epoch, rev, first, limit = unpack_struct('>i8i8i8i8', w.past, at)
    if epoch ~= z.epoch and not find_past(epoch) then
      local row = pack('>i8i8i8i8', epoch, min(rev, 0), rev == PROVED and first or 0, limit)
      if not string.find(past, row, 1, true) then others[#others + 1] = row end
      if known and limit <= known then front = max(front, limit) end
    end
  end
  past = string.sub(past .. table.concat(others), 1, PAST)
end
if taken == 1 and not (rev_known and w.rev > rev_known) then taken = 0 end

-- The state lost a deal, which is made again with the same numbers. What the server knows of them counts, also of those that an earlier epoch
-- gave out behind them, and no other number is given out twice.
if taken == 1 and w.drawn_end > z.drawn_end then
  local limits = { [w.epoch] = w_end }
  for at = 1, #w.past, 32 do
    local epoch, rev, _, limit = unpack_struct('>i8i8i8i8', w.past, at)
    if rev ~= PROVED then limits[epoch] = limit end
  end
  for at = 1, #past, 32 do
    local epoch, rev, known_next, limit = unpack_struct('>i8i8i8i8', past, at)
    if rev ~= PROVED and limit < (limits[epoch] or 0) then
      past = string.sub(past, 1, at - 1) .. pack('>i8i8i8i8', epoch, rev, known_next, limits[epoch]) .. string.sub(past, at + 32)
    end
  end
  -- A server that knew the deal may have told people of this epoch the numbers by it.
  if z.epoch == own_epoch and own_next < w_end then begin_epoch(z.now, z.rev - 1, own_next, { w.epoch, w_end }) end
  z.next = max(z.next, w_end)
end
-- Of the numbers before a deal, nobody waits.
local dealt_from = segment_of(z.drawn_from)

local function merge_bits(s, live, gone_bits, entered_bits)
  if not s.known then start_segment(s) else touch(s) end
  -- The segment may have been freed.
  call('PERSIST', s.entry_key)
  if #gone_bits > 0 then
    call('SET', KEYS[6], gone_bits)
    if string.find(entered_bits, '[^%z]') then
      call('SETRANGE', KEYS[6], floor(SEGMENT / 8), entered_bits)
      s.ended = z.rev
    end
    call('BITOP', 'OR', s.lost_key, s.lost_key, KEYS[6])
  end
  -- The state knows better which tickets below `known` there are, but not those of a line that was put in front.
  local skip = s.index * SEGMENT >= front and max(known - s.index * SEGMENT, 0) or 0
  if #live > 0 and skip < SEGMENT then
    call('SET', KEYS[6], live)
    local whole = floor(skip / 8)
    if whole > 0 then call('SETRANGE', KEYS[6], 0, string.rep('\0', whole)) end
    for bit = whole * 8, skip - 1 do call('SETBIT', KEYS[6], bit, 0) end
    for plane = 1, 4 do without(s.ages[plane], KEYS[6]) end
    call('BITOP', 'OR', s.live_key, s.live_key, KEYS[6])
    call('BITOP', 'OR', s.here_key, s.here_key, KEYS[6])
  end
  -- Who entered, or gave up the place, after the state was lost does not wait either, though a server that stood still says so.
  gather_gone(s)
  for _, key in ipairs({ s.live_key, s.here_key, s.ages[1], s.ages[2], s.ages[3], s.ages[4] }) do
    without(key, KEYS[6])
  end
  -- The next beat makes appointments for all present tickets of the front.
  s.front, s.near = 0, 0
  set_live(s, call('BITCOUNT', s.live_key))
  set_present(s, call('BITCOUNT', s.here_key))
  call('DEL', KEYS[6], KEYS[7])
end

-- Later, everybody who still polls has shown the ticket, and who did not is not waiting any more.
local is_over = z.now >= z.recover_until
-- Without the store, a server goes on to tell people to wait. Who heard that a moment ago has as long to ask as anybody else. But a server
-- that nobody asked for a while may be the last one to speak, so this ends.
if not is_over then
  local idle_ms = z.idle * 1000
  z.recover_until = max(z.recover_until, min(z.now, z.hold_until + idle_ms) + idle_ms)
end
if taken == 1 and not is_over then
  z.base = max(min(z.base, w.base), dealt_from)
  for i = 1, #segments do
    local s = segments[i]
    local at = policy_at + #POLICY + (i - 1) * BITS
    local live, gone_bits, entered_bits = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    -- Another line may have numbers that the server's one has left behind.
    local is_its_own = s.index >= w.base or not is_of_another_line
    if s.index >= dealt_from and #live + #gone_bits > 0 and is_its_own then
      if s.index >= z.base then
        merge_bits(s, live, gone_bits, entered_bits)
      else
        note_left_behind(s, entered_bits)
      end
    end
  end
end

local inside_before, before = z.inside, most_inside()
local counts, instants = taken_slots()
-- How many slots of a record of the server the state has at another instant: it knows the tickets. The clocks of two lines that met do not
-- stay as far apart as they were: that of a state whose servers it lost stands still. A ticket whose holder left before the server knew the
-- entry has no second, and no instant. A record that the state has at the same instant may be of others, by another clock.
local elsewhere, apart = {}, {}
if taken == 1 then
  for at = 1, #out, 18 do
    local seq, said, unix, life = unpack_struct('>I6I6I4I2', out, at)
    local entered_at = max(said + drift, 1)
    local s, bit = by_index[segment_of(seq)], seq % SEGMENT
    if s then
      local stamp = call('GETRANGE', s.entry_key, bit * 12, bit * 12 + 11)
      local known_at = #stamp == 12 and unpack_struct('>I6', stamp) or 0
      if counts[known_at] and unix > 0 then
        if is_first or known_at ~= entered_at then elsewhere[said] = (elsewhere[said] or 0) + 1 end
        if known_at ~= said then apart[said] = (apart[said] or 0) + 1 end
      end
      if known_at == 0 then
        call('SETRANGE', s.entry_key, bit * 12, pack('>I6I4I2', entered_at, unix, life))
        s.stamped, s.changed = 1, s.known
      elseif life == 0 then
        -- The server knows that its holder left, and another one may have said that the visit goes on.
        call('SETRANGE', s.entry_key, bit * 12 + 10, '\0\0')
        if z.max_active > 0 and call('SETBIT', s.in_key, bit, 0) == 1 then
          z.inside = max(z.inside - 1, 0)
          for plane = 1, 4 do call('SETBIT', s.visit_ages[plane], bit, 0) end
        end
      else
        -- Another server may know that.
        life = unpack_struct('>I2', stamp, 11)
      end
      if s.known and call('SETBIT', s.live_key, bit, 0) == 1 then
        set_live(s, s.live - 1)
        if call('SETBIT', s.here_key, bit, 0) == 1 then set_present(s, s.present - 1) end
        for plane = 1, 4 do call('SETBIT', s.ages[plane], bit, 0) end
      end
      local may_be_in = z.max_active > 0 and life > 0 and z.now - entered_at < 12 * visit_generation_ms()
      if may_be_in and call('GETBIT', s.left_key, bit) == 0 then begin_visit(s, bit) end
    end
    z.keep_until = max(z.keep_until, entered_at + life * 1000)
  end
  for i = 1, #out > 0 and #segments or 0 do
    if segments[i].index < z.base then
      keep_entries(segments[i])
    end
  end
end

-- Marks those whose visits ended, so that all servers know it, and counts them no more.
local function merge_left(s, bits)
  local row = 'v' .. int(s.index)
  local turned, _, _, idle = read_visits_row(call('HGET', KEYS[4], row))
  call('SET', KEYS[6], bits)
  call('BITOP', 'OR', s.left_key, s.left_key, KEYS[6])
  call('PEXPIRE', s.left_key, 2 * visit_ms())
  call('BITOP', 'AND', KEYS[6], s.in_key, s.left_key)
  z.inside = max(z.inside - call('BITCOUNT', KEYS[6]), 0)
  call('BITOP', 'XOR', s.in_key, s.in_key, KEYS[6])
  reset_ages(s.visit_ages)
  note_inside(s.index, 0)
  call('HSET', KEYS[4], row, visits_row(turned, z.rev, z.now + visit_ms(), idle))
  call('DEL', KEYS[6], KEYS[7])
end
for i = 1, taken == 1 and z.max_active > 0 and #segments or 0 do
  local bits = ARGV[policy_at + #POLICY + i * BITS - 1]
  if #bits > 0 then merge_left(segments[i], bits) end
end

-- Of the people inside, only the number is remembered. They show themselves when they are active. A state that was lost begins blind
-- and stays so until a server says the number. Who entered after a count was made is known by the totals of entries.
if taken == 1 and z.max_active > 0 then
  -- The state counted without those who entered then, as far as this server knows. Totals of two lines cannot be compared.
  local missing = is_of_another_line and 0 or max(w.entered - z.entered, 0)
  local most
  if w.inside >= 0 then
    local by_server = w.inside + max(z.entered - w.entered, 0)
    if is_blind() then
      most = by_server
    elseif is_of_another_line then
      most = max(before, w.inside)
    else
      most = max(before, min(before + missing, by_server))
    end
  elseif not is_blind() then
    -- This server does not know how many there were. It has told of some of them.
    if missing > z.inside - inside_before then begin_blind() else most = before + missing end
  end
  if most then
    if is_blind() or most > before then z.unseen_until = z.now + visit_ms() end
    z.unseen, z.unseen_told = max(most - z.inside, 0), 1
  end
end

-- The servers that have to say what they remember before the presumption ends. A server that did not watch the zone does not know
-- who decided since it last looked.
if w.watched ~= 1 then
  if not raw or blind_since then note_unknown() end
elseif not string.find(w.servers, ANYBODY, 1, true) then
  call('HDEL', KEYS[8], ANYBODY)
end
local name = ARGV[6]
-- One that has not called since a loss has been silent for as long, however often the state is lost.
for other, seen in string.gmatch(w.servers, '(%S+) (%d+)') do
  if other ~= name and not call('HGET', KEYS[8], other) then
    call('HSET', KEYS[8], other, '0 ' .. int(max(min(seen + drift, z.now), 0)))
  end
end
if name ~= '' and w.last == 1 then call('HSET', KEYS[8], name, int(z.epoch) .. ' ' .. int(z.now)) end
local have_all_spoken = true
do
  local all = call('HGETALL', KEYS[8])
  for i = 2, #all, 2 do
    local epoch, seen = string.match(all[i], '(%d+) (%d+)')
    if tonumber(epoch) ~= z.epoch and passed_since(tonumber(seen)) <= SERVER_MS then have_all_spoken = false end
  end
end

-- Of two records of one instant, the larger one is newer. What the state has no record of is as old as the server's own clock says.
-- Records that the state has stay at their instants: moved, they would count twice.
local used = 0
do
  for at = 1, taken == 1 and #log or 0, 10 do
    local instant, count = unpack_struct('>I6I4', log, at)
    local is_known = z.born == w.born and counts[instant]
    local moved = is_known and instant or instant + drift
    local then_at = min(moved, z.now)
    count = count - min((is_known and apart or elsewhere)[instant] or 0, count)
    if count > 0 and free_at(then_at, MINUTE_MS) > z.now then
      local had = counts[then_at]
      if not had then instants[#instants + 1] = then_at end
      -- The first server of a line may remember others than those that the state has at that instant.
      local is_other = not is_known and is_first or moved > z.now
      counts[then_at] = is_other and (had or 0) + count or max(had or 0, count)
    end
  end
  for i = 1, #instants do used = used + counts[instants[i]] end
end
if have_all_spoken then
  z.presumed_at, z.presumed = 0, 0
  z.earlier_at, z.earlier = 0, 0
elseif blind_since then
  z.presumed_at, z.presumed = z.now, max(z.n - used, 0)
  z.earlier_at, z.earlier = 0, 0
elseif z.presumed_at > 0 then
  z.presumed = free_at(z.presumed_at, MINUTE_MS) > z.now and max(min(z.presumed, z.n - used), 0) or 0
end
write_presumed(counts, instants)
if is_first then call('HSET', KEYS[4], 'drift ' .. int(w.born), int(drift) .. ' ' .. int(z.epoch)) end
if taken == 1 then z.entered = max(z.entered, w.entered) end
return finish(taken)
