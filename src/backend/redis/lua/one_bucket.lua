-- One charge on one bucket. KEYS: the bucket. ARGV: time or "", units, mul, tag, unit, capacity, horizon, longest wait
-- in units. Answers: now, what was owed before, resets, whether it is charged.
local key, units, mul, tag = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local capacity, unit = tonumber(ARGV[6]), tonumber(ARGV[5])
local text, now = call('GET', key), time(ARGV[1])
local debt, resets, healed =
  owed(key, text, now, mul, tag, unit, capacity, tonumber(ARGV[7]))
if debt + units > capacity + ARGV[8] then
  if healed then save_debt(key, now, debt, mul, tag, resets) end
  return {now, debt, resets, 0}
end
-- Who departs later is spaced from that whole microsecond on.
if debt > 0 and unit == capacity then debt = ceil(debt / mul) * mul end
save_debt(key, now, debt + units, mul, tag, resets)
return {now, debt, resets, 1}
