local call, sub, match, fmt = redis.call, string.sub, string.match, string.format
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

-- What is stored under a key of ours and is not ours ends the script, before it has written anything.
local function foreign(key)
  error('FOREIGN ' .. key)
end

-- The server's time in microseconds, read once; tests give their own.
local function time(given)
  if given ~= '' then return tonumber(given) end
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end

-- A time to live that ends no earlier than so many microseconds from now: the server's clock for it is older by less
-- than a millisecond.
local function ttl(us)
  return max(0, ceil(us / 1000)) + 1
end

-- A microsecond in 16 digits, and what follows it.
local function stamped(us, rest)
  return fmt('%016d%s', us, rest)
end
