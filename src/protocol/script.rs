//! The Lua scripts.

use std::sync::LazyLock;

/// The text of a file of `lua/`.
#[cfg(not(test))]
macro_rules! text {
    ($file:literal) => {
        include_str!(concat!("lua/", $file))
    };
}

/// Tests read it when they run, so that a changed line of Lua compiles nothing.
#[cfg(test)]
macro_rules! text {
    ($file:literal) => {
        tests::read($file)
    };
}

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
        static SOURCES: LazyLock<[String; Script::ALL.len()]> = LazyLock::new(|| {
            let parts = parts();
            Script::ALL.map(|script| assemble(script.file(), &parts))
        });
        // The variants count from 0, in the order of the list.
        &SOURCES[self as usize]
    }

    fn file(self) -> &'static str {
        match self {
            Self::Acquire => text!("acquire.lua"),
            Self::AcquireUnqueued => text!("acquire_unqueued.lua"),
            Self::Adopt => text!("adopt.lua"),
            Self::ChangeShares => text!("change_shares.lua"),
            Self::Claim => text!("claim.lua"),
            Self::Delete => text!("delete.lua"),
            Self::Downgrade => text!("downgrade.lua"),
            Self::Extend => text!("extend.lua"),
            Self::ExtendShare => text!("extend_share.lua"),
            Self::CopyLock => text!("quorum/copy_lock.lua"),
            Self::Force => text!("force.lua"),
            Self::Free => text!("free.lua"),
            Self::FreeShare => text!("free_share.lua"),
            Self::Inspect => text!("inspect.lua"),
            Self::KeepEntry => text!("keep_entry.lua"),
            Self::KeepForeign => text!("keep_foreign.lua"),
            Self::KeepLock => text!("keep_lock.lua"),
            Self::KeepShare => text!("keep_share.lua"),
            Self::HandoffShare => text!("handoff_share.lua"),
            Self::Release => text!("release.lua"),
            Self::Reserve => text!("reserve.lua"),
            Self::WriteFence => text!("quorum/write_fence.lua"),
            Self::AcquireAll => text!("acquire_all.lua"),
            Self::Vote => text!("quorum/vote.lua"),
            Self::Withdraw => text!("quorum/withdraw.lua"),
        }
    }
}

/// The parts that scripts share: the name in an `--#include` line, and the text that replaces it. No part includes
/// another.
fn parts() -> [(&'static str, &'static str); 18] {
    [
        ("clock", text!("clock.lua")),
        ("constants", text!("constants.lua")),
        ("counter", text!("counter.lua")),
        ("enqueue", text!("enqueue.lua")),
        ("fence", text!("fence.lua")),
        ("lengthen_lock", text!("lengthen_lock.lua")),
        ("lengthen_share", text!("lengthen_share.lua")),
        ("lock_state", text!("lock_state.lua")),
        ("messages", text!("messages.lua")),
        ("next_fence", text!("next_fence.lua")),
        ("open_counter", text!("open_counter.lua")),
        ("open_lock", text!("open_lock.lua")),
        ("permits", text!("permits.lua")),
        ("room_for_one", text!("room_for_one.lua")),
        ("revoke", text!("revoke.lua")),
        ("shares", text!("shares.lua")),
        ("start_counter", text!("start_counter.lua")),
        ("wait_queue", text!("wait_queue.lua")),
    ]
}

/// The text of a script with its parts inserted.
fn assemble(file: &str, parts: &[(&str, &str)]) -> String {
    parts.iter().fold(file.to_owned(), |text, (name, part)| {
        text.replace(&format!("--#include {name}.lua"), part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::COUNTER_AHEAD_MAX;
    use crate::protocol::validity::CLAIM;
    use std::fs;

    /// A file of `lua/` as it is now, or of the folder that takes its place.
    pub(super) fn read(file: &str) -> &'static str {
        let lua = concat!(env!("CARGO_MANIFEST_DIR"), "/src/protocol/lua").to_owned();
        let path = format!("{}/{file}", std::env::var("HOLDFAST_LUA").unwrap_or(lua));
        fs::read_to_string(&path).expect(&path).leak()
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
        let parts = parts();
        for script in Script::ALL {
            let includes = script.file().lines().filter(|line| line.contains("--#include"));
            for line in includes {
                let name = line.trim_start().trim_start_matches("--#include ");
                let known = parts.iter().any(|(part, _)| format!("{part}.lua") == name);
                assert!(known, "{script:?} includes {name:?}");
            }
        }
        assert!(parts.iter().all(|(_, part)| !part.contains("--#include")), "no part is nested");
        assert!(
            Script::Release.source().contains("local function serve_queue"),
            "the release has the part that serves the queue"
        );
    }

    #[test]
    fn a_counter_may_be_as_far_ahead_here_as_in_the_scripts() {
        let line = format!("local AHEAD_US = {}\n", COUNTER_AHEAD_MAX.as_micros());
        assert!(Script::Acquire.source().contains(&line), "the script has this limit of a counter");
    }

    #[test]
    fn the_claim_is_as_long_here_as_in_the_scripts() {
        let line = format!("local CLAIM_MS = '{}'", CLAIM.as_millis());
        assert!(Script::Release.source().contains(&line), "the script has this claim");
    }
}
