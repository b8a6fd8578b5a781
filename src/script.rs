//! The Lua scripts, what is passed to them and what they answer.

use crate::clock::{Mono, ServerTime};
use crate::keys::LockKeys;
use crate::token::Token;
use std::time::Duration;

/// A script of `src/lua/`. Each file's header states its KEYS, ARGV and reply.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Script {
    /// `acquire.lua`
    Acquire,
    /// `extend.lua`
    Extend,
    /// `release.lua`
    Release,
}

impl Script {
    /// Every script, in the order of the enum.
    pub const ALL: [Self; 3] = [Self::Acquire, Self::Extend, Self::Release];

    /// The Lua text as it is sent to the server.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::Acquire => include_str!("lua/acquire.lua"),
            Self::Extend => include_str!("lua/extend.lua"),
            Self::Release => include_str!("lua/release.lua"),
        }
    }
}

/// One call of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Call {
    /// Take a free lock, or confirm that `token` owns it.
    Acquire {
        /// The lock.
        keys: LockKeys,
        /// Who asks.
        token: Token,
        /// The lease.
        ttl: Duration,
        /// Fences at or below it may have been issued by a history that this server lost.
        epoch: ServerTime,
    },
    /// Lengthen the lease of `token` to at least `ttl` from now.
    Extend {
        /// The lock.
        keys: LockKeys,
        /// Who owns it.
        token: Token,
        /// The lease.
        ttl: Duration,
    },
    /// Free the lock if `token` owns it.
    Release {
        /// The lock.
        keys: LockKeys,
        /// Who owns it.
        token: Token,
    },
}

impl Call {
    /// Which script this calls.
    #[must_use]
    pub const fn script(&self) -> Script {
        match self {
            Self::Acquire { .. } => Script::Acquire,
            Self::Extend { .. } => Script::Extend,
            Self::Release { .. } => Script::Release,
        }
    }
}

/// What a script answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// `acquire`: the lock is the token's, with this fence.
    Granted {
        /// Strictly greater than every fence issued for this lock before.
        fence: u64,
    },
    /// `acquire`: somebody else holds the lock.
    Held {
        /// How long the holder's lease lasts; none if it never ends by itself.
        remaining: Option<Duration>,
        /// The value of the lock: a token, or whatever other code wrote.
        holder: String,
    },
    /// `extend`, `release`: done if true, not the owner if false.
    Owner(bool),
}

/// How long a client may rely on a lease of `ttl` that it asked for at `sent`.
///
/// Counted from before the request left, less 1 % + 2 ms for clocks that run at different speeds:
/// <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>
#[must_use]
pub fn valid_until(sent: Mono, ttl: Duration) -> Mono {
    let drift = ttl / 100 + Duration::from_millis(2);
    sent + ttl.saturating_sub(drift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_ends_before_the_lease() {
        let sent = Mono::from_micros(1_000_000);
        let until = valid_until(sent, Duration::from_secs(10));
        assert_eq!(until.since(sent), Duration::from_millis(10_000 - 100 - 2));
    }

    /// The header is a contract: the numbers of KEYS and ARGV it names are those the text binds.
    #[test]
    fn every_header_states_what_the_script_uses() {
        for script in Script::ALL {
            let source = script.source();
            let (header, body) = source.split_once("]]").expect("a header");
            for part in ["KEYS", "ARGV", "REPLY", "WRITES", "AGAIN", "FAILS"] {
                assert!(header.contains(&format!("\n  {part} ")), "{script:?} lacks {part}");
            }
            for list in ["KEYS", "ARGV"] {
                let line = header.lines().find(|line| line.trim_start().starts_with(list));
                let stated = line.map_or(0, |line| line.split_whitespace().skip(1).count() / 2);
                let used = (1..10).filter(|i| body.contains(&format!("{list}[{i}]"))).count();
                assert_eq!(stated, used, "{script:?}: {list}");
            }
        }
    }
}
