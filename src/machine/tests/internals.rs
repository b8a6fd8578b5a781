//! The tests' access to a machine's internals.

use crate::machine::context::in_order;
use crate::machine::lease::{Lease, Leases};
use crate::machine::queue_entry::Position;
use crate::machine::request::Sent;
use crate::machine::servers::Servers;
use crate::machine::timers::{Owner, Timer};
use crate::machine::{LeaseId, Machine, TokenId};
use crate::protocol::{Mono, Token};

impl Machine {
    pub(super) fn hold_of(&self, lease: LeaseId) -> Option<&Lease> {
        self.leases.hold_of(lease)
    }

    pub(super) fn token_of(&self, held: &Lease) -> Token {
        Leases::token_of(&self.context, held)
    }

    /// Whether a renewal of a lease is in flight.
    pub(super) fn is_renewing(&self, id: TokenId) -> bool {
        self.servers.is_open(Owner::Renewal(id))
    }

    pub(super) fn change_lease(&mut self, id: TokenId, change: impl FnOnce(&mut Lease)) {
        self.leases.change(&mut self.context, id, change);
    }

    /// Decides the releases that wait only until an entry can be moved back, without that.
    pub(super) fn release_ahead_of_entries(&mut self) {
        for id in in_order(&self.undecided) {
            let Some(held) = self.leases.get(id) else { continue };
            let waits = self.is_unanswered(held) || self.may_get_handoffs(held);
            let lease = held.id;
            if let Some(caller) = (!waits).then(|| self.undecided.remove(&id)).flatten() {
                self.hand_off_or_release(lease, caller);
            }
        }
    }

    /// Releases the queued tokens of entries that take over a hold of their owner.
    pub(super) fn leave_queues_to_take_over(&mut self) {
        let mut left = Vec::new();
        for entry in self.entries.values_mut().filter(|it| it.takes_over.is_some()) {
            if let Position::Queued(seq) = entry.position {
                entry.position = Position::Lost(seq);
                left.push((entry.keys.clone(), entry.token.clone()));
            }
        }
        left.sort_by_key(|(_, token)| self.context.number_of(token));
        for (keys, token) in left {
            self.give_back(keys, token, false);
        }
    }

    /// Whether this lease has the only timer.
    pub(super) fn plans_only(&self, lease: TokenId) -> bool {
        self.context.timers.len() == 1 && self.context.timers.at(Timer::Lease(lease)).is_some()
    }
}

impl Servers {
    /// All requests without an answer.
    pub(super) fn requests(&mut self) -> impl Iterator<Item = &mut Sent> {
        self.all_mut().flat_map(|server| server.connection.requests())
    }

    pub(super) fn refuse_plain_commands(&mut self) {
        self.all_mut().for_each(|server| server.data.refuses_plain_commands = true);
    }

    pub(super) fn refuse_several(&mut self) {
        self.all_mut().for_each(|server| server.data.refuses_several = true);
    }

    pub(super) fn limit_windows(&mut self, least: usize, most: usize) {
        self.all_mut().for_each(|server| server.connection.limit(least, most));
    }

    pub(super) fn forget_answers(&mut self) {
        self.all_mut().for_each(|server| server.connection.forget_answers());
    }

    pub(super) fn reverse_rooms(&mut self) {
        self.all_mut().for_each(|server| server.room.reverse());
    }

    pub(super) fn forget_set_back(&mut self) {
        self.all_mut().for_each(|server| server.data.forget_set_back());
    }

    pub(super) fn redate(&mut self, now: Mono) {
        self.all_mut().for_each(|server| server.connection.redate(now));
    }
}
