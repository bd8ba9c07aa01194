-- The first part of the scripts of the register of zones.
--
-- The register is one hash: zone -> its definition as text, "#routes" -> the routes that operators set, "#rev" -> its
-- revision, "#born" -> when it was created, in microseconds since 1970, and, if it was written back, "#from" -> the revision
-- that was written back, "#again" -> the one that this led to, and "#since" -> "revision field field ...": the fields that were
-- changed since, as of this revision. If that was lost and written back unchanged, "#from" stays: it
-- says which changes the register has. A revision is the minute in which the register was created, counted from 2026, times 2^28, plus the
-- number of its changes. So a register that was created again after a loss has a larger revision than the lost one, unless
-- that was in the same minute: then "#born" tells them apart. The older register is right, because only a server that knows
-- no register creates one. A register that is written back continues at a much higher revision than any server can have
-- seen, and was born when the lost one was. Registers of old versions started at 0, and have no "#born".
--
-- "#format" is the version of this layout. Registers of old versions have none, which is 1. A later version writes a larger one only if
-- earlier scripts must not use the register: they refuse it by WEIR_NEWER, and change nothing. They skip fields with "#" that they do
-- not know.

local LIFE, AGAIN, FIRST_MINUTE, FORMAT = 268435456, 1024, 29453760, 1
-- The longest list of fields that were changed since, in bytes.
local SINCE = 16384

local about = redis.pcall('HMGET', KEYS[1], '#rev', '#from', '#born', '#format', '#again', '#since')
if about.err then
  -- A value of another type is no register.
  redis.call('UNLINK', KEYS[1])
  about = {}
end
local format = tonumber(about[4] or '') or 1
if format > FORMAT then
  return redis.error_reply('WEIR_NEWER the register of zones has format ' .. format .. ', and this version knows ' .. FORMAT)
end
-- Without a revision that is a number, there is no register.
local rev = tonumber(about[1] or '')
local kept = rev ~= nil
rev = rev or 0
local written_back, born = tonumber(about[2] or '') or 0, tonumber(about[3] or '') or 0
-- Earlier versions wrote no "#again".
local again = tonumber(about[5] or '') or written_back + AGAIN
local is_unchanged = written_back > 0 and rev == again
-- The fields that were changed since, each with a space before it; nil if nobody knows: earlier versions did not note them.
local noted_at, since = string.match(about[6] or '', '^(%d+)(.*)$')
if is_unchanged then since = '' elseif written_back == 0 or tonumber(noted_at or '') ~= rev then since = nil end

-- Whether the register lost something that a server knows: it has revision `has` of the register that was created at
-- `has_born`, or at 0 if it does not know when. The server that wrote the register back may have known less: some changes
-- fewer, which is less than the distance of two registers that were written back. Then the fields count that were changed since, and for
-- the others what the server knows. A register that is written back goes on by a multiple of AGAIN, so the rest says how many changes it has.
-- Also returns by how much its revision is above the server's, if the two are of one life, and whether it was written back by one that
-- knew less.
local function lost(has, has_born)
  local life, of = math.floor(rev / LIFE), math.floor(has / LIFE)
  if life == of and born > 0 and has_born > 0 then life, of = born, has_born end
  local more = (has - written_back) % AGAIN
  local knew_less = life == of and since and has > written_back and has < again and more > 0 and more < AGAIN / 2
  local is_lost = not kept or life > of or (life == of and rev < has) or knew_less
  return has > 0 and is_lost, life == of and math.max(rev - has, 0) or 0, knew_less
end

-- Notes that a field is changed by the next revision.
local function note_since(field)
  if not since then return end
  if not string.find(since .. ' ', ' ' .. field .. ' ', 1, true) then since = since .. ' ' .. field end
  if #since <= SINCE then redis.call('HSET', KEYS[1], '#since', string.format('%.0f', rev + 1) .. since) end
end

-- The first revision of a register that is created now.
local function first_rev()
  local now = redis.call('TIME')
  born = now[1] * 1000000 + now[2]
  return (math.floor(now[1] / 60) - FIRST_MINUTE) * LIFE + 1
end

-- Writes the revision, the format, and when the register was created if that is known, in one effect.
local function set_rev(to)
  rev = to
  local text = string.format('%.0f', to)
  if born > 0 then
    redis.call('HSET', KEYS[1], '#rev', text, '#format', FORMAT, '#born', string.format('%.0f', born))
  else
    redis.call('HSET', KEYS[1], '#rev', text, '#format', FORMAT)
  end
end
