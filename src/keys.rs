//! Which Redis keys a lock uses.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The keys of one lock, all in one Cluster slot.
///
/// The lock itself is `prefix + name`, a plain string. Its side keys carry the same hash tag:
/// `{lock}:fence` where the lock has none of its own, `lock::fence` where it has. The two forms
/// differ in the character before their suffix, because otherwise the locks `a` and `{a}` would
/// share their side keys.
///
/// Source of the hash tag rule: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>
#[derive(Clone, Debug)]
pub struct LockKeys(Arc<Names>);

/// All names in one text, since every call of a script needs them all.
#[derive(Debug)]
struct Names {
    text: String,
    /// Where the names of the side keys begin.
    fence: usize,
    queue: usize,
    waiters: usize,
}

impl LockKeys {
    /// The keys of the lock `name` under `prefix`.
    #[must_use]
    pub fn new(prefix: &str, name: &str) -> Self {
        let mut text = String::with_capacity(4 * (prefix.len() + name.len()) + 32);
        text.push_str(prefix);
        text.push_str(name);
        Self::of(text)
    }

    /// A lock by the key that stands in Redis, prefix included.
    #[must_use]
    pub fn from_key(key: &str) -> Self {
        Self::of(key.to_owned())
    }

    fn of(mut text: String) -> Self {
        let lock = ..text.len();
        let tagged = has_hash_tag(&text);
        let mut append = |suffix: &str| {
            let begin = text.len();
            text.push_str(if tagged { "" } else { "{" });
            text.extend_from_within(lock);
            text.push_str(if tagged { "::" } else { "}:" });
            text.push_str(suffix);
            begin
        };
        let (fence, queue, waiters) = (append("fence"), append("queue"), append("waiters"));
        Self(Arc::new(Names { text, fence, queue, waiters }))
    }

    /// The key that exists exactly while the lock is held.
    #[must_use]
    pub fn lock(&self) -> &str {
        self.part(0, self.0.fence)
    }

    /// The key of the last fence issued.
    #[must_use]
    pub fn fence(&self) -> &str {
        self.part(self.0.fence, self.0.queue)
    }

    /// The key of the line of those who wait.
    #[must_use]
    pub fn queue(&self) -> &str {
        self.part(self.0.queue, self.0.waiters)
    }

    /// The key of what is known about those who wait.
    #[must_use]
    pub fn waiters(&self) -> &str {
        self.part(self.0.waiters, self.0.text.len())
    }

    fn part(&self, begin: usize, end: usize) -> &str {
        self.0.text.get(begin..end).unwrap_or_default()
    }
}

/// The side keys follow from the lock's.
impl PartialEq for LockKeys {
    fn eq(&self, other: &Self) -> bool {
        self.lock() == other.lock()
    }
}

impl Eq for LockKeys {}

impl Hash for LockKeys {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lock().hash(state);
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
        let fence = |prefix, name| LockKeys::new(prefix, name).fence().to_owned();
        assert_eq!(fence("lock:", "item:42"), "{lock:item:42}:fence");
        assert_eq!(LockKeys::new("lock:", "item:42").queue(), "{lock:item:42}:queue");
        assert_eq!(LockKeys::from_key("lock:item:42").waiters(), "{lock:item:42}:waiters");
        assert_eq!(fence("lock:", "{user}:1"), "lock:{user}:1::fence");
        assert_eq!(fence("", "{}x"), "{{}x}:fence");
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
