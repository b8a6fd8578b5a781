//! One lock as if there were no concurrency: the object that the recorded operations must be explained by.
//!
//! It joins the three models with which Jepsen tested Hazelcast: a mutex that knows its owner and whose fences rise, a
//! re-entrant lock, and a semaphore. A hold is a mutex's owner, or one that has a permit.

use todc_utils::specifications::Specification;

/// One atomic step.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Step {
    /// A hold begins.
    Acquire {
        /// The hold.
        hold: usize,
        /// Its fence; nothing for locks without fences.
        fence: Option<u64>,
        /// How many grants have a smaller fence.
        turn: Option<usize>,
        /// How many may hold it at once when this hold has begun; nothing for the whole lock.
        permits: Option<usize>,
    },
    /// Its owner enters the lock again.
    Reenter {
        /// The hold.
        hold: usize,
        /// The fence that it was told: that of the hold.
        fence: Option<u64>,
    },
    /// Its owner leaves what it entered again.
    Leave {
        /// The hold.
        hold: usize,
    },
    /// The hold is confirmed: its owner read that it has the lock, or had the lease lengthened.
    Confirm {
        /// The hold.
        hold: usize,
    },
    /// The whole lock becomes a share.
    Downgrade {
        /// The hold.
        hold: usize,
        /// Nobody knows whether it was done: it may come after the end of the hold, and then means nothing.
        unsure: bool,
    },
    /// The hold goes to another process.
    Adopt {
        /// The hold until then.
        from: usize,
        /// The hold from then on.
        hold: usize,
        /// The fence of the new one.
        fence: Option<u64>,
        /// How many grants have a smaller fence.
        turn: Option<usize>,
    },
    /// The hold ends: by a release, or with its lease.
    End {
        /// The hold.
        hold: usize,
    },
    /// A fault begins. Nobody who holds the lock, or is granted it until the fault ends, is promised to be alone.
    FaultBegins,
    /// It ends.
    FaultEnds,
}

/// Somebody who holds the lock.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Holder {
    hold: usize,
    fence: Option<u64>,
    whole: bool,
    /// How often its owner entered again.
    entered: usize,
    /// A fault may have taken the lock from it.
    doubtful: bool,
}

/// The state of one lock.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct State {
    /// In the order of their grants.
    holders: Vec<Holder>,
    /// How many grants had a fence.
    grants: usize,
    /// Faults at the moment.
    faults: usize,
}

impl State {
    /// The state after `step`, or nothing if the lock must not take it.
    #[must_use]
    pub fn after(&self, step: &Step) -> Option<Self> {
        let mut next = self.clone();
        let done = match *step {
            Step::Acquire { hold, fence, turn, permits } => {
                self.has_room(permits) && next.grant(hold, fence, turn, permits.is_none())
            }
            Step::Reenter { hold, fence } => next.change(hold, |holder| {
                holder.entered += 1;
                holder.fence == fence
            }),
            Step::Leave { hold } => {
                let outlived = self.holder(hold).is_none();
                outlived || next.change(hold, |holder| take_one(&mut holder.entered))
            }
            Step::Confirm { hold } => self.holder(hold).is_some(),
            Step::Downgrade { hold, unsure } => {
                let done = next.change(hold, |holder| std::mem::take(&mut holder.whole));
                done || unsure
            }
            Step::Adopt { from, hold, fence, turn } => {
                let whole = self.holder(from).map(|holder| holder.whole);
                whole.is_some_and(|whole| next.remove(from) && next.grant(hold, fence, turn, whole))
            }
            Step::End { hold } => next.remove(hold),
            Step::FaultBegins => {
                next.faults += 1;
                next.holders.iter_mut().for_each(|holder| holder.doubtful = true);
                true
            }
            Step::FaultEnds => take_one(&mut next.faults),
        };
        done.then_some(next)
    }

    /// Those who hold the lock.
    pub fn holds(&self) -> impl Iterator<Item = usize> {
        self.holders.iter().map(|holder| holder.hold)
    }

    fn has_room(&self, permits: Option<usize>) -> bool {
        let mut certain = self.holders.iter().filter(|holder| !holder.doubtful);
        match permits {
            _ if self.faults > 0 => true,
            None => certain.next().is_none(),
            Some(permits) => {
                certain.clone().all(|holder| !holder.whole) && certain.count() < permits
            }
        }
    }

    /// Fences rise strictly if each grant comes in its turn. This says at once what "greater than the last one" says only
    /// when a smaller one is left over, so the checker need not try what cannot end well.
    fn grant(&mut self, hold: usize, fence: Option<u64>, turn: Option<usize>, whole: bool) -> bool {
        let doubtful = self.faults > 0;
        self.holders.push(Holder { hold, fence, whole, entered: 0, doubtful });
        let in_turn = turn.is_none_or(|turn| turn == self.grants);
        self.grants += usize::from(turn.is_some());
        in_turn
    }

    fn holder(&self, hold: usize) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.hold == hold)
    }

    fn change(&mut self, hold: usize, change: impl FnOnce(&mut Holder) -> bool) -> bool {
        self.holders.iter_mut().find(|holder| holder.hold == hold).is_some_and(change)
    }

    fn remove(&mut self, hold: usize) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.hold != hold);
        self.holders.len() < before
    }
}

fn take_one(count: &mut usize) -> bool {
    let some = *count > 0;
    *count = count.saturating_sub(1);
    some
}

/// The model in the words of the checker.
pub struct Lock;

impl Specification for Lock {
    type State = State;
    type Operation = Step;

    fn init() -> State {
        State::default()
    }

    fn apply(step: &Step, state: &State) -> (bool, State) {
        match state.after(step) {
            Some(next) => (true, next),
            None => (false, state.clone()),
        }
    }
}
