//! Keeping a lock: renewal from the native thread, its limits, and loss.
//!
//! A lease is renewed at a third of its length, so two renewals may fail before it ends. A blocked
//! event loop cannot stop that; so that a wedged process does not hold for ever, renewal pauses
//! while JavaScript has not turned for `stall_timeout`.

use super::{Effect, Lease, LeaseId, Machine, Purpose, Timer};
use crate::clock::Mono;
use crate::error::Failure;
use crate::script::{Reply, valid_until};
use std::time::Duration;

/// How long and on what conditions a lock is kept beyond its first lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hold {
    /// Whether the lease is renewed until the lock is released.
    pub renew: bool,
    /// The longest time that the lock is kept, renewals included.
    pub max_hold: Option<Duration>,
    /// How long JavaScript may give no sign of life before renewal pauses.
    pub stall_timeout: Duration,
}

/// How a lock was lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LossReason {
    /// Its lease ended, or the server says that another owns it.
    Expired,
    /// It was kept for `max_hold`.
    MaxHold,
    /// Its lease ended because JavaScript gave no sign of life.
    Stalled,
}

/// Renewals that fall into the same slice of time leave as one pipeline.
const SLICE: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// When the next one is due.
    pub(super) due: Option<Mono>,
    /// Whether a request is under way.
    sending: bool,
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

impl Machine {
    /// A lock was granted: plans what ends or keeps it.
    pub(super) fn begin_lease(&mut self, now: Mono, lease: LeaseId, held: Lease, sent: Mono) {
        let Hold { renew, max_hold, .. } = held.hold;
        self.timers.insert((held.until, Timer::LeaseEnd(lease)));
        if let Some(max_hold) = max_hold {
            self.timers.insert((held.granted + max_hold, Timer::HoldEnd(lease)));
        }
        let ttl = held.ttl;
        self.leases.insert(lease, held);
        if renew {
            self.plan_renewal(lease, now, sent + ttl / 3);
        }
    }

    /// Ends a lease here: nothing is planned for it any more, and it is not valid any more.
    pub(super) fn remove_lease(&mut self, lease: LeaseId, out: &mut Vec<Effect>) -> Option<Lease> {
        let held = self.leases.remove(&lease)?;
        self.timers.remove(&(held.until, Timer::LeaseEnd(lease)));
        if let Some(at) = held.renewal.due {
            self.timers.remove(&(at, Timer::Renew(lease)));
        }
        if let Some(max_hold) = held.hold.max_hold {
            self.timers.remove(&(held.granted + max_hold, Timer::HoldEnd(lease)));
        }
        out.push(Effect::SetDeadline { lease, until: None });
        Some(held)
    }

    fn plan_renewal(&mut self, lease: LeaseId, now: Mono, at: Mono) {
        let Some(held) = self.leases.get_mut(&lease) else { return };
        let slice_us = u64::try_from(SLICE.min(held.ttl / 16).as_micros()).unwrap_or(1).max(1);
        let at = Mono::from_micros(at.as_micros() - at.as_micros() % slice_us).max(now);
        held.renewal.due = Some(at);
        self.timers.insert((at, Timer::Renew(lease)));
    }

    pub(super) fn renewal_due(&mut self, now: Mono, lease: LeaseId, out: &mut Vec<Effect>) {
        let Some(held) = self.leases.get_mut(&lease) else { return };
        held.renewal.due = None;
        self.pulse.ask(now, out);
        held.renewal.stalled = self.pulse.is_gone(now, held.hold.stall_timeout);
        if held.renewal.stalled {
            // JavaScript may come back before the lease ends; then renewal goes on.
            let pause = held.ttl / 16;
            return self.plan_renewal(lease, now, now + pause);
        }
        self.send_renewal(now, lease, false, out);
    }

    /// Asks to renew, if the server is connected; if not, [`Self::resume_renewals`] does later.
    fn send_renewal(
        &mut self,
        now: Mono,
        lease: LeaseId,
        with_source: bool,
        out: &mut Vec<Effect>,
    ) {
        let Some(held) = self.leases.get(&lease) else { return };
        let call = held.extension(held.ttl);
        let sending = self.send(now, Purpose::Renew(lease), call, with_source, out).is_some();
        if let Some(held) = self.leases.get_mut(&lease) {
            held.renewal.sending = sending;
        }
    }

