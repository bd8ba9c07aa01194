-- Reads the register of zones. Also creates it, or writes it back after a loss.
--
-- KEYS  1 the register, see register.lua
-- ARGV  1 the revision that the server has (0 for none); 2 when that register was created (0 if not known); 3 the mode: ''
--       read; 'all' read all zones whatever the revision; 'first' create the register with the zones that follow, if there
--       never was one; 'again' write back the zones that follow, which are those of the server's revision, if the register
--       is older; then zone and definition alternately, and the routes in the same way, under "#routes"
-- Returns {revision, milliseconds since 1970 by this node's clock, then zone and definition alternately, with the routes and "#born", if that is not what the server has};
--       {-1} if the register is older than the server's and the mode is not 'again'; nothing is changed then.
-- Cost  about 2 us if nothing changed; otherwise 0.2 us per zone.

local has, has_born, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local put = false
if lost(has, has_born) then
  if wanted ~= 'again' then return { '-1' } end
  redis.call('DEL', KEYS[1])
  put = true
  redis.call('HSET', KEYS[1], '#from', string.format('%.0f', has))
  born = has_born
  set_rev(has + AGAIN)
elseif wanted == 'first' and not kept then
  put = true
  set_rev(first_rev())
end
if put then
  for i = 4, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
local time = redis.call('TIME')
local reply = { string.format('%.0f', rev), string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)) }
if rev ~= has or (born > 0 and born ~= has_born) or wanted == 'all' then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if all[i] ~= '#rev' and all[i] ~= '#from' and all[i] ~= '#format' then
      reply[#reply + 1], reply[#reply + 2] = all[i], all[i + 1]
    end
  end
end
return reply
