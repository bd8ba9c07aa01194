-- What the scripts of the zones' register begin with.
--
-- The register is one hash: zone -> its definition as text, and "#rev" -> its revision. Fields that begin with # are no
-- zones. A revision is the minute in which the register began, counted from 2026, times 2^28, plus how often it changed. So
-- one that was begun anew is told from the one whose place it took: the older one is right, since only who knows nothing
-- begins one. One that was put again goes on far behind all that a server may have seen. Registers of before began at 0.

local LIFE, AGAIN, FIRST_MINUTE = 268435456, 1024, 29453760

local kept = redis.call('HGET', KEYS[1], '#rev')
local rev = tonumber(kept or '0')

-- Whether a register of revision `has` was more than what is there.
local function lost(has)
  local born, of = math.floor(rev / LIFE), math.floor(has / LIFE)
  return has > 0 and (not kept or born > of or (born == of and rev < has))
end

-- The revision of a register that begins now.
local function begun()
  return (math.floor(redis.call('TIME')[1] / 60) - FIRST_MINUTE) * LIFE + 1
end

local function set_rev(to)
  rev = to
  redis.call('HSET', KEYS[1], '#rev', string.format('%.0f', to))
end
