-- Before `check`, where all charges are to be made, on buckets, no two on one. Answers, where they are made at once: now,
-- and what each owed before.

-- Most calls, as in `one_bucket`: nothing is owed, or under this quota and since no reset, and all fit.
local call, sub, fmt = redis.call, string.sub, string.format
local keys, argv = KEYS, ARGV
local now, answer, debts, fit = nil, {}, {}, true
if argv[2] == '' then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now = argv[2] + 0
end
answer[1] = now
for i = 1, #keys do
  local at, text, before = 7 * i - 4, call('GET', keys[i]), 0
  if text then
    local paid = sub(text, 17) == argv[at + 4] and tonumber(sub(text, 1, 16))
    if not paid then
      fit = false
      break
    end
    before = (paid - now) * argv[at + 3]
    if before < 0 then before = 0 end
  end
  local debt = before + argv[at + 1]
  if debt > argv[at + 5] + 0 then
    fit = false
    break
  end
  debts[i], answer[i + 1] = debt, before
end
if fit then
  for i = 1, #keys do
    local at, debt = 7 * i - 4, debts[i]
    local mul, rest = argv[at + 3] + 0, argv[at + 4]
    local more, ms = debt % mul, debt / mul / 1000
    if more > 0 then rest = rest .. fmt('+%.0f', more) end
    local paid = now + (debt - more) / mul
    local low = paid % 1000000000
    call('SET', keys[i], fmt('%07d%09d%s', (paid - low) / 1000000000, low, rest), 'PX', ms - ms % 1 + 2)
  end
  return answer
end
