//! Keeping a lock: renewal from the native thread, its limits, and loss.
//!
//! A lease is renewed at a third of its length, so two renewals may fail before it ends. A blocked
//! event loop cannot stop that; so that a wedged process does not hold for ever, renewal pauses
//! while JavaScript has not turned for `stall_timeout`.

use super::{AttemptId, Effect, Lease, LeaseId, Machine, Manner, NodeId, Purpose, Timer};
use crate::clock::Mono;
use crate::error::Failure;
use crate::message::Taken;
use crate::script::{Call, Intent, Reply, drift, valid_until};
use crate::token::Token;
use std::time::Duration;

/// How long and on what conditions a lock is kept beyond its first lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hold {
    /// Whether the lease is renewed until the lock is released.
    pub renew: bool,
    /// Whether the lease runs to its end, though the manager is closed or its process ends before.
    pub keep: bool,
    /// The longest time that the lock is kept, renewals included.
    pub max_hold: Option<Duration>,
    /// How long JavaScript may give no sign of life before renewal pauses.
    pub stall_timeout: Duration,
}

/// How a lock was lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LossReason {
    /// Another process took it over, to whom its token was passed on.
    Adopted,
    /// Its lease ended, or the server says that another owns it.
    Expired,
    /// It was kept for `max_hold`.
    MaxHold,
    /// Its lease ended because JavaScript gave no sign of life.
    Stalled,
    /// It was taken away.
    Stolen,
}

/// Renewals that fall into the same slice of time leave as one pipeline.
const SLICE: Duration = Duration::from_millis(20);

/// What a fresh lease still lacks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Owed {
    /// It was granted by a message, for a short time, until the server hears that somebody took it.
    Claim,
    /// It was asked for by somebody who wanted less of it.
    Length,
}

#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// When the next one is due.
    pub(super) due: Option<Mono>,
    /// The lease that the request under way asks for.
    asked: Option<Duration>,
    /// Whether it pauses because JavaScript gives no sign of life.
    stalled: bool,
}

/// Whether JavaScript still turns.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// When the oldest question without an answer was asked.
    asked: Option<Mono>,
}

impl Pulse {
    /// JavaScript turned at `at`.
    pub(super) fn feel(&mut self, at: Mono) {
        if self.asked.is_some_and(|asked| asked <= at) {
            self.asked = None;
        }
    }

    fn ask(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.asked.is_none() {
            self.asked = Some(now);
            out.push(Effect::Ping);
        }
    }

    fn is_gone(&self, now: Mono, limit: Duration) -> bool {
        self.asked.is_some_and(|asked| now.since(asked) >= limit)
    }
}

impl Lease {
    /// Until when its caller has it: as long as it is valid, or as it may be held.
    pub(super) fn held_until(&self) -> Mono {
        let hold_end = self.hold.max_hold.map(|max_hold| self.began + max_hold);
        hold_end.map_or(self.until, |end| end.min(self.until))
    }

    /// Whether one key is enough to lengthen it.
    const fn is_plain(&self) -> bool {
        !self.mode.is_shared() && !matches!(self.owed, Some(Owed::Claim))
    }
}

impl Machine {
    /// A lock was granted: plans what ends or keeps it.
    pub(super) fn begin_lease(&mut self, now: Mono, id: AttemptId, held: Lease) {
        self.timers.insert((held.until, Timer::LeaseEnd(id)));
        self.leases.insert(id, Box::new(held));
        self.start_hold(now, id);
    }

    /// Ends a lease here: nothing is planned for it any more, and it is not valid any more.
    pub(super) fn remove_lease(&mut self, id: AttemptId, out: &mut Vec<Effect>) -> Option<Lease> {
        self.stop_hold(id);
        let held = self.leases.remove(&id)?;
        self.timers.remove(&(held.until, Timer::LeaseEnd(id)));
        out.push(Effect::SetDeadline { lease: held.id, until: None });
        Some(*held)
    }

    /// Plans what a caller's hold needs: renewal, and its longest time.
    pub(super) fn start_hold(&mut self, now: Mono, id: AttemptId) {
        let Some(held) = self.leases.get(&id) else { return };
        if let Some(max_hold) = held.hold.max_hold {
            self.timers.insert((held.began + max_hold, Timer::HoldEnd(id)));
        }
        if held.renewal.asked.is_none() {
            self.start_renewal(now, id);
        }
    }

    /// A third of a lease after it was asked for, two thirds are left of it.
    fn plan_next_renewal(&mut self, now: Mono, id: AttemptId) {
        let Some(held) = self.leases.get(&id) else { return };
        let left = held.until.since(now) + drift(held.ttl);
        let at = now + left.saturating_sub(held.ttl * 2 / 3);
        self.plan_renewal(id, now, at);
    }

