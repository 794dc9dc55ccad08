-- Own: limit, window. Undone as a ring is.
return {
  takes = 6,
  load = function(key, now, limit, window)
    local s = {key = key, limit = tonumber(limit), window = tonumber(window), made = {}}
    s.stamp, s.total, s.before = logged(key, now, s.window)
    return s
  end,
  try = function(s, now, cost)
    local spent = s.total - s.before
    local whole = spent > 0 and s.stamp + s.window - now or 0
    if spent + cost <= s.limit then
      s.total, s.stamp = s.total + cost, max(s.stamp, now)
      if cost > 0 then s.made[#s.made + 1] = fmt('%016.0f:%.0f', s.total, cost) end
      return true, spent, whole, 0, s.stamp, s.total
    end
    local wait = 0
    if cost <= s.limit then
      -- What is to be made in this call is not there yet.
      local is_there = #s.made == 0
      wait = (is_there and stamp_of(s.key, s.total + cost - s.limit) or now) + s.window - now
    end
    return false, spent, whole, wait, 0, 0
  end,
  save = function(key, now, s)
    for _, text in ipairs(s.made) do call('ZADD', key, fmt('%.0f', s.stamp), text) end
    call('ZREMRANGEBYSCORE', key, '-inf', fmt('%.0f', now - s.window))
    call('PEXPIRE', key, ttl(s.stamp + s.window - now))
  end,
}
