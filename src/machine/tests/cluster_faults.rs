//! What happens to a Cluster in the schedules of the simulator.

use super::cluster_servers::any_server;
use super::process::Held;
use super::simulator::{PROCESSES, Simulation};
use super::world::ms;
use crate::machine::timers::Timer;
use crate::machine::{LeaseId, LossReason};
use crate::protocol::error::Failure;

impl Simulation {
    /// What a process does next has to do with this server, rather one with which something is under way.
    pub(super) fn face_any_server(&mut self, who: usize) {
        if self.cluster.is_none() {
            return;
        }
        let node = any_server(&mut self.rng);
        self.processes[who].world.face(node);
        if self.rng.u32(..8) > 0 {
            self.processes[who].world.face_busy();
        }
        if self.rng.u32(..4) == 0 {
            self.discover(who);
        }
    }

    /// Some server says which has the slot, as far as it has heard, or nobody does; and the answer arrives.
    fn discover(&mut self, who: usize) {
        let Some(cluster) = &self.cluster else { return };
        let unheard = self.processes[who].cut_off_until.is_some() || self.rng.u32(..8) == 0;
        let asked = any_server(&mut self.rng);
        let lost = || Err(Failure::Lost("nobody answers".to_owned()));
        let routes = if unheard { lost() } else { Ok(cluster.routes(asked)) };
        if self.processes[who].world.is_discovering() {
            self.note(who, format_args!("hears of the routes of {asked:?}: {}", !unheard));
            self.processes[who].world.discover(routes);
        }
    }

    pub(super) fn go_on_resharding(&mut self) {
        if let Some(cluster) = &self.cluster {
            cluster.go_on(self.now, &mut self.rng);
        }
    }

    pub(super) fn reshard_or_disturb(&mut self, who: usize) {
        let Some(cluster) = self.cluster.clone() else { return };
        match self.rng.u32(..12) {
            0 => self.restart_node(),
            1 => {
                self.note(who, format_args!("loses what it listens to"));
                self.processes[who].world.lose_subscriptions();
            }
            2 | 3 => {
                let Some(member) = &mut self.processes[who].world.member else { return };
                let node = any_server(&mut self.rng);
                member.cut_off_from = member.cut_off_from.is_none().then_some(node);
                let cut = member.cut_off_from;
                self.note(who, format_args!("is cut off from {cut:?}"));
            }
            _ => {
                if let Some(to) = cluster.begin_move(&mut self.rng) {
                    self.note(9, format_args!("the slot moves to {to:?}"));
                }
            }
        }
    }

    /// A server restarts with its data.
    fn restart_node(&mut self) {
        let Some(cluster) = self.cluster.clone() else { return };
        let node = any_server(&mut self.rng);
        self.note(9, format_args!("{node:?} restarts"));
        for who in 0..PROCESSES {
            self.processes[who].world.face(node);
            self.lose_connection(who);
        }
        self.late.retain(|(_, destination, _)| !destination.is_to(node));
        cluster.restart(node, format!("run {}", self.rng.u64(..)));
        let pause = ms(self.rng.u64(1..40));
        self.pass(pause);
    }

    /// For a while nothing goes wrong but that the slot moves: nobody loses anything by that.
    pub(super) fn lull(&mut self) {
        let Some(cluster) = self.cluster.clone() else { return };
        self.heal();
        self.pass(ms(1));
        for who in 0..PROCESSES {
            self.deliver(who);
        }
        cluster.begin_move(&mut self.rng);
        let mut kept = self.renewed();
        if let Some(to) = cluster.target() {
            // A connection that has failed is made again after a pause, which may be longer than a lease.
            let pauses = |who: usize| {
                let timers = &self.processes[who].world.machine.context.timers;
                timers.at(Timer::Reconnect(to)).is_some()
            };
            kept.retain(|(who, ..)| !pauses(*who));
        }
        for _ in 0..self.rng.u32(20..150) {
            self.pass(ms(20));
            for who in 0..PROCESSES {
                self.deliver(who);
            }
            kept.retain(|(_, _, lock)| !cluster.is_out_of_reach(self.now, &self.locks[*lock].keys));
            for (who, lease, _) in &kept {
                let mut lost = self.processes[*who].world.lost.iter();
                let lost = lost.find(|(other, why)| other == lease && *why == LossReason::Expired);
                // The victim of a theft, or of a take-over by its owner, may find that out without a message.
                let token = self.processes[*who].token_of(*lease);
                let is_excused = self.is_victim(&token) || self.is_taken_over(&token);
                self.demand(lost.is_none() || is_excused, || {
                    format!("{who} has lost {lost:?} by a reshard")
                });
            }
        }
    }

    /// The leases that are to be renewed, whose they are and of which lock, and of which enough is left for that.
    fn renewed(&self) -> Vec<(usize, LeaseId, usize)> {
        let all = self.processes.iter().enumerate().flat_map(|(who, process)| {
            let now = process.clock(self.now);
            let fresh = move |held: &&Held| {
                let lease = process.world.machine.hold_of(held.lease);
                lease.is_some_and(|it| {
                    it.renew && !held.adoptable && it.until.since(now) > it.ttl() / 3
                })
            };
            process.held.iter().filter(fresh).map(move |held| (who, held.lease, held.lock))
        });
        all.filter(|(who, lease, _)| {
            let token = self.processes[*who].token_of(*lease);
            !self.is_victim(&token)
        })
        .collect()
    }

    /// The slot is where it was to move to.
    pub(super) fn settle_cluster(&mut self) {
        if let Some(cluster) = &self.cluster {
            cluster.settle(self.now, &mut self.rng);
        }
    }

    /// Whether no operation is open and no request on its way; only shard channels, which are kept for a while, have timers.
    pub(super) fn is_at_rest(&self) -> bool {
        let machines = self.processes.iter().map(|process| &process.world.machine);
        let mut machines = machines.into_iter();
        self.late.is_empty()
            && machines.all(|machine| machine.context.timers.are_to_forget_channels())
            && self.processes.iter().all(|process| process.open.is_empty())
    }

    /// Whoever asks for the routes gets them.
    pub(super) fn answer_discovery(&mut self, who: usize) {
        let Some(cluster) = self.cluster.clone() else { return };
        while self.processes[who].world.is_discovering() {
            let asked = any_server(&mut self.rng);
            self.processes[who].world.discover(Ok(cluster.routes(asked)));
        }
    }
}
