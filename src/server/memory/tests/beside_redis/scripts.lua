return 3.99
---
return -3.99
---
return 1e30
---
return 0/0
---
return 'text'
---
return true
---
return false
---
return nil
---
return
---
return redis.call
---
return coroutine.create(function() end)
---
return { 1, 2, nil, 3 }
---
return { true, false, 1 }
---
return {}
---
return { a = 1 }
---
return { 1, { 2, { err = 'A b' } }, { ok = 'c' }, { ok = 'OK' } }
---
return { ok = 'fine' }
---
return { ok = 1 }
---
return { err = 'foo bar' }
---
return { err = 'foo' }
---
return { err = 1 }
---
return { err = 'A', ok = 'B' }
---
return { err = 'with\r\nlines in it' }
---
return setmetatable({}, { __index = function(_, key) return key ~= 'err' and key ~= 'ok' and 1 or nil end })
---
return redis.status_reply('fine')
---
return redis.status_reply('a\r\nb')
---
return redis.status_reply()
---
return redis.status_reply(1)
---
return redis.error_reply('MY text')
---
return redis.error_reply('-MY text')
---
return redis.error_reply('Oops')
---
return redis.error_reply('-Oops')
---
return redis.error_reply('A b\r\nc')
---
return redis.error_reply()
---
return redis.error_reply('a', 'b')
---
return redis.call()
---
return redis.pcall()
---
return redis.call('GET', true)
---
return redis.call('GET', nil)
---
return redis.call({ 'GET' })
---
return redis.pcall('GET', {})
---
return redis.call('NOPE')
---
return redis.pcall('NOPE')
---
return redis.call('GET')
---
return redis.call('GET', KEYS[2])
---
return redis.pcall('GET', KEYS[2])
---
return redis.pcall('GET', KEYS[2]).err
---
return redis.call('HSET', KEYS[2], 'f')
---
return redis.call('HSET', KEYS[2], 'f', 'v', 'g')
---
return redis.call('SET', KEYS[1], 'x', 'PX', 0)
---
return redis.call('SET', KEYS[1], 'x', 'PX', 10, 'KEEPTTL')
---
return redis.call('INCRBY', KEYS[1], 'x')
---
return redis.call('PUBSUB', 'NUMSUB', 'c', 'd')
---
return redis.call('PUBSUB', 'NOPE')
---
return redis.call('PUBLISH', 'c', 1)
---
local reply = redis.call('SET', KEYS[1], 'x')
return { type(reply), reply.ok }
---
local reply = redis.call('GET', KEYS[1])
return { type(reply), tostring(reply) }
---
local reply = redis.call('HMGET', KEYS[2], 'f', 'g')
return { #reply, reply[1], tostring(reply[2]) }
---
local reply = redis.call('INCR', KEYS[1])
return { type(reply), reply + 0.5 }
---
local reply = redis.call('TYPE', KEYS[2])
return { reply.ok, reply }
---
redis.call('SET', KEYS[1], 5)
redis.call('INCRBY', KEYS[1], 2.0)
redis.call('APPEND', KEYS[1], 0.5)
return redis.call('GET', KEYS[1])
---
local succeeded, failure = pcall(redis.call, 'GET', KEYS[2])
return { tostring(succeeded), type(failure), failure }
---
local succeeded, failure = pcall(error, { err = 'X y' })
return { tostring(succeeded), type(failure), failure }
---
local succeeded, failure = pcall(error, { other = 1 })
return { tostring(succeeded), type(failure) }
---
return { pcall(function(...) return ... end, 1, 2, 3) }
---
local succeeded, failure = xpcall(function() redis.call('GET', KEYS[2]) end, function(e) return e end)
return { tostring(succeeded), type(failure), failure.err }
---
error('text')
---
error('text', 0)
---
error('text', 2)
---
error(42)
---
error()
---
error(true)
---
error({ err = 'MY text' })
---
error({ err = 'text' })
---
assert(false)
---
assert(false, 'text')
---
assert(nil, { err = 'MY text' })
---
local nothing
return nothing.field
---
local function deep() error('deep') end
local function deeper() deep() end

deeper()
---
local failure = redis.pcall('GET', KEYS[2])
error(failure)
---
x = 1
---
_G.x = 1
---
rawset(_G, 'x', 1)
---
setmetatable(_G, {})
---
KEYS = {}
---
string.new = 1
---
redis.new = 1
---
return x
---
return print
---
return os.time()
---
return tostring(rawget(_G, 'x'))
---
KEYS[1] = 'changed'
return KEYS[1]
---
return (
---
return return
---
local s = 'unfinished
---
return { #KEYS, #ARGV, KEYS[1], ARGV[2] + 1, type(ARGV[2]) }
---
return { type(_G), type(string), type(redis), _VERSION, select('#', unpack({ 1, 2 })) }
---
return { string.format('%.0f', 1e15), ('x'):rep(3), tostring(0.1), tostring(1e15), 2^53 }
---
return { tonumber('0x10'), tonumber(' 5 '), tostring(tonumber('x')), tonumber('z', 36) }
---
local parts = {}
for word in ('a,b,,c'):gmatch('[^,]*') do parts[#parts + 1] = '<' .. word .. '>' end
table.sort(parts)
return table.concat(parts)
---
local thread = coroutine.wrap(function() coroutine.yield(redis.call('HGET', KEYS[2], 'f')) end)
return thread()
