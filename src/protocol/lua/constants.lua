-- constants: the words and numbers that several scripts use.

-- The value of a shared lock, the start of the value while plain commands have taken its only share, the mark after a
-- value while the queue is not empty, and the limit of the whole lock.
local SHARED, LONE_SHARE, MARK, WHOLE = 'hf1.shared', 'hf1.shared.', '+', '-'
-- A waiter that has been silent for LIVENESS_MS, twice its longest pause, leaves the queue. The side keys outlast the last waiter and share: as text,
-- since to format a number for a command costs the server more than to run many a command.
local LIVENESS_MS, KEYS_MS = 6000, '30000'
-- A lock's own fence counter expires this long after its first use, in a quorum after its last.
local FENCE_MS = 86400000
-- A counter begins at the clock, in us, so one below FENCE_MIN was begun by INCR. It falls behind the clock from then on, so
-- other code has raised one that is ahead by more than AHEAD_US, a year. Its fences would exceed all that follow once it is
-- repaired. Numbers above FENCE_MAX may not be exact.
local FENCE_MIN, FENCE_MAX = 1e15, 9e15
local AHEAD_US = 31536000000000
