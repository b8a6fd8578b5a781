//! The leases of a manager: renewal from the native thread, its limits, and loss.
//!
//! A lease is renewed at a third of its length, so two renewals may fail before it ends. A blocked event loop cannot
//! stop that; so that a hung process does not hold for ever, renewal pauses while JavaScript has not turned for
//! `stall_timeout`.
//!
//! A lease that is not renewed ends by itself, so it needs no such pause. At the same moments the server is asked whether
//! it is held, for a server that has lost the lock grants it to others.

use super::boxed_map::BoxedMap;
use super::context::Context;
use super::handoff::{HandoffBudget, Reservation};
use super::interface::{Effect, Hold, LossReason};
use super::request::{Fallback, Finished};
use super::servers::Servers;
use super::timers::{Owner, Timer};
use crate::protocol::{
    Call, LeaseId, LockKeys, Mode, Mono, NodeId, Reply, Script, ServerTime, Taken, Token, TokenId,
    drift, lease_until, valid_until,
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
    pub(super) label: Arc<str>,
    pub(super) mode: Mode,
    pub(super) fence: u64,
    pub(super) ttl: Duration,
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
    /// The end of the time for which its caller may hold it, counted as that of a lease: so a request may ask for a lease
    /// that lasts until then, and at the server it ends with `max_hold` at the latest.
    hold_end: Mono,
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
    /// This share was taken on the fast path. If others have joined since, the server has a later fence for it.
    pub(super) lone_share: bool,
}

