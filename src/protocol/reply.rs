//! The replies to calls.

use super::clock::ServerTime;
use std::sync::Arc;
use std::time::Duration;

/// The reply to a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// `acquire`, `adopt`, `extend_share`: the token has the lock, with this fence.
    Granted {
        /// Strictly greater than every fence issued for this lock before.
        fence: u64,
    },
    /// `acquire`: the token has a share of a lock of which others have shares.
    Joined {
        /// As in `Granted`.
        fence: u64,
    },
    /// `change_shares`: done, for each caller.
    Changed {
        /// The first fence of those that took a share; the others follow. 0 if none did.
        fence: u64,
        /// Whether the lock was shared before.
        beside: bool,
    },
    /// `handoff_share`: the successor has the share.
    HandedOff {
        /// As in `Granted`.
        fence: u64,
        /// The entries in the wait queue, of all managers.
        waiting: u64,
    },
    /// `reserve`: fences are reserved for the owner, and its lease lasts as long as asked for.
    Reserved {
        /// The first of them, as in `Granted`.
        fence: u64,
        /// As in `HandedOff`.
        waiting: u64,
    },
    /// `acquire_all`: the tokens have all locks, with these fences.
    All(Vec<u64>),
    /// `acquire`, `vote`: another token or other code holds the lock.
    Held(Box<HeldBy>),
    /// `force`: the lock is held, and nothing has changed yet.
    Seen {
        /// Identifies its owners.
        owners: Arc<str>,
    },
    /// A call of plain commands to take a lock.
    Take(Take),
    /// `release`, `force`: free, but the wait queue is too long for one call: a release grants the lock to the next
    /// waiter. `handoff_share`: no handoff, since more shares are held than the successor's limit; release the share.
    More,
    /// For scripts that only the owner may call: done if true, not the owner if false. `acquire_all`: false if not all
    /// locks are free. `change_shares`: false if each caller must ask alone.
    Owner(bool),
    /// `vote`: the attempt has this server's lock.
    Voted {
        /// The last fence that this server knows; 0 if none.
        counter: u64,
        /// The server's clock.
        time: ServerTime,
        /// Whether the proposed fences are written there.
        written: bool,
    },
}

impl Reply {
    /// A fence that the server's counter has issued by now; none if the reply shows none.
    #[must_use]
    pub fn issued(&self) -> Option<u64> {
        match self {
            Self::Granted { fence }
            | Self::Joined { fence }
            | Self::HandedOff { fence, .. }
            | Self::Reserved { fence, .. }
            | Self::Take(Take::Taken { last: fence }) => Some(*fence),
            Self::All(fences) => fences.iter().max().copied(),
            _ => None,
        }
    }
}

/// A held lock, as a refused caller sees it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HeldBy {
    /// How long the holder's lease lasts; none if it never ends by itself.
    pub remaining: Option<Duration>,
    /// The value of the lock: a token, or other code's value. Empty if the lock is free.
    pub holder: String,
    /// The server's clock.
    pub time: ServerTime,
    /// The caller's position in the wait queue, if any.
    pub queued: Option<QueuePosition>,
    /// Identifies the owners: it changes whenever another gets the lock or a share of it.
    pub owners: Arc<str>,
    /// The caller is in no queue, but others are, or hold shares.
    pub queueing: bool,
    /// The token of the share whose end `remaining` tells; empty if the lock is not shared.
    pub sharer: String,
    /// The number of shares.
    pub sharers: u32,
    /// How long the first waiter, which finds no room, is waited for unless it is heard of; none if there is room for it.
    pub awaited: Option<Duration>,
}

impl From<HeldBy> for Reply {
    fn from(held: HeldBy) -> Self {
        // Few replies are that large, and each is moved several times.
        Self::Held(Box::new(held))
    }
}

/// How an attempt to take a lock by plain commands ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Take {
    /// The lock is the token's, and no client waited for it.
    Taken {
        /// The last fence reserved. The counter is plain, so it may lie below the epoch.
        last: u64,
    },
    /// It was held, and still is.
    Held,
    /// It was held, and is free by now, or its key holds other data than text: the script tells.
    Unseen,
    /// The token took it, but others wait for it, or it has another owner by now.
    Overtaken,
    /// The token may own it, and has no fence.
    Unfenced,
}

/// The position of a queue entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QueuePosition {
    /// 1 for the next to be granted.
    pub position: u32,
    /// Orders the queue: a lost entry gets its position back by it.
    pub seq: u64,
}

/// The largest number that Lua and JavaScript keep exactly. No fence and no clock of a sound server comes near it, and
/// two of these always have a sum.
pub const EXACT_MAX: u64 = (1 << 53) - 1;

/// The largest fence: a block of fences that begins here is within [`EXACT_MAX`].
pub const FENCE_MAX: u64 = 9_000_000_000_000_000;

/// How far a counter of fences may be ahead of its server's clock. It begins there and falls behind, so other code has
/// raised one that is further ahead; its fences would exceed all that follow once it is repaired.
pub const COUNTER_AHEAD_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A number from a server, unless no sound server sends it.
#[must_use]
pub const fn exact(number: u64) -> Option<u64> {
    if number <= EXACT_MAX { Some(number) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_shows_the_last_fence_that_it_knows_of() {
        let (fence, waiting) = (7, 9);
        for reply in [
            Reply::Granted { fence },
            Reply::Joined { fence },
            Reply::HandedOff { fence, waiting },
            Reply::Reserved { fence, waiting },
            Reply::Take(Take::Taken { last: fence }),
            Reply::All(vec![3, 7, 5]),
        ] {
            assert_eq!(reply.issued(), Some(7), "{reply:?}");
        }
        for reply in [
            Reply::Owner(true),
            Reply::More,
            Reply::All(Vec::new()),
            Reply::Take(Take::Held),
            HeldBy::default().into(),
        ] {
            assert_eq!(reply.issued(), None, "{reply:?}");
        }
    }

    #[test]
    fn a_number_is_exact_below_two_to_the_53() {
        for (number, is_exact) in [
            (0, true),
            (FENCE_MAX, true),
            ((1 << 53) - 1, true),
            (1 << 53, false),
            (u64::MAX, false),
        ] {
            assert_eq!(exact(number), is_exact.then_some(number));
        }
        assert!(FENCE_MAX + u64::from(u8::MAX) <= EXACT_MAX, "a block that begins there is exact");
    }
}
