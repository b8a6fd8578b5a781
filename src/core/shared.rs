//! The state of a manager that any thread may read at any time.

use crate::machine::{Effect, LeaseId, NodeId, Stats};
use crate::protocol::Mono;
use crate::server::Abilities;
use crate::slim::Slim;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The deadlines of a manager's leases, and its counters. The core writes them; JavaScript reads them
/// synchronously, so the values are right even just after its event loop was blocked.
#[derive(Debug, Default)]
pub struct Shared {
    deadlines: Mutex<FxHashMap<LeaseId, Mono>>,
    stats: Mutex<Stats>,
    /// By node number; those that are connected, and those that were.
    servers: Mutex<BTreeMap<NodeId, (Abilities, bool)>>,
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

    /// The abilities of each server that is connected, or that refuses the login since, by node number.
    #[must_use]
    pub fn servers(&self) -> Vec<Abilities> {
        let servers = lock(&self.servers);
        let shown = servers.values().filter(|(it, connected)| *connected || it.refused.is_some());
        shown.map(|(abilities, _)| abilities.clone()).collect()
    }

    /// A server that was connected refuses the login.
    pub(super) fn set_refused(&self, node: NodeId, why: String) {
        if let Some((abilities, false)) = lock(&self.servers).get_mut(&node) {
            abilities.refused = Some(why);
        }
    }

    /// A server denies publishing and subscribing on a connection that it allowed both.
    pub(super) fn set_pubsub_denied(&self, node: NodeId) {
        if let Some((abilities, _)) = lock(&self.servers).get_mut(&node) {
            abilities.pubsub = false;
        }
    }

    /// The server has refused to tell of changed keys since it was connected.
    pub(super) fn set_tracking_denied(&self, node: NodeId) {
        if let Some((abilities, _)) = lock(&self.servers).get_mut(&node) {
            abilities.tracking = false;
        }
    }

    /// A connection is new, or has ended.
    pub(super) fn set_server(&self, node: NodeId, abilities: Option<Abilities>) {
        let mut servers = lock(&self.servers);
        if let Some(abilities) = abilities {
            servers.insert(node, (abilities, true));
        } else if let Some((_, connected)) = servers.get_mut(&node) {
            *connected = false;
        }
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

/// A panic is handled where it is caught, so poison is ignored.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
