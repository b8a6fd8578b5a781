//! What is scheduled, and for when.

use crate::protocol::{Mono, NodeId, OpId, RequestId, TokenId};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// A sender of requests to a server. Each has one open request at most.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Owner {
    Entry(TokenId),
    OneShot(OpId),
    Release(TokenId),
    Renewal(TokenId),
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Timer {
    AcquireDeadline(OpId),
    /// A ballot of a quorum times out.
    Ballot(RequestId),
    CloseDeadline,
    Discover,
    /// Unsubscribes from unused shard channels.
    ForgetChannels,
    /// The next scheduled step of a lease.
    Lease(TokenId),
    OneShotDeadline(OpId),
    OpenDeadline,
    Reconnect(NodeId),
    ReleaseDeadline(TokenId),
    Retry(Owner),
    /// A server of a quorum is asked to withdraw this attempt.
    Withdrawal(NodeId, u64),
}

/// The timers, each set for one moment at most.
#[derive(Debug, Default)]
pub(super) struct Timers {
    order: BTreeSet<(Mono, Timer)>,
    at: FxHashMap<Timer, Mono>,
}

impl Timers {
    /// Sets a timer, or moves it.
    pub(super) fn set(&mut self, timer: Timer, at: Mono) {
        if let Some(before) = self.at.insert(timer, at) {
            if before == at {
                return;
            }
            self.order.remove(&(before, timer));
        }
        self.order.insert((at, timer));
    }

    pub(super) fn clear(&mut self, timer: Timer) {
        if let Some(at) = self.at.remove(&timer) {
            self.order.remove(&(at, timer));
        }
    }

    pub(super) fn clear_all(&mut self) {
        self.order.clear();
        self.at.clear();
    }

    pub(super) fn at(&self, timer: Timer) -> Option<Mono> {
        self.at.get(&timer).copied()
    }

    pub(super) fn next(&self) -> Option<Mono> {
        self.order.first().map(|&(at, _)| at)
    }

    /// Takes the first timer that is due.
    pub(super) fn pop(&mut self, now: Mono) -> Option<Timer> {
        self.next().filter(|at| *at <= now)?;
        let (_, timer) = self.order.pop_first()?;
        self.at.remove(&timer);
        Some(timer)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether nothing is planned but to give channels up.
    #[cfg(all(test, feature = "core"))]
    pub(super) fn are_to_forget_channels(&self) -> bool {
        self.order.iter().all(|(_, timer)| *timer == Timer::ForgetChannels)
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn drop_retries(&mut self) {
        let is_retry = |timer: &Timer| matches!(timer, Timer::Retry(_));
        self.order.retain(|(_, timer)| !is_retry(timer));
        self.at.retain(|timer, _| !is_retry(timer));
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn drop_retries_of_entries(&mut self) {
        let is_retry = |timer: &Timer| matches!(timer, Timer::Retry(Owner::Entry(_)));
        self.order.retain(|(_, timer)| !is_retry(timer));
        self.at.retain(|timer, _| !is_retry(timer));
    }
}
