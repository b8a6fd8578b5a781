//! Outcomes, losses and notices on their way to JavaScript.

use super::outbox::Outbox;
use super::records;
use super::texts::OutcomeText;
use crate::core::{Caller, Watch};
use crate::faults;
use crate::machine::{LeaseId, LossReason, Notice, OpId, Outcome};
use crate::protocol::Mono;
use napi::Status;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Calls the wake function of an environment without keeping its event loop alive.
pub(super) type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

/// The outcomes of one environment that JavaScript has not seen yet.
pub(super) struct Completions {
    wake: Wake,
    outbox: Outbox<OutcomeText>,
    /// The sockets that the event loop does not know yet; none once the environment has ended.
    watches: Mutex<Option<Vec<Watch>>>,
}

impl Completions {
    pub(super) fn new(wake: Wake) -> Self {
        Self { wake, outbox: Outbox::new(), watches: Mutex::new(Some(Vec::new())) }
    }

    /// Moves records into `into` and returns their number. If they do not fill it, the wake function is armed again.
    pub(super) fn drain_into(&self, into: &mut [f64]) -> u32 {
        u32::try_from(self.outbox.drain(Mono::now, into)).unwrap_or(0)
    }

    /// Whether there are records to drain.
    pub(super) fn has_records(&self) -> bool {
        self.outbox.has_records()
    }

    /// Takes the sockets that the event loop does not know yet.
    pub(super) fn take_watches(&self) -> Vec<Watch> {
        self.watches().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The environment has ended: a socket that its event loop does not know yet is let go, since each refers to a
    /// manager, which refers to this.
    pub(super) fn end(&self) {
        let watches = self.watches().take();
        drop(watches);
    }

    fn watches(&self) -> MutexGuard<'_, Option<Vec<Watch>>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the text of the outcome of `entry`.
    pub(super) fn take_text(&self, entry: u32) -> Option<OutcomeText> {
        self.outbox.take_text(entry)
    }

    /// Takes the text of the oldest notice.
    pub(super) fn take_notice(&self) -> Option<String> {
        self.outbox.take_notice()
    }
}

/// Puts the outcomes, losses and notices of one manager into the outbox of its environment.
pub(super) struct ManagerCaller {
    pub(super) completions: Arc<Completions>,
    /// Names the manager within its environment.
    pub(super) manager: u32,
}

impl Caller for ManagerCaller {
    fn complete(&self, op: OpId, outcome: Outcome) {
        faults::at("complete");
        let (record, text) = records::outcome(op, outcome);
        self.completions.outbox.push(record, text.map(|text| (op.0, text)));
    }

    fn lose(&self, lease: LeaseId, reason: LossReason) {
        faults::at("lose");
        self.completions.outbox.push(records::loss(self.manager, lease, reason), None);
    }

    fn tell(&self, notices: Notice) {
        faults::at("tell");
        let (record, text) = records::notice(self.manager, notices);
        self.completions.outbox.push_notice(record, text);
    }

    fn ping(&self) {
        faults::at("ping");
        self.completions.outbox.push(records::heartbeat(), None);
    }

    fn last_turn(&self) -> Mono {
        faults::at("turned");
        self.completions.outbox.last_turn()
    }

    fn watch(&self, watch: Watch) {
        let completions = &self.completions;
        if let Some(watches) = completions.watches().as_mut() {
            watches.push(watch);
        }
        // Only a record wakes JavaScript.
        completions.outbox.push(records::heartbeat(), None);
    }

    fn wake(&self) {
        faults::at("wake");
        let completions = &self.completions;
        // The memory of a function whose environment has ended may be gone.
        if completions.outbox.arm() && completions.watches().is_some() {
            // An environment that is being torn down refuses the call; its JavaScript runs no more.
            completions.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}
