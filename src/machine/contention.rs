//! The locks that were held when a server was last asked for them.
//!
//! A request for one of them begins with the script, which enqueues the caller: the fast path would only find out again that
//! it is held, for one more round trip.

use crate::protocol::LockKeys;
use rustc_hash::FxHashSet;

/// No more locks are remembered. To forget one costs a round trip.
const KEPT: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct Contention(FxHashSet<LockKeys>);

impl Contention {
    pub(super) fn is_likely(&self, keys: &LockKeys) -> bool {
        self.0.contains(keys)
    }

    /// The lock was held.
    pub(super) fn was_held(&mut self, keys: &LockKeys) {
        if self.0.len() >= KEPT {
            self.0.clear();
        }
        self.0.insert(keys.clone());
    }

    /// The lock was free.
    pub(super) fn was_free(&mut self, keys: &LockKeys) {
        self.0.remove(keys);
    }
}
