//! Which Redis keys a lock uses.

use std::fmt;
use std::sync::Arc;

/// The keys of one lock, all in one Cluster slot.
///
/// The lock itself is `prefix + name`, a plain string. Its side keys carry the same hash tag:
/// `{lock}:fence` where the lock has none of its own, `lock::fence` where it has. The two forms
/// differ in the character before their suffix, because otherwise the locks `a` and `{a}` would
/// share their side keys.
///
/// Source of the hash tag rule: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LockKeys(Arc<str>);

/// A key beside that of a lock, as parts: a manager may hold very many locks, so none is kept as text.
#[derive(Clone, Copy, Debug)]
pub struct SideKey<'a> {
    lock: &'a str,
    tagged: bool,
    suffix: &'static str,
}

impl fmt::Display for SideKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().into_iter().try_for_each(|part| f.write_str(part))
    }
}

impl SideKey<'_> {
    /// The parts of its text, in order.
    #[must_use]
    pub const fn parts(&self) -> [&str; 4] {
        let (open, close) = if self.tagged { ("", "::") } else { ("{", "}:") };
        [open, self.lock, close, self.suffix]
    }
}

impl LockKeys {
    /// The keys of the lock `name` under `prefix`.
    #[must_use]
    pub fn new(prefix: &str, name: &str) -> Self {
        Self([prefix, name].concat().into())
    }

    /// A lock by the key that stands in Redis, prefix included.
    #[must_use]
    pub fn from_key(key: &str) -> Self {
        Self(key.into())
    }

    /// The key that exists exactly while the lock is held.
    #[must_use]
    pub fn lock(&self) -> &str {
        &self.0
    }

    /// The key of the lock that a script's error names, if any.
    #[must_use]
    pub fn named_by(&self, error: &str) -> Option<String> {
        let sides = self.side_keys().map(|key| key.to_string());
        let mut keys = sides.into_iter().chain([self.lock().to_owned()]);
        keys.find(|key| error.strip_prefix(key).is_some_and(|rest| rest.starts_with(" is not ")))
    }

    /// The key that an error is about: that of the lock, unless the error names another.
    #[must_use]
    pub fn blamed_by(&self, error: &str) -> String {
        self.named_by(error).unwrap_or_else(|| self.lock().to_owned())
    }

    /// The part of the lock's key that decides its slot, for other keys and channels of that slot.
    #[must_use]
    pub fn tag(&self) -> &str {
        hash_tag(self.lock()).unwrap_or_else(|| self.lock())
    }

    /// Its Cluster slot.
    #[must_use]
    pub fn slot(&self) -> u16 {
        crc16(self.tag().as_bytes()) % SLOTS
    }

    /// The keys of its fences, its wait queue, its waiters, and its shares.
    #[must_use]
    pub fn side_keys(&self) -> [SideKey<'_>; 4] {
        let lock = self.lock();
        let tagged = hash_tag(lock).is_some();
        ["fence", "queue", "waiters", "shared"].map(|suffix| SideKey { lock, tagged, suffix })
    }
}

/// The side keys as text, for tests that read them on a server.
#[cfg(test)]
impl LockKeys {
    /// The key of the last fence issued.
    pub(crate) fn fence(&self) -> String {
        self.side_keys()[0].to_string()
    }

    /// The key of the wait queue.
    pub(crate) fn queue(&self) -> String {
        self.side_keys()[1].to_string()
    }

    /// The key of the waiters' records.
    pub(crate) fn waiters(&self) -> String {
        self.side_keys()[2].to_string()
    }

    /// The key of the shares.
    #[cfg(feature = "core")]
    pub(crate) fn shared(&self) -> String {
        self.side_keys()[3].to_string()
    }
}

/// The number of slots of a Cluster.
pub const SLOTS: u16 = 16_384;

/// The part of `key` that Redis Cluster hashes, if not all of it: a non-empty text between its first
/// `{` and the first `}` after it.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// CRC-16/XMODEM, as Redis Cluster hashes keys:
/// <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#appendix-a-crc16-reference-implementation-in-ansi-c>
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn side_keys_share_the_slot_of_the_lock() {
        let fence = |prefix, name| LockKeys::new(prefix, name).fence();
        assert_eq!(fence("lock:", "item:42"), "{lock:item:42}:fence");
        assert_eq!(LockKeys::new("lock:", "item:42").queue(), "{lock:item:42}:queue");
        assert_eq!(LockKeys::from_key("lock:item:42").waiters(), "{lock:item:42}:waiters");
        assert_eq!(fence("lock:", "{user}:1"), "lock:{user}:1::fence");
        assert_eq!(fence("", "{}x"), "{{}x}:fence");
    }

    /// The first is from the specification; the others were read from a server with CLUSTER KEYSLOT.
    #[test]
    fn slots_are_those_of_the_server() {
        for (key, slot) in [("123456789", 0x31C3), ("foo{hash_tag}", 2515), ("lock:item:42", 3574)]
        {
            assert_eq!(LockKeys::new("", key).slot(), slot, "{key}");
        }
    }

    #[test]
    fn a_name_and_the_same_name_in_braces_are_two_locks() {
        let (plain, braced) = (LockKeys::new("", "a"), LockKeys::new("", "{a}"));
        assert_ne!(plain.fence(), braced.fence());
    }

    proptest! {
        #[test]
        fn no_two_locks_share_a_side_key(a in "[a{}:]{1,6}", b in "[a{}:]{1,6}") {
            prop_assume!(a != b);
            let (a, b) = (LockKeys::new("", &a), LockKeys::new("", &b));
            prop_assert_ne!(a.fence(), b.fence());
        }
    }
}
