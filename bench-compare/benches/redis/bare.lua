-- The least that a limit by arrival time takes. KEYS: one. ARGV: microseconds a permit, microseconds of the burst.
-- Answers: whether it is allowed, permits left, microseconds to wait.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local each, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local arrival = tonumber(redis.call('GET', KEYS[1]) or 0)
if arrival < now then arrival = now end
arrival = arrival + each
local left = burst - (arrival - now)
if left < 0 then return {0, 0, -left} end
redis.call('SET', KEYS[1], arrival, 'PX', math.ceil((arrival - now) / 1000))
return {1, math.floor(left / each), 0}
