-- Takes in which visitors were active, and ends the visits of those who are idle. See `Inside` in the crate `admission`.
--
-- KEYS  see zone.lua; no segments there. Then for each segment with visitors: in, i0, i1, i2, i3, left
--         i0-3  bit planes of the age: generations since the last activity
--         left  holders who left, see leave.lua. Their visits do not count again before `left_until`, when all proofs of them have ended
-- ARGV  after zone.lua's (n = 0): how many segments; then for each of them, four: its number; the revision of `left` that the server
--       has; the offset of the active visitors in the bitmap (bytes), and their bits, which may be empty
-- Returns zone.lua's, then for each segment the revision of `left` (0 for none), and for each its bits, if the server has older ones;
--       and all segments in which anybody is inside or left lately: between two lines they may be a thousand segments apart
-- Cost  about 25 us; 10 us per segment, and 25 us more when a generation ends. 0.2 us for each segment between the first and the last one
--       with visitors.

local rows = {}
local from, fault = begin(function(from)
  for i = 1, tonumber(ARGV[from]) do
    rows[i] = call('HGET', KEYS[4], 'v' .. int(tonumber(ARGV[from + (i - 1) * 4 + 1])))
    local in_key = KEYS[FIXED + (i - 1) * 6 + 1]
    if rows[i] and call('EXISTS', in_key) == 0 then return 'WEIR_TORN ' .. int(z.epoch) .. ' ' .. in_key .. ' is missing' end
  end
end)
if fault then return fault end

local spare, active = KEYS[7], KEYS[6]
local generation = floor(z.now / visit_generation_ms())

-- Notes activity of visitors who did not leave. Returns how many of them were not counted before.
local function note_activity(v, at, bits)
  if #bits == 0 then return 0 end
  call('DEL', active)
  call('SETRANGE', active, at, bits)
  if v.left_until > 0 then
    call('BITOP', 'AND', spare, active, v.left_key)
    call('BITOP', 'XOR', active, active, spare)
  end
  reset_ages(v.ages)
  local before = call('BITCOUNT', v.in_key)
  call('BITOP', 'OR', v.in_key, v.in_key, active)
  local new = call('BITCOUNT', v.in_key) - before
  note_inside(v.index, new)
  return new
end

-- Ends the visits of those in `active`.
local function end_visits(v, count)
  call('BITOP', 'XOR', v.in_key, v.in_key, active)
  reset_ages(v.ages)
  z.inside, z.ended = max(z.inside - count, 0), z.ended + count
end

local function drop(v)
  call('UNLINK', v.in_key, v.left_key, unpack(v.ages))
  call('HDEL', KEYS[4], v.row)
end

-- How many are inside by the bits, for each segment that was passed.
local by_bits = {}
local revs, lefts = {}, {}
for i = 1, tonumber(ARGV[from]) do
  local at, key = from + (i - 1) * 4, FIXED + (i - 1) * 6
  local v = {
    index = tonumber(ARGV[at + 1]), in_key = KEYS[key + 1], left_key = KEYS[key + 6],
    ages = { KEYS[key + 2], KEYS[key + 3], KEYS[key + 4], KEYS[key + 5] },
  }
  v.row = 'v' .. int(v.index)
  local kept = rows[i]
  -- If the list was lost, these may be there still. Of whom they tell is counted as unseen.
  if not kept then call('UNLINK', v.in_key, v.left_key, unpack(v.ages)) end
  local counted_by
  v.turned, v.left_rev, v.left_until, counted_by = read_visits_row(kept)
  if z.max_active == 0 then
    z.inside = max(z.inside - call('BITCOUNT', v.in_key), 0)
    drop(v)
    v.left_rev = 0
  else
    if v.left_until > 0 and v.left_until <= z.now then
      call('UNLINK', v.left_key)
      v.left_rev, v.left_until = 0, 0
    end
    if counted_by ~= z.visit_idle then
      -- Ages count in another unit from now on, and proofs of visits end at another time: everybody counts as just active.
      call('UNLINK', unpack(v.ages))
      v.turned = generation
      if v.left_until > 0 then
        v.left_until = max(v.left_until, z.now + visit_ms())
        call('PEXPIRE', v.left_key, 2 * visit_ms())
      end
    end
    local seen_at, seen = tonumber(ARGV[at + 3]), ARGV[at + 4]
    z.unseen = max(z.unseen - note_activity(v, seen_at, seen), 0)
    -- A report may be late. Whoever was active before a generation ended must not be taken for idle by its end.
    if v.turned < generation and z.now >= z.spare_until then
      local idle = grow_ages(v.in_key, v.ages)
      if idle > 0 then end_visits(v, idle) end
      note_activity(v, seen_at, seen)
    end
    by_bits[v.index] = call('BITCOUNT', v.in_key)
    if v.left_until > 0 or by_bits[v.index] > 0 then
      local row = visits_row(generation, v.left_rev, v.left_until, z.visit_idle)
      if row ~= kept then call('HSET', KEYS[4], v.row, row) end
    elseif kept or #seen > 0 then
      drop(v)
    end
  end
  revs[i], lefts[i] = int(v.left_rev), ''
  if v.left_rev > tonumber(ARGV[at + 2]) then lefts[i] = call('GET', v.left_key) or '' end
end
call('DEL', active, spare)
local visited, inside = {}, 0
for first = z.inside_from, z.inside_end - 1, 1000 do
  local names = {}
  for i = first, min(first + 999, z.inside_end - 1) do names[#names + 1] = 'v' .. int(i) end
  local found = call('HMGET', KEYS[4], unpack(names))
  for i = 1, #found do
    local index = first + i - 1
    if found[i] then
      visited[#visited + 1] = int(index)
      -- Nothing is known in sum unless all segments with visitors were passed.
      inside = inside and by_bits[index] and inside + by_bits[index]
    end
  end
end
-- A header that was set back alone, by a hand or a slot that was half moved, counts others than the bits do.
if inside and inside ~= z.inside then
  z.unseen, z.inside = max(z.unseen - max(inside - z.inside, 0), 0), inside
end
z.inside_from, z.inside_end = tonumber(visited[1] or 0), tonumber(visited[#visited] or -1) + 1
return finish(revs, lefts, visited)
