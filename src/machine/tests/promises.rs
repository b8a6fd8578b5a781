//! The invariants of every schedule of the simulator, besides the rules of single calls (`watch.rs`).

use super::callers::is_chosen;
use super::kept::is_kept;
use super::ledger::Lock;
use super::process::{OpKind, Process, knows, knows_chosen};
use super::server::Server;
use super::simulator::{Kind, PROCESSES, Simulation};
use super::snapshot::is_foreign;
use super::world::{ONE_LEASE, ms};
use crate::machine::{Outcome, Protocol, TokenId, Wait};
use crate::protocol::{CLAIM, Mode, Token};
use std::collections::BTreeSet;
use std::time::Duration;

/// Longer than any lease, liveness or key of a wait queue.
const QUIET: Duration = Duration::from_secs(60);
/// The longest time between two requests of a waiter.
const POLL: Duration = Duration::from_millis(5_200);
/// More requests in a schedule mean a retry loop without a pause.
const REQUESTS_MAX: u64 = 3_000;

impl Simulation {
    pub(super) fn demand(&self, right: bool, otherwise: impl FnOnce() -> String) {
        assert!(right, "{}{}", otherwise(), self.story());
    }

    /// Checks that no call has broken a rule.
    pub(super) fn check_calls(&self) {
        let violation = self.server.violation();
        self.demand(violation.is_none(), || violation.unwrap_or_default());
    }

    pub(super) fn check(&mut self) {
        self.processes.iter_mut().for_each(Process::see_idle_locks);
        self.check_calls();
        self.check_holders();
        self.check_jobs();
        if self.is_steady() {
            self.check_lengthened();
        }
        for (who, process) in self.processes.iter().enumerate() {
            let overdue = process.overdue_idle_lock();
            self.demand(overdue.is_none(), || format!("{who}: {overdue:?} is idle for too long"));
            let (deadlines, lost) = (&process.world.deadlines, &process.world.lost);
            let unreported = process.held.iter().map(|held| held.lease).find(|lease| {
                !deadlines.contains_key(lease) && lost.iter().all(|(other, _)| other != lease)
            });
            self.demand(unreported.is_none(), || {
                format!("{who}: {unreported:?} ended without a notice")
            });
        }
    }

    /// Checks that every believed lock or share is one on its server. Exceptions, until the lease would have
    /// ended: data that a server has lost, and stolen locks.
    fn check_holders(&self) {
        let mut owners = vec![None; self.locks.len()];
        for process in &self.processes {
            // A caller that exported its token may learn a little later that it was adopted.
            let exported = |id: TokenId| {
                process.held.iter().any(|held| held.adoptable && held.lease.token_id() == id)
            };
            let machine = &process.world.machine;
            for (lease, _) in process.believed(self.now) {
                let id = lease.token_id();
                if exported(id) || is_kept(&process.world, lease) {
                    continue;
                }
                let keys = machine.leases.get(id).map(|held| &held.keys);
                let lock = self.locks.iter().position(|lock| Some(&lock.keys) == keys);
                self.demand(lock.is_some(), || format!("{lease:?} is of no lock"));
                let Some(lock) = lock else { continue };
                let owners: &BTreeSet<Token> =
                    owners[lock].get_or_insert_with(|| self.owners_of(lock));
                let client = &machine.context.config.client;
                let token = || process.token_of(lease);
                let excused = || {
                    self.is_recent_victim(&token())
                        || self.may_believe(&token())
                        || self.is_taken_over(&token())
                };
                let owns = owners.contains(&token()) || excused();
                self.demand(owns, || format!("{client} believes to hold the lock of {owners:?}"));
            }
        }
    }

    /// Checks that living processes know their tokens on the server, or nobody would give them back.
    /// Exception: tokens given back before, in data that a server has restored.
    pub(super) fn check_tokens(&self) {
        if self.kind == Kind::Split {
            // A grant of one server may be given back at the other.
            return;
        }
        let orphan = self.orphans().into_iter().find(|token| !self.returned.contains(token));
        self.demand(orphan.is_none(), || format!("{orphan:?} is on the server for nobody"));
    }