    pub(super) fn stop_hold(&mut self, id: AttemptId) {
        self.unplan_renewal(id);
        let Some(held) = self.leases.get(&id) else { return };
        if let Some(max_hold) = held.hold.max_hold {
            self.timers.remove(&(held.began + max_hold, Timer::HoldEnd(id)));
        }
    }

    fn unplan_renewal(&mut self, id: AttemptId) {
        let Some(held) = self.leases.get_mut(&id) else { return };
        if let Some(at) = held.renewal.due.take() {
            self.timers.remove(&(at, Timer::Renew(id)));
        }
    }

    fn plan_renewal(&mut self, id: AttemptId, now: Mono, at: Mono) {
        self.unplan_renewal(id);
        let Some(held) = self.leases.get_mut(&id) else { return };
        let slice_us = u64::try_from(SLICE.min(held.ttl / 16).as_micros()).unwrap_or(1).max(1);
        let at = Mono::from_micros(at.as_micros() - at.as_micros() % slice_us).max(now);
        held.renewal.due = Some(at);
        self.timers.insert((at, Timer::Renew(id)));
    }

    pub(super) fn renewal_due(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        self.unplan_renewal(id);
        let Some(held) = self.leases.get_mut(&id) else { return };
        self.pulse.ask(now, out);
        held.renewal.stalled = self.pulse.is_gone(now, held.hold.stall_timeout);
        if held.renewal.stalled {
            // JavaScript may come back before the lease ends; then renewal goes on.
            let pause = held.ttl / 16;
            return self.plan_renewal(id, now, now + pause);
        }
        self.send_renewal(now, id, Manner::Plain, out);
    }

    /// The call that makes a lease last at least `ttl`. Of a share, and of a grant by message that has
    /// reached somebody, more than the lock's own key must tell; the fence in the answer is not read, for
    /// the owner has it.
    pub(super) fn extension(&self, held: &Lease, ttl: Duration) -> Call {
        let (keys, token) = (held.keys.clone(), held.token.clone());
        if held.is_plain() {
            return Call::Extend { keys, token, ttl };
        }
        let (epoch, inbox) = (self.link_of(&keys).epoch, self.inbox(&keys));
        let (intent, mode) = (Intent::Poll, held.mode);
        Call::Acquire { keys, token, ttl, epoch, block: 1, inbox, intent, mode }
    }

    /// Asks to renew, if the server is connected; if not, [`Self::resume_renewals`] does later.
    pub(super) fn send_renewal(
        &mut self,
        now: Mono,
        id: AttemptId,
        manner: Manner,
        out: &mut Vec<Effect>,
    ) {
        let Some(held) = self.leases.get(&id).filter(|held| held.renewal.asked.is_none()) else {
            return;
        };
        let ttl = held.ttl;
        let call = self.extension(held, ttl);
        let sending = self.send(now, Purpose::Renew(id), call, manner, out).is_some();
        self.unplan_renewal(id);
        if let Some(held) = self.leases.get_mut(&id) {
            held.renewal.asked = sending.then_some(ttl);
        }
    }

    /// The server is connected again: asks for every renewal that could not be asked for, and whether
    /// what was granted in another history of the data is known in this one.
    pub(super) fn resume_renewals(&mut self, now: Mono, node: NodeId, out: &mut Vec<Effect>) {
        let link = self.links.get(node);
        let waits = |held: &Lease| {
            let here = self.routes.node(&held.keys) == node;
            let wanted = here && (held.hold.renew || held.owed.is_some());
            let at_once = held.renewal.due.is_none() || link.is_outdated(held.fence);
            wanted && at_once && held.renewal.asked.is_none()
        };
        let waiting = self.leases.iter().filter(|(_, held)| waits(held));
        let mut waiting: Vec<_> = waiting.map(|(id, _)| *id).collect();
        waiting.sort_unstable();
        for id in waiting {
            self.renewal_due(now, id, out);
        }
    }

    pub(super) fn renewal_reply(
        &mut self,
        now: Mono,
        id: AttemptId,
        sent: Mono,
        reply: &Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        let Some(held) = self.leases.get(&id) else { return };
        let outdated = self.link_of(&held.keys).is_outdated(held.fence);
        let Some(held) = self.leases.get_mut(&id) else { return };
        let Some(asked) = held.renewal.asked.take() else { return };
        if held.until <= now {
            return self.lease_end(now, id, out);
        }
        match reply {
            // Since it was granted, the data has turned out to be another history, and knows another grant.
            Ok(Reply::Granted { fence }) if outdated && *fence != held.fence => {
                self.lose_and_give_back(now, id, LossReason::Expired, out);
            }
            Ok(Reply::Owner(true) | Reply::Granted { .. }) => {
                held.owed = None;
                self.stats.renewals += 1;
                self.lengthen(id, valid_until(sent, asked), out);
                self.start_renewal(now, id);
            }
            // The only final answers; all else is tried again until the lease ends.
            Ok(Reply::Owner(false)) => self.lose(now, id, out),
            Ok(Reply::Held(seen)) => {
                // A server that missed the grant (a failover) may still have its token in line.
                held.uncertain |= seen.place.is_some();
                self.lose(now, id, out);
            }
            Ok(_) => debug_assert!(false, "not a reply of extend or acquire"),
            Err(Failure::NoScript) => self.send_renewal(now, id, Manner::WithSource, out),
            Err(Failure::Moved(_)) => self.send_renewal(now, id, Manner::Plain, out),
            Err(Failure::Moving(to)) => {
                self.send_renewal(now, id, Manner::Asking(*to), out);
                self.renew_later(now, id);
            }
            // Lost as well: where the slot moves to, nobody asks again once connected.
            Err(_) => self.renew_later(now, id),
        }
    }

