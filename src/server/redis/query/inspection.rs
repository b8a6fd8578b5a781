//! The answer of `inspect.lua` about a lock, as holders and waiters of a page.

use crate::protocol::query::{Holding, Page, Waiting};
use crate::protocol::{LockKeys, Script, TOKEN_PREFIX};
use crate::server::redis::{Command, wire};
use redis::Value;

/// The most holders and waiters of a lock that a page shows.
pub(super) const MOST: u64 = 1_000;
/// The lock's value while others share it.
pub(super) const SHARED: &str = "hf1.shared";

/// The command that asks for the holders and waiters of the lock at `key`.
pub(in crate::server) fn call(key: &str, foreign: bool, with_source: bool) -> Command {
    wire::inspection(&LockKeys::from_key(key), MOST, foreign, with_source)
}

/// The answer of `inspect.lua` about a lock.
#[derive(Debug, Default)]
pub(super) struct Inspected {
    pub(super) value: String,
    pub(super) remaining_ms: i64,
    /// Token, remaining ms and fence of each.
    pub(super) shares: Vec<(String, i64, u64)>,
    /// Token, limit and waited ms of each.
    pub(super) waiters: Vec<(String, String, u64)>,
}

/// Adds the answer of `inspect.lua` about `key`.
pub(in crate::server) fn add(page: &mut Page, key: &str, answer: Value) {
    type Answer = (String, i64, Vec<Value>, Vec<String>);
    let Ok((value, remaining_ms, shares, queue)) = redis::from_redis_value::<Answer>(answer) else {
        return;
    };
    let share = |share: &[Value]| redis::from_redis_value(Value::Array(share.to_vec())).ok();
    let waiter = |waiter: &[String]| {
        let [token, limit, waited] = waiter else { return None };
        Some((token.clone(), limit.clone(), waited.parse().unwrap_or_default()))
    };
    let (shares, waiters) = (
        shares.chunks_exact(3).filter_map(share).collect(),
        queue.chunks_exact(3).filter_map(waiter).collect(),
    );
    Inspected { value, remaining_ms, shares, waiters }.add_to(page, key);
}

impl Inspected {
    pub(super) fn add_to(self, page: &mut Page, key: &str) {
        let Self { value, remaining_ms, shares, waiters } = self;
        // The flag is none of other code's value.
        let flagged = value.strip_suffix('+').filter(|_| value.starts_with(TOKEN_PREFIX));
        let owner = flagged.unwrap_or(&value);
        if owner != SHARED {
            let (key, token) = (key.to_owned(), owner.to_owned());
            page.held.push(Holding {
                key,
                shared: false,
                token,
                fence: None,
                remaining_ms,
                idle_ms: None,
            });
        }
        for (token, remaining_ms, fence) in shares {
            // The server does not know the fence of a lone share.
            let (key, fence) = (key.to_owned(), Some(fence).filter(|fence| *fence > 0));
            page.held.push(Holding {
                key,
                shared: true,
                token,
                fence,
                remaining_ms,
                idle_ms: None,
            });
        }
        for ((token, limit, waited_ms), position) in waiters.into_iter().zip(1..) {
            let (key, shared) = (key.to_owned(), limit != "-");
            page.pending.push(Waiting { key, shared, token, position, waited_ms });
        }
    }
}

/// The script's source, for the embedded store.
pub(in crate::server) fn source() -> &'static str {
    Script::Inspect.source()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(value: &str, shares: &[Value], waiters: &[&str]) -> Page {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let waiters = waiters.iter().map(|text| bulk(text)).collect();
        let shares = Value::Array(shares.to_vec());
        let answer = vec![bulk(value), Value::Int(700), shares, Value::Array(waiters)];
        let mut page = Page::default();
        add(&mut page, "lock:a", Value::Array(answer));
        page
    }

    /// Whether each is a share, its token, fence and remaining ms.
    fn holders(page: &Page) -> Vec<(bool, &str, Option<u64>, i64)> {
        page.held.iter().map(|it| (it.shared, &*it.token, it.fence, it.remaining_ms)).collect()
    }

    #[test]
    fn a_whole_lock_has_one_holder_and_its_waiters_stand_in_line() {
        let waiters = ["hf1.a.2", "-", "30", "hf1.b.3", "5", "20"];
        let flagged = page("hf1.a.1+", &[], &waiters);
        assert_eq!(holders(&flagged), [(false, "hf1.a.1", None, 700)]);
        let waiting = |it: &Waiting| (it.token.clone(), it.shared, it.position, it.waited_ms);
        assert_eq!(
            flagged.pending.iter().map(waiting).collect::<Vec<_>>(),
            [("hf1.a.2".to_owned(), false, 1, 30), ("hf1.b.3".to_owned(), true, 2, 20)]
        );
        // The sign at its end belongs to the value of other code.
        assert_eq!(holders(&page("theirs+", &[], &[])), [(false, "theirs+", None, 700)]);
    }

    #[test]
    fn a_shared_lock_has_the_holders_of_its_shares() {
        let share = |token: &str, ms, fence| {
            [Value::BulkString(token.as_bytes().to_vec()), Value::Int(ms), Value::Int(fence)]
        };
        let shares = [share("hf1.a.1", 600, 8), share("hf1.b.2", 500, 0)].concat();
        assert_eq!(
            holders(&page(SHARED, &shares, &[])),
            [(true, "hf1.a.1", Some(8), 600), (true, "hf1.b.2", None, 500)]
        );
    }

    #[test]
    fn a_lock_that_is_free_adds_nothing() {
        let mut page = Page::default();
        add(&mut page, "lock:a", Value::Array(Vec::new()));
        assert_eq!(page, Page::default());
    }
}
