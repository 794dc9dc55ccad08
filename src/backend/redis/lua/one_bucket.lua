-- One charge on one bucket. KEYS: the bucket. ARGV: units, mul, tag, capacity, horizon; then, unless there is neither,
-- the longest wait in units, and the time or "". Answers: now, what was owed before, resets, whether it is charged; of
-- most calls the first two alone.

-- Most calls: nothing is owed, or under this quota and since no reset, and the charge fits. Functions are made anew in
-- each run, so none are made for it; and arguments are made numbers by what is done with them.
local call, sub = redis.call, string.sub
local key, argv = KEYS[1], ARGV
local units, mul, tag, capacity, given = argv[1] + 0, argv[2] + 0, argv[3], argv[4] + 0, argv[7] or ''
local text, now = call('GET', key), nil
if given == '' then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now = given + 0
end
local paid = text and sub(text, 17) == tag and tonumber(sub(text, 1, 16))
if paid or not text then
  local before = paid and (paid - now) * mul or 0
  if before < 0 then before = 0 end
  local debt = before + units
  if debt <= capacity then
    local rest, more, ms = tag, debt % mul, debt / mul / 1000
    if more > 0 then rest = rest .. string.format('+%.0f', more) end
    paid = now + (debt - more) / mul
    local low = paid % 1000000000
    text = string.format('%07d%09d%s', (paid - low) / 1000000000, low, rest)
    call('SET', key, text, 'PX', ms - ms % 1 + 2)
    return {now, before}
  end
end
