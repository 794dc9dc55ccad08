-- Tells that this process is there, and counts those that told. KEYS: one. ARGV: its name, for how many milliseconds.
local now = floor(time('') / 1000)
call('ZADD', KEYS[1], fmt('%.0f', now + ARGV[2]), ARGV[1])
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', fmt('%.0f', now))
call('PEXPIRE', KEYS[1], ARGV[2])
return call('ZCARD', KEYS[1])
