-- The zones that the store keeps, as they are defined.
--
-- KEYS  1 the register, see register.lua
-- ARGV  1 the revision the server has (0 for none); 2 what else is wanted: '' nothing, 'all' all zones whatever the
--       revision, 'first' the zones that follow where there never were any, 'again' all those that follow, which a
--       register of the server's revision had, where what is there is less; then zone and definition alternately
-- Returns {revision, then zone and definition alternately where that revision is not the server's}. Where something is
--       lost that the server had, and ARGV[2] is not 'again', -1 comes back, and nothing was changed.
-- Cost  about 2 us where nothing changed; 0.2 us a zone otherwise.

local has, wanted = tonumber(ARGV[1]), ARGV[2]
local put = false
if lost(has) then
  if wanted ~= 'again' then return { '-1' } end
  redis.call('DEL', KEYS[1])
  put = true
  set_rev(has + AGAIN)
elseif wanted == 'first' and not kept then
  put = true
  set_rev(begun())
end
if put then
  for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
local reply = { string.format('%.0f', rev) }
if rev ~= has or wanted == 'all' then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) ~= '#' then
      reply[#reply + 1], reply[#reply + 2] = all[i], all[i + 1]
    end
  end
end
return reply
