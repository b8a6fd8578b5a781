//! Which Redis keys a lock uses.

use super::text;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

/// The keys of one lock, all in one Cluster slot.
///
/// The lock itself is `prefix + name`, a plain string. Its side keys carry the same hash tag:
/// `{lock}:queue` where the lock has none of its own, `lock::queue` where it has. The two forms
/// differ in the character before their suffix, because otherwise the locks `a` and `{a}` would
/// share their side keys.
///
/// Source of the hash tag rule: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>
#[derive(Clone, Debug, Eq)]
pub struct LockKeys(Arc<str>);

impl Hash for LockKeys {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for LockKeys {
    fn eq(&self, other: &Self) -> bool {
        // Those of one queue share their text, which spares reading it.
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

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

/// Which counter issues the fences of a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counters {
    /// One for all locks of the server.
    Server,
    /// One for all locks of a Cluster's slot.
    Slots,
    /// One for each lock, where the server denies the others.
    Locks,
}

/// The key of the fence counter of a server.
pub(crate) const COUNTER: &str = "holdfast:fence";
/// The texts before and after the tag of a slot in the key of its fence counter.
pub(crate) const SLOT_COUNTER: (&str, &str) = ("holdfast:{", "}:fence");

/// The key of a fence counter. That of a server or slot depends on neither the prefix nor the name, so all users of a
/// key agree about it, and a lock that is used once leaves nothing behind.
#[derive(Clone, Copy, Debug)]
pub enum CounterKey<'a> {
    /// That of a server.
    Server,
    /// That of a slot, with the number that stands for the slot as a hash tag.
    Slot(u32),
    /// That of a lock.
    Lock(SideKey<'a>),
}

impl fmt::Display for CounterKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str(COUNTER),
            Self::Slot(tag) => {
                let (before, after) = SLOT_COUNTER;
                write!(f, "{before}{tag}{after}")
            }
            Self::Lock(key) => key.fmt(f),
        }
    }
}

/// The least number whose decimal text is in each slot.
static SLOT_TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![u32::MAX; SLOTS.into()];
    let mut missing = tags.len();
    for number in 0..u32::MAX {
        let tag = &mut tags[usize::from(crc16(number.to_string().as_bytes()) % SLOTS)];
        if *tag == u32::MAX {
            (*tag, missing) = (number, missing - 1);
        }
        if missing == 0 {
            break;
        }
    }
    tags
});

impl LockKeys {
    /// The keys of the lock `name` under `prefix`.
    #[must_use]
    pub fn new(prefix: &str, name: &str) -> Self {
        Self(text::join(&[prefix, name]))
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
        let (counter, _) = error.split_once(" is not ").unwrap_or_default();
        let is_counter = counter.starts_with("holdfast:") && counter.ends_with(":fence");
        let counter = if is_counter { counter.to_owned() } else { COUNTER.to_owned() };
        let sides = self.side_keys().map(|key| key.to_string());
        let mut keys = sides.into_iter().chain([self.lock().to_owned(), counter]);
        keys.find(|key| error.strip_prefix(&**key).is_some_and(|rest| rest.starts_with(" is not ")))
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

    /// The key of the counter that issues its fences.
    #[must_use]
    pub fn counter(&self, counters: Counters) -> CounterKey<'_> {
        match counters {
            Counters::Server => CounterKey::Server,
            Counters::Slots => CounterKey::Slot(SLOT_TAGS[usize::from(self.slot())]),
            Counters::Locks => CounterKey::Lock(self.side_keys()[0]),
        }
    }

    /// The keys of its own fence counter, its wait queue, its waiters, its shares, and the flag that
    /// exists as long as the wait queue.
    #[must_use]
    pub fn side_keys(&self) -> [SideKey<'_>; 5] {
        let lock = self.lock();
        let tagged = hash_tag(lock).is_some();
        ["fence", "queue", "waiters", "shared", "waiting"].map(|suffix| SideKey {
            lock,
            tagged,
            suffix,
        })
    }
}

/// The side keys as text, for tests that read them on a server.
#[cfg(test)]
impl LockKeys {
    /// The key of the last fence of a quorum's lock.
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

    /// The key of the flag for the wait queue.
    #[cfg(feature = "core")]
    pub(crate) fn waiting(&self) -> String {
        self.side_keys()[4].to_string()
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

/// CRC-16/XMODEM, as Redis Cluster hashes keys, appendix A of
/// <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>
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
    fn the_counter_of_a_slot_is_in_that_slot() {
        for name in ["a", "item:42", "{user}:1", "x".repeat(200).as_str()] {
            let keys = LockKeys::new("lock:", name);
            assert_eq!(
                LockKeys::from_key(&keys.counter(Counters::Slots).to_string()).slot(),
                keys.slot()
            );
            assert_eq!(keys.counter(Counters::Server).to_string(), "holdfast:fence");
        }
    }

    /// If both had the side key `{a}:queue`:
    ///
    /// 1. `a` is held, and its waiter joins `{a}:queue`.
    /// 2. The holder of `{a}` releases, and finds that waiter first in the queue that it takes for its own.
    /// 3. The waiter is granted `{a}`, for which it never asked, and both holders believe that they are alone.
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

    #[test]
    fn an_error_names_one_of_the_keys_of_its_lock_or_a_counter() {
        let keys = LockKeys::new("lock:", "a");
        for (error, named) in [
            ("lock:a is not a lock", Some("lock:a")),
            ("{lock:a}:queue is not a queue of waiters", Some("{lock:a}:queue")),
            ("{lock:a}:fence is not a fence counter", Some("{lock:a}:fence")),
            ("holdfast:fence is not a fence counter", Some("holdfast:fence")),
            ("holdfast:{12}:fence is not a fence counter", Some("holdfast:{12}:fence")),
            ("holdfast:fence is not less than a year ahead of the clock", Some("holdfast:fence")),
            ("holdfast:{12}:other is not a fence counter", None),
            ("other:fence is not a fence counter", None),
            ("lock:ab is not a lock", None),
            ("lock:a is gone", None),
            ("", None),
        ] {
            assert_eq!(keys.named_by(error).as_deref(), named, "{error}");
            assert_eq!(keys.blamed_by(error), named.unwrap_or("lock:a"), "{error}");
        }
    }

    #[test]
    fn a_tag_is_the_text_in_the_first_braces_unless_it_is_empty() {
        for (key, tag) in [
            ("a", "a"),
            ("{a}b", "a"),
            ("x{a}{b}", "a"),
            ("{}{a}", "{}{a}"),
            ("a}{b", "a}{b"),
            ("{{a}}", "{a"),
            ("{a", "{a"),
        ] {
            assert_eq!(LockKeys::from_key(key).tag(), tag, "{key}");
        }
    }

    #[test]
    fn keys_are_equal_by_their_text() {
        let (one, same) = (LockKeys::new("lock:", "a"), LockKeys::from_key("lock:a"));
        assert!(one == same && one == one.clone() && one != LockKeys::new("lock:", "b"));
        assert_eq!(one.counter(Counters::Locks).to_string(), "{lock:a}:fence");
        let sides = one.side_keys().map(|key| key.to_string());
        let suffixes = ["fence", "queue", "waiters", "shared", "waiting"];
        assert_eq!(sides, suffixes.map(|suffix| format!("{{lock:a}}:{suffix}")));
    }
}
