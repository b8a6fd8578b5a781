//! Lengthening a lease because the caller wants it.
//!
//! A repeat can only lengthen the lease, so whatever a later request may cure is asked again: until the
//! caller's patience ends, or the lease.

use super::attempt::RETRY_MS;
use super::{
    AttemptId, Effect, Lease, LeaseId, Machine, Manner, OpId, Outcome, Purpose, RequestId, Timer,
};
use crate::clock::Mono;
use crate::error::Failure;
use crate::keys::LockKeys;
use crate::script::{Reply, valid_until};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Extend {
    pub(super) keys: LockKeys,
    lease: LeaseId,
    ttl: Duration,
    deadline: Mono,
    /// The request under way.
    request: Option<RequestId>,
    /// When it asks again.
    retry: Option<Mono>,
    /// Why it is not done yet, if anybody said so: what its caller is told at the deadline.
    obstacle: Option<Outcome>,
}

impl Machine {
    pub(super) fn begin_extend(
        &mut self,
        now: Mono,
        op: OpId,
        lease: LeaseId,
        ttl: Option<Duration>,
        out: &mut Vec<Effect>,
    ) {
        let Some(held) = self.hold_of(lease).filter(|held| now < held.until) else {
            return out.push(Effect::Complete { op, outcome: Outcome::Lost });
        };
        let (keys, ttl) = (held.keys.clone(), ttl.unwrap_or(held.ttl));
        let deadline = now + self.config.command_timeout;
        let (request, retry, obstacle) = (None, None, None);
        self.extends.insert(op, Extend { keys, lease, ttl, deadline, request, retry, obstacle });
        self.timers.insert((deadline, Timer::ExtendDeadline(op)));
        self.send_extend(now, op, Manner::Plain, out);
    }

    pub(super) fn send_extend(
        &mut self,
        now: Mono,
        op: OpId,
        manner: Manner,
        out: &mut Vec<Effect>,
    ) {
        let Some(extend) = self.extends.get_mut(&op).filter(|extend| extend.request.is_none())
        else {
            return;
        };
        let (lease, ttl) = (extend.lease, extend.ttl);
        if let Some(at) = extend.retry.take() {
            self.timers.remove(&(at, Timer::ExtendRetry(op)));
        }
        let Some(held) = self.hold_of(lease) else {
            return self.end_extend(op, Outcome::Lost, out);
        };
        let call = self.extension(held, ttl);
        let request = self.send(now, Purpose::Extend(op), call, manner, out);
        if let Some(extend) = self.extends.get_mut(&op) {
            extend.request = request;
        }
    }

    pub(super) fn extend_reply(
        &mut self,
        now: Mono,
        op: OpId,
        request: RequestId,
        sent: Mono,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        let Some(extend) = self.extends.get_mut(&op) else {
            return;
        };
        // An operation that has ended may have had the same name.
        if extend.request.take_if(|id| *id == request).is_none() {
            return;
        }
        let (lease, ttl) = (extend.lease, extend.ttl);
        let id = lease.attempt();
        if self.hold_of(lease).is_some_and(|held| held.until <= now) {
            // What is lost stays lost, also when an extension comes a moment too late.
            return self.lease_end(now, id, out);
        }
        match reply {
            Ok(Reply::Owner(true) | Reply::Granted { .. }) => {
                let history = self.hold_of(lease).map(|held| self.link_of(&held.keys).history);
                if let Some(held) = self.leases.get_mut(&id).filter(|held| held.id == lease) {
                    // Later renewals are as long as the caller asked for last.
                    held.ttl = ttl;
                    (held.history, held.confirmed) = (history.unwrap_or(0), sent);
                }
                self.change_lease(id, |held| held.lengthen(valid_until(sent, ttl), out));
                self.end_extend(op, Outcome::Done, out);
            }
            Ok(Reply::Owner(false) | Reply::Held(_)) => self.lose_as_told(now, id, out),
            Ok(_) => debug_assert!(false, "not a reply of extend"),
            Err(Failure::Lost(_) | Failure::Halfway) => self.extend_later(now, op),
            Err(Failure::NoQuorum(causes)) => {
                self.extend_in_spite(now, op, Outcome::Quorum(causes));
            }
            Err(Failure::NoScript) => self.send_extend(now, op, Manner::WithSource, out),
            Err(Failure::Moved(_)) => self.send_extend(now, op, Manner::Redirected, out),
            Err(Failure::Moving(to)) => {
                self.send_extend(now, op, Manner::Asking(to), out);
                self.extend_later(now, op);
            }
            Err(Failure::Refused(refusal)) => {
                // Who holds the lock needs no more of the server than to keep it.
                let curable = refusal.is_transient() || refusal.is_shortage();
                let key = self.hold_of(lease).map(|held| held.keys.lock().to_owned());
                let outcome = Outcome::Server { refusal, key };
                if curable {
                    self.extend_in_spite(now, op, outcome);
                } else {
                    self.end_extend(op, outcome, out);
                }
            }
        }
    }

