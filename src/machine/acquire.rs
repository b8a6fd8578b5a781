//! Taking a lock: attempts, retries, deadlines, and unknown outcomes.

use super::renew::Renewal;
use super::{
    Effect, Hold, Lease, LeaseId, Machine, OpId, Outcome, Purpose, RequestId, Timer, Wait,
};
use crate::clock::{Mono, ServerTime};
use crate::error::{Failure, Refusal};
use crate::keys::LockKeys;
use crate::script::{Call, Reply, valid_until};
use crate::token::Token;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Acquire {
    /// The lease that this attempt will become. A new attempt has a new one.
    lease: LeaseId,
    token: Token,
    keys: LockKeys,
    label: String,
    ttl: Duration,
    wait: Wait,
    hold: Hold,
    began: Mono,
    /// When the caller gets an answer whatever happens; none if it waits for ever.
    deadline: Option<Mono>,
    /// The request under way, and the epoch it carries.
    request: Option<(RequestId, ServerTime)>,
    /// The pause until the next look at a lock that is held.
    retry: Option<Mono>,
    /// A request of this token was lost and may still be executed.
    uncertain: bool,
    /// Why the lock is not the caller's yet.
    obstacle: Obstacle,
}

#[derive(Debug)]
enum Obstacle {
    /// The grant came when its lease was over already.
    Late,
    /// Nothing is known: not asked yet, or no answer.
    Unanswered,
    Held {
        holder: String,
        remaining: Option<Duration>,
    },
    Refused(Refusal),
}

impl Machine {
    pub(super) fn begin_acquire(
        &mut self,
        now: Mono,
        op: OpId,
        name: &str,
        ttl: Duration,
        wait: Wait,
        label: String,
        hold: Hold,
        out: &mut Vec<Effect>,
    ) {
        let lease = self.new_lease_id();
        // A short wait is a wait for the lock, not for the network: one round trip is always left.
        let patience = match wait {
            Wait::Forever => None,
            Wait::Never => Some(self.config.command_timeout),
            Wait::UpTo(wait) => Some(wait.max(self.config.command_timeout)),
        };
        let deadline = patience.map(|patience| now + patience);
        let acquire = Acquire {
            lease,
            token: Token::new(&self.config.client, lease.0, &label),
            keys: LockKeys::new(&self.config.prefix, name),
            label,
            ttl,
            wait,
            hold,
            began: now,
            deadline,
            request: None,
            retry: None,
            uncertain: false,
            obstacle: Obstacle::Unanswered,
        };
        self.acquires.insert(op, acquire);
        if let Some(at) = deadline {
            self.timers.insert((at, Timer::AcquireDeadline(op)));
        }
        self.send_acquire(now, op, false, out);
    }

    pub(super) fn send_acquire(
        &mut self,
        now: Mono,
        op: OpId,
        with_source: bool,
        out: &mut Vec<Effect>,
    ) {
        let epoch = self.link.epoch;
        let Some(acquire) = self.acquires.get_mut(&op) else {
            return;
        };
        if acquire.request.is_some() {
            return;
        }
        if let Some(at) = acquire.retry.take() {
            self.timers.remove(&(at, Timer::AcquireRetry(op)));
        }
        let call = Call::Acquire {
            keys: acquire.keys.clone(),
            token: acquire.token.clone(),
            ttl: acquire.ttl,
            epoch,
        };
        let request = self.send(now, Purpose::Acquire(op), call, with_source, out);
        if let Some(acquire) = self.acquires.get_mut(&op) {
            acquire.request = request.map(|request| (request, epoch));
        }
    }

    pub(super) fn acquire_reply(
        &mut self,
        now: Mono,
        op: OpId,
        request: RequestId,
        sent: Mono,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        let epoch_now = self.link.epoch;
        let Some(acquire) = self.acquires.get_mut(&op) else {
            return;
        };
        // An operation that has ended may have had the same name.
        let Some((_, epoch)) = acquire.request.take_if(|(id, _)| *id == request) else {
            return;
        };
        match reply {
            Ok(Reply::Granted { fence }) => {
                let until = valid_until(sent, acquire.ttl);
                // A look that went ahead of this request may have shown another history of the
                // data; then this fence may have been issued before.
                if epoch < epoch_now {
                    self.renounce(now, op, out);
                    self.send_acquire(now, op, false, out);
                } else if until <= now {
                    acquire.obstacle = Obstacle::Late;
                    self.renounce(now, op, out);
                    self.retry_or_end(now, op, out);
                } else {
                    self.grant(now, op, fence, sent, out);
                }
            }
            Ok(Reply::Held { holder, remaining }) => {
                acquire.obstacle = Obstacle::Held { holder, remaining };
                self.retry_or_end(now, op, out);
            }
            Ok(Reply::Owner(_)) => debug_assert!(false, "not a reply of acquire"),
            Err(Failure::Lost(_)) => {
                // The same token asks again once connected: if it was granted, it still is.
                acquire.uncertain = true;
                acquire.obstacle = Obstacle::Unanswered;
            }
            Err(Failure::NoScript) => self.send_acquire(now, op, true, out),
            Err(Failure::Refused(refusal)) => {
                let transient = refusal.is_transient();
                acquire.obstacle = Obstacle::Refused(refusal);
                if transient {
                    self.retry_or_end(now, op, out);
                } else {
                    self.end_acquire_by_obstacle(now, op, out);
                }
            }
        }
    }

