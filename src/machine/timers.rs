//! What is scheduled, and for when.

use crate::protocol::{Mono, NodeId, OpId, RequestId, TokenId};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A sender of requests to a server. Each has one open request at most.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Owner {
    Entry(TokenId),
    /// An entry that asks right behind a release, beside what it has asked before.
    EntryBehind(TokenId),
    OneShot(OpId),
    Release(TokenId),
    Renewal(TokenId),
    /// A lease that asks for more handoffs, beside its renewals.
    Reservation(TokenId),
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
    RetryEntry(TokenId),
    RetryOneShot(OpId),
    RetryRelease(TokenId),
    RetryRenewal(TokenId),
    /// A server of a quorum is asked to withdraw this attempt.
    Withdrawal(NodeId, u64),
}

// There may be very many: a variant that held an `Owner` would make each half as large again.
const _: () = assert!(size_of::<Timer>() <= 16);

impl Timer {
    /// When an owner asks again.
    pub(super) const fn retry(owner: Owner) -> Self {
        match owner {
            Owner::Entry(id) | Owner::EntryBehind(id) => Self::RetryEntry(id),
            Owner::OneShot(op) => Self::RetryOneShot(op),
            Owner::Release(id) => Self::RetryRelease(id),
            Owner::Renewal(id) | Owner::Reservation(id) => Self::RetryRenewal(id),
        }
    }
}

/// The timers, each set for one moment at most.
///
/// Most are cleared long before they are due, so clearing only forgets: the orders keep what is outdated until the first
/// timer is looked for, or until most of it is outdated.
#[derive(Debug, Default)]
pub(super) struct Timers {
    at: FxHashMap<Timer, Mono>,
    /// Timers of one kind that were set for ever later moments, as those with a constant delay are.
    runs: [VecDeque<(Mono, Timer)>; RUNS],
    /// The other timers.
    rest: BinaryHeap<Reverse<(Mono, Timer)>>,
}

/// So many outdated timers cost nothing worth a tidying.
const OUTDATED_MIN: usize = 1_024;
/// The kinds that every lock sets: its acquire's deadline, its lease's next step, and its release's deadline.
const RUNS: usize = 3;

/// The run of a timer, if its kind has one.
const fn run_of(timer: Timer) -> Option<usize> {
    match timer {
        Timer::AcquireDeadline(_) => Some(0),
        Timer::Lease(_) => Some(1),
        Timer::ReleaseDeadline(_) => Some(2),
        _ => None,
    }
}

impl Timers {
    /// Sets a timer, or moves it.
    pub(super) fn set(&mut self, timer: Timer, at: Mono) {
        let before = self.at.insert(timer, at);
        if before == Some(at) {
            return;
        }
        let run = run_of(timer).map(|run| &mut self.runs[run]);
        match run.filter(|run| run.back().is_none_or(|last| *last <= (at, timer))) {
            Some(run) => run.push_back((at, timer)),
            None => self.rest.push(Reverse((at, timer))),
        }
        if before.is_some() {
            self.tidy();
        }
    }

    pub(super) fn clear(&mut self, timer: Timer) {
        if self.at.remove(&timer).is_some() {
            self.tidy();
        }
    }

    pub(super) fn clear_all(&mut self) {
        *self = Self::default();
    }

    pub(super) fn at(&self, timer: Timer) -> Option<Mono> {
        self.at.get(&timer).copied()
    }

    pub(super) fn next(&mut self) -> Option<Mono> {
        self.first().map(|(at, _)| at)
    }

