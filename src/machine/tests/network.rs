//! The messages in flight between the processes of a simulation and their server.

use super::simulator::Simulation;
use super::snapshot::Snapshot;
use crate::machine::Event;
use crate::protocol::{Call, Intent, Message};
use std::collections::BTreeSet;

impl Simulation {
    pub(super) fn reachable(&self, who: usize) -> bool {
        let process = &self.processes[who];
        process.cut_off_until.is_none() && !process.world.is_cut_off()
    }

    pub(super) fn network(&mut self, who: usize) {
        if self.processes[who].world.connecting {
            return self.connect(who);
        }
        if !self.reachable(who) {
            return;
        }
        if self.rng.u32(..4) == 0 {
            let enough = self.rng.u32(..8) > 0;
            self.processes[who].world.answer_probe();
            self.processes[who].world.confirm(enough);
        } else if self.rng.u32(..3) == 0 {
            self.execute(who);
        } else {
            self.note(who, format_args!("gets an answer"));
            if !self.processes[who].world.has_answers() {
                self.execute(who);
            }
            self.processes[who].world.answer_one();
        }
    }

    /// The server executes the oldest request, sometimes twice.
    pub(super) fn execute(&mut self, who: usize) {
        let world = &self.processes[who].world;
        let Some((request, call)) = world.wire.front().cloned() else { return };
        let destination = world.destination(request);
        self.processes[who].world.execute_one();
        if self.processes[who].world.was_unknown() {
            return;
        }
        // A theft of shares may first find the record of one that has ended, remove it, and then be repeated.
        let steals =
            matches!(call, Call::Acquire { intent: Intent::Steal(_), .. } | Call::Force { .. });
        if call.script().is_some() && self.rng.u32(..12) == 0 && !steals {
            let server = self.processes[who].world.server.clone();
            let probe = || -> Vec<_> {
                call.clone()
                    .into_locks()
                    .map(|(keys, _)| without_what_repeats_change(server.snapshot(self.now, &keys)))
                    .collect()
            };
            let before = probe();
            destination.execute_again(self.now, &call);
            let after = probe();
            assert_eq!(before, after, "a repeat of {call:?} changed something{}", self.story());
        }
    }

    pub(super) fn connect(&mut self, who: usize) {
        // Without a Sentinel, a process may reconnect to a replaced server.
        let stale = self.servers.iter().find(|it| !it.is(&self.server)).cloned();
        let stale = stale.filter(|it| it.replica_since().is_none() && self.rng.u32(..3) == 0);
        let server = stale.unwrap_or_else(|| self.server.clone());
        let process = &mut self.processes[who];
        if process.cut_off_until.is_some() || process.world.is_cut_off() {
            process.world.connecting = false;
            // An attempt may also be swallowed: another one follows all the same.
            if self.rng.bool() {
                let failure = crate::protocol::error::Failure::Lost("unreachable".to_owned());
                process.world.event(Event::ConnectFailed(failure));
            }
        } else {
            process.world.pubsub_denied = self.rng.u32(..12) == 0;
            process.world.lacks_several = who % 2 == 1;
            process.world.turn_to(&server);
            process.world.connect();
            self.delay_lost(who);
        }
        self.note(who, format_args!("connects"));
    }

    pub(super) fn receive(&mut self, who: usize) {
        if self.reachable(who) && self.processes[who].world.receive_one() {
            self.note(who, format_args!("gets a message"));
        }
        if self.tells && self.reachable(who) && self.processes[who].world.up {
            self.tell_at_random(who);
        }
    }

    /// A server tells of a change twice, or of one that is none: it forgets keys, and those of other databases have the same
    /// names.
    fn tell_at_random(&mut self, who: usize) {
        let message = match self.rng.u32(..8) {
            0..2 => {
                let lock = self.any_lock();
                Message::Changed(self.locks[lock].keys.clone())
            }
            2 => Message::AllChanged,
            _ => return,
        };
        self.note(who, format_args!("is told of a change: {message:?}"));
        self.processes[who].world.event(Event::Message(message));
    }

    pub(super) fn arrive_late(&mut self) {
        let (now, late) = (self.now, std::mem::take(&mut self.late));
        let (due, rest): (Vec<_>, Vec<_>) = late.into_iter().partition(|(at, ..)| *at <= now);
        self.late = rest;
        for (_, destination, call) in due {
            // Nobody is there to hear the answer.
            let unheard = destination.execute(now, &call);
            self.note(9, format_args!("late: {}: {unheard:?}", brief(&call)));
        }
    }
}

/// A repeat may issue a later fence, remove a share that has ended, with its permits, and claim what was granted.
fn without_what_repeats_change(snapshot: Snapshot) -> Snapshot {
    let (further_permits, permits_of_records) =
        (snapshot.further_permits, snapshot.permits_of_records);
    assert_eq!(further_permits, permits_of_records, "the permits of the shares are miscounted");
    Snapshot {
        fence: None,
        newest: String::new(),
        unclaimed: None,
        unclaimed_shares: BTreeSet::new(),
        stale: 0,
        further_permits: 0,
        permits_of_records: 0,
        ..snapshot
    }
}

/// A short text of a call.
pub(super) fn brief(call: &Call) -> String {
    match call {
        Call::Acquire { token, intent, .. } => format!("acquire {token} {intent:?}"),
        Call::Take { .. } | Call::TakeAll { .. } => format!("plain commands of {}", call.token()),
        Call::Renew { token, .. } => format!("plain renewal of {token}"),
        _ => format!("{:?} {}", call.script(), call.token()),
    }
}
