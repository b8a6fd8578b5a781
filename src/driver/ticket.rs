//! The promise that every operation ends, and that every loss is told.

use super::Shared;
use crate::machine::{Effect, LeaseId, LossReason, Notice, OpId, Outcome};
use crate::protocol::clock::Mono;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Where the outcomes of a manager's operations go.
pub trait Caller: Send + Sync + 'static {
    /// An operation ended. Called once for each.
    fn complete(&self, op: OpId, outcome: Outcome);
    /// A lease ended that had not been released.
    fn lose(&self, lease: LeaseId, reason: LossReason);
    /// Something happened that whoever runs the manager may want to know.
    fn tell(&self, notices: Notice);
    /// Asks for a sign of life.
    fn ping(&self);
    /// When the last sign of life was given.
    fn last_turn(&self) -> Mono;
    /// Outcomes, losses and pings are ready to be looked at.
    fn wake(&self);
}

/// One operation under way. Dropping it, as a panic or the end of the loop does, completes it with
/// [`Outcome::Internal`], so that no caller waits for ever.
pub struct Ticket {
    op: OpId,
    caller: Option<Arc<dyn Caller>>,
}

impl Ticket {
    /// A ticket for `op`, whose outcome goes to `caller`.
    #[must_use]
    pub fn new(op: OpId, caller: Arc<dyn Caller>) -> Self {
        Self { op, caller: Some(caller) }
    }

    /// Ends the operation. The caller is woken by whoever completes a batch.
    pub fn complete(mut self, outcome: Outcome) {
        if let Some(caller) = &self.caller {
            caller.complete(self.op, outcome);
        }
        // Not before: if that panics, dropping the ticket completes it.
        self.caller = None;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(caller) = self.caller.take() {
            in_any_case(|| caller.complete(self.op, Outcome::Internal));
            in_any_case(|| caller.wake());
        }
    }
}

/// A panic while another one is under way would end the process.
fn in_any_case(tell: impl Fn()) {
    let told = || catch_unwind(AssertUnwindSafe(&tell)).is_ok();
    // Once more, if it has panicked. What always does reaches nobody.
    let _told = told() || told();
}

/// The operations of one caller that a loop works at. It makes the promise of all their tickets: there
/// may be very many, and this is a few bytes for each. Dropping it also tells the losses that were not told yet, and
/// ends the leases that are left, which nobody renews any more.
pub(super) struct Open {
    caller: Arc<dyn Caller>,
    ops: FxHashSet<OpId>,
    /// What this turn has lost and has not told yet.
    losses: VecDeque<(LeaseId, LossReason)>,
    shared: Arc<Shared>,
}

impl Open {
    pub(super) fn new(caller: Arc<dyn Caller>, shared: Arc<Shared>) -> Self {
        Self { caller, ops: FxHashSet::default(), losses: VecDeque::new(), shared }
    }

    pub(super) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Makes the promise of a ticket of this caller its own.
    pub(super) fn take_over(&mut self, mut ticket: Ticket) -> OpId {
        self.ops.insert(ticket.op);
        ticket.caller = None;
        ticket.op
    }

    /// Ends an operation, if it is open. The caller is woken by whoever completes a batch.
    pub(super) fn complete(&mut self, op: OpId, outcome: Outcome) -> bool {
        let open = self.ops.contains(&op);
        if open {
            self.caller.complete(op, outcome);
            // Not before: if that panics, dropping this completes it.
            self.ops.remove(&op);
        }
        open
    }

    /// Takes note of the losses among the effects of a turn, of whose leases nothing else tells any more by then.
    pub(super) fn note_losses(&mut self, effects: &[Effect]) {
        self.losses.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Lose { lease, reason } => Some((*lease, *reason)),
            _ => None,
        }));
    }

    /// Tells the first loss that was noted and not told.
    pub(super) fn tell_loss(&mut self) {
        if let Some((lease, reason)) = self.losses.front() {
            self.caller.lose(*lease, *reason);
        }
        self.losses.pop_front();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // A loop that stops has no lease any more; one that panics may have.
        let left = self.shared.end().into_iter().map(|lease| (lease, LossReason::Expired));
        for (lease, reason) in self.losses.drain(..).chain(left) {
            in_any_case(|| self.caller.lose(lease, reason));
        }
        for op in self.ops.drain() {
            in_any_case(|| self.caller.complete(op, Outcome::Internal));
        }
        in_any_case(|| self.caller.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<(OpId, Outcome)>>);

    impl Caller for Recorder {
        fn complete(&self, op: OpId, outcome: Outcome) {
            self.0.lock().unwrap().push((op, outcome));
        }
        fn lose(&self, _: LeaseId, _: LossReason) {}
        fn tell(&self, _: Notice) {}
        fn ping(&self) {}
        fn last_turn(&self) -> Mono {
            Mono::default()
        }
        fn wake(&self) {}
    }

    #[test]
    fn a_ticket_completes_exactly_once_even_when_dropped() {
        let recorder = Arc::new(Recorder::default());
        let caller = || Arc::clone(&recorder) as Arc<dyn Caller>;
        Ticket::new(OpId(1), caller()).complete(Outcome::Done);
        drop(Ticket::new(OpId(2), caller()));
        let seen = recorder.0.lock().unwrap().clone();
        assert_eq!(seen, [(OpId(1), Outcome::Done), (OpId(2), Outcome::Internal)]);
    }

    #[test]
    fn a_loop_that_ends_completes_what_is_open() {
        let recorder = Arc::new(Recorder::default());
        let caller = || Arc::clone(&recorder) as Arc<dyn Caller>;
        let mut open = Open::new(caller(), Arc::default());
        for op in [1, 2].map(OpId) {
            assert_eq!(open.take_over(Ticket::new(op, caller())), op);
        }
        assert!(open.complete(OpId(1), Outcome::Done));
        assert!(!open.complete(OpId(1), Outcome::Done), "once");
        drop(open);
        let seen = recorder.0.lock().unwrap().clone();
        assert_eq!(seen, [(OpId(1), Outcome::Done), (OpId(2), Outcome::Internal)]);
    }
}
