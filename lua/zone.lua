-- The first part of every script of a zone: the layout of the state, time, and functions that several decisions share. It finds out
-- whether the state was lost.
--
-- The rules are those of the crate `admission`; random traces compare the two. Most rules have the same function name in both.
-- All numbers are integers below 2^53. A bitmap has one bit for each ticket of a segment of 65,536 tickets.
--
-- KEYS  1 z      the header: the numbers of FIELDS, 8 bytes each; then 32 bytes for each past epoch; then, in one byte, how
--                many numbers there are
--       2 log    entries of slightly more than the last minute: 12 bytes per record, instant (6) and running total (6)
--       3 due    sorted set of the front's appointments: ticket -> due * 65,536 + requested wait, 0 for none
--       4 seg    hash: segment -> "live present generation seen_all rev front near stamped ended"; the tickets of the segment below
--                `front` belong to the front of the line, as of the last beat; the holders of those below `near` have been told
--                the near period; `stamped` is 1 if anybody has an entry in `entry`; `ended` is the revision at which `lost` last
--                got somebody who does not come back. And, while periods are long, marks -> "seen_all instant end instant end ...": where
--                the approach of the front ended lately. And of each segment with people inside, v<segment> -> "generation left_rev
--                left_until", see visits.lua. And kept -> "segment instant segment instant ...": until when the entries of segments must be
--                there that were freed lately, the last one first. And drift <born> -> "ms epoch": by how much the clock is ahead of
--                that of another line, which servers remembered in epochs before this one, see restore.lua. And keys -> "minute count":
--                how many joins with a key there were, see join.lua. And ahead -> "epoch number": see moved_ahead_from in enter.lua. And
--                reign -> since when the process that has the state is a primary, see unknown_run
--       5 on     exists while this process is known to hold the state: which process it is, and since when calls have been late, or
--                nothing; not replicated
--       6 t1, 7 t2  temporary, empty between calls
--       8 srv    hash: server that makes decisions -> "epoch seen": up to which epoch it has given back what it remembers,
--                and when it last called, by the zone's clock; and then RETIRED if it stopped, see retire.lua. And ANYBODY, as long as
--                there may be servers that nobody who has spoken since a loss knows of
--       then for each segment passed: live, here, a0, a1, a2, a3, entry, lost, in
--         live  waits          here  present
--         a0-3  bit planes of the age: generations since the last poll
--         entry 12 bytes per ticket: when it entered, by the zone's clock (6) and by the wall clock in seconds (4), and the
--               life of the pass in seconds (2); 0 after the holder left
--         lost  gone, as the servers remembered it when the state was rebuilt; after these bits, those who do not come back: they
--               entered, or gave up the place, in this state or as the servers remembered it. Once the line has left the segment behind,
--               both are the latter, for a while
--         in    inside: entered, and the visit has not ended. Only where their number is limited; see visits.lua
-- ARGV  1 epoch, 2 rev   the newest state that this server has seen; 0 0 for none
--       3 lo, 4 hi       bounds of the zone's clock, as this server knows them; 0 for none
--       5 known          the first record of the log to return
--       6 name           the server, if it makes decisions
--       7 n, then n segments (those whose keys are passed, ascending)
-- Returns {header, first record returned, records, ...}. Errors come before anything is written:
--       WEIR_NEWER text  a newer version wrote the state, and this one does not know all of it
--       WEIR_NONE  there is no such zone          WEIR_LOST  the state is older than the server's
--       WEIR_KEYS next  the keys of the end of the line were not passed
--       WEIR_OTHER text  another epoch has begun than the server knows; it says first what it remembers, see `run` in call.rs
--       WEIR_TORN epoch text  a part of the state is missing, or is not what a script has written; see mend.lua
-- Cost  about 25 us with one segment. Loops run over the arguments, or over the next slots of the front.

local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
local floor, max, min, abs = math.floor, math.max, math.min, math.abs

local SEGMENT, IDLE_AGE, PAUSE_MS, LONG_PAUSE_MS = 65536, 14, 1500, 4000
local GRACE_MS, LEAST_POLL_MS, LAST_STEP_MS, MINUTE_MS, NEAR_PERIOD_MS = 500, 100, 700, 60000, 3000
-- How often those ask who are next to enter while nobody more may be inside: so many times as many as may be inside.
local FULL_POLL_MS, NEXT_IN = 500, 2
-- See `heard`.
local HEARD = 65536
local AUTO, HOLD, OPEN, CLOSED = 0, 1, 2, 3
local POLL_SCALE, ON_MS = 65536, 1500
-- The bytes of the past epochs that are remembered. A holder may live through so many losses. An epoch with the revision PROVED is known by
-- its tickets alone: nobody has told of it, and it has the numbers from `known` to `limit`.
local PAST, PROVED = 64 * 32, -1
-- How many freed segments are remembered: more than have valid passes, except on the largest days.
local KEPT = 64
-- How far the clock can leap, and windows end early by that. How long the presumption waits for a server that has
-- not called. How far beyond its bounds the clock may be, and for how long before it counts as set.
local LEAP_MS, SERVER_MS, LATE_MS, SET_MS = 50, 70000, 250, 700
-- How long nobody enters after a leap past the opening that no server vouched for. Servers that run call once a second.
local DOUBT_MS = 2000
-- A line that may have had a predecessor begins at a random number from AFTER_LOSS on, and has a random epoch, so that the two have
-- no ticket in common. Both are parts of SPOTS; 67,108,864 numbers are 1,024 segments.
local AFTER_LOSS, SPOTS, SPREAD = 256 * SEGMENT, 67108864, 41474747
local FIXED, PER_SEGMENT = 8, 9
local RETIRED, ANYBODY = 'retired', '?'
-- How long nobody enters a zone whose visitors are not known.
local BLIND_MS = 60000
-- By how much the clocks of two nodes may differ. Redis deletes a key by the clock of the primary that it has then.
local APART_MS, DAY_MS = 600000, 86400000

