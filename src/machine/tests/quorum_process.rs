//! One process of the quorum's simulator: its manager, and its connections to the servers.

use super::defects::Defect;
use super::quorum_defects::{self, Flaw};
use super::quorum_watch::Extensions;
use super::server::Server;
use crate::machine::{
    Command, Effect, Event, LeaseId, NodeId, OpId, Outcome, Protocol, Quorum, RequestId, SendMode,
};
use crate::protocol::{Call, Failure, Message, Mono, Reply, Token};
use std::collections::{BTreeMap, VecDeque};

/// A request in flight.
pub(super) struct Asked {
    pub(super) request: RequestId,
    pub(super) call: Call,
    pub(super) with_source: bool,
}

/// One process's connection to one server.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent")]
pub(super) struct Connection {
    pub(super) connecting: bool,
    pub(super) up: bool,
    pub(super) subscriber: u64,
    pub(super) listens: bool,
    /// A message that a lock may be free is in flight.
    pub(super) told: bool,
    pub(super) wire: VecDeque<Asked>,
    pub(super) answers: VecDeque<(RequestId, Result<Reply, Failure>)>,
    pub(super) cut_off_until: Option<Mono>,
}

impl Connection {
    /// Whether a request on the wire can take the lock.
    pub(super) fn takes_lock(&self) -> bool {
        let takes = |call: &Call| matches!(call, Call::Vote { .. } | Call::CopyLock { .. });
        self.wire.iter().any(|asked| takes(&asked.call))
    }
}

pub(super) struct Process {
    pub(super) client: String,
    pub(super) quorum: Quorum,
    pub(super) servers: Vec<Server>,
    pub(super) connections: Vec<Connection>,
    /// The requests on the wire of a lost connection.
    pub(super) dropped: Vec<(usize, Call)>,
    pub(super) drift_ppm: i64,
    pub(super) now: Mono,
    pub(super) stopped_until: Option<Mono>,
    pub(super) next_op: u32,
    /// The open operations, and their start times.
    pub(super) open: BTreeMap<OpId, Mono>,
    pub(super) outcomes: Vec<(OpId, Outcome)>,
    pub(super) held: Vec<(LeaseId, u64)>,
    pub(super) deadlines: BTreeMap<LeaseId, Mono>,
    /// The last lease that ended, and its deadline.
    pub(super) ended: Option<(LeaseId, Mono)>,
    pub(super) extensions: Extensions,
    /// The first broken rule.
    pub(super) broken: Option<&'static str>,
}

