//! The calls of a server, with their arguments.

use super::clock::ServerTime;
use super::keys::LockKeys;
use super::mode::Mode;
use super::script::Script;
use super::token::Token;
use std::sync::Arc;
use std::time::Duration;

/// One call: of a script, or of a few plain commands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Call {
    /// Take a free lock without waiters, by plain commands, which cost a server half as much as a script: `SET` if
    /// it does not exist, `INCRBY` of the fence counter, and `MGET` of the lock and its flag for waiters.
    Take {
        /// The lock.
        keys: LockKeys,
        /// The caller, or its lone share.
        token: Token,
        /// The lease.
        ttl: Duration,
        /// As in `Acquire`.
        block: u8,
    },
    /// Lengthen the lease of a lock that was granted by message, which counts as claimed from then on.
    Claim {
        /// The lock.
        keys: LockKeys,
        /// The owner.
        token: Token,
        /// The lease from now.
        ttl: Duration,
    },
    /// Free the lock if `token` owns it and no client waits.
    Delete {
        /// The lock.
        keys: LockKeys,
        /// The owner, or its lone share.
        token: Token,
    },
    /// Take a free lock, enqueue for a held one, or confirm that `token` owns it.
    Acquire {
        /// The lock.
        keys: LockKeys,
        /// The caller.
        token: Token,
        /// The lease.
        ttl: Duration,
        /// Fences at or below it may have been issued by data that this server lost.
        epoch: ServerTime,
        /// How many fences the grant reserves; the same in every repeat.
        block: u8,
        /// The channel for a grant; empty for a caller that only polls.
        inbox: Arc<str>,
        /// The step to take if the lock is held.
        intent: Intent,
        /// The whole lock, or a share of it.
        mode: Mode,
    },
    /// Take over what `owner` has, with its exported token.
    Adopt {
        /// The lock.
        keys: LockKeys,
        /// The caller.
        token: Token,
        /// As in `Acquire`, if the last fence is unknown.
        epoch: ServerTime,
        /// The owner until now.
        owner: Token,
        /// The lease.
        ttl: Duration,
        /// The most to take.
        mode: Mode,
    },
    /// Take shares and give others up, for several callers at once; or change nothing, so that each asks alone.
    ChangeShares {
        /// The lock.
        keys: LockKeys,
        /// One of the callers.
        token: Token,
        /// The lease of those that take a share.
        ttl: Duration,
        /// As in `Acquire`.
        epoch: ServerTime,
        /// Those that take a share without a limit.
        taking: Vec<Token>,
        /// Those that give theirs up.
        leaving: Vec<Token>,
    },
    /// Turn the whole lock, if it is `token`'s, into a share of it.
    Downgrade {
        /// The lock.
        keys: LockKeys,
        /// The owner.
        token: Token,
        /// As in `Release`.
        epoch: ServerTime,
        /// The owner's fence, which it keeps.
        fence: u64,
    },
    /// Extend the lease of `token` to at least `ttl` from now.
    Extend {
        /// The lock.
        keys: LockKeys,
        /// The owner.
        token: Token,
        /// The lease.
        ttl: Duration,
    },
    /// Extend the share of `token` to at least `ttl` from now, and claim it.
    ExtendShare {
        /// The lock.
        keys: LockKeys,
        /// The owner.
        token: Token,
        /// The lease.
        ttl: Duration,
        /// The fence that the owner knows, which the server may lack.
        fence: u64,
    },
    /// Copy a lock that a majority carries to a server that lacks it.
    CopyLock {
        /// The lock.
        keys: LockKeys,
        /// The owner, with its attempt.
        token: Token,
        /// The lease.
        ttl: Duration,
        /// The last fence that is reserved for the owner.
        last: u64,
    },
    /// Free the lock, whatever its holder.
    Force {
        /// The lock.
        keys: LockKeys,
        /// The caller.
        token: Token,
        /// As in `Release`.
        epoch: ServerTime,
        /// Whether other code's value is also deleted.
        foreign: bool,
        /// As in [`Intent::Steal`]; none to query them.
        seen: Option<Arc<str>>,
        /// In place of `seen`, the tokens of all from whom it may be taken; empty for anybody.
        owners: Arc<[Token]>,
    },
    /// Free the lock if `token` owns it, while its other keys are elsewhere.
    Free {
        /// The lock.
        keys: LockKeys,
        /// The owner.
        token: Token,
    },
    /// Give the share of `token` up, while other keys of the lock are elsewhere.
    FreeShare {
        /// The lock.
        keys: LockKeys,
        /// The owner.
        token: Token,
    },
    /// Keep the queue entry of `token`, while other keys of the lock are elsewhere.
    KeepEntry {
        /// The lock.
        keys: LockKeys,
        /// The waiter.
        token: Token,
    },
    /// Make other code's lease last at least `ttl` from now, as long as the value of its lock is this.
    KeepForeign {
        /// The lock.
        keys: LockKeys,
        /// The value, which that code has chosen.
        token: Token,
        /// The lease.
        ttl: Duration,
    },
    /// Lengthen a shared lock, in which `token` has a share, by its own key alone, while its slot moves.
    KeepLock {
        /// The lock.
        keys: LockKeys,
        /// The owner of a share.
        token: Token,
        /// The lease from now.
        ttl: Duration,
    },
    /// Lengthen the share of `token` by the set of shares alone, while its slot moves, and claim it.
    KeepShare {
        /// The lock.
        keys: LockKeys,
        /// The owner.
        token: Token,
        /// The lease from now.
        ttl: Duration,
    },
    /// Hand the share of `token` off to another caller of the same process.
    HandoffShare {
        /// The lock.
        keys: LockKeys,
        /// The share's owner.
        token: Token,
        /// As in `Acquire`.
        epoch: ServerTime,
        /// The successor.
        successor: Token,
        /// The successor's lease.
        ttl: Duration,
        /// The successor's mode: a share with a limit.
        mode: Mode,
    },
    /// Free the lock if `token` owns it, or leave the wait queue.
    Release {
        /// The lock.
        keys: LockKeys,
        /// The owner.
        token: Token,
        /// As in `Acquire`: the release issues the fence of the next owner.
        epoch: ServerTime,
        /// Whether it is known to be a share.
        shared: bool,
    },
    /// Reserve fences for further handoffs of the whole lock, if `token` owns it, extend its lease, and count who waits.
    Reserve {
        /// The lock.
        keys: LockKeys,
        /// The owner.
        token: Token,
        /// The lease from now.
        ttl: Duration,
        /// As in `Acquire`.
        epoch: ServerTime,
        /// How many fences are reserved.
        block: u8,
    },
    /// Write the fences `first` to `last` where `token` still owns the lock.
    WriteFence {
        /// The lock.
        keys: LockKeys,
        /// The owner, with its attempt.
        token: Token,
        /// The fence of the grant.
        first: u64,
        /// The last one that is reserved with it.
        last: u64,
    },
    /// Set the lease of `token` to `ttl` from now, also to less, by the plain command `SET … IFEQ`, which costs a server a
    /// third of a script: only where the lease is known to end no later. It does not know a value with a mark, so "not the
    /// owner" decides nothing.
    Renew {
        /// The lock.
        keys: LockKeys,
        /// The owner.
        token: Token,
        /// The lease.
        ttl: Duration,
    },
    /// Take several free locks without waiters, or none of them, by plain commands, which cost a server a third of the
    /// script: `MSETEX`, then `INCRBY` and `MGET` as for one. `AcquireAll` follows wherever these do not decide.
    TakeAll {
        /// The first lock, and the token for it.
        first: (LockKeys, Token),
        /// The others.
        others: Vec<(LockKeys, Token)>,
        /// The lease.
        ttl: Duration,
    },
    /// Take several free locks, or none of them.
    AcquireAll {
        /// The first lock, and the token for it.
        first: (LockKeys, Token),
        /// The others.
        others: Vec<(LockKeys, Token)>,
        /// The lease.
        ttl: Duration,
        /// As in `Acquire`.
        epoch: ServerTime,
    },
    /// Take a free lock on one server of a quorum.
    Vote {
        /// The lock.
        keys: LockKeys,
        /// The caller, without its attempt.
        token: Token,
        /// The number of the attempt.
        attempt: u64,
        /// The lease.
        ttl: Duration,
        /// Whether the caller waits and wants a message when the holder releases.
        mark: bool,
        /// The first and the last of the fences that it proposes; zeros if none.
        fences: (u64, u64),
    },
    /// Give up what `token` has on one server of a quorum, and notify the waiters.
    Withdraw {
        /// The lock.
        keys: LockKeys,
        /// The owner, with its attempt.
        token: Token,
    },
}