    /// The tokens of living processes that are on the server and unknown to the processes.
    pub(super) fn orphans(&self) -> BTreeSet<String> {
        let tokens = |lock: &Lock| self.server.snapshot(self.now, &lock.keys).tokens();
        let tokens = self.locks.iter().flat_map(tokens);
        let is_orphan = |token: &Token| {
            let machines = || self.processes.iter().map(|process| &process.world.machine);
            if is_chosen(token) {
                // Without an answer it stays until its lease ends.
                return false;
            }
            if let Some(client) = self.chosen.get(token) {
                let lives = machines().any(|machine| machine.context.config.client == *client);
                let known = machines().any(|machine| knows_chosen(machine, token));
                return lives && !known && !self.left_to_expire.contains(token.as_str());
            }
            if self.stays_of_owner(token) {
                return false;
            }
            let mut owners = machines().filter_map(|machine| {
                let number = token.number(&machine.context.config.client)?;
                Some((machine, TokenId(number)))
            });
            owners.any(|(machine, id)| {
                !knows(machine, id) && !self.left_to_expire.contains(token.as_str())
            })
        };
        tokens.filter(is_orphan).map(|token| token.to_string()).collect()
    }

    pub(super) fn check_outcome(&self, who: usize, kind: OpKind, outcome: &Outcome) {
        let clock = self.processes[who].world.now;
        let right = match kind {
            OpKind::Stale => *outcome == Outcome::Lost,
            // Repeated requests change nothing: only a thief or a server that lost data can have ended it.
            OpKind::Release { lease, until } if clock < until => {
                let token = self.processes[who].token_of(lease);
                // With two servers, the asked one may not be the granting one. A caller may leave its lock to
                // expire, and ask for its release before that is answered.
                let mut asked = self.processes[who].open.values();
                let left = self.left_to_expire.contains(token.as_str())
                    || asked.any(|open| matches!(open.kind, OpKind::Leave(left) if left == lease));
                let unproven = self.unproven.contains(token.as_str());
                // A claim is no proof at a server that this process has met since the grant.
                let shown = &self.processes[who].world.shown;
                let is_elsewhere = self
                    .server
                    .granted(token.as_str())
                    .is_some_and(|granted| shown.as_deref() != Some(&*granted.replication_id));
                let excused = self.kind == Kind::Split
                    || self.is_victim(&token)
                    || self.is_taken_over(&token)
                    || left
                    || unproven
                    || is_elsewhere;
                *outcome != Outcome::Lost || excused || self.is_forgotten(&token)
            }
            OpKind::Release { .. } | OpKind::Cancelled => true,
            OpKind::Lock
            | OpKind::Share
            | OpKind::AcquireAll(_)
            | OpKind::Adopt { .. }
            | OpKind::Leave(_)
            | OpKind::Other => *outcome != Outcome::Cancelled,
        };
        self.demand(right, || format!("{kind:?} ended with {outcome:?}"));
    }

    /// All faults end and all callers release: waiters get the lock in time, and no key remains.
    pub(super) fn quiet(&mut self) {
        let began = self.now;
        self.heal();
        for who in 0..PROCESSES {
            let process = &mut self.processes[who];
            for (lock, Lock { name, .. }) in self.locks.iter().enumerate() {
                let (wait, mode) = (Wait::Forever, Mode::Exclusive);
                let op = process.world.acquire_named(name, 1_000, wait, ONE_LEASE, mode);
                process.ask(op, lock, OpKind::Lock);
            }
        }
        self.mend_key();
        self.server.set_moving(false);
        self.settle_cluster();
        self.unite();
        self.end_jobs();
        let mut bound = self.now + self.bound();
        let mut busy = true;
        while busy {
            self.calm();
            if self.is_left_to_owner() {
                // For a lease that may have begun after the last fault.
                bound = bound.max(self.now + self.bound());
            }
            let waits = self.processes.iter().any(|process| !process.open.is_empty());
            self.demand(!waits || self.now < bound, || self.open_operations());
            let listens = self.is_at_rest();
            self.pass(if waits {
                ms(20)
            } else if listens {
                QUIET / 2
            } else {
                ms(300)
            });
            let idle = |process: &Process| process.world.machine.is_idle();
            busy = waits || !self.late.is_empty() || !self.processes.iter().all(idle);
            self.demand(listens || self.now < began + QUIET, || {
                let busy = self.processes.iter().map(|process| &process.world.machine);
                format!("{:?}", busy.filter(|machine| !machine.is_idle()).collect::<Vec<_>>())
            });
        }
        for process in &self.processes {
            let requests = process.world.machine.stats().requests;
            self.demand(requests < REQUESTS_MAX, || format!("{requests} requests"));
        }
        if self.kind != Kind::Split {
            self.check_all_is_given_back();
        }
        self.skip(QUIET);
        let left = self.servers.iter().map(|server| server.leftovers(self.now));
        let left: Vec<_> = left.filter(|left| !left.is_empty()).collect();
        self.demand(left.is_empty(), || format!("left on the server: {left:?}"));
    }

