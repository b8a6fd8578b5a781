//! The Lua scripts, what is passed to them and what they answer.

use crate::clock::{Mono, ServerTime};
use crate::keys::LockKeys;
use crate::token::Token;
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// A script of `src/lua/`. Each file's header states its KEYS, ARGV and reply.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Script {
    /// `acquire.lua`
    Acquire,
    /// `adopt.lua`
    Adopt,
    /// `downgrade.lua`
    Downgrade,
    /// `extend.lua`
    Extend,
    /// `extend_share.lua`
    ExtendShare,
    /// `quorum/fill.lua`
    Fill,
    /// `force.lua`
    Force,
    /// `free.lua`
    Free,
    /// `free_share.lua`
    FreeShare,
    /// `inspect.lua`
    Inspect,
    /// `keep_entry.lua`
    KeepEntry,
    /// `handoff_share.lua`
    Pass,
    /// `release.lua`
    Release,
    /// `quorum/seal.lua`
    Seal,
    /// `acquire_all.lua`
    Together,
    /// `quorum/vote.lua`
    Vote,
    /// `quorum/withdraw.lua`
    Withdraw,
}

impl Script {
    /// Every script, in the order of the enum.
    pub const ALL: [Self; 17] = [
        Self::Acquire,
        Self::Adopt,
        Self::Downgrade,
        Self::Extend,
        Self::ExtendShare,
        Self::Fill,
        Self::Force,
        Self::Free,
        Self::FreeShare,
        Self::Inspect,
        Self::KeepEntry,
        Self::Pass,
        Self::Release,
        Self::Seal,
        Self::Together,
        Self::Vote,
        Self::Withdraw,
    ];

    /// The Lua text as it is sent to the server.
    #[must_use]
    pub fn source(self) -> &'static str {
        static SOURCES: LazyLock<[String; Script::ALL.len()]> =
            LazyLock::new(|| Script::ALL.map(|script| assemble(script.file())));
        // The enum counts from 0, in the order of the list.
        &SOURCES[self as usize]
    }

    const fn file(self) -> &'static str {
        match self {
            Self::Acquire => include_str!("lua/acquire.lua"),
            Self::Adopt => include_str!("lua/adopt.lua"),
            Self::Downgrade => include_str!("lua/downgrade.lua"),
            Self::Extend => include_str!("lua/extend.lua"),
            Self::ExtendShare => include_str!("lua/extend_share.lua"),
            Self::Fill => include_str!("lua/quorum/fill.lua"),
            Self::Force => include_str!("lua/force.lua"),
            Self::Free => include_str!("lua/free.lua"),
            Self::FreeShare => include_str!("lua/free_share.lua"),
            Self::Inspect => include_str!("lua/inspect.lua"),
            Self::KeepEntry => include_str!("lua/keep_entry.lua"),
            Self::Pass => include_str!("lua/handoff_share.lua"),
            Self::Release => include_str!("lua/release.lua"),
            Self::Seal => include_str!("lua/quorum/seal.lua"),
            Self::Together => include_str!("lua/acquire_all.lua"),
            Self::Vote => include_str!("lua/quorum/vote.lua"),
            Self::Withdraw => include_str!("lua/quorum/withdraw.lua"),
        }
    }
}

/// What scripts share: the name in an `--#include` line, and the text in its place. No part includes another.
const PARTS: [(&str, &str); 11] = [
    ("clock", include_str!("lua/clock.lua")),
    ("constants", include_str!("lua/constants.lua")),
    ("counter", include_str!("lua/quorum/counter.lua")),
    ("fence", include_str!("lua/fence.lua")),
    ("lock_state", include_str!("lua/lock_state.lua")),
    ("messages", include_str!("lua/messages.lua")),
    ("revoke", include_str!("lua/revoke.lua")),
    ("share_room", include_str!("lua/share_room.lua")),
    ("shares", include_str!("lua/shares.lua")),
    ("start_counter", include_str!("lua/start_counter.lua")),
    ("wait_queue", include_str!("lua/wait_queue.lua")),
];

/// The text of a script with its parts in their places.
fn assemble(file: &str) -> String {
    PARTS.iter().fold(file.to_owned(), |text, (name, part)| {
        text.replace(&format!("--#include {name}.lua"), part)
    })
}

