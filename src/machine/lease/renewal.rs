//! A lease from its begin to its end: its renewals, and what each answer means for it. A request for more handoffs
//! extends it, too.

use super::{GiveBack, Lease, Leases, Loss, Origin, PendingRenewal, Plan, RenewedBy};
use crate::machine::Machine;
use crate::machine::handoff::Reservation;
use crate::machine::interface::{Effect, HoldTerms, LossReason, Outcome};
use crate::machine::request::{CallError, Fallback, Finished};
use crate::machine::timers::{Owner, Timer};
use crate::machine::tracked::Tracking;
use crate::protocol::{
    Call, LeaseId, LockKeys, Mono, NodeId, Reply, Script, ServerTime, Taken, Token, TokenId,
    WRONG_TYPE, valid_until,
};
use std::time::Duration;

impl Machine {
    /// Begins a granted lease, and schedules its renewal and its end.
    pub(in crate::machine) fn begin_lease(&mut self, mut held: Lease, terms: HoldTerms) {
        let id = held.id.token_id();
        let data = self.servers.data_of(&held.keys);
        held.data_number = data.number;
        if data.tells && !held.mode.is_shared() {
            held.tracking = Tracking::of_new(self.leases.tracked.has_room());
        }
        held.begin_hold(self.context.now, terms);
        held.plan_next_renewal(self.context.now);
        self.context.stats.acquired += u64::from(held.origin != Origin::Foreign);
        self.context.push(Effect::SetDeadline { lease: held.id, until: Some(held.held_until()) });
        self.context.timers.set(Timer::Lease(id), held.plan().0);
        self.leases.by_token.insert(id, held);
        self.leases.idle.set(id, terms.linger);
    }

    /// Ends a lease here: cancels its schedule and its validity.
    pub(in crate::machine) fn remove_lease(&mut self, id: TokenId) -> Option<Lease> {
        let held = self.leases.by_token.remove(&id);
        if let Some(held) = &held {
            if held.tracking.is_on() {
                self.leases.tracked.remove(&held.keys);
            }
            self.context.timers.clear(Timer::Lease(id));
            self.servers.forget(&mut self.context, Owner::Renewal(id));
            if self.leases.reservations.remove(&id).is_some() {
                self.servers.forget(&mut self.context, Owner::Reservation(id));
            }
            self.leases.idle.end(&held.keys, id);
            self.leases.idle.forget(id);
            self.context.push(Effect::SetDeadline { lease: held.id, until: None });
        }
        held
    }

    /// Runs the next step of a lease. Returns the loss, if that is its end.
    pub(in crate::machine) fn lease_due(&mut self, id: TokenId) -> Option<Loss> {
        let held = self.leases.get(id)?;
        match held.plan().1 {
            Plan::KeepEnd if self.leases.is_idle(id) => {
                self.release_at_server(id, None, None);
                None
            }
            Plan::KeepEnd => {
                Some(Loss { id, reason: LossReason::MaxHold, give_back: GiveBack::Always })
            }
            Plan::LeaseEnd => self.leases.end(id),
            Plan::Renewal => {
                if !self.tracking_due(id) {
                    self.renewal_due(id);
                }
                None
            }
        }
    }

    fn renewal_due(&mut self, id: TokenId) {
        if self.servers.is_open(Owner::Renewal(id)) {
            return self.renewal_overdue(id);
        }
        let now = self.context.now;
        let Some(held) = self.leases.by_token.get_mut(&id) else { return };
        let ttl = held.renewal_ttl(now);
        if !held.renew {
            // It ends without signs of life, too.
            return self.renew(id, ttl);
        }
        let pinged = *self.leases.pinged.get_or_insert_with(|| {
            self.context.push(Effect::Ping);
            now
        });
        // If this thread is late as well, the process or its machine stood still: what is silent since then says nothing.
        let silence = held.renewal.min(now).since(pinged);
        held.stalled = silence >= Duration::from_millis(held.stall_timeout_ms.into());
        if held.stalled {
            // JavaScript may turn again before the lease ends; then renewal goes on.
            let pause = held.ttl().max(held.left(now)) / 16;
            return self
                .leases
                .change(&mut self.context, id, |held| held.plan_renewal(now, now + pause));
        }
        self.renew(id, ttl);
    }

