//! Other code's leases in the random schedules: workers take the locks of jobs, renew them, release them or let them expire, and
//! processes keep them meanwhile.
//!
//! What they do is drawn from numbers of their own, in a part of the seeds, so the other schedules are what they are without
//! them.

use super::simulator::{Kind, PROCESSES, Simulation};
use super::world::{World, ms};
use crate::machine::lease::Origin;
use crate::machine::{Command, LeaseId, RequestId};
use crate::protocol::{Call, LockKeys, Mono};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const STALL: Duration = ms(30_000);
/// A worker that other code is alone with is never kept.
const ALONE: &str = "alone";

/// The locks of jobs, in the schedules that have some.
#[derive(Default)]
pub(super) struct Jobs {
    all: Vec<Job>,
    kept: Vec<Kept>,
    /// What is kept no more, by manager and value, and the last request that may have been for it.
    over: BTreeMap<(String, String), RequestId>,
    /// The values that were there when a server lost data, or when its clock was set.
    forgotten: BTreeSet<String>,
    workers: usize,
}

/// The lock of one job.
struct Job {
    name: String,
    keys: LockKeys,
    /// What each server must have.
    expected: Vec<Option<Expected>>,
    /// Since when a value is on no server.
    gone: BTreeMap<String, Mono>,
}

/// The lock of a job on one server.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Expected {
    value: String,
    /// By the server's clock, in ms; none if it has no end.
    until_ms: Option<u64>,
}

/// The lock of a job that a process keeps.
struct Kept {
    who: usize,
    client: String,
    job: usize,
    value: String,
    lease: LeaseId,
    ttl: Duration,
    /// When it began, and the end of the lease that was taken on trust.
    began: Mono,
    trusted: Mono,
}

impl Simulation {
    /// In some schedules workers have jobs beside the other callers.
    pub(super) fn act_for_jobs(&mut self, index: usize) {
        let mut dice = fastrand::Rng::with_seed(self.seed.wrapping_mul(999) + index as u64);
        if self.seed % 13 != 8 || dice.u32(..3) == 0 {
            return;
        }
        if self.jobs.all.is_empty() {
            self.add_jobs();
        }
        let (job, who) = (dice.usize(..self.jobs.all.len()), dice.usize(..PROCESSES));
        match dice.u32(..16) {
            0..6 => self.take_job(job, who, &mut dice),
            6..8 => self.renew_job(job),
            8..10 => self.ask_about_job(job),
            10 => self.keep_for_ever(job),
            11 | 14 => self.end_job(job, false),
            12..14 => self.end_job(job, true),
            // Its worker has ended it, and its process goes on keeping it.
            _ => self.release_job(job),
        }
        self.expect_jobs();
    }

    fn add_jobs(&mut self) {
        let tag = if self.kind == Kind::Cluster { "{s}" } else { "" };
        self.jobs.all = (0..2)
            .map(|number| {
                let name = format!("{tag}job {number}");
                let keys = LockKeys::from_key(&name);
                Job { name, keys, expected: Vec::new(), gone: BTreeMap::new() }
            })
            .collect();
    }

    /// A worker takes the lock of a job that is free, and its process keeps it, or is one without holdfast.
    fn take_job(&mut self, job: usize, who: usize, dice: &mut fastrand::Rng) {
        let keys = self.jobs.all[job].keys.clone();
        if self.loading_until.is_some()
            || self.server.command(self.now, &["GET", keys.lock()]).is_some()
        {
            return;
        }
        self.jobs.workers += 1;
        let alone = dice.u32(..4) == 0;
        let value = format!("{} {}", if alone { ALONE } else { "worker" }, self.jobs.workers);
        let ttl = ms([200, 1_000, 4_000][dice.usize(..3)]);
        self.server.set_foreign(self.now, &keys, &value, ttl);
        if let Some(cluster) = &self.cluster {
            cluster.place(keys.lock());
        }
        self.note(9, format_args!("{value} takes {} for {ttl:?}", keys.lock()));
        let runs =
            |it: &super::process::Process| it.stopped_until.is_none() && it.closing.is_none();
        if alone || !runs(&self.processes[who]) {
            return;
        }
        let age = if dice.bool() { Duration::ZERO } else { ttl * dice.u32(..200) / 100 };
        let key = keys.lock().to_owned();
        let keep = Command::KeepForeign {
            key,
            value: value.as_str().into(),
            ttl,
            age,
            stall_timeout: STALL,
        };
        let world = &mut self.processes[who].world;
        let op = world.command(keep);
        let lease = world.lease(op).0;
        forget_outcome(world, op);
        let trusted = world.deadlines[&lease];
        let client = world.machine.context.config.client.clone();
        self.note(who, format_args!("keeps it, {age:?} old, as {lease:?}"));
        let began = self.now;
        self.jobs.kept.push(Kept { who, client, job, value, lease, ttl, began, trusted });
    }

