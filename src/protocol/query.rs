//! The results of a query.

/// A page of the results.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Page {
    /// Where the next page begins; empty at the end.
    pub cursor: String,
    /// The holders of locks.
    pub held: Vec<Holding>,
    /// The waiters for locks.
    pub pending: Vec<Waiting>,
}

/// One holder of a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holding {
    /// The lock's key.
    pub key: String,
    /// Whether it is a share.
    pub shared: bool,
    /// The owner token.
    pub token: String,
    /// The fence of a share. The server does not know that of a whole lock.
    pub fence: Option<u64>,
    /// The rest of the lease, in ms; negative if it never ends by itself.
    pub remaining_ms: i64,
    /// For how long it has been idle, in ms, if the manager that asks keeps it for its next caller.
    pub idle_ms: Option<u64>,
}

/// One waiter for a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Waiting {
    /// The lock's key.
    pub key: String,
    /// Whether it waits for a share.
    pub shared: bool,
    /// The waiter's token.
    pub token: String,
    /// 1 for the next to be granted.
    pub position: u32,
    /// How long its caller has waited, in ms.
    pub waited_ms: u64,
}

/// The request for a page.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Question {
    /// Where the page before ended; empty at the beginning.
    pub cursor: String,
    /// The start of the keys.
    pub starts_with: String,
    /// Whether `starts_with` is a whole key: then nothing is scanned.
    pub whole_key: bool,
    /// How many keys the server scans, roughly.
    pub count: u32,
}

impl Question {
    /// Whether the page has this key.
    #[must_use]
    pub fn matches(&self, key: &str) -> bool {
        if self.whole_key { key == self.starts_with } else { key.starts_with(&self.starts_with) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_keys_that_begin_so_or_the_whole_key_alone() {
        let matches = |whole_key, key| {
            let starts_with = "lock:a".to_owned();
            Question { starts_with, whole_key, ..Question::default() }.matches(key)
        };
        for (key, begins, is_whole) in [
            ("lock:a", true, true),
            ("lock:ab", true, false),
            ("lock:", false, false),
            ("xlock:a", false, false),
        ] {
            assert_eq!([false, true].map(|whole| matches(whole, key)), [begins, is_whole], "{key}");
        }
    }
}
