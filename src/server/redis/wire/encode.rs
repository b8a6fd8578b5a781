//! From calls of scripts to commands.

use super::super::command::{Command, Word};
use super::super::dialect::Delete;
use crate::protocol::message::free_channel;
use crate::protocol::{Call, Counters, Intent, LockKeys, Mode, Script, SendMode, Token};
use std::num::NonZeroU64;
use std::sync::LazyLock;
use std::time::Duration;

/// Writes a command that runs the script of `call`, with keys and arguments in the order of the script's header.
pub(super) fn write_script(
    command: &mut Command,
    call: &Call,
    send_mode: SendMode,
    counters: Counters,
) {
    let Some(script) = call.script() else { return };
    command.begin_script(script, send_mode);
    match call {
        Call::Take { .. } | Call::TakeAll { .. } => command,
        Call::Acquire { keys, token, ttl, epoch, block, inbox, intent, mode } => {
            command.push_queue_keys(keys, counters).arg(token);
            command.arg(*ttl).arg(*epoch).arg(&**inbox);
            command.push_terms(intent, *mode, *block)
        }
        Call::AcquireAll { first, others, ttl, epoch } => {
            let locks = || std::iter::once(first).chain(others);
            command.arg(3 * call.locks() as u64);
            for (keys, _) in locks() {
                let [_, queue, ..] = keys.side_keys();
                command.arg(keys.lock()).arg(keys.counter(counters)).arg(queue);
            }
            command.arg(*ttl).arg(*epoch).push_tokens(locks().map(|(_, token)| token))
        }
        Call::Adopt { keys, token, epoch, owner, ttl, mode } => {
            command.push_queue_keys(keys, counters).arg(token).arg(*epoch);
            command.arg(owner).arg(*ttl).push_limit(*mode)
        }
        Call::ChangeShares { keys, token: _, ttl, epoch, taking, leaving } => {
            let [_, queue, _, shared, _] = keys.side_keys();
            command.arg(4).arg(keys.lock()).arg(keys.counter(counters)).arg(queue).arg(shared);
            command.arg(taking.len() as u64).arg(*ttl).arg(*epoch);
            command.push_tokens(taking).push_tokens(leaving)
        }
        Call::Claim { keys, token, ttl } => {
            let [_, _, waiters, ..] = keys.side_keys();
            command.arg(2).arg(keys.lock()).arg(waiters).arg(token).arg(*ttl)
        }
        Call::CopyLock { keys, token, ttl, last } => {
            command.push_lock_and_own_fence(keys).arg(token).arg(*ttl).arg(*last)
        }
        Call::Delete { keys, token } | Call::Free { keys, token } => {
            command.push_lock(keys).arg(token)
        }
        Call::Downgrade { keys, token, epoch, fence } => {
            command.push_queue_keys(keys, counters).arg(token).arg(*epoch).arg(*fence)
        }
        Call::Extend { keys, token, ttl }
        | Call::KeepForeign { keys, token, ttl }
        | Call::Renew { keys, token, ttl } => command.push_lock(keys).arg(token).arg(*ttl),
        Call::ExtendShare { keys, token, ttl, fence } => {
            command.push_lock_and_shared(keys).arg(token).arg(*ttl).arg(*fence)
        }
        Call::Force { keys, token, epoch, foreign, seen, owners } => {
            command.push_queue_keys(keys, counters).arg(token).arg(*epoch);
            command.arg(if *foreign { "foreign" } else { "" }).arg(seen.as_deref().unwrap_or(""));
            command.push_tokens(&**owners)
        }
        Call::FreeShare { keys, token } => command.push_lock_and_shared(keys).arg(token),
        Call::HandoffShare { keys, token, epoch, successor, ttl, mode } => {
            let [_, queue, _, shared, _] = keys.side_keys();
            command.arg(4).arg(keys.lock()).arg(keys.counter(counters)).arg(shared).arg(queue);
            command.arg(token).arg(*epoch).arg(successor).arg(*ttl).push_limit(*mode)
        }
        Call::KeepEntry { keys, token } => {
            let [_, queue, waiters, ..] = keys.side_keys();
            command.arg(2).arg(queue).arg(waiters).arg(token)
        }
        Call::KeepLock { keys, ttl, .. } => command.push_lock(keys).arg(*ttl),
        Call::KeepShare { keys, token, ttl } => {
            let [.., shared, _] = keys.side_keys();
            command.arg(1).arg(shared).arg(token).arg(*ttl)
        }
        Call::Release { keys, token, epoch, shared: _ } => {
            command.push_queue_keys(keys, counters).arg(token).arg(*epoch)
        }
        Call::Reserve { keys, token, ttl, epoch, block } => {
            let [_, queue, ..] = keys.side_keys();
            command.arg(3).arg(keys.lock()).arg(keys.counter(counters)).arg(queue);
            command.arg(token).arg(*ttl).arg(*epoch).arg(u64::from(*block))
        }
        Call::Vote { keys, token, attempt, ttl, mark, fences: (first, last) } => {
            command.push_lock_and_own_fence(keys).arg(token).arg(*attempt).arg(*ttl);
            command.arg(u64::from(*mark)).arg(*first).arg(*last)
        }
        Call::Withdraw { keys, token } => {
            command.push_lock(keys).arg(token).arg(&*free_channel(keys))
        }
        Call::WriteFence { keys, token, first, last } => {
            command.push_lock_and_own_fence(keys).arg(token).arg(*first).arg(*last)
        }
    };
}

