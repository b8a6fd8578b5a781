//! The faults of a schedule.

use super::{Kind, LATE_MS, PROCESSES, Simulation};
use crate::machine::Event;
use crate::machine::tests::quorum_process::Connection;
use crate::machine::tests::world::ms;

impl Simulation {
    pub(super) fn fault(&mut self, who: usize, node: usize) {
        let until = self.now + ms(self.rng.u64(1..4_000));
        match self.rng.u32(..10) {
            0..3 => {
                // A request that takes the lock late does the most harm.
                let taking =
                    self.processes[who].connections.iter().position(Connection::takes_lock);
                let node = taking.filter(|_| self.rng.bool()).unwrap_or(node);
                self.note(format_args!("{who}: loses its connection to {node}"));
                self.cut(who, node);
            }
            3..5 => {
                self.note(format_args!("{who}: is cut off from {node}"));
                self.processes[who].connections[node].cut_off_until = Some(until);
            }
            5..7 => {
                self.note(format_args!("{who}: is stopped until {until:?}"));
                self.processes[who].stopped_until = Some(until);
            }
            7 => {
                self.note(format_args!("{who}: crashes; another takes its place"));
                (0..self.nodes.len()).for_each(|node| self.cut(who, node));
                self.processes[who] = self.start();
                self.open(who);
            }
            _ => self.restart(node),
        }
    }

    /// A connection breaks; its requests are executed later, if at all.
    fn cut(&mut self, who: usize, node: usize) {
        if self.processes[who].connections[node].up {
            self.processes[who].event(node, Event::Disconnected("cut".to_owned()));
        }
        self.scatter(who);
    }

    pub(super) fn scatter(&mut self, who: usize) {
        for (node, call) in std::mem::take(&mut self.processes[who].dropped) {
            if self.rng.u32(..4) > 0 {
                let late_ms = self.rng.u64(..LATE_MS).max(self.rng.u64(..LATE_MS));
                let at = self.now + ms(late_ms);
                self.nodes[node].arrives_late(at, call);
            }
        }
    }

    pub(super) fn end_lease(&mut self, node: usize) {
        if let Some(owner) = self.nodes[node].end_lease(self.now) {
            self.note(format_args!("the lease of {owner} on server {node} ends"));
            self.ended_early.insert(owner);
        }
    }

    fn restart(&mut self, node: usize) {
        let loses = self.kind == Kind::Losing;
        self.note(format_args!("server {node} restarts, and loses its data: {loses}"));
        (0..PROCESSES).for_each(|who| self.cut(who, node));
        let down = ms(self.rng.u64(1..300));
        self.nodes[node].restart(self.now, down, loses);
    }
}
