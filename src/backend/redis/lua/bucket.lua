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
  local is_other = ':' .. m .. '/' .. u .. '/' .. b ~= tag
  if is_other then
    -- Another quota's: so many permits are owed as were, be it more than a burst: else processes of two quotas would
    -- make each other forget. What is owed beyond the other's burst are turns that were given, whose instants stay.
    local turns = max(0, debt - u * b)
    debt = debt - turns
    local permits, unit = floor(debt / u), tonumber(match(tag, '/(%d+)/'))
    debt = permits * unit + ceil((debt - permits * u) * unit / u) + ceil(turns / m) * mul
  end
  -- No charge of ours is paid so far ahead, unless the server's clock went back.
  if not is_other and debt > capacity and debt > tonumber(horizon) then return capacity, resets, true end
  -- From here on it is paid at this quota's rate, be anything charged or not.
  return debt, resets, is_other
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
