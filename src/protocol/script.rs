//! The Lua scripts.

use std::sync::LazyLock;

/// A script of `lua/`. Each file's header states its KEYS, ARGV and reply.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Script {
    /// `acquire.lua`
    Acquire,
    /// `acquire_unqueued.lua`
    AcquireUnqueued,
    /// `adopt.lua`
    Adopt,
    /// `change_shares.lua`
    ChangeShares,
    /// `claim.lua`
    Claim,
    /// `delete.lua`
    Delete,
    /// `downgrade.lua`
    Downgrade,
    /// `extend.lua`
    Extend,
    /// `extend_share.lua`
    ExtendShare,
    /// `quorum/copy_lock.lua`
    CopyLock,
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
    /// `keep_foreign.lua`
    KeepForeign,
    /// `keep_lock.lua`
    KeepLock,
    /// `keep_share.lua`
    KeepShare,
    /// `handoff_share.lua`
    HandoffShare,
    /// `release.lua`
    Release,
    /// `reserve.lua`
    Reserve,
    /// `quorum/write_fence.lua`
    WriteFence,
    /// `acquire_all.lua`
    AcquireAll,
    /// `quorum/vote.lua`
    Vote,
    /// `quorum/withdraw.lua`
    Withdraw,
}

impl Script {
    /// Every script, in the order of the enum.
    pub const ALL: [Self; 25] = [
        Self::Acquire,
        Self::AcquireUnqueued,
        Self::Adopt,
        Self::ChangeShares,
        Self::Claim,
        Self::Delete,
        Self::Downgrade,
        Self::Extend,
        Self::ExtendShare,
        Self::CopyLock,
        Self::Force,
        Self::Free,
        Self::FreeShare,
        Self::Inspect,
        Self::KeepEntry,
        Self::KeepForeign,
        Self::KeepLock,
        Self::KeepShare,
        Self::HandoffShare,
        Self::Release,
        Self::Reserve,
        Self::WriteFence,
        Self::AcquireAll,
        Self::Vote,
        Self::Withdraw,
    ];

    /// Those that the servers of a quorum run, besides [`Self::Inspect`].
    pub const OF_QUORUMS: [Self; 5] =
        [Self::Extend, Self::CopyLock, Self::WriteFence, Self::Vote, Self::Withdraw];

    /// Those that a server runs whose scripts cannot read its clock.
    pub const WITHOUT_CLOCK: [Self; 6] = [
        Self::AcquireUnqueued,
        Self::Claim,
        Self::Delete,
        Self::Extend,
        Self::Free,
        Self::KeepForeign,
    ];

    /// The Lua text as it is sent to the server.
    #[must_use]
    pub fn source(self) -> &'static str {
        static SOURCES: LazyLock<[String; Script::ALL.len()]> =
            LazyLock::new(|| Script::ALL.map(|script| assemble(script.file())));
        // The variants count from 0, in the order of the list.
        &SOURCES[self as usize]
    }

    const fn file(self) -> &'static str {
        match self {
            Self::Acquire => include_str!("lua/acquire.lua"),
            Self::AcquireUnqueued => include_str!("lua/acquire_unqueued.lua"),
            Self::Adopt => include_str!("lua/adopt.lua"),
            Self::ChangeShares => include_str!("lua/change_shares.lua"),
            Self::Claim => include_str!("lua/claim.lua"),
            Self::Delete => include_str!("lua/delete.lua"),
            Self::Downgrade => include_str!("lua/downgrade.lua"),
            Self::Extend => include_str!("lua/extend.lua"),
            Self::ExtendShare => include_str!("lua/extend_share.lua"),
            Self::CopyLock => include_str!("lua/quorum/copy_lock.lua"),
            Self::Force => include_str!("lua/force.lua"),
            Self::Free => include_str!("lua/free.lua"),
            Self::FreeShare => include_str!("lua/free_share.lua"),
            Self::Inspect => include_str!("lua/inspect.lua"),
            Self::KeepEntry => include_str!("lua/keep_entry.lua"),
            Self::KeepForeign => include_str!("lua/keep_foreign.lua"),
            Self::KeepLock => include_str!("lua/keep_lock.lua"),
            Self::KeepShare => include_str!("lua/keep_share.lua"),
            Self::HandoffShare => include_str!("lua/handoff_share.lua"),
            Self::Release => include_str!("lua/release.lua"),
            Self::Reserve => include_str!("lua/reserve.lua"),
            Self::WriteFence => include_str!("lua/quorum/write_fence.lua"),
            Self::AcquireAll => include_str!("lua/acquire_all.lua"),
            Self::Vote => include_str!("lua/quorum/vote.lua"),
            Self::Withdraw => include_str!("lua/quorum/withdraw.lua"),
        }
    }
}

/// The parts that scripts share: the name in an `--#include` line, and the text that replaces it. No part includes
/// another.
const PARTS: [(&str, &str); 18] = [
    ("clock", include_str!("lua/clock.lua")),
    ("constants", include_str!("lua/constants.lua")),
    ("counter", include_str!("lua/counter.lua")),
    ("enqueue", include_str!("lua/enqueue.lua")),
    ("fence", include_str!("lua/fence.lua")),
    ("lengthen_lock", include_str!("lua/lengthen_lock.lua")),
    ("lengthen_share", include_str!("lua/lengthen_share.lua")),
    ("lock_state", include_str!("lua/lock_state.lua")),
    ("messages", include_str!("lua/messages.lua")),
    ("next_fence", include_str!("lua/next_fence.lua")),
    ("open_counter", include_str!("lua/open_counter.lua")),
    ("open_lock", include_str!("lua/open_lock.lua")),
    ("permits", include_str!("lua/permits.lua")),
    ("room_for_one", include_str!("lua/room_for_one.lua")),
    ("revoke", include_str!("lua/revoke.lua")),
    ("shares", include_str!("lua/shares.lua")),
    ("start_counter", include_str!("lua/start_counter.lua")),
    ("wait_queue", include_str!("lua/wait_queue.lua")),
];

/// The text of a script with its parts inserted.
fn assemble(file: &str) -> String {
    PARTS.iter().fold(file.to_owned(), |text, (name, part)| {
        text.replace(&format!("--#include {name}.lua"), part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::COUNTER_AHEAD_MAX;
    use crate::protocol::validity::CLAIM;

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
    fn a_counter_may_be_as_far_ahead_here_as_in_the_scripts() {
        let line = format!("local AHEAD_US = {}\n", COUNTER_AHEAD_MAX.as_micros());
        assert!(Script::Acquire.source().contains(&line));
    }

    #[test]
    fn the_claim_is_as_long_here_as_in_the_scripts() {
        let line = format!("local CLAIM_MS = '{}'", CLAIM.as_millis());
        assert!(Script::Release.source().contains(&line));
    }
}
