-- The last part of every script of a zone: ends the function of the rules that zone.lua began.
end)()
