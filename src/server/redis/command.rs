//! A command on its way to a server. Only the commands of every day are written with it; the `redis` crate writes the
//! others.

use crate::protocol::{CounterKey, SideKey};
use std::io::Write;

/// The parts of one command. It may be used for one command after the other, and keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct Command {
    bytes: Vec<u8>,
    /// Where each part ends in `bytes`.
    ends: Vec<usize>,
}

impl Command {
    pub(in crate::server) const fn new() -> Self {
        Self { bytes: Vec::new(), ends: Vec::new() }
    }

    /// Begins another command.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(super) fn arg(&mut self, part: impl Part) -> &mut Self {
        part.append_to(&mut self.bytes);
        self.ends.push(self.bytes.len());
        self
    }

    pub(in crate::server) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    /// KEYS and ARGV of a command that runs a script.
    pub(crate) fn keys_and_arguments(&self) -> (Vec<&[u8]>, Vec<&[u8]>) {
        let mut parts = self.parts().skip(2);
        let count = parts.next().and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
        let keys = parts.by_ref().take(count.unwrap_or(0)).collect();
        (keys, parts.collect())
    }

    /// Appends the command as the array of strings that a server reads.
    ///
    /// Source: <https://redis.io/docs/latest/develop/reference/protocol-spec/#sending-commands-to-a-redis-server>
    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        let mut digits = itoa::Buffer::new();
        let mut head = |out: &mut Vec<u8>, kind: u8, count: usize| {
            out.push(kind);
            out.extend_from_slice(digits.format(count).as_bytes());
            out.extend_from_slice(b"\r\n");
        };
        head(out, b'*', self.ends.len());
        for part in self.parts() {
            head(out, b'$', part.len());
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// The same command for a client of the `redis` crate.
impl From<&Command> for redis::Cmd {
    fn from(command: &Command) -> Self {
        let mut cmd = Self::with_capacity(command.ends.len(), command.bytes.len());
        for part in command.parts() {
            cmd.arg(part);
        }
        cmd
    }
}

/// One part of a command.
pub(super) trait Part: Copy {
    fn append_to(&self, bytes: &mut Vec<u8>);
}

impl Part for &str {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.as_bytes());
    }
}

impl Part for u64 {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(itoa::Buffer::new().format(*self).as_bytes());
    }
}

impl Part for SideKey<'_> {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        for part in self.parts() {
            bytes.extend_from_slice(part.as_bytes());
        }
    }
}

impl Part for CounterKey<'_> {
    fn append_to(&self, bytes: &mut Vec<u8>) {
        // Writing to memory cannot fail.
        let _written = write!(bytes, "{self}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::LockKeys;

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
    fn a_command_that_is_used_again_has_nothing_of_the_last() {
        let mut command = Command::new();
        command.arg("PING").arg("hello");
        command.clear();
        let mut out = Vec::new();
        command.arg("PING").write_to(&mut out);
        assert_eq!(out, b"*1\r\n$4\r\nPING\r\n");
    }
}
