//! The interface of a manager: on one server (or one for each slot), or on several at once.

use super::interface::{Command, Effect, Event};
use super::stats::Stats;
use crate::protocol::{Failure, Mono, NodeId, OpId, Reply, RequestId, ServerTime, TokenId};

/// A change that a server may not know of yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UnderWay {
    /// A caller that asks for a lock.
    Acquire(OpId),
    /// An operation of one request.
    OneShot(OpId),
    /// The release of a token.
    Release(TokenId),
}

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
    fn next_timeout(&mut self) -> Option<Mono>;

    /// Whether every operation, request and lease has ended.
    fn is_idle(&self) -> bool;

    /// What the clock of the server of the lock `name` shows, give or take a round trip; none if it is unknown.
    fn server_time(&self, now: Mono, name: &str) -> Option<ServerTime>;

    /// What is on its way to a server: a query that is started now must see it.
    fn under_way(&self) -> Vec<UnderWay>;

    /// Whether something of [`Self::under_way`] still is. It ends with the reply that grants, enqueues or refuses, or
    /// with its connection.
    fn is_under_way(&self, what: UnderWay) -> bool;

    /// The counters of this manager.
    fn stats(&self) -> Stats;
}
