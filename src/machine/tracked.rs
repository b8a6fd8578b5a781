//! The leases whose keys the server tracks. [`super::lease`] says what becomes of a message.

use crate::protocol::{LockKeys, TokenId};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// A lock that is held for so long is tracked from then on: so a shorter hold costs nothing.
pub(super) const TRACKED_AFTER: Duration = Duration::from_secs(1);
/// So many locks are tracked at a time: more would cost the server memory and CPU with each renewal, and after FLUSHALL the
/// event loop would be busy with their questions for longer than some ms.
pub(super) const TRACKED_MAX: usize = 1_000;
/// After so many messages a lock is tracked again only when it has been held for another second: a server that tracks too
/// many keys tells of each that it forgets, and would never end. Each waiter elsewhere that gives up causes two.
pub(super) const TOLD_MAX: u8 = 4;

/// Whether the server is to tell of changes of a lease's key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tracking {
    /// The server does not tell; or the lock is shared, and each renewal of another share changes it.
    Off,
    /// Not yet: its next step is planned for that.
    Young,
    /// With its next renewal, if there is room then.
    Later,
    /// It is, and has told so often since it was tracked, or renewed.
    On(u8),
}

impl Tracking {
    /// Of a lease that begins.
    pub(super) const fn of_new(has_room: bool) -> Self {
        if has_room { Self::Young } else { Self::Later }
    }

    /// Whether the server is asked again to tell, after each answer about the lease.
    pub(super) const fn is_on(self) -> bool {
        matches!(self, Self::On(_))
    }

    /// After one more message.
    pub(super) const fn told(self) -> Self {
        match self {
            Self::On(told) if told + 1 < TOLD_MAX => Self::On(told + 1),
            Self::On(_) => Self::Young,
            other => other,
        }
    }
}

/// The lease of each key that is tracked.
#[derive(Debug, Default)]
pub(super) struct Tracked(FxHashMap<LockKeys, TokenId>);

impl Tracked {
    pub(super) fn has_room(&self) -> bool {
        self.0.len() < TRACKED_MAX
    }

    /// Adds a lease; false if there is no room. Of the holds of a value that their callers have chosen one is tracked.
    pub(super) fn add(&mut self, keys: &LockKeys, id: TokenId) -> bool {
        self.of(keys) == Some(id)
            || self.has_room() && *self.0.entry(keys.clone()).or_insert(id) == id
    }

    pub(super) fn remove(&mut self, keys: &LockKeys) {
        self.0.remove(keys);
    }

    pub(super) fn of(&self, keys: &LockKeys) -> Option<TokenId> {
        self.0.get(keys).copied()
    }

    /// All leases, each with its keys.
    pub(super) fn all(&self) -> impl Iterator<Item = (&LockKeys, TokenId)> {
        self.0.iter().map(|(keys, id)| (keys, *id))
    }
}
