-- Sliding logs: a sorted set, scored by microsecond, of what was admitted: all that had been by then, in 16 digits, and
-- what that charge cost: "0000000000000013:2". One entry is one charge.

local function entry(key, text)
  local sum, cost = match(text, '^(%d+):(%d+)$')
  if not sum then foreign(key) end
  return tonumber(sum), tonumber(cost)
end

-- The last stamp, all that was admitted, and what of it counts no more.
local function logged(key, now, window)
  local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if #last == 0 then return 0, 0, 0 end
  local total, stamp = entry(key, last[1]), tonumber(last[2])
  if stamp > now + 4 * window then
    -- No entry of ours lies so far ahead, unless the server's clock went back: all count from now.
    for _, text in ipairs(call('ZRANGE', key, 0, -1)) do call('ZADD', key, fmt('%.0f', now), text) end
    call('PEXPIRE', key, ttl(window))
    stamp = now
  end
  local live = call('ZRANGEBYSCORE', key, fmt('(%.0f', now - window), '+inf', 'LIMIT', 0, 1)
  if #live == 0 then return stamp, total, total end
  local sum, cost = entry(key, live[1])
  return stamp, total, sum - cost
end

-- The stamp by which so much had been admitted.
local function stamp_of(key, least)
  local low, high = 0, call('ZCARD', key) - 1
  while low < high do
    local middle = floor((low + high) / 2)
    if entry(key, call('ZRANGE', key, middle, middle)[1]) >= least then high = middle else low = middle + 1 end
  end
  return tonumber(call('ZRANGE', key, low, low, 'WITHSCORES')[2])
end
