//! The faults in the schedules of the simulator.

use super::defects::Defect;
use super::process::Process;
use super::server::Server;
use super::simulator::{Kind, PROCESSES, Simulation};
use super::snapshot::RAISED;
use super::world::ms;
use crate::machine::lease::{Leases, PendingRenewal};
use crate::machine::{Machine, TokenId};
use crate::protocol::Token;
use crate::server::memory::Entries;
use std::collections::BTreeSet;
use std::time::Duration;

/// The interval of the server probes on a connection that is used.
const LOOK: Duration = Duration::from_millis(1_010);
/// Buffered requests arrive within this time: less than the delay of a repeated release.
const LATE_MS: u64 = 900;

impl Simulation {
    /// A client without holdfast takes the lock if it is free, or releases it.
    pub(super) fn old_code(&mut self) {
        let lock = self.any_lock();
        let (keys, lease) = (self.locks[lock].keys.clone(), ms(self.rng.u64(1..3_000)));
        match self.server.command(self.now, &["GET", keys.lock()]) {
            None => {
                self.server.set_foreign(self.now, &keys, "old", lease);
                if let Some(cluster) = &self.cluster {
                    cluster.place(keys.lock());
                }
            }
            Some(value) if value == "old" => {
                self.server.command(self.now, &["DEL", keys.lock()]);
            }
            Some(_) => return,
        }
        self.note(9, format_args!("old code takes the lock for {lease:?}, or lets it go"));
    }

    pub(super) fn fault(&mut self, who: usize) {
        let which = self.rng.u32(..14);
        for (other, process) in self.processes.iter_mut().enumerate() {
            // All processes meet the faults of the server.
            process.is_ordered &= other != who && which < 11;
        }
        match which {
            0..4 => {
                self.note(who, format_args!("loses its connection and what it asked"));
                self.lose_requests(who);
                if self.rng.u32(..3) == 0 {
                    // Its callers have seen enough.
                    (0..4).for_each(|_| self.cancel(who));
                }
            }
            4..6 => {
                self.note(who, format_args!("loses its connection and the answers"));
                self.processes[who].world.execute_and_lose_replies();
            }
            6 => {
                self.note(who, format_args!("loses messages"));
                self.processes[who].world.lose_messages();
            }
            7 => {
                let until = self.now + ms(self.rng.u64(1..6_000));
                self.note(who, format_args!("is cut off until {until:?}"));
                self.processes[who].cut_off_until = Some(until);
            }
            8 | 9 => {
                let until = self.now + ms(self.rng.u64(1..12_000));
                self.note(who, format_args!("is stopped until {until:?}"));
                self.processes[who].stopped_until = Some(until);
                if self.reachable(who) && self.rng.bool() {
                    // The requests that it has written are still executed.
                    while !self.processes[who].world.wire.is_empty() {
                        self.execute(who);
                    }
                }
            }
            10 => self.crash(who),
            11..14 if self.kind == Kind::Split => self.switch(),
            11..14 if self.kind == Kind::Cluster => self.reshard_or_disturb(who),
            11..14 if self.kind == Kind::Moving => {
                let moving = !self.server.is_moving();
                self.note(9, format_args!("the slot moves: {moving}"));
                self.server.set_moving(moving);
            }
            11..14 if matches!(self.kind, Kind::Flushing | Kind::Stepping) => self.disturb(),
            11 => self.spoil_key(),
            12 => self.disturb(),
            _ => self.restart_server(),
        }
    }

    pub(super) fn lose_requests(&mut self, who: usize) {
        self.processes[who].world.lose_requests();
        self.delay_lost(who);
    }

    /// What was lost with a connection may arrive all the same, later.
    pub(super) fn delay_lost(&mut self, who: usize) {
        for (destination, call) in self.processes[who].world.take_late() {
            self.processes[who].tidy = false;
            if self.rng.u32(..4) > 0 {
                let late = ms(self.rng.u64(..LATE_MS));
                let slow = if Defect::ClosedGracefully.is_on() { 5 } else { 1 };
                self.late.push((self.now + late * slow, destination, call));
            }
        }
    }

    fn crash(&mut self, who: usize) {
        self.note(who, format_args!("crashes; another takes its place"));
        for node in self.processes[who].world.nodes() {
            self.processes[who].world.face(node);
            self.lose_requests(who);
        }
        self.processes[who].world.leave();
        self.processes[who] = self.start();
    }

