//! The leases of a manager: renewal from the native thread, its limits, and loss.
//!
//! A lease is renewed at a third of its length, so two renewals may fail before it ends. A blocked event loop cannot
//! stop that; so that a hung process does not hold for ever, renewal pauses while JavaScript has not turned for
//! `stall_timeout`.
//!
//! A lease that is not renewed ends by itself, so it needs no such pause. At the same moments the server is asked whether
//! it is held, for a server that has lost the lock grants it to others.

mod renewal;
#[cfg(test)]
mod tests;
mod tracking;

use super::boxed_map::BoxedMap;
use super::context::Context;
use super::handoff::{HandoffBudget, Reservation};
use super::idle_locks::IdleLocks;
use super::interface::{Effect, HoldTerms, LossReason};
use super::timers::Timer;
use super::tracked::{TRACKED_AFTER, Tracked, Tracking};
use crate::protocol::{
    Call, Label, LeaseId, LockKeys, Mode, Mono, Reply, Script, Token, TokenId, drift, is_owner,
    lease_until, valid_until,
};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;

/// Renewals due in the same slice of time leave as one pipeline.
const SLICE: Duration = Duration::from_millis(20);
/// A lock is handed off only if the server has confirmed it within this time, or a sixteenth of its lease: a server
/// that has lost the lock since may have granted it to others.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);

/// A lock that this manager holds, by its own clock. There may be very many, so nothing is kept that can be computed.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent")]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    pub(super) keys: LockKeys,
    /// The label in its token, or the whole token if its caller has given that.
    pub(super) label: Arc<str>,
    pub(super) mode: Mode,
    pub(super) fence: u64,
    /// The length that its caller asked for.
    ttl_us: u64,
    pub(super) until: Mono,
    /// How long and how often it may be handed off here.
    pub(super) budget: HandoffBudget,
    /// The number of the replication id that has confirmed it last.
    pub(super) data_number: u32,
    /// When the request was sent whose answer confirmed it last.
    pub(super) confirmed: Mono,
    pub(super) renew: bool,
    pub(super) leave_to_expire: bool,
    /// At most 49 days, which no process hangs for.
    stall_timeout_ms: u32,
    /// Until when it may be kept: by its caller, or idle. Counted as the end of a lease: so a request may ask for a lease
    /// that lasts until then, and at the server it ends with `max_hold` at the latest.
    kept_until: Mono,
    pub(super) pending_renewal: Option<PendingRenewal>,
    /// When the server is asked about it next, to renew it or not. While a request is under way: until when it is to be
    /// answered. Never, after that or while it waits for a connection.
    renewal: Mono,
    /// How the lock was taken away, by a message that may be forged.
    pub(super) notice: Option<LossReason>,
    /// A request was sent since that message, whose answer will confirm or deny it.
    asked: bool,
    /// Whether its renewal pauses because JavaScript shows no sign of life.
    stalled: bool,
    /// An acquire of this token was lost and may still be executed: release it twice.
    pub(super) uncertain: bool,
    pub(super) origin: Origin,
    pub(super) renewed_by: RenewedBy,
    pub(super) tracking: Tracking,
}

// The usual allocators waste nothing of a multiple of 16 bytes and eight more.
const _: () = assert!(size_of::<Lease>() <= 136, "a lease fits into 136 bytes");

/// How a lock was got, as far as that matters later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    /// As most are.
    Plain,
    /// This share was taken on the fast path. If others have joined since, the server has a later fence for it.
    LoneShare,
    /// Its caller has chosen its token when it took the lock over: others may have it. No other caller gets such a lock
    /// without the server.
    ChosenToken,
    /// Its caller has made its token for this hold when it took the lock over.
    MadeToken,
    /// It is other code's, which has chosen the value: the lease is renewed, and nothing else is done to it.
    Foreign,
}

impl Origin {
    /// Of a lock that was taken over under a label.
    pub(super) fn of(label: &Label) -> Self {
        match label {
            Label::Text(_) => Self::Plain,
            Label::Chosen(_) => Self::ChosenToken,
            Label::Made(_) => Self::MadeToken,
        }
    }
}

/// How a whole lock is renewed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RenewedBy {
    /// By the plain command, where that cannot shorten the lease.
    Command,
    /// By the script: its caller has extended it, or the command was in vain, since the value has a mark.
    Script,
    /// By the script, for the answer to a command was lost. It may be executed at any time, and sets the lease to `ttl` then:
    /// so no more of a longer extension counts, and no other caller gets the lock without the server.
    ScriptAfterLoss,
}

