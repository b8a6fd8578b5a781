//! One call for one caller, repeated until the server has answered it, to extend, downgrade, adopt, force, or acquire
//! several locks at once.
//!
//! A repeat changes nothing more than the call itself, so curable failures are retried until the caller's patience
//! ends. Only a forced release that may have been executed is not repeated: that could free the lock of a later owner.

use super::context::{Context, in_order};
use super::interface::{Hold, Outcome};
use super::lease::Leases;
use super::requests::{CallError, Fallback, Finished, Requests};
use super::timers::{Owner, Timer};
use crate::protocol::{
    Call, LeaseId, LockKeys, Mono, OpId, Refusal, Reply, Script, ServerTime, Token, TokenId,
};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// The most locks that one script takes: 3 ms of the server's time, or 9 if their names have full length. More are
/// acquired one after the other.
const ACQUIRE_ALL_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct OneShot {
    pub(super) call: Call,
    pub(super) aim: Aim,
    /// Its outcome if the deadline passes now.
    last_error: Option<Outcome>,
    /// An answer was lost: the call may have been executed, or may yet be.
    pub(super) uncertain: bool,
}

/// The effect of a successful answer.
#[derive(Clone, Debug)]
pub(super) enum Aim {
    /// Begin a new lease.
    Adopt { id: TokenId, hold: Hold },
    /// Make the lease a share.
    Downgrade(LeaseId),
    /// Extend the lease.
    Extend(LeaseId),
    /// Nothing.
    Force(TokenId),
    /// Begin new leases, all or none: for the locks of the call, of consecutive tokens.
    AcquireAll { first: TokenId, label: Box<str>, hold: Hold },
}

/// A one-shot that has ended: by the reply to its request sent at `sent`, or with its outcome.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) shot: OneShot,
    pub(super) sent: Mono,
    pub(super) result: Result<Reply, Outcome>,
}

#[derive(Debug, Default)]
pub(super) struct OneShots(FxHashMap<OpId, OneShot>);

impl OneShots {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn ops(&self) -> Vec<OpId> {
        in_order(&self.0)
    }

    pub(super) fn insert(&mut self, cx: &mut Context, op: OpId, call: Call, aim: Aim) {
        let shot = OneShot { call, aim, last_error: None, uncertain: false };
        self.0.insert(op, shot);
        cx.timers.set(Timer::OneShotDeadline(op), cx.now + cx.config.command_timeout);
    }

    pub(super) fn remove(&mut self, rq: &mut Requests, op: OpId) -> Option<OneShot> {
        let shot = self.0.remove(&op)?;
        rq.cx.timers.clear(Timer::OneShotDeadline(op));
        rq.forget(Owner::OneShot(op));
        Some(shot)
    }

    /// The call that acquires several locks at once, if one call can, and the number of its first token.
    pub(super) fn together(
        cx: &mut Context,
        keys: Vec<LockKeys>,
        label: &str,
        ttl: Duration,
    ) -> Option<(TokenId, Call)> {
        if keys.len() > ACQUIRE_ALL_MAX || cx.config.quorum || cx.config.confirm {
            return None;
        }
        let slot = |keys: &LockKeys| cx.config.cluster.then(|| keys.slot());
        if keys.windows(2).any(|pair| slot(&pair[0]) != slot(&pair[1])) {
            return None;
        }
        let mut first_id = None;
        let mut locks = keys.into_iter().map(|keys| {
            let id = cx.next_token_id();
            first_id.get_or_insert(id);
            (keys, cx.token(id, label))
        });
        let first = locks.next()?;
        let others = locks.collect();
        let epoch = ServerTime::default();
        Some((first_id?, Call::AcquireAll { first, others, ttl, epoch }))
    }

    /// Sends its call, unless it has an open request.
    pub(super) fn send(&mut self, rq: &mut Requests, leases: &Leases, op: OpId) {
        let owner = Owner::OneShot(op);
        let Some(shot) = self.0.get_mut(&op).filter(|_| !rq.is_open(owner)) else { return };
        let mut fallback = Fallback::None;
        if let Aim::Extend(lease) = shot.aim
            && let Some(held) = leases.hold_of(lease)
        {
            // The lease may have been claimed or downgraded since.
            (shot.call, fallback) = Leases::extension(rq, held, shot.call.ttl());
        }
        rq.send(owner, shot.call.clone(), fallback);
    }

    /// Whether the caller of a lease waits for an extension of it.
    pub(super) fn is_extended(&self, lease: LeaseId) -> bool {
        self.0.values().any(|shot| matches!(shot.aim, Aim::Extend(other) if other == lease))
    }

