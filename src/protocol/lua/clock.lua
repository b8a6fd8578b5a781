-- clock: the time of the server.

local function server_time_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
