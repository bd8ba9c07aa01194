-- Binds an entry to the first address that asks, so that its ticket begins no visit elsewhere.
--
-- KEYS  1 hash of a segment: epoch:number -> address. It expires when no pass of its entries is valid any more
-- ARGV  1 epoch:number; 2 the address; 3 the longest life of a pass, in milliseconds
-- Returns {the address that the entry is bound to}
-- Cost  about 3 us

local bound = redis.pcall('HGET', KEYS[1], ARGV[1])
-- What is of another type is as good as lost.
if type(bound) == 'table' then redis.call('DEL', KEYS[1]) end
if type(bound) ~= 'string' then
  bound = ARGV[2]
  redis.call('HSET', KEYS[1], ARGV[1], bound)
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return { bound }