    /// The server is connected again: asks for every renewal that could not be asked for.
    pub(super) fn resume_renewals(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let waits = |(lease, held): (&LeaseId, &Lease)| {
            let waits = held.hold.renew && held.renewal.due.is_none() && !held.renewal.sending;
            waits.then_some(*lease)
        };
        for lease in self.leases.iter().filter_map(waits).collect::<Vec<_>>() {
            self.send_renewal(now, lease, false, out);
        }
    }

    pub(super) fn renewal_reply(
        &mut self,
        now: Mono,
        lease: LeaseId,
        sent: Mono,
        reply: &Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        let Some(held) = self.leases.get_mut(&lease) else { return };
        held.renewal.sending = false;
        if held.until <= now {
            return self.lease_end(now, lease, out);
        }
        let ttl = held.ttl;
        match reply {
            Ok(Reply::Owner(true)) => {
                self.lengthen(lease, valid_until(sent, ttl), out);
                self.plan_renewal(lease, now, sent + ttl / 3);
            }
            // The only final answer; all else is tried again until the lease ends.
            Ok(Reply::Owner(false)) => self.lose(now, lease, out),
            Ok(_) => debug_assert!(false, "not a reply of extend"),
            Err(Failure::Lost(_)) => {}
            Err(Failure::NoScript) => self.send_renewal(now, lease, true, out),
            Err(Failure::Refused(_)) => self.plan_renewal(lease, now, now + ttl / 16),
        }
    }

    pub(super) fn lengthen(&mut self, lease: LeaseId, until: Mono, out: &mut Vec<Effect>) {
        let Some(held) = self.leases.get_mut(&lease) else { return };
        if until <= held.until {
            return;
        }
        self.timers.remove(&(held.until, Timer::LeaseEnd(lease)));
        held.until = until;
        self.timers.insert((until, Timer::LeaseEnd(lease)));
        out.push(Effect::SetDeadline { lease, until: Some(until) });
    }

    /// The server says that another owns the lock, or nobody.
    pub(super) fn lose(&mut self, now: Mono, lease: LeaseId, out: &mut Vec<Effect>) {
        if let Some(held) = self.remove_lease(lease, out) {
            out.push(Effect::Lose { lease, reason: LossReason::Expired });
            if held.uncertain {
                // Its acquire may still arrive, and take the lock for nobody.
                self.abandon(now, lease, held.keys, held.token, true, out);
            }
        }
        self.end_extends_of(lease, out);
    }

    /// The lease has ended by this process's clock, a little before it does by the server's.
    pub(super) fn lease_end(&mut self, now: Mono, lease: LeaseId, out: &mut Vec<Effect>) {
        let stalled = self.leases.get(&lease).is_some_and(|held| held.renewal.stalled);
        let reason = if stalled { LossReason::Stalled } else { LossReason::Expired };
        self.lose_and_give_back(now, lease, reason, out);
    }

    /// The lock was kept for as long as it may be.
    pub(super) fn hold_end(&mut self, now: Mono, lease: LeaseId, out: &mut Vec<Effect>) {
        self.lose_and_give_back(now, lease, LossReason::MaxHold, out);
    }

    fn lose_and_give_back(
        &mut self,
        now: Mono,
        lease: LeaseId,
        reason: LossReason,
        out: &mut Vec<Effect>,
    ) {
        out.push(Effect::Lose { lease, reason });
        self.end_extends_of(lease, out);
        self.give_up_lease(now, lease, out);
    }

    /// Gives a lease back that nobody uses any more. Also right after its end: an extension that
    /// arrives late would otherwise leave the lock held by nobody.
    pub(super) fn give_up_lease(&mut self, now: Mono, lease: LeaseId, out: &mut Vec<Effect>) {
        let Some(held) = self.remove_lease(lease, out) else { return };
        self.abandon(now, lease, held.keys, held.token, held.uncertain, out);
    }
}