impl Process {
    pub(super) fn input(&mut self, give: impl FnOnce(&mut Quorum, Mono, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        give(&mut self.quorum, self.now, &mut out);
        quorum_defects::spoil(&mut self.quorum);
        for effect in out {
            self.perform(effect);
        }
    }

    /// The connection to a server is gone.
    pub(super) fn disconnect(&mut self, node: usize) {
        let connection = &mut self.connections[node];
        connection.up = false;
        connection.listens = false;
        connection.told = false;
        self.dropped.extend(connection.wire.drain(..).map(|asked| (node, asked.call)));
        connection.answers.clear();
        self.servers[node].unsubscribe(connection.subscriber);
    }

    pub(super) fn perform(&mut self, effect: Effect) {
        let index = |node: NodeId| usize::from(node.0);
        match effect {
            Effect::Complete { op, outcome } => self.outcomes.push((op, outcome)),
            Effect::Connect { node } => {
                // Whichever of several attempts succeeds, one connection comes of them.
                self.connections[index(node)].connecting = true;
            }
            Effect::StopConnecting { node } => self.connections[index(node)].connecting = false,
            Effect::Disconnect { node, .. } => self.disconnect(index(node)),
            Effect::Listen { node, channel } => {
                let connection = &mut self.connections[index(node)];
                connection.listens = true;
                self.servers[index(node)].subscribe(connection.subscriber, &channel);
                self.event(index(node), Event::Listening { channel, on: true });
            }
            Effect::Ping => self.event(0, Event::Heartbeat(self.now)),
            Effect::Track { node, keys, token } => {
                let subscriber = self.connections[index(node)].subscriber;
                if self.servers[index(node)].track(self.now, &keys, token.as_ref(), subscriber) {
                    self.event(index(node), Event::Message(Message::Changed(keys)));
                }
            }
            Effect::Send { node, request, call, send_mode } => {
                let with_source = send_mode == SendMode::WithSource;
                self.judge(index(node), request, &call, with_source);
                let connection = &mut self.connections[index(node)];
                assert!(connection.up, "a request without a connection");
                let ahead = matches!(call, Call::Withdraw { .. }) && Flaw::WithdrawnAhead.is_on();
                let index = if ahead { 0 } else { connection.wire.len() };
                connection.wire.insert(index, Asked { request, call, with_source });
            }
            Effect::SetDeadline { lease, until: Some(until) } => {
                self.deadlines.insert(lease, until);
            }
            Effect::SetDeadline { lease, until: None } => {
                self.ended = self.deadlines.remove(&lease).map(|until| (lease, until));
            }
            Effect::Lose { lease, .. } => {
                let early = self.ended.is_some_and(|(id, until)| id == lease && until > self.now);
                if early && !self.extensions.is_denied(&self.token(lease), self.connections.len()) {
                    self.broken = Some("a lock was given up though no majority denies it");
                }
            }
            Effect::Unlisten { node, .. } => {
                let connection = &mut self.connections[index(node)];
                connection.listens = false;
                self.servers[index(node)].unsubscribe(connection.subscriber);
            }
            Effect::Notify(_) => {}
            Effect::Confirm { .. } | Effect::Discover | Effect::Probe { .. } | Effect::Stop => {
                panic!("{effect:?}")
            }
        }
    }

    pub(super) fn event(&mut self, node: usize, event: Event) {
        let node = NodeId(u16::try_from(node).unwrap());
        self.input(|quorum, now, out| quorum.handle_event(now, node, event, out));
    }

    pub(super) fn command(&mut self, began: Mono, command: Command) {
        self.next_op += 1;
        let op = OpId(self.next_op);
        self.open.insert(op, began);
        self.input(|quorum, now, out| quorum.handle_command(now, op, command, out));
    }

    /// Judges a request at its sending.
    fn judge(&mut self, node: usize, request: RequestId, call: &Call, again: bool) {
        self.extensions.asked(self.now, request, call);
        if let Call::CopyLock { token, .. } = call
            && !again
            && !self.extensions.may_copy(node, token.as_str(), self.connections.len() / 2 + 1)
        {
            self.broken = Some("a lock is copied though no majority carries it");
        }
    }

    pub(super) fn token(&self, lease: LeaseId) -> String {
        Token::new(&self.client, lease.token_id().0, "").as_str().to_owned()
    }

    /// Whether its lock was handed off in this process.
    pub(super) fn is_handed_off(lease: LeaseId) -> bool {
        lease != LeaseId::first(lease.token_id())
    }

    /// The tokens of its believed locks, and whether they were handed off.
    pub(super) fn leases(&self, clock: Mono) -> impl Iterator<Item = (String, bool)> {
        let valid = self.deadlines.iter().filter(move |(_, until)| **until > clock);
        valid.map(|(lease, _)| (self.token(*lease), Self::is_handed_off(*lease)))
    }

    pub(super) fn reply(&mut self, node: usize, request: RequestId, reply: Result<Reply, Failure>) {
        match reply {
            Ok(Reply::Owner(carries)) => self.extensions.answered(node, request, carries),
            Err(Failure::NoScript) => self.extensions.refused(request),
            _ => {}
        }
        let reply = reply.map(quorum_defects::distort);
        if Defect::ValidFromReply.is_on() {
            let now = self.now;
            self.quorum.inner().servers.redate(now);
        }
        let node = NodeId(u16::try_from(node).unwrap());
        self.input(|quorum, now, out| quorum.handle_reply(now, node, request, reply, out));
        self.extensions.repeated = None;
    }

    pub(super) fn pass(&mut self, end: Mono) {
        while let Some(at) = self.quorum.next_timeout()
            && at <= end
        {
            self.now = self.now.max(at);
            self.input(Quorum::handle_timeout);
        }
        self.now = self.now.max(end);
    }
}