/// The command that asks for at most `most` holders and waiters of a lock; `foreign`: for the value of other code, too.
pub(in crate::server) fn inspection(
    keys: &LockKeys,
    most: u64,
    foreign: bool,
    with_source: bool,
) -> Command {
    let mut command = Command::new();
    let send_mode = if with_source { SendMode::WithSource } else { SendMode::Plain };
    command.begin_script(Script::Inspect, send_mode);
    let [_, queue, waiters, shared, _] = keys.side_keys();
    command.arg(4).arg(keys.lock()).arg(queue).arg(waiters).arg(shared).arg(most);
    command.arg(if foreign { "foreign" } else { "" });
    command
}

/// The SHA-1 of a script, by which a server that has seen its text can run it.
fn hash(script: Script) -> &'static str {
    static HASHES: LazyLock<[String; Script::ALL.len()]> = LazyLock::new(|| {
        Script::ALL.map(|script| redis::Script::new(script.source()).get_hash().to_owned())
    });
    // The enum counts from 0, in the order of `ALL`.
    &HASHES[script as usize]
}

/// The parts that several calls have.
impl Command {
    /// Begins a command that runs `script`: by its hash, or with its source.
    pub(super) fn begin_script(&mut self, script: Script, send_mode: SendMode) {
        match send_mode {
            SendMode::Plain | SendMode::Alone | SendMode::Redirected => {
                self.arg(Word::EVALSHA).arg(hash(script))
            }
            SendMode::WithSource | SendMode::Asking(_) => self.arg("EVAL").arg(script.source()),
        };
    }

    /// A compare-and-delete without a script.
    pub(super) fn push_native_delete(&mut self, delete: Delete, keys: &LockKeys, token: &Token) {
        match delete {
            Delete::Script => self,
            Delete::Delifeq => self.arg("DELIFEQ").arg(keys.lock()),
            Delete::Delex => self.arg("DELEX").arg(keys.lock()).arg("IFEQ"),
        }
        .arg(token);
    }

    /// A renewal without a script.
    pub(super) fn push_renewal(&mut self, keys: &LockKeys, token: &Token, ttl: Duration) {
        self.arg(Word::SET).arg(keys.lock()).arg(token);
        self.arg(Word::IFEQ).arg(token).arg(Word::PX).arg(ttl);
    }

    /// The key of the lock alone.
    fn push_lock(&mut self, keys: &LockKeys) -> &mut Self {
        self.arg(1).arg(keys.lock())
    }

    /// The keys of a lock of a quorum, which has no wait queue.
    fn push_lock_and_own_fence(&mut self, keys: &LockKeys) -> &mut Self {
        let [fence, ..] = keys.side_keys();
        self.arg(2).arg(keys.lock()).arg(fence)
    }

    /// The keys that exist as long as a lock is shared.
    fn push_lock_and_shared(&mut self, keys: &LockKeys) -> &mut Self {
        let [.., shared, _] = keys.side_keys();
        self.arg(2).arg(keys.lock()).arg(shared)
    }

    /// The keys of a script that may write the wait queue.
    fn push_queue_keys(&mut self, keys: &LockKeys, counters: Counters) -> &mut Self {
        let [_, queue, waiters, shared, waiting] = keys.side_keys();
        self.arg(6).arg(keys.lock()).arg(keys.counter(counters));
        self.arg(queue).arg(waiters).arg(shared).arg(waiting)
    }

    /// How the lock is asked for. The common case omits it: the server makes a Lua value of each argument.
    fn push_terms(&mut self, intent: &Intent, mode: Mode, block: u8) -> &mut Self {
        if (intent, mode, block) == (&Intent::Join(None), Mode::Exclusive, 1) {
            return self;
        }
        self.push_intent(intent).push_limit(mode).arg(u64::from(block));
        if let Intent::Steal(seen) = intent { self.arg(&**seen) } else { self }
    }

    fn push_intent(&mut self, intent: &Intent) -> &mut Self {
        match intent {
            Intent::Join(seq) => self.arg(seq.unwrap_or(0)),
            Intent::Poll => self.arg("poll"),
            Intent::Steal(_) => self.arg("steal"),
            Intent::Try => self.arg("try"),
        }
    }

    /// The whole lock, or the limit of the share that is asked for.
    fn push_limit(&mut self, mode: Mode) -> &mut Self {
        match mode {
            Mode::Exclusive => self.arg("-"),
            Mode::Shared { limit, .. } => self.arg(limit.map_or(0, NonZeroU64::get)),
        }
    }

    fn push_tokens<'a>(&mut self, tokens: impl IntoIterator<Item = &'a Token>) -> &mut Self {
        tokens.into_iter().fold(self, |command, token| command.arg(token))
    }
}
