-- Lists who waits: see `Zone::census` in the crate `admission`.
--
-- KEYS  see zone.lua; all segments in which anybody waits
-- ARGV  after zone.lua's: none
-- Returns zone.lua's, then: until when the list may lack people, because the state was lost (0 for a list that is whole); 1 if servers
--         may still have to say what they remember; the segments in which anybody waits, and for each its bits of who waits, and of who
--         is present; the segments of whom some do not come back, and for each its bits of those
-- Cost  about 30 us, and 30 us more for each segment; the reply has 16 KB for each, and 8 KB where some do not come back.

local from, fault = begin(function()
  local live = 0
  for i = 1, #segments do live = live + segments[i].live end
  if live ~= z.live then return 'WEIR_KEYS ' .. int(z.next) .. ' a segment is missing in which people wait' end
end, true)
if fault then return fault end
local names, live, here, ended_names, ended = {}, {}, {}, {}, {}
for i = 1, #segments do
  local s = segments[i]
  touch(s)
  if s.live > 0 then
    names[#names + 1] = int(s.index)
    live[#names] = call('GET', s.live_key) or ''
    here[#names] = call('GET', s.here_key) or ''
  end
  if s.known and s.ended > 0 then
    ended_names[#ended_names + 1] = int(s.index)
    ended[#ended + 1] = ended_of(s)
  end
end
return finish(int(z.now < z.recover_until and z.recover_until or 0), is_recovering() and 1 or 0, names, live, here,
  ended_names, ended)