    /// The worker of a job renews its lock, if it still has it.
    fn renew_job(&mut self, job: usize) {
        let Some(Kept { value, ttl, .. }) = self.kept_of(job) else { return };
        let (value, ttl, keys) = (value.clone(), *ttl, self.jobs.all[job].keys.clone());
        if self.has(job, &value) {
            self.note(9, format_args!("{value} renews {}", keys.lock()));
            self.server.set_foreign(self.now, &keys, &value, ttl);
        }
    }

    fn ask_about_job(&mut self, job: usize) {
        let Some(Kept { who, lease, .. }) = self.kept_of(job) else { return };
        let (who, lease) = (*who, *lease);
        if self.processes[who].stopped_until.is_none() && self.processes[who].closing.is_none() {
            self.note(who, format_args!("asks about {lease:?}"));
            self.processes[who].world.command(Command::Extend { lease, ttl: None });
        }
    }

    /// A worker takes the end from the lock of its job.
    fn keep_for_ever(&mut self, job: usize) {
        let Some(Kept { value, .. }) = self.kept_of(job) else { return };
        let (value, keys) = (value.clone(), self.jobs.all[job].keys.clone());
        if self.has(job, &value) {
            self.note(9, format_args!("{} has no end any more", keys.lock()));
            self.server.command(self.now, &["SET", keys.lock(), &value]);
        }
    }

    /// A job ends, and its process keeps it no more; its worker releases the lock, or leaves it to expire.
    fn end_job(&mut self, job: usize, releases: bool) {
        if let Some(place) = self.jobs.kept.iter().position(|kept| kept.job == job) {
            let Kept { who, .. } = self.jobs.kept[place];
            if self.processes[who].stopped_until.is_some() {
                return;
            }
            let kept = self.jobs.kept.remove(place);
            self.keep_no_more(kept);
        }
        if releases {
            self.release_job(job);
        }
    }

    fn keep_no_more(&mut self, Kept { who, client, value, lease, .. }: Kept) {
        self.note(who, format_args!("keeps {value} no more"));
        let world = &mut self.processes[who].world;
        let op = world.release(lease);
        if !world.stopped && world.outcome(op).is_some() {
            forget_outcome(world, op);
        }
        self.jobs.over.insert((client, value), world.last_sent);
    }

    /// Whoever has the lock of a job releases it.
    fn release_job(&mut self, job: usize) {
        let keys = self.jobs.all[job].keys.clone();
        if self.loading_until.is_none() {
            self.note(9, format_args!("{} is released", keys.lock()));
            self.server.command(self.now, &["DEL", keys.lock()]);
        }
    }

    fn kept_of(&self, job: usize) -> Option<&Kept> {
        self.jobs.kept.iter().find(|kept| kept.job == job)
    }

    fn has(&self, job: usize, value: &str) -> bool {
        let key = self.jobs.all[job].keys.lock();
        self.loading_until.is_none() && self.server.ask(self.now, &["GET", key]) == [value]
    }

    /// What workers and faults have made of the locks of jobs is what must be there from now on.
    fn expect_jobs(&mut self) {
        for job in 0..self.jobs.all.len() {
            let found = self.find_job(job);
            self.jobs.all[job].expected = found;
        }
    }

    /// Changes the data or the clock of servers.
    pub(super) fn forget_jobs(&mut self) {
        let known = self.jobs.all.iter().flat_map(|job| job.expected.iter().flatten());
        let known: Vec<_> = known.map(|expected| expected.value.clone()).collect();
        self.jobs.forgotten.extend(known);
        self.expect_jobs();
    }

    fn find_job(&self, job: usize) -> Vec<Option<Expected>> {
        let key = self.jobs.all[job].keys.lock();
        let find = |server: &super::server::Server| {
            let value = server.ask(self.now, &["GET", key]).pop()?;
            let left_ms: i64 = server.ask(self.now, &["PTTL", key]).pop()?.parse().ok()?;
            let now_ms = server.time(self.now).as_micros() / 1_000;
            let until_ms = u64::try_from(left_ms).ok().map(|left_ms| now_ms + left_ms);
            Some(Expected { value, until_ms })
        };
        self.servers.iter().map(find).collect()
    }

    /// Checks that keeping has created, changed or deleted no lock of other code, has shortened none, and has lengthened none
    /// that nobody keeps; that no process believes in one that has ended, or for longer than a lease in one that was taken
    /// away; and that nothing is renewed that is kept no more.
    pub(super) fn check_jobs(&mut self) {
        if self.jobs.all.is_empty() {
            return;
        }
        self.forget_ended_processes();
        for job in 0..self.jobs.all.len() {
            let found = self.find_job(job);
            for (place, now) in found.iter().enumerate() {
                let before = self.jobs.all[job].expected[place].clone();
                self.check_lock_of_job(job, place, before.as_ref(), now.as_ref());
            }
            self.note_gone(job, &found);
            self.jobs.all[job].expected = found;
        }
        for kept in &self.jobs.kept {
            self.check_belief(kept);
        }
        self.check_sent();
    }

