-- Takes charges back on which no other has built. KEYS: one for each. ARGV: for each seven: kind, microsecond, what
-- else it is known by modulo 2^24, resets modulo 64, cost, and two that are the kind's own.
for i, key in ipairs(KEYS) do
  local at = 7 * i - 6
  local kind, us, mark, resets = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local cost, own, tag = tonumber(ARGV[at + 4]), ARGV[at + 5], ARGV[at + 6]
  if kind == 'l' then
    local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')
    if #last > 0 and tonumber(last[2]) == us then
      local sum, spent = entry(key, last[1])
      if sum % 16777216 == mark and spent == cost then call('ZREM', key, last[1]) end
    end
  else
    local text, new = call('GET', key), nil
    if not text then
      -- It counts no more.
    elseif kind == 'b' then
      local mul = tonumber(own)
      local paid = paid_at(us, mark, mul, tag)
      if sub(text, 1, #paid) == paid then
        local rest = sub(text, #paid + 1)
        local n = rest == '' and 0 or tonumber(match(rest, '^#(%d+)$'))
        if n and n % 64 == resets then
          local units = mark - cost
          local more = units % mul
          new = paid_at(max(0, us + (units - more) / mul), more, mul, tag) .. rest
        end
      end
    elseif kind == 'w' then
      local start, length, spent, n = match(text, '^(%d+):(%w+):(%d+)#(%d+)$')
      if start and tonumber(start) == us and length == own and spent % 16777216 == mark and n % 64 == resets
        and spent - cost >= 0 then
        new = fmt('%s:%s:%.0f#%s', start, length, spent - cost, n)
      end
    else
      local total, earlier = sub(text, 33, 48), #text > 64 and sub(text, -16) or sub(text, 49, 64)
      if tonumber(sub(text, 17, 32)) == us and tonumber(total) % 16777216 == mark then
        local left, is_first = total - cost, #text == 64
        if left > tonumber(earlier) then
          new = sub(text, 1, 32) .. fmt('%016d', left) .. sub(text, 49)
        elseif left == tonumber(earlier) then
          -- The cell before it is the last.
          new = is_first and fmt('%016d%016d', 0, 0) or sub(text, 1, 16) .. sub(text, -32, -17)
          new = new .. earlier .. sub(text, 49, is_first and 64 or -33)
        end
      end
    end
    if new then call('SET', key, new, 'KEEPTTL') end
  end
end
return 1
