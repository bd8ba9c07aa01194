-- Decides asks for tokens. Each ask is about the bucket of one key under one limit.
--
-- The rules are those of the crate `limiter` (`bucket.rs`); random traces compare the two. All numbers are integers, and
-- the checks of a limit keep them below 2^53. A full bucket is not stored: its key expires when the bucket is full, and a
-- missing key is a full bucket.
--
-- KEYS  one per ask, all in one slot. A key may appear several times; its asks are decided in order.
--         string: for each bandwidth the instant of the last update (us), what was spent by then (parts), and the parts
--         of a token; 8 bytes each
-- ARGV  1 now       microseconds since the Unix epoch, for tests that hold the clock; 0 for the clock of Redis
--       2 limits    how many follow; each has:
--         the number of bandwidths, grace (us; how long a full bucket is still stored), then for each bandwidth:
--           kind (0 greedy, 1 by interval, 2 by interval from the epoch), capacity (tokens), capacity (parts),
--           parts of a token, parts that come back per step, length of a step (us), parts that a new key lacks
--       then for each key: number of its limit (from 1), cost (tokens; 0 only reads, -1 resets the key), how many more
--         tokens to take if they are left
-- Returns six numbers per ask: 0 allowed, 1 not now, 2 never; the bandwidth that the rest is about (from 1); tokens left
--       before more were taken; us until this ask is allowed; us until the bandwidth is full; how many more were taken
-- Errors  only those of Redis, if a key has another type; nothing is written then.
-- Cost  about 3 us for one ask, and 1.5 us for each further key. Loops run over the arguments only.

local call, floor, ceil, max, min = redis.call, math.floor, math.ceil, math.max, math.min
local pack, unpack_struct = struct.pack, struct.unpack

local GREEDY, UNALIGNED, ALIGNED = 0, 1, 2
local ALLOWED, DENIED, NEVER = 0, 1, 2
local LEVEL, LEVEL_BYTES = '>I8I8I8', 24

local now = tonumber(ARGV[1])
local held = now > 0
if not held then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local limits, arg = {}, 2
for i = 1, tonumber(ARGV[2]) do
  local limit = { n = tonumber(ARGV[arg + 1]), grace = tonumber(ARGV[arg + 2]) }
  arg = arg + 2
  for j = 1, limit.n do
    limit[j] = {
      kind = tonumber(ARGV[arg + 1]), capacity = tonumber(ARGV[arg + 2]), full = tonumber(ARGV[arg + 3]),
      token = tonumber(ARGV[arg + 4]), gain = tonumber(ARGV[arg + 5]), period = tonumber(ARGV[arg + 6]),
      spent_at_first = tonumber(ARGV[arg + 7]),
    }
    arg = arg + 7
  end
  limits[i] = limit
end

-- Buckets as they are stored: { n, at 1, spent 1, token 1, at 2, ... }; n = 0 for a missing one.
local buckets, written = {}, {}

local function bucket_of(key)
  local bucket = buckets[key]
  if bucket then return bucket end
  bucket = { n = 0 }
  local raw = call('GET', key)
  if raw and #raw % LEVEL_BYTES == 0 then
    bucket.n = #raw / LEVEL_BYTES
    for i = 0, bucket.n - 1 do
      bucket[3 * i + 1], bucket[3 * i + 2], bucket[3 * i + 3] = unpack_struct(LEVEL, raw, i * LEVEL_BYTES + 1)
    end
  end
  buckets[key] = bucket
  return bucket
end

-- Converts a level that may have been stored under other bandwidths.
local function converted(b, at, spent, token)
  if token ~= b.token then spent = min(ceil(spent / token), b.capacity) * b.token end
  if b.kind == ALIGNED then at = at - at % b.period end
  return at, min(spent, b.full)
end

-- Refills a level up to now. Also returns whether the clock went back.
local function advance(b, at, spent)
  if now < at then
    if b.kind ~= ALIGNED then return now, spent, true end
    if at - now <= b.period then return at, spent, false end
    return now - now % b.period, spent, true
  end
  local passed = now - at
  if b.kind == GREEDY then return now, max(spent - passed * b.gain, 0), false end
  if passed >= b.period then
    spent = max(spent - floor(passed / b.period) * b.gain, 0)
    at = now - passed % b.period
  end
  if spent == 0 and b.kind == UNALIGNED then at = now end
  return at, spent, false
