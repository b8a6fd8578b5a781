//! Which Redis keys a lock uses.

use std::fmt::Write as _;
use std::sync::Arc;

/// The keys of one lock, all in one Cluster slot.
///
/// The lock itself is `prefix + name`, a plain string. Its side keys carry the same hash tag:
/// `{lock}:fence` where the lock has none of its own, `lock::fence` where it has. The two forms
/// differ in the character before their suffix, because otherwise the locks `a` and `{a}` would
/// share their side keys.
///
/// Source of the hash tag rule: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct LockKeys(Arc<str>);

impl LockKeys {
    /// The keys of the lock `name` under `prefix`.
    #[must_use]
    pub fn new(prefix: &str, name: &str) -> Self {
        let mut lock = String::with_capacity(prefix.len() + name.len());
        lock.push_str(prefix);
        lock.push_str(name);
        Self(lock.into())
    }

    /// The key that exists exactly while the lock is held.
    #[must_use]
    pub fn lock(&self) -> &str {
        &self.0
    }

    /// A lock by the key that stands in Redis, prefix included.
    #[must_use]
    pub fn from_key(key: &str) -> Self {
        Self(key.into())
    }

    /// The key of the last fence issued.
    #[must_use]
    pub fn fence(&self) -> String {
        self.side("fence")
    }

    /// The key of the line of those who wait.
    #[must_use]
    pub fn queue(&self) -> String {
        self.side("queue")
    }

    /// The key of what is known about those who wait.
    #[must_use]
    pub fn waiters(&self) -> String {
        self.side("waiters")
    }

    fn side(&self, suffix: &str) -> String {
        let mut key = String::with_capacity(self.0.len() + suffix.len() + 3);
        let written = if has_hash_tag(&self.0) {
            write!(key, "{}::{suffix}", self.0)
        } else {
            write!(key, "{{{}}}:{suffix}", self.0)
        };
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
        key
    }
}

/// Whether Redis Cluster hashes only a part of `key`: a non-empty text between its first `{` and
/// the first `}` after it.
fn has_hash_tag(key: &str) -> bool {
    key.split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .is_some_and(|(tag, _)| !tag.is_empty())
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

    #[test]
    fn a_name_and_the_same_name_in_braces_are_two_locks() {
        assert_ne!(LockKeys::new("", "a").fence(), LockKeys::new("", "{a}").fence());
    }

    proptest! {
        #[test]
        fn no_two_locks_share_a_side_key(a in "[a{}:]{1,6}", b in "[a{}:]{1,6}") {
            prop_assume!(a != b);
            prop_assert_ne!(LockKeys::new("", &a).fence(), LockKeys::new("", &b).fence());
        }
    }
}
