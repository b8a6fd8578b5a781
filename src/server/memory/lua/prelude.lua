--[[ prelude: the environment in which scripts run, as Redis 7 makes it
  ARGS   1 invoke: runs a command, returns whether it failed, and its reply
  GIVES  1 run: calls a script with its keys and arguments; returns true and its result, or false and the
           text of the error
         2 environment: what a script sees as its globals
]]
local invoke = ...

local READONLY = 'Attempt to modify a readonly table'
local shields = {}

local function refuse()
  error(READONLY, 2)
end

-- Lua has no readonly tables: scripts get an empty proxy of the real one.
local function shield(content)
  local front = { __index = content, __newindex = refuse, __metatable = false }
  local shielded = setmetatable({}, front)
  shields[shielded] = true
  return shielded
end

local function unless_shielded(change)
  return function(target, ...)
    if shields[target] then
      error(READONLY, 0)
    end
    return change(target, ...)
  end
end

local function call(...)
  local failed, reply = invoke(...)
  if failed then
    error(reply, 0)
  end
  return reply
end

local function call_protected(...)
  local _, reply = invoke(...)
  return reply
end

local function text_of(failure)
  local text = type(failure) == 'table' and rawget(failure, 'err')
  return type(text) == 'string' and text or nil
end

-- Redis turns the error of a command into its text here.
local function caught(succeeded, result, ...)
  if succeeded then
    return true, result, ...
  end
  return false, text_of(result) or result
end

local function single(field, prepare)
  return function(...)
    local text = ...
    if select('#', ...) ~= 1 or type(text) ~= 'string' then
      return { err = 'ERR wrong number or type of arguments' }
    end
    return { [field] = prepare(text) }
  end
end

local function as_is(text)
  return text
end

-- A single word gets the code ERR.
local function with_code(text)
  text = text:gsub('^%-', '')
  return text:find(' ', 1, true) and text or 'ERR ' .. text
end

local globals = {
  _VERSION = _VERSION,
  assert = assert,
  coroutine = shield(coroutine),
  error = error,
  getmetatable = getmetatable,
  ipairs = ipairs,
  math = shield(math),
  next = next,
  pairs = pairs,
  pcall = function(...)
    return caught(pcall(...))
  end,
  rawequal = rawequal,
  rawget = rawget,
  rawset = unless_shielded(rawset),
  redis = shield({
    call = call,
    pcall = call_protected,
    error_reply = single('err', with_code),
    status_reply = single('ok', as_is),
  }),
  select = select,
  setmetatable = unless_shielded(setmetatable),
  string = shield(string),
  table = shield(table),
  tonumber = tonumber,
  tostring = tostring,
  type = type,
  unpack = unpack or table.unpack,
  xpcall = xpcall,
}
setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})

-- The metatable of strings gives access to the unshielded library.
getmetatable('').__metatable = false

local function run(script, keys, args)
  globals.KEYS, globals.ARGV = keys, args
  local succeeded, result = pcall(script)
  if succeeded then
    return true, result
  end
  if type(result) == 'table' then
    return false, text_of(result) or 'ERR unknown error'
  end
  return false, 'ERR ' .. tostring(result)
end

local environment = shield(globals)
globals._G = environment
return run, environment
