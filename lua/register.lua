-- The first part of the scripts of the register of zones.
--
-- The register is one hash: zone -> its definition as text, "#routes" -> the routes that operators set, "#rev" -> its
-- revision, and, if it was written back, "#from" -> the revision that was written back. A revision is the minute in
-- which the register was created, counted from 2026, times 2^28, plus the number of its changes. So a register that was
-- created again after a loss has a larger revision than the lost one. The older register is right, because only a
-- server that knows no register creates one. A register that is written back continues at a much higher revision than
-- any server can have seen. Registers of old versions started at 0.

local LIFE, AGAIN, FIRST_MINUTE = 268435456, 1024, 29453760

local revs = redis.pcall('HMGET', KEYS[1], '#rev', '#from')
if revs.err then
  -- A value of another type is no register.
  redis.call('UNLINK', KEYS[1])
  revs = { false, false }
end
local kept = revs[1]
local rev, written_back = tonumber(kept or '0'), tonumber(revs[2] or '0')

-- Whether the register lost something that a server with revision `has` knows. The server that wrote it back may have known
-- less: some changes fewer, which is less than the distance of two registers that were written back. If the register was
-- changed since, that change counts.
local function lost(has)
  local born, of = math.floor(rev / LIFE), math.floor(has / LIFE)
  local knew_less = written_back > 0 and rev == written_back + AGAIN and has > written_back and
    has < written_back + AGAIN / 2
  return has > 0 and (not kept or born > of or (born == of and (rev < has or knew_less)))
end

-- The first revision of a register that is created now.
local function first_rev()
  return (math.floor(redis.call('TIME')[1] / 60) - FIRST_MINUTE) * LIFE + 1
end

local function set_rev(to)
  rev = to
  redis.call('HSET', KEYS[1], '#rev', string.format('%.0f', to))
end
