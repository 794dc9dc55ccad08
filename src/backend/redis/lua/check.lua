-- Any number of charges: all are made, or none. KEYS: one for each charge. ARGV: "1" to charge or "0" to look, time or
-- "", and for each charge eight: kind, cost, longest wait in microseconds, and five that are the kind's own.
-- Answers: now, and for each charge six: whether it fits, what was spent before it, microseconds until all is back,
-- microseconds until it would fit, and two that its undo is known by.

local kinds = {}

-- Own: mul, tag, unit, capacity, horizon. Its cost is in units. Undone by the resets.
kinds.b = {
  load = function(key, now, mul, tag, unit, capacity, horizon)
    local s = {mul = tonumber(mul), tag = tag, capacity = tonumber(capacity), is_paced = unit == capacity, made = 0}
    local healed
    s.spent, s.resets, healed =
      owed(key, call('GET', key), now, s.mul, tag, tonumber(unit), s.capacity, tonumber(horizon))
    if healed then save_debt(key, now, s.spent, s.mul, tag, s.resets) end
    return s
  end,
  try = function(s, now, cost, wait)
    local spent, lacking = s.spent, s.spent + cost - s.capacity
    local fits = cost <= s.capacity and lacking <= wait * s.mul
    local departs = max(0, ceil(lacking / s.mul))
    if fits then s.spent, s.made = spent + cost, s.made + 1 end
    return fits, spent, 0, departs, 0, s.resets
  end,
  save = function(key, now, s) save_debt(key, now, s.spent, s.mul, s.tag, s.resets) end,
}

-- Own: limit, length, phase. Undone by the start and the resets.
kinds.w = {
  load = function(key, now, limit, length, phase)
    local s = {limit = tonumber(limit), length = length}
    local healed
    s.start, s.spent, s.resets, healed = under_way(key, call('GET', key), now, length, phase)
    if healed then save_window(key, now, s.start, length, s.spent, s.resets) end
    return s
  end,
  try = function(s, now, cost)
    local spent, left = s.spent, ends(s.start, s.length) - max(now, s.start)
    local fits = spent + cost <= s.limit
    if fits then s.spent = spent + cost end
    return fits, spent, left, left, s.start, s.resets
  end,
  save = function(key, now, s) save_window(key, now, s.start, s.length, s.spent, s.resets) end,
}

-- Own: limit, window, cell. Undone by the stamp and all that was admitted.
kinds.c = {
  load = function(key, now, limit, window, cell)
    local s = {limit = tonumber(limit), window = tonumber(window), cell = tonumber(cell)}
    local healed
    s.stamps, s.sums, s.before, s.total, healed = ring(key, call('GET', key), now, s.window, s.cell)
    if healed then save_ring(key, now, s.window, s.stamps, s.sums, s.before) end
    return s
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

-- Own: limit, window. Undone as a ring is.
kinds.l = {
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

local now = time(ARGV[2])
local answer, states, all_fit, charged, departs = {now}, {}, true, {}, 0
for i, key in ipairs(KEYS) do
  local at = 8 * i - 5
  local kind, cost, wait = kinds[ARGV[at]], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local state = states[key]
  if not state then
    state = kind.load(key, now, ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7])
    state.kind, states[key] = kind, state
  end
  local fits, spent, whole, lacks, mark, other = kind.try(state, now, cost, wait)
  -- Nothing asked is nothing denied.
  if cost == 0 then fits = true end
  all_fit = all_fit and fits
  if fits and state.mul then departs = max(departs, lacks) end
  if cost > 0 then charged[key] = state end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = fits and 1 or 0, spent, whole
  answer[n + 4], answer[n + 5], answer[n + 6] = lacks, mark, other
end
if all_fit and ARGV[1] == '1' then
  for i, key in ipairs(KEYS) do
    local state = charged[key]
    -- Who departs later for another charge's sake is spaced from then on.
    if state and state.is_paced and state.made == 1 and departs * state.mul > answer[6 * i - 3] then
      state.spent = departs * state.mul + state.capacity
      answer[6 * i - 3] = departs * state.mul
    end
  end
  for key, state in pairs(charged) do state.kind.save(key, now, state) end
end
return answer
