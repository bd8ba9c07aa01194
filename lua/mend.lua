-- Begins a new epoch of a zone whose state lacks a part, or whose scripts fail. What is whole stays. What is missing comes
-- back from the servers, which give back what they remember of an epoch that ended, and from the tickets.
--
-- KEYS  see zone.lua; no segments there. Then further keys of the zone. Of these, `bound` is a hash, and the others are strings
-- ARGV  1-7 as in zone.lua, with 0 0 for epoch and rev, and n = 0; then the epoch that was found so, 0 for any: if a later one
--       has begun, only values of a wrong type are dropped; and the next number that the server knows of that epoch; then the
--       segments whose keys were passed
-- Returns zone.lua's
-- Errors  WEIR_NEWER  as in zone.lua: nothing is dropped
--         WEIR_NONE  the header cannot be read: it was dropped, and the state is lost altogether
-- Cost  about 40 us, and 1 us for each further key.

local is_read, newer = pcall(read_header, redis.pcall('GET', KEYS[1]))
if is_read and newer then return redis.error_reply(newer) end

-- Drops what is of another type than `command` reads.
local function drop_other(key, command, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then call('UNLINK', key) end
end
for _, i in ipairs({ 1, 2, 6, 7 }) do drop_other(KEYS[i], 'GETRANGE', 0, 0) end
drop_other(KEYS[3], 'ZSCORE', '0')
for _, i in ipairs({ 4, 8 }) do drop_other(KEYS[i], 'HGET', '0') end
for i = FIXED + 1, #KEYS do
  if string.sub(KEYS[i], -6) == ':bound' then drop_other(KEYS[i], 'HGET', '0') else drop_other(KEYS[i], 'GETRANGE', 0, 0) end
end

local all = call('HGETALL', KEYS[8])
for i = 2, #all, 2 do
  if not string.match(all[i], '^%d+ %d+') then call('HDEL', KEYS[8], all[i - 1]) end
end

local raw = call('GET', KEYS[1])
if not raw then return redis.error_reply('WEIR_NONE there is no such zone') end
local function is_header()
  if not pcall(read_header, raw) then return false end
  for i = 1, #FIELDS do
    local name, number = FIELDS[i], z[FIELDS[i]]
    if abs(number) > 9007199254740992 or number < 0 and name ~= 'offset' and name ~= 'lateness' then return false end
  end
  return z.epoch >= 1 and z.epoch < 4294967296 and z.n >= 1 and z.subs >= 1 and z.period >= 1 and z.idle >= 1 and
    z.mode <= CLOSED and z.records >= z.first and z.total >= z.total_first and z.next >= z.start and
    segment_of(z.next) >= z.base
end
if not is_header() then
  call('UNLINK', KEYS[1])
  return redis.error_reply('WEIR_NONE there is no header that can be read')
end
local found, next_known = tonumber(ARGV[8]), tonumber(ARGV[9])
local ends = found == 0 or found == z.epoch
local is_whole = true
-- A bitmap that no script has written would let people wait who do not, and entries that none has written are no entries.
for i = ends and 10 or #ARGV + 1, #ARGV do
  local at = FIXED + (i - 10) * PER_SEGMENT
  local waits, _, _, _, _, _, _, stamped = read_row(call('HGET', KEYS[4], ARGV[i]))
  if waits and call('BITCOUNT', KEYS[at + 1]) ~= tonumber(waits) then call('UNLINK', KEYS[at + 1]) end
  if waits and (tonumber(stamped) or 0) > 0 and not ends_with_entry(KEYS[at + 7]) then call('UNLINK', KEYS[at + 7]) end
end
if ends then
  is_whole = missing_log() == nil
  if not is_whole then
    call('UNLINK', KEYS[2])
    z.first, z.total_first = z.records, z.total
    z.minute_from, z.minute_before, z.sub_from, z.sub_before = z.first, z.total, z.first, z.total
  end
  call('UNLINK', KEYS[3], KEYS[4], KEYS[6], KEYS[7])
  -- They show themselves when they are active.
  local inside = most_inside()
  if is_blind() then
    begin_blind()
  elseif z.max_active > 0 then
    z.unseen, z.unseen_until, z.unseen_told = inside, z.now + visit_ms(), 1
  end
  z.live, z.present, z.appointed, z.due_base = 0, 0, 0, z.now - z.paused
  -- Nothing is on the list any more, and nothing has to be.
  z.start = z.next
  z.inside, z.inside_from, z.inside_end = 0, 0, 0
  call('SET', KEYS[1], header())
end
local _, fault = begin()
if fault then return fault end
if ends then
  -- What the state knew of earlier epochs may be missing, too.
  local epochs = {}
  for at = 1, #past, 32 do
    local epoch, rev, _, limit = unpack_struct('>i8i8i8i8', past, at)
    epochs[#epochs + 1] = limit > 0 and rev ~= PROVED and pack('>i8i8i8i8', epoch, 0, 0, limit) or string.sub(past, at, at + 31)
  end
  past = table.concat(epochs)
  begin_epoch(z.now, 0, 0, { z.epoch, next_known })
  if not is_whole then
    presume(0)
  elseif z.presumed_at == 0 then
    -- The log says which slots are taken. But the servers have to say who entered, as after any loss.
    z.presumed_at, z.presumed = z.now, 0
  end
end
return finish()
