-- Buckets: what a key owes, in units of which a microsecond pays `mul` and a permit is `unit`. Stored as text: the
-- microsecond at which all is paid, in 16 digits; where `mul` is above 1, the units that are left for the next one, in
-- as many digits as `mul` has; the quota it was written under, ":mul/unit/burst"; "#n" after n resets.

-- What is owed now, how often the key was reset, and whether that must be written although nothing is charged.
local function owed(key, text, now, mul, tag, capacity, horizon)
  if not text then return 0, 0, false end
  local paid, more, m, u, b, n =
    match(text, '^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)(%d*):(%d+)/(%d+)/(%d+)#?(%d*)$')
  if not paid then foreign(key) end
  local debt, resets = (paid - now) * m + (tonumber(more) or 0), tonumber(n) or 0
  if debt <= 0 then return 0, resets, false end
  if ':' .. m .. '/' .. u .. '/' .. b ~= tag then
    -- Another quota's: so many permits are owed as were, and a bucket cannot be emptier than empty. What is owed
    -- beyond that are turns that were given, whose instants stay.
    local turns = max(0, debt - u * b)
    debt = debt - turns
    local permits, unit = floor(debt / u), tonumber(match(tag, '/(%d+)/'))
    debt = min(capacity, permits * unit + ceil((debt - permits * u) * unit / u)) + ceil(turns / m) * mul
  end
  -- No charge of ours is paid so far ahead, unless the server's clock went back.
  if debt > capacity and debt > tonumber(horizon) then return capacity, resets, true end
  return debt, resets, false
end

-- When so much is paid, as it is stored.
local function paid_at(us, more, mul, tag)
  if mul > 1 then tag = fmt('%0' .. #fmt('%d', mul) .. 'd', more) .. tag end
  return stamped(us, tag)
end

local function save_debt(key, now, debt, mul, tag, resets)
  local more = debt % mul
  local text = paid_at(now + (debt - more) / mul, more, mul, tag)
  if resets > 0 then text = text .. fmt('#%d', resets) end
  call('SET', key, text, 'PX', ttl(debt / mul))
end
