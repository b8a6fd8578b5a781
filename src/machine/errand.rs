//! One call for one caller, repeated until the server has answered it: downgrade, adopt, force, and
//! several locks at once.

use super::attempt::RETRY_MS;
use super::hand_on::Turn;
use super::{
    AttemptId, Effect, Hold, Lease, LeaseId, LossReason, Machine, Manner, OpId, Outcome, Purpose,
    RequestId, Timer, in_order,
};
use crate::clock::Mono;
use crate::error::{Failure, Refusal};
use crate::keys::LockKeys;
use crate::script::{Call, Mode, Reply, valid_until};
use crate::token::Token;
use std::time::Duration;

/// One script takes so many locks at most: 3 ms of the server's time, or 9 if their names are as long as can be.
/// More are taken one after the other.
const TOGETHER_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Errand {
    pub(super) call: Call,
    aim: Aim,
    deadline: Mono,
    /// The request under way.
    request: Option<RequestId>,
    /// When it asks again.
    retry: Option<Mono>,
    /// What the server said last, if it refused.
    refusal: Option<Refusal>,
    /// An answer was lost: what it asked for may have been given, or may yet be.
    uncertain: bool,
}

/// What becomes of the answer.
#[derive(Clone, Debug)]
enum Aim {
    /// A new lease.
    Adopt { id: AttemptId, ttl: Duration, hold: Hold, mode: Mode },
    /// This lease is a share.
    Downgrade(LeaseId),
    /// Nothing.
    Force(AttemptId),
    /// New leases, all or none: for the locks of the call, of attempts that follow each other.
    Together { first: AttemptId, ttl: Duration, label: Box<str>, hold: Hold },
}

/// A lease as one call has given it.
struct Given {
    id: AttemptId,
    keys: LockKeys,
    label: Box<str>,
    mode: Mode,
    fence: u64,
    ttl: Duration,
    until: Mono,
    hold: Hold,
    /// What asked for it was lost once, and may still be executed.
    uncertain: bool,
}

impl Machine {
    pub(super) fn begin_adopt(
        &mut self,
        now: Mono,
        op: OpId,
        name: &str,
        owner: &str,
        ttl: Duration,
        hold: Hold,
        mode: Mode,
        out: &mut Vec<Effect>,
    ) {
        let keys = self.keys_of(name);
        let id = self.next_attempt();
        let token = Token::new(&self.config.client, id.0, "");
        let epoch = self.link_of(&keys).epoch;
        let owner = Token::from_text(owner);
        let call = Call::Adopt { keys, token, epoch, owner, ttl, mode };
        self.begin_errand(now, op, call, Aim::Adopt { id, ttl, hold, mode }, out);
    }

    pub(super) fn begin_downgrade(
        &mut self,
        now: Mono,
        op: OpId,
        lease: LeaseId,
        out: &mut Vec<Effect>,
    ) {
        let Some(held) = self.hold_of(lease).filter(|held| now < held.until) else {
            return out.push(Effect::Complete { op, outcome: Outcome::Lost });
        };
        let (keys, token, fence) = (held.keys.clone(), self.token_of(held), held.fence);
        let epoch = self.link_of(&keys).epoch;
        if let Some(held) = self.leases.get_mut(&lease.attempt()) {
            // What lengthens a share does so too for a whole lock, which it is until the server has heard.
            held.mode = Mode::SHARED;
        }
        let call = Call::Downgrade { keys, token, epoch, fence };
        self.begin_errand(now, op, call, Aim::Downgrade(lease), out);
    }

    pub(super) fn begin_force(
        &mut self,
        now: Mono,
        op: OpId,
        name: &str,
        foreign: bool,
        out: &mut Vec<Effect>,
    ) {
        let keys = self.keys_of(name);
        let id = self.next_attempt();
        let token = Token::new(&self.config.client, id.0, "");
        let epoch = self.link_of(&keys).epoch;
        let call = Call::Force { keys, token, epoch, foreign, seen: None };
        self.begin_errand(now, op, call, Aim::Force(id), out);
    }

