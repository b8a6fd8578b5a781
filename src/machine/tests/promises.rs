//! What must hold in every schedule of the simulator, besides the rules of single calls (`watch.rs`).

use super::simulator::{PROCESSES, Process, Simulation, Wish};
use super::world::{World, ms};
use crate::clock::Mono;
use crate::machine::{AttemptId, LeaseId, Machine, Outcome, Wait};
use crate::script::CLAIM;
use crate::token::Token;
use std::collections::BTreeSet;
use std::time::Duration;

/// Longer than any lease, liveness or key of a line.
const QUIET: Duration = Duration::from_secs(60);
/// Who waits asks again within this time at the latest.
const POLL: Duration = Duration::from_millis(5_200);
/// More requests than that in a schedule, and somebody asks in a loop without a pause.
const REQUESTS_MAX: u64 = 3_000;

impl Process {
    /// The tokens with which its callers believe to hold the lock, whoever runs now.
    fn believed(&self, now: Mono) -> impl Iterator<Item = AttemptId> {
        let clock = self.clock(now);
        let valid = self.world.deadlines.iter().filter(move |(_, until)| **until > clock);
        valid.map(|(lease, _)| lease.attempt())
    }
}

/// Whether a machine still has to do with an attempt.
fn knows(machine: &Machine, id: AttemptId) -> bool {
    machine.attempts.contains_key(&id)
        || machine.leases.contains_key(&id)
        || machine.releases.contains_key(&id)
        || machine
            .releases
            .values()
            .any(|release| release.heir.as_ref().is_some_and(|heir| heir.id == id))
        || machine
            .errands
            .values()
            .any(|errand| errand.call.token().number(&machine.config.client) == Some(id.0))
}

impl Simulation {
    pub(super) fn demand(&self, right: bool, otherwise: impl FnOnce() -> String) {
        assert!(right, "{}{}", otherwise(), self.story());
    }

    /// No call has broken a rule.
    pub(super) fn check_calls(&self) {
        let violation = self.server.violation();
        self.demand(violation.is_none(), || violation.unwrap_or_default());
    }

    pub(super) fn check(&self) {
        self.check_calls();
        if self.is_steady() {
            self.check_holders();
            self.check_lengthened();
        }
        for (who, process) in self.processes.iter().enumerate() {
            let (deadlines, lost) = (&process.world.deadlines, &process.world.lost);
            let untold = process.held.iter().map(|held| held.lease).find(|lease| {
                !deadlines.contains_key(lease) && lost.iter().all(|(other, _)| other != lease)
            });
            self.demand(untold.is_none(), || {
                format!("{who}: {untold:?} ended, and nobody is told")
            });
        }
    }

    /// Whoever believes to hold the lock or a share of it does: the server has one owner, or shares.
    fn check_holders(&self) {
        let mut owners = None;
        for process in &self.processes {
            // Whose token was passed on may be told a little later that it was adopted.
            let passed_on = |id: &AttemptId| {
                process.held.iter().any(|held| held.passed_on && held.lease.attempt() == *id)
            };
            for id in process.believed(self.now).filter(|id| !passed_on(id)) {
                let owners = owners.get_or_insert_with(|| self.server.owners(self.now));
                let client = &process.world.machine.config.client;
                let mut own = owners.iter().filter_map(|owner| owner.number(client));
                let owns = own.any(|number| AttemptId(number) == id)
                    || self.server.robbed_until_ms(Token::new(client, id.0, "").as_str())
                        >= Some(self.server.time(self.now).as_micros() / 1_000);
                self.demand(owns, || format!("{client} believes to hold the lock of {owners:?}"));
            }
        }
    }

    /// A token of a living process that stands on the server is known there, or nobody would ever give
    /// it back. But for those given back before, in data that a server has lost.
    pub(super) fn check_tokens(&self) {
        let orphan = self.orphans().into_iter().find(|token| !self.returned.contains(token));
        self.demand(orphan.is_none(), || format!("{orphan:?} is on the server for nobody"));
    }

    /// The tokens of living processes that stand on the server and are known nowhere else.
    pub(super) fn orphans(&self) -> BTreeSet<String> {
        let tokens = self.server.snapshot(self.now).tokens();
        let is_orphan = |token: &&Token| {
            let machines = self.processes.iter().map(|process| &process.world.machine);
            let mut owners = machines.filter_map(|machine| {
                let number = token.number(&machine.config.client)?;
                Some((machine, AttemptId(number)))
            });
            owners.any(|(machine, id)| {
                let plain = format!("hf1.{}.{}", machine.config.client, id.0);
                !knows(machine, id) && !self.kept.contains(&plain)
            })
        };
        tokens.iter().filter(is_orphan).map(ToString::to_string).collect()
    }