/// One call of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Call {
    /// Take a free lock, stand in line for it, or confirm that `token` owns it.
    Acquire {
        /// The lock.
        keys: LockKeys,
        /// Who asks.
        token: Token,
        /// The lease.
        ttl: Duration,
        /// Fences at or below it may have been issued by a history that this server lost.
        epoch: ServerTime,
        /// How many fences the grant reserves; the same in every repeat.
        block: u8,
        /// The channel that a grant is published to; empty for a caller who only polls.
        inbox: Arc<str>,
        /// What to do if the lock is held.
        intent: Intent,
        /// How much of it is asked for.
        mode: Mode,
    },
    /// Take over what `owner` has, who has passed its token on.
    Adopt {
        /// The lock.
        keys: LockKeys,
        /// Who asks.
        token: Token,
        /// As in `Acquire`, should the fence be unknown to all.
        epoch: ServerTime,
        /// Who owns it until now.
        owner: Token,
        /// The lease.
        ttl: Duration,
        /// How much of it, at most.
        mode: Mode,
    },
    /// Turn the whole lock, if it is `token`'s, into a share of it.
    Downgrade {
        /// The lock.
        keys: LockKeys,
        /// Who owns it.
        token: Token,
        /// As in `Release`.
        epoch: ServerTime,
        /// The owner's fence, which it keeps.
        fence: u64,
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
    /// Lengthen the share of `token` to at least `ttl` from now, and claim it.
    ExtendShare {
        /// The lock.
        keys: LockKeys,
        /// Who owns it.
        token: Token,
        /// The lease.
        ttl: Duration,
    },
    /// Give a lock that a majority carries to a server that lacks it.
    Fill {
        /// The lock.
        keys: LockKeys,
        /// Who owns it, with its attempt.
        token: Token,
        /// The lease.
        ttl: Duration,
        /// The last fence that is reserved for the owner.
        last: u64,
    },
    /// Free the lock whoever holds it.
    Force {
        /// The lock.
        keys: LockKeys,
        /// Who asks.
        token: Token,
        /// As in `Release`.
        epoch: ServerTime,
        /// Whether also other code's value is deleted.
        foreign: bool,
        /// As in [`Intent::Steal`]; none to be told.
        seen: Option<u64>,
    },
    /// Free the lock if `token` owns it, while its other keys are elsewhere.
    Free {
        /// The lock.
        keys: LockKeys,
        /// Who owns it.
        token: Token,
    },
    /// Give the share of `token` up, while other keys of the lock are elsewhere.
    FreeShare {
        /// The lock.
        keys: LockKeys,
        /// Who owns it.
        token: Token,
    },
    /// Keep the queue entry of `token`, while other keys of the lock are elsewhere.
    KeepEntry {
        /// The lock.
        keys: LockKeys,
        /// Who waits.
        token: Token,
    },
    /// Give the share of `token` up to another of the same process.
    Pass {
        /// The lock.
        keys: LockKeys,
        /// Who has the share.
        token: Token,
        /// As in `Acquire`.
        epoch: ServerTime,
        /// Who gets it.
        heir: Token,
        /// The heir's lease.
        ttl: Duration,
        /// What the heir wants: a share with a limit.
        mode: Mode,
    },
    /// Free the lock if `token` owns it, or give up its place in line.
    Release {
        /// The lock.
        keys: LockKeys,
        /// Who owns it.
        token: Token,
        /// As in `Acquire`: the release issues the fence of the next owner.
        epoch: ServerTime,
    },
    /// Write the fences `first` to `last` where `token` still owns the lock.
    Seal {
        /// The lock.
        keys: LockKeys,
        /// Who owns it, with its attempt.
        token: Token,
        /// The fence of the grant.
        first: u64,
        /// The last one that is reserved with it.
        last: u64,
    },
    /// Take several free locks, or none of them.
    Together {
        /// The first lock, and who asks for it.
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
        /// Who asks, without its attempt.
        token: Token,
        /// Which attempt of it.
        attempt: u64,
        /// The lease.
        ttl: Duration,
        /// Whether the caller waits and wants a message when the holder lets go.
        mark: bool,
    },
    /// Give up what `token` has on one server of a quorum, and tell those who wait.
    Withdraw {
        /// The lock.
        keys: LockKeys,
        /// Who owns it, with its attempt.
        token: Token,
    },
}

