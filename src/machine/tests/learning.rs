//! What holders learn in the schedules of the simulator, and how soon, once everything is answered.

use super::kept::is_kept;
use super::simulator::{Kind, PROCESSES, Simulation};
use super::world::ms;
use crate::machine::LeaseId;
use crate::protocol::{CLAIM, Mono};

/// The longest pause between two attempts to connect, and more.
const CONNECTED_WITHIN: u32 = 500;

/// A hold that no server has any more.
struct Doubt {
    who: usize,
    lease: LeaseId,
    /// When its caller must know that, by its own clock.
    due: Mono,
    /// The server may have refused the last request about it.
    is_refused: bool,
}

impl Simulation {
    /// All faults end for a while. Then everybody claims what it was granted by message, and learns of every lock that its
    /// server has lost as soon as a renewal would show it, whether or not the lock is renewed.
    pub(super) fn learn(&mut self) {
        if matches!(self.kind, Kind::Cluster | Kind::Moving | Kind::Split) {
            // A slot that moves and a master that was replaced keep requests waiting.
            return;
        }
        if self.kind == Kind::Losing && self.rng.bool() {
            self.restart_server();
        }
        self.heal();
        self.mend_key();
        self.reconnect();
        let doubts = self.doubts();
        if self.kind == Kind::Losing {
            // Each loss came with another replication id. While it loaded its data, the server has refused to answer.
            let lost = |doubt: &&Doubt| {
                !self.is_taken_over(&self.processes[doubt.who].token_of(doubt.lease))
            };
            let unasked = doubts.iter().filter(lost).find(|doubt| !doubt.is_refused);
            let unasked = unasked.map(|doubt| (doubt.who, doubt.lease));
            self.demand(unasked.is_none(), || format!("{unasked:?} was not asked about"));
        }
        self.check_claims();
        for Doubt { who, lease, due, .. } in doubts {
            while self.is_doubtful(who, lease) {
                let clock = self.processes[who].clock(self.now);
                self.demand(clock < due, || format!("{who} does not learn that {lease:?} is lost"));
                self.pass((due.since(clock) / 8).max(ms(20)));
                self.deliver_all();
            }
        }
        self.join_owners();
    }

    /// Everybody connects again, and whatever was sent is answered.
    fn reconnect(&mut self) {
        for _ in 0..CONNECTED_WITHIN {
            self.pass(ms(20));
            self.deliver_all();
            if self.processes.iter().all(|process| process.world.up) {
                return;
            }
        }
        self.demand(false, || "somebody does not connect again".to_owned());
    }

    /// Whatever is on its way arrives, and whatever follows from that.
    pub(super) fn deliver_all(&mut self) {
        while {
            (0..PROCESSES).for_each(|who| self.deliver(who));
            self.processes.iter_mut().any(|process| !process.world.is_silent_everywhere())
        } {}
    }

    /// Checks that everybody claims what a message has granted, at its next attempt.
    fn check_claims(&mut self) {
        let due = self.now + CLAIM / 8;
        while let Some(token) = self.unclaimed().pop_first() {
            self.demand(self.now < due, || format!("{token} is held, and is not claimed"));
            self.pass(ms(20));
            self.deliver_all();
        }
    }

    /// The holds that no server has any more, apart from those that others have taken by their tokens.
    fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        for (who, process) in self.processes.iter().enumerate() {
            for (lease, left) in process.believed(self.now) {
                if self.is_doubtful(who, lease)
                    && let Some(held) = process.world.machine.hold_of(lease)
                {
                    // A renewal leaves two thirds; after a short extension of a long lease the next is later.
                    let pause = (held.ttl() / 3).max(left.saturating_sub(held.ttl() * 2 / 3));
                    let slack = (pause / 8).max(ms(20)) * 2;
                    // A refused request is repeated after a sixteenth of the rest. What its owner has taken over was held
                    // under the present data, and is asked about when that is due, if there was no message.
                    let taken_over = self.is_taken_over(&process.token_of(lease));
                    let since =
                        process.world.refused_at.map(|at| process.clock(self.now).since(at));
                    let is_refused =
                        !taken_over && since.is_some_and(|it| it <= left / 16 + ms(40));
                    let pause = if is_refused { left / 16 + ms(20) } else { pause };
                    let due = process.clock(self.now) + pause + slack;
                    doubts.push(Doubt { who, lease, due, is_refused });
                }
            }
        }
        doubts
    }

    /// Whether a caller believes in a lock that no server has for its token.
    fn is_doubtful(&self, who: usize, lease: LeaseId) -> bool {
        let process = &self.processes[who];
        let exported = process.held.iter().any(|held| held.adoptable && held.lease == lease);
        let believes = process.believed(self.now).any(|(other, _)| other == lease);
        let token = process.token_of(lease);
        let has = |lock: usize| self.owners_of(lock).contains(&token);
        let kept = is_kept(&process.world, lease);
        believes && !exported && !kept && !(0..self.locks.len()).any(has) && !self.is_victim(&token)
    }
}
