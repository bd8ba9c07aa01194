-- Deals a line anew by a draw: see `Zone::deal` and `Lots` in the crate `admission`.
--
-- KEYS  see zone.lua; all segments in which anybody waits, those that are dealt, those to which later people move, and the one of the
--       number behind all of them
-- ARGV  after zone.lua's: the draw; the first number that was not on the list, and the number that it becomes; the first number that
--       is dealt, and the first one behind all of them; how many people are dealt; 1 to deal also if people left since the census; and
--       for each segment that is dealt its bits of who waits, of who is present, and of who does not come back
-- Returns zone.lua's, then 1 if the line is dealt, now or before; 0 if this is not the draw that is due, or the state was lost and is not
--         whole yet; 2 if people left since the census
-- Cost  about 60 us for each segment that is dealt or moved.

local at = 8 + tonumber(ARGV[7])
local draw, frozen, later, first, last, people, anyway = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]),
  tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), ARGV[at + 6] == '1'
local bits_at = at + 7

local from, fault = begin(function()
  local live = 0
  for i = 1, #segments do live = live + segments[i].live end
  if live ~= z.live and z.draw == draw and z.drawn ~= draw then
    return 'WEIR_KEYS ' .. int(z.next) .. ' a segment is missing in which people wait'
  end
end, true)
if fault then return fault end
if z.drawn == draw then return finish(1) end
if z.draw ~= draw or is_recovering() then return finish(0) end

-- A bitmap without the bits before this one.
local function without_first(key, bits)
  call('BITOP', 'OR', KEYS[6], key)
  local whole, rest = floor(bits / 8), bits % 8
  if whole > 0 then call('SETRANGE', KEYS[6], 0, string.rep('\0', whole)) end
  if rest > 0 then call('BITFIELD', KEYS[6], 'SET', 'u' .. rest, whole * 8, 0) end
  return KEYS[6]
end

local before, moves, left = {}, {}, 0
for i = 1, #segments do
  local s = segments[i]
  if s.index < segment_of(first) then
    touch(s)
    before[#before + 1] = s
    left = left + s.live
    if s.index >= segment_of(frozen) and s.live + s.ended > 0 then
      local below = s.index == segment_of(frozen) and frozen % SEGMENT or 0
      left = left - s.live + (below > 0 and call('BITCOUNT', s.live_key, 0, below - 1, 'BIT') or 0)
      moves[#moves + 1] = { from = s, below = below, to = by_index[s.index + segment_of(later) - segment_of(frozen)] }
    end
  end
end
if left ~= people and not anyway then return finish(2) end

-- A segment of the line as it is dealt. If the deal was lost, it may have people already.
local function begin_dealt(s)
  if s.known then touch(s) else start_segment(s) end
end
local function add(key, bits) call('BITOP', 'OR', key, key, bits) end
-- Whoever is known to have entered, or to be gone, by a deal that was lost, does not wait again.
local function drop_gone(s)
  if call('EXISTS', s.lost_key) == 1 then
    gather_gone(s)
    without(s.live_key, KEYS[6])
    without(s.here_key, KEYS[6])
  end
  if s.stamped == 0 then return end
  local entries = call('GET', s.entry_key) or ''
  local bit = 0
  while true do
    local found = string.find(entries, '[^%z]', bit * 12 + 1)
    if not found then break end
    bit = floor((found - 1) / 12)
    call('SETBIT', s.live_key, bit, 0)
    call('SETBIT', s.here_key, bit, 0)
    bit = bit + 1
  end
end
-- Who does not come back has no place by the new number, either, though the state be lost that knows it.
local function add_ended(s, bits)
  if not string.find(bits, '[^%z]') then return end
  call('DEL', KEYS[7])
  call('SETRANGE', KEYS[7], floor(SEGMENT / 8), bits)
  call('BITOP', 'OR', s.lost_key, s.lost_key, KEYS[7])
  s.ended, s.changed = z.rev, true
end
local function count_people(s)
  drop_gone(s)
  for plane = 1, 4 do call('BITOP', 'AND', s.ages[plane], s.ages[plane], s.live_key) end
  set_live(s, call('BITCOUNT', s.live_key))
  set_present(s, call('BITCOUNT', s.here_key))
end
for i = 1, #ARGV - bits_at, 3 do
  local s = by_index[segment_of(first) + (i - 1) / 3]
  begin_dealt(s)
  call('SET', KEYS[6], ARGV[bits_at + i - 1])
  add(s.live_key, KEYS[6])
  call('SET', KEYS[6], ARGV[bits_at + i])
  add(s.here_key, KEYS[6])
  add_ended(s, ARGV[bits_at + i + 1])
  count_people(s)
end
for _, move in ipairs(moves) do
  local s, to = move.from, move.to
  begin_dealt(to)
  -- Whoever is there already, by a deal that was lost, has an age there.
  for _, key in ipairs({ s.here_key, unpack(s.ages) }) do without(key, to.live_key) end
  for part = 1, 6 do
    local own = { s.live_key, s.here_key, s.ages[1], s.ages[2], s.ages[3], s.ages[4] }
    local its = { to.live_key, to.here_key, to.ages[1], to.ages[2], to.ages[3], to.ages[4] }
    add(its[part], without_first(own[part], move.below))
  end
  if s.ended > 0 then
    call('SET', KEYS[7], ended_of(s))
    add_ended(to, call('GET', without_first(KEYS[7], move.below)) or '')
  end
  count_people(to)
end
-- So that the list of segments is there, also if nobody waits.
local tail = by_index[segment_of(last)]
if not tail.known then start_segment(tail) end

-- Nobody waits any more where the numbers were. Entries are known for as long as passes last.
local names = {}
for _, s in ipairs(before) do
  if s.known then
    set_live(s, 0)
    set_present(s, 0)
    call('UNLINK', s.live_key, s.here_key, s.lost_key, unpack(s.ages))
    if s.stamped > 0 then keep_entries(s) end
    s.changed = false
    names[#names + 1] = int(s.index)
  end
end
if #names > 0 then call('HDEL', KEYS[4], unpack(names)) end
call('HDEL', KEYS[4], 'marks')
call('DEL', KEYS[3], KEYS[6], KEYS[7])
z.appointed, z.due_base = 0, z.now - z.paused
z.base, z.next = segment_of(first), max(z.next, last)
z.drawn, z.drawn_from, z.drawn_end = draw, first, last
return finish(1)
