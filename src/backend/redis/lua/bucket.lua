-- Buckets: what a key owes, in units of which a microsecond pays `mul` and a permit is `unit`. Stored as text: the
-- microsecond at which all is paid, in 16 digits; the quota it was written under, ":mul/unit/burst"; "+n" units that
-- are left for the next microsecond; "#n" after n resets.

-- What is owed now, how often the key was reset, and whether that must be written although nothing is charged.
local function owed(key, text, now, mul, tag, capacity, horizon)
  if not text then return 0, 0, false end
  local paid, rest = tonumber(sub(text, 1, 16)), sub(text, 17)
  local debt, resets = nil, 0
  if rest == tag and paid then
    debt = (paid - now) * mul
  else
    local m, u, b, more, n = match(rest, '^:(%d+)/(%d+)/(%d+)%+?(%d*)#?(%d*)$')
    if not (paid and m) then foreign(key) end
    more, resets = tonumber(more) or 0, tonumber(n) or 0
    debt = (paid - now) * m + more
    if debt > 0 and ':' .. m .. '/' .. u .. '/' .. b ~= tag then
      -- Another quota's: so many permits are owed as were, and a bucket cannot be emptier than empty. What is owed
      -- beyond that are turns that were given, whose instants stay.
      u = tonumber(u)
      local turns = max(0, debt - u * b)
      debt = debt - turns
      local permits, unit = floor(debt / u), tonumber(match(tag, '/(%d+)/'))
      debt = min(capacity, permits * unit + ceil((debt - permits * u) * unit / u)) + ceil(turns / m) * mul
    end
  end
  if debt <= 0 then return 0, resets, false end
  -- No charge of ours is paid so far ahead, unless the server's clock went back.
  if debt > capacity and debt > tonumber(horizon) then return capacity, resets, true end
  return debt, resets, false
end

local function save_debt(key, now, debt, mul, tag, resets)
  local more = debt % mul
  if more > 0 then tag = tag .. fmt('+%.0f', more) end
  if resets > 0 then tag = tag .. fmt('#%.0f', resets) end
  call('SET', key, stamped(now + (debt - more) / mul, tag), 'PX', ttl(debt / mul))
end
