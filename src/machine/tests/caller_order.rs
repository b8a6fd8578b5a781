//! The order in which waiting callers get a whole lock, as long as they meet no failures.

use super::process::{Open, Process, Waits};
use super::simulator::{Kind, PROCESSES, Simulation};
use crate::machine::queue_entry::Approach;
use crate::machine::{LeaseId, OpId};
use std::time::Duration;

/// The most later callers that may overtake a caller: the handoff budget of a process between two of the
/// server's grants.
const fn overtaken_max() -> usize {
    15
}

impl Simulation {
    /// Adds a waiting caller, behind those that the server knows.
    pub(super) fn wait_in_order(&mut self, who: usize, op: OpId, lock: usize, ttl: Duration) {
        self.waited += 1;
        let number = self.waited;
        let processes = self.processes.iter();
        // A caller whose request is still in flight has no position yet, nor has one whose fast path has found the
        // lock held.
        let is_known = |process: &&Process| {
            let mut entries = process.world.machine.entries.iter().map(|(_, entry)| entry);
            let asks = entries.all(|entry| entry.approach != Approach::FastPath);
            process.world.up && process.world.wire.is_empty() && asks
        };
        let known = processes.filter(is_known);
        let open = known.flat_map(|process| process.open.values());
        let behind = open.filter(|open| open.lock == lock).filter_map(|open| open.waits.as_ref());
        let behind = behind.map(|waits| waits.number).collect();
        if let Some(open) = self.processes[who].open.get_mut(&op) {
            open.waits = Some(Waits { ttl, number, behind, overtaken: 0 });
        }
    }

    /// Checks that a caller gets no longer lease than it requested, so that its crash costs no more.
    pub(super) fn check_length(&self, who: usize, lease: LeaseId, waits: &Waits) {
        let world = &self.processes[who].world;
        let until = world.deadlines.get(&lease).copied().unwrap_or(world.now);
        let left = until.since(world.now);
        self.demand(left <= waits.ttl, || format!("{lease:?} lasts {left:?}, not {:?}", waits.ttl));
    }

    /// Checks the order when a caller has got the lock and the other waiters have not.
    pub(super) fn check_order(&mut self, lock: usize, first: &Waits) {
        // While a slot moves or there are two masters, waiters learn by polls that a lock is free.
        if matches!(self.kind, Kind::Cluster | Kind::Split) {
            return;
        }
        let is_robbed: Vec<_> = (0..PROCESSES).map(|who| self.is_robbed(who, lock)).collect();
        let (mut most, kind) = (0, self.kind);
        let ordered = self.processes.iter_mut().zip(is_robbed).filter(|(process, is_robbed)| {
            (kind == Kind::Calm || process.is_ordered) && !is_robbed
        });
        let open = ordered.flat_map(|(process, _)| process.open.values_mut());
        for Open { waits, .. } in open.filter(|open| open.lock == lock) {
            let Some(waits) = waits else { continue };
            if first.behind.contains(&waits.number) {
                waits.overtaken += 1;
                most = most.max(waits.overtaken);
            }
        }
        self.demand(most <= overtaken_max(), || {
            format!("a caller was overtaken by {most} who called later")
        });
    }

    /// Whether a thief has taken the lock from a process of which the server knows nothing since: an entry stands for the
    /// first caller alone, and the process makes one for the next when it learns that the first was served.
    fn is_robbed(&self, who: usize, lock: usize) -> bool {
        let world = &self.processes[who].world;
        if !world.tokens.values().any(|token| self.is_victim(token)) {
            return false;
        }
        let client = Some(world.machine.context.config.client.as_str());
        let known = self.server.snapshot(self.now, &self.locks[lock].keys).tokens();
        known.iter().all(|token| token.client() != client)
    }
}
