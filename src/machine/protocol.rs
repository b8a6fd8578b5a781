//! The interface of a manager: on one server (or one for each slot), or on several at once.

use super::interface::{Command, Effect, Event};
use super::stats::Stats;
use crate::protocol::{Failure, Mono, NodeId, OpId, Reply, RequestId, ServerTime};

/// The inputs and outputs of a manager's protocol. `now` never goes back, and effects are appended to `out`, to be
/// carried out in order.
pub trait Protocol: Send {
    /// A caller starts an operation.
    fn handle_command(&mut self, now: Mono, op: OpId, command: Command, out: &mut Vec<Effect>);

    /// A request ended. Does nothing if `request` is unknown or was given up before.
    fn handle_reply(
        &mut self,
        now: Mono,
        node: NodeId,
        request: RequestId,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    );

    /// The connection to `node` has changed, or a message has come.
    fn handle_event(&mut self, now: Mono, node: NodeId, event: Event, out: &mut Vec<Effect>);

    /// Deadlines have passed. Early or repeated calls change nothing.
    fn handle_timeout(&mut self, now: Mono, out: &mut Vec<Effect>);

    /// When [`Self::handle_timeout`] is due next, if at all.
    fn next_timeout(&self) -> Option<Mono>;

    /// Whether every operation, request and lease has ended.
    fn is_idle(&self) -> bool;

    /// What the clock of the server of the lock `name` shows, give or take a round trip; none if it is unknown.
    fn server_time(&self, now: Mono, name: &str) -> Option<ServerTime>;

    /// The counters of this manager.
    fn stats(&self) -> Stats;
}
