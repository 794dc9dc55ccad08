-- Own: limit, window, cell. Undone by the stamp and all that was admitted.
return {
  takes = 6,
  load = function(key, now, limit, window, cell)
    window, cell = window + 0, cell + 0
    local stamps, sums, before, total, healed = ring(key, call('GET', key), now, window, cell)
    if healed then save_ring(key, now, window, stamps, sums, before) end
    return {
      limit = limit + 0, window = window, cell = cell, stamps = stamps, sums = sums, before = before, total = total,
    }
  end,
  try = function(s, now, cost)
    local stamps, sums, spent = s.stamps, s.sums, s.total - s.before
    local present = now - now % s.cell + s.cell
    local last = stamps[#stamps]
    local whole, wait = last and last + s.window - now or 0, 0
    if spent + cost <= s.limit then
      s.total = s.total + cost
      if not last or present > last then
        last = present
        stamps[#stamps + 1] = present
      end
      sums[#stamps] = s.total
      return true, spent, whole, 0, last, s.total
    end
    for i, stamp in ipairs(stamps) do
      if s.total - sums[i] + cost <= s.limit then
        wait = stamp + s.window - now
        break
      end
    end
    return false, spent, whole, wait, 0, 0
  end,
  save = function(key, now, s) save_ring(key, now, s.window, s.stamps, s.sums, s.before) end,
}
