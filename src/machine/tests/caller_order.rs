//! In which order callers who wait for a whole lock get it, while nothing goes wrong.

use super::process::{Open, Waits};
use super::simulator::{Kind, Simulation};
use crate::machine::{LeaseId, OpId};
use std::time::Duration;

/// By how many who called later a caller is overtaken at most: a process hands a lock on so often between two of the
/// server's grants.
const fn overtaken_max() -> usize {
    15
}

impl Simulation {
    /// A caller waits from now on, behind those of whom the server knows.
    pub(super) fn wait_in_order(&mut self, who: usize, op: OpId, lock: usize, ttl: Duration) {
        self.waited += 1;
        let number = self.waited;
        let processes = self.processes.iter();
        // Whose request is on its way has no place yet.
        let known = processes.filter(|process| process.world.up && process.world.wire.is_empty());
        let open = known.flat_map(|process| process.open.values());
        let behind = open.filter(|open| open.lock == lock).filter_map(|open| open.waits.as_ref());
        let behind = behind.map(|waits| waits.number).collect();
        if let Some(open) = self.processes[who].open.get_mut(&op) {
            open.waits = Some(Waits { ttl, number, behind, overtaken: 0 });
        }
    }

    /// A caller gets no longer lease than it asked for, whoever had wanted one before: its crash may cost no more.
    pub(super) fn check_length(&self, who: usize, lease: LeaseId, waits: &Waits) {
        let world = &self.processes[who].world;
        let until = world.deadlines.get(&lease).copied().unwrap_or(world.now);
        let left = until.since(world.now);
        self.demand(left <= waits.ttl, || format!("{lease:?} lasts {left:?}, not {:?}", waits.ttl));
    }

    /// A caller has got the lock, and those who still wait have not.
    pub(super) fn check_order(&mut self, lock: usize, first: &Waits) {
        if self.kind != Kind::Calm {
            return;
        }
        let mut most = 0;
        let open = self.processes.iter_mut().flat_map(|process| process.open.values_mut());
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
}
