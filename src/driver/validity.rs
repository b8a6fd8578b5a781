//! Until when each lease is valid, readable from any thread at any time.

use crate::clock::Mono;
use crate::machine::LeaseId;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The ends of a manager's leases. The loop writes them; JavaScript reads them synchronously, so
/// what it reads is right even in the first line after its event loop was blocked.
#[derive(Debug, Default)]
pub struct Validity(Mutex<BTreeMap<LeaseId, Mono>>);

impl Validity {
    /// How long `lease` is still valid; zero if it has ended.
    #[must_use]
    pub fn remaining(&self, lease: LeaseId, now: Mono) -> Duration {
        self.lock().get(&lease).map_or(Duration::ZERO, |until| until.since(now))
    }

    pub(super) fn set(&self, lease: LeaseId, until: Option<Mono>) {
        let mut ends = self.lock();
        match until {
            Some(until) => ends.insert(lease, until),
            None => ends.remove(&lease),
        };
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Mono>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
