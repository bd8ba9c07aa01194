-- The first part of the scripts of the register of zones.
--
-- The register is one hash: zone -> its definition as text, and "#rev" -> its revision. A field that begins with # is not a
-- zone. A revision is the minute in which the register was created, counted from 2026, times 2^28, plus the number of its
-- changes. So a register that was created again after a loss has a larger revision than the lost one. The older register
-- is right, because only a server that knows no register creates one. A register that is written back continues at a much
-- higher revision than any server can have seen. Registers of old versions started at 0.

local LIFE, AGAIN, FIRST_MINUTE = 268435456, 1024, 29453760

local kept = redis.call('HGET', KEYS[1], '#rev')
local rev = tonumber(kept or '0')

-- Whether the register lost something that a server with revision `has` knows.
local function lost(has)
  local born, of = math.floor(rev / LIFE), math.floor(has / LIFE)
  return has > 0 and (not kept or born > of or (born == of and rev < has))
end

-- The first revision of a register that is created now.
local function first_rev()
  return (math.floor(redis.call('TIME')[1] / 60) - FIRST_MINUTE) * LIFE + 1
end

local function set_rev(to)
  rev = to
  redis.call('HSET', KEYS[1], '#rev', string.format('%.0f', to))
end