    /// A renewal has no answer yet: another connection may have one.
    fn renewal_overdue(&mut self, id: TokenId) {
        if let Some(held) = self.leases.get(id) {
            let within = held.pressure(self.context.now);
            self.servers.press(&mut self.context, &held.keys, within);
        }
        self.leases.change(&mut self.context, id, |held| held.renewal = Mono::NEVER);
    }

    /// Sends an extension to `ttl`, within its caller's hold, if the server is connected; if not, [`Self::resume_leases`]
    /// does later.
    pub(in crate::machine) fn renew(&mut self, id: TokenId, ttl: Duration) {
        let owner = Owner::Renewal(id);
        let Some(held) = self.leases.get(id).filter(|_| !self.servers.is_open(owner)) else {
            return;
        };
        let (now, pressure) = (self.context.now, held.pressure(self.context.now));
        // The end of an idle lock is none of its lease, which a next caller goes on with.
        let is_idle = self.leases.is_idle(id);
        let ttl = if is_idle { ttl } else { held.within_hold(now, ttl) };
        let call = if self.may_renew_plainly(held, ttl) {
            let (keys, token) = (held.keys.clone(), Leases::token_of(&self.context, held));
            Call::Renew { keys, token, ttl }
        } else {
            Leases::extension(&self.context, held, ttl)
        };
        let fallback = Fallback::of_extension(&call);
        let is_sent = self.servers.send(&mut self.context, owner, call, fallback);
        if !is_sent {
            self.servers.press(&mut self.context, &held.keys, pressure);
        }
        self.leases.change(&mut self.context, id, |held| {
            held.renewal = if is_sent { now + pressure } else { Mono::NEVER };
            held.asked |= is_sent;
        });
    }

    /// Whether a lease is renewed for `ttl` by the plain command. Another request under way may lengthen it.
    fn may_renew_plainly(&self, held: &Lease, ttl: Duration) -> bool {
        held.renews_plainly(self.context.now, ttl)
            && !self.context.config.quorum
            && !self.servers.data_of(&held.keys).refuses_plain_renewals
            && !self.servers.is_open(Owner::Reservation(held.id.token_id()))
    }

    /// The server is connected again, or shows another replication id: sends every renewal that could not be sent, and
    /// one for every lease that these data have not confirmed.
    pub(in crate::machine) fn resume_leases(&mut self, node: NodeId) {
        let (now, data_number) = (self.context.now, self.servers.get(node).data.number);
        let waits = |id: TokenId, held: &Lease| {
            let here = self.servers.node(&held.keys) == node;
            // A request that was lost with its connection waits for a retry, which is not soon enough.
            let unsent = held.renewal == Mono::NEVER || held.needs_server(now);
            let doubted = held.data_number != data_number || held.notice.is_some();
            here && (unsent || doubted) && !self.servers.is_under_way(Owner::Renewal(id))
        };
        let waiting = self.leases.by_token.iter().filter(|(id, held)| waits(**id, held));
        let mut waiting: Vec<_> = waiting.map(|(id, _)| *id).collect();
        waiting.sort_unstable();
        for id in waiting {
            self.renewal_due(id);
        }
    }