/// The intent of an acquire, besides confirming what the token has already.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Intent {
    /// Enqueue: at an earlier position, or at the end.
    Join(Option<u64>),
    /// Keep a lock or a queue entry, and get neither anew.
    Poll,
    /// Take the lock from its owners, unless that is other code, if they are still these: so a later owner is not
    /// robbed, however late the request arrives.
    Steal(Arc<str>),
    /// Take the lock only if it is free and has no waiters.
    Try,
}

impl Call {
    /// The lock of the call, the first of several.
    #[must_use]
    pub const fn keys(&self) -> &LockKeys {
        self.lock().0
    }

    /// The caller.
    #[must_use]
    pub const fn token(&self) -> &Token {
        self.lock().1
    }

    const fn lock(&self) -> (&LockKeys, &Token) {
        match self {
            Self::AcquireAll { first: (keys, token), .. }
            | Self::TakeAll { first: (keys, token), .. }
            | Self::Take { keys, token, .. }
            | Self::Claim { keys, token, .. }
            | Self::Delete { keys, token, .. }
            | Self::Acquire { keys, token, .. }
            | Self::Adopt { keys, token, .. }
            | Self::ChangeShares { keys, token, .. }
            | Self::Downgrade { keys, token, .. }
            | Self::Extend { keys, token, .. }
            | Self::ExtendShare { keys, token, .. }
            | Self::CopyLock { keys, token, .. }
            | Self::Force { keys, token, .. }
            | Self::Free { keys, token, .. }
            | Self::FreeShare { keys, token, .. }
            | Self::KeepEntry { keys, token, .. }
            | Self::KeepForeign { keys, token, .. }
            | Self::KeepLock { keys, token, .. }
            | Self::KeepShare { keys, token, .. }
            | Self::HandoffShare { keys, token, .. }
            | Self::Release { keys, token, .. }
            | Self::Renew { keys, token, .. }
            | Self::Reserve { keys, token, .. }
            | Self::WriteFence { keys, token, .. }
            | Self::Vote { keys, token, .. }
            | Self::Withdraw { keys, token, .. } => (keys, token),
        }
    }