/// The renewal that a fresh lease still needs, even if it is not renewed otherwise.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PendingRenewal {
    /// The claim of a lock that was granted by message, for a short time.
    Claim,
    /// An extension: the request was for an earlier caller, with a shorter lease.
    Extension,
}

/// The next scheduled step of a lease. If several are due at once, the first is taken.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Plan {
    KeepEnd,
    LeaseEnd,
    Renewal,
}

impl Lease {
    /// A lease without a caller yet, which is not handed off.
    pub(super) fn new(
        id: TokenId,
        keys: LockKeys,
        label: Arc<str>,
        mode: Mode,
        ttl: Duration,
        fence: u64,
        until: Mono,
    ) -> Self {
        Self {
            id: LeaseId::first(id),
            keys,
            label,
            mode,
            fence,
            ttl_us: micros(ttl),
            until,
            budget: HandoffBudget::none(),
            data_number: 0,
            confirmed: Mono::from_micros(0),
            renew: false,
            leave_to_expire: false,
            stall_timeout_ms: 0,
            kept_until: Mono::NEVER,
            pending_renewal: None,
            renewal: Mono::NEVER,
            stalled: false,
            notice: None,
            asked: false,
            uncertain: false,
            origin: Origin::Plain,
            renewed_by: RenewedBy::Command,
            tracking: Tracking::Off,
        }
    }

    /// Begins the hold of a caller, on its terms.
    fn begin_hold(&mut self, now: Mono, hold: HoldTerms) {
        let HoldTerms { renew, leave_to_expire, max_hold, stall_timeout, linger: _ } = hold;
        (self.renew, self.leave_to_expire) = (renew, leave_to_expire);
        self.stall_timeout_ms = u32::try_from(stall_timeout.as_millis()).unwrap_or(u32::MAX);
        self.kept_until = max_hold.map_or(Mono::NEVER, |max_hold| valid_until(now, max_hold));
    }

    /// The length that its caller asked for.
    pub(super) const fn ttl(&self) -> Duration {
        Duration::from_micros(self.ttl_us)
    }

    /// The end of its caller's hold: that of the lease, or of the longest hold.
    fn held_until(&self) -> Mono {
        self.kept_until.min(self.until)
    }

    pub(super) fn is_confirmed(&self, now: Mono) -> bool {
        self.pending_renewal.is_none() && now.since(self.confirmed) <= self.confirmed_within()
    }

    fn confirmed_within(&self) -> Duration {
        CONFIRMED_WITHIN.min(self.ttl() / 16)
    }

    /// Whether an idle lock can be confirmed again and again without a gap: if not, its next caller would seldom get it, and
    /// its questions would cost more than the requests that it saves.
    pub(super) fn may_stay_confirmed(&self, round_trip: Duration) -> bool {
        round_trip.saturating_mul(2) <= self.confirmed_within()
    }

    /// When the server is asked about an idle lock, so that the answer is there before the last one is too old.
    fn next_confirmation(&self, round_trip: Duration) -> Mono {
        let within = self.confirmed_within();
        let early = within.saturating_sub(round_trip.saturating_mul(3) / 2);
        self.confirmed + early.min(within * 3 / 4)
    }

    /// Whether the rest of it suits a successor that asks for `ttl`: it suffices, and a crash costs no more than that.
    pub(super) fn rest_suits(&self, now: Mono, ttl: Duration) -> bool {
        (ttl / 2..=ttl).contains(&self.until.since(now))
    }

    /// The same for a successor whose lease is not renewed: nearly all of it is left. Of another length it could be
    /// lengthened beyond that, by the answer to a request of the owner before.
    pub(super) fn is_whole(&self, now: Mono, ttl: Duration) -> bool {
        let left = self.until.since(now) + drift(self.ttl());
        self.ttl() == ttl && (ttl.saturating_sub(ttl / 64)..=ttl).contains(&left)
    }

    fn plan(&self) -> (Mono, Plan) {
        let end = (self.kept_until, Plan::KeepEnd).min((self.until, Plan::LeaseEnd));
        end.min((self.renewal, Plan::Renewal))
    }

    /// Whether it is lengthened when a part of it is over, up to the end of its caller's hold.
    fn gets_longer(&self) -> bool {
        self.renew && self.until < self.kept_until
    }