    /// A renewal was answered, or never will be. Returns the loss, if the lease has ended.
    pub(in crate::machine) fn renewed(&mut self, id: TokenId, finished: &Finished) -> Option<Loss> {
        let held = self.leases.by_token.get_mut(&id).filter(|_| finished.awaited)?;
        if held.until <= self.context.now {
            return self.leases.end(id);
        }
        let outdated = self.servers.data_of(&held.keys).is_outdated(held.fence);
        match &finished.reply {
            Ok(reply) if outdated && !held.is_of_this_grant(finished.script, reply) => {
                Some(Loss { id, reason: LossReason::Expired, give_back: GiveBack::Always })
            }
            Ok(Reply::Owner(true) | Reply::Granted { .. }) => {
                self.renewal_confirmed(id, finished);
                None
            }
            _ if finished.renews => self.renewed_in_vain(id, finished),
            // It was sent ahead of the downgrade. Whether there is a share, only a request for the share tells.
            Ok(Reply::Owner(false))
                if held.mode.is_shared()
                    && matches!(finished.script, Some(Script::Claim | Script::Extend)) =>
            {
                self.renew_again(id)
            }
            // Only this answer, and a key of another type, are final; all others are retried until the lease ends.
            Ok(Reply::Owner(false)) => self.leases.denied(id),
            Ok(_) => {
                debug_assert!(false, "not a reply of an extension");
                None
            }
            Err(CallError::Refused(refusal))
                if refusal.code == WRONG_TYPE
                    && matches!(finished.script, Some(Script::Extend | Script::ExtendShare)) =>
            {
                // Other code wrote over the key, where no lock and no share can be any more.
                self.leases.denied(id)
            }
            // Includes lost requests: the reconnection of an ASK target resumes no renewal.
            Err(_) => self.retry_renewal(id),
        }
    }

    /// The plain command has not renewed a lease, or that is unknown. Only the script decides.
    fn renewed_in_vain(&mut self, id: TokenId, finished: &Finished) -> Option<Loss> {
        let held = self.leases.by_token.get_mut(&id)?;
        match &finished.reply {
            Err(CallError::Unsent) => return self.retry_renewal(id),
            Err(CallError::Refused(refusal)) if refusal.is_transient() => {
                return self.retry_renewal(id);
            }
            Err(CallError::Refused(refusal)) => {
                // The command, or the right to it, is missing for every lock.
                let lasts = ["NOPERM", "ERR"].contains(&&*refusal.code);
                self.servers.at(finished.node).data.refuses_plain_renewals |= lasts;
            }
            Err(_) => {
                held.renewed_by = RenewedBy::ScriptAfterLoss;
                return self.retry_renewal(id);
            }
            Ok(_) => {}
        }
        held.renewed_by = RenewedBy::Script;
        self.renew_again(id)
    }

    /// Asks at once by another request, after an answer that has decided nothing.
    fn renew_again(&mut self, id: TokenId) -> Option<Loss> {
        let ttl = self.leases.get(id)?.renewal_ttl(self.context.now);
        self.renew(id, ttl);
        None
    }

    fn retry_renewal(&mut self, id: TokenId) -> Option<Loss> {
        let now = self.context.now;
        self.leases.change(&mut self.context, id, |held| held.plan_retry(now));
        None
    }

    /// Plans the next renewal of a lease that the server has just confirmed.
    fn plan_next_renewal(&mut self, id: TokenId) {
        let round_trip = self.round_trip_of(id).unwrap_or_default();
        self.leases.plan_next_renewal(&mut self.context, id, round_trip);
    }

    fn renewal_confirmed(&mut self, id: TokenId, finished: &Finished) {
        let Some(held) = self.leases.by_token.get_mut(&id) else { return };
        let (pending, until) = (held.pending_renewal.take(), held.until);
        if held.asked {
            held.notice = None;
        }
        self.confirm_lease(id, finished.sent, finished.ttl);
        self.plan_next_renewal(id);
        // A claim is part of the grant, however short the hold.
        let renewed = pending != Some(PendingRenewal::Claim)
            && self.leases.get(id).is_some_and(|held| held.until > until);
        self.context.stats.renewals += u64::from(renewed);
        self.ask_about_notice(id);
    }