end

local function full_at(b, at, spent) return at + ceil(spent / b.gain) * b.period end

local function forget_at(limit, bucket)
  local last = 0
  for j = 1, min(limit.n, bucket.n) do
    local at, spent = converted(limit[j], bucket[3 * j - 2], bucket[3 * j - 1], bucket[3 * j])
    last = max(last, full_at(limit[j], at, spent))
  end
  return last + limit.grace
end

-- The levels of the current ask.
local at, spent = {}, {}

local function read_levels(limit, bucket)
  local went_back, is_new = false, false
  local renewed = limit.grace > 0 and now >= forget_at(limit, bucket)
  for j = 1, limit.n do
    local b = limit[j]
    if j <= bucket.n and not renewed then
      local back
      at[j], spent[j] = converted(b, bucket[3 * j - 2], bucket[3 * j - 1], bucket[3 * j])
      at[j], spent[j], back = advance(b, at[j], spent[j])
      went_back = went_back or back
    else
      at[j], spent[j] = b.kind == ALIGNED and now - now % b.period or now, b.spent_at_first
      is_new = is_new or b.spent_at_first > 0
    end
  end
  return went_back, is_new
end

local function left(b, j) return floor((b.full - spent[j]) / b.token) end

local function decide(limit, cost)
  local longest, which = 0, 1
  for j = 1, limit.n do
    local b = limit[j]
    if cost > b.capacity then return NEVER, j, 0 end
    local lacking = spent[j] + cost * b.token - b.full
    if cost > 0 and lacking > 0 then
      local wait = max(at[j] + ceil(lacking / b.gain) * b.period - now, 1)
      if wait > longest then longest, which = wait, j end
    end
  end
  if longest > 0 then return DENIED, which, longest end
  for j = 1, limit.n do
    spent[j] = spent[j] + cost * limit[j].token
    if left(limit[j], j) < left(limit[which], which) then which = j end
  end
  return ALLOWED, which, 0
end

local answers, n = {}, 0

for i = 1, #KEYS do
  local key = KEYS[i]
  local limit, cost, more = limits[tonumber(ARGV[arg + 1])], tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])
  arg = arg + 3
  local bucket = bucket_of(key)
  if cost < 0 then
    bucket.n, written[key], cost = 0, limit, 0
  end
  local keep, is_new = read_levels(limit, bucket)
  local code, which, wait = decide(limit, cost)
  if code == DENIED then keep = keep or is_new end
  answers[n + 1], answers[n + 2], answers[n + 3], answers[n + 4] = code, which, left(limit[which], which), wait
  answers[n + 5] = max(full_at(limit[which], at[which], spent[which]) - now, 0)
  local taken = 0
  if code == ALLOWED and cost > 0 then
    taken = more
    for j = 1, limit.n do taken = min(taken, left(limit[j], j)) end
    for j = 1, limit.n do spent[j] = spent[j] + taken * limit[j].token end
    keep = true
  end
  answers[n + 6] = taken
  n = n + 6
  if keep then
    for j = 1, limit.n do
      bucket[3 * j - 2], bucket[3 * j - 1], bucket[3 * j] = at[j], spent[j], limit[j].token
    end
    bucket.n, written[key] = limit.n, limit
  end
end

for key, limit in pairs(written) do
  local bucket = buckets[key]
  if bucket.n == 0 then
    call('DEL', key)
  else
    local levels = {}
    for j = 1, bucket.n do
      levels[j] = pack(LEVEL, bucket[3 * j - 2], bucket[3 * j - 1], bucket[3 * j])
    end
    local value = table.concat(levels)
    if held then
      call('SET', key, value)
    else
      local left_ms = max(ceil((forget_at(limit, bucket) - now) / 1000), 1)
      call('SET', key, value, 'PX', string.format('%.0f', left_ms))
    end
  end
end

return answers
