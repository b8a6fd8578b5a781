//! The lock of one job, which other code takes for one of two workers at a time, and which the process of the worker keeps.
//!
//! Requests and answers take time, arrive in any order, are lost, or are executed once more, late. A worker may be stopped
//! between the hand-out and the beginning of its job, may renew the lock by itself, also for longer, and may end without a
//! word; the job may be removed.

use super::{assert_breaks, assert_holds};
use stateright::{Model, Property};

type Ticks = u8;
const WORKERS: usize = 2;
const LEASE: Ticks = 3;
/// What other code may extend its lock to.
const LONGER: Ticks = 4;
/// Whatever is on its way arrives, or is lost, within this time.
const LATE: Ticks = 2;

/// The protocol, or the protocol without one rule: the rule at the variant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Variant {
    Correct,
    /// A free lock is not taken.
    TakesFreeLock,
    /// The value is compared.
    AnyValue,
    /// A longer lease stays.
    Shortens,
    /// A lease counts from its request.
    ValidFromReply,
    /// A denial ends the lease.
    DenialCounts,
    /// Without answers the lease ends by the clock of its process.
    NoClock,
    /// The lock is other code's to release.
    Releases,
    /// The end of the job ends the renewal.
    GoesOn,
    /// A job that begins late is asked about.
    BeginsUnasked,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
enum Job {
    #[default]
    Waiting,
    HandedOut {
        age: Ticks,
    },
    /// Its lock is asked about before it begins.
    Asking,
    /// Its process counts on its lock for so long.
    Kept {
        valid: Ticks,
    },
    /// Its process knows that the lock is lost, or gone.
    Told,
    /// For how long it is over.
    Ended {
        since: Ticks,
    },
}

/// A request to keep the lock for a worker, or its answer.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Parcel {
    worker: usize,
    age: Ticks,
    answer: Option<bool>,
    /// Nobody waits for the answer.
    is_lost: bool,
}

/// The events that are left.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Budget {
    lost: u8,
    repeats: u8,
    extensions: u8,
    removals: u8,
}