    /// Schedules its next renewal, when two thirds of `ttl` are left. A lease that gets no longer, or not yet since its
    /// caller has extended it, is asked about after each third of the rest.
    fn plan_next_renewal(&mut self, now: Mono) {
        let pause = self.until_renewal(now);
        let is_young = self.tracking == Tracking::Young;
        self.plan_renewal(now, now + if is_young { pause.min(TRACKED_AFTER) } else { pause });
    }

    /// The time until its renewal.
    fn until_renewal(&self, now: Mono) -> Duration {
        let left = self.until.since(now) + drift(self.ttl());
        let question = left.max(self.ttl()) / 3;
        let renewal = left.saturating_sub(self.ttl() * 2 / 3);
        if self.gets_longer() { question.min(renewal) } else { question }
    }

    /// The lease that a renewal asks for: its length, or the rest of it, which may be more since its caller has extended it.
    /// A lease that is not renewed is only asked about, unless a part of its grant is pending.
    fn renewal_ttl(&self, now: Mono) -> Duration {
        let left = self.left(now);
        if self.renew || self.pending_renewal.is_some() { self.ttl().max(left) } else { left }
    }

    /// The lease that a request asks for to make it last `ttl`: no more than the rest of its caller's hold.
    pub(super) fn within_hold(&self, now: Mono, ttl: Duration) -> Duration {
        ttl.min(lease_until(now, self.kept_until))
    }

    fn plan_renewal(&mut self, now: Mono, at: Mono) {
        let slice_us = micros(SLICE.min(self.ttl() / 16)).max(1);
        let at = Mono::from_micros(at.as_micros() - at.as_micros() % slice_us).max(now);
        self.renewal = at;
    }

    /// Schedules a retry after a part of the rest.
    fn plan_retry(&mut self, now: Mono) {
        if self.tracking == Tracking::Young {
            // Its next step is no longer the one for that.
            self.tracking = Tracking::Later;
        }
        // A slice at least, which rounding leaves later than now, since a quorum without servers fails at once.
        let pause = (self.until.since(now) / 16).max(SLICE.min(self.ttl() / 16));
        self.plan_renewal(now, now + pause);
    }

    /// Whether an answer to its renewal is of its own grant, though the replication id has changed since: the answer for a
    /// share has its fence, and a claim may be of a later grant by message to the same token. The owner of a lone
    /// share has never waited, so no message grants it anything.
    const fn is_of_this_grant(&self, script: Option<Script>, reply: &Reply) -> bool {
        match reply {
            Reply::Granted { fence } => {
                *fence == self.fence || matches!(self.origin, Origin::LoneShare)
            }
            Reply::Owner(true) => !matches!(script, Some(Script::Claim)),
            _ => true,
        }
    }

    /// Whether it needs its server: its renewal is due, or its first request.
    fn needs_server(&self, now: Mono) -> bool {
        let is_due = || {
            let slice = SLICE.min(self.ttl() / 16);
            self.until.since(now) + drift(self.ttl()) <= self.ttl() * 2 / 3 + slice
        };
        self.pending_renewal.is_some() || (self.gets_longer() && is_due())
    }

    /// A request to extend it is sent: whatever becomes of that, the plain command could shorten the lease.
    pub(super) fn extended(&mut self) {
        if self.renewed_by == RenewedBy::Command {
            self.renewed_by = RenewedBy::Script;
        }
    }

    /// Whether the plain command may renew it for `ttl`: nobody else knows its value, and the command shortens no lease.
    fn renews_plainly(&self, now: Mono, ttl: Duration) -> bool {
        self.renewed_by == RenewedBy::Command
            && self.origin == Origin::Plain
            && !self.mode.is_shared()
            && self.pending_renewal.is_none()
            && !is_owner(&self.label)
            // One that is lost is executed late, for no less than later requests ask for.
            && ttl == self.ttl()
            && self.until <= valid_until(now, ttl)
    }

    /// How soon it needs an attempt to connect, while it needs its server and does not reach it: after an eighth of its
    /// rest, so the nearer its end, the more often.
    fn pressure(&self, now: Mono) -> Duration {
        (self.until.since(now) / 8).max(self.ttl() / 128)
    }

    /// The rest of it, in whole ms as commands have it. An extension by that only asks whether it is held.
    fn left(&self, now: Mono) -> Duration {
        let left_ms = u64::try_from(self.until.since(now).as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(left_ms.max(1))
    }
}

/// A lease that ends without its caller's release.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) id: TokenId,
    pub(super) reason: LossReason,
    pub(super) give_back: GiveBack,
}