    pub(super) fn begin_together(
        &mut self,
        now: Mono,
        op: OpId,
        names: &[String],
        ttl: Duration,
        label: &str,
        hold: Hold,
        out: &mut Vec<Effect>,
    ) {
        if names.len() > TOGETHER_MAX {
            return out.push(Effect::Complete { op, outcome: Outcome::Apart });
        }
        let keys: Vec<_> = names.iter().map(|name| self.keys_of(name)).collect();
        let slot = |keys: &LockKeys| self.config.cluster.then(|| keys.slot());
        let together = keys.windows(2).all(|pair| slot(&pair[0]) == slot(&pair[1]));
        if !together || self.config.quorum || self.config.confirm {
            return out.push(Effect::Complete { op, outcome: Outcome::Apart });
        }
        let ids: Vec<_> = keys.iter().map(|_| self.next_attempt()).collect();
        let token = |id: &AttemptId| Token::new(&self.config.client, id.0, label);
        let mut locks = keys.into_iter().zip(ids.iter().map(token));
        let (Some(first), Some(&id)) = (locks.next(), ids.first()) else {
            return out.push(Effect::Complete { op, outcome: Outcome::Apart });
        };
        let (others, epoch) = (locks.collect(), self.link_of(&first.0).epoch);
        let call = Call::Together { first, others, ttl, epoch };
        let aim = Aim::Together { first: id, ttl, label: label.into(), hold };
        self.begin_errand(now, op, call, aim, out);
    }

    fn begin_errand(&mut self, now: Mono, op: OpId, call: Call, aim: Aim, out: &mut Vec<Effect>) {
        let deadline = now + self.config.command_timeout;
        let errand = Errand {
            call,
            aim,
            deadline,
            request: None,
            retry: None,
            refusal: None,
            uncertain: false,
        };
        self.errands.insert(op, errand);
        self.timers.insert((deadline, Timer::ErrandDeadline(op)));
        self.send_errand(now, op, Manner::Plain, out);
    }

    pub(super) fn send_errand(
        &mut self,
        now: Mono,
        op: OpId,
        manner: Manner,
        out: &mut Vec<Effect>,
    ) {
        let Some(errand) = self.errands.get_mut(&op).filter(|errand| errand.request.is_none())
        else {
            return;
        };
        if let Some(at) = errand.retry.take() {
            self.timers.remove(&(at, Timer::ErrandRetry(op)));
        }
        let epoch = self.links.get(self.routes.node(errand.call.keys())).epoch;
        errand.call.set_epoch(epoch);
        let call = errand.call.clone();
        let request = self.send(now, Purpose::Errand(op), call, manner, out);
        if let Some(errand) = self.errands.get_mut(&op) {
            errand.request = request;
        }
    }

    pub(super) fn errand_reply(
        &mut self,
        now: Mono,
        op: OpId,
        request: RequestId,
        sent: Mono,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        let Some(errand) = self.errands.get_mut(&op) else { return };
        // An operation that has ended may have had the same name.
        if errand.request.take_if(|id| *id == request).is_none() {
            return;
        }
        match reply {
            Ok(Reply::All(fences)) if fences.len() == errand.call.locks() => {
                self.given_together(now, op, sent, fences, out);
            }
            Ok(Reply::Granted { fence }) => self.adopted(now, op, sent, fence, out),
            Ok(Reply::Owner(done)) => self.end_errand(now, op, done, out),
            Err(Failure::NoScript) => self.send_errand(now, op, Manner::WithSource, out),
            Ok(Reply::More) => self.walk_on(now, op, out),
            Ok(Reply::Seen { last }) => self.force_seen(now, op, last, out),
            Err(Failure::Moved(_)) => self.send_errand(now, op, Manner::Redirected, out),
            Ok(Reply::Held(_) | Reply::Voted { .. }) => {
                debug_assert!(false, "not a reply of an errand");
            }
            Err(Failure::Moving(to)) => {
                self.send_errand(now, op, Manner::Asking(to), out);
                self.errand_later(now, op);
            }
            // What a repeat finds may be somebody who got the lock since. Who has only looked may ask again.
            Err(failure @ (Failure::Lost(_) | Failure::Halfway))
                if matches!(errand.call, Call::Force { seen: Some(_), .. }) =>
            {
                self.remove_errand(op);
                let outcome = Outcome::Connection(format!("{failure}; it may have been freed"));
                out.push(Effect::Complete { op, outcome });
            }
            // A repeat of all else changes nothing, so it simply asks again; also a server that left a fence out.
            Ok(Reply::All(_)) | Err(Failure::Lost(_) | Failure::Halfway | Failure::NoQuorum(_)) => {
                errand.uncertain = true;
                self.errand_later(now, op);
            }
            Err(Failure::Refused(refusal)) => {
                let transient = refusal.is_transient();
                errand.refusal = Some(refusal);
                if transient {
                    self.errand_later(now, op);
                } else {
                    self.errand_deadline(now, op, out);
                }
            }
        }
    }

