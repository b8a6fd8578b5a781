//! What the checker says about the operations of one lock, and where a history that it refuses goes wrong.

use crate::model::Lock;
use crate::operations::{Operation, operations};
use crate::record::Record;
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};

/// What was found about one lock.
#[derive(Debug)]
pub struct Verdict {
    /// How many operations the checker was given.
    pub operations: usize,
    /// How many holds there were.
    pub holds: usize,
    /// The record with which a history goes wrong that no order explains, and the time up to which there is an order.
    pub broken: Option<Record>,
}

/// Judges the records of one lock, and those of faults of all locks.
#[must_use]
pub fn judge(records: &[&Record]) -> Verdict {
    let (all, holds) = operations(records);
    let fine = is_linearizable(&all);
    Verdict {
        operations: all.len(),
        holds: holds.len(),
        broken: (!fine).then(|| first_wrong(records)).flatten(),
    }
}

/// Whether one order of the operations, in which each takes effect between its call and its return, is one that the
/// model allows.
#[must_use]
pub fn is_linearizable(operations: &[Operation]) -> bool {
    if operations.is_empty() {
        return true;
    }
    // Where times meet the calls come first, so that the two are concurrent.
    let mut events = Vec::with_capacity(2 * operations.len());
    for (number, operation) in operations.iter().enumerate() {
        events.push((operation.call, false, number, Action::Call(operation.step)));
        events.push((operation.returned, true, number, Action::Response(operation.step)));
    }
    events.sort_by_key(|&(time, returns, number, _)| (time, returns, number));
    let actions = events.into_iter().map(|(_, _, number, action)| (number, action)).collect();
    WGLChecker::<Lock>::is_linearizable(History::from_actions(actions))
}

/// A history that was cut off is linearizable if the whole is. So the first answer behind which it is not can be found
/// by halving.
fn first_wrong(records: &[&Record]) -> Option<Record> {
    let mut answers: Vec<&Record> =
        records.iter().copied().filter(|each| each.returned.is_some()).collect();
    answers.sort_by_key(|each| each.returned);
    let fine = |count: usize| {
        let until = answers[count].returned.unwrap_or(u64::MAX);
        let cut: Vec<Record> = records.iter().filter_map(|each| cut_off(each, until)).collect();
        is_linearizable(&operations(&cut.iter().collect::<Vec<_>>()).0)
    };
    let (mut low, mut high) = (0, answers.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if fine(middle) { low = middle + 1 } else { high = middle }
    }
    answers.get(low).map(|&each| each.clone())
}

/// The record as it was at a time.
fn cut_off(record: &Record, until: u64) -> Option<Record> {
    if record.call > until {
        return None;
    }
    let mut cut = record.clone();
    if cut.returned.is_some_and(|returned| returned > until) {
        cut.returned = None;
        cut.outcome = None;
    }
    Some(cut)
}
