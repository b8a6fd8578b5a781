//! The idle locks of a manager: which it keeps, since when, and for how long it will keep those that are held.
//! [`super::lingering`] says what becomes of them.

use crate::protocol::{LockKeys, Mono, TokenId};
use crate::slim::Slim;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::time::Duration;

/// The idle locks of a manager, and how long those that are held will linger.
#[derive(Debug, Default)]
pub(super) struct Lingering {
    /// Of each lock whose caller wants it: for how long it will be kept.
    terms: FxHashMap<TokenId, Duration>,
    idle: FxHashMap<LockKeys, (Mono, TokenId)>,
    /// The idle locks, the oldest first.
    oldest: BTreeSet<(Mono, TokenId)>,
}

impl Lingering {
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
    pub(super) fn of(&self, id: TokenId) -> Option<Duration> {
        self.terms.get(&id).copied()
    }

    /// A lock is idle now.
    pub(super) fn begin(&mut self, now: Mono, keys: LockKeys, id: TokenId) {
        self.idle.insert(keys, (now, id));
        self.oldest.insert((now, id));
    }

    /// A lock is idle no more, if it was.
    pub(super) fn end(&mut self, keys: &LockKeys, id: TokenId) {
        if let Some(&since) = self.idle.get(keys).filter(|(_, idle)| *idle == id) {
            self.idle.remove(keys);
            self.idle.slim();
            self.oldest.remove(&since);
        }
    }

    /// The idle lock that was released first.
    pub(super) fn first(&self) -> Option<TokenId> {
        self.oldest.first().map(|(_, id)| *id)
    }

    /// The idle lock with these keys.
    pub(super) fn idle(&self, keys: &LockKeys) -> Option<TokenId> {
        self.idle.get(keys).map(|(_, id)| *id)
    }
}

/// What tests look into.
#[cfg(all(test, feature = "core"))]
impl Lingering {
    pub(super) fn ids(&self) -> Vec<TokenId> {
        self.oldest.iter().map(|(_, id)| *id).collect()
    }

    /// An idle lock that should have been released by now.
    pub(super) fn overdue(&self, now: Mono) -> Option<TokenId> {
        let is_over = |since: Mono, id| self.of(id).is_some_and(|linger| since + linger < now);
        self.oldest.iter().find(|(since, id)| is_over(*since, *id)).map(|(_, id)| *id)
    }
}
