//! Keeping a lock: renewal from the native thread, its limits, and loss.
//!
//! A lease is renewed at a third of its length, so two renewals may fail before it ends. A blocked
//! event loop cannot stop that; so that a wedged process does not hold for ever, renewal pauses
//! while JavaScript has not turned for `stall_timeout`.

use super::hand_on::Turn;
use super::{AttemptId, Effect, Lease, LeaseId, Machine, Manner, NodeId, Purpose, Timer};
use crate::clock::Mono;
use crate::error::Failure;
use crate::keys::LockKeys;
use crate::message::Taken;
use crate::script::{Call, Intent, Mode, Reply, drift, valid_until};
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
    /// Its lease ended, as its caller wanted it to: nothing to be counted.
    Ended,
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

/// What a lease plans. Of what is planned for one moment the first comes first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Plan {
    HoldEnd,
    LeaseEnd,
    Renewal,
}

/// What a message says of a lease, which may be forged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Notice {
    /// Nothing.
    None,
    /// It was taken away like this. The server has not been asked since.
    Heard(LossReason),
    /// So too, and the answer will say whether it is true.
    Asked(LossReason),
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
    /// Of a whole lock, until `until`, for nobody yet.
    pub(super) fn new(id: LeaseId, keys: LockKeys, fence: u64, until: Mono) -> Self {
        Self {
            id,
            keys,
            label: Box::default(),
            mode: Mode::Exclusive,
            fence,
            ttl: Duration::ZERO,
            until,
            turn: Turn::over(until),
            history: 0,
            confirmed: Mono::default(),
            renew: false,
            keep: false,
            stall_timeout_ms: 0,
            hold_end: Mono::NEVER,
            owed: None,
            renewal: None,
            renewing: false,
            stalled: false,
            notice: Notice::None,
            uncertain: false,
        }
    }

    /// A caller gets it, who wants to keep it like this.
    pub(super) fn begin_hold(&mut self, now: Mono, hold: Hold) {
        let Hold { renew, keep, max_hold, stall_timeout } = hold;
        (self.renew, self.keep) = (renew, keep);
        self.stall_timeout_ms = u64::try_from(stall_timeout.as_millis()).unwrap_or(u64::MAX);
        self.hold_end = max_hold.map_or(Mono::NEVER, |max_hold| now + max_hold);
        self.plan_next_renewal(now);
    }

    /// Until when its caller has it: as long as it is valid, or as it may be held.
    pub(super) fn held_until(&self) -> Mono {
        self.hold_end.min(self.until)
    }

    /// What it plans next, and when.
    fn plan(&self) -> (Mono, Plan) {
        let end = (self.hold_end, Plan::HoldEnd).min((self.until, Plan::LeaseEnd));
        self.renewal.map_or(end, |at| end.min((at, Plan::Renewal)))
    }

    /// Plans its next renewal, unless one is under way or there is to be none: a third of the lease after
    /// it was asked for, two thirds are left of it.
    fn plan_next_renewal(&mut self, now: Mono) {
        if self.renew && !self.renewing {
            let left = self.until.since(now) + drift(self.ttl);
            self.plan_renewal(now, now + left.saturating_sub(self.ttl * 2 / 3));
        }
    }

    /// What is left of it. Whoever asks to extend it to that asks whether it is held, and does not renew it.
    fn left(&self, now: Mono) -> Duration {
        self.until.since(now).max(Duration::from_millis(1))
    }

    fn plan_renewal(&mut self, now: Mono, at: Mono) {
        let slice_us = u64::try_from(SLICE.min(self.ttl / 16).as_micros()).unwrap_or(1).max(1);
        let at = Mono::from_micros(at.as_micros() - at.as_micros() % slice_us).max(now);
        self.renewal = Some(at);
    }

    /// Its lease ends at `until`, unless it does so later already.
    pub(super) fn lengthen(&mut self, until: Mono, out: &mut Vec<Effect>) {
        if until > self.until {
            self.until = until;
            out.push(Effect::SetDeadline { lease: self.id, until: Some(self.held_until()) });
        }
    }

    /// Whether an answer with this fence tells of the grant that it is of, and not of another one. Of a whole lock
    /// the last fence is told that was reserved, whoever here has it now; also while it becomes a share.
    fn is_of_grant(&self, fence: u64) -> bool {
        let last = self.fence + u64::from(self.turn.left);
        match self.mode {
            Mode::Exclusive => fence == last,
            Mode::Shared { limit: None } => fence == last || fence == self.fence,
            Mode::Shared { limit: Some(_) } => fence == self.fence,
        }
    }
}

