-- Sliding windows: a ring of cells. Stored as numbers of 16 digits: the last microsecond of the first cell that counts
-- and of the last one, all that was admitted, all that was before the first cell; then for each cell but the last its
-- last microsecond and all that was admitted by then. No cell has the number zero.

-- The cells that still count, what was admitted before them and in all, and whether that must be written as it is.
local function ring(key, text, now, window, cell)
  local stamps, sums, before, healed = {}, {}, 0, false
  if not text then return stamps, sums, before, before, healed end
  if #text < 64 or #text % 32 ~= 0 or not match(text, '^%d+$') then foreign(key) end
  local last, total = tonumber(sub(text, 17, 32)), tonumber(sub(text, 33, 48))
  before = tonumber(sub(text, 49, 64))
  local function counts(stamp, sum)
    if now - stamp >= window then
      before = sum
      return
    end
    -- None of ours lies so far ahead, unless the server's clock went back.
    if stamp > now + 4 * window + cell then stamp, healed = now - now % cell + cell, true end
    if stamps[#stamps] ~= stamp then stamps[#stamps + 1] = stamp end
    sums[#stamps] = sum
  end
  for at = 65, #text, 32 do
    counts(tonumber(sub(text, at, at + 15)), tonumber(sub(text, at + 16, at + 31)))
  end
  if last > 0 then counts(last, total) end
  return stamps, sums, before, total, healed
end

local function ring_text(stamps, sums, before)
  local n = #stamps
  local cells = {fmt('%016d%016d%016d%016d', stamps[1] or 0, stamps[n] or 0, sums[n] or before, before)}
  for i = 1, n - 1 do cells[i + 1] = fmt('%016d%016d', stamps[i], sums[i]) end
  return table.concat(cells)
end

local function save_ring(key, now, window, stamps, sums, before)
  call('SET', key, ring_text(stamps, sums, before), 'PX', ttl(stamps[#stamps] + window - now))
end