// What is a multiple of 16 bytes and eight more wastes nothing in the usual allocators.
const _: () = assert!(size_of::<Lease>() <= 136);

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
    HoldEnd,
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
            ttl,
            until,
            budget: HandoffBudget::none(),
            data_number: 0,
            confirmed: Mono::from_micros(0),
            renew: false,
            leave_to_expire: false,
            stall_timeout_ms: 0,
            hold_end: Mono::NEVER,
            pending_renewal: None,
            renewal: Mono::NEVER,
            stalled: false,
            notice: None,
            asked: false,
            uncertain: false,
            lone_share: false,
        }
    }

    /// Begins the hold of a caller, on its terms.
    fn begin_hold(&mut self, now: Mono, hold: Hold) {
        let Hold { renew, leave_to_expire, max_hold, stall_timeout } = hold;
        (self.renew, self.leave_to_expire) = (renew, leave_to_expire);
        self.stall_timeout_ms = u32::try_from(stall_timeout.as_millis()).unwrap_or(u32::MAX);
        self.hold_end = max_hold.map_or(Mono::NEVER, |max_hold| valid_until(now, max_hold));
    }

    /// The end of its caller's hold: that of the lease, or of the longest hold.
    fn held_until(&self) -> Mono {
        self.hold_end.min(self.until)
    }

    pub(super) fn is_confirmed(&self, now: Mono) -> bool {
        self.pending_renewal.is_none()
            && now.since(self.confirmed) <= CONFIRMED_WITHIN.min(self.ttl / 16)
    }

    fn plan(&self) -> (Mono, Plan) {
        let end = (self.hold_end, Plan::HoldEnd).min((self.until, Plan::LeaseEnd));
        end.min((self.renewal, Plan::Renewal))
    }

    /// Whether it is lengthened when a part of it is over, up to the end of its caller's hold.
    fn gets_longer(&self) -> bool {
        self.renew && self.until < self.hold_end
    }

    /// Schedules its next renewal, when two thirds of `ttl` are left. A lease that gets no longer, or not yet since its
    /// caller has extended it, is asked about after each third of the rest.
    fn plan_next_renewal(&mut self, now: Mono) {
        let left = self.until.since(now) + drift(self.ttl);
        let question = left.max(self.ttl) / 3;
        let renewal = left.saturating_sub(self.ttl * 2 / 3);
        let pause = if self.gets_longer() { question.min(renewal) } else { question };
        self.plan_renewal(now, now + pause);
    }

    /// What a renewal asks for: its length, or the rest of it, which may be more since its caller has extended it. One that
    /// is not renewed is only asked about, unless a part of its grant is pending.
    fn renewal_ttl(&self, now: Mono) -> Duration {
        let left = self.left(now);
        if self.renew || self.pending_renewal.is_some() { self.ttl.max(left) } else { left }
    }

    /// What a request asks for that is to make it last `ttl`: no more than the rest of its caller's hold.
    pub(super) fn within_hold(&self, now: Mono, ttl: Duration) -> Duration {
        ttl.min(lease_until(now, self.hold_end))
    }

    fn plan_renewal(&mut self, now: Mono, at: Mono) {
        let slice_us = u64::try_from(SLICE.min(self.ttl / 16).as_micros()).unwrap_or(1).max(1);
        let at = Mono::from_micros(at.as_micros() - at.as_micros() % slice_us).max(now);
        self.renewal = at;
    }

    /// Schedules a retry after a part of the rest.
    fn plan_retry(&mut self, now: Mono) {
        // A slice at least, which rounding leaves later than now, since a quorum without servers fails at once.
        let pause = (self.until.since(now) / 16).max(SLICE.min(self.ttl / 16));
        self.plan_renewal(now, now + pause);
    }

    /// Whether it needs its server: its renewal is due, or its first request.
    fn needs_server(&self, now: Mono) -> bool {
        let is_due = || {
            let slice = SLICE.min(self.ttl / 16);
            self.until.since(now) + drift(self.ttl) <= self.ttl * 2 / 3 + slice
        };
        self.pending_renewal.is_some() || (self.gets_longer() && is_due())
    }

    /// How soon it needs an attempt to connect, while it needs its server and does not reach it: after an eighth of its
    /// rest, so the nearer its end, the more often.
    fn pressure(&self, now: Mono) -> Duration {
        (self.until.since(now) / 8).max(self.ttl / 128)
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

/// Whether a lease that has ended is given back to the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum GiveBack {
    /// Even right after its end: a late extension would otherwise leave the lock held without an owner.
    Always,
    /// If its acquire may still arrive, or if a server that missed the grant (a failover) still has its queue entry.
    IfUncertain,
    /// The server ends it; until then another process with its token may extend it. So also if its acquire may still
    /// arrive: that takes the lock for one lease at most.
    Never,
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    by_token: BoxedMap<TokenId, Lease>,
    /// The last request for more handoffs of each whole lock that is handed off.
    reservations: FxHashMap<TokenId, Reservation>,
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
        self.hold_of(lease).filter(|held| context.now < held.until)
    }

    pub(super) fn token_of(context: &Context, held: &Lease) -> Token {
        context.token(held.id.token_id(), &held.label)
    }

    /// Begins a granted lease, and schedules its renewal and its end.
    pub(super) fn begin(
        &mut self,
        context: &mut Context,
        servers: &Servers,
        mut held: Lease,
        terms: Hold,
    ) {
        let id = held.id.token_id();
        held.begin_hold(context.now, terms);
        held.plan_next_renewal(context.now);
        held.data_number = servers.data_of(&held.keys).number;
        context.stats.acquired += 1;
        context.push(Effect::SetDeadline { lease: held.id, until: Some(held.held_until()) });
        context.timers.set(Timer::Lease(id), held.plan().0);
        self.by_token.insert(id, held);
    }

    /// Ends a lease here: cancels its schedule and its validity.
    pub(super) fn remove(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        id: TokenId,
    ) -> Option<Lease> {
        let held = self.by_token.remove(&id);
        if let Some(held) = &held {
            context.timers.clear(Timer::Lease(id));
            servers.forget(context, Owner::Renewal(id));
            if self.reservations.remove(&id).is_some() {
                servers.forget(context, Owner::Reservation(id));
            }
            context.push(Effect::SetDeadline { lease: held.id, until: None });
        }
        held
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

    /// Renews a lease no more. False if this caller does not have it any more.
    pub(super) fn let_expire(&mut self, context: &mut Context, lease: LeaseId) -> bool {
        let is_held = self.valid(context, lease).is_some();
        if is_held {
            self.change(context, lease.token_id(), |held| {
                (held.renew, held.leave_to_expire) = (false, true);
            });
        }
        is_held
    }

    /// Hands the lock off to the next caller, with that one's own fence; the lease continues.
    pub(super) fn hand_off(
        &mut self,
        context: &mut Context,
        id: TokenId,
        ttl: Duration,
        terms: Hold,
    ) -> Option<&Lease> {
        let now = context.now;
        let before = self.get(id)?.id;
        let first = self.reservations.get_mut(&id).and_then(Reservation::take_first);
        self.change(context, id, |held| {
            held.id = held.id.next();
            held.fence = first.unwrap_or(held.fence + 1);
            held.budget = held.budget.next();
            held.ttl = ttl;
            held.begin_hold(now, terms);
            held.plan_next_renewal(now);
        });
        let held = self.get(id)?;
        context.push(Effect::SetDeadline { lease: before, until: None });
        context.push(Effect::SetDeadline { lease: held.id, until: Some(held.held_until()) });
        Some(held)
    }

    /// Asks for more handoffs of a whole lock, for which so many callers here wait, before its budget is spent.
    pub(super) fn reserve(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        id: TokenId,
        waiting: impl FnOnce(&LockKeys) -> u8,
    ) {
        let owner = Owner::Reservation(id);
        let Some(held) = self.get(id).filter(|_| !servers.is_open(owner)) else { return };
        let data = servers.data_of(&held.keys);
        // A quorum has no queue, and neither has a server whose scripts cannot read its clock.
        if context.config.quorum || data.denies_clock {
            return;
        }
        let (lease, left) = (held.id, held.budget.left);
        if !Reservation::is_due(self.reservations.get(&id), lease, left) {
            return;
        }
        let block = waiting(&held.keys);
        if block > left {
            let (keys, token) = (held.keys.clone(), Self::token_of(context, held));
            let ttl = held.within_hold(context.now, held.ttl);
            let epoch = ServerTime::default();
            let call = Call::Reserve { keys, token, ttl, epoch, block };
            servers.send(context, owner, call, Fallback::None);
            self.reservations.insert(id, Reservation::new(lease, block));
        }
    }

    pub(super) fn reservation(&mut self, id: TokenId) -> Option<&mut Reservation> {
        self.reservations.get_mut(&id)
    }

    /// Fences from `fence` on are reserved for more handoffs. `alone`: no other manager waits, so the budget begins anew.
    pub(super) fn reserved(
        &mut self,
        context: &mut Context,
        servers: &Servers,
        id: TokenId,
        (fence, alone): (u64, bool),
        finished: &Finished,
    ) {
        let Some(held) = self.get(id) else { return };
        let (lease, outdated) = (held.id, servers.data_of(&held.keys).is_outdated(fence));
        self.confirm(context, servers, id, finished.sent, finished.ttl);
        let Some(reservation) = self.reservations.get_mut(&id) else { return };
        if outdated || !alone {
            return reservation.end();
        }
        let budget = reservation.renew(lease, finished.sent, finished.ttl, fence);
        self.change(context, id, |held| held.budget = budget);
    }

    /// The server has confirmed a lease of `ttl`, requested at `sent`. Its end never moves back.
    pub(super) fn confirm(
        &mut self,
        context: &mut Context,
        servers: &Servers,
        id: TokenId,
        sent: Mono,
        ttl: Duration,
    ) {
        let Some(held) = self.by_token.get_mut(&id) else { return };
        let (data_number, until) = (servers.data_of(&held.keys).number, valid_until(sent, ttl));
        (held.data_number, held.confirmed) = (data_number, sent);
        if until > held.until {
            held.until = until;
            context.push(Effect::SetDeadline { lease: held.id, until: Some(held.held_until()) });
        }
        context.timers.set(Timer::Lease(id), held.plan().0);
    }

    /// Runs the next step of a lease. Returns the loss, if that is its end.
    pub(super) fn due(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        id: TokenId,
    ) -> Option<Loss> {
        let held = self.get(id)?;
        match held.plan().1 {
            Plan::HoldEnd => {
                Some(Loss { id, reason: LossReason::MaxHold, give_back: GiveBack::Always })
            }
            Plan::LeaseEnd => self.end(id),
            Plan::Renewal => {
                self.renewal_due(context, servers, id);
                None
            }
        }
    }

    /// The lease has ended by this process's clock, a little before it does by the server's.
    pub(super) fn end(&self, id: TokenId) -> Option<Loss> {
        let held = self.get(id)?;
        let reason = match held {
            // A pending renewal would have made it as long as its caller wanted.
            Lease { leave_to_expire: true, pending_renewal: None, .. } => LossReason::Ended,
            Lease { stalled: true, .. } => LossReason::Stalled,
            _ => LossReason::Expired,
        };
        let give_back = if held.leave_to_expire { GiveBack::Never } else { GiveBack::Always };
        Some(Loss { id, reason, give_back })
    }

    /// The server denies that the lease owns the lock.
    pub(super) fn denied(&self, id: TokenId) -> Option<Loss> {
        let held = self.get(id)?;
        let reason = held.notice.unwrap_or(LossReason::Expired);
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

    fn renewal_due(&mut self, context: &mut Context, servers: &mut Servers, id: TokenId) {
        if servers.is_open(Owner::Renewal(id)) {
            return self.renewal_overdue(context, servers, id);
        }
        let now = context.now;
        let Some(held) = self.by_token.get_mut(&id) else { return };
        let ttl = held.renewal_ttl(now);
        if !held.renew {
            // It ends without signs of life, too.
            return self.renew(context, servers, id, ttl);
        }
        let pinged = *self.pinged.get_or_insert_with(|| {
            context.push(Effect::Ping);
            now
        });
        // If this thread is late as well, the process or its machine stood still: what is silent since then says nothing.
        let silence = held.renewal.min(now).since(pinged);
        held.stalled = silence >= Duration::from_millis(held.stall_timeout_ms.into());
        if held.stalled {
            // JavaScript may turn again before the lease ends; then renewal goes on.
            let pause = held.ttl.max(held.left(now)) / 16;
            return self.change(context, id, |held| held.plan_renewal(now, now + pause));
        }
        self.renew(context, servers, id, ttl);
    }

    /// A renewal has no answer yet: another connection may have one.
    fn renewal_overdue(&mut self, context: &mut Context, servers: &mut Servers, id: TokenId) {
        if let Some(held) = self.get(id) {
            servers.press(context, &held.keys, held.pressure(context.now));
        }
        self.change(context, id, |held| held.renewal = Mono::NEVER);
    }

    /// The call that makes a lease last at least `ttl`. A claim of the whole lock also deletes the record of its grant,
    /// which is kept beside the lock.
    pub(super) fn extension(context: &Context, held: &Lease, ttl: Duration) -> (Call, Fallback) {
        let (keys, token) = (held.keys.clone(), Self::token_of(context, held));
        if held.mode.is_shared() {
            return (Call::ExtendShare { keys, token, ttl }, Fallback::ExtendShare);
        }
        if held.pending_renewal != Some(PendingRenewal::Claim) {
            return (Call::Extend { keys, token, ttl }, Fallback::None);
        }
        // While its slot moves, only the lock's own key is reliable. The record of the grant stays: if this owner lets
        // the lease run out, it counts as silent.
        (Call::Claim { keys, token, ttl }, Fallback::Extend)
    }

    /// Sends an extension to `ttl`, within its caller's hold, if the server is connected; if not, [`Self::resume`] does later.
    pub(super) fn renew(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        id: TokenId,
        ttl: Duration,
    ) {
        let owner = Owner::Renewal(id);
        let Some(held) = self.get(id).filter(|_| !servers.is_open(owner)) else { return };
        let (now, pressure) = (context.now, held.pressure(context.now));
        let (call, fallback) = Self::extension(context, held, held.within_hold(now, ttl));
        let is_sent = servers.send(context, owner, call, fallback);
        if !is_sent {
            servers.press(context, &held.keys, pressure);
        }
        self.change(context, id, |held| {
            held.renewal = if is_sent { now + pressure } else { Mono::NEVER };
            held.asked |= is_sent;
        });
    }

    /// The server is connected again, or shows another replication id: sends every renewal that could not be sent, and
    /// one for every lease that these data have not confirmed.
    pub(super) fn resume(&mut self, context: &mut Context, servers: &mut Servers, node: NodeId) {
        let (now, data_number) = (context.now, servers.get(node).data.number);
        let waits = |id: TokenId, held: &Lease| {
            let here = servers.node(&held.keys) == node;
            // A request that was lost with its connection waits for a retry, which is not soon enough.
            let unsent = held.renewal == Mono::NEVER || held.needs_server(now);
            let doubted = held.data_number != data_number || held.notice.is_some();
            here && !servers.is_open(Owner::Renewal(id)) && (unsent || doubted)
        };
        let waiting = self.by_token.iter().filter(|(id, held)| waits(**id, held));
        let mut waiting: Vec<_> = waiting.map(|(id, _)| *id).collect();
        waiting.sort_unstable();
        for id in waiting {
            self.renewal_due(context, servers, id);
        }
    }

    /// A renewal was answered, or never will be. Returns the loss, if the lease has ended.
    pub(super) fn renewed(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        id: TokenId,
        finished: &Finished,
    ) -> Option<Loss> {
        let held = self.by_token.get_mut(&id).filter(|_| finished.awaited)?;
        if held.until <= context.now {
            return self.end(id);
        }
        let now = context.now;
        let outdated = servers.data_of(&held.keys).is_outdated(held.fence);
        let claims = finished.script == Some(Script::Claim);
        match &finished.reply {
            // The replication id has changed since the grant, and the answer does not say that it is of this grant: that
            // of a share has its fence, and a claim may be of a later grant by message to the same token. Whoever took a
            // lone share has never waited, so no message grants it anything.
            Ok(Reply::Granted { fence: later })
                if outdated && *later != held.fence && !held.lone_share =>
            {
                Some(Loss { id, reason: LossReason::Expired, give_back: GiveBack::Always })
            }
            Ok(Reply::Owner(true)) if outdated && claims => {
                Some(Loss { id, reason: LossReason::Expired, give_back: GiveBack::Always })
            }
            Ok(Reply::Owner(true) | Reply::Granted { .. }) => {
                let (claimed, until) =
                    (held.pending_renewal == Some(PendingRenewal::Claim), held.until);
                held.pending_renewal = None;
                if held.asked {
                    held.notice = None;
                }
                self.confirm(context, servers, id, finished.sent, finished.ttl);
                self.change(context, id, |held| held.plan_next_renewal(now));
                // A claim is part of the grant, however short the hold.
                let renewed = !claimed && self.get(id).is_some_and(|held| held.until > until);
                context.stats.renewals += u64::from(renewed);
                self.ask_about_notice(context, servers, id);
                None
            }
            // It was sent ahead of the downgrade. Whether there is a share, only a request for the share tells.
            Ok(Reply::Owner(false))
                if held.mode.is_shared() && finished.script == Some(Script::Extend) =>
            {
                self.change(context, id, |held| held.plan_retry(now));
                None
            }
            // Only these answers are final; all others are retried until the lease ends.
            Ok(Reply::Owner(false)) => {
                // A server that missed a grant by message (a failover) may still have its queue entry. Or the grant was
                // taken away at once, and its token was enqueued again ahead of the message.
                held.uncertain |= held.pending_renewal == Some(PendingRenewal::Claim);
                self.denied(id)
            }
            Ok(_) => {
                debug_assert!(false, "not a reply of an extension");
                None
            }
            // Includes lost requests: the reconnection of an ASK target resumes no renewal.
            Err(_) => {
                self.change(context, id, |held| held.plan_retry(now));
                None
            }
        }
    }

    /// A message says that a lock was taken from its owner. It may be forged, so the server is asked.
    pub(super) fn hear_of_loss(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        id: TokenId,
        taken: &Taken,
    ) {
        let how = if taken.adopted { LossReason::Adopted } else { LossReason::Stolen };
        let Some(held) = self.by_token.get_mut(&id) else { return };
        if held.keys == taken.keys && Self::token_of(context, held) == taken.token {
            (held.notice, held.asked) = (Some(how), false);
            self.ask_about_notice(context, servers, id);
        }
    }

    /// Asks whether a message is true, unless a request is open. Messages must neither lengthen a lease, as of a
    /// process that hangs, nor delay a due renewal, however many come.
    fn ask_about_notice(&mut self, context: &mut Context, servers: &mut Servers, id: TokenId) {
        let Some(held) = self.get(id) else { return };
        if held.asked || held.notice.is_none() {
            return;
        }
        if held.renewal <= context.now {
            self.renewal_due(context, servers, id);
        } else {
            let left = held.left(context.now);
            self.renew(context, servers, id, left);
        }
    }
}

/// Gives tests access to the leases, to check or corrupt them.
#[cfg(all(test, feature = "core"))]
impl Leases {
    pub(super) fn all(&self) -> impl Iterator<Item = &Lease> {
        self.by_token.iter().map(|(_, held)| held)
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Lease> {
        self.by_token.values_mut()
    }
}
