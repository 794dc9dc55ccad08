-- What the fast part of it does not decide: another quota, a reset, a wait, a refusal, what is not ours.
local debt, resets, healed = owed(key, text, now, mul, tag, capacity, argv[5])
if debt + units > capacity + (argv[6] or 0) then
  if healed then save_debt(key, now, debt, mul, tag, resets) end
  return {now, debt, resets, 0}
end
-- Who departs later is spaced from that whole microsecond on. A burst of one is the end of its tag.
if debt > 0 and sub(tag, -2) == '/1' then debt = ceil(debt / mul) * mul end
save_debt(key, now, debt + units, mul, tag, resets)
return {now, debt, resets, 1}