    /// Takes the first timer that is due.
    pub(super) fn pop(&mut self, now: Mono) -> Option<Timer> {
        let (_, timer) = self.first().filter(|(at, _)| *at <= now)?;
        self.at.remove(&timer);
        Some(timer)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// The first timer. Drops what is outdated before it.
    fn first(&mut self) -> Option<(Mono, Timer)> {
        let at = &self.at;
        let is_outdated = |(moment, timer): &(Mono, Timer)| at.get(timer) != Some(moment);
        for run in &mut self.runs {
            while run.front().is_some_and(is_outdated) {
                run.pop_front();
            }
        }
        while self.rest.peek().is_some_and(|Reverse(first)| is_outdated(first)) {
            self.rest.pop();
        }
        let runs = self.runs.iter().filter_map(|run| run.front().copied());
        runs.chain(self.rest.peek().map(|Reverse(first)| *first)).min()
    }

    /// Drops what is outdated, if that is most.
    fn tidy(&mut self) {
        if self.ordered() > 2 * self.at.len() + OUTDATED_MIN {
            self.retain_ordered(|timer, moment, at| at.get(timer) == Some(moment));
        }
    }

    /// How many timers are in the orders, outdated ones included.
    fn ordered(&self) -> usize {
        self.runs.iter().map(VecDeque::len).sum::<usize>() + self.rest.len()
    }

    fn retain_ordered(&mut self, is_kept: impl Fn(&Timer, &Mono, &FxHashMap<Timer, Mono>) -> bool) {
        let at = &self.at;
        for run in &mut self.runs {
            run.retain(|(moment, timer)| is_kept(timer, moment, at));
        }
        self.rest.retain(|Reverse((moment, timer))| is_kept(timer, moment, at));
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn len(&self) -> usize {
        self.at.len()
    }

    /// Whether nothing is planned but to give channels up.
    #[cfg(all(test, feature = "core"))]
    pub(super) fn are_to_forget_channels(&self) -> bool {
        self.at.keys().all(|timer| *timer == Timer::ForgetChannels)
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn drop_retries(&mut self) {
        self.keep(|timer| {
            use Timer::{RetryEntry, RetryOneShot, RetryRelease, RetryRenewal};
            !matches!(timer, RetryEntry(_) | RetryOneShot(_) | RetryRelease(_) | RetryRenewal(_))
        });
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn drop_retries_of_entries(&mut self) {
        self.keep(|timer| !matches!(timer, Timer::RetryEntry(_)));
    }

    #[cfg(all(test, feature = "core"))]
    fn keep(&mut self, mut is_kept: impl FnMut(&Timer) -> bool) {
        self.at.retain(|timer, _| is_kept(timer));
        self.retain_ordered(|timer, moment, at| at.get(timer) == Some(moment));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn mono(micros: u64) -> Mono {
        Mono::from_micros(micros)
    }

    #[test]
    fn a_timer_that_was_cleared_and_set_again_is_due_once() {
        let mut timers = Timers::default();
        timers.set(Timer::CloseDeadline, mono(5));
        timers.clear(Timer::CloseDeadline);
        timers.set(Timer::CloseDeadline, mono(5));
        assert_eq!(timers.pop(mono(5)), Some(Timer::CloseDeadline));
        assert_eq!((timers.pop(mono(5)), timers.next()), (None, None));
    }

    #[test]
    fn what_was_cleared_does_not_accumulate() {
        let mut timers = Timers::default();
        timers.set(Timer::CloseDeadline, mono(1));
        timers.set(Timer::Lease(TokenId(0)), mono(2));
        for n in 1..100_000 {
            for timer in [Timer::Lease(TokenId(n)), Timer::RetryEntry(TokenId(n))] {
                timers.set(timer, mono(n + 2));
                timers.clear(timer);
            }
        }
        assert!(timers.ordered() <= OUTDATED_MIN + 5);
    }

    proptest! {
        /// The model keeps all timers in order.
        #[test]
        fn timers_are_due_in_order(steps in prop::collection::vec((0..4_u8, 0..6_u64, 0..9_u64), 0..80)) {
            let (mut timers, mut model) = (Timers::default(), BTreeSet::new());
            for (step, name, at) in steps {
                let timer = if name % 2 == 0 {
                    Timer::Lease(TokenId(name))
                } else {
                    Timer::RetryEntry(TokenId(name))
                };
                let at = mono(at);
                match step {
                    0 | 1 => {
                        model.retain(|(_, other)| *other != timer);
                        if step == 0 {
                            timers.set(timer, at);
                            model.insert((at, timer));
                        } else {
                            timers.clear(timer);
                        }
                    }
                    _ => {
                        let due = model.first().filter(|(due, _)| *due <= at).copied();
                        model.retain(|entry| Some(*entry) != due);
                        prop_assert_eq!(timers.pop(at), due.map(|(_, timer)| timer));
                    }
                }
                prop_assert_eq!(timers.next(), model.first().map(|(at, _)| *at));
                prop_assert_eq!(timers.is_empty(), model.is_empty());
            }
        }
    }
}