    /// The server has confirmed a lease of `ttl`, requested at `sent`. Its end never moves back.
    pub(in crate::machine) fn confirm_lease(&mut self, id: TokenId, sent: Mono, ttl: Duration) {
        let Some(held) = self.leases.by_token.get_mut(&id) else { return };
        let counts = held.renewed_by != RenewedBy::ScriptAfterLoss;
        let ttl = if counts { ttl } else { ttl.min(held.ttl()) };
        let (data_number, until) =
            (self.servers.data_of(&held.keys).number, valid_until(sent, ttl));
        (held.data_number, held.confirmed) = (data_number, sent);
        if until > held.until {
            held.until = until;
            self.context
                .push(Effect::SetDeadline { lease: held.id, until: Some(held.held_until()) });
        }
        self.context.timers.set(Timer::Lease(id), held.plan().0);
        self.track(id);
    }

    /// A message says that a lock was taken from its owner. It may be forged, so the server is asked.
    pub(in crate::machine) fn hear_of_loss(&mut self, taken: &Taken) {
        let Some(id) = self.context.number_of(&taken.token) else { return };
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.keys == taken.keys
            && entry.token == taken.token
            && entry.confirming.take().is_some()
        {
            // Replicas would confirm a lost grant: the same token asks again. If the message is forged it owns the lock
            // still, so its end must release it.
            entry.uncertain = true;
            return self.send_entry(id);
        }
        let how = if taken.adopted { LossReason::Adopted } else { LossReason::Stolen };
        let Some(held) = self.leases.get(id) else { return };
        if held.keys == taken.keys && Leases::token_of(&self.context, held) == taken.token {
            self.doubt(id, how);
        }
    }

    /// A hold under a value that callers have chosen was released: others here may have the lock under the same value.
    pub(in crate::machine) fn doubt_holds_under(&mut self, keys: &LockKeys, token: &Token) {
        let is_under =
            |held: &Lease| held.keys == *keys && Leases::token_of(&self.context, held) == *token;
        let under = self.leases.by_token.iter().filter(|(_, held)| is_under(held));
        let mut ids: Vec<_> = under.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        for id in ids {
            self.doubt(id, LossReason::Expired);
        }
    }

    /// A lease may have ended, for this reason.
    fn doubt(&mut self, id: TokenId, reason: LossReason) {
        if let Some(held) = self.leases.by_token.get_mut(&id) {
            (held.notice, held.asked) = (Some(reason), false);
            self.ask_about_notice(id);
        }
    }

    /// Asks whether a message is true, unless a request is open. Messages must neither lengthen a lease, as of a
    /// process that hangs, nor delay a due renewal, however many come.
    pub(in crate::machine) fn ask_about_notice(&mut self, id: TokenId) {
        let Some(held) = self.leases.get(id) else { return };
        if held.asked || held.notice.is_none() {
            return;
        }
        if held.renewal <= self.context.now {
            self.renewal_due(id);
        } else {
            let left = held.left(self.context.now);
            self.renew(id, left);
        }
    }

    /// Asks for more handoffs of a whole lock, for which so many callers here wait, before its budget is spent.
    pub(in crate::machine) fn reserve_handoffs(&mut self, id: TokenId) {
        let owner = Owner::Reservation(id);
        let Some(held) = self.leases.get(id).filter(|_| !self.servers.is_open(owner)) else {
            return;
        };
        let data = self.servers.data_of(&held.keys);
        // A quorum has no queue, and neither has a server whose scripts cannot read its clock.
        if self.context.config.quorum || data.denies_clock {
            return;
        }
        let (lease, left) = (held.id, held.budget.left);
        if !Reservation::is_due(self.leases.reservations.get(&id), lease, left) {
            return;
        }
        let wanted = match self.leases.idle.linger_of(id) {
            Some(_) => Reservation::idle_block(self.leases.reservations.get(&id)),
            None => self.queues.block(&held.keys),
        };
        let block = self.block(&held.keys, wanted);
        if block > left {
            let (keys, token) = (held.keys.clone(), Leases::token_of(&self.context, held));
            let ttl = held.within_hold(self.context.now, held.ttl());
            let epoch = ServerTime::default();
            let call = Call::Reserve { keys, token, ttl, epoch, block };
            self.servers.send(&mut self.context, owner, call, Fallback::None);
            self.leases.reservations.insert(id, Reservation::new(lease, block));
        }
    }