-- The header. Tests read the names, so there are no comments among them. How many numbers it has is the version of the state's layout: each
-- version of Weir adds to the end, and writes no more numbers than the state needs. A script that knows fewer refuses the state, because it
-- would drop the others. So a change of any part that older scripts must not meet adds a number, which is 0 as long as they may.
--   born, floor, start    the line's first epoch, which tells lines apart; its first number; the first number of this epoch
--   presumed_at, presumed slots that are presumed to be taken: at which instant they are in the log, and how many. The
--                         instant is 0 once every server has given back what it remembers
--   spare_until           until when nobody is evicted: people may have been heard by a server that is silent, or come back
--                         later than a new idle time allows
--   told, told_until, told_next  the longest polling period that people may keep to beside the policy's, and until when; the longest
--                         of the shorter ones that were noted since; 0 for none. See `LongestPeriod` in the crate `admission`
--   max_active            the most people who may be inside; 0 for no limit. Without one, the following numbers are kept until a report
--                         has forgotten who was inside, and who left
--   inside, ended         people inside, and visits that have ended
--   unseen, unseen_until, unseen_told  people who may be inside and have not shown themselves since the state was lost; until when
--                         they count; 1 if a server remembered how many they are
--   inside_from, inside_end  the segments with people inside, or who left lately, are in this range
--   opens_at, opens       nobody enters before this instant, in seconds since 1970 and by the zone's clock; 0 for none
--   draw                  the draw that decides the order; nobody enters before the line was dealt by it; 0 for none
--   drawn, drawn_from, drawn_end  the draw by which the line was dealt last; the first number that it dealt, and the first one behind
--   leaps_from, leapt, leap  when the clock leapt first and last, by the zone's clock, and by how much in all; a new count begins after
--                         a minute
--   leapt_before, leap_before  the same of the count before
--   earlier_at, earlier   slots that an earlier loss within the minute presumed to be taken, as in presumed_at and presumed
local FIELDS = {
  'epoch', 'rev', 'now', 'offset', 'next', 'base', 'first', 'total_first', 'records', 'total', 'minute_from', 'minute_before',
  'sub_from', 'sub_before', 'paused', 'seen_all', 'lateness', 'due_base', 'appointed', 'live', 'present', 'joined',
  'entered', 'evicted', 'used', 'hold_until', 'run', 'recover_until', 'mode', 'n', 'subs', 'period', 'idle', 'ttl',
  'failure', 'policy_rev', 'keep_until',
  'born', 'floor', 'start', 'presumed_at', 'presumed', 'spare_until', 'told', 'told_until', 'told_next',
  'visit_idle', 'max_active',
  'inside', 'ended', 'unseen', 'unseen_until', 'unseen_told', 'inside_from', 'inside_end',
  'opens_at', 'opens',
  'draw', 'drawn', 'drawn_from', 'drawn_end',
  'leaps_from', 'leapt', 'leap', 'leapt_before', 'leap_before',
  'earlier_at', 'earlier',
}
-- How many numbers a header has that does not say it, one of a zone without the people inside, one without an opening, one without a
-- draw, and one without a leap and an earlier presumption.
local FIRST_FIELDS, PLAIN_FIELDS, INSIDE_FIELDS, OPENING_FIELDS, DRAW_FIELDS = 36, 48, 55, 57, 61

local z, past = {}, ''
local segments, by_index = {}, {}
local wall = 0

