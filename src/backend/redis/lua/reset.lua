-- Forgets a key; what undoes an earlier charge is told from what is charged later by what stays behind. KEYS: one.
-- ARGV: time or "", kind, and four that are the kind's own. Answers whether anything was spent.
local key, now, kind, a, b, c = KEYS[1], time(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if kind == 'l' then
  local _, total, before = logged(key, now, tonumber(b))
  if total == before then return 0 end
  local left = call('PTTL', key)
  call('DEL', key)
  if left > 0 then
    call('ZADD', key, 0, fmt('%016.0f:0', total))
    call('PEXPIRE', key, left)
  end
  return 1
end
local text, new = call('GET', key), nil
if kind == 'b' then
  local debt, resets = owed(key, text, now, tonumber(a), b, tonumber(c), ARGV[6])
  if debt == 0 then return 0 end
  new = paid_at(now, 0, tonumber(a), b) .. fmt('#%d', resets + 1)
elseif kind == 'w' then
  local start, spent, resets = under_way(key, text, now, b, c)
  if spent == 0 then return 0 end
  new = fmt('%016.0f:%s:0#%.0f', start, b, resets + 1)
else
  local _, _, before, total = ring(key, text, now, tonumber(b), tonumber(c))
  if total == before then return 0 end
  new = ring_text({}, {}, total)
end
if call('PTTL', key) > 0 then call('SET', key, new, 'KEEPTTL') else call('DEL', key) end
return 1