    /// Fences from `fence` on are reserved for more handoffs. `alone`: no other manager waits, so the budget begins anew.
    pub(in crate::machine) fn handoffs_reserved(
        &mut self,
        id: TokenId,
        (fence, alone): (u64, bool),
        finished: &Finished,
    ) {
        let Some(held) = self.leases.get(id) else { return };
        let (lease, outdated) = (held.id, self.servers.data_of(&held.keys).is_outdated(fence));
        // It has written the key. To be told in the midst of many short holds is not worth a command for each: a longer one
        // is tracked after a second.
        self.leases.end_tracking(id, Tracking::Young);
        self.confirm_lease(id, finished.sent, finished.ttl);
        if !self.servers.is_open(Owner::Renewal(id)) {
            self.plan_next_renewal(id);
        }
        let Some(reservation) = self.leases.reservations.get_mut(&id) else { return };
        if outdated || !alone {
            return reservation.end();
        }
        let linger = self.leases.idle.linger_of(id);
        let budget = reservation.renew(lease, finished.sent, finished.ttl, fence, linger);
        self.leases.change(&mut self.context, id, |held| held.budget = budget);
    }

    /// Ends a lease without its caller's release.
    pub(in crate::machine) fn lose_if(&mut self, loss: Option<Loss>) {
        let Some(Loss { id, reason, give_back }) = loss else { return };
        let is_idle = self.leases.is_idle(id);
        let Some(held) = self.remove_lease(id) else { return };
        let context = &mut self.context;
        let releasing = self.undecided.remove(&id);
        if let Some((op, _)) = releasing {
            context.complete(op, Outcome::Lost);
        }
        // An idle lock is no caller's.
        if !is_idle {
            let counts = reason != LossReason::Ended && held.origin != Origin::Foreign;
            context.stats.lost += u64::from(counts);
            context.push(Effect::Lose { lease: held.id, reason });
        }
        self.end_extensions_of(held.id);
        let outdated = self.servers.data_of(&held.keys).is_outdated(held.fence);
        // A server that missed a grant by message (a failover) may still have its queue entry. Or the grant was taken away at
        // once, and its token was enqueued again ahead of the message.
        let unclaimed = held.pending_renewal == Some(PendingRenewal::Claim);
        let uncertain = held.uncertain || outdated || unclaimed;
        let (given_back, twice) = match give_back {
            GiveBack::Always => (true, held.uncertain),
            GiveBack::IfUncertain => (uncertain, true),
            GiveBack::Never => (false, false),
        };
        // The server ends what is left to expire, unless its caller has released it; until then another process with its
        // token may extend it. So also if its acquire may still arrive: that takes the lock for one lease at most.
        let is_left = held.leave_to_expire && releasing.is_none();
        if is_left && matches!(give_back, GiveBack::Always) {
            self.remember_left(id, held.ttl());
        }
        // A value that others may have is another's once this lease is over, or has been all the time.
        let is_left = is_left || matches!(held.origin, Origin::ChosenToken | Origin::Foreign);
        if given_back && !is_left {
            let token = Leases::token_of(&self.context, &held);
            self.give_back(held.keys, token, twice);
        }
    }

    /// A lock has a last lease of `ttl`, and is not this manager's any more.
    pub(in crate::machine) fn leave(&mut self, lease: LeaseId, ttl: Duration) {
        let Some(held) = self.leases.hold_of(lease) else { return };
        let id = held.id.token_id();
        self.leases.change(&mut self.context, id, |held| held.leave_to_expire = true);
        let give_back = GiveBack::IfUncertain;
        self.lose_if(Some(Loss { id, reason: LossReason::Ended, give_back }));
        self.remember_left(id, ttl);
    }

    /// A message about the grant of a lock that is left to expire may still be on its way. It gives nothing back.
    fn remember_left(&mut self, id: TokenId, ttl: Duration) {
        self.left_to_expire.insert(id);
        self.context.timers.set(Timer::Lease(id), self.context.now + ttl);
    }
}