    /// Asks again after a short pause, if nobody asks now.
    fn errand_later(&mut self, now: Mono, op: OpId) {
        let at = now + self.jitter(RETRY_MS);
        let Some(errand) = self.errands.get_mut(&op).filter(|errand| errand.request.is_none())
        else {
            return;
        };
        errand.retry = Some(at);
        self.timers.insert((at, Timer::ErrandRetry(op)));
    }

    /// Frees the lock from those who have it, now that this is the last fence issued: from nobody who gets
    /// it later, however late the request arrives.
    fn force_seen(&mut self, now: Mono, op: OpId, last: u64, out: &mut Vec<Effect>) {
        let Some(errand) = self.errands.get_mut(&op) else { return };
        if let Call::Force { seen, .. } = &mut errand.call {
            *seen = Some(last);
        }
        self.send_errand(now, op, Manner::Plain, out);
    }

    /// A lock was freed whose line is too long to be walked at once. A release walks on: to force it once
    /// more would take the lock from whoever has got it since.
    fn walk_on(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        let Some(Errand { call, aim, .. }) = self.remove_errand(op) else { return };
        let Aim::Force(id) = aim else { return debug_assert!(false, "nothing was freed") };
        let (keys, token) = (call.keys().clone(), call.token().clone());
        out.push(Effect::Complete { op, outcome: Outcome::Done });
        self.abandon(now, id, keys, token, false, out);
    }

    /// A lock was taken over from its owner.
    fn adopted(&mut self, now: Mono, op: OpId, sent: Mono, fence: u64, out: &mut Vec<Effect>) {
        let Some(Errand { call, aim, uncertain, .. }) = self.remove_errand(op) else { return };
        let Aim::Adopt { id, ttl, hold, mode } = aim else {
            return debug_assert!(false, "a fence for nobody");
        };
        let (keys, token) = (call.keys().clone(), call.token().clone());
        if let Call::Adopt { owner, .. } = &call {
            // It may be this manager's own, and the message may never come.
            let own = owner.number(&self.config.client).map(AttemptId);
            let own = own.filter(|id| self.leases.contains_key(id));
            if let Some(id) = own {
                self.lose(now, id, LossReason::Adopted, out);
            }
        }
        let until = valid_until(sent, ttl);
        if until <= now {
            self.abandon(now, id, keys, token, false, out);
            let detail = format!("the answer took longer than the lease of {} ms", ttl.as_millis());
            return out.push(Effect::Complete { op, outcome: Outcome::Connection(detail) });
        }
        let label = Box::default();
        let given = Given { id, keys, label, mode, fence, ttl, until, hold, uncertain };
        let lease = self.take_given(now, given, out);
        out.push(Effect::Complete { op, outcome: Outcome::Acquired { lease, fence, label: None } });
    }

    /// Several locks were free.
    fn given_together(
        &mut self,
        now: Mono,
        op: OpId,
        sent: Mono,
        fences: Vec<u64>,
        out: &mut Vec<Effect>,
    ) {
        let Some(errand) = self.errands.get(&op) else { return };
        let Aim::Together { first, ttl, label, hold } = errand.aim.clone() else {
            return debug_assert!(false, "fences for nobody");
        };
        let until = valid_until(sent, ttl);
        let link = self.link_of(errand.call.keys());
        let outdated = fences.iter().any(|fence| link.is_outdated(*fence));
        if outdated || until <= now {
            // What cannot be relied on goes back, and is asked for one by one.
            if let Some(errand) = self.errands.get_mut(&op) {
                errand.uncertain = true;
            }
            return self.end_errand(now, op, false, out);
        }
        let Some(Errand { call, uncertain, .. }) = self.remove_errand(op) else { return };
        for (((keys, _), fence), number) in call.into_locks().zip(&fences).zip(first.0..) {
            let (id, label, fence) = (AttemptId(number), label.clone(), *fence);
            let mode = Mode::Exclusive;
            let given = Given { id, keys, label, mode, fence, ttl, until, hold, uncertain };
            self.take_given(now, given, out);
        }
        let lease = LeaseId::first(first);
        out.push(Effect::Complete { op, outcome: Outcome::AcquiredAll { lease, fences } });
    }

