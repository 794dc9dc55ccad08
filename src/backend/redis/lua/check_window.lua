-- Own: limit, length, phase. Undone by the start and the resets.
return {
  takes = 6,
  load = function(key, now, limit, length, phase)
    local start, spent, resets, healed = under_way(key, call('GET', key), now, length, phase)
    if healed then save_window(key, now, start, length, spent, resets) end
    return {limit = limit + 0, length = length, start = start, spent = spent, resets = resets}
  end,
  try = function(s, now, cost)
    local spent, left = s.spent, ends(s.start, s.length) - max(now, s.start)
    local fits = spent + cost <= s.limit
    if fits then s.spent = spent + cost end
    return fits, spent, left, left, s.start, s.resets
  end,
  save = function(key, now, s) save_window(key, now, s.start, s.length, s.spent, s.resets) end,
}
