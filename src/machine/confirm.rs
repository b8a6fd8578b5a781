//! Grants that count only once replicas have them.
//!
//! Until then the attempt has the lock and its caller does not know. If the connection breaks meanwhile
//! the same token asks again, so nothing is taken for confirmed that another server never had.

use super::attempt::Attempt;
use super::renew::Owed;
use super::{AttemptId, Effect, Machine, NodeId};
use crate::clock::Mono;
use crate::error::Refusal;
use crate::message::Taken;

/// What the server has granted an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) fence: u64,
    /// The end of the lease, by this process's clock.
    pub(super) until: Mono,
    /// The moment from which the lease counts: when it was asked for, or granted by message.
    pub(super) since: Mono,
    pub(super) owed: Option<Owed>,
}

impl Machine {
    /// The server has granted a lock: hands it to its caller, or first waits for replicas.
    pub(super) fn accept(
        &mut self,
        now: Mono,
        node: NodeId,
        id: AttemptId,
        granted: Granted,
        out: &mut Vec<Effect>,
    ) {
        if !self.config.confirm {
            return self.grant(now, id, granted, out);
        }
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.unconfirmed = Some(granted);
            out.push(Effect::Confirm { node, attempt: id });
        }
    }

    /// Enough replicas have a grant, or too few.
    pub(super) fn confirmed(
        &mut self,
        now: Mono,
        id: AttemptId,
        verdict: Result<(), Refusal>,
        out: &mut Vec<Effect>,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        let Some(granted) = attempt.unconfirmed.take() else { return };
        match verdict {
            Ok(()) if now < granted.until => self.grant(now, id, granted, out),
            Ok(()) => self.grant_too_late(now, id, out),
            Err(refusal) => self.unconfirmable(now, id, refusal, out),
        }
    }

    /// Gives back what too few replicas have, and tells whom it was for.
    fn unconfirmable(&mut self, now: Mono, id: AttemptId, refusal: Refusal, out: &mut Vec<Effect>) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        // Its token owns the lock, whatever is known of its place.
        attempt.uncertain = true;
        attempt.obstacle = super::attempt::Obstacle::Refused(refusal);
        if let Some(op) = self.first_of(id) {
            self.end_acquire_by_obstacle(now, op, Some(id), out);
        }
        // Others wait in the same line: for them another token asks.
        self.renounce(now, id, out);
    }

    /// A message says that a grant was taken away that waits for replicas, which would confirm what is gone: the same
    /// token asks again. False if no such grant waits.
    pub(super) fn doubt_grant(&mut self, id: AttemptId, taken: &Taken) -> bool {
        let meant = |attempt: &&mut Attempt| attempt.keys == taken.keys && attempt.is(&taken.token);
        let Some(attempt) = self.attempts.get_mut(&id).filter(meant) else { return false };
        let waited = attempt.unconfirmed.take().is_some();
        // It owns the lock still, should the message be forged and nobody want it any more.
        attempt.uncertain |= waited;
        waited
    }

    /// The connection is gone, and with it whoever would have confirmed: asks again once there is one.
    pub(super) fn forget_confirmations(&mut self, node: NodeId) {
        let routes = &self.routes;
        for attempt in self.attempts.values_mut() {
            if routes.node(&attempt.keys) == node && attempt.unconfirmed.take().is_some() {
                // It owns the lock still, should nobody want it any more.
                attempt.uncertain = true;
            }
        }
    }
}
