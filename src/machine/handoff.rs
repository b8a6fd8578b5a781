//! The limits of handoff: a caller that releases a lock passes it to the next caller of the same process, a whole lock
//! without the server ([`super::Machine::hand_off_or_release`]), a share by one request.
//!
//! A thousand tasks of one process that want one lock would otherwise cost the server a thousand releases, grants and
//! claims. Other processes wait meanwhile, so a budget limits it; then the first waiter at the server gets the lock.

use crate::protocol::{Mode, Mono};
use std::time::Duration;

/// The most fences that a grant reserves: one for its owner, and one for each handoff.
pub(super) const BLOCK_MAX: u8 = 16;
/// How often a share is handed off: at most as often as a whole lock, each handoff of which needs a reserved fence.
const SHARE_HANDOFFS_MAX: u8 = BLOCK_MAX - 1;

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
            Mode::Shared { limit: Some(_) } => SHARE_HANDOFFS_MAX,
            Mode::Shared { limit: None } => 0,
        };
        Self { left, until: now + ttl / 2 }
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
}
