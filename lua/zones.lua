-- Reads the register of zones. Also creates it, or writes it back after a loss.
--
-- KEYS  1 the register, see register.lua
-- ARGV  1 the revision that the server has (0 for none); 2 when that register was created (0 if not known); 3 the mode: ''
--       read; 'all' read all zones whatever the revision; 'first' create the register with the zones that follow, if there
--       never was one; 'again' write back the zones that follow, which are those of the server's revision, if the register
--       is older, but not the fields that were changed since an earlier one was written back; then zone and definition
--       alternately, and in the same way the routes, under "#routes", and "#from" if the server has it
-- Returns {revision, milliseconds since 1970 by this node's clock, then zone and definition alternately, with the routes, "#born", and "#from" if nothing changed since, if that is not what the server has};
--       {-1} if the register is older than the server's and the mode is not 'again'; nothing is changed then.
-- Cost  about 2 us if nothing changed; otherwise 0.2 us per zone.

local has, has_born, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local put = false
local is_lost, above, knew_less = lost(has, has_born)
-- The fields that count as the register has them, and their texts.
local fields, texts = {}, {}
if is_lost then
  if wanted ~= 'again' then return { '-1' } end
  for field in string.gmatch(knew_less and since or '', '%S+') do fields[#fields + 1] = field end
  for i = 1, #fields do texts[i] = redis.call('HGET', KEYS[1], fields[i]) end
  redis.call('DEL', KEYS[1])
  put = true
  born = has_born
  -- Above every revision that a server may have seen. The changes that it keeps count, too.
  local changes = #fields > 0 and (rev - written_back) % AGAIN or 0
  set_rev(has + AGAIN * (math.floor(above / AGAIN) + 1) + changes)
  is_unchanged = #fields == 0
  if is_unchanged then again = rev end
  redis.call('HSET', KEYS[1], '#from', string.format('%.0f', has), '#again', string.format('%.0f', again))
elseif wanted == 'first' and not kept then
  put = true
  set_rev(first_rev())
end
if put then
  for i = 4, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
  for i = 1, #fields do
    if texts[i] then redis.call('HSET', KEYS[1], fields[i], texts[i]) else redis.call('HDEL', KEYS[1], fields[i]) end
  end
  if #fields > 0 then redis.call('HSET', KEYS[1], '#since', string.format('%.0f', rev) .. since) end
end
local time = redis.call('TIME')
local reply = { string.format('%.0f', rev), string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)) }
if rev ~= has or (born > 0 and born ~= has_born) or wanted == 'all' then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local is_own = all[i] == '#rev' or all[i] == '#again' or all[i] == '#format' or all[i] == '#since' or
      (all[i] == '#from' and not is_unchanged)
    if not is_own then
      reply[#reply + 1], reply[#reply + 2] = all[i], all[i + 1]
    end
  end
end
return reply
