//! The idle locks of a manager: which it keeps, since when, and how long it may keep those that are held.
//! [`super::idling`] says what becomes of them.

use crate::protocol::query::Holding;
use crate::protocol::{LockKeys, Mono, Token, TokenId};
use crate::slim::Slim;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a lock may be kept.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// The `linger` of the caller that has it, or had it last.
    linger: Duration,
    /// When it first became idle since the server granted it: without `linger` it would have been free then. So its idle
    /// times end `linger` later, however often it is taken meanwhile.
    kept_since: Option<Mono>,
    /// When a caller last got it while it was idle.
    taken: Option<Mono>,
}

/// The idle locks of a manager, and how long it may keep those that are held.
#[derive(Debug, Default)]
pub(super) struct IdleLocks {
    /// One for each lock that a caller wants to be kept, or wanted since the server granted it.
    terms: FxHashMap<TokenId, Terms>,
    by_keys: FxHashMap<LockKeys, (Mono, TokenId)>,
    /// The idle locks, the oldest first.
    oldest: BTreeSet<(Mono, TokenId)>,
}

impl IdleLocks {
    /// How many locks are idle.
    pub(super) fn len(&self) -> usize {
        self.oldest.len()
    }

    /// The `linger` of the caller that has a lock now.
    pub(super) fn set(&mut self, id: TokenId, linger: Duration) {
        if let Some(terms) = self.terms.get_mut(&id) {
            terms.linger = linger;
        } else if !linger.is_zero() {
            self.terms.insert(id, Terms { linger, kept_since: None, taken: None });
        }
    }

    /// The lock is not kept any more.
    pub(super) fn forget(&mut self, id: TokenId) {
        if self.terms.remove(&id).is_some() {
            self.terms.slim();
        }
    }

    /// For how long a lock is kept once its caller has released it, if it has not been kept before.
    pub(super) fn linger_of(&self, id: TokenId) -> Option<Duration> {
        self.terms.get(&id).map(|terms| terms.linger).filter(|linger| !linger.is_zero())
    }

    /// Until when a lock is kept that its caller releases now; none if it is not.
    pub(super) fn end_of(&self, now: Mono, id: TokenId) -> Option<Mono> {
        let Terms { linger, kept_since, .. } = self.terms.get(&id)?;
        Some(kept_since.unwrap_or(now) + *linger).filter(|end| now < *end)
    }

    /// A lock is idle now.
    pub(super) fn begin(&mut self, now: Mono, keys: LockKeys, id: TokenId) {
        if let Some(terms) = self.terms.get_mut(&id) {
            terms.kept_since.get_or_insert(now);
        }
        self.by_keys.insert(keys, (now, id));
        self.oldest.insert((now, id));
    }

    /// A lock is idle no more. False if it was not.
    pub(super) fn end(&mut self, keys: &LockKeys, id: TokenId) -> bool {
        let Some(&since) = self.by_keys.get(keys).filter(|(_, idle)| *idle == id) else {
            return false;
        };
        self.by_keys.remove(keys);
        self.by_keys.slim();
        self.oldest.remove(&since)
    }

    /// A caller gets a lock. False if it was not idle.
    pub(super) fn take(&mut self, now: Mono, keys: &LockKeys, id: TokenId) -> bool {
        let was_idle = self.end(keys, id);
        if let Some(terms) = self.terms.get_mut(&id).filter(|_| was_idle) {
            terms.taken = Some(now);
        }
        was_idle
    }

    /// Whether a caller has got the lock while it was idle, and no request since has confirmed it. `confirmed`: when the
    /// last one was sent.
    pub(super) fn is_taken_unconfirmed(&self, id: TokenId, confirmed: Mono) -> bool {
        self.terms.get(&id).and_then(|terms| terms.taken).is_some_and(|taken| confirmed <= taken)
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

/// Access for tests.
#[cfg(all(test, feature = "core"))]
impl IdleLocks {
    pub(super) fn ids(&self) -> Vec<TokenId> {
        self.oldest.iter().map(|(_, id)| *id).collect()
    }

    /// Forgets which locks were taken while they were idle.
    pub(super) fn forget_takers(&mut self) {
        self.terms.values_mut().for_each(|terms| terms.taken = None);
    }

    /// Forgets how long each lock has been kept.
    pub(super) fn forget_ages(&mut self) {
        self.terms.values_mut().for_each(|terms| terms.kept_since = None);
    }
}