    /// A stranger overwrites a key of the lock for a while.
    fn spoil_key(&mut self) {
        let lock = self.any_lock();
        let keys = self.locks[lock].keys.clone();
        let counter = self.server.counter_key(&keys);
        let side_keys = [&counter, &keys.queue(), &keys.waiters(), &keys.shared()];
        let key = side_keys[self.rng.usize(..4)].clone();
        // Without the counter, only the server's clock orders the lock's fences.
        let unordered = self.kind == Kind::Stepping && key == counter;
        // The sharers would lose the lock without a notice.
        let shared = key == keys.shared() && self.server.is_shared(self.now, &keys);
        if self.spoiled.is_some() || unordered || shared {
            return;
        }
        self.note(9, format_args!("a stranger writes to {key}"));
        self.server.command(self.now, &["DEL", &key]);
        if key == counter && self.rng.bool() {
            self.server.command(self.now, &["SET", &key, &RAISED.to_string()]);
        } else if key == counter {
            self.server.command(self.now, &["ZADD", &key, "1", "x"]);
        } else {
            self.server.command(self.now, &["SET", &key, "x"]);
        }
        self.server.reread(self.now);
        let until = self.now + ms(self.rng.u64(1..3_000));
        self.spoiled = Some((until, key));
        // No lock is taken, lost and taken again within the same microsecond.
        self.pass(ms(1));
    }

    pub(super) fn mend_key(&mut self) {
        if let Some((_, key)) = self.spoiled.take() {
            self.server.command(self.now, &["DEL", &key]);
            self.server.reread(self.now);
        }
    }

    /// Applies the fault of this kind of schedule: data loss, an earlier state, or another clock.
    fn disturb(&mut self) {
        match self.kind {
            // The stranger's value would return later.
            _ if self.spoiled.is_some() => {}
            Kind::Steady | Kind::Split | Kind::Moving | Kind::Cluster | Kind::Calm => {}
            Kind::Flushing => {
                self.note(9, format_args!("the server loses its data, and no connection"));
                self.forget(|it| it.server.restore(it.now, Entries::default()));
                // No lock is taken before and after that within the same microsecond.
                self.pass(ms(1));
            }
            Kind::Losing => {
                self.saved = self.server.save();
                self.note(9, format_args!("a replica falls behind"));
            }
            Kind::Stepping => {
                // A larger step back would make leases outlast the schedule.
                let step_us = match self.rng.u32(..3) {
                    0 => self.rng.i64(-5_000_000..0),
                    1 => self.rng.i64(0..4_000_000),
                    _ => self.rng.i64(0..600_000_000),
                };
                let sleeper = (self.rng.u32(..3) == 0).then(|| self.fall_asleep());
                self.forget(|it| it.server.step_clock(step_us));
                self.clock_set = Some(self.now);
                if let Some(who) = sleeper {
                    self.sleep(who);
                }
                self.note(9, format_args!("the server's clock is set by {step_us} us"));
            }
        }
    }

    pub(super) fn restart_server(&mut self) {
        let loses = self.kind == Kind::Losing && self.rng.bool();
        self.note(9, format_args!("the server restarts, and loses data: {loses}"));
        for who in 0..PROCESSES {
            self.lose_connection(who);
        }
        // Its sockets are gone too.
        self.late.clear();
        if loses {
            self.spoiled = None;
            let entries = if self.rng.bool() { self.saved.clone() } else { Entries::default() };
            self.forget(|it| it.server.restore(it.now, entries));
            self.returned = &self.orphans() | &self.places_of_owners();
        }
        self.unproven.extend(self.unclaimed());
        self.server.set_replication_id(&format!("run {}", self.rng.u64(..)));
        if self.rng.u32(..3) == 0 {
            let loading = ms(self.rng.u64(1..400));
            self.note(9, format_args!("the server loads its data for {loading:?}"));
            self.loading_until = Some(self.now + loading);
            self.server.set_loading(true);
        }
        // No server restarts within the same microsecond.
        let pause = ms(self.rng.u64(1..40));
        self.pass(pause);
    }

    pub(super) fn end_loading(&mut self) {
        if self.loading_until.take().is_some() {
            self.server.set_loading(false);
        }
    }

    /// The tokens that wait at the server, in restored data, though their processes have had the grant since: these forget
    /// them with the lease.
    fn places_of_owners(&self) -> BTreeSet<String> {
        let places = self.locks.iter().flat_map(|it| self.server.snapshot(self.now, &it.keys).line);
        let is_known_as_owner = |token: &Token| {
            let mut machines = self.processes.iter().map(|process| &process.world.machine);
            machines.any(|machine| {
                let number = token.number(&machine.context.config.client).map(TokenId);
                number.is_some_and(|id| {
                    let waits = machine.entries.get(&id).is_some();
                    !waits && !machine.releases.contains_key(&id)
                })
            })
        };
        let tokens = places.map(|waiter| Token::from_text(&waiter.token));
        tokens.filter(is_known_as_owner).map(|token| token.to_string()).collect()
    }

