-- Keeps what a server learnt about the patience of a zone's people, and returns what was kept before. The servers judge it. No
-- script of the line reads it, so its loss costs nothing but the knowledge.
--
-- KEYS  1 string: what is kept
-- ARGV  1 what replaces it, or empty to leave it; 2 how long it is kept then, in milliseconds
-- Returns {what was kept; empty if nothing was}
-- Cost  about 3 us

-- A value of another type is an error to read, and is replaced like any other.
local kept = redis.pcall('GET', KEYS[1])
if type(kept) ~= 'string' then kept = '' end
if ARGV[1] ~= '' then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return { kept }