struct Protocol {
    variant: Variant,
    budget: Budget,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct State {
    /// The worker whose value the lock has, and the rest of its lease.
    lock: Option<(usize, Ticks)>,
    jobs: [Job; WORKERS],
    /// For how long the lock has not had the value of a worker.
    gone: [Ticks; WORKERS],
    removed: [bool; WORKERS],
    /// Sorted, so that states which differ in nothing else are one.
    parcels: Vec<Parcel>,
    left: Budget,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Action {
    HandOut(usize),
    Begin(usize),
    Keep(usize),
    RenewByWorker(usize),
    ExtendByWorker(usize),
    Finish(usize),
    Die(usize),
    Remove,
    Execute(usize),
    ExecuteTwice(usize),
    Answer(usize),
    Lose(usize),
    Tick,
}

const NEVER_TAKES: &str = "keeping takes no lock";
const ONLY_ITS_OWN: &str = "keeping lengthens no lease of another value";
const NEVER_SHORTENS: &str = "keeping shortens no lease";
const NEVER_RELEASES: &str = "keeping releases no lock";
const IS_KEPT: &str = "a lock that a process counts on is its worker's, unless it was removed";
const IS_TOLD: &str = "a process learns within a lease that the lock is gone";
const BEGINS_OWN: &str = "a job begins while its lock is its worker's";
const ENDS: &str = "the lock of a job that is over ends with its lease, and what was on its way";

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            lock: None,
            jobs: Default::default(),
            gone: [0; WORKERS],
            removed: [false; WORKERS],
            parcels: Vec::new(),
            left: self.budget,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for worker in 0..WORKERS {
            let has = state.lock.is_some_and(|(owner, _)| owner == worker);
            match state.jobs[worker] {
                Job::Waiting if state.lock.is_none() => actions.push(Action::HandOut(worker)),
                Job::HandedOut { .. } => {
                    actions.extend([Action::Begin(worker), Action::Die(worker)]);
                }
                Job::Kept { .. } | Job::Told => {
                    actions.extend([Action::Finish(worker), Action::Die(worker)]);
                    if has {
                        actions.push(Action::RenewByWorker(worker));
                        if state.left.extensions > 0 {
                            actions.push(Action::ExtendByWorker(worker));
                        }
                    }
                }
                _ => {}
            }
            if self.keeps(state.jobs[worker]) && !state.is_asked(worker) {
                actions.push(Action::Keep(worker));
            }
        }
        if state.left.removals > 0 && state.lock.is_some() {
            actions.push(Action::Remove);
        }
        for (place, parcel) in state.parcels.iter().enumerate() {
            match parcel.answer {
                None => actions.push(Action::Execute(place)),
                Some(_) => actions.push(Action::Answer(place)),
            }
            if parcel.answer.is_none() && state.left.repeats > 0 {
                actions.push(Action::ExecuteTwice(place));
            }
            if state.left.lost > 0 && !parcel.is_lost {
                actions.push(Action::Lose(place));
            }
        }
        if state.parcels.iter().all(|parcel| parcel.age < LATE) {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::HandOut(worker) => {
                next.lock = Some((worker, LEASE));
                next.gone[worker] = 0;
                next.jobs[worker] = Job::HandedOut { age: 0 };
            }
            Action::Begin(worker) => self.begin(&mut next, worker),
            Action::Keep(worker) => next.send(worker),
            Action::RenewByWorker(worker) => next.lock = Some((worker, LEASE)),
            Action::ExtendByWorker(worker) => {
                next.left.extensions -= 1;
                next.lock = Some((worker, LONGER));
            }
            Action::Finish(worker) => {
                next.jobs[worker] = Job::Ended { since: 0 };
                next.lock.take_if(|(owner, _)| *owner == worker);
            }
            Action::Die(worker) => self.die(&mut next, worker),
            Action::Remove => {
                next.left.removals -= 1;
                let (owner, _) = next.lock.take()?;
                next.removed[owner] = true;
            }
            Action::Execute(place) => {
                let parcel = next.parcels.remove(place);
                self.execute(&mut next, parcel);
            }
            Action::ExecuteTwice(place) => {
                next.left.repeats -= 1;
                let parcel = next.parcels[place];
                self.execute(&mut next, Parcel { is_lost: true, ..parcel });
            }
            Action::Answer(place) => {
                let parcel = next.parcels.remove(place);
                self.answered(&mut next, parcel);
            }
            Action::Lose(place) => {
                next.left.lost -= 1;
                let parcel = next.parcels.remove(place);
                if parcel.answer.is_none() {
                    next.put(Parcel { is_lost: true, ..parcel });
                }
            }
            Action::Tick => self.tick(&mut next),
        }
        next.judge();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_TAKES, |_, state: &State| state.broken != Some(NEVER_TAKES)),
            Property::always(ONLY_ITS_OWN, |_, state: &State| state.broken != Some(ONLY_ITS_OWN)),
            Property::always(NEVER_SHORTENS, |_, it: &State| it.broken != Some(NEVER_SHORTENS)),
            Property::always(NEVER_RELEASES, |_, it: &State| it.broken != Some(NEVER_RELEASES)),
            Property::always(IS_KEPT, |_, state: &State| state.broken != Some(IS_KEPT)),
            Property::always(IS_TOLD, |_, state: &State| state.broken != Some(IS_TOLD)),
            Property::always(BEGINS_OWN, |_, state: &State| state.broken != Some(BEGINS_OWN)),
            Property::always(ENDS, |_, state: &State| state.broken != Some(ENDS)),
            Property::sometimes("a second worker gets the job", |_, state: &State| {
                matches!(state.jobs, [Job::Ended { .. } | Job::Told, Job::Kept { .. }])
            }),
            Property::sometimes("a job that begins late is another's", |_, state: &State| {
                matches!(state.jobs, [Job::Told, Job::Kept { .. }])
            }),
        ]
    }
}

impl Protocol {
    /// Whether requests are sent for a job.
    fn keeps(&self, job: Job) -> bool {
        matches!(job, Job::Kept { .. } | Job::Asking)
            || (self.variant == Variant::GoesOn && matches!(job, Job::Ended { .. }))
    }

    fn begin(&self, state: &mut State, worker: usize) {
        let Job::HandedOut { age } = state.jobs[worker] else { return };
        if age == 0 || self.variant == Variant::BeginsUnasked {
            state.begins(worker, LEASE.saturating_sub(age).max(1));
        } else {
            state.jobs[worker] = Job::Asking;
            state.send(worker);
        }
    }

    /// The process of a worker ends: what it has sent may arrive all the same.
    fn die(&self, state: &mut State, worker: usize) {
        state.jobs[worker] = Job::Ended { since: 0 };
        if self.variant == Variant::Releases && state.lock.is_some_and(|(owner, _)| owner == worker)
        {
            state.lock = None;
            state.broken = Some(NEVER_RELEASES);
        }
    }

    /// The effect of `keep_foreign.lua`.
    fn execute(&self, state: &mut State, parcel: Parcel) {
        let worker = parcel.worker;
        let is_there = match &mut state.lock {
            None if self.variant == Variant::TakesFreeLock => {
                state.lock = Some((worker, LEASE));
                state.broken = Some(NEVER_TAKES);
                true
            }
            Some((owner, left)) if *owner == worker || self.variant == Variant::AnyValue => {
                if *owner != worker && *left < LEASE {
                    state.broken = Some(ONLY_ITS_OWN);
                }
                if self.variant == Variant::Shortens && *left > LEASE {
                    state.broken = Some(NEVER_SHORTENS);
                }
                *left = (*left).max(LEASE);
                true
            }
            _ => false,
        };
        if !parcel.is_lost {
            state.put(Parcel { answer: Some(is_there), ..parcel });
        }
    }

