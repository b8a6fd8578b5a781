//! The promise that every operation ends.

use crate::clock::Mono;
use crate::machine::{LeaseId, LossReason, News, OpId, Outcome};
use std::sync::Arc;

/// Where the outcomes of a manager's operations go.
pub trait Caller: Send + Sync + 'static {
    /// An operation ended. Called once for each.
    fn complete(&self, op: OpId, outcome: Outcome);
    /// A lease ended that had not been released.
    fn lose(&self, lease: LeaseId, reason: LossReason);
    /// Something happened that whoever runs the manager may want to know.
    fn tell(&self, news: News);
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

    /// Which operation this is.
    #[must_use]
    pub const fn op(&self) -> OpId {
        self.op
    }

    /// Ends the operation. The caller is woken by whoever completes a batch.
    pub fn complete(mut self, outcome: Outcome) {
        if let Some(caller) = self.caller.take() {
            caller.complete(self.op, outcome);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(caller) = self.caller.take() {
            caller.complete(self.op, Outcome::Internal);
            caller.wake();
        }
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
        fn tell(&self, _: News) {}
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
}