/// What an acquire does besides confirming what the token has already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Intent {
    /// Stand in line: where an earlier place was, or at the end.
    Join(Option<u64>),
    /// Nothing: keep a lock or a place in line, and get neither anew.
    Poll,
    /// Take the lock from whoever of holdfast holds it, if this is still the last fence issued: so who was
    /// granted it since is not robbed, however late the request arrives.
    Steal(u64),
    /// Take the lock only if it is free and nobody waits.
    Try,
}

/// How much of a lock somebody has or wants.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// All of it.
    #[default]
    Exclusive,
    /// A share, beside others.
    Shared {
        /// How many may have one at once when it is granted; none for any number.
        limit: Option<NonZeroU32>,
    },
}

impl Mode {
    /// A share beside any number of others.
    pub const SHARED: Self = Self::Shared { limit: None };

    /// Whether it is a share.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }
}

impl Call {
    /// Which lock it is about, of several the first.
    #[must_use]
    pub const fn keys(&self) -> &LockKeys {
        match self {
            Self::Acquire { keys, .. }
            | Self::Adopt { keys, .. }
            | Self::Downgrade { keys, .. }
            | Self::Extend { keys, .. }
            | Self::ExtendShare { keys, .. }
            | Self::Fill { keys, .. }
            | Self::Force { keys, .. }
            | Self::Free { keys, .. }
            | Self::FreeShare { keys, .. }
            | Self::KeepEntry { keys, .. }
            | Self::Pass { keys, .. }
            | Self::Release { keys, .. }
            | Self::Seal { keys, .. }
            | Self::Together { first: (keys, _), .. }
            | Self::Vote { keys, .. }
            | Self::Withdraw { keys, .. } => keys,
        }
    }

    /// Who asks.
    #[must_use]
    pub const fn token(&self) -> &Token {
        match self {
            Self::Acquire { token, .. }
            | Self::Adopt { token, .. }
            | Self::Downgrade { token, .. }
            | Self::Extend { token, .. }
            | Self::ExtendShare { token, .. }
            | Self::Fill { token, .. }
            | Self::Force { token, .. }
            | Self::Free { token, .. }
            | Self::FreeShare { token, .. }
            | Self::KeepEntry { token, .. }
            | Self::Pass { token, .. }
            | Self::Release { token, .. }
            | Self::Seal { token, .. }
            | Self::Together { first: (_, token), .. }
            | Self::Vote { token, .. }
            | Self::Withdraw { token, .. } => token,
        }
    }

    /// How many locks it is about.
    #[must_use]
    pub const fn locks(&self) -> usize {
        if let Self::Together { others, .. } = self { 1 + others.len() } else { 1 }
    }

    /// The lease that is asked for; none is zero.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        match self {
            Self::Acquire { ttl, .. }
            | Self::Adopt { ttl, .. }
            | Self::Extend { ttl, .. }
            | Self::ExtendShare { ttl, .. }
            | Self::Fill { ttl, .. }
            | Self::Pass { ttl, .. }
            | Self::Together { ttl, .. }
            | Self::Vote { ttl, .. } => *ttl,
            _ => Duration::ZERO,
        }
    }

    /// Sets what is known of the server's data as the call is sent.
    pub const fn set_epoch(&mut self, now: ServerTime) {
        match self {
            Self::Acquire { epoch, .. }
            | Self::Adopt { epoch, .. }
            | Self::Downgrade { epoch, .. }
            | Self::Force { epoch, .. }
            | Self::Pass { epoch, .. }
            | Self::Release { epoch, .. }
            | Self::Together { epoch, .. } => *epoch = now,
            _ => {}
        }
    }

    /// Every lock that it is about, and who asks for it.
    pub fn into_locks(self) -> impl Iterator<Item = (LockKeys, Token)> {
        let (keys, token) = (self.keys().clone(), self.token().clone());
        let others = if let Self::Together { others, .. } = self { others } else { Vec::new() };
        std::iter::once((keys, token)).chain(others)
    }

    /// Which script this calls.
    #[must_use]
    pub const fn script(&self) -> Script {
        match self {
            Self::Acquire { .. } => Script::Acquire,
            Self::Adopt { .. } => Script::Adopt,
            Self::Downgrade { .. } => Script::Downgrade,
            Self::Extend { .. } => Script::Extend,
            Self::ExtendShare { .. } => Script::ExtendShare,
            Self::Fill { .. } => Script::Fill,
            Self::Force { .. } => Script::Force,
            Self::Free { .. } => Script::Free,
            Self::FreeShare { .. } => Script::FreeShare,
            Self::KeepEntry { .. } => Script::KeepEntry,
            Self::Pass { .. } => Script::Pass,
            Self::Release { .. } => Script::Release,
            Self::Seal { .. } => Script::Seal,
            Self::Together { .. } => Script::Together,
            Self::Vote { .. } => Script::Vote,
            Self::Withdraw { .. } => Script::Withdraw,
        }
    }
}