    fn answered(&self, state: &mut State, Parcel { worker, age, answer, .. }: Parcel) {
        let counts = answer == Some(true) || self.variant == Variant::DenialCounts;
        let age = if self.variant == Variant::ValidFromReply { 0 } else { age };
        let left = LEASE.saturating_sub(age);
        match state.jobs[worker] {
            Job::Asking if counts && left > 0 => state.begins(worker, left),
            Job::Kept { valid } if counts => {
                state.jobs[worker] = Job::Kept { valid: valid.max(left) };
            }
            Job::Asking | Job::Kept { .. } => state.jobs[worker] = Job::Told,
            _ => {}
        }
    }

    fn tick(&self, state: &mut State) {
        for parcel in &mut state.parcels {
            parcel.age += 1;
        }
        state.lock =
            state.lock.map(|(owner, left)| (owner, left - 1)).filter(|(_, left)| *left > 0);
        for worker in 0..WORKERS {
            let has = state.lock.is_some_and(|(owner, _)| owner == worker);
            state.gone[worker] = if has { 0 } else { LONGER.min(state.gone[worker] + 1) };
            state.jobs[worker] = match state.jobs[worker] {
                Job::HandedOut { age } => Job::HandedOut { age: LONGER.min(age + 1) },
                Job::Kept { valid } if self.variant != Variant::NoClock => match valid - 1 {
                    0 => Job::Told,
                    valid => Job::Kept { valid },
                },
                Job::Ended { since } => Job::Ended { since: (2 * LONGER).min(since + 1) },
                job => job,
            };
        }
    }
}

impl State {
    fn is_asked(&self, worker: usize) -> bool {
        self.parcels.iter().any(|parcel| parcel.worker == worker && !parcel.is_lost)
    }

    fn put(&mut self, parcel: Parcel) {
        let place = self.parcels.partition_point(|other| *other < parcel);
        self.parcels.insert(place, parcel);
    }

    fn send(&mut self, worker: usize) {
        self.put(Parcel { worker, age: 0, answer: None, is_lost: false });
    }

    fn begins(&mut self, worker: usize, valid: Ticks) {
        self.jobs[worker] = Job::Kept { valid };
        let own = self.lock.is_some_and(|(owner, _)| owner == worker) || self.removed[worker];
        if !own {
            self.broken = Some(BEGINS_OWN);
        }
    }

    /// Looks for promises that the state breaks, unless one is broken by now.
    fn judge(&mut self) {
        if self.broken.is_some() {
            return;
        }
        for worker in 0..WORKERS {
            let has = self.lock.is_some_and(|(owner, _)| owner == worker);
            self.broken = match self.jobs[worker] {
                Job::Kept { .. } if !has && self.gone[worker] >= LEASE => Some(IS_TOLD),
                Job::Kept { .. } if !has && !self.removed[worker] => Some(IS_KEPT),
                Job::Ended { since } if has && since > LATE + LONGER => Some(ENDS),
                _ => continue,
            };
            return;
        }
    }
}

const CALM: Budget = Budget { lost: 0, repeats: 0, extensions: 0, removals: 0 };
const LOST: Budget = Budget { lost: 2, ..CALM };
const TWICE: Budget = Budget { repeats: 1, lost: 1, ..CALM };
const LONG: Budget = Budget { extensions: 1, lost: 1, ..CALM };
const REMOVED: Budget = Budget { removals: 1, lost: 1, ..CALM };

#[test]
fn every_promise_about_other_codes_leases_is_kept() {
    for (budget, least) in [(CALM, 100), (LOST, 500), (TWICE, 500), (LONG, 500), (REMOVED, 500)] {
        let model = Protocol { variant: Variant::Correct, budget };
        assert_holds(&format!("{budget:?}"), model, least);
    }
}

#[test]
fn every_rule_of_other_codes_leases_is_needed() {
    for (variant, promise, budget) in [
        (Variant::TakesFreeLock, NEVER_TAKES, CALM),
        (Variant::AnyValue, ONLY_ITS_OWN, CALM),
        (Variant::Shortens, NEVER_SHORTENS, LONG),
        (Variant::ValidFromReply, IS_KEPT, CALM),
        (Variant::DenialCounts, IS_TOLD, REMOVED),
        (Variant::NoClock, IS_KEPT, LOST),
        (Variant::Releases, NEVER_RELEASES, CALM),
        (Variant::GoesOn, ENDS, CALM),
        (Variant::BeginsUnasked, BEGINS_OWN, CALM),
    ] {
        assert_breaks(&format!("{variant:?}"), Protocol { variant, budget }, promise);
    }
}
