-- Whether all that scripts do is known and allowed here. KEYS: one that nobody else uses.
local key = KEYS[1]
time('')
if fmt('%d', 1790000000000000) ~= '1790000000000000' then error('32 bits') end
-- First what a full server refuses, as it does not once a script has written; both options together are known from
-- Redis 6.2 on.
call('SET', key, '1', 'GET', 'PX', '1000')
call('SET', key, '1', 'KEEPTTL')
call('GET', key)
call('MGET', key)
call('PSETEX', key, '1000', '1')
call('PTTL', key)
call('DEL', key)
call('ZADD', key, '1', 'a')
call('PEXPIRE', key, '1000')
call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
call('ZRANGEBYSCORE', key, '(0', '+inf', 'LIMIT', '0', '1')
call('ZCARD', key)
call('ZREM', key, 'b')
call('ZREMRANGEBYSCORE', key, '-inf', '0')
call('DEL', key)
return 1
