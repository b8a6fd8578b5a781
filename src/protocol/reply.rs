//! What scripts answer.

use super::clock::ServerTime;
use std::time::Duration;

/// What a script answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// `acquire`, `adopt`, `extend_share`: the lock is the token's, with this fence. `pass`: the share is the successor's.
    Granted {
        /// Strictly greater than every fence issued for this lock before.
        fence: u64,
    },
    /// `together`: all locks are the tokens', with these fences.
    All(Vec<u64>),
    /// `acquire`, `vote`: somebody else holds the lock.
    Held(Held),
    /// `force`: it is held, and nothing is done yet.
    Seen {
        /// The last fence issued; 0 if none is known.
        last: u64,
    },
    /// `release`, `force`: free, but the wait queue is too long for one call: a release grants the lock to the next waiter.
    /// `pass`: not passed on, since more than the successor's limit have a share; it is to be released.
    More,
    /// Those that only the owner may call: done if true, not the owner if false. `together`: false if
    /// not all of them are free.
    Owner(bool),
    /// `vote`: this server's lock is the attempt's.
    Voted {
        /// The last fence that this server knows; 0 if it knows none.
        counter: u64,
        /// The server's clock.
        time: ServerTime,
    },
}

/// A lock that somebody else holds, as seen by who asked for it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Held {
    /// How long the holder's lease lasts; none if it never ends by itself.
    pub remaining: Option<Duration>,
    /// The value of the lock: a token, or whatever other code wrote. Empty if it is free.
    pub holder: String,
    /// The server's clock.
    pub time: ServerTime,
    /// Where the asker waits, if it does.
    pub queued: Option<QueuePosition>,
    /// The last fence issued; 0 if none is known.
    pub last: u64,
}

/// Where an entry is in the wait queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QueuePosition {
    /// 1 for who is next.
    pub position: u32,
    /// Orders the queue: an entry that was lost gets its position back by it.
    pub seq: u64,
}

/// The largest number that Lua and JavaScript keep exactly. No fence and no clock of a server that is in
/// order comes near it, and two of them always have a sum.
pub const EXACT_MAX: u64 = (1 << 53) - 1;

/// A number that a server sent, unless no server in order sends it.
#[must_use]
pub const fn exact(number: u64) -> Option<u64> {
    if number <= EXACT_MAX { Some(number) } else { None }
}