    /// Asks again after a part of what is left, if nobody asks now.
    fn renew_later(&mut self, now: Mono, id: AttemptId) {
        let Some(held) = self.leases.get(&id).filter(|held| held.renewal.asked.is_none()) else {
            return;
        };
        // A slice at least: rounded down to one it must still be later than now, for a quorum without
        // connections answers at once.
        let pause = (held.until.since(now).min(held.ttl) / 16).max(SLICE.min(held.ttl / 16));
        self.plan_renewal(id, now, now + pause);
    }

    fn start_renewal(&mut self, now: Mono, id: AttemptId) {
        if self.leases.get(&id).is_some_and(|held| held.hold.renew) {
            self.plan_next_renewal(now, id);
        }
    }

    pub(super) fn lengthen(&mut self, id: AttemptId, until: Mono, out: &mut Vec<Effect>) {
        let Some(held) = self.leases.get_mut(&id) else { return };
        if until <= held.until {
            return;
        }
        self.timers.remove(&(held.until, Timer::LeaseEnd(id)));
        held.until = until;
        self.timers.insert((until, Timer::LeaseEnd(id)));
        let until = Some(held.held_until());
        out.push(Effect::SetDeadline { lease: held.id, until });
    }

    /// The server says that another owns the lock, or nobody.
    pub(super) fn lose(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let Some(held) = self.remove_lease(id, out) else { return };
        self.tell_loss(held.id, LossReason::Expired, out);
        if held.uncertain {
            // Its acquire may still arrive, and take the lock for nobody.
            self.abandon(now, id, held.keys, held.token, true, out);
        }
    }

    /// A message says that the lock was taken from its owner.
    pub(super) fn taken(&mut self, now: Mono, taken: &Taken, out: &mut Vec<Effect>) {
        let number = Token::from_text(&taken.token).number(&self.config.client);
        let Some(id) = number.map(AttemptId) else { return };
        if self.attempts.get(&id).is_some_and(|attempt| attempt.unconfirmed.is_some()) {
            // Replicas would confirm what is gone already.
            return self.renounce(now, id, out);
        }
        let Some(held) = self.remove_lease(id, out) else { return };
        let reason = if taken.adopted { LossReason::Adopted } else { LossReason::Stolen };
        self.tell_loss(held.id, reason, out);
        if held.uncertain {
            self.abandon(now, id, held.keys, held.token, true, out);
        }
    }

    /// The lease has ended by this process's clock, a little before it does by the server's.
    pub(super) fn lease_end(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let stalled = self.leases.get(&id).is_some_and(|held| held.renewal.stalled);
        if self.leases.get(&id).is_some_and(|held| held.hold.keep) {
            // The server ends it; until then its token may be lengthened by whoever else has it. So also where
            // its acquire may still arrive, and take the lock for nobody, for a lease at most.
            let Some(held) = self.remove_lease(id, out) else { return };
            return self.tell_loss(held.id, LossReason::Expired, out);
        }
        let reason = if stalled { LossReason::Stalled } else { LossReason::Expired };
        self.lose_and_give_back(now, id, reason, out);
    }

    /// The lock was kept for as long as it may be.
    pub(super) fn hold_end(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        self.lose_and_give_back(now, id, LossReason::MaxHold, out);
    }

    fn lose_and_give_back(
        &mut self,
        now: Mono,
        id: AttemptId,
        reason: LossReason,
        out: &mut Vec<Effect>,
    ) {
        let Some(lease) = self.leases.get(&id).map(|held| held.id) else { return };
        self.tell_loss(lease, reason, out);
        self.give_up_lease(now, id, out);
    }

    fn tell_loss(&mut self, lease: LeaseId, reason: LossReason, out: &mut Vec<Effect>) {
        self.stats.lost += 1;
        out.push(Effect::Lose { lease, reason });
        self.end_extends_of(lease, out);
    }

    /// Gives a lease back that nobody uses any more. Also right after its end: an extension that
    /// arrives late would otherwise leave the lock held by nobody.
    pub(super) fn give_up_lease(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let Some(held) = self.remove_lease(id, out) else { return };
        self.abandon(now, id, held.keys, held.token, held.uncertain, out);
    }
}