/// What a script answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// `acquire`, `adopt`, `extend_share`: the lock is the token's, with this fence. `pass`: the share is the heir's.
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
    /// `release`, `force`: free, but the line is so long that it is to be asked again to pass the lock on.
    /// `pass`: not passed on, since more than the heir's limit have a share; it is to be released.
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
    /// The asker's place in line, if it has one.
    pub place: Option<Place>,
    /// The last fence issued; 0 if none is known.
    pub last: u64,
}

/// A place in line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// 1 for who is next.
    pub position: u32,
    /// Orders the line, and gives a place back to who has lost it.
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

/// The channel on which those who wait for a lock of a quorum hear that it may be free.
#[must_use]
pub fn free_channel(keys: &LockKeys) -> Arc<str> {
    format!("holdfast:free:{}", keys.lock()).into()
}

/// A lease that is granted by a message lasts so long at most, until its owner has claimed it.
/// The same number stands in `lua/wait_queue.lua`.
pub const CLAIM: Duration = Duration::from_secs(3);

/// How long a client may rely on a lease of `ttl` that it asked for at `sent`.
///
/// Counted from before the request left, less 1 % + 2 ms for clocks that run at different speeds:
/// <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>
#[must_use]
pub fn valid_until(sent: Mono, ttl: Duration) -> Mono {
    sent + ttl.saturating_sub(drift(ttl))
}

/// Clocks may run apart by this part of a time: 1 %.
pub(crate) const DRIFT: u32 = 100;

/// How much of a lease is not relied on.
#[must_use]
pub fn drift(ttl: Duration) -> Duration {
    ttl / DRIFT + Duration::from_millis(2)
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
            let (header, body) = script.file().split_once("]]").expect("a header");
            for part in ["KEYS", "ARGV", "REPLY", "WRITES", "AGAIN", "FAILS"] {
                assert!(header.contains(&format!("\n  {part} ")), "{script:?} lacks {part}");
            }
            for list in ["KEYS", "ARGV"] {
                let line = header.lines().find(|line| line.trim_start().starts_with(list));
                let stated = line.map_or(0, |line| line.split_whitespace().skip(1).count() / 2);
                let used = (1..10_u32).filter(|i| body.contains(&format!("{list}[{i}]"))).count();
                assert_eq!(stated, used, "{script:?}: {list}");
            }
        }
    }

    #[test]
    fn every_part_is_in_its_place() {
        for script in Script::ALL {
            let includes = script.file().lines().filter(|line| line.contains("--#include"));
            for line in includes {
                let name = line.trim_start().trim_start_matches("--#include ");
                let known = PARTS.iter().any(|(part, _)| format!("{part}.lua") == name);
                assert!(known, "{script:?} includes {name:?}");
            }
        }
        assert!(PARTS.iter().all(|(_, part)| !part.contains("--#include")));
        assert!(Script::Release.source().contains("local function serve_queue"));
    }

    #[test]
    fn the_claim_is_as_long_here_as_in_the_scripts() {
        let line = format!("local CLAIM_MS = {}", CLAIM.as_millis());
        assert!(Script::Release.source().contains(&line));
    }
}