    fn check_lock_of_job(
        &self,
        job: usize,
        place: usize,
        before: Option<&Expected>,
        now: Option<&Expected>,
    ) {
        let (name, server) = (&self.jobs.all[job].name, &self.servers[place]);
        let now_ms = server.time(self.now).as_micros() / 1_000;
        match (before, now) {
            (None, None) => {}
            (None, Some(now)) => self.demand(false, || format!("{name} was taken: {now:?}")),
            (Some(before), None) => {
                let is_over = before.until_ms.is_some_and(|until_ms| until_ms <= now_ms);
                self.demand(is_over, || format!("{name} was released: {before:?}"));
                let excused = self.jobs.forgotten.contains(&before.value) || self.servers.len() > 1;
                let mut kept = self.jobs.kept.iter().filter(|kept| kept.value == before.value);
                let believes = kept.find(|kept| !excused && self.believes(kept, true));
                self.demand(believes.is_none(), || {
                    format!("{name} has ended, and is believed to be kept for {before:?}")
                });
            }
            (Some(before), Some(now)) => {
                let same = before.value == now.value;
                self.demand(same, || format!("{name} was changed from {before:?} to {now:?}"));
                let cut = now.until_ms.is_some_and(|now| before.until_ms.is_none_or(|it| now < it));
                self.demand(!cut, || format!("{name} was cut from {before:?} to {now:?}"));
                let longer = before.until_ms < now.until_ms;
                let alone = before.value.starts_with(ALONE);
                self.demand(!longer || !alone, || {
                    format!("{before:?}, which nobody keeps, got longer")
                });
            }
        }
    }

    /// Notes since when values are on no server.
    fn note_gone(&mut self, job: usize, found: &[Option<Expected>]) {
        let Job { expected, gone, .. } = &mut self.jobs.all[job];
        for Expected { value, .. } in expected.iter().flatten() {
            gone.entry(value.clone()).or_insert(self.now);
        }
        for Expected { value, .. } in found.iter().flatten() {
            gone.remove(value);
        }
    }

    /// Whether a process believes to keep a lock; `confirmed`: by an answer, and not only since its worker has said so.
    fn believes(&self, kept: &Kept, confirmed: bool) -> bool {
        let Kept { who, lease, trusted, .. } = kept;
        let process = &self.processes[*who];
        let until = process.world.deadlines.get(lease);
        until.is_some_and(|until| {
            *until > process.clock(self.now) && (!confirmed || *until > *trusted)
        })
    }

    /// Checks that whoever keeps a lock that is gone is told within a lease, and that no end is kept from it.
    fn check_belief(&self, kept: &Kept) {
        let Kept { who, job, value, lease, ttl, began, .. } = kept;
        let gone = self.jobs.all[*job].gone.get(value);
        let late = gone.is_some_and(|gone| self.now > (*gone).max(*began) + *ttl);
        self.demand(!late || !self.believes(kept, false), || {
            format!("{who} does not learn that {value} is gone")
        });
        let world = &self.processes[*who].world;
        let told =
            world.deadlines.contains_key(lease) || world.lost.iter().any(|(lost, _)| lost == lease);
        self.demand(told, || format!("{who}: {lease:?} of {value} ended without a notice"));
    }

    /// Checks that nothing is asked about what is kept no more, but for what was sent before.
    fn check_sent(&self) {
        for process in &self.processes {
            let client = &process.world.machine.context.config.client;
            for (request, call) in &process.world.wire {
                let Call::KeepForeign { token, .. } = call else { continue };
                let over = self.jobs.over.get(&(client.clone(), token.to_string()));
                let again = over.is_some_and(|last| request > last);
                self.demand(!again, || format!("{client} renews {token}, and keeps it no more"));
            }
        }
    }

    /// A process that has ended tells nobody anything. What is kept no more by a loss is over, too.
    fn forget_ended_processes(&mut self) {
        let mut kept = std::mem::take(&mut self.jobs.kept);
        kept.retain(|kept| {
            let world = &self.processes[kept.who].world;
            let lives = world.machine.context.config.client == kept.client;
            let is_over = world.lost.iter().any(|(lost, _)| *lost == kept.lease);
            // A manager that is being closed gives all up at once, and its callers know.
            let is_over = is_over || self.processes[kept.who].closing.is_some();
            if lives && is_over {
                let over = (kept.client.clone(), kept.value.clone());
                self.jobs.over.insert(over, world.last_sent);
            }
            lives && !is_over
        });
        self.jobs.kept = kept;
    }

    /// All jobs end: whoever keeps one learns of that at its next renewal.
    pub(super) fn end_jobs(&mut self) {
        for job in 0..self.jobs.all.len() {
            let keys = self.jobs.all[job].keys.clone();
            for server in &self.servers {
                server.command(self.now, &["DEL", keys.lock()]);
            }
        }
        self.note(9, format_args!("all jobs have ended"));
        self.expect_jobs();
    }
}

fn forget_outcome(world: &mut World, op: crate::machine::OpId) {
    world.completed.retain(|other| *other != op);
    world.take_outcome(op);
}

/// Whether a lease of a process is other code's.
pub(super) fn is_kept(world: &World, lease: LeaseId) -> bool {
    world.machine.hold_of(lease).is_some_and(|held| held.origin == Origin::Foreign)
}
