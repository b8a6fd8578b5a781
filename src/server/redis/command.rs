//! A command on its way to a server. Only the commands of every day are written with it; the `redis` crate writes the
//! others.

use crate::protocol::keys::SLOT_COUNTER;
use crate::protocol::{CounterKey, ServerTime, SideKey, Token};
use std::time::Duration;

/// One command, in the form in which a server reads it. It may be used for one command after the other, and keeps its
/// memory.
///
/// Source: <https://redis.io/docs/latest/develop/reference/protocol-spec/#sending-commands-to-a-redis-server>
#[derive(Debug, Default)]
pub(crate) struct Command {
    /// Its parts, each with its length before it.
    bytes: Vec<u8>,
    /// The number of its parts.
    count: usize,
}

const LINE_END: &[u8; 2] = b"\r\n";

impl Command {
    pub(in crate::server) const fn new() -> Self {
        Self { bytes: Vec::new(), count: 0 }
    }

    /// Begins another command.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    pub(super) fn arg(&mut self, part: impl Part) -> &mut Self {
        part.append_to(self);
        self
    }

    /// Adds the part that consists of `pieces`.
    #[inline]
    fn add<const N: usize>(&mut self, pieces: [&str; N]) {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        append_head(&mut self.bytes, b'$', length);
        for piece in pieces {
            self.bytes.extend_from_slice(piece.as_bytes());
        }
        self.bytes.extend_from_slice(LINE_END);
        self.count += 1;
    }

    pub(in crate::server) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &*self.bytes;
        std::iter::from_fn(move || {
            let head = rest.iter().position(|byte| *byte == b'\n')? + 1;
            let length = str::from_utf8(&rest[1..head]).ok()?.trim_end().parse().ok()?;
            let (part, others) = rest[head..].split_at_checked(length)?;
            rest = &others[LINE_END.len()..];
            Some(part)
        })
    }

    /// KEYS and ARGV of a command that runs a script.
    pub(crate) fn keys_and_arguments(&self) -> (Vec<&[u8]>, Vec<&[u8]>) {
        let mut parts = self.parts().skip(2);
        let count = parts.next().and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
        let keys = parts.by_ref().take(count.unwrap_or(0)).collect();
        (keys, parts.collect())
    }

    /// Appends the command.
    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        append_head(out, b'*', self.count);
        out.extend_from_slice(&self.bytes);
    }
}

/// Appends the line before `count` parts, or before a part of `count` bytes.
#[inline]
fn append_head(out: &mut Vec<u8>, kind: u8, count: usize) {
    match u8::try_from(count) {
        // Nearly all are short, and need no formatter.
        Ok(count @ ..10) => out.extend_from_slice(&[kind, b'0' + count, b'\r', b'\n']),
        Ok(count @ ..100) => {
            out.extend_from_slice(&[kind, b'0' + count / 10, b'0' + count % 10, b'\r', b'\n']);
        }
        _ => {
            out.push(kind);
            out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
            out.extend_from_slice(LINE_END);
        }
    }
}

/// The same command for a client of the `redis` crate.
impl From<&Command> for redis::Cmd {
    fn from(command: &Command) -> Self {
        let mut cmd = Self::with_capacity(command.count, command.bytes.len());
        for part in command.parts() {
            cmd.arg(part);
        }
        cmd
    }
}

/// A part that many commands have, as a server reads it: with its length before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word(&'static str);

impl Word {
    pub(super) const EVALSHA: Self = Self("$7\r\nEVALSHA\r\n");
    pub(super) const IFEQ: Self = Self("$4\r\nIFEQ\r\n");
    pub(super) const INCRBY: Self = Self("$6\r\nINCRBY\r\n");
    pub(super) const MGET: Self = Self("$4\r\nMGET\r\n");
    pub(super) const MSETEX: Self = Self("$6\r\nMSETEX\r\n");
    pub(super) const NX: Self = Self("$2\r\nNX\r\n");
    pub(super) const PX: Self = Self("$2\r\nPX\r\n");
    pub(super) const SET: Self = Self("$3\r\nSET\r\n");
    /// The key of the fence counter of a server.
    const COUNTER: Self = Self("$14\r\nholdfast:fence\r\n");
}

impl Part for Word {
    fn append_to(self, command: &mut Command) {
        command.bytes.extend_from_slice(self.0.as_bytes());
        command.count += 1;
    }
}

/// One part of a command.
pub(super) trait Part: Copy {
    fn append_to(self, command: &mut Command);
}

impl Part for &str {
    fn append_to(self, command: &mut Command) {
        command.add([self]);
    }
}

impl Part for u64 {
    fn append_to(self, command: &mut Command) {
        command.add([itoa::Buffer::new().format(self)]);
    }
}

impl Part for &Token {
    fn append_to(self, command: &mut Command) {
        self.as_str().append_to(command);
    }
}

/// In ms.
impl Part for Duration {
    fn append_to(self, command: &mut Command) {
        u64::try_from(self.as_millis()).unwrap_or(u64::MAX).append_to(command);
    }
}

/// In µs since 1970.
impl Part for ServerTime {
    fn append_to(self, command: &mut Command) {
        self.as_micros().append_to(command);
    }
}

impl Part for SideKey<'_> {
    fn append_to(self, command: &mut Command) {
        command.add(self.parts());
    }
}

impl Part for CounterKey<'_> {
    fn append_to(self, command: &mut Command) {
        match self {
            Self::Server => Word::COUNTER.append_to(command),
            Self::Slot(tag) => {
                let (before, after) = SLOT_COUNTER;
                command.add([before, itoa::Buffer::new().format(tag), after]);
            }
            Self::Lock(key) => command.add(key.parts()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::LockKeys;
    use crate::protocol::keys::COUNTER;

    #[test]
    fn a_command_is_written_as_the_redis_crate_writes_it() {
        let keys = LockKeys::new("lock:", "ä");
        let mut command = Command::new();
        command.arg("EVALSHA").arg("").arg(2).arg(keys.lock()).arg(keys.side_keys()[0]);
        command.arg(u64::MAX).arg(0);
        let mut out = b"+".to_vec();
        command.write_to(&mut out);
        assert_eq!(out[1..], redis::Cmd::from(&command).get_packed_command());
        let (keys, arguments) = command.keys_and_arguments();
        assert_eq!(keys, ["lock:ä".as_bytes(), "{lock:ä}:fence".as_bytes()]);
        assert_eq!(arguments, [u64::MAX.to_string().as_bytes(), b"0"]);
    }

    #[test]
    fn a_word_is_written_like_any_part() {
        let [mut words, mut parts] = [Command::new(), Command::new()];
        words.arg(Word::EVALSHA).arg(Word::INCRBY).arg(Word::MGET).arg(Word::NX).arg(Word::PX);
        words.arg(Word::SET).arg(Word::IFEQ).arg(Word::MSETEX).arg(CounterKey::Server);
        parts.arg("EVALSHA").arg("INCRBY").arg("MGET").arg("NX").arg("PX");
        parts.arg("SET").arg("IFEQ").arg("MSETEX").arg(COUNTER);
        assert_eq!((words.bytes, words.count), (parts.bytes, parts.count));
    }

    #[test]
    fn a_command_that_is_used_again_has_nothing_of_the_last() {
        let mut command = Command::new();
        command.arg("PING").arg("hello");
        command.clear();
        let mut out = Vec::new();
        command.arg("PING").write_to(&mut out);
        assert_eq!(out, b"*1\r\n$4\r\nPING\r\n");
    }
}