    pub(super) fn check_fence(&mut self, who: usize, lease: LeaseId, fence: u64, shared: bool) {
        let before = self.fences.insert(fence, who);
        self.demand(before.is_none(), || format!("the fence {fence} was given twice"));
        // Where leases end too early callers may learn of their locks in another order than they got them.
        // So also where it was stolen before they have learned of it.
        let stolen = self.is_robbed(&self.processes[who].token_of(lease));
        let (last, steady) = (self.last_fence, self.is_steady() && !stolen);
        self.demand(!steady || fence > last, || format!("the fence {fence} after {last}"));
        // Those who share learn of it in any order.
        if !shared {
            self.last_fence = fence.max(if stolen { last } else { 0 });
        }
    }

    pub(super) fn check_outcome(&self, who: usize, wish: Wish, outcome: &Outcome) {
        let clock = self.processes[who].world.now;
        let right = match wish {
            Wish::Stale => *outcome == Outcome::Lost,
            // However often it was asked: nobody else can have ended it but a thief.
            Wish::Release { lease, until } if self.is_steady() && clock < until => {
                *outcome != Outcome::Lost || self.is_robbed(&self.processes[who].token_of(lease))
            }
            Wish::Release { .. } | Wish::Cancelled => true,
            Wish::Lock | Wish::Share | Wish::Adopt { .. } | Wish::Other => {
                *outcome != Outcome::Cancelled
            }
        };
        self.demand(right, || format!("{wish:?} ended with {outcome:?}"));
    }

    /// Everything heals and everybody lets go: whoever waits gets the lock in time, and nothing is left.
    pub(super) fn quiet(&mut self) {
        let began = self.now;
        for who in 0..PROCESSES {
            let process = &mut self.processes[who];
            process.stopped_until = process.stopped_until.map(|_| began);
            process.cut_off_until = None;
            process.world.deaf = false;
            let op = process.world.acquire(1_000, Wait::Forever);
            process.open.insert(op, Wish::Lock);
        }
        self.mend_key();
        let bound = self.now + self.bound();
        while self.now < began + QUIET {
            self.calm();
            let waits = self.processes.iter().any(|process| !process.open.is_empty());
            self.demand(!waits || self.now < bound, || self.who_waits());
            self.pass(if waits { ms(20) } else { ms(1_000) });
        }
        for process in &self.processes {
            let machine = &process.world.machine;
            self.demand(machine.is_idle(), || format!("{machine:?}"));
            let requests = machine.stats().requests;
            self.demand(requests < REQUESTS_MAX, || format!("{requests} requests"));
        }
        let left = self.server.leftovers(self.now);
        self.demand(left.is_empty(), || format!("left on the server: {left}"));
    }

    /// Within what time all who wait get the lock, once nothing goes wrong any more: the lease that is
    /// left to whoever is gone, or that a late request takes for it, a claim that nobody makes, and one
    /// poll. And a little, for they get it one after the other.
    fn bound(&self) -> Duration {
        let lease_ms = self.server.command(self.now, &["PTTL", World::keys().lock()]);
        let lease = ms(lease_ms.and_then(|ms| ms.parse().ok()).unwrap_or(0));
        lease + self.late_lease() + CLAIM + POLL + ms(1_000)
    }

    /// Nothing is on its way any more, and nobody keeps a lock.
    fn calm(&mut self) {
        for who in 0..PROCESSES {
            if self.processes[who].stopped_until.is_some() {
                // It does not know yet what time it is.
                continue;
            }
            self.release(who);
            if self.processes[who].world.connecting {
                self.connect(who);
            }
            let process = &mut self.processes[who];
            let world = &mut process.world;
            while !world.is_silent() {
                world.answer_one();
                world.answer_look();
                world.confirm(true);
                world.receive_one();
                let requests = world.machine.stats().requests;
                assert!(requests < REQUESTS_MAX, "{requests} requests");
            }
            self.collect(who);
        }
    }

    fn who_waits(&self) -> String {
        let waiting = self.processes.iter().map(|process| process.open.len());
        format!("still waiting, by process: {:?}", waiting.collect::<Vec<_>>())
    }
}
