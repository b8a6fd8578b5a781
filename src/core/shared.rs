//! The state of a manager that any thread may read at any time.

use super::lock;
use crate::machine::{LeaseId, Stats};
use crate::protocol::Mono;
use rustc_hash::FxHashMap;
use std::sync::Mutex;
use std::time::Duration;

/// The deadlines of a manager's leases, and its counters. The core writes them; JavaScript reads them
/// synchronously, so the values are right even just after its event loop was blocked.
#[derive(Debug, Default)]
pub struct Shared {
    deadlines: Mutex<FxHashMap<LeaseId, Mono>>,
    stats: Mutex<Stats>,
}

impl Shared {
    /// The remaining time of `lease`; zero if it has ended.
    #[must_use]
    pub fn remaining(&self, lease: LeaseId, now: Mono) -> Duration {
        lock(&self.deadlines).get(&lease).map_or(Duration::ZERO, |until| until.since(now))
    }

    /// The manager's counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        lock(&self.stats).clone()
    }

    pub(super) fn set_deadline(&self, lease: LeaseId, until: Option<Mono>) {
        let mut deadlines = lock(&self.deadlines);
        match until {
            Some(until) => deadlines.insert(lease, until),
            None => deadlines.remove(&lease),
        };
    }

    /// Marks all leases as ended, because the core has, and returns those that were valid.
    pub(super) fn end(&self) -> Vec<LeaseId> {
        let leases: Vec<_> = lock(&self.deadlines).drain().map(|(lease, _)| lease).collect();
        let mut stats = lock(&self.stats);
        stats.lost += leases.len() as u64;
        (stats.held, stats.waiting) = (0, 0);
        leases
    }

    pub(super) fn count(&self, stats: Stats) {
        *lock(&self.stats) = stats;
    }
}
