//! Answers a quorum's questions about the machine inside.

use crate::machine::Machine;
use crate::machine::interface::Effect;
use crate::machine::lease::Leases;
use crate::protocol::{LeaseId, LockKeys, Mono, NodeId, Token};
use std::time::Duration;

impl Machine {
    pub(super) fn waits_for(&self, keys: &LockKeys) -> bool {
        self.queues.has(keys)
    }

    /// The servers deny that the token has the lock: its lease ends, if it has not ended before.
    pub(super) fn deny(&mut self, now: Mono, token: &Token, out: &mut Vec<Effect>) {
        self.handle(now, out, |machine| {
            let id = machine.context.number_of(token);
            let loss = id.and_then(|id| machine.leases.denied(id));
            machine.lose_if(loss);
        });
    }

    /// A majority can be asked again: sends every renewal that is due.
    pub(super) fn resume_renewals(&mut self, now: Mono, out: &mut Vec<Effect>) {
        self.handle(now, out, |machine| machine.resume_leases(NodeId::default()));
    }

    /// How soon the lease that is nearest its end needs an attempt to connect.
    pub(super) fn pressure(&self, now: Mono) -> Option<Duration> {
        self.leases.pressure(now)
    }

    /// The same of the lease of one token.
    pub(super) fn pressure_of(&self, now: Mono, token: &Token) -> Option<Duration> {
        self.context.number_of(token).and_then(|id| self.leases.pressure_of(now, id))
    }

    /// The token and the label of a lease.
    pub(super) fn labelled_token(&self, lease: LeaseId) -> Option<(Token, &str)> {
        let held = self.leases.hold_of(lease)?;
        Some((Leases::token_of(&self.context, held), &held.label))
    }
}
