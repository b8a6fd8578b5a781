//! Leases that end without their callers' release.

use super::Machine;
use super::interface::{Effect, LossReason, Outcome};
use super::lease::{GiveBack, Leases, Loss};
use super::timers::Timer;
use crate::protocol::{LeaseId, OpId, Taken};
use std::time::Duration;

impl Machine {
    /// A message says that a lock was taken from its owner.
    pub(super) fn hear_of_loss(&mut self, taken: &Taken) {
        let Some(id) = self.context.number_of(&taken.token) else { return };
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.keys == taken.keys
            && entry.token == taken.token
            && entry.confirming.take().is_some()
        {
            // Replicas would confirm a lost grant: the same token asks again. If the message is forged it owns the lock
            // still, so its end must release it.
            entry.uncertain = true;
            return self.send_entry(id);
        }
        self.notice_loss(id, taken);
    }

    pub(super) fn lose_if(&mut self, loss: Option<Loss>) {
        let Some(Loss { id, reason, give_back }) = loss else { return };
        let Some(held) = self.remove_lease(id) else { return };
        let context = &mut self.context;
        if let Some((op, _)) = self.undecided.remove(&id) {
            context.complete(op, Outcome::Lost);
        }
        context.stats.lost += u64::from(reason != LossReason::Ended);
        context.push(Effect::Lose { lease: held.id, reason });
        self.end_extensions_of(held.id);
        let outdated = self.servers.data_of(&held.keys).is_outdated(held.fence);
        let uncertain = held.uncertain || outdated;
        let (given_back, twice) = match give_back {
            GiveBack::Always => (true, held.uncertain),
            GiveBack::IfUncertain => (uncertain, true),
            GiveBack::Never => (false, false),
        };
        if given_back {
            let token = Leases::token_of(&self.context, &held);
            self.give_back(held.keys, token, twice);
        }
    }

    /// A lock has a last lease of `ttl`, and is not this manager's any more.
    pub(super) fn leave(&mut self, lease: LeaseId, ttl: Duration) {
        let Some(held) = self.leases.hold_of(lease) else { return };
        let id = held.id.token_id();
        self.lose_if(Some(Loss { id, reason: LossReason::Ended, give_back: GiveBack::Never }));
        // A message about its grant may still be on its way.
        self.left_to_expire.insert(id);
        self.context.timers.set(Timer::Lease(id), self.context.now + ttl);
    }

    pub(super) fn extensions_of(&self, lease: LeaseId) -> impl Iterator<Item = OpId> {
        let shots = self.one_shots.iter().filter(move |(_, shot)| shot.extends() == Some(lease));
        shots.map(|(op, _)| *op)
    }

    pub(super) fn end_extensions_of(&mut self, lease: LeaseId) {
        let mut ops: Vec<_> = self.extensions_of(lease).collect();
        ops.sort_unstable();
        for op in ops {
            self.end_one_shot(op, Outcome::Lost);
        }
    }
}
