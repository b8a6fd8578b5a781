//! The promise that every operation ends, and that every loss is reported.

use super::shared::Shared;
use super::watch::Watch;
use crate::machine::{Effect, LeaseId, LossReason, Notice, OpId, Outcome};
use crate::protocol::{Failure, Mono};
use crate::slim::Slim;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The receiver of a manager's outcomes, losses and notices.
pub trait Caller: Send + Sync + 'static {
    /// An operation ended. Called once for each.
    fn complete(&self, op: OpId, outcome: Outcome);
    /// A lease ended before it was released.
    fn lose(&self, lease: LeaseId, reason: LossReason);
    /// Delivers a notice for the operator of the manager.
    fn tell(&self, notices: Notice);
    /// Asks for a heartbeat.
    fn ping(&self);
    /// The time of the last heartbeat.
    fn last_turn(&self) -> Mono;
    /// Outcomes, losses and pings are ready to be read.
    fn wake(&self);
    /// A socket whose readability the event loop of the caller has to report. Called only if the caller reads by
    /// itself, see [`super::Reader`].
    fn watch(&self, watch: Watch);
}

/// One open operation that a task of its own completes. Dropping it, as a panic or the end of the core does, completes it
/// with [`Outcome::Internal`], so that no caller waits forever.
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

    /// Ends the operation. The code that completes a batch wakes the caller.
    pub fn complete(mut self, outcome: Outcome) {
        if let Some(caller) = &self.caller {
            caller.complete(self.op, outcome);
        }
        // Last: if `complete` panics, dropping the ticket completes the operation.
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

/// The outcome of an operation that the machine does not know.
pub(super) fn outcome_of(failure: Failure) -> Outcome {
    match failure {
        Failure::Refused(refusal) => Outcome::Server { refusal, key: None },
        other => Outcome::Connection(other.to_string()),
    }
}

/// Catches panics: a panic during another one would end the process.
pub(super) fn in_any_case(report: impl Fn()) {
    let reported = || catch_unwind(AssertUnwindSafe(&report)).is_ok();
    // Retried once after a panic; a second panic is given up.
    let _reported = reported() || reported();
}

/// The open operations of one caller, at a few bytes per operation. Dropping it, as a panic or the end of the core does,
/// completes them with [`Outcome::Internal`]. It also reports the losses that are still unreported, and ends the
/// remaining leases, which are not renewed any more.
pub(super) struct Open {
    caller: Arc<dyn Caller>,
    ops: FxHashSet<OpId>,
    /// The losses of this turn that are still unreported.
    losses: VecDeque<(LeaseId, LossReason)>,
    shared: Arc<Shared>,
}

impl Open {
    pub(super) fn new(caller: Arc<dyn Caller>, shared: Arc<Shared>) -> Self {
        Self { caller, ops: FxHashSet::default(), losses: VecDeque::new(), shared }
    }

    /// These operations begin.
    pub(super) fn begin(&mut self, ops: impl Iterator<Item = OpId>) {
        self.ops.extend(ops);
    }

    /// Ends an operation, if it is open. The code that completes a batch wakes the caller.
    pub(super) fn complete(&mut self, op: OpId, outcome: Outcome) -> bool {
        let open = self.ops.contains(&op);
        if open {
            self.caller.complete(op, outcome);
            // Last: if `complete` panics, dropping this completes the operation.
            self.ops.remove(&op);
            self.ops.slim();
        }
        open
    }

    /// Records the losses among the effects of a turn: by then the machine has dropped their leases.
    pub(super) fn note_losses(&mut self, effects: &[Effect]) {
        self.losses.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Lose { lease, reason } => Some((*lease, *reason)),
            _ => None,
        }));
    }

    /// Reports the first unreported loss.
    pub(super) fn tell_loss(&mut self) {
        if let Some((lease, reason)) = self.losses.front() {
            self.caller.lose(*lease, *reason);
        }
        self.losses.pop_front();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // A core that stops has no lease left, but one that panics may have.
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
        fn watch(&self, _: Watch) {}
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
        open.begin([1, 2].map(OpId).into_iter());
        assert!(open.complete(OpId(1), Outcome::Done), "the first operation was open");
        assert!(!open.complete(OpId(1), Outcome::Done), "once");
        drop(open);
        let seen = recorder.0.lock().unwrap().clone();
        assert_eq!(seen, [(OpId(1), Outcome::Done), (OpId(2), Outcome::Internal)]);
    }

    #[test]
    fn after_a_burst_a_loop_needs_little_memory() {
        let mut open = Open::new(Arc::new(Recorder::default()), Arc::default());
        let burst = || (0..100_000).map(OpId);
        open.begin(burst());
        for op in burst() {
            open.complete(op, Outcome::Done);
        }
        assert!(open.ops.capacity() < 2_000, "room for {} operations", open.ops.capacity());
    }
}