impl Machine {
    /// A lock was granted: plans what ends or keeps it.
    pub(super) fn begin_lease(
        &mut self,
        now: Mono,
        mut held: Lease,
        terms: Hold,
        out: &mut Vec<Effect>,
    ) {
        let id = held.id.attempt();
        held.begin_hold(now, terms);
        held.history = self.link_of(&held.keys).history;
        self.stats.acquired += 1;
        out.push(Effect::SetDeadline { lease: held.id, until: Some(held.held_until()) });
        self.timers.insert((held.plan().0, Timer::Lease(id)));
        self.leases.insert(id, Box::new(held));
    }

    /// Ends a lease here: nothing is planned for it any more, and it is not valid any more.
    pub(super) fn remove_lease(&mut self, id: AttemptId, out: &mut Vec<Effect>) -> Option<Lease> {
        let held = self.leases.remove(&id)?;
        self.timers.remove(&(held.plan().0, Timer::Lease(id)));
        out.push(Effect::SetDeadline { lease: held.id, until: None });
        self.end_undecided(id, out);
        Some(*held)
    }

    /// Changes a lease, and with it when its timer is due.
    pub(super) fn change_lease(&mut self, id: AttemptId, change: impl FnOnce(&mut Lease)) {
        let Some(held) = self.leases.get_mut(&id) else { return };
        let (before, _) = held.plan();
        change(held);
        let (after, _) = held.plan();
        if before != after {
            self.timers.remove(&(before, Timer::Lease(id)));
            self.timers.insert((after, Timer::Lease(id)));
        }
    }

    /// The token by which a lock is held.
    pub(super) fn token_of(&self, held: &Lease) -> Token {
        Token::new(&self.config.client, held.id.attempt().0, &held.label)
    }

    /// What a lease has planned next is due. Whatever it is takes the plan back.
    pub(super) fn lease_due(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let Some(held) = self.leases.get(&id) else { return };
        match held.plan().1 {
            Plan::HoldEnd => self.lose_and_give_back(now, id, LossReason::MaxHold, out),
            Plan::LeaseEnd => self.lease_end(now, id, out),
            Plan::Renewal => self.renewal_due(now, id, out),
        }
    }

    pub(super) fn renewal_due(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        self.pulse.ask(now, out);
        let pulse = &self.pulse;
        let Some(held) = self.leases.get_mut(&id) else { return };
        held.stalled = pulse.is_gone(now, Duration::from_millis(held.stall_timeout_ms));
        if held.stalled {
            // JavaScript may come back before the lease ends; then renewal goes on.
            return self.change_lease(id, |held| held.plan_renewal(now, now + held.ttl / 16));
        }
        let renews = held.renew || held.owed.is_some();
        let ttl = if renews { held.ttl } else { held.left(now) };
        self.send_renewal(now, id, ttl, Manner::Plain, out);
    }

    /// The call that makes a lease last at least `ttl`. A claim of the whole lock also deletes the record of it, which
    /// is kept beside the lock; the fence in the answer is not read, for the owner has it.
    pub(super) fn extension(&self, held: &Lease, ttl: Duration) -> Call {
        let (keys, token) = (held.keys.clone(), self.token_of(held));
        if held.mode.is_shared() {
            return Call::ExtendShare { keys, token, ttl };
        }
        if held.owed != Some(Owed::Claim) {
            return Call::Extend { keys, token, ttl };
        }
        let (epoch, inbox) = (self.link_of(&keys).epoch, self.inbox(&keys));
        let (intent, mode) = (Intent::Poll, held.mode);
        Call::Acquire { keys, token, ttl, epoch, block: 1, inbox, intent, mode }
    }