-- The rules are in one function, which end.lua ends. Otherwise each of them is made anew at each call by a search for the names
-- above, which took up to a third of the time of a call. Such a function has at most 60 of them.
return (function()
local function int(number) return string.format('%d', number) end

-- Returns an error if a newer version wrote it.
local function read_header(raw)
  local says = #raw % 8 == 1
  local count = says and string.byte(raw, -1) or FIRST_FIELDS
  local values = { unpack_struct('>' .. string.rep('i8', count), raw) }
  -- An earlier version wrote fewer numbers.
  for i = 1, #FIELDS do z[FIELDS[i]] = i <= count and values[i] or 0 end
  if z.visit_idle == 0 then z.visit_idle = 900 end
  past = string.sub(raw, 8 * count + 1, says and -2 or -1)
  -- What no script has written is not newer.
  if count > #FIELDS and #past % 32 == 0 and z.epoch >= 1 and z.epoch < 4294967296 then
    return 'WEIR_NEWER the state of the zone has ' .. int(count) .. ' numbers, and this version knows ' .. int(#FIELDS)
  end
end

-- When a slot is free again that was taken at `at`, for a window of this length. Perhaps none of the time has passed that the clock leapt
-- since: the slot stays as old as it was. The log keeps the instants, because servers give them back. Between two slots there are never
-- two leaps of which both are counted in part: the later count begins when the earlier one has ended.
local function free_at(at, window)
  local leapt = min(z.leap, max(z.leapt - at, 0)) + min(z.leap_before, max(z.leapt_before - at, 0))
  return at + leapt + window + 1
end

-- How long ago an instant was, without what the clock leapt since. A later one comes from another clock, before a failover.
local function passed_since(at) return at > z.now and at - z.now or max(z.now + 1 - free_at(at, 0), 0) end

-- Whether the pass of an entry is valid. What the clock leapt since does not count, as far as that is known.
local function is_valid(entered_at, life) return free_at(entered_at, life * 1000) > z.now end

local function header()
  local values, count = {}, (z.max_active > 0 or z.inside_end > 0) and INSIDE_FIELDS or PLAIN_FIELDS
  if z.opens_at > 0 then count = OPENING_FIELDS end
  if z.draw > 0 or z.drawn > 0 then count = DRAW_FIELDS end
  if z.leap > 0 and z.now <= z.leapt + max(MINUTE_MS, z.ttl * 1000) then count = #FIELDS end
  if z.earlier > 0 and z.now < free_at(z.earlier_at, MINUTE_MS) then count = #FIELDS end
  for i = 1, count do values[i] = z[FIELDS[i]] end
  return pack('>' .. string.rep('i8', count), unpack(values)) .. past .. string.char(count)
end

-- Numbers that follow from the policy.
local function sub_window_ms() return floor(MINUTE_MS / z.subs) end
local function admit_per_sub_window() return floor((z.n + z.subs - 1) / z.subs) end
local function generation_ms() return floor(z.idle * 1000 / 12) end
local function visit_generation_ms() return floor(z.visit_idle * 375 / 4) end
-- How long a visit is counted without activity, while reports come.
local function visit_ms() return IDLE_AGE * visit_generation_ms() end
-- Whether the order is still to be drawn. Such a zone is held: nobody enters, and there is no front.
local function is_undrawn() return z.draw > 0 and z.draw ~= z.drawn end
local function is_auto() return z.mode == AUTO and not is_undrawn() end
-- Whether a number that is not of this line may be one of a deal that was lost with the state that made it. Nobody is told that it is gone.
local function may_be_dealt() return z.mode == AUTO and is_undrawn() end
-- How many may be inside, and how many more.
local function most_inside() return z.inside + (z.now < z.unseen_until and z.unseen or 0) end
-- Whether nobody knows yet how many are inside.
local function is_blind() return z.unseen_told == 0 and z.now < z.unseen_until end
-- The slots that are presumed to be taken, while a window may count them.
local function presumed_slots()
  return z.presumed_at > 0 and z.now < free_at(z.presumed_at, MINUTE_MS) and z.presumed or 0
end
local function room()
  if z.max_active == 0 then return math.huge end
  if is_blind() then return 0 end
  return max(z.max_active - most_inside() - presumed_slots(), 0)
end
local function front_len() return max(floor((admit_per_sub_window() * 3 + 1) / 2), 16) end
-- While nobody more may be inside, the front is those whom a second's slots are for, and some more.
local function front_limit() return min(front_len(), room() + max(floor((z.n + 59) / 60), 16)) end
local function present_age(period)
  local g = generation_ms()
  return min(floor((period * 2 + GRACE_MS + g - 1) / g), IDLE_AGE - 1)
end
-- The period of people who approach the front.
local function near_period_ms() return min(z.period, NEAR_PERIOD_MS) end
-- The longest period that people may keep to.
local function longest_period_ms() return max(z.period, z.told) end
-- The longest period that people may keep to who were told the near one. Not shorter after a change of the policy, because they
-- may have been told it before.
local function longest_near_period_ms() return min(longest_period_ms(), NEAR_PERIOD_MS) end
-- After this time everybody who waits and was told `period` has heard another one.
local function warning_ms(period) return 2 * period + GRACE_MS + 3000 end
-- The part of `seen_all` that says how often all holders were treated as just heard. The rest counts how often since then their
-- ages began anew, because generations have another length: that leaves everybody as present or absent as before.
local function heard(seen_all) return floor(seen_all / HEARD) end
-- People may be told a longer period than `period` from now on. Where that was no longer than the near period, everybody has been
-- told the near one.
local function begin_approach(period)
  if period <= NEAR_PERIOD_MS then call('HSET', KEYS[4], 'marks', int(heard(z.seen_all)) .. ' 0 4503599627370496') end
end
-- People are told this period until now.
local function note_longest_period(period)
  if period >= z.told then
    z.told, z.told_until, z.told_next = period, z.now + warning_ms(period), 0
  else
    z.told_next = max(z.told_next, period)
  end
end

-- A leap without bounds past the opening is in doubt for a moment: a server with bounds that are still before the opening knows that
-- the clock was set, and the opening moves with it.
local function check_opening(shown, lo, hi)
  local is_in_doubt = z.now < min(z.hold_until, z.leapt + DOUBT_MS) and z.opens > z.leapt - z.leap and z.opens <= z.leapt
  if is_in_doubt and hi < z.opens then z.opens = z.opens + max(shown, z.now) - lo end
end

-- Time. The zone's clock is the clock of Redis minus an offset, kept within the bounds that the server passes. So a node
-- whose clock differs, or was set, neither opens a window early nor stops the line. The bounds of an earlier epoch may be of
-- another clock: they only keep this one from running ahead. Without bounds a long time cannot be told from a clock that was
-- set. If another process has the state now (`is_other`), its clock says nothing: as much time has passed as the server knows
-- of at least, and none without bounds.
-- The clock leaps (by `leap_ms`, 0 for none) if time passes that only a node without bounds shows, or that only a server knows,
-- because calls without bounds had set the clock back.
-- A call that stood still on its way has old bounds, and looks as if the clock was set. Nobody enters by it, and it does not set the
-- zone's clock back, unless calls have been late for SET_MS and none was in time: then the clock was set.
local is_bounded, is_late
local leap_ms = 0
-- What `on` says of late calls, nil if it is not of this process: since when, by the clock of Redis; nothing if the last one was in time.
local mark, late_since
-- What tells this process from others, without a command: where it has a table. A full copy of the data brings the mark of the process
-- that sent it, and that does not end for as long as the clocks of the two nodes differ.
local own_mark = tostring(redis)
local function set_mark(late)
  redis.set_repl(redis.REPL_NONE)
  call('SET', KEYS[5], own_mark .. ' ' .. late, 'PX', ON_MS)
  redis.set_repl(redis.REPL_ALL)
end

local function set_clock(is_other)
  local time = call('TIME')
  wall = time[1] * 1000 + floor(time[2] / 1000)
  local of, lo, hi = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
  is_bounded = hi > 0 and (of == 0 or of == z.epoch)
  local shown = wall - z.offset
  local now = shown
  if is_bounded then
    -- A clock that is held, as tests hold it, is what its bounds say.
    local is_compared = hi > lo and not is_other
    if is_compared then check_opening(shown, lo, hi) end
    is_late = is_compared and shown > hi + LATE_MS
    late_since = is_late and (late_since or wall) or nil
    if is_late and wall - late_since < SET_MS then return z.now end
    if is_compared then leap_ms = max(lo - max(shown, z.now), 0) end
    now = is_other and lo or max(min(shown, hi), lo)
  elseif is_other then
    now = z.now
  else
    -- Bounds that the clock has passed already say nothing.
    local is_ahead = hi >= z.now and shown > hi
    is_late = late_since ~= nil or is_ahead and shown > hi + LATE_MS
    -- The next call has bounds of this epoch.
    if is_ahead and is_late then return z.now end
    if is_ahead then now = hi end
    leap_ms = max(now - z.now, 0)
  end
  if leap_ms <= LEAP_MS then leap_ms = 0 end
  now = max(now, z.now)
  z.offset = wall - now
  return now
end

local function unix_s() return floor(wall / 1000) end
-- The entries of a segment that was freed are kept for as long as passes last, and longer: by the clock of a node that takes over,
-- they may have ended already. Whether a pass is valid does not depend on this.
local function keep_entries(s)
  local kept_ms = max(z.ttl * 1000, z.keep_until - z.now)
  if call('PEXPIRE', s.entry_key, kept_ms + APART_MS) == 0 then return end
  local kept = { int(s.index) .. ' ' .. int(z.now + kept_ms) }
  for index, ends in string.gmatch(call('HGET', KEYS[4], 'kept') or '', '(%d+) (%d+)') do
    if #kept < KEPT and tonumber(index) ~= s.index and tonumber(ends) > z.now then kept[#kept + 1] = index .. ' ' .. ends end
  end
  call('HSET', KEYS[4], 'kept', table.concat(kept, ' '))
end

-- The opening by the zone's clock. It is computed once: a clock that is set later neither opens the zone early nor keeps it closed.
-- A clock that is held, as tests hold it, is its own wall clock.
local function opening()
  if z.opens_at == 0 then return 0 end
  local is_clock_held = ARGV[3] == ARGV[4] and tonumber(ARGV[4]) > 0
  return max(z.opens_at * 1000 - (is_clock_held and 0 or z.offset), 1)
end

-- The segments that were passed.
local function segment_of(seq) return floor(seq / SEGMENT) end

-- The nine numbers of a segment's row, as texts; nothing if it is no row. Earlier versions wrote no `front`, no `near`, no `stamped` and no
-- `ended`.
local function read_row(row)
  return string.match(row or '', '(%d+) (%d+) (%d+) (%d+) (%d+) ?(%d*) ?(%d*) ?(%d*) ?(%d*)')
end

local function read_segments()
  local count = tonumber(ARGV[7])
  if count == 0 then return 8 end
  local names = {}
  for i = 1, count do names[i] = ARGV[7 + i] end
  for i = 1, z.max_active > 0 and count or 0 do names[count + i] = 'v' .. ARGV[7 + i] end
  local rows = call('HMGET', KEYS[4], unpack(names))
  for i = 1, count do
    local index, from = tonumber(names[i]), FIXED + (i - 1) * PER_SEGMENT
    local s = {
      index = index, known = rows[i] and true or false, live = 0, present = 0, generation = 0, seen_all = 0, rev = 0,
      front = 0, near = 0, stamped = 0, ended = 0,
      live_key = KEYS[from + 1], here_key = KEYS[from + 2],
      ages = { KEYS[from + 3], KEYS[from + 4], KEYS[from + 5], KEYS[from + 6] },
      entry_key = KEYS[from + 7], lost_key = KEYS[from + 8], in_key = KEYS[from + 9],
    }
    s.has_visits = rows[count + i]
    if rows[i] then
      local live, present, generation, seen_all, rev, front, near, stamped, ended = read_row(rows[i])
      s.live, s.present, s.rev = tonumber(live), tonumber(present), tonumber(rev)
      s.generation, s.seen_all = tonumber(generation), tonumber(seen_all)
      s.front, s.near, s.stamped = tonumber(front) or 0, tonumber(near) or 0, tonumber(stamped) or 0
      s.ended = tonumber(ended) or 0
    end
    segments[i], by_index[index] = s, s
  end
  return 8 + count
end

local function row_of(s)
  return int(s.live) .. ' ' .. int(s.present) .. ' ' .. int(s.generation) .. ' ' .. int(s.seen_all) .. ' ' .. int(s.rev) ..
    ' ' .. int(s.front) .. ' ' .. int(s.near) .. ' ' .. int(s.stamped) .. ' ' .. int(s.ended)
end

local function save_segments()
  local rows = {}
  for i = 1, #segments do
    local s = segments[i]
    if s.changed then
      rows[#rows + 1] = int(s.index)
      rows[#rows + 1] = row_of(s)
      s.changed = false
    end
  end
  if #rows > 0 then call('HSET', KEYS[4], unpack(rows)) end
end

local function set_live(s, live)
  z.live, s.live, s.changed, s.rev = z.live + live - s.live, live, true, z.rev
end

local function set_present(s, present)
  if present ~= s.present then z.present, s.present, s.changed = z.present + present - s.present, present, true end
end

-- Treats all holders of a segment who wait as just heard.
local function hear_everybody(s)
  call('DEL', s.ages[1], s.ages[2], s.ages[3], s.ages[4])
  call('BITOP', 'OR', s.here_key, s.live_key)
  set_present(s, s.live)
  s.front, s.near = 0, 0
end

-- Puts a segment on the list. If the list was lost, the segment may have its bitmaps still; and if the line had left it behind, who does not
-- come back.
local function start_segment(s)
  call('PERSIST', s.lost_key)
  s.known, s.changed = true, true
  s.generation, s.seen_all, s.rev = floor(z.now / generation_ms()), z.seen_all, z.rev
  s.stamped, s.ended = call('EXISTS', s.entry_key), call('EXISTS', s.lost_key) * z.rev
  set_live(s, call('BITCOUNT', s.live_key))
  hear_everybody(s)
end

-- Clears the bits of a bitmap from this one on.
local function cut(key, bits)
  local whole, rest = floor(bits / 8), bits % 8
  if rest == 0 then
    call('SET', key, bits > 0 and call('GETRANGE', key, 0, whole - 1) or '')
  else
    call('SET', key, call('GETRANGE', key, 0, whole))
    call('BITFIELD', key, 'SET', 'u' .. 8 - rest, bits, 0)
  end
end

-- Clears the bits of a bitmap that another one has.
local function without(key, those)
  call('BITOP', 'AND', KEYS[7], key, those)
  call('BITOP', 'XOR', key, key, KEYS[7])
end

-- Notes that a ticket does not come back: its holder entered, or gave up the place. Its segment has changed.
local function note_ended(s, bit)
  call('SETBIT', s.lost_key, SEGMENT + bit, 1)
  s.ended = z.rev
end

-- Who of a segment does not come back.
local function ended_of(s) return call('GETRANGE', s.lost_key, floor(SEGMENT / 8), -1) end

-- Keeps for a while who does not come back, of a segment that the line has left behind: a server may still say that people wait there, and
-- bring the base back to it.
local function note_left_behind(s, ended_bits)
  call('SET', KEYS[6], ended_bits)
  call('SETRANGE', KEYS[6], floor(SEGMENT / 8), ended_bits)
  call('BITOP', 'OR', s.lost_key, s.lost_key, KEYS[6])
  call('PEXPIRE', s.lost_key, z.idle * 1000 + APART_MS)
  call('DEL', KEYS[6])
end

-- Puts into KEYS[6] who of a segment is gone, as the servers remembered it, or does not come back.
local function gather_gone(s)
  local bytes = floor(SEGMENT / 8)
  call('SET', KEYS[6], call('GETRANGE', s.lost_key, 0, bytes - 1))
  call('SET', KEYS[7], ended_of(s))
  call('BITOP', 'OR', KEYS[6], KEYS[6], KEYS[7])
end

-- The bit planes of an age. A ticket that is not older has all of them only if it has this age.
local function planes_of(s, age)
  local planes = {}
  for i = 1, 4 do
    if age % 2 == 1 then planes[#planes + 1] = s.ages[i] end
    age = floor(age / 2)
  end
  return planes
end

-- Notes the holders as absent who are older than `age`, of the tickets before `bits` of the segment.
local function drop_older(s, age, bits)
  -- A ticket is older if it has a bit that the age lacks, and all higher ones that the age has.
  call('DEL', KEYS[7])
  for i = 1, 4 do
    local higher = floor(age / 2 ^ i) * 2 ^ i
    if floor(age / 2 ^ (i - 1)) % 2 == 0 then
      call('BITOP', 'AND', KEYS[6], s.here_key, s.ages[i], unpack(planes_of(s, higher)))
      call('BITOP', 'OR', KEYS[7], KEYS[7], KEYS[6])
    end
  end
  if bits then cut(KEYS[7], bits) end
  call('BITOP', 'XOR', s.here_key, s.here_key, KEYS[7])
end

-- Each age of those in `of` grows by one. Returns how many of them are to be evicted now; KEYS[6] has their bits.
local function grow_ages(of, ages)
  local carry, spare = KEYS[6], KEYS[7]
  call('BITOP', 'OR', carry, of)
  for i = 1, 4 do
    if i < 4 then call('BITOP', 'AND', spare, ages[i], carry) end
    call('BITOP', 'XOR', ages[i], ages[i], carry)
    carry, spare = spare, carry
  end
  -- 14 is 1110 in binary, and no age is higher. Planes that were lost may have ages of nobody.
  call('BITOP', 'AND', KEYS[6], of, ages[2], ages[3], ages[4])
  return call('BITCOUNT', KEYS[6])
end

-- Clears the ages of those in KEYS[6].
local function reset_ages(ages)
  for plane = 1, 4 do
    call('BITOP', 'OR', KEYS[7], ages[plane], KEYS[6])
    call('BITOP', 'XOR', ages[plane], KEYS[7], KEYS[6])
  end
end

-- Ends a generation: each age grows by one. Evicts tickets that are too old, or keeps them at the last age before that
-- while a server is silent. Notes those that just became absent: no present ticket is older than `oldest_present`, and none of
-- those below `near` is older than `oldest_near`.
local function end_generation(s, oldest_present, oldest_near)
  local evicted = grow_ages(s.live_key, s.ages)
  if evicted > 0 and z.now < z.spare_until then
    for _, i in ipairs({ 1, 2 }) do call('BITOP', 'XOR', s.ages[i], s.ages[i], KEYS[6]) end
  elseif evicted > 0 then
    call('BITOP', 'XOR', s.live_key, s.live_key, KEYS[6])
    for _, i in ipairs({ 2, 3, 4 }) do call('BITOP', 'XOR', s.ages[i], s.ages[i], KEYS[6]) end
    call('BITOP', 'AND', s.here_key, s.here_key, s.live_key)
    set_live(s, s.live - evicted)
    z.evicted = z.evicted + evicted
  end
  -- Some are much older after the period was shortened.
  drop_older(s, oldest_present)
  if s.near > 0 and oldest_near < oldest_present then
    call('BITOP', 'AND', KEYS[6], s.here_key, unpack(planes_of(s, oldest_near + 1)))
    cut(KEYS[6], s.near)
    call('BITOP', 'XOR', s.here_key, s.here_key, KEYS[6])
  end
end

local function is_behind(s)
  return s.known and (s.seen_all < z.seen_all or s.generation < floor(z.now / generation_ms()))
end

-- Updates a segment to the present instant.
local function touch(s)
  if not is_behind(s) then return end
  local generation = floor(z.now / generation_ms())
  if heard(s.seen_all) < heard(z.seen_all) then
    hear_everybody(s)
  elseif s.seen_all < z.seen_all then
    call('DEL', s.ages[1], s.ages[2], s.ages[3], s.ages[4])
  elseif s.live > 0 then
    local oldest_present, oldest_near = present_age(longest_period_ms()), present_age(longest_near_period_ms())
    for _ = 1, min(generation - s.generation, 16) do end_generation(s, oldest_present, oldest_near) end
    set_present(s, call('BITCOUNT', s.here_key))
  end
  s.generation, s.seen_all, s.changed = generation, z.seen_all, true
  call('DEL', KEYS[6], KEYS[7])
end

-- The log (the crate's `Window`). Records are numbered from the first one of the zone's life.
local chunk, chunk_from, chunk_to = '', 0, 0
local CHUNK = 128

local function read_record(i)
  if i < chunk_from or i >= chunk_to then
    local at = (i - z.first) * 12
    chunk = call('GETRANGE', KEYS[2], at, at + CHUNK * 12 - 1)
    chunk_from, chunk_to = i, i + #chunk / 12
  end
  return unpack_struct('>I6I6', chunk, (i - chunk_from) * 12 + 1)
end

-- The first record from `from` on for which `is_past` is false: a few single steps, then a binary search.
local function seek(from, is_past)
  local low, high = from, z.records
  for _ = 1, 8 do
    if low >= high or not is_past(read_record(low)) then return low end
    low = low + 1
  end
  while low < high do
    local middle = floor((low + high) / 2)
    if is_past(read_record(middle)) then low = middle + 1 else high = middle end
  end
  return low
end

local function total_before(i)
  if i <= z.first then return z.total_first end
  local _, total = read_record(i - 1)
  return total
end

-- Moves the beginnings of the windows behind the entries that have left them.
local function advance_window()
  local sub = sub_window_ms()
  local sub_from = seek(z.sub_from, function(at) return free_at(at, sub) <= z.now end)
  if sub_from ~= z.sub_from then z.sub_before, z.sub_from = total_before(sub_from), sub_from end
  local minute_from = seek(z.minute_from, function(at) return free_at(at, MINUTE_MS) <= z.now end)
  if minute_from ~= z.minute_from then z.minute_before, z.minute_from = total_before(minute_from), minute_from end
end

-- How many people may enter now. With `strict`, the sub-window limits them too.
local function free(strict)
  local minute = z.n - (z.total - z.minute_before)
  local sub = admit_per_sub_window() - (z.total - z.sub_before)
  if strict then minute = min(minute, sub) end
  return max(minute, 0)
end

local function is_held()
  return z.mode == HOLD or z.mode == CLOSED or is_undrawn() or z.now < max(z.hold_until, z.opens) or is_late
end

-- Adds a record to the log: so many slots were taken now (the crate's `Window::record`).
local function take_slots(count)
  z.total = z.total + count
  local last_at = 0
  if z.records > z.first then last_at = read_record(z.records - 1) end
  chunk_from, chunk_to = 0, 0
  local line = pack('>I6I6', z.now, z.total)
  if last_at == z.now and z.records > z.first then
    call('SETRANGE', KEYS[2], (z.records - 1 - z.first) * 12, line)
  else
    call('APPEND', KEYS[2], line)
    z.records = z.records + 1
  end
end

local function note_entries(count)
  z.entered = z.entered + count
  take_slots(count)
end

-- The row of a segment with people inside. `idle` is the idle time by which its ages count.
local function visits_row(generation, left_rev, left_until, idle)
  return int(generation) .. ' ' .. int(left_rev) .. ' ' .. int(left_until) .. ' ' .. int(idle)
end

-- The four numbers of such a row, or those of a row that begins now. Earlier versions wrote no idle time.
local function read_visits_row(row)
  local generation, left_rev, left_until, idle = string.match(row or '', '(%d+) (%d+) (%d+) ?(%d*)')
  return tonumber(generation) or floor(z.now / visit_generation_ms()), tonumber(left_rev) or 0, tonumber(left_until) or 0,
    tonumber(idle) or z.visit_idle
end

-- So many more of a segment are inside.
local function note_inside(index, count)
  z.inside_from = z.inside_end > 0 and min(z.inside_from, index) or index
  z.inside_end = max(z.inside_end, index + 1)
  z.inside = z.inside + count
end

-- Counts the holder of a ticket who enters.
local function begin_visit(s, bit)
  if z.max_active == 0 then return end
  local row = 'v' .. int(s.index)
  if not call('HGET', KEYS[4], row) then
    call('UNLINK', s.in_key)
    call('HSET', KEYS[4], row, visits_row(read_visits_row()))
  end
  note_inside(s.index, 1 - call('SETBIT', s.in_key, bit, 1))
end

-- The slots that are taken, without those that are presumed to be: how many at which instants, and the instants in their order.
local function taken_slots()
  local counts, instants, last = {}, {}, z.minute_before
  for i = z.minute_from, z.records - 1 do
    local at, total = read_record(i)
    local count = total - last
    last = total
    if at == z.presumed_at then count = count - z.presumed end
    if at == z.earlier_at then count = count - z.earlier end
    if count > 0 then
      counts[at] = count
      instants[#instants + 1] = at
    end
  end
  return counts, instants
end

-- Writes a new log. Servers read all of it, because its records have new numbers.
local function write_log(counts, instants)
  local lines, total = {}, z.total
  for i = 1, #instants do
    total = total + counts[instants[i]]
    lines[i] = pack('>I6I6', instants[i], total)
  end
  call('SET', KEYS[2], table.concat(lines))
  z.first, z.total_first = z.records, z.total
  z.records, z.total = z.first + #lines, total
  z.minute_from, z.minute_before, z.sub_from, z.sub_before = z.first, z.total_first, z.first, z.total_first
  chunk_from, chunk_to = 0, 0
  advance_window()
end

-- The same, with the slots that are presumed to be taken.
local function write_presumed(counts, instants)
  local function presume_at(at, count)
    if count == 0 then return end
    if not counts[at] then instants[#instants + 1] = at end
    counts[at] = (counts[at] or 0) + count
  end
  if z.earlier > 0 and z.now >= free_at(z.earlier_at, MINUTE_MS) then z.earlier_at, z.earlier = 0, 0 end
  presume_at(z.earlier_at, z.earlier)
  presume_at(z.presumed_at, z.presumed)
  table.sort(instants)
  write_log(counts, instants)
end

-- Whatever a lost process may have decided since `since` counts as done: the slots that were free are taken now. While so
-- many people are present that they cannot all have entered or left since, only the sub-windows' share can be gone. Without
-- bounds nobody knows for how long decisions went on, so all slots of a minute count.
local function presume(since)
  -- Otherwise an earlier presumption would count when all servers have spoken. At a third one, the others are presumed anew.
  local others = 0
  if z.presumed > 0 and z.earlier > 0 and z.now < free_at(z.earlier_at, MINUTE_MS) then
    others = z.earlier + z.presumed
    write_log(taken_slots())
    z.earlier_at, z.earlier = 0, 0
  elseif z.presumed > 0 then
    z.earlier_at, z.earlier = z.presumed_at, z.presumed
  end
  local count, blind = is_bounded and free(false) or z.n, z.now - since
  local share = (floor(blind / sub_window_ms()) + 2) * admit_per_sub_window()
  if since > 0 and is_bounded and blind < 2 * near_period_ms() and z.present >= share then count = min(count, share) end
  count = max(count, min(others, free(false)))
  z.presumed_at, z.presumed = z.now, count
  if count > 0 then take_slots(count) end
end

-- Drops records that no window needs any more, at least 1,024 at a time.
local function trim_log()
  local old = z.minute_from - z.first - 1
  if old >= 1024 then
    z.total_first = total_before(z.first + old)
    local rest = call('GETRANGE', KEYS[2], old * 12, -1)
    call('SET', KEYS[2], rest)
    z.first, chunk_from, chunk_to = z.first + old, 0, 0
  end
end

-- The clock was at `before`, and leaps. Who has to ask, or to speak, after a loss has as much time as without that.
local function note_leap(before)
  if before < z.hold_until then z.hold_until = z.hold_until + leap_ms end
  if before < z.recover_until then z.recover_until = z.recover_until + leap_ms end
  if before > z.leaps_from + MINUTE_MS then
    z.leapt_before, z.leap_before = z.leapt, z.leap
    z.leaps_from, z.leap = before, 0
  end
  z.leapt, z.leap = z.now, z.leap + leap_ms
  if not is_bounded and before < z.opens and z.opens <= z.now then z.hold_until = max(z.hold_until, z.now + DOUBT_MS) end
end

-- Moves the zone's clock to `now`.
local function advance(now)
  local before = z.now
  z.now = now
  if leap_ms > 0 then note_leap(before) end
  advance_window()
  if now - before > PAUSE_MS and z.live > 0 then
    if now - before > LONG_PAUSE_MS then
      z.seen_all = (heard(z.seen_all) + 1) * HEARD
      call('DEL', KEYS[3])
      z.due_base = now - z.paused
    else
      z.paused = z.paused + now - before
    end
  end
  if z.told > 0 and z.told_until <= now then
    z.told, z.told_until, z.told_next = z.told_next, z.told_next > 0 and now + warning_ms(z.told_next) or 0, 0
  end
end

-- A holder of the front who did not claim until the appointment is not present any more.
local function end_missed_appointments()
  local limit = (z.now - z.paused - z.due_base) * POLL_SCALE
  if z.appointed == 0 or limit <= 0 then return end
  local late = call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. int(limit), 'LIMIT', 0, 1000)
  if #late == 0 then return end
  local ended = {}
  for i = 1, #late do
    local seq = tonumber(late[i])
    local s = by_index[segment_of(seq)]
    if s and s.known then
      local bit = seq % SEGMENT
      if bit < s.front and call('SETBIT', s.here_key, bit, 0) == 1 then
        set_present(s, s.present - 1)
      end
      ended[#ended + 1] = late[i]
    elseif seq < z.base * SEGMENT then
      ended[#ended + 1] = late[i]
    end
  end
  if #ended > 0 then call('ZREM', KEYS[3], unpack(ended)) end
end

-- When slots become free. The slot with `j` slots before it becomes free when the entry one whole window of entries back
-- has left the sub-window and the minute.
local slots = {}
local sub_seen, minute_seen = { back = 0, at = 0 }, { back = 0, at = 0 }

-- The instant of the entry that has `back` entries before it. `seen` remembers where the last one was found.
local function entry_ms(back, from, seen)
  if back >= seen.back then from = max(from, seen.at) end
  seen.back, seen.at = back, seek(from, function(_, total) return total <= back end)
  return (read_record(seen.at))
end

local function slot_ms(j)
  if slots[j] then return slots[j] end
  local at, cap = max(z.now, z.hold_until, z.opens), admit_per_sub_window()
  local back = z.total + j - cap
  if back >= z.total then
    at = max(at, slot_ms(j - cap) + sub_window_ms() + 1)
  elseif back >= z.sub_before then
    at = max(at, free_at(entry_ms(back, z.sub_from, sub_seen), sub_window_ms()))
  end
  back = z.total + j - z.n
  if back >= z.total then
    at = max(at, slot_ms(j - z.n) + MINUTE_MS + 1)
  elseif back >= z.minute_before then
    at = max(at, free_at(entry_ms(back, z.minute_from, minute_seen), MINUTE_MS))
  end
  slots[j] = at
  return at
end

-- When the holder whose slot becomes free in `wait` ms should ask again.
local function ask_again_in(wait)
  local lead = max(z.lateness, 0)
  local last_step = max(LAST_STEP_MS, lead + LEAST_POLL_MS)
  local period = near_period_ms()
  if wait > period + last_step then return period end
  local aim = wait
  if wait > 2 * last_step then aim = wait - last_step end
  return min(max(max(aim - lead, 0), LEAST_POLL_MS), period)
end

-- What `entry` keeps of a ticket that enters now.
local function stamp_of_now() return pack('>I6I4I2', z.now, unix_s(), z.ttl) end

-- Verdicts, 21 bytes each: the kind, then its data.
local function gone_verdict() return '\0' .. string.rep('\0', 20) end
local function entered_verdict(at, unix, life) return pack('>I1I6I4I2', 1, at, unix, life) .. string.rep('\0', 8) end
local function waiting_verdict(rank, present_ahead, poll_in, slot_in)
  return pack('>I1I6I6I4i4', 2, rank, present_ahead, poll_in, slot_in)
end

-- The score of an appointment in `due`: the claim is expected after `period`, and the holder was asked to come in
-- `poll_in`; 0 if a beat makes the appointment, without an answer to the holder.
local function due_score(poll_in, period)
  local due = z.now + 2 * period + 2 * GRACE_MS - z.paused - z.due_base
  return int(due * POLL_SCALE + poll_in)
end

-- The verdicts of waiting tickets, from {seq, live ahead, present ahead} in the order of the line. Gives the tickets of
-- the front their appointments. They keep them also while many present tickets are ahead: later beats make none.
local function positions_of(tickets)
  local verdicts, made, cancelled = {}, {}, {}
  local front, has_room = front_limit(), room()
  for i = 1, #tickets do
    local seq, ahead, present_ahead = tickets[i][1], tickets[i][2], tickets[i][3]
    local poll_in, slot_in = z.period, -1
    local near = present_ahead < front
    if is_auto() and near then
      if present_ahead < has_room then
        slot_in = slot_ms(present_ahead) - z.now
        poll_in = ask_again_in(slot_in)
      else
        poll_in = present_ahead < has_room + NEXT_IN * z.max_active and min(FULL_POLL_MS, near_period_ms()) or near_period_ms()
      end
    end
    if is_auto() and (near or seq % SEGMENT < by_index[segment_of(seq)].front) then
      made[#made + 1] = due_score(poll_in, poll_in)
      made[#made + 1] = int(seq)
      z.appointed = max(z.appointed, seq + 1)
    else
      cancelled[#cancelled + 1] = int(seq)
    end
    verdicts[i] = waiting_verdict(1 + ahead, present_ahead, poll_in, slot_in)
  end
  if #cancelled > 0 then call('ZREM', KEYS[3], unpack(cancelled)) end
  if #made > 0 then call('ZADD', KEYS[3], unpack(made)) end
  return verdicts
end

-- The state may be older than what the servers saw last. A new epoch begins behind all numbers that may have been given
-- out, and nobody is admitted until the servers have given back what they remember. Two processes may do this for the same
-- state, at both sides of a partition: they choose epochs apart, and first numbers in one of 4 segments. `above` is an epoch and a number to
-- stay above. `blind_since` is then the last instant of which the state knows everything.
local blind_since
-- A random number of a process and an instant. Nearby instants give spots that are far apart.
local function spot_of(run) return (run + wall) % SPOTS * SPREAD % SPOTS end
local function begin_epoch(now, rev_known, next_known, above)
  local epoch, next = above and max(z.epoch, above[1]) or z.epoch, above and max(z.next, above[2]) or z.next
  local limit = (segment_of(next + SEGMENT - 1) + 1) * SEGMENT
  past = string.sub(pack('>i8i8i8i8', z.epoch, rev_known, next_known, limit) .. past, 1, PAST)
  local own = floor(spot_of(z.run) / 256)
  z.epoch, z.start = epoch + 1 + own % 65536, limit + own
  z.next = z.start
  z.hold_until, z.recover_until = now + z.period + 1000, now + z.idle * 1000
  blind_since = blind_since or z.now
end

-- People may be inside of whom nothing is known. In the next minute, those who are active show themselves.
local function begin_blind()
  if z.max_active == 0 then return end
  z.unseen, z.unseen_until, z.unseen_told = z.max_active, z.now + BLIND_MS, 0
end

-- The number of this process, and that of its time as a primary; nil if it is known to have held the state at the last call. Whoever becomes
-- a primary again keeps the first number, and Redis gives it a new one of the second kind: meanwhile another process may have gone on.
local function unknown_run()
  local text = redis.pcall('GET', KEYS[5])
  -- A value of another type says nothing, and is replaced.
  local is_own = type(text) == 'string' and string.sub(text, 1, #own_mark) == own_mark
  mark = is_own and string.sub(text, #own_mark + 2) or nil
  late_since = mark and tonumber(mark)
  if mark then return nil end
  local function number(section, name)
    return tonumber(string.sub(string.match(call('INFO', section), name .. ':(%x+)'), 1, 12), 16)
  end
  return number('server', 'run_id'), number('replication', 'master_replid')
end

-- Nobody knows which servers made decisions before a loss.
local function note_unknown() call('HSET', KEYS[8], ANYBODY, '0 ' .. int(z.now) .. ' ' .. RETIRED) end

-- Creates a zone with the policy from ARGV[at] on. If the zone may have been there before, it begins as after a loss.
local POLICY = { 'mode', 'n', 'subs', 'period', 'idle', 'ttl', 'failure', 'visit_idle', 'max_active', 'opens_at', 'draw' }

local function create(epoch, at, is_new)
  for i = 1, #FIELDS do z[FIELDS[i]] = 0 end
  for i = 1, #POLICY do z[POLICY[i]] = tonumber(ARGV[at + i - 1]) end
  local time = call('TIME')
  local lo, hi = tonumber(ARGV[3]), tonumber(ARGV[4])
  wall = time[1] * 1000 + floor(time[2] / 1000)
  z.now = hi > 0 and lo or wall
  z.offset = wall - z.now
  z.opens = opening()
  z.due_base, z.epoch = z.now, epoch or tonumber(time[1])
  if not is_new then
    local spot = spot_of(unknown_run() or 0)
    z.epoch = z.epoch + 1 + floor(spot / 64)
    z.floor = AFTER_LOSS + spot
    z.base, z.start, z.next = segment_of(z.floor), z.floor, z.floor
    z.hold_until, z.recover_until = z.now + z.period + 1000, z.now + z.idle * 1000
    blind_since = 0
    begin_blind()
  end
  z.born = z.epoch
  call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[8])
  if not is_new then note_unknown() end
end

-- Whether a ticket of `epoch` belongs to this line, and whether a state that was lost gave out its number. Nil if the state
-- knows no such epoch.
local function is_of_line(epoch, seq)
  -- A deal that was lost is made again, with the same numbers in another epoch.
  if seq >= z.drawn_from and seq < z.drawn_end then return true, z.now < z.recover_until end
  if epoch == z.epoch then return seq < z.next, false end
  for at = 1, #past, 32 do
    local of, rev, known, limit = unpack_struct('>i8i8i8i8', past, at)
    -- Of a line that no revision is known of, this state has no numbers below `known`.
    if of == epoch and rev ~= PROVED then return seq < limit and (rev > 0 or seq >= known), seq >= known end
    if of == epoch and seq >= known and seq < limit then return true, true end
  end
  return nil, false
end

-- Whether servers may still have to say what they remember of a lost state.
local function is_recovering() return z.now < z.hold_until or (z.presumed_at > 0 and z.now < z.recover_until) end

-- When people whose period was `period` have had time to ask again.
local function back_at(period) return z.now + 2 * period + 5000 end

-- Notes which process has the state, and since when as a primary. If it is another one than before, it was restarted or took over, and the
-- last writes of that process may be lost: they are presumed in the same step, because the call may be refused after it. A list that is
-- missing is not begun by this note.
local function check_process(now, run, reign, is_other, has_list)
  if run ~= z.run or is_other then
    z.run = run
    if is_other then
      begin_epoch(now, z.rev, z.next)
      advance(now)
      presume(blind_since)
      blind_since = nil
    end
    call('SET', KEYS[1], header())
  end
  if not has_list or call('EXISTS', KEYS[4]) == 1 then call('HSET', KEYS[4], 'reign', int(reign)) end
  set_mark('')
end

-- Notes since when calls have been late.
local function note_late()
  local now_is = late_since and int(late_since) or ''
  if not is_bounded or now_is == (mark or '') then return end
  set_mark(now_is)
end

-- The part of the state that is missing, though the rest says that it is there; nil if the state is whole. It costs two
-- commands. Bitmaps of ages, and appointments, may be missing: nobody loses a place or enters by that.
local function missing_log()
  local records = z.records - z.first
  local last = call('GETRANGE', KEYS[2], max(records - 1, 0) * 12, records == 0 and 0 or -1)
  if #last ~= min(records, 1) * 12 then return KEYS[2] end
end

-- The entries of passed segments that were freed, as far as they must be there still.
local function add_kept(freed, parts)
  for index, ends in string.gmatch(call('HGET', KEYS[4], 'kept') or '', '(%d+) (%d+)') do
    local s = freed[tonumber(index)]
    if s and tonumber(ends) > z.now then parts[#parts + 1] = s.entry_key end
  end
end

-- Whether entries end with one that a script may have written: of an instant that is not far ahead. A text never does.
local function ends_with_entry(entry_key)
  local last = call('GETRANGE', entry_key, -12, -1)
  if #last < 12 then return false end
  local at = unpack_struct('>I6', last)
  return at > 0 and at < z.now + DAY_MS
end

-- What is wrong with the bitmap of who waits, or the entries, of a segment: a value that no script has written. Nil if both are as the
-- list says. It costs two commands.
local function spoiled_part(s)
  if not s.known then return nil end
  if call('BITCOUNT', s.live_key) ~= s.live then return s.live_key end
  if s.stamped > 0 and s.index >= z.base and not ends_with_entry(s.entry_key) then return s.entry_key end
end

local function missing_part(has_list)
  local log = missing_log()
  if log then return log end
  local parts, freed = {}, {}
  if has_list then parts[1] = KEYS[4] end
  for i = 1, #segments do
    local s = segments[i]
    if s.live > 0 then parts[#parts + 1] = s.live_key end
    if s.present > 0 then parts[#parts + 1] = s.here_key end
    if s.stamped > 0 and s.index >= z.base then parts[#parts + 1] = s.entry_key end
    -- A freed segment has nobody who waits and no entries. What it knows of who does not come back ends after a while.
    if s.ended > 0 and s.index >= z.base and s.live + s.stamped > 0 then parts[#parts + 1] = s.lost_key end
    if s.live == 0 and (s.stamped == 0 or s.index < z.base) then freed[s.index] = s end
    -- A script that marks who is inside, or who left, would begin it anew, and those who are inside would count no more.
    if s.has_visits then parts[#parts + 1] = s.in_key end
  end
  if next(freed) then add_kept(freed, parts) end
  if #parts == 0 or call('EXISTS', unpack(parts)) == #parts then return nil end
  for i = 1, #parts do
    if call('EXISTS', parts[i]) == 0 then return parts[i] end
  end
end

-- Begins a call on an existing zone. A script that decides, or says who waits, has `refuses`, which may return an error before anything is
-- written. A script that says who is gone `looks_closely` first. Returns the index of the script's first own argument, or nil and an error.
local function begin(refuses, looks_closely)
  local raw = call('GET', KEYS[1])
  if not raw then return nil, redis.error_reply('WEIR_NONE there is no such zone') end
  local newer = read_header(raw)
  if newer then return nil, redis.error_reply(newer) end
  local epoch, rev = tonumber(ARGV[1]), tonumber(ARGV[2])
  if epoch > z.epoch or (epoch == z.epoch and rev > z.rev) then
    return nil, redis.error_reply('WEIR_LOST the state is older than what a server has seen of it')
  end
  -- Every ticket of this epoch is in a segment of the list, unless the base has moved past it.
  local has_list = z.live + z.inside > 0 or z.next > max(z.start, z.base * SEGMENT)
  local run, reign = unknown_run()
  local is_other = run and z.run ~= 0 and (run ~= z.run or (call('HGET', KEYS[4], 'reign') or int(reign)) ~= int(reign))
  local function torn(part, how) return redis.error_reply('WEIR_TORN ' .. int(z.epoch) .. ' ' .. part .. how) end
  -- What is presumed becomes a part of the log.
  local part = is_other and missing_log()
  if part then return nil, torn(part, ' is missing') end
  local now = set_clock(is_other)
  if run then check_process(now, run, reign, is_other, has_list) end
  note_late()
  local from = read_segments()
  part = missing_part(has_list)
  if part then return nil, torn(part, ' is missing') end
  for i = 1, looks_closely and #segments or 0 do
    part = spoiled_part(segments[i])
    if part then return nil, torn(part, ' was changed') end
  end
  -- A state that lacks what this server remembers would decide otherwise.
  if refuses and epoch > 0 and epoch < z.epoch then
    return nil, redis.error_reply('WEIR_OTHER another epoch has begun than this server knows')
  end
  local fault = refuses and refuses(from)
  if fault then return nil, redis.error_reply(fault) end
  z.rev = z.rev + 1
  local since = blind_since
  advance(now)
  if since then presume(since) end
  blind_since = nil
  return from
end

-- Ends a call: writes the changes, and returns the header and the records that the server does not have.
local function finish(...)
  save_segments()
  trim_log()
  local kept = header()
  call('SET', KEYS[1], kept)
  local from, log = max(tonumber(ARGV[5]), z.first), ''
  if from < z.records then log = call('GETRANGE', KEYS[2], (from - z.first) * 12, -1) end
  return { kept, int(from), log, ... }
end