/// Whether a lease that has ended is given back to the server, unless it is left to expire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum GiveBack {
    /// Even right after its end: a late extension would otherwise leave the lock held without an owner.
    Always,
    /// If its acquire may still arrive, or if a server that missed the grant (a failover) still has its queue entry.
    IfUncertain,
    /// Another lease has its token.
    Never,
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    by_token: BoxedMap<TokenId, Lease>,
    /// The last request for more handoffs of each whole lock that is handed off.
    reservations: FxHashMap<TokenId, Reservation>,
    pub(super) idle: IdleLocks,
    pub(super) tracked: Tracked,
    /// When the oldest unanswered ping was sent to JavaScript.
    pinged: Option<Mono>,
}

impl Leases {
    pub(super) fn len(&self) -> usize {
        self.by_token.len()
    }

    pub(super) fn ids(&self) -> Vec<TokenId> {
        self.by_token.keys_in_order()
    }

    pub(super) fn get(&self, id: TokenId) -> Option<&Lease> {
        self.by_token.get(&id)
    }

    /// A lease, if this caller still has it.
    pub(super) fn hold_of(&self, lease: LeaseId) -> Option<&Lease> {
        self.get(lease.token_id()).filter(|held| held.id == lease)
    }

    pub(super) fn valid(&self, context: &Context, lease: LeaseId) -> Option<&Lease> {
        self.hold_of(lease).filter(|held| context.now < held.held_until())
    }

    pub(super) fn token_of(context: &Context, held: &Lease) -> Token {
        if matches!(held.origin, Origin::ChosenToken | Origin::MadeToken | Origin::Foreign) {
            return Token::from_text(&held.label);
        }
        context.token(held.id.token_id(), held.mode, &held.label)
    }

    /// Changes a lease, and updates its timer.
    pub(super) fn change(
        &mut self,
        context: &mut Context,
        id: TokenId,
        set: impl FnOnce(&mut Lease),
    ) {
        if let Some(held) = self.by_token.get_mut(&id) {
            set(held);
            context.timers.set(Timer::Lease(id), held.plan().0);
        }
    }

    /// Gives the lock to the next caller, with that one's own fence, after the hold of the last; the lease continues.
    pub(super) fn hand_off(
        &mut self,
        context: &mut Context,
        id: TokenId,
        ttl: Duration,
        terms: HoldTerms,
    ) -> Option<&Lease> {
        let now = context.now;
        let reservation = self.reservations.get_mut(&id);
        let counted = reservation.as_ref().is_none_or(|it| it.counts(now));
        let first = reservation.and_then(Reservation::take_first);
        let held = self.by_token.get(&id)?;
        let was_idle = self.idle.take(now, &held.keys, id);
        self.idle.set(id, terms.linger);
        self.change(context, id, |held| {
            held.fence = first.unwrap_or(held.fence + 1);
            held.budget = held.budget.next(counted);
            held.ttl_us = micros(ttl);
            held.begin_hold(now, terms);
            // An idle lock is asked about soon: what happened to it before it was taken is known then.
            if !was_idle {
                held.plan_next_renewal(now);
            }
        });
        let held = self.get(id)?;
        context.push(Effect::SetDeadline { lease: held.id, until: Some(held.held_until()) });
        Some(held)
    }

    /// Schedules the next renewal of a lease. An idle lock is confirmed ahead of it, so that it can be handed off, and once
    /// more after that.
    fn plan_next_renewal(&mut self, context: &mut Context, id: TokenId, round_trip: Duration) {
        let Some(held) = self.get(id) else { return };
        let is_early = self.is_idle(id) || self.idle.is_taken_unconfirmed(id, held.confirmed);
        let now = context.now;
        self.change(context, id, |held| {
            held.plan_next_renewal(now);
            if is_early {
                let confirmation = held.next_confirmation(round_trip);
                held.plan_renewal(now, held.renewal.min(confirmation));
            }
        });
    }

