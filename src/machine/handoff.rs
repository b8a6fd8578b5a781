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

/// How many handoffs are left when more are asked for: so many are done while the answer is on its way.
const ASK_AT: u8 = 7;

/// How often a process may hand off a lock, and until when.
#[derive(Clone, Copy, Debug)]
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
            Mode::Shared { limit: Some(_) } => HANDOFFS_MAX,
            Mode::Shared { limit: None } => 0,
        };
        Self { left, until: now + ttl / 2 }
    }

    /// After a request at `sent`, when no other manager waited, and `used` handoffs since. `most`: the fences and the
    /// numbers of holds that are there for more.
    pub(super) fn renewed(sent: Mono, ttl: Duration, used: u64, most: u64) -> Self {
        let left = u64::from(HANDOFFS_MAX).saturating_sub(used).min(most);
        Self { left: u8::try_from(left).unwrap_or(0), until: sent + ttl / 2 }
    }

    /// No handoffs.
    pub(super) fn none() -> Self {
        Self { left: 0, until: Mono::default() }
    }

    pub(super) fn is_spent(&self, now: Mono) -> bool {
        self.left == 0 || self.until <= now
    }

    pub(super) const fn next(self) -> Self {
        Self { left: self.left - 1, ..self }
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
}

impl Reservation {
    pub(super) const fn new(asked: LeaseId, block: u8) -> Self {
        Self { asked, block, first: None, late: false, over: false }
    }

    /// Whether a lease whose budget has this much left asks for more handoffs. If a caller had to wait for the last answer,
    /// it asks as soon as it can.
    pub(super) fn is_due(last: Option<&Self>, held: LeaseId, left: u8) -> bool {
        let is_over = last.is_some_and(|last| last.over);
        let is_late = last.is_some_and(|last| last.late);
        let is_low = left <= if is_late { HANDOFFS_MAX } else { ASK_AT };
        !is_over && is_low && held.followers() > u64::from(left)
    }

    /// A release waits for the answer.
    pub(super) const fn delay(&mut self) {
        self.late = true;
    }

    /// There are no more handoffs than those of the present budget.
    pub(super) const fn end(&mut self) {
        self.over = true;
    }

    /// The fences from `first` on are reserved for the lease whose hold is `held`, and no other manager waited at `sent`.
    pub(super) fn renew(
        &mut self,
        held: LeaseId,
        sent: Mono,
        ttl: Duration,
        first: u64,
    ) -> HandoffBudget {
        self.first = Some(first);
        let most = held.followers().min(self.block.into());
        HandoffBudget::renewed(sent, ttl, held.handoffs_since(self.asked), most)
    }

    /// The fence of the next hold, if it is the first of a new block.
    pub(super) const fn take_first(&mut self) -> Option<u64> {
        self.first.take()
    }
}
