//! The protocol that a manager follows: on one server (or one per slot), or on several at once.

use crate::clock::Mono;
use crate::error::Failure;
use crate::machine::{
    Command, Config, Effect, Event, Machine, NodeId, OpId, Quorum, RequestId, Stats,
};
use crate::script::Reply;
use crate::server::{Address, Endpoint};

pub(super) enum Protocol {
    Quorum(Box<Quorum>),
    Single(Box<Machine>),
}

impl Protocol {
    /// The protocol that suits the address.
    pub(super) fn new(config: Config, endpoint: &Endpoint, seed: u64) -> Self {
        match &endpoint.address {
            Address::Quorum { settings, .. } => {
                Self::Quorum(Box::new(Quorum::new(config, settings.clone(), seed)))
            }
            _ => Self::Single(Box::new(Machine::new(config, seed))),
        }
    }

    pub(super) fn handle_command(
        &mut self,
        now: Mono,
        op: OpId,
        command: Command,
        out: &mut Vec<Effect>,
    ) {
        match self {
            Self::Quorum(quorum) => quorum.handle_command(now, op, command, out),
            Self::Single(machine) => machine.handle_command(now, op, command, out),
        }
    }

    pub(super) fn handle_reply(
        &mut self,
        now: Mono,
        node: NodeId,
        request: RequestId,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        match self {
            Self::Quorum(quorum) => quorum.handle_reply(now, node, request, reply, out),
            Self::Single(machine) => machine.handle_reply(now, node, request, reply, out),
        }
    }

    pub(super) fn handle_event(
        &mut self,
        now: Mono,
        node: NodeId,
        event: Event,
        out: &mut Vec<Effect>,
    ) {
        match self {
            Self::Quorum(quorum) => quorum.handle_event(now, node, event, out),
            Self::Single(machine) => machine.handle_event(now, node, event, out),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Mono, out: &mut Vec<Effect>) {
        match self {
            Self::Quorum(quorum) => quorum.handle_timeout(now, out),
            Self::Single(machine) => machine.handle_timeout(now, out),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Mono> {
        match self {
            Self::Quorum(quorum) => quorum.next_timeout(),
            Self::Single(machine) => machine.next_timeout(),
        }
    }

    pub(super) fn stats(&self) -> Stats {
        match self {
            Self::Quorum(quorum) => quorum.stats(),
            Self::Single(machine) => machine.stats(),
        }
    }
}