    /// The lease that an extension lengthens.
    pub(super) fn extends(&self, op: OpId) -> Option<LeaseId> {
        match self.0.get(&op)?.aim {
            Aim::Extend(lease) => Some(lease),
            _ => None,
        }
    }

    /// Whether it acquires several locks.
    pub(super) fn is_together(&self, op: OpId) -> bool {
        self.0.get(&op).is_some_and(|shot| matches!(shot.aim, Aim::AcquireAll { .. }))
    }

    /// The extensions of a lease.
    pub(super) fn extensions_of(&self, lease: LeaseId) -> Vec<OpId> {
        let is_of = |shot: &OneShot| matches!(shot.aim, Aim::Extend(other) if other == lease);
        let mut ops: Vec<_> =
            self.0.iter().filter(|(_, shot)| is_of(shot)).map(|(op, _)| *op).collect();
        ops.sort_unstable();
        ops
    }

    /// A request was answered, or never will be. None if it is retried.
    pub(super) fn answered(
        &mut self,
        rq: &mut Requests,
        op: OpId,
        finished: Finished,
    ) -> Option<Ended> {
        let shot = self.0.get_mut(&op).filter(|_| finished.awaited)?;
        let owner = Owner::OneShot(op);
        let result = match finished.reply {
            // From now on the call frees the lock only from the owner of this fence, and from no later owner, however
            // late it arrives.
            Ok(Reply::Seen { last }) => {
                if let Call::Force { seen, .. } = &mut shot.call {
                    *seen = Some(last);
                }
                rq.send(owner, shot.call.clone(), Fallback::None);
                return None;
            }
            // The fallback has found no whole lock. Whether there is a share, its keys tell once they are in one place.
            Ok(Reply::Owner(false))
                if finished.script == Script::Extend
                    && shot.call.script() == Script::ExtendShare =>
            {
                None
            }
            // A reply without all fences is retried.
            Ok(Reply::All(fences)) if fences.len() != shot.call.locks() => {
                shot.uncertain = true;
                None
            }
            Ok(reply) => Some(Ok(reply)),
            Err(CallError::Lost(why) | CallError::Halfway(why))
                if matches!(shot.call, Call::Force { seen: Some(_), .. }) =>
            {
                Some(Err(Outcome::Connection(format!("{why}; it may have been freed"))))
            }
            Err(CallError::Lost(_) | CallError::Halfway(_)) => {
                shot.uncertain = true;
                None
            }
            Err(CallError::Unsent) => None,
            Err(CallError::NoQuorum(causes)) => {
                shot.last_error = Some(Outcome::Quorum(causes));
                None
            }
            Err(CallError::Refused(refusal)) => {
                // An extension needs only that the server keeps the lock.
                let is_extension = matches!(shot.aim, Aim::Extend(_));
                let is_curable = refusal.is_transient() || (is_extension && refusal.is_shortage());
                let outcome = shot.refused(refusal);
                shot.last_error = Some(outcome.clone());
                (!is_curable).then_some(Err(outcome))
            }
        };
        let Some(result) = result else {
            rq.retry(owner);
            return None;
        };
        let shot = self.remove(rq, op)?;
        Some(Ended { shot, sent: finished.sent, result })
    }

    /// No answer has come in time.
    pub(super) fn deadline(&mut self, rq: &mut Requests, op: OpId) -> Option<Ended> {
        let mut shot = self.remove(rq, op)?;
        let patience = rq.cx.config.command_timeout;
        let unanswered = || rq.servers.unanswered(shot.call.keys(), patience);
        let outcome = shot.last_error.take().unwrap_or_else(unanswered);
        Some(Ended { shot, sent: rq.cx.now, result: Err(outcome) })
    }

    #[cfg(all(test, feature = "driver"))]
    pub(super) fn all(&self) -> impl Iterator<Item = &OneShot> {
        self.0.values()
    }
}

impl OneShot {
    /// The locks that it has got or may yet get, each with the number of its token, to be given back.
    pub(super) fn given_back(self) -> Vec<(TokenId, LockKeys, Token)> {
        let first = match self.aim {
            Aim::Adopt { id, .. } => id,
            Aim::AcquireAll { first, .. } => first,
            Aim::Downgrade(_) | Aim::Extend(_) | Aim::Force(_) => return Vec::new(),
        };
        let locks = self.call.into_locks().zip(first.0..);
        locks.map(|((keys, token), number)| (TokenId(number), keys, token)).collect()
    }

    fn refused(&self, refusal: Refusal) -> Outcome {
        let keys = self.call.keys();
        let mut locks = self.call.clone().into_locks();
        let blamed = locks.find_map(|(keys, _)| keys.named_by(&refusal.detail));
        let key = Some(blamed.unwrap_or_else(|| keys.lock().to_owned()));
        Outcome::Server { refusal, key }
    }
}