    /// A lock without a caller is kept, as its last one wanted: that is a hold with an end. `round_trip`: none while a
    /// renewal is under way, which confirms it.
    pub(super) fn begin_idling(
        &mut self,
        context: &mut Context,
        id: TokenId,
        round_trip: Option<Duration>,
    ) {
        let now = context.now;
        let Some(end) = self.idle.end_of(now, id) else { return };
        if let Some(held) = self.by_token.get(&id) {
            self.idle.begin(now, held.keys.clone(), id);
        }
        self.end_tracking(id, Tracking::Young);
        self.change(context, id, |held| {
            // Later it could not be handed off.
            held.kept_until = held.budget.until().min(end);
        });
        if let Some(round_trip) = round_trip {
            self.plan_next_renewal(context, id, round_trip);
        }
    }

    /// Whether no caller has a lock, which is kept for the next one.
    pub(super) fn is_idle(&self, id: TokenId) -> bool {
        self.get(id).is_some_and(|held| self.idle.with(&held.keys) == Some(id))
    }

    /// Whether another manager is known to wait for a lock that is handed off here.
    pub(super) fn is_awaited(&self, id: TokenId) -> bool {
        self.reservations.get(&id).is_some_and(Reservation::is_over)
    }

    /// A caller's hold is over. From now on the lease is that of the next hold.
    pub(super) fn end_hold(&mut self, context: &mut Context, id: TokenId) {
        if let Some(held) = self.by_token.get_mut(&id) {
            context.push(Effect::SetDeadline { lease: held.id, until: None });
            held.id = held.id.next();
        }
    }

    pub(super) fn reservation(&mut self, id: TokenId) -> Option<&mut Reservation> {
        self.reservations.get_mut(&id)
    }

    /// The lease has ended by this process's clock, a little before it does by the server's.
    pub(super) fn end(&self, id: TokenId) -> Option<Loss> {
        let held = self.get(id)?;
        let reason = match held {
            // A renewal, also a pending one, would have made it as long as its caller wanted.
            Lease { leave_to_expire: true, renew: false, pending_renewal: None, .. } => {
                LossReason::Ended
            }
            Lease { stalled: true, .. } => LossReason::Stalled,
            _ => LossReason::Expired,
        };
        Some(Loss { id, reason, give_back: GiveBack::Always })
    }

    /// The server denies that the lease owns the lock.
    pub(super) fn denied(&self, id: TokenId) -> Option<Loss> {
        let held = self.get(id)?;
        let reason = match held.origin {
            // Its code has released it, as a rule, and knows of that.
            Origin::Foreign => LossReason::Ended,
            _ => held.notice.unwrap_or(LossReason::Expired),
        };
        Some(Loss { id, reason, give_back: GiveBack::IfUncertain })
    }

    /// How soon the lease that is nearest its end needs an attempt to connect; none if no lease waits for its server.
    pub(super) fn pressure(&self, now: Mono) -> Option<Duration> {
        let waits = self.by_token.iter().map(|(_, held)| held).filter(|it| it.needs_server(now));
        waits.map(|held| held.pressure(now)).min()
    }

    /// The same of one lease.
    pub(super) fn pressure_of(&self, now: Mono, id: TokenId) -> Option<Duration> {
        self.get(id).map(|held| held.pressure(now))
    }

    /// JavaScript showed a sign of life at `at`.
    pub(super) fn felt_heartbeat(&mut self, at: Mono) {
        self.pinged = self.pinged.filter(|pinged| at < *pinged);
    }

    /// The call that makes a lease last at least `ttl`. A claim of the whole lock also deletes the record of its grant,
    /// which is kept beside the lock.
    pub(super) fn extension(context: &Context, held: &Lease, ttl: Duration) -> Call {
        let (keys, token) = (held.keys.clone(), Self::token_of(context, held));
        if held.mode.is_shared() {
            let fence = held.fence;
            return Call::ExtendShare { keys, token, ttl, fence };
        }
        if held.origin == Origin::Foreign {
            return Call::KeepForeign { keys, token, ttl };
        }
        if held.pending_renewal != Some(PendingRenewal::Claim) {
            return Call::Extend { keys, token, ttl };
        }
        Call::Claim { keys, token, ttl }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Gives tests access to the leases, to check or corrupt them.
#[cfg(all(test, feature = "core"))]
impl Leases {
    pub(super) fn all(&self) -> impl Iterator<Item = &Lease> {
        self.by_token.iter().map(|(_, held)| held)
    }

    pub(super) fn keep_idle_for_ever(&mut self, context: &mut Context) {
        for id in self.idle.ids() {
            self.change(context, id, |held| held.kept_until = Mono::NEVER);
        }
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Lease> {
        self.by_token.values_mut()
    }
}