    /// The number of locks of the call.
    #[must_use]
    pub const fn locks(&self) -> usize {
        if let Self::AcquireAll { others, .. } | Self::TakeAll { others, .. } = self {
            1 + others.len()
        } else {
            1
        }
    }

    /// The lease requested; zero if none is.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        match self {
            Self::Take { ttl, .. }
            | Self::Claim { ttl, .. }
            | Self::Acquire { ttl, .. }
            | Self::Adopt { ttl, .. }
            | Self::ChangeShares { ttl, .. }
            | Self::Extend { ttl, .. }
            | Self::ExtendShare { ttl, .. }
            | Self::CopyLock { ttl, .. }
            | Self::HandoffShare { ttl, .. }
            | Self::KeepForeign { ttl, .. }
            | Self::KeepLock { ttl, .. }
            | Self::KeepShare { ttl, .. }
            | Self::Renew { ttl, .. }
            | Self::Reserve { ttl, .. }
            | Self::AcquireAll { ttl, .. }
            | Self::TakeAll { ttl, .. }
            | Self::Vote { ttl, .. } => *ttl,
            _ => Duration::ZERO,
        }
    }

    /// Sets the epoch of the server's data as the call is sent.
    pub const fn set_epoch(&mut self, now: ServerTime) {
        match self {
            Self::Acquire { epoch, .. }
            | Self::Adopt { epoch, .. }
            | Self::ChangeShares { epoch, .. }
            | Self::Downgrade { epoch, .. }
            | Self::Force { epoch, .. }
            | Self::HandoffShare { epoch, .. }
            | Self::Release { epoch, .. }
            | Self::Reserve { epoch, .. }
            | Self::AcquireAll { epoch, .. } => *epoch = now,
            _ => {}
        }
    }

    /// The token for each lock of the call.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        self.clone().into_locks().map(|(_, token)| token).collect()
    }

    /// Every lock of the call, and the token for it.
    pub fn into_locks(self) -> impl Iterator<Item = (LockKeys, Token)> {
        let (keys, token) = (self.keys().clone(), self.token().clone());
        let others = match self {
            Self::AcquireAll { others, .. } | Self::TakeAll { others, .. } => others,
            _ => Vec::new(),
        };
        std::iter::once((keys, token)).chain(others)
    }

    /// The script of the call, which also tells how its answer is read, unless it is one of plain commands.
    #[must_use]
    pub const fn script(&self) -> Option<Script> {
        Some(match self {
            Self::Take { .. } | Self::TakeAll { .. } => return None,
            Self::Claim { .. } => Script::Claim,
            Self::Delete { .. } => Script::Delete,
            Self::Acquire { .. } => Script::Acquire,
            Self::Adopt { .. } => Script::Adopt,
            Self::ChangeShares { .. } => Script::ChangeShares,
            Self::Downgrade { .. } => Script::Downgrade,
            // By the script where it is not the plain command.
            Self::Extend { .. } | Self::Renew { .. } => Script::Extend,
            Self::ExtendShare { .. } => Script::ExtendShare,
            Self::CopyLock { .. } => Script::CopyLock,
            Self::Force { .. } => Script::Force,
            Self::Free { .. } => Script::Free,
            Self::FreeShare { .. } => Script::FreeShare,
            Self::KeepEntry { .. } => Script::KeepEntry,
            Self::KeepForeign { .. } => Script::KeepForeign,
            Self::KeepLock { .. } => Script::KeepLock,
            Self::KeepShare { .. } => Script::KeepShare,
            Self::HandoffShare { .. } => Script::HandoffShare,
            Self::Release { .. } => Script::Release,
            Self::Reserve { .. } => Script::Reserve,
            Self::WriteFence { .. } => Script::WriteFence,
            Self::AcquireAll { .. } => Script::AcquireAll,
            Self::Vote { .. } => Script::Vote,
            Self::Withdraw { .. } => Script::Withdraw,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(name: &str) -> LockKeys {
        LockKeys::new("lock:", name)
    }

    fn token(n: u64) -> Token {
        Token::new("c", n, "")
    }

    #[test]
    fn a_call_of_several_locks_has_each_with_its_token() {
        let (first, others) =
            ((keys("a"), token(1)), vec![(keys("b"), token(2)), (keys("d"), token(3))]);
        let (ttl, epoch) = (Duration::from_millis(70), ServerTime::default());
        let take = Call::TakeAll { first: first.clone(), others: others.clone(), ttl };
        for call in [take, Call::AcquireAll { first, others, ttl, epoch }] {
            assert_eq!((call.locks(), call.ttl()), (3, ttl));
            assert_eq!((call.keys(), call.token()), (&keys("a"), &token(1)));
            assert_eq!(call.tokens(), [1, 2, 3].map(token));
            let names: Vec<_> = call.into_locks().map(|(keys, _)| keys).collect();
            assert_eq!(names, ["a", "b", "d"].map(keys));
        }
    }

    #[test]
    fn a_call_of_one_lock_has_that_alone() {
        let (keys, token, ttl) = (keys("a"), token(1), Duration::from_millis(70));
        let extend = Call::Extend { keys: keys.clone(), token: token.clone(), ttl };
        assert_eq!((extend.locks(), extend.ttl(), extend.tokens()), (1, ttl, vec![token.clone()]));
        let free = Call::Free { keys, token };
        assert_eq!((free.locks(), free.ttl()), (1, Duration::ZERO));
    }

    #[test]
    fn the_calls_that_issue_fences_get_the_epoch() {
        let (keys, token, now) = (keys("a"), token(1), ServerTime::from_micros(9));
        let (epoch, shared) = (ServerTime::default(), false);
        let mut release = Call::Release { keys: keys.clone(), token: token.clone(), epoch, shared };
        let before = release.clone();
        release.set_epoch(now);
        assert_ne!(release, before);
        assert!(matches!(release, Call::Release { epoch, .. } if epoch == now));
        let ttl = Duration::ZERO;
        let mut extend = Call::Extend { keys, token, ttl };
        let before = extend.clone();
        extend.set_epoch(now);
        assert_eq!(extend, before);
    }
}
