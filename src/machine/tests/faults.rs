//! What goes wrong in the schedules of the simulator.

use super::defects::Defect;
use super::simulator::{Kind, PROCESSES, Simulation};
use super::world::{World, ms};
use crate::server::memory::Entries;

/// What lay in a buffer arrives within this time: less than a release waits to be repeated.
const LATE_MS: u64 = 900;

impl Simulation {
    /// A service that knows nothing of holdfast takes the lock if it is free, or lets it go.
    pub(super) fn old_code(&mut self) {
        let (keys, lease) = (World::keys(), ms(self.rng.u64(1..3_000)));
        match self.server.command(self.now, &["GET", keys.lock()]) {
            None => self.server.set_foreign(self.now, &keys, "old", lease),
            Some(value) if value == "old" => {
                self.server.command(self.now, &["DEL", keys.lock()]);
            }
            Some(_) => return,
        }
        self.note(9, format_args!("old code takes the lock for {lease:?}, or lets it go"));
    }

    pub(super) fn fault(&mut self, who: usize) {
        match self.rng.u32(..14) {
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
            }
            10 => self.crash(who),
            11 => self.spoil_key(),
            12 => self.disturb(),
            _ => self.restart_server(),
        }
    }

    pub(super) fn lose_requests(&mut self, who: usize) {
        self.processes[who].tidy = false;
        self.processes[who].world.lose_requests();
        for call in std::mem::take(&mut self.processes[who].world.late) {
            if self.rng.u32(..4) > 0 {
                let late = ms(self.rng.u64(..LATE_MS));
                let slow = if Defect::ClosedGracefully.is_on() { 5 } else { 1 };
                self.late.push((self.now + late * slow, call));
            }
        }
    }

    fn crash(&mut self, who: usize) {
        self.note(who, format_args!("crashes; another takes its place"));
        self.lose_requests(who);
        self.processes[who].world.leave();
        self.processes[who] = self.start();
    }

    /// A stranger writes something else to a key of the lock, for a while.
    fn spoil_key(&mut self) {
        let keys = World::keys();
        let side_keys = [&keys.fence(), &keys.queue(), &keys.waiters(), &keys.shared()];
        let key = side_keys[self.rng.usize(..4)].to_owned();
        // Without its counter a lock's fences are ordered by the server's clock alone.
        let unordered = self.kind == Kind::Stepping && key == keys.fence();
        // Who shares the lock would lose it unheard.
        let shared = key == keys.shared() && self.server.is_shared(self.now);
        if self.spoiled.is_some() || unordered || shared {
            return;
        }
        self.note(9, format_args!("a stranger writes to {key}"));
        self.server.command(self.now, &["DEL", &key]);
        if key == keys.fence() {
            self.server.command(self.now, &["ZADD", &key, "1", "x"]);
        } else {
            self.server.command(self.now, &["SET", &key, "x"]);
        }
        self.server.reread(self.now);
        let until = self.now + ms(self.rng.u64(1..3_000));
        self.spoiled = Some((until, key));
        // Nobody takes, loses and takes a lock within the same microsecond.
        self.pass(ms(1));
    }

    pub(super) fn mend_key(&mut self) {
        if let Some((_, key)) = self.spoiled.take() {
            self.server.command(self.now, &["DEL", &key]);
            self.server.reread(self.now);
        }
    }

    /// What only some servers suffer: a moment to which it may return, or another time.
    fn disturb(&mut self) {
        match self.kind {
            // What a stranger wrote would come back later.
            _ if self.spoiled.is_some() => {}
            Kind::Steady => {}
            Kind::Losing => {
                self.saved = self.server.save();
                self.note(9, format_args!("a replica falls behind"));
            }
            Kind::Stepping => {
                // Further back, and leases would outlast the rest of the schedule.
                let step_us = self.rng.i64(-5_000_000..600_000_000);
                self.server.step_clock(step_us);
                self.note(9, format_args!("the server's clock is set by {step_us} us"));
            }
        }
    }

    fn restart_server(&mut self) {
        let loses = self.kind == Kind::Losing && self.rng.bool();
        self.note(9, format_args!("the server restarts, and loses data: {loses}"));
        for who in 0..PROCESSES {
            if !self.processes[who].world.connecting {
                self.lose_requests(who);
            }
        }
        // Its sockets are gone with it.
        self.late.clear();
        if loses {
            self.spoiled = None;
            let entries = if self.rng.bool() { self.saved.clone() } else { Entries::default() };
            self.server.restore(self.now, entries);
            self.returned = self.orphans();
        }
        self.server.set_history(&format!("run {}", self.rng.u64(..)));
        // No server is back within the same microsecond.
        let pause = ms(self.rng.u64(1..40));
        self.pass(pause);
    }
}
