//! Input of a manager that no socket brings.

use super::attempts::Generation;
use super::shared::lock;
use super::ticket::Ticket;
use crate::machine::{Command, NodeId, OpId};
use crate::protocol::query::Question;
use crate::protocol::{Failure, Routes};
use crate::server::{Connection, Incoming, Welcome};
use std::sync::Mutex;
use tokio::sync::Notify;

/// Input from a caller.
pub enum Submission {
    /// Starts an operation, which the core always completes.
    Begin(OpId, Command),
    /// Queries holders and waiters.
    Query(Ticket, Question),
    /// Ends an acquire, if it is still open. The outcome is that acquire's.
    Cancel(OpId),
}

/// Input from the tasks of the keeper and from other managers.
pub(super) enum Input {
    Connected(NodeId, Generation, Result<(Connection, Welcome), Failure>),
    Discovered(Result<Routes, Failure>),
    Incoming(NodeId, Generation, Incoming),
}

/// That input, until the next turn.
pub(super) struct Mail {
    /// None once the manager has ended.
    inputs: Mutex<Option<Vec<Input>>>,
    /// Wakes the keeper.
    wake: Notify,
}

impl Mail {
    pub(super) fn new() -> Self {
        Self { inputs: Mutex::new(Some(Vec::new())), wake: Notify::new() }
    }

    /// After the end of the manager it has no taker, and a connection in it closes at once.
    pub(super) fn put(&self, input: Input) {
        if let Some(inputs) = &mut *lock(&self.inputs) {
            inputs.push(input);
        }
        self.wake.notify_one();
    }

    pub(super) fn take(&self) -> Vec<Input> {
        lock(&self.inputs).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The manager has ended.
    pub(super) fn end(&self) {
        let rest = lock(&self.inputs).take();
        drop(rest);
        self.wake.notify_one();
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.inputs).as_ref().is_none_or(Vec::is_empty)
    }

    /// Wakes the keeper.
    pub(super) fn wake_keeper(&self) {
        self.wake.notify_one();
    }

    pub(super) async fn arrived(&self) {
        self.wake.notified().await;
    }
}
