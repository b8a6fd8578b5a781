//! Two published checkers, by different people, agree on thousands of small histories at random.

#![allow(clippy::unwrap_used, missing_docs)]

use fastrand::Rng;
use holdfast_judge::model::{State, Step};
use holdfast_judge::operations::Operation;
use holdfast_judge::verdict::is_linearizable;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

/// The model in the words of the second checker: whether a step is allowed is the answer to it.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Lock(State);

impl SequentialSpec for Lock {
    type Op = Step;
    type Ret = bool;

    fn invoke(&mut self, step: &Step) -> bool {
        match self.0.after(step) {
            Some(next) => {
                self.0 = next;
                true
            }
            None => false,
        }
    }
}

fn second_opinion(operations: &[Operation]) -> bool {
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (number, operation) in operations.iter().enumerate() {
        events.push((operation.call, false, number));
        events.push((operation.returned, true, number));
    }
    events.sort_unstable();
    let mut tester = LinearizabilityTester::new(Lock::default());
    for (_, returns, number) in events {
        let valid = if returns {
            tester.on_return(number, true)
        } else {
            tester.on_invoke(number, operations[number].step)
        };
        valid.unwrap();
    }
    tester.is_consistent()
}

/// Up to three holds, of which some have ends, confirmations and downgrades. Few times, so that many are concurrent.
fn random(dice: &mut Rng) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut push = |dice: &mut Rng, step| {
        let call = dice.u64(0..12);
        operations.push(Operation { step, call, returned: call + dice.u64(0..14) });
    };
    let mut turns: Vec<usize> = (0..3).collect();
    dice.shuffle(&mut turns);
    for (hold, turn) in turns.into_iter().enumerate() {
        let permits = [None, Some(1), Some(2)][dice.usize(0..3)];
        let fence = Some(turn as u64);
        push(dice, Step::Acquire { hold, fence, turn: Some(turn), permits });
        if dice.u8(0..4) > 0 {
            push(dice, Step::End { hold });
        }
        if dice.u8(0..4) == 0 {
            push(dice, Step::Confirm { hold });
        }
        if dice.u8(0..6) == 0 {
            let unsure = dice.bool();
            push(dice, Step::Downgrade { hold, unsure });
        }
    }
    operations
}

#[test]
fn two_checkers_agree() {
    let mut dice = Rng::with_seed(1);
    let mut counts = [0, 0];
    for _ in 0..4_000 {
        let operations = random(&mut dice);
        let first = is_linearizable(&operations);
        assert_eq!(first, second_opinion(&operations), "{operations:?}");
        counts[usize::from(first)] += 1;
    }
    assert!(counts.iter().all(|&count| count > 200), "{counts:?}: one answer is too rare");
}

/// The judge takes an end as early as it may be. A later one must never be needed.
#[test]
fn an_early_end_explains_all_that_a_late_one_explains() {
    let mut dice = Rng::with_seed(2);
    let mut tested = 0;
    for _ in 0..4_000 {
        let mut operations = random(&mut dice);
        operations.iter_mut().filter(|each| is_end(each)).for_each(|each| each.returned = 20);
        if !second_opinion(&operations) {
            continue;
        }
        tested += 1;
        let granted: Vec<(usize, u64)> = operations.iter().filter_map(grant).collect();
        let confirmed = operations.clone();
        for operation in operations.iter_mut().filter(|each| is_end(each)) {
            let Step::End { hold } = operation.step else { continue };
            // As in operations.rs: not ahead of the grant, nor of what confirms the hold later.
            let grant =
                granted.iter().find(|(of, _)| *of == hold).map_or(0, |(_, returned)| *returned);
            let later =
                confirmed.iter().filter(|each| relies(each, hold)).map(|each| each.returned).max();
            operation.returned = operation.call.max(grant).max(later.unwrap_or(0));
        }
        assert!(is_linearizable(&operations), "{operations:?}");
    }
    assert!(tested > 200, "{tested}");
}

fn is_end(operation: &Operation) -> bool {
    matches!(operation.step, Step::End { .. })
}

fn grant(operation: &Operation) -> Option<(usize, u64)> {
    match operation.step {
        Step::Acquire { hold, .. } => Some((hold, operation.returned)),
        _ => None,
    }
}

fn relies(operation: &Operation, of: usize) -> bool {
    match operation.step {
        Step::Confirm { hold } | Step::Downgrade { hold, .. } => hold == of,
        _ => false,
    }
}
