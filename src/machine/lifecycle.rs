//! Opening and closing a manager.

use super::context::Context;
use super::interface::{Effect, Outcome};
use super::timers::Timer;
use crate::protocol::{Failure, Mono, OpId};

#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    opening: Option<Opening>,
    /// The operation that has closed the manager.
    closing: Option<OpId>,
    ended: bool,
}

/// The first connection, while a caller waits for it.
#[derive(Debug)]
struct Opening {
    op: OpId,
    until: Mono,
    failure: Option<Failure>,
}

impl Lifecycle {
    pub(super) fn begin(&mut self, context: &Context, op: OpId) {
        let until = context.now + context.config.open_patience;
        self.opening = Some(Opening { op, until, failure: None });
    }

    pub(super) const fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    pub(super) fn may_open_later(&mut self, context: &mut Context, failure: &Failure) -> bool {
        let curable = match failure {
            Failure::Refused(refusal) => refusal.is_transient(),
            _ => true,
        };
        match &mut self.opening {
            Some(opening) if curable && context.now < opening.until => {
                opening.failure = Some(failure.clone());
                context.timers.set(Timer::OpenDeadline, opening.until);
                true
            }
            _ => false,
        }
    }

    /// The patience for the first connection is over: ends the manager.
    pub(super) fn open_deadline(&mut self, context: &mut Context) {
        let failure = self.opening.as_mut().and_then(|opening| opening.failure.take());
        if let Some(failure) = failure {
            self.opened(context, Err(failure));
        }
    }

    /// The first connection was made, or cannot be: then the manager ends.
    pub(super) fn opened(&mut self, context: &mut Context, result: Result<(), Failure>) {
        let Some(Opening { op, .. }) = self.opening.take() else { return };
        context.timers.clear(Timer::OpenDeadline);
        let failed = result.is_err();
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(Failure::NoQuorum(causes)) => Outcome::Quorum(causes),
            Err(Failure::Refused(refusal)) => Outcome::Server { refusal, key: None },
            Err(other) => Outcome::Connection(other.to_string()),
        };
        context.complete(op, outcome);
        if failed {
            // No effect follows the end.
            context.timers.clear_all();
            context.push(Effect::Stop);
        }
    }

    pub(super) fn begin_close(&mut self, context: &mut Context, op: OpId) {
        self.closing = Some(op);
        if let Some(Opening { op, .. }) = self.opening.take() {
            context.complete(op, Outcome::Closed);
        }
        context.timers.set(Timer::CloseDeadline, context.now + context.config.command_timeout);
    }

    /// The manager that was closed has ended: the operation that has closed it, once.
    pub(super) fn end(&mut self) -> Option<OpId> {
        self.closing.filter(|_| !std::mem::replace(&mut self.ended, true))
    }

    pub(super) const fn closing(&self) -> Option<OpId> {
        self.closing
    }
}
