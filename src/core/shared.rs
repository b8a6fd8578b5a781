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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Resp;

    fn abilities() -> Abilities {
        Abilities {
            server: "10.0.0.1:6379".to_owned(),
            resp: Resp::Three,
            clock: true,
            pubsub: true,
            plain_commands: true,
            tracking: true,
            compare_and_delete: None,
            risks: Vec::new(),
            refused: None,
        }
    }

    #[test]
    fn a_server_is_shown_while_it_is_connected_or_refuses_the_login() {
        let (shared, node) = (Shared::default(), NodeId(1));
        shared.set_refused(node, "no".to_owned());
        assert_eq!(shared.servers(), []);
        shared.set_server(node, Some(abilities()));
        // That is another connection's.
        shared.set_refused(node, "no".to_owned());
        assert_eq!(shared.servers(), [abilities()]);
        shared.set_server(node, None);
        assert_eq!(shared.servers(), []);
        shared.set_refused(node, "no".to_owned());
        assert_eq!(shared.servers(), [Abilities { refused: Some("no".to_owned()), ..abilities() }]);
        shared.set_server(node, Some(abilities()));
        assert_eq!(shared.servers(), [abilities()]);
    }

    #[test]
    fn what_a_server_denies_later_is_shown_of_that_server() {
        let shared = Shared::default();
        for node in [1, 2].map(NodeId) {
            shared.set_server(node, Some(abilities()));
        }
        shared.set_pubsub_denied(NodeId(1));
        shared.set_tracking_denied(NodeId(2));
        let [one, two] = &shared.servers()[..] else { panic!() };
        assert_eq!(*one, Abilities { pubsub: false, ..abilities() });
        assert_eq!(*two, Abilities { tracking: false, ..abilities() });
    }

    #[test]
    fn a_manager_that_has_ended_holds_and_awaits_nothing() {
        let shared = Shared::default();
        shared.set_server(NodeId(1), Some(abilities()));
        shared.count(Stats { held: 2, waiting: 3, unanswered: 4, lost: 5, ..Stats::default() });
        let (at, leases) = (Mono::from_micros, [1, 2, 3].map(LeaseId));
        let deadline = |lease, until| Effect::SetDeadline { lease, until };
        shared.set_deadlines(&leases.map(|lease| deadline(lease, Some(at(9)))));
        shared.set_deadlines(&[deadline(leases[2], None)]);
        let remaining = |lease, now| shared.remaining(lease, at(now)).as_micros();
        assert_eq!((remaining(leases[0], 2), remaining(leases[0], 9)), (7, 0));
        assert_eq!(remaining(leases[2], 2), 0);
        let mut ended = shared.end();
        ended.sort_unstable();
        assert_eq!(ended, leases[..2]);
        assert_eq!(shared.stats(), Stats { lost: 7, ..Stats::default() });
        assert_eq!((shared.servers(), remaining(leases[0], 2)), (Vec::new(), 0));
    }
}
