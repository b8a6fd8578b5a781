//! One-shots: adopt, force, extend, downgrade, leave to expire, and acquire several locks at once.

use super::Machine;
use super::interface::{HoldTerms, LossReason, Outcome};
use super::lease::{GiveBack, Lease, Leases, Loss, Origin};
use super::one_shot;
use super::one_shot::{OneShot, Purpose};
use super::request::Finished;
use super::timers::{Owner, Timer};
use super::tracked::Tracking;
use crate::protocol::{
    Call, Label, LeaseId, LockKeys, Mode, Mono, OpId, Reply, ServerTime, Token, TokenId,
    valid_until,
};
use std::sync::Arc;
use std::time::Duration;

impl Machine {
    /// Takes over what `owner` has, for a hold on these terms.
    pub(super) fn adopt(
        &mut self,
        op: OpId,
        keys: LockKeys,
        owner: Token,
        (ttl, mode): (Duration, Mode),
        (label, hold): (Label, HoldTerms),
    ) {
        let id = self.context.next_token_id();
        // The share of the owner is taken over with all its permits.
        let mode = if mode.is_shared() { owner.share() } else { mode };
        let (label, token) = match label {
            Label::Chosen(ref value) | Label::Made(ref value) => {
                let token = Token::from_text(value);
                (label, token)
            }
            Label::Text(label) => {
                let label = if label.is_empty() { owner.label().into() } else { label };
                let token = self.context.token(id, mode, &label);
                (Label::Text(label), token)
            }
        };
        self.end_releases_of(&token);
        let call = Call::Adopt { keys, token, epoch: ServerTime::default(), owner, ttl, mode };
        self.begin_one_shot(op, call, Purpose::Adopt { id, label, hold });
    }

    /// Begins to renew other code's lease, which it has had for `age`.
    pub(super) fn keep_foreign(
        &mut self,
        op: OpId,
        keys: LockKeys,
        value: Arc<str>,
        (ttl, age): (Duration, Duration),
        stall_timeout: Duration,
    ) {
        let id = self.context.next_token_id();
        // Its code may have renewed it since: the first answer tells. Until then two thirds count, and it is asked for now.
        let until = valid_until(self.context.now, ttl.saturating_sub(age.min(ttl / 3)));
        let mut held = Lease::new(id, keys, value, Mode::Exclusive, ttl, 0, until);
        held.origin = Origin::Foreign;
        let terms = HoldTerms {
            renew: true,
            leave_to_expire: true,
            max_hold: None,
            stall_timeout,
            linger: Duration::ZERO,
        };
        self.begin_lease(held, terms);
        let lease = LeaseId::first(id);
        self.context.complete(op, Outcome::Acquired { lease, fence: 0, label: None });
    }

    pub(super) fn force(&mut self, op: OpId, keys: LockKeys, foreign: bool, owners: &[String]) {
        let id = self.context.next_token_id();
        let (token, epoch) = (self.context.token(id, Mode::Exclusive, ""), ServerTime::default());
        let owners = owners.iter().map(|owner| Token::from_text(owner)).collect();
        let call = Call::Force { keys, token, epoch, foreign, seen: None, owners };
        self.begin_one_shot(op, call, Purpose::Force);
    }

    pub(super) fn acquire_all(
        &mut self,
        op: OpId,
        keys: Vec<LockKeys>,
        ttl: Duration,
        label: Arc<str>,
        hold: HoldTerms,
    ) {
        self.release_idle(&keys);
        // Without a connection only the acquire of one lock ends when its caller's patience does.
        let is_away = keys.first().is_some_and(|keys| self.servers.is_away(keys));
        let together =
            || one_shot::acquire_all(&mut self.context, &self.servers, keys, &label, ttl);
        match (!is_away).then(together).flatten() {
            None => self.context.complete(op, Outcome::OneByOne),
            Some(call) => self.begin_one_shot(op, call, Purpose::AcquireAll { label, hold }),
        }
    }

    pub(super) fn cancel(&mut self, op: OpId) {
        self.end_acquire(op, Outcome::Cancelled);
        let shot = self.one_shots.get(&op);
        // An abort signal can cancel no other one-shot.
        if shot.is_some_and(|shot| matches!(shot.purpose, Purpose::AcquireAll { .. })) {
            self.end_one_shot(op, Outcome::Cancelled);
        }
    }

    fn begin_one_shot(&mut self, op: OpId, call: Call, purpose: Purpose) {
        let deadline = self.context.now + self.context.config.command_timeout;
        self.context.timers.set(Timer::OneShotDeadline(op), deadline);
        self.one_shots.insert(op, OneShot::new(call, purpose));
        self.send_one_shot(op);
    }

    pub(super) fn send_one_shot(&mut self, op: OpId) {
        if let Some(shot) = self.one_shots.get_mut(&op) {
            shot.send(&mut self.context, &mut self.servers, &self.leases, op);
        }
    }

