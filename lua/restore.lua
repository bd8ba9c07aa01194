-- Merges what a server remembers of a zone into a state that was lost, in whole or in part. The memories of several
-- servers may come in any order: gone tickets are united, entries are merged by instant, and a ticket waits if one server
-- saw it waiting and none saw it gone.
--
-- KEYS  see zone.lua; the segments of the memory
-- ARGV  1-6 as in zone.lua, with 0 0 for epoch and rev; then the server's memory: epoch, rev, next, first segment;
--       the log of the last minute (10 bytes per record: instant 6, count 4), entries (18 bytes each: number 6,
--       instant 6, unix seconds 4, life 2); the policy as in policy.lua; then for each segment passed its live bits and its
--       gone bits, each of which may be empty
-- Returns zone.lua's, then 1 if the memory was merged, 0 if the state had it already, -1 if it came too late and the line
--         goes on without it
-- Cost  about 60 us per segment, and 1 us for each record of the log and each entry.

local w_epoch, w_rev, w_next, w_base, log, out, policy_at
do
  local at = 7 + tonumber(ARGV[6])
  w_epoch, w_rev, w_next, w_base = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  log, out, policy_at = ARGV[at + 4], ARGV[at + 5], at + 6
end

if call('EXISTS', KEYS[1]) == 0 then
  create(w_epoch, policy_at)
  z.next, z.base = w_next, w_base
  begin_epoch(z.now, 0, 0)
  call('SET', KEYS[1], header())
end
local from, fault = begin()
if fault then return fault end

-- The revision, the next number and the limit that the state knew of a past epoch.
local function find_past(epoch)
  for at = 1, #past, 32 do
    local of, rev, known, limit = unpack_struct('>i8i8i8i8', past, at)
    if of == epoch then return rev, known, limit end
  end
end

if w_epoch == z.epoch and w_rev > z.rev then
  begin_epoch(z.now, z.rev, z.next)
elseif w_epoch > z.epoch then
  -- The state has an earlier epoch than the one that the server saw.
  local rev, known = z.rev, z.next
  begin_epoch(z.now, rev, known)
  past = string.sub(pack('>i8i8i8i8', w_epoch, 0, known, z.next) .. past, 1, 8 * 32)
  z.epoch = w_epoch + 1
elseif w_epoch < z.epoch and not find_past(w_epoch) and z.joined == 0 then
  -- A server without a memory created the zone again, and it has given out no number yet.
  z.next = max(z.next, w_next)
  local limit = (segment_of(z.next + SEGMENT - 1) + 1) * SEGMENT
  past = string.sub(pack('>i8i8i8i8', w_epoch, 0, 0, limit) .. past, 1, 8 * 32)
  z.next, z.base = limit, w_base
  z.hold_until, z.recover_until = z.now + z.period + 1000, z.now + z.idle * 1000
end
local rev_known, known, limit = find_past(w_epoch)
if not rev_known then return finish(w_epoch == z.epoch and 0 or -1) end
if w_rev <= rev_known then return finish(0) end
z.base = min(z.base, w_base)

local function without(key, those)
  call('BITOP', 'AND', KEYS[7], key, those)
  call('BITOP', 'XOR', key, key, KEYS[7])
end

for i = 1, #segments do
  local s = segments[i]
  local live, gone_bits = ARGV[policy_at + #POLICY + (i - 1) * 2], ARGV[policy_at + #POLICY + (i - 1) * 2 + 1]
  if not s.known then start_segment(s) else touch(s) end
  if #gone_bits > 0 then
    call('SET', KEYS[6], gone_bits)
    call('BITOP', 'OR', s.lost_key, s.lost_key, KEYS[6])
  end
  -- The state knows better which tickets below `known` there are.
  local skip = max(known - s.index * SEGMENT, 0)
  if #live > 0 and skip < SEGMENT then
    call('SET', KEYS[6], live)
    local whole = floor(skip / 8)
    if whole > 0 then call('SETRANGE', KEYS[6], 0, string.rep('\0', whole)) end
    for bit = whole * 8, skip - 1 do call('SETBIT', KEYS[6], bit, 0) end
    for plane = 1, 4 do without(s.ages[plane], KEYS[6]) end
    call('BITOP', 'OR', s.live_key, s.live_key, KEYS[6])
    call('BITOP', 'OR', s.here_key, s.here_key, KEYS[6])
  end
  for _, key in ipairs({ s.live_key, s.here_key, s.ages[1], s.ages[2], s.ages[3], s.ages[4] }) do
    without(key, s.lost_key)
  end
  set_live(s, call('BITCOUNT', s.live_key))
  set_present(s, call('BITCOUNT', s.here_key))
  call('DEL', KEYS[6], KEYS[7])
end

for at = 1, #out, 18 do
  local seq, entered_at, unix, life = unpack_struct('>I6I6I4I2', out, at)
  local s = by_index[segment_of(seq)]
  if s then call('SETRANGE', s.entry_key, seq % SEGMENT * 12, pack('>I6I4I2', entered_at, unix, life)) end
  z.keep_until = max(z.keep_until, entered_at + life * 1000)
end

-- The log: of two records of one instant, the larger one is newer.
if #log > 0 then
  local counts, instants, before = {}, {}, z.total - z.minute_before
  local last = z.minute_before
  for i = z.minute_from, z.records - 1 do
    local at, total = record(i)
    counts[at], last = total - last, total
    instants[#instants + 1] = at
  end
  for at = 1, #log, 10 do
    local instant, count = unpack_struct('>I6I4', log, at)
    if not counts[instant] then instants[#instants + 1] = instant end
    counts[instant] = max(counts[instant] or 0, count)
  end
  table.sort(instants)
  local lines, total = {}, z.total
  for i = 1, #instants do
    total = total + counts[instants[i]]
    lines[i] = pack('>I6I6', instants[i], total)
  end
  call('SET', KEYS[2], table.concat(lines))
  z.first, z.total_first = z.records, z.total
  z.records, z.entered = z.first + #lines, z.entered + (total - z.total) - before
  z.total = total
  z.minute_from, z.minute_before, z.sub_from, z.sub_before = z.first, z.total_first, z.first, z.total_first
  chunk_from, chunk_to = 0, 0
  slide()
end
return finish(1)
