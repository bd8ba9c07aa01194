-- Keeps the record of a draw, and returns what is kept. A record begins with its stage, one digit: a later stage replaces an earlier one,
-- and of two of one stage the first one stays. So all servers go on from the same one.
--
-- KEYS  1 string: what is kept
-- ARGV  1 the record, or empty to read; 2 how long it is kept from now on, in milliseconds
-- Returns {what is kept; empty if nothing is}
-- Cost  about 3 us, and 10 us for each 100 KB.

-- A value of another type is an error to read, and is replaced like any other.
local kept = redis.pcall('GET', KEYS[1])
if type(kept) ~= 'string' then kept = '' end
if ARGV[1] ~= '' then
  if string.sub(ARGV[1], 1, 1) > string.sub(kept, 1, 1) then kept = ARGV[1] end
  redis.call('SET', KEYS[1], kept, 'PX', ARGV[2])
end
return { kept }