    fn remove_one_shot(&mut self, op: OpId) -> Option<OneShot> {
        let mut shot = self.one_shots.remove(&op)?;
        self.context.timers.clear(Timer::OneShotDeadline(op));
        shot.uncertain |= self.servers.forget(&mut self.context, Owner::OneShot(op));
        Some(shot)
    }

    pub(super) fn extend(
        &mut self,
        op: OpId,
        lease: LeaseId,
        ttl: Option<Duration>,
        purpose: Purpose,
    ) {
        let Some(held) = self.leases.valid(&self.context, lease) else {
            return self.context.complete(op, Outcome::Lost);
        };
        let ttl = ttl.unwrap_or_else(|| held.ttl());
        let call = Leases::extension(&self.context, held, ttl);
        self.leases.change(&mut self.context, lease.token_id(), Lease::extended);
        self.begin_one_shot(op, call, purpose);
    }

    pub(super) fn downgrade(&mut self, op: OpId, lease: LeaseId) {
        let Some(held) = self.leases.valid(&self.context, lease) else {
            return self.context.complete(op, Outcome::Lost);
        };
        let (keys, token) = (held.keys.clone(), Leases::token_of(&self.context, held));
        let (epoch, fence) = (ServerTime::default(), held.fence);
        // From now on requests for the lease are for a share; they also extend the whole lock while the downgrade is not
        // executed. A share keeps its terms, which its token tells.
        let mode = if held.mode.is_shared() { held.mode } else { Mode::SHARED };
        self.leases.end_tracking(lease.token_id(), Tracking::Off);
        self.leases.change(&mut self.context, lease.token_id(), |held| held.mode = mode);
        let call = Call::Downgrade { keys, token, epoch, fence };
        self.begin_one_shot(op, call, Purpose::Downgrade(lease));
    }

    /// Renews a lease no more.
    pub(super) fn stop_renewing(&mut self, op: OpId, lease: LeaseId) {
        let is_held = self.leases.valid(&self.context, lease).is_some();
        if is_held {
            self.leases.change(&mut self.context, lease.token_id(), |held| {
                (held.renew, held.leave_to_expire) = (false, true);
            });
        }
        self.context.complete(op, if is_held { Outcome::Done } else { Outcome::Lost });
    }

    pub(super) fn one_shot_answered(&mut self, op: OpId, finished: Finished) {
        let Some(shot) = self.one_shots.get_mut(&op).filter(|_| finished.awaited) else { return };
        let lease = shot.extends();
        let held = lease.and_then(|lease| self.leases.hold_of(lease));
        if held.is_some_and(|held| held.until <= self.context.now) {
            // A lease that has ended stays lost, even if an extension succeeds later.
            let loss = lease.and_then(|lease| self.leases.end(lease.token_id()));
            return self.lose_if(loss);
        }
        let sent = finished.sent;
        match shot.answered(&mut self.context, &mut self.servers, op, finished) {
            Some(Ok(reply)) => self.one_shot_succeeded(op, sent, reply),
            Some(Err(outcome)) => self.end_one_shot(op, outcome),
            None => {}
        }
    }

    /// The server has answered the request of a one-shot, sent at `sent`.
    fn one_shot_succeeded(&mut self, op: OpId, sent: Mono, reply: Reply) {
        let Some(shot) = self.remove_one_shot(op) else { return };
        if let (
            Purpose::Extend(lease) | Purpose::ExpireIn(lease),
            Call::Claim { ttl, .. } | Call::Extend { ttl, .. },
        ) = (&shot.purpose, &shot.call)
            && reply == Reply::Owner(false)
            && self.leases.hold_of(*lease).is_some_and(|held| held.mode.is_shared())
        {
            // It was sent again, after its downgrade: whether there is a share, only a request for the share tells.
            return self.extend(op, *lease, Some(*ttl), shot.purpose);
        }
        let outcome = match (&shot.purpose, reply) {
            (Purpose::Adopt { .. }, Reply::Granted { fence }) => self.adopted(sent, shot, fence),
            (Purpose::AcquireAll { .. }, Reply::All(fences)) => {
                self.acquired_all(sent, shot, fences)
            }
            (Purpose::AcquireAll { .. }, _) => {
                if shot.uncertain {
                    self.give_back_all(shot);
                }
                Outcome::Held
            }
            (Purpose::Extend(lease), Reply::Owner(true) | Reply::Granted { .. }) => {
                if self.leases.hold_of(*lease).is_some() {
                    self.confirm_lease(lease.token_id(), sent, shot.call.ttl());
                }
                Outcome::Done
            }
            (Purpose::ExpireIn(lease), Reply::Owner(true) | Reply::Granted { .. }) => {
                self.leave(*lease, shot.call.ttl());
                Outcome::Done
            }
            (_, Reply::Owner(true)) => Outcome::Done,
            (Purpose::Extend(lease) | Purpose::ExpireIn(lease) | Purpose::Downgrade(lease), _) => {
                if let Some(held) = self.leases.hold_of(*lease) {
                    let loss = self.leases.denied(held.id.token_id());
                    self.lose_if(loss);
                }
                Outcome::Lost
            }
            // The lock was freed, but its queue is too long for one script. A release serves the rest, since a second
            // force would rob a later owner.
            (Purpose::Force, Reply::More) => {
                self.give_back(shot.call.keys().clone(), shot.call.token().clone(), false);
                Outcome::Done
            }
            (Purpose::Adopt { .. } | Purpose::Force, _) => Outcome::Lost,
        };
        self.context.complete(op, outcome);
    }

