-- lengthen_lock: makes the lock last at least `ttl_ms` from now. Needs the locals `lock_key` and `ttl_ms`.
if redis.call('PTTL', lock_key) - ttl_ms < 0 then
  redis.call('PEXPIRE', lock_key, ttl_ms)
end