    /// The tokens of locks that were granted by message and not confirmed since.
    pub(super) fn unclaimed(&self) -> BTreeSet<String> {
        let of = |process: &Process| {
            let Machine { leases, context, .. } = &process.world.machine;
            let held = leases.ids().into_iter().filter_map(|id| leases.get(id));
            let unclaimed = held.filter(|held| held.pending_renewal == Some(PendingRenewal::Claim));
            unclaimed.map(|held| Leases::token_of(context, held).to_string()).collect::<Vec<_>>()
        };
        self.processes.iter().flat_map(of).collect()
    }

    /// Stops a process, preferably a waiter with nothing in flight, for longer than a clock comparison is
    /// trusted.
    fn fall_asleep(&mut self) -> usize {
        let any = self.rng.usize(..PROCESSES);
        let waits = |who: &usize| {
            let Process { world, open, .. } = &self.processes[*who];
            open.values().any(|open| open.waits.is_some()) && world.up && world.is_silent()
        };
        let who = (0..PROCESSES).find(waits).unwrap_or(any);
        self.note(who, format_args!("sleeps"));
        self.processes[who].stopped_until = Some(self.now + ms(60_000));
        who
    }

    /// Meanwhile the other processes are served, and then release all their locks.
    fn sleep(&mut self, sleeper: usize) {
        let quiet = ms(self.rng.u64(8_000..12_000)) / 32;
        for _ in 0..32 {
            self.pass(quiet);
            self.serve(sleeper);
        }
        for who in (0..PROCESSES).filter(|who| *who != sleeper) {
            // The clock of one that is stopped has not advanced yet.
            let runs = |it: &Process| it.closing.is_none() && it.stopped_until.is_none();
            while !self.processes[who].held.is_empty() && runs(&self.processes[who]) {
                self.release(who);
            }
        }
        self.serve(sleeper);
        let late = ms(self.rng.u64(2_500..7_000));
        self.pass(late);
        self.processes[sleeper].stopped_until = Some(self.now);
    }

    /// The server answers every process but one.
    fn serve(&mut self, sleeper: usize) {
        for who in (0..PROCESSES).filter(|who| *who != sleeper) {
            let process = &mut self.processes[who];
            let runs = process.stopped_until.is_none() && process.cut_off_until.is_none();
            while runs && !process.world.is_silent() && !process.world.connecting {
                process.world.answer_one();
                process.world.answer_probe();
                process.world.confirm(true);
                process.world.receive_one();
            }
            self.collect(who);
        }
    }

    /// A replica is promoted; the old primary may go on until it is demoted.
    fn switch(&mut self) {
        if self.rng.u32(..3) == 0 {
            self.note(9, format_args!("a replica falls behind"));
            self.saved = self.server.save();
            return;
        }
        let Some(other) = self.servers.iter().find(|it| !it.is(&self.server)).cloned() else {
            return;
        };
        match other.replica_since() {
            None if self.rng.bool() => self.demote(&other),
            None => {
                let who = self.rng.usize(..PROCESSES);
                self.note(who, format_args!("is led to another server, or to the same"));
                self.lose_connection(who);
            }
            // A process with traffic notices within a second that the data has another replication id. Sentinel closes
            // the connections of a server that it demotes, so no request of before is answered after its next promotion.
            Some(since) if self.now.since(since) < LOOK || self.is_asked(&other) => {}
            Some(_) => self.promote(other),
        }
    }

    /// Whether a request is on its way to `server`.
    fn is_asked(&self, server: &Server) -> bool {
        let mut worlds = self.processes.iter().map(|process| &process.world);
        worlds.any(|world| world.up && world.server.is(server) && !world.wire.is_empty())
    }

    fn promote(&mut self, other: Server) {
        let replication_id = format!("run {}", self.rng.u64(..));
        self.note(9, format_args!("another server takes the place of the first: {replication_id}"));
        let entries = if self.rng.bool() { self.saved.clone() } else { self.server.save() };
        self.saved = entries.clone();
        self.forget(|it| other.promote(it.now, entries, &replication_id));
        let index = self.servers.iter().position(|it| it.is(&other)).unwrap();
        self.promoted_at[index] = self.server.executed();
        self.server = other;
        for who in 0..PROCESSES {
            if self.rng.bool() {
                self.lose_connection(who);
            }
        }
        // No server is promoted within the same microsecond.
        let pause = ms(self.rng.u64(1..40));
        self.pass(pause);
    }

    /// Demotes a server to a replica of its successor: its own later writes are lost.
    pub(super) fn demote(&mut self, other: &Server) {
        self.note(9, format_args!("a server is told that another has taken its place"));
        let now = self.now;
        self.forget(|_| other.demote(now));
    }

    pub(super) fn lose_connection(&mut self, who: usize) {
        // Also one that is in doubt, beside which another is attempted.
        if self.processes[who].world.up {
            self.lose_requests(who);
        }
    }
}