    fn grant(&mut self, now: Mono, op: OpId, fence: u64, sent: Mono, out: &mut Vec<Effect>) {
        let Some(acquire) = self.remove_acquire(op) else { return };
        let Acquire { lease, keys, token, ttl, hold, uncertain, .. } = acquire;
        let until = valid_until(sent, ttl);
        let renewal = Renewal::default();
        let held = Lease { keys, token, ttl, until, granted: now, hold, renewal, uncertain };
        self.begin_lease(now, lease, held, sent);
        out.push(Effect::SetDeadline { lease, until: Some(until) });
        out.push(Effect::Complete { op, outcome: Outcome::Acquired { lease, fence } });
    }

    /// The grant cannot be used: its token is given back, and the next attempt has a new one.
    fn renounce(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        let lease = self.new_lease_id();
        let Some(acquire) = self.acquires.get_mut(&op) else {
            return;
        };
        let token = Token::new(&self.config.client, lease.0, &acquire.label);
        let old = std::mem::replace(&mut acquire.token, token);
        let old_lease = std::mem::replace(&mut acquire.lease, lease);
        let uncertain = std::mem::take(&mut acquire.uncertain);
        let keys = acquire.keys.clone();
        self.abandon(now, old_lease, keys, old, uncertain, out);
    }

    /// The lock is held, or the server is not ready: looks again a little later if time is left.
    fn retry_or_end(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        let pause = self.jitter(20, 60);
        let Some(acquire) = self.acquires.get_mut(&op) else {
            return;
        };
        let end = match acquire.wait {
            Wait::Forever => None,
            Wait::Never => Some(acquire.began),
            Wait::UpTo(wait) => Some(acquire.began + wait),
        };
        if end.is_some_and(|end| end <= now) {
            return self.end_acquire_by_obstacle(now, op, out);
        }
        let at = end.map_or(now + pause, |end| end.min(now + pause));
        acquire.retry = Some(at);
        self.timers.insert((at, Timer::AcquireRetry(op)));
    }

    pub(super) fn acquire_deadline(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        self.end_acquire_by_obstacle(now, op, out);
    }

    fn end_acquire_by_obstacle(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        let Some(acquire) = self.acquires.get_mut(&op) else {
            return;
        };
        let obstacle = std::mem::replace(&mut acquire.obstacle, Obstacle::Unanswered);
        let outcome = match obstacle {
            Obstacle::Late => {
                let ms = acquire.ttl.as_millis();
                Outcome::Connection(format!("each answer took longer than the lease of {ms} ms"))
            }
            Obstacle::Unanswered => {
                let patience = now.since(acquire.began);
                self.unanswered(patience)
            }
            Obstacle::Held { .. } if acquire.wait == Wait::Never => Outcome::Held,
            Obstacle::Held { holder, remaining } => {
                Outcome::TimedOut { waited: now.since(acquire.began), holder, remaining }
            }
            Obstacle::Refused(refusal) => {
                let fence = acquire.keys.fence();
                let about_fence = refusal.detail.starts_with(&fence);
                let key = if about_fence { fence } else { acquire.keys.lock().to_owned() };
                Outcome::Server { refusal, key: Some(key) }
            }
        };
        self.end_acquire(now, op, outcome, out);
    }

    /// Ends an acquire without a lock. What may have been granted, or may yet be, is given back.
    pub(super) fn end_acquire(
        &mut self,
        now: Mono,
        op: OpId,
        outcome: Outcome,
        out: &mut Vec<Effect>,
    ) {
        let Some(acquire) = self.remove_acquire(op) else {
            return;
        };
        out.push(Effect::Complete { op, outcome });
        if acquire.uncertain || acquire.request.is_some() {
            let Acquire { lease, keys, token, uncertain, .. } = acquire;
            self.abandon(now, lease, keys, token, uncertain, out);
        }
    }

    fn remove_acquire(&mut self, op: OpId) -> Option<Acquire> {
        let acquire = self.acquires.remove(&op)?;
        if let Some(at) = acquire.deadline {
            self.timers.remove(&(at, Timer::AcquireDeadline(op)));
        }
        if let Some(at) = acquire.retry {
            self.timers.remove(&(at, Timer::AcquireRetry(op)));
        }
        Some(acquire)
    }
}
