//! The state of a manager that any thread may read at any time.

use super::lock;
use crate::machine::{Effect, LeaseId, NodeId, Stats};
use crate::protocol::Mono;
use crate::server::Abilities;
use crate::slim::Slim;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// The deadlines of a manager's leases, and its counters. The core writes them; JavaScript reads them
/// synchronously, so the values are right even just after its event loop was blocked.
#[derive(Debug, Default)]
pub struct Shared {
    deadlines: Mutex<FxHashMap<LeaseId, Mono>>,
    stats: Mutex<Stats>,
    /// By node number; only those that are connected.
    servers: Mutex<BTreeMap<NodeId, Abilities>>,
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

    /// How many requests have no answer yet.
    #[must_use]
    pub fn unanswered(&self) -> u64 {
        lock(&self.stats).unanswered
    }

    /// What each connected server allows, by node number.
    #[must_use]
    pub fn servers(&self) -> Vec<Abilities> {
        lock(&self.servers).values().cloned().collect()
    }

    /// A connection is new, or has ended.
    pub(super) fn set_server(&self, node: NodeId, abilities: Option<Abilities>) {
        let mut servers = lock(&self.servers);
        match abilities {
            Some(abilities) => servers.insert(node, abilities),
            None => servers.remove(&node),
        };
    }

    /// Sets the deadlines that are among the effects of a turn.
    pub(super) fn set_deadlines(&self, effects: &[Effect]) {
        let mut deadlines = lock(&self.deadlines);
        for effect in effects {
            match effect {
                Effect::SetDeadline { lease, until: Some(until) } => {
                    deadlines.insert(*lease, *until);
                }
                Effect::SetDeadline { lease, until: None } => {
                    deadlines.remove(lease);
                    deadlines.slim();
                }
                _ => {}
            }
        }
    }

    /// Marks all leases as ended, because the core has, and returns those that were valid.
    pub(super) fn end(&self) -> Vec<LeaseId> {
        lock(&self.servers).clear();
        let leases: Vec<_> = lock(&self.deadlines).drain().map(|(lease, _)| lease).collect();
        let mut stats = lock(&self.stats);
        stats.lost += leases.len() as u64;
        (stats.held, stats.waiting, stats.unanswered) = (0, 0, 0);
        leases
    }

    pub(super) fn count(&self, stats: Stats) {
        *lock(&self.stats) = stats;
    }
}