    fn take_given(&mut self, now: Mono, given: Given, out: &mut Vec<Effect>) -> LeaseId {
        let Given { id, keys, label, mode, fence, ttl, until, hold, uncertain } = given;
        let lease = LeaseId::first(id);
        let turn = Turn::over(now);
        let confirmed = now;
        let held = Lease {
            label,
            mode,
            ttl,
            turn,
            confirmed,
            uncertain,
            ..Lease::new(lease, keys, fence, until)
        };
        self.begin_lease(now, held, hold, out);
        lease
    }

    /// The server has done it, or there was nothing to do it to.
    fn end_errand(&mut self, now: Mono, op: OpId, done: bool, out: &mut Vec<Effect>) {
        let Some(errand) = self.remove_errand(op) else { return };
        let mut outcome = if done { Outcome::Done } else { Outcome::Lost };
        match errand.aim {
            Aim::Downgrade(lease) if !done && self.hold_of(lease).is_some() => {
                self.lose_as_told(now, lease.attempt(), out);
            }
            Aim::Together { .. } => {
                if errand.uncertain {
                    self.give_back(now, errand, out);
                }
                outcome = Outcome::Held;
            }
            _ => {}
        }
        out.push(Effect::Complete { op, outcome });
    }

    /// There was no answer in time, or one that is final.
    pub(super) fn errand_deadline(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        let Some(mut errand) = self.remove_errand(op) else { return };
        let keys = errand.call.keys();
        let outcome = match errand.refusal.take() {
            Some(refusal) => {
                let mut locks = errand.call.clone().into_locks();
                let blamed = locks.find_map(|(keys, _)| keys.named_by(&refusal.detail));
                let key = Some(blamed.unwrap_or_else(|| keys.lock().to_owned()));
                Outcome::Server { refusal, key }
            }
            None => self.unanswered(keys, self.config.command_timeout),
        };
        self.give_back(now, errand, out);
        out.push(Effect::Complete { op, outcome });
    }

    /// Nobody wants the locks any more. Other errands are not waited for with a signal.
    pub(super) fn cancel_errand(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        let together = |errand: &Errand| matches!(errand.aim, Aim::Together { .. });
        if !self.errands.get(&op).is_some_and(together) {
            return;
        }
        let Some(errand) = self.remove_errand(op) else { return };
        self.give_back(now, errand, out);
        out.push(Effect::Complete { op, outcome: Outcome::Cancelled });
    }

    /// What an errand may have got, or may yet get, is nobody's.
    fn give_back(&mut self, now: Mono, Errand { call, aim, .. }: Errand, out: &mut Vec<Effect>) {
        let first = match aim {
            Aim::Adopt { id, .. } => id,
            Aim::Together { first, .. } => first,
            Aim::Downgrade(_) | Aim::Force(_) => return,
        };
        for ((keys, token), number) in call.into_locks().zip(first.0..) {
            self.abandon(now, AttemptId(number), keys, token, true, out);
        }
    }

    /// The manager is closed.
    pub(super) fn end_errands(&mut self, now: Mono, out: &mut Vec<Effect>) {
        for op in in_order(&self.errands) {
            let Some(errand) = self.remove_errand(op) else { continue };
            self.give_back(now, errand, out);
            out.push(Effect::Complete { op, outcome: Outcome::Closed });
        }
    }

    fn remove_errand(&mut self, op: OpId) -> Option<Errand> {
        let errand = self.errands.remove(&op)?;
        self.timers.remove(&(errand.deadline, Timer::ErrandDeadline(op)));
        if let Some(at) = errand.retry {
            self.timers.remove(&(at, Timer::ErrandRetry(op)));
        }
        Some(errand)
    }
}
