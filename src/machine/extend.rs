//! Lengthening a lease because the caller wants it.

use super::{Effect, Lease, LeaseId, Machine, Manner, OpId, Outcome, Purpose, RequestId, Timer};
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
        self.extends.insert(op, Extend { keys, lease, ttl, deadline, request: None });
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
        let Some(extend) = self.extends.get(&op).filter(|extend| extend.request.is_none()) else {
            return;
        };
        let Some(held) = self.hold_of(extend.lease) else {
            return self.end_extend(op, Outcome::Lost, out);
        };
        let call = self.extension(held, extend.ttl);
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
                if let Some(held) = self.leases.get_mut(&id).filter(|held| held.id == lease) {
                    // Later renewals are as long as the caller asked for last.
                    held.ttl = ttl;
                }
                self.lengthen(id, valid_until(sent, ttl), out);
                self.end_extend(op, Outcome::Done, out);
            }
            Ok(Reply::Owner(false) | Reply::Held(_)) => self.lose(now, id, out),
            Ok(_) => debug_assert!(false, "not a reply of extend"),
            // A repeat can only lengthen the lease, so it simply asks again once connected.
            Err(Failure::Lost(_) | Failure::Halfway) => {}
            Err(Failure::NoQuorum(causes)) => self.end_extend(op, Outcome::Quorum(causes), out),
            Err(Failure::NoScript) => self.send_extend(now, op, Manner::WithSource, out),
            Err(Failure::Moved(_)) => self.send_extend(now, op, Manner::Plain, out),
            Err(Failure::Moving(to)) => self.send_extend(now, op, Manner::Asking(to), out),
            Err(Failure::Refused(refusal)) => {
                let key = self.hold_of(lease).map(|held| held.keys.lock().to_owned());
                self.end_extend(op, Outcome::Server { refusal, key }, out);
            }
        }
    }

    /// A lease, if it is still this caller's.
    pub(super) fn hold_of(&self, lease: LeaseId) -> Option<&Lease> {
        self.leases.get(&lease.attempt()).filter(|held| held.id == lease)
    }

    pub(super) fn extend_deadline(&mut self, op: OpId, out: &mut Vec<Effect>) {
        let Some(extend) = self.extends.get(&op) else { return };
        let outcome = self.unanswered(&extend.keys, self.config.command_timeout);
        self.end_extend(op, outcome, out);
    }

    pub(super) fn end_extend(&mut self, op: OpId, outcome: Outcome, out: &mut Vec<Effect>) {
        let Some(extend) = self.extends.remove(&op) else {
            return;
        };
        self.timers.remove(&(extend.deadline, Timer::ExtendDeadline(op)));
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
