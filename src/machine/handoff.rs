//! The limits of handoff: a caller that releases a lock passes it to the next caller of the same process, a whole lock
//! without the server ([`super::Machine::hand_off_or_release`]), a share by one request.
//!
//! A thousand tasks of one process that want one lock would otherwise cost the server a thousand releases, grants and
//! claims. Other processes wait meanwhile, so a budget limits it; then the first waiter at the server gets the lock.
//!
//! Before the budget of a whole lock is spent, its lease asks the server who waits. As long as no other process waits,
//! the budget begins anew: so a caller that comes is overtaken by no more callers than one budget allows.

use crate::protocol::{LeaseId, Mode, Mono};
use std::time::Duration;

/// The most fences that a grant reserves: one for its owner, and one for each handoff.
pub(super) const BLOCK_MAX: u8 = 16;
/// How often a lock is handed off while another manager may wait. Each handoff of a whole lock needs a reserved fence.
const HANDOFFS_MAX: u8 = BLOCK_MAX - 1;

/// How many handoffs are left when more are asked for, or half of the last block if that is more: so many are done while
/// the answer is on its way.
const ASK_AT: u8 = 7;

/// The fences that a lock with `linger` reserves once a caller has had to wait for more: the network takes longer than all
/// handoffs of a small block.
const LINGERING_BLOCK: u8 = u8::MAX;

/// How often a process may hand off a lock, and until when. It is packed, so that the lease around it can use the bytes that
/// its padding would take.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed)]
pub(super) struct HandoffBudget {
    /// The handoffs that are left, each with a reserved fence.
    pub(super) left: u8,
    until: Mono,
}

impl HandoffBudget {
    /// For a grant that has reserved `block` fences for a lease of `ttl`. A share without a limit is never handed off.
    pub(super) fn new(now: Mono, ttl: Duration, mode: Mode, block: u8) -> Self {
        let left = match mode {
            Mode::Exclusive => block - 1,
            Mode::Shared { limit: Some(_), .. } => HANDOFFS_MAX,
            Mode::Shared { limit: None, .. } => 0,
        };
        Self { left, until: now + ttl / 2 }
    }

    /// After a request at `sent`, when no other manager waited: `left` handoffs.
    fn renewed(sent: Mono, ttl: Duration, left: u64) -> Self {
        Self { left: u8::try_from(left).unwrap_or(0), until: sent + ttl / 2 }
    }

    /// No handoffs.
    pub(super) fn none() -> Self {
        Self { left: 0, until: Mono::default() }
    }

    pub(super) fn is_spent(&self, now: Mono) -> bool {
        self.left == 0 || self.until() <= now
    }

    /// After one more handoff. `counted`: each one takes another manager's turn now.
    pub(super) fn next(self, counted: bool) -> Self {
        let left = if counted { self.left.min(HANDOFFS_MAX) } else { self.left };
        Self { left: left - 1, ..self }
    }

    pub(super) const fn until(self) -> Mono {
        self.until
    }

    /// As before the last handoff, which does not count.
    pub(super) const fn restored(self) -> Self {
        Self { left: self.left + 1, ..self }
    }
}

/// The last request of a lease for more handoffs.
#[derive(Debug)]
pub(super) struct Reservation {
    /// The hold at that time.
    asked: LeaseId,
    /// The number of fences asked for.
    block: u8,
    /// The first of these fences, once they are reserved, until the next handoff.
    first: Option<u64>,
    /// A release had to wait for the answer.
    late: bool,
    /// No more is asked for: another manager waits for the lock, or the server does not do it.
    over: bool,
    /// Until then handoffs are not counted, since waiters elsewhere would wait as long for an idle lock.
    uncounted_until: Mono,
}

impl Reservation {
    pub(super) const fn new(asked: LeaseId, block: u8) -> Self {
        let uncounted_until = Mono::from_micros(0);
        Self { asked, block, first: None, late: false, over: false, uncounted_until }
    }

    /// Whether a lease whose budget has this much left asks for more handoffs. If a caller had to wait for the last answer,
    /// it asks as soon as it can.
    pub(super) fn is_due(last: Option<&Self>, held: LeaseId, left: u8) -> bool {
        let is_over = last.is_some_and(|last| last.over);
        let is_late = last.is_some_and(|last| last.late);
        let half = last.map_or(0, |last| (last.block - 1) / 2);
        let is_low = left <= half.max(if is_late { HANDOFFS_MAX } else { ASK_AT });
        !is_over && is_low && held.followers() > u64::from(left)
    }

    /// How many fences the next request of a lock with `linger` asks for.
    pub(super) fn idle_block(last: Option<&Self>) -> u8 {
        let is_short = last.is_some_and(|last| last.late || last.block > BLOCK_MAX);
        if is_short { LINGERING_BLOCK } else { BLOCK_MAX }
    }

    /// A release waits for the answer.
    pub(super) const fn delay(&mut self) {
        self.late = true;
    }

    /// There are no more handoffs than those of the present budget.
    pub(super) const fn end(&mut self) {
        self.over = true;
    }

    /// Whether no more than the present budget is to be had.
    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    /// The fences from `first` on are reserved for the lease whose hold is `held`, and no other manager waited at `sent`.
    /// `linger`: for how long the lock is kept when it has no caller.
    pub(super) fn renew(
        &mut self,
        held: LeaseId,
        sent: Mono,
        ttl: Duration,
        first: u64,
        linger: Option<Duration>,
    ) -> HandoffBudget {
        self.first = Some(first);
        let most = held.followers().min(self.block.into());
        let counted = u64::from(HANDOFFS_MAX).saturating_sub(held.handoffs_since(self.asked));
        self.uncounted_until = linger.map_or_else(Mono::default, |linger| sent + linger);
        HandoffBudget::renewed(sent, ttl, if linger.is_some() { most } else { counted.min(most) })
    }

    /// Whether a handoff at `now` is one of the few that may take another manager's turn.
    pub(super) fn counts(&self, now: Mono) -> bool {
        self.uncounted_until <= now
    }

    /// The fence of the next hold, if it is the first of a new block.
    pub(super) const fn take_first(&mut self) -> Option<u64> {
        self.first.take()
    }
}