    fn adopted(&mut self, sent: Mono, shot: OneShot, fence: u64) -> Outcome {
        let is_given_back = shot.is_given_back();
        let (
            Call::Adopt { keys, token, owner, ttl, mode, .. },
            Purpose::Adopt { id: new, label, hold: terms },
        ) = (shot.call, shot.purpose)
        else {
            return Outcome::Internal;
        };
        if label.is_chosen() && shot.uncertain && owner != token && self.has_lost(&owner) {
            // Since that lock may have ended, another process may have the value by now.
            return Outcome::Connection(format!(
                "no answer came while its former lease lasted; it may be held under the chosen value until a lease of \
                 {} ms ends: acquire it then",
                ttl.as_millis()
            ));
        }
        // A caller that has named a token for its own lock loses nothing.
        let is_token = label.is_token();
        let reason = if is_token { LossReason::Ended } else { LossReason::Adopted };
        // To give back what has the token of the new lease would release that.
        let give_back = if owner == token { GiveBack::Never } else { GiveBack::IfUncertain };
        self.lose_adopted(&owner, reason, give_back);
        let until = valid_until(sent, ttl);
        if until <= self.context.now {
            if is_given_back {
                self.give_back(keys, token, false);
            }
            let ms = ttl.as_millis();
            return Outcome::Connection(format!(
                "the answer took longer than the lease of {ms} ms"
            ));
        }
        let origin = Origin::of(&label);
        let other_label = match &label {
            Label::Text(label) if !label.is_empty() => Some(label.to_string()),
            _ => None,
        };
        let mut held = Lease::new(new, keys, label.into_text(), mode, ttl, fence, until);
        held.origin = origin;
        // A late repeat takes the lock only from its former owner.
        held.uncertain = shot.uncertain && !is_token;
        self.begin_lease(held, terms);
        Outcome::Acquired { lease: LeaseId::first(new), fence, label: other_label }
    }

    /// Whether `owner` is a token of this manager under which it holds nothing any more.
    fn has_lost(&self, owner: &Token) -> bool {
        let now = self.context.now;
        let is_held = |id| self.leases.get(id).is_some_and(|held| now < held.until);
        self.context.number_of(owner).is_some_and(|id| !is_held(id))
    }

    /// Another token has taken over the lock of `owner`. This manager may be that owner, and miss the message.
    pub(super) fn lose_adopted(&mut self, owner: &Token, reason: LossReason, give_back: GiveBack) {
        let own = self.context.number_of(owner).filter(|id| self.leases.get(*id).is_some());
        self.lose_if(own.map(|id| Loss { id, reason, give_back }));
    }

    fn acquired_all(&mut self, sent: Mono, shot: OneShot, fences: Vec<u64>) -> Outcome {
        let first = self.context.number_of(shot.call.token());
        let (Purpose::AcquireAll { label, hold: terms }, Some(first)) = (&shot.purpose, first)
        else {
            return Outcome::Internal;
        };
        let ttl = shot.call.ttl();
        let until = valid_until(sent, ttl);
        let data = self.servers.data_of(shot.call.keys());
        if until <= self.context.now || fences.iter().any(|fence| data.is_outdated(*fence)) {
            // Unreliable leases go back; the locks are acquired one by one.
            self.give_back_all(shot);
            return Outcome::Held;
        }
        for (((keys, _), fence), number) in shot.call.into_locks().zip(&fences).zip(first.0..) {
            let (id, label, mode) = (TokenId(number), Arc::clone(label), Mode::Exclusive);
            let mut held = Lease::new(id, keys, label, mode, ttl, *fence, until);
            (held.uncertain, held.confirmed) = (shot.uncertain, sent);
            self.begin_lease(held, *terms);
        }
        Outcome::AcquiredAll { lease: LeaseId::first(first), fences }
    }

    fn give_back_all(&mut self, shot: OneShot) {
        if shot.is_given_back() {
            for (keys, token) in shot.call.into_locks() {
                self.give_back(keys, token, true);
            }
        }
    }

    pub(super) fn end_one_shot(&mut self, op: OpId, outcome: Outcome) {
        let Some(shot) = self.remove_one_shot(op) else { return };
        // One that the server was never asked for has got nothing.
        if shot.uncertain {
            self.give_back_all(shot);
        }
        self.context.complete(op, outcome);
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
