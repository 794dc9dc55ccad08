-- Sliding windows: a ring of cells. Stored as text: all that was admitted before the first cell, then for each cell its
-- last microsecond and all that was admitted by then: "12;0001790000100000=13,0001790000200000=15,".

-- The cells that still count, what was admitted before them and in all, and whether that must be written as it is.
local function ring(key, text, now, window, cell)
  local stamps, sums, before, healed = {}, {}, 0, false
  if not text then return stamps, sums, before, before, healed end
  local find = string.find
  local _, at, base = find(text, '^(%d+);')
  if not base then foreign(key) end
  before = tonumber(base)
  local total = before
  while at < #text do
    local _, last, stamp, sum = find(text, '^(%d+)=(%d+),', at + 1)
    if not last then foreign(key) end
    at, stamp, total = last, tonumber(stamp), tonumber(sum)
    if now - stamp >= window then
      before = total
    else
      -- None of ours lies so far ahead, unless the server's clock went back.
      if stamp > now + 4 * window + cell then stamp, healed = now - now % cell + cell, true end
      if stamps[#stamps] == stamp then
        sums[#sums] = total
      else
        stamps[#stamps + 1], sums[#sums + 1] = stamp, total
      end
    end
  end
  return stamps, sums, before, total, healed
end

local function save_ring(key, now, window, stamps, sums, before)
  local cells = {fmt('%.0f;', before)}
  for i, stamp in ipairs(stamps) do cells[i + 1] = stamped(stamp, fmt('=%.0f,', sums[i])) end
  call('SET', key, table.concat(cells), 'PX', ttl(stamps[#stamps] + window - now))
end