    /// Everybody runs and is reached again.
    pub(super) fn heal(&mut self) {
        for process in &mut self.processes {
            process.stopped_until = process.stopped_until.map(|_| self.now);
            process.cut_off_until = None;
            process.world.pubsub_denied = false;
            process.world.reach_all();
        }
        self.end_loading();
    }

    /// There is one server again, and everybody is led to it.
    fn unite(&mut self) {
        let stale = |it: &&Server| !it.is(&self.server) && it.replica_since().is_none();
        let Some(stale) = self.servers.iter().find(stale).cloned() else { return };
        self.demote(&stale);
        for who in 0..PROCESSES {
            let world = &self.processes[who].world;
            if world.server.is(&stale) && world.up {
                self.lose_requests(who);
            }
        }
    }

    /// Checks that the server has no key of living processes, all of which have given everything back.
    fn check_all_is_given_back(&self) {
        for lock in &self.locks {
            let snapshot = self.server.snapshot(self.now, &lock.keys);
            let client =
                |process: &Process| format!(".{}.", process.world.machine.context.config.client);
            let living: Vec<_> = self.processes.iter().map(client).collect();
            let stays = |token: &str| {
                self.left_to_expire.contains(token)
                    || self.returned.contains(token)
                    || is_foreign(token)
                    || !living.iter().any(|client| token.contains(client))
            };
            let mut tokens = snapshot.tokens().into_iter();
            let left = tokens.find(|token| !stays(token.as_str()) && !self.stays_of_owner(token));
            self.demand(left.is_none(), || format!("{left:?} is left of who has given it back"));
        }
    }

    /// The longest time until all waiters get the lock after the last fault: the lease of a dead process or
    /// of its late request, an unmade claim, one poll, and a little more, because they are served one after
    /// the other.
    fn bound(&self) -> Duration {
        let ttl_ms = |lock: &Lock| {
            let left_ms = self.server.command(self.now, &["PTTL", lock.keys.lock()]);
            left_ms.and_then(|ms| ms.parse().ok()).unwrap_or(0)
        };
        let lease = ms(self.locks.iter().map(ttl_ms).max().unwrap_or(0));
        lease + self.late_lease() + CLAIM + POLL + ms(1_000)
    }

    /// Handles everything in flight, and releases all locks.
    fn calm(&mut self) {
        for who in 0..PROCESSES {
            if self.processes[who].stopped_until.is_some() {
                // Its clock has not advanced yet.
                continue;
            }
            for _ in 0..self.locks.len() {
                self.release(who);
                // A handoff is judged by what its process knew at that time.
                self.collect(who);
            }
            self.deliver(who);
        }
    }

    /// Whatever is on its way to or from a process arrives, also on a connection that is in doubt: the server is quick, so
    /// it answers ahead of another connection.
    pub(super) fn deliver(&mut self, who: usize) {
        self.answer_discovery(who);
        self.answer_all(who);
        while self.processes[who].world.face_connecting() {
            self.connect(who);
        }
        self.answer_all(who);
    }

    fn answer_all(&mut self, who: usize) {
        let world = &mut self.processes[who].world;
        while !world.is_silent_everywhere() {
            world.face_unsilent();
            world.answer_one();
            world.answer_probe();
            world.confirm(true);
            world.receive_one();
            let requests = world.machine.stats().requests;
            assert!(requests < REQUESTS_MAX, "{requests} requests");
        }
        // A manager that has ended connects no more.
        self.collect(who);
    }

    fn open_operations(&self) -> String {
        let waiting = self.processes.iter().map(|process| process.open.len());
        format!("still waiting, by process: {:?}", waiting.collect::<Vec<_>>())
    }
}
