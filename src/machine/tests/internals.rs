//! The tests' access to a machine's internals.

use crate::machine::lease::{Lease, Leases};
use crate::machine::timers::{Owner, Timer};
use crate::machine::{LeaseId, Machine, TokenId};
use crate::protocol::Token;

impl Machine {
    pub(super) fn hold_of(&self, lease: LeaseId) -> Option<&Lease> {
        self.leases.hold_of(lease)
    }

    pub(super) fn token_of(&self, held: &Lease) -> Token {
        Leases::token_of(&self.rq.cx, held)
    }

    /// Whether a renewal of a lease is in flight.
    pub(super) fn is_renewing(&self, id: TokenId) -> bool {
        self.rq.is_open(Owner::Renewal(id))
    }

    pub(super) fn change_lease(&mut self, id: TokenId, change: impl FnOnce(&mut Lease)) {
        self.leases.change(&mut self.rq.cx, id, change);
    }

    /// Whether this lease has the only timer.
    pub(super) fn plans_only(&self, lease: TokenId) -> bool {
        self.rq.cx.timers.len() == 1 && self.rq.cx.timers.at(Timer::Lease(lease)).is_some()
    }
}