    /// Asks to extend a lease to `ttl`, if the server is connected; if not, [`Self::resume_renewals`] does later.
    pub(super) fn send_renewal(
        &mut self,
        now: Mono,
        id: AttemptId,
        ttl: Duration,
        manner: Manner,
        out: &mut Vec<Effect>,
    ) {
        let Some(held) = self.leases.get(&id).filter(|held| !held.renewing) else {
            return;
        };
        let call = self.extension(held, ttl);
        let renewing = self.send(now, Purpose::Renew(id, ttl), call, manner, out).is_some();
        self.change_lease(id, |held| {
            held.renewing = renewing;
            held.renewal = None;
            if let (true, Notice::Heard(how)) = (renewing, held.notice) {
                held.notice = Notice::Asked(how);
            }
        });
    }

    /// The server is connected again, or shows another history of the data: asks for every renewal that could not
    /// be asked for, and for every lease that this history has not confirmed.
    pub(super) fn resume_renewals(&mut self, now: Mono, node: NodeId, out: &mut Vec<Effect>) {
        let link = self.links.get(node);
        let waits = |held: &Lease| {
            let here = self.routes.node(&held.keys) == node;
            let owes = (held.renew || held.owed.is_some()) && held.renewal.is_none();
            let doubted = held.history != link.history || held.notice != Notice::None;
            here && !held.renewing && (owes || doubted)
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
        asked: Duration,
        reply: &Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        let Some(held) = self.leases.get(&id) else { return };
        let link = self.link_of(&held.keys);
        let (outdated, history) = (link.is_outdated(held.fence), link.history);
        let Some(held) = self.leases.get_mut(&id) else { return };
        if !std::mem::take(&mut held.renewing) {
            return;
        }
        if held.until <= now {
            return self.lease_end(now, id, out);
        }
        match reply {
            // Since it was granted, the data has turned out to be another history, and knows another grant.
            Ok(Reply::Granted { fence }) if outdated && !held.is_of_grant(*fence) => {
                self.lose_and_give_back(now, id, LossReason::Expired, out);
            }
            Ok(Reply::Owner(true) | Reply::Granted { .. }) => {
                self.stats.renewals += 1;
                self.change_lease(id, |held| {
                    held.owed = None;
                    (held.history, held.confirmed) = (history, sent);
                    held.lengthen(valid_until(sent, asked), out);
                    if let Notice::Asked(_) = held.notice {
                        held.notice = Notice::None;
                    }
                    held.plan_next_renewal(now);
                });
                self.ask_about_notice(now, id, out);
            }
            // The only final answers; all else is tried again until the lease ends.
            Ok(Reply::Owner(false)) => self.lose_as_told(now, id, out),
            Ok(Reply::Held(seen)) => {
                // A server that missed the grant (a failover) may still have its token in line.
                held.uncertain |= seen.place.is_some();
                self.lose_as_told(now, id, out);
            }
            Ok(_) => debug_assert!(false, "not a reply of extend or acquire"),
            Err(Failure::NoScript) => self.send_renewal(now, id, asked, Manner::WithSource, out),
            Err(Failure::Moved(_)) => self.send_renewal(now, id, asked, Manner::Redirected, out),
            Err(Failure::Moving(to)) => {
                self.send_renewal(now, id, asked, Manner::Asking(*to), out);
                self.renew_later(now, id);
            }
            // While its slot moves, only the lock's own key can be relied on. The record of the grant stays: should this
            // owner let the lease run out, it counts as silent.
            Err(Failure::Refused(refusal))
                if refusal.code == "TRYAGAIN" && held.owed == Some(Owed::Claim) =>
            {
                held.owed = Some(Owed::Length);
                self.send_renewal(now, id, asked, Manner::Plain, out);
            }
            // Lost as well: where the slot moves to, nobody asks again once connected.
            Err(_) => self.renew_later(now, id),
        }
    }

    /// Asks again after a part of what is left, if nobody asks now.
    fn renew_later(&mut self, now: Mono, id: AttemptId) {
        let Some(held) = self.leases.get(&id).filter(|held| !held.renewing) else {
            return;
        };
        // A slice at least: rounded down to one it must still be later than now, for a quorum without
        // connections answers at once.
        let pause = (held.until.since(now).min(held.ttl) / 16).max(SLICE.min(held.ttl / 16));
        self.change_lease(id, |held| held.plan_renewal(now, now + pause));
    }

    /// The server says that another owns the lock, or nobody. How that came a message may have told.
    pub(super) fn lose_as_told(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let reason = match self.leases.get(&id).map(|held| held.notice) {
            Some(Notice::Heard(how) | Notice::Asked(how)) => how,
            _ => LossReason::Expired,
        };
        self.lose(now, id, reason, out);
    }

    /// Another owns the lock, or nobody.
    pub(super) fn lose(
        &mut self,
        now: Mono,
        id: AttemptId,
        reason: LossReason,
        out: &mut Vec<Effect>,
    ) {
        let Some(held) = self.remove_lease(id, out) else { return };
        self.tell_loss(held.id, reason, out);
        if held.uncertain || self.link_of(&held.keys).is_outdated(held.fence) {
            // Its acquire may still arrive, and take the lock for nobody; or a server that missed the grant (a
            // failover) has it in line still.
            let token = self.token_of(&held);
            self.abandon(now, id, held.keys, token, true, out);
        }
    }

    /// A message says that a lock was taken from its owner. Whoever may publish can say so: the server is asked.
    pub(super) fn hear_of_loss(&mut self, now: Mono, taken: &Taken, out: &mut Vec<Effect>) {
        let Some(id) = taken.token.number(&self.config.client).map(AttemptId) else { return };
        if self.doubt_grant(id, taken) {
            return self.send_attempt(now, id, Manner::Plain, out);
        }
        let Some(held) = self.leases.get(&id) else { return };
        if held.keys != taken.keys || self.token_of(held) != taken.token {
            return;
        }
        let how = if taken.adopted { LossReason::Adopted } else { LossReason::Stolen };
        if let Some(held) = self.leases.get_mut(&id) {
            held.notice = Notice::Heard(how);
        }
        self.ask_about_notice(now, id, out);
    }

    /// Asks whether a message is true, unless an earlier question is still unanswered. Messages neither lengthen a lease,
    /// as of a process that hangs, nor keep one from being renewed that is due, however many there are.
    fn ask_about_notice(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let Some(held) = self.leases.get(&id) else { return };
        if !matches!(held.notice, Notice::Heard(_)) {
            return;
        }
        if held.renewal.is_some_and(|at| at <= now) {
            self.renewal_due(now, id, out);
        } else {
            let left = held.left(now);
            self.send_renewal(now, id, left, Manner::Plain, out);
        }
    }

    /// The lease has ended by this process's clock, a little before it does by the server's.
    pub(super) fn lease_end(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let stalled = self.leases.get(&id).is_some_and(|held| held.stalled);
        if self.leases.get(&id).is_some_and(|held| held.keep) {
            // The server ends it; until then its token may be lengthened by whoever else has it. So also where
            // its acquire may still arrive, and take the lock for nobody, for a lease at most.
            let Some(held) = self.remove_lease(id, out) else { return };
            return self.tell_loss(held.id, LossReason::Ended, out);
        }
        let reason = if stalled { LossReason::Stalled } else { LossReason::Expired };
        self.lose_and_give_back(now, id, reason, out);
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
        self.stats.lost += u64::from(reason != LossReason::Ended);
        out.push(Effect::Lose { lease, reason });
        self.end_extends_of(lease, out);
    }

    /// Gives a lease back that nobody uses any more. Also right after its end: an extension that
    /// arrives late would otherwise leave the lock held by nobody.
    pub(super) fn give_up_lease(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let Some(held) = self.remove_lease(id, out) else { return };
        let token = self.token_of(&held);
        self.abandon(now, id, held.keys, token, held.uncertain, out);
    }
}
