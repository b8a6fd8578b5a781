//! The idle locks of a manager: which it keeps, since when, and for how long it will keep those that are held.
//! [`super::idling`] says what becomes of them.

use crate::protocol::query::Holding;
use crate::protocol::{LockKeys, Mono, Token, TokenId};
use crate::slim::Slim;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::time::Duration;

/// The idle locks of a manager, and how long those that are held will linger.
#[derive(Debug, Default)]
pub(super) struct IdleLocks {
    /// Of each lock whose caller wants it: for how long it will be kept.
    terms: FxHashMap<TokenId, Duration>,
    by_keys: FxHashMap<LockKeys, (Mono, TokenId)>,
    /// The idle locks, the oldest first.
    oldest: BTreeSet<(Mono, TokenId)>,
}

impl IdleLocks {
    /// How many locks are idle.
    pub(super) fn len(&self) -> usize {
        self.oldest.len()
    }

    /// The terms of the caller that has a lock now.
    pub(super) fn set(&mut self, id: TokenId, linger: Duration) {
        if linger.is_zero() {
            self.forget(id);
        } else {
            self.terms.insert(id, linger);
        }
    }

    /// The lock is not kept any more.
    pub(super) fn forget(&mut self, id: TokenId) {
        if self.terms.remove(&id).is_some() {
            self.terms.slim();
        }
    }

    /// For how long a lock is kept once its caller has released it.
    pub(super) fn linger_of(&self, id: TokenId) -> Option<Duration> {
        self.terms.get(&id).copied()
    }

    /// A lock is idle now.
    pub(super) fn begin(&mut self, now: Mono, keys: LockKeys, id: TokenId) {
        self.by_keys.insert(keys, (now, id));
        self.oldest.insert((now, id));
    }

    /// A lock is idle no more, if it was.
    pub(super) fn end(&mut self, keys: &LockKeys, id: TokenId) {
        if let Some(&since) = self.by_keys.get(keys).filter(|(_, idle)| *idle == id) {
            self.by_keys.remove(keys);
            self.by_keys.slim();
            self.oldest.remove(&since);
        }
    }

    /// The idle lock that was released first.
    pub(super) fn first(&self) -> Option<TokenId> {
        self.oldest.first().map(|(_, id)| *id)
    }

    /// The idle lock with these keys.
    pub(super) fn with(&self, keys: &LockKeys) -> Option<TokenId> {
        self.by_keys.get(keys).map(|(_, id)| *id)
    }
}

/// The idle locks of a manager at one moment, for a query: no server knows of them.
#[derive(Debug, Default)]
pub struct IdleSnapshot {
    client: String,
    /// By key: the number of the token, and for how long the lock has been idle.
    by_key: FxHashMap<String, (TokenId, Duration)>,
}

impl IdleSnapshot {
    pub(super) fn new(client: &str, now: Mono, locks: &IdleLocks) -> Self {
        let idle = locks
            .by_keys
            .iter()
            .map(|(keys, &(since, id))| (keys.lock().to_owned(), (id, now.since(since))));
        Self { client: client.to_owned(), by_key: idle.collect() }
    }

    /// Tells of each hold that is one of them.
    pub fn mark(&self, holdings: &mut [Holding]) {
        for holding in holdings.iter_mut().filter(|holding| !holding.shared) {
            let Some(&(id, idle)) = self.by_key.get(&holding.key) else { continue };
            if Token::from_text(&holding.token).number(&self.client) == Some(id.0) {
                holding.idle_ms = u64::try_from(idle.as_millis()).ok();
            }
        }
    }
}

/// What tests look into.
#[cfg(all(test, feature = "core"))]
impl IdleLocks {
    pub(super) fn ids(&self) -> Vec<TokenId> {
        self.oldest.iter().map(|(_, id)| *id).collect()
    }

    /// An idle lock that should have been released by now.
    pub(super) fn overdue(&self, now: Mono) -> Option<TokenId> {
        let is_over =
            |since: Mono, id| self.linger_of(id).is_some_and(|linger| since + linger < now);
        self.oldest.iter().find(|(since, id)| is_over(*since, *id)).map(|(_, id)| *id)
    }
}
