-- Any number of charges: all are made, or none. `keys`: one for each charge. `now`: the time. `argv`: "1" to charge or
-- "0" to look, what the time was read by, and for each charge: kind, cost, longest wait in microseconds, and what is the
-- kind's own.
-- Answers: now, and for each charge six: whether it fits, what was spent before it, microseconds until all is back,
-- microseconds until it would fit, and two that its undo is known by.

local answer, kinds, states, at = {now}, {}, {}, 3
local all_fit, departs = true, 0
for i = 1, #keys do
  local key, letter, cost = keys[i], argv[at], argv[at + 1] + 0
  local kind, state = kinds[letter], nil
  if not kind then
    kind = kind_of(letter)
    kinds[letter] = kind
  end
  -- Charges on one key count together.
  for j = 1, i - 1 do
    if keys[j] == key then state = states[j] end
  end
  if not state then
    state = kind.load(key, now, argv[at + 3], argv[at + 4], argv[at + 5], argv[at + 6])
    state.kind = kind
  end
  states[i] = state
  local fits, spent, whole, lacks, mark, other = kind.try(state, now, cost, argv[at + 2] + 0)
  -- Nothing asked is nothing denied.
  if cost == 0 then fits = true else state.is_asked = true end
  all_fit = all_fit and fits
  if fits and state.mul and lacks > departs then departs = lacks end
  local n = 6 * i
  answer[n - 4], answer[n - 3], answer[n - 2] = fits and 1 or 0, spent, whole
  answer[n - 1], answer[n], answer[n + 1] = lacks, mark, other
  at = at + kind.takes
end
if all_fit and argv[1] == '1' then
  for i = 1, #keys do
    local state = states[i]
    -- Who departs later for another charge's sake is spaced from then on.
    if state.is_paced and state.is_asked and state.made == 1 and departs * state.mul > answer[6 * i - 3] then
      state.spent = departs * state.mul + state.capacity
      answer[6 * i - 3] = departs * state.mul
    end
  end
  for i = 1, #keys do
    local state = states[i]
    if state.is_asked then
      state.kind.save(keys[i], now, state)
      state.is_asked = false
    end
  end
end
return answer
