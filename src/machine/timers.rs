//! The planned timers, and when each is due.

use crate::protocol::{Mono, NodeId, OpId, RequestId, TokenId};
use crate::slim::Slim;
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

impl Owner {
    /// The number of kinds.
    pub(super) const KINDS: usize = 6;

    /// Its kind, and its number in that.
    pub(super) const fn parts(self) -> (usize, u64) {
        match self {
            Self::Entry(TokenId(id)) => (0, id),
            Self::EntryBehind(TokenId(id)) => (1, id),
            Self::OneShot(OpId(op)) => (2, op as u64),
            Self::Release(TokenId(id)) => (3, id),
            Self::Renewal(TokenId(id)) => (4, id),
            Self::Reservation(TokenId(id)) => (5, id),
        }
    }
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
const _: () = assert!(size_of::<Timer>() <= 16, "a timer fits into 16 bytes");

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
    runs: [Run; RUNS],
    /// The timers of the other kinds. There are few, so most attempts to clear one end at once.
    others: FxHashMap<Timer, Mono>,
    /// The order of the others, and of those that did not fit into their run.
    rest: BinaryHeap<Reverse<(Mono, Timer)>>,
}

/// The timers of one kind. Most were set for ever later moments, as those with a constant delay are.
#[derive(Debug, Default)]
struct Run {
    /// By number.
    at: FxHashMap<u64, Mono>,
    order: VecDeque<(Mono, u64)>,
}

impl Run {
    fn is_outdated(&self, (moment, number): &(Mono, u64)) -> bool {
        self.at.get(number) != Some(moment)
    }

    /// The first timer of the order. Drops what is outdated before it.
    fn first(&mut self) -> Option<(Mono, u64)> {
        while self.order.front().is_some_and(|first| self.is_outdated(first)) {
            self.order.pop_front();
        }
        self.order.front().copied()
    }
}

/// So many outdated timers cost nothing worth a tidying.
const OUTDATED_MIN: usize = 1_024;
/// The kinds that every lock sets: its acquire's deadline, its lease's next step, and its release's deadline.
const RUNS: usize = 3;

/// The run of a timer and its number there, if its kind has a run.
const fn place_of(timer: Timer) -> Option<(usize, u64)> {
    match timer {
        Timer::AcquireDeadline(OpId(op)) => Some((0, op as u64)),
        Timer::Lease(TokenId(id)) => Some((1, id)),
        Timer::ReleaseDeadline(TokenId(id)) => Some((2, id)),
        _ => None,
    }
}

/// The timer that has this place.
fn timer_at(run: usize, number: u64) -> Timer {
    match run {
        0 => Timer::AcquireDeadline(OpId(u32::try_from(number).unwrap_or(u32::MAX))),
        1 => Timer::Lease(TokenId(number)),
        _ => Timer::ReleaseDeadline(TokenId(number)),
    }
}

impl Timers {
    /// Sets a timer, or moves it.
    pub(super) fn set(&mut self, timer: Timer, at: Mono) {
        let before = match place_of(timer) {
            None => self.others.insert(timer, at),
            Some((run, number)) => self.runs[run].at.insert(number, at),
        };
        if before == Some(at) {
            return;
        }
        match place_of(timer).map(|(run, number)| (&mut self.runs[run].order, number)) {
            Some((order, number)) if order.back().is_none_or(|last| *last <= (at, number)) => {
                order.push_back((at, number));
            }
            _ => self.rest.push(Reverse((at, timer))),
        }
        if before.is_some() {
            self.tidy();
        }
    }

    pub(super) fn clear(&mut self, timer: Timer) {
        if self.forget(timer) {
            self.tidy();
        }
    }

    /// Returns whether the timer was set.
    fn forget(&mut self, timer: Timer) -> bool {
        match place_of(timer) {
            None => !self.others.is_empty() && self.others.remove(&timer).is_some(),
            Some((run, number)) => {
                let set = &mut self.runs[run].at;
                let was_set = set.remove(&number).is_some();
                set.slim();
                was_set
            }
        }
    }

    pub(super) fn clear_all(&mut self) {
        *self = Self::default();
    }

    pub(super) fn at(&self, timer: Timer) -> Option<Mono> {
        match place_of(timer) {
            None => self.others.get(&timer).copied(),
            Some((run, number)) => self.runs[run].at.get(&number).copied(),
        }
    }

    pub(super) fn next(&mut self) -> Option<Mono> {
        self.first().map(|(at, _)| at)
    }

    /// Takes the first timer that is due.
    pub(super) fn pop(&mut self, now: Mono) -> Option<Timer> {
        let (_, timer) = self.first().filter(|(at, _)| *at <= now)?;
        self.forget(timer);
        Some(timer)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.set_count() == 0
    }

    /// The first timer. Drops what is outdated before it.
    fn first(&mut self) -> Option<(Mono, Timer)> {
        while let Some(Reverse((moment, timer))) = self.rest.peek()
            && self.at(*timer) != Some(*moment)
        {
            self.rest.pop();
        }
        let rest = self.rest.peek().map(|Reverse(first)| *first);
        let runs = self.runs.iter_mut().enumerate().filter_map(|(index, run)| {
            run.first().map(|(moment, number)| (moment, timer_at(index, number)))
        });
        runs.chain(rest).min()
    }

    fn set_count(&self) -> usize {
        self.runs.iter().map(|run| run.at.len()).sum::<usize>() + self.others.len()
    }

    /// How many timers are in the orders, outdated ones included.
    fn ordered(&self) -> usize {
        self.runs.iter().map(|run| run.order.len()).sum::<usize>() + self.rest.len()
    }

    /// Drops what is outdated, if that is most.
    fn tidy(&mut self) {
        if self.ordered() > 2 * self.set_count() + OUTDATED_MIN {
            self.drop_outdated();
        }
    }

    fn drop_outdated(&mut self) {
        for Run { at, order } in &mut self.runs {
            order.retain(|(moment, number)| at.get(number) == Some(moment));
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.retain(|Reverse((moment, timer))| self.at(*timer) == Some(*moment));
        self.rest = rest;
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn len(&self) -> usize {
        self.set_count()
    }

    /// Whether nothing is planned but to give channels up.
    #[cfg(all(test, feature = "core"))]
    pub(super) fn are_to_forget_channels(&self) -> bool {
        let set = self.others.keys().all(|timer| *timer == Timer::ForgetChannels);
        set && self.set_count() == self.others.len()
    }

    /// Drops some of the timers that have no run, as retries have none.
    #[cfg(all(test, feature = "core"))]
    pub(super) fn keep(&mut self, mut is_kept: impl FnMut(&Timer) -> bool) {
        self.others.retain(|timer, _| is_kept(timer));
        self.drop_outdated();
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
        assert!(timers.ordered() <= OUTDATED_MIN + 5, "cleared timers do not accumulate");
    }

    #[test]
    fn the_earlier_times_of_a_timer_that_is_moved_do_not_accumulate() {
        let mut timers = Timers::default();
        for n in 0..100_000 {
            for timer in [Timer::Lease(TokenId(1)), Timer::CloseDeadline] {
                timers.set(timer, mono(n));
            }
        }
        assert!(timers.ordered() <= OUTDATED_MIN + 5, "earlier times do not accumulate");
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
