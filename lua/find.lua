-- Finds the tickets of people who joined with a key before: `joined_before` of the store's port. It does not begin with zone.lua, because it
-- changes nothing.
--
-- KEYS  a string for each key of a join, as in join.lua
-- Returns {their tickets (16 bytes each), zeros for a key that nobody joined with, or that is forgotten}
-- Cost  about 2 us, and 0.2 us for each key.

local kept = redis.call('MGET', unpack(KEYS))
for i = 1, #KEYS do
  if not kept[i] or #kept[i] ~= 16 then kept[i] = string.rep('\0', 16) end
end
return { table.concat(kept) }