    /// Asks again, and tells this if there is nothing better to tell at the deadline.
    fn extend_in_spite(&mut self, now: Mono, op: OpId, obstacle: Outcome) {
        if let Some(extend) = self.extends.get_mut(&op) {
            extend.obstacle = Some(obstacle);
        }
        self.extend_later(now, op);
    }

    /// Asks again after a short pause, if nobody asks now. Also where the connection is gone: what was
    /// sent to the server that a slot moves to is not asked again when that one is back.
    fn extend_later(&mut self, now: Mono, op: OpId) {
        let at = now + self.jitter(RETRY_MS);
        let Some(extend) = self.extends.get_mut(&op).filter(|extend| extend.request.is_none())
        else {
            return;
        };
        extend.retry = Some(at);
        self.timers.insert((at, Timer::ExtendRetry(op)));
    }

    /// A lease, if it is still this caller's.
    pub(super) fn hold_of(&self, lease: LeaseId) -> Option<&Lease> {
        self.leases.get(&lease.attempt()).map(Box::as_ref).filter(|held| held.id == lease)
    }

    /// Whether its caller waits for an extension of it.
    pub(super) fn is_extended(&self, lease: LeaseId) -> bool {
        self.extends.values().any(|extend| extend.lease == lease)
    }

    /// Whose lease an extension is about.
    pub(super) fn extended(&self, op: OpId) -> Option<AttemptId> {
        self.extends.get(&op).map(|extend| extend.lease.attempt())
    }

    pub(super) fn extend_deadline(&mut self, op: OpId, out: &mut Vec<Effect>) {
        let Some(extend) = self.extends.get(&op) else { return };
        let outcome = extend
            .obstacle
            .clone()
            .unwrap_or_else(|| self.unanswered(&extend.keys, self.config.command_timeout));
        self.end_extend(op, outcome, out);
    }

    pub(super) fn end_extend(&mut self, op: OpId, outcome: Outcome, out: &mut Vec<Effect>) {
        let Some(extend) = self.extends.remove(&op) else {
            return;
        };
        self.timers.remove(&(extend.deadline, Timer::ExtendDeadline(op)));
        if let Some(at) = extend.retry {
            self.timers.remove(&(at, Timer::ExtendRetry(op)));
        }
        out.push(Effect::Complete { op, outcome });
    }

    pub(super) fn end_extends_of(&mut self, lease: LeaseId, out: &mut Vec<Effect>) {
        if self.extends.is_empty() {
            return;
        }
        let of_lease = |(op, extend): (&OpId, &Extend)| (extend.lease == lease).then_some(*op);
        let mut ops: Vec<_> = self.extends.iter().filter_map(of_lease).collect();
        ops.sort_unstable();
        for op in ops {
            self.end_extend(op, Outcome::Lost, out);
        }
    }
}
