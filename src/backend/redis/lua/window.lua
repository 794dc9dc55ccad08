-- Fixed windows. Stored as text: the microsecond at which the window began, in 16 digits, its length, how many permits
-- are spent in it, and how often the key was reset: "0001790000000000:60000000:3#0". A month's length is "M".

local DAY = 86400000000

-- The first microsecond of the month that `us` lies in, or of the one so many after it.
local function month(us, later)
  -- Days are counted from 0000-03-01, so that a leap day ends a year.
  local days = floor(us / DAY) + 719468
  local era = floor(days / 146097)
  local of_era = days - era * 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + floor(year / 4) - floor(year / 100))
  local months = (era * 400 + year) * 12 + floor((5 * of_year + 2) / 153) + later
  year = floor(months / 12)
  era = floor(year / 400)
  local in_era = year - era * 400
  local first = floor((153 * (months % 12) + 2) / 5) + in_era * 365 + floor(in_era / 4) - floor(in_era / 100)
  return (first + era * 146097 - 719468) * DAY
end

-- The window that `now` lies in: of those that are the same for all keys, or one that begins now.
local function begins(now, length, phase)
  if length == 'M' then return month(now, 0) end
  if phase == '' then return now end
  return now - (now + phase) % length
end

local function ends(start, length)
  if length == 'M' then return month(start, 1) end
  return start + length
end

-- The window under way: when it began, what is spent in it, resets, and whether it must be written as it is.
local function under_way(key, text, now, length, phase)
  local present = begins(now, length, phase)
  if not text then return present, 0, 0, false end
  local start, own, spent, resets = match(text, '^(%d+):(%w+):(%d+)#(%d+)$')
  if not start then foreign(key) end
  start, spent, resets = tonumber(start), tonumber(spent), tonumber(resets)
  if spent == 0 or ends(start, own) <= now then return present, 0, resets, false end
  -- No window of ours begins so far ahead, unless the server's clock went back.
  if start > now + 4 * (length == 'M' and 31 * DAY or length) then return present, spent, resets, true end
  if phase == '' and length ~= 'M' then
    if ends(start, length) <= now then start = now end
  elseif own ~= length or start < present then
    start = present
  end
  -- Another length's: from here on it ends as one of this length, be anything charged or not.
  return start, spent, resets, own ~= length
end

local function save_window(key, now, start, length, spent, resets)
  local text = stamped(start, fmt(':%s:%.0f#%.0f', length, spent, resets))
  call('SET', key, text, 'PX', ttl(ends(start, length) - now))
end
