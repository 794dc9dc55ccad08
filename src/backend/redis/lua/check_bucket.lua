-- Own: mul, tag, capacity, horizon. Its cost is in units. Undone by the resets. A burst of one is the end of its tag.
return {
  takes = 7,
  load = function(key, now, mul, tag, capacity, horizon)
    mul, capacity = mul + 0, capacity + 0
    local spent, resets, healed = owed(key, call('GET', key), now, mul, tag, capacity, horizon)
    if healed then save_debt(key, now, spent, mul, tag, resets) end
    local is_paced = sub(tag, -2) == '/1'
    return {mul = mul, tag = tag, capacity = capacity, spent = spent, resets = resets, is_paced = is_paced, made = 0}
  end,
  try = function(s, now, cost, wait)
    local spent, lacking = s.spent, s.spent + cost - s.capacity
    local fits = cost <= s.capacity and lacking <= wait * s.mul
    local departs = lacking > 0 and ceil(lacking / s.mul) or 0
    if fits then s.spent, s.made = spent + cost, s.made + 1 end
    return fits, spent, 0, departs, 0, s.resets
  end,
  save = function(key, now, s) save_debt(key, now, s.spent, s.mul, s.tag, s.resets) end,
}
