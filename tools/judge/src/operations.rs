//! From the records of one lock to operations with a beginning and an end.

use crate::model::Step;
use crate::record::{Action, Mode, Outcome, Record};
use std::collections::BTreeMap;

/// A step, and the times between which it took effect.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What happened.
    pub step: Step,
    /// Not before this.
    pub call: u64,
    /// Not after this.
    pub returned: u64,
}

/// A hold, and what is known of its end.
#[derive(Debug, Default)]
struct Hold {
    /// The call that began it.
    asked: u64,
    /// Its answer.
    granted: u64,
    /// Until when its owner was told that it has the lock.
    until: u64,
    /// When its owner read so last.
    seen: u64,
    released: Option<u64>,
    lost: Option<u64>,
    /// Another process asked to take it over: when, and whether that is known to have been done.
    adopted: Option<(u64, bool)>,
}

impl Hold {
    fn saw(&mut self, record: &Record) {
        if let (Some(until), Some(returned)) = (record.until, record.done()) {
            self.until = self.until.max(until);
            self.seen = self.seen.max(returned.min(until));
        }
    }

    /// When it ended: between the two times. Not at all if it went to another process.
    ///
    /// The lease ends at the time up to which the owner was told that it has the lock, or later. A release may take effect
    /// when its call begins, or later, and never if its answer is unknown. But an end forbids nothing: an order with a
    /// later end is also one with the earliest. So no operation needs to stay open, and the search stays short. Only a
    /// loss that the owner noticed has an interval, which begins when it last saw the lock.
    fn end(&self) -> Option<(u64, u64)> {
        let (adopted_at, adopted) = self.adopted.unwrap_or((u64::MAX, false));
        if adopted {
            return None;
        }
        let given_back = self.released.unwrap_or(u64::MAX).min(adopted_at);
        let noticed = self.lost.filter(|&lost| lost < self.until.min(given_back));
        let earliest = match noticed {
            Some(_) => self.seen,
            None => self.until.min(given_back),
        };
        let call = earliest.max(self.asked);
        Some((call, noticed.unwrap_or(call).max(self.granted)))
    }
}

/// The operations of one lock, and the names of its holds by their numbers.
#[must_use]
pub fn operations<'a>(records: &[&'a Record]) -> (Vec<Operation>, Vec<&'a str>) {
    let mut reader = Reader::default();
    for record in records {
        reader.note_hold(record);
    }
    reader.fences.sort_unstable();
    for record in records {
        reader.read(record);
    }
    reader.finish()
}

#[derive(Default)]
struct Reader<'a> {
    operations: Vec<Operation>,
    names: Vec<&'a str>,
    numbers: BTreeMap<&'a str, usize>,
    /// The holds by their fences; of those that have the same, one.
    by_fence: BTreeMap<u64, usize>,
    /// The fences of all grants, in order.
    fences: Vec<u64>,
    holds: Vec<Hold>,
}

impl<'a> Reader<'a> {
    /// A hold begins with a grant that is known. An unknown one only keeps others out, and who is kept out is not judged.
    fn note_hold(&mut self, record: &'a Record) {
        let begins = matches!(record.action, Action::Acquire | Action::Adopt);
        let (Some(name), Some(granted), true) = (record.hold.as_deref(), record.done(), begins)
        else {
            return;
        };
        self.numbers.insert(name, self.holds.len());
        if let Some(fence) = record.fence {
            self.by_fence.insert(fence, self.holds.len());
            self.fences.push(fence);
        }
        self.names.push(name);
        self.holds.push(Hold { asked: record.call, granted, ..Hold::default() });
    }

    fn read(&mut self, record: &Record) {
        if record.action == Action::Forget {
            return self.fault(record);
        }
        if record.action == Action::Adopt {
            self.adopt(record);
        }
        let number = record.hold.as_deref().and_then(|name| self.numbers.get(name));
        let Some(&hold) = number else { return };
        self.holds[hold].saw(record);
        let fence = record.fence;
        match (record.action, record.done()) {
            (Action::Acquire, Some(_)) => {
                let permits = match record.mode {
                    Some(Mode::Shared) => Some(record.limit.unwrap_or(usize::MAX)),
                    Some(Mode::Exclusive) | None => None,
                };
                self.push(Step::Acquire { hold, fence, turn: self.turn(fence), permits }, record);
            }
            (Action::Reenter, Some(_)) => self.push(Step::Reenter { hold, fence }, record),
            (Action::Leave, Some(_)) => self.push(Step::Leave { hold }, record),
            (Action::Held | Action::Extend, Some(_)) => self.push(Step::Confirm { hold }, record),
            (Action::Downgrade, done) if record.outcome != Some(Outcome::Refused) => {
                self.push(Step::Downgrade { hold, unsure: done.is_none() }, record);
            }
            (Action::Release, _) => {
                // The close of its manager may come first.
                self.holds[hold].released.get_or_insert(record.call);
            }
            (Action::Lost, _) => self.holds[hold].lost = Some(record.call),
            _ => {}
        }
    }

    /// Where the answer is unknown, the adopter may have had the lock and given it back at any time.
    fn adopt(&mut self, record: &Record) {
        let from = record.from.and_then(|fence| self.by_fence.get(&fence)).copied();
        let hold = record.hold.as_deref().and_then(|name| self.numbers.get(name)).copied();
        let Some(from) = from else { return };
        self.holds[from].adopted = Some((record.call, hold.is_some()));
        if let Some(hold) = hold {
            let (fence, turn) = (record.fence, self.turn(record.fence));
            self.push(Step::Adopt { from, hold, fence, turn }, record);
        }
    }

    /// Two grants with one fence have the same turn, which only one of them can take.
    fn turn(&self, fence: Option<u64>) -> Option<usize> {
        fence.map(|fence| self.fences.partition_point(|&each| each < fence))
    }

    fn fault(&mut self, record: &Record) {
        let moment = |step, at| Operation { step, call: at, returned: at };
        self.operations.push(moment(Step::FaultBegins, record.call));
        if let Some(returned) = record.returned {
            self.operations.push(moment(Step::FaultEnds, returned));
        }
    }

    fn push(&mut self, step: Step, record: &Record) {
        // What may have been done may have been done at once: a share forbids less than the whole lock.
        let returned = record.done().unwrap_or(record.call);
        self.operations.push(Operation { step, call: record.call, returned });
    }

    fn finish(mut self) -> (Vec<Operation>, Vec<&'a str>) {
        for (hold, known) in self.holds.iter().enumerate() {
            if let Some((call, returned)) = known.end() {
                self.operations.push(Operation { step: Step::End { hold }, call, returned });
            }
        }
        self.operations.sort_by_key(|operation| operation.call);
        (self.operations, self.names)
    }
}
