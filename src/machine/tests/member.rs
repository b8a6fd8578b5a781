//! A manager of a Cluster: its connections to several servers.
//!
//! One of them is in front, and stands in the fields of [`World`]; what is done to the connection of a world is done to
//! that one.

use super::cluster_servers::{Cluster, servers};
use super::defects::{self, Defect};
use super::network::brief;
use super::server::{Server, combine};
use super::world::{Answer, World};
use crate::machine::{
    Command, Config, Effect, Event, Machine, NodeId, RequestId, Routes, SendMode, TokenId,
};
use crate::protocol::call::{Call, Intent};
use crate::protocol::clock::Mono;
use crate::protocol::error::{Failure, Refusal};
use crate::protocol::reply::Reply;
use crate::protocol::script::Script;
use crate::protocol::token::Token;
use crate::server::embedded::{Plain, Value};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Whoever keeps or ends what it has is refused so often in a row at most, while its keys can be reached: by MOVED, ASK,
/// TRYAGAIN, ASK for the keys of its share, TRYAGAIN, and ASK for the lock's own key; the renewal may be under way beside.
const REFUSED_MAX: usize = 9;

pub(super) struct Member {
    pub(super) cluster: Cluster,
    front: NodeId,
    /// The other connections; what stands at the place of the one in front means nothing.
    behind: Vec<Connection>,
    /// How each request was sent that has no answer.
    send_modes: BTreeMap<RequestId, (SendMode, Option<Script>, Token)>,
    /// The question for the routes, if it was asked.
    discovery: Option<Discovery>,
    /// How each token was refused in a row, see [`World::check_way`].
    refused: BTreeMap<Token, Vec<(NodeId, Option<Script>, Failure)>>,
    /// Nothing reaches this server or comes from it.
    pub(super) cut_off_from: Option<NodeId>,
    /// Where the slots were at first.
    first_routes: Routes,
    /// Requests that were lost, and may still arrive.
    late: Vec<(Destination, Call)>,
}

enum Discovery {
    Asked,
    Answered(Result<Routes, Failure>),
}

/// What is on its way between a manager and one server, as in [`World`].
#[derive(Default)]
pub(super) struct Connection {
    wire: VecDeque<(RequestId, Call)>,
    taking: Vec<Result<Value, Failure>>,
    answers: VecDeque<Answer>,
    connecting: bool,
    up: bool,
    shown: Option<String>,
    subscriber: u64,
    unanswered_probes: Option<VecDeque<(RequestId, Mono)>>,
    confirms: VecDeque<TokenId>,
    pub(super) shards: ShardSubscriber,
}

/// The connection for shard channels.
#[derive(Default)]
pub(super) struct ShardSubscriber {
    subscriber: u64,
    /// What is to be listened to, or no longer.
    wanted: VecDeque<(Arc<str>, bool)>,
}

/// Where a call goes, and how.
#[derive(Clone)]
pub(super) enum Destination {
    Alone(Server),
    Member(Cluster, NodeId, SendMode),
}

impl Destination {
    pub(super) fn execute(&self, now: Mono, call: &Call) -> Result<Reply, Failure> {
        match self {
            Self::Alone(server) => server.execute(now, call),
            Self::Member(cluster, node, send_mode) => cluster.execute(now, *node, *send_mode, call),
        }
    }

    /// Executes one of the plain commands of a call.
    fn execute_plain(&self, now: Mono, call: &Call, part: Plain) -> Result<Value, Failure> {
        match self {
            Self::Alone(server) => server.execute_plain(now, call, part),
            Self::Member(cluster, node, send_mode) => {
                cluster.execute_plain(now, *node, *send_mode, call, part)
            }
        }
    }

    /// Whether it leads to this server of a Cluster.
    pub(super) fn is_to(&self, node: NodeId) -> bool {
        matches!(self, Self::Member(_, to, _) if *to == node)
    }

    /// Executes a call once more that was executed.
    pub(super) fn execute_again(&self, now: Mono, call: &Call) {
        match self {
            Self::Alone(server) => server.execute_again(now, call),
            Self::Member(cluster, node, send_mode) => {
                cluster.execute_again(now, *node, *send_mode, call);
            }
        }
    }
}

impl Member {
    fn new(cluster: &Cluster) -> Self {
        let server = cluster.server();
        let connection = |_| Connection {
            subscriber: server.new_subscriber(),
            unanswered_probes: Some(VecDeque::new()),
            shards: ShardSubscriber {
                subscriber: server.new_subscriber(),
                wanted: VecDeque::new(),
            },
            ..Connection::default()
        };
        Self {
            cluster: cluster.clone(),
            front: NodeId(0),
            behind: servers().map(connection).collect(),
            send_modes: BTreeMap::new(),
            discovery: None,
            refused: BTreeMap::new(),
            cut_off_from: None,
            first_routes: cluster.routes(NodeId(0)),
            late: Vec::new(),
        }
    }
}

impl World {
    /// A manager that begins now, beside others in the same Cluster.
    pub(super) fn joining_cluster(cluster: &Cluster, client: &str, now: Mono) -> Self {
        let mut world = Self::new(client);
        world.now = now;
        world.server = cluster.server();
        let config = Config { cluster: true, started: now, ..world.machine.context.config.clone() };
        world.machine = Machine::new(config, 7);
        let mut member = Member::new(cluster);
        world.swap(&mut member.behind[0]);
        world.member = Some(Box::new(member));
        world.command(Command::Open);
        while world.is_discovering() {
            world.discover(Ok(cluster.routes(NodeId(0))));
        }
        while world.face_connecting() {
            world.connect();
        }
        world
    }

    /// Exchanges the connection in front for another one.
    fn swap(&mut self, other: &mut Connection) {
        std::mem::swap(&mut self.wire, &mut other.wire);
        std::mem::swap(&mut self.taking, &mut other.taking);
        std::mem::swap(&mut self.answers, &mut other.answers);
        std::mem::swap(&mut self.connecting, &mut other.connecting);
        std::mem::swap(&mut self.up, &mut other.up);
        std::mem::swap(&mut self.shown, &mut other.shown);
        std::mem::swap(&mut self.subscriber, &mut other.subscriber);
        std::mem::swap(&mut self.unanswered_probes, &mut other.unanswered_probes);
        std::mem::swap(&mut self.confirms, &mut other.confirms);
        std::mem::swap(&mut self.shards, &mut other.shards);
    }

    /// The server whose connection is in front.
    pub(super) fn front(&self) -> NodeId {
        self.member.as_ref().map_or_else(NodeId::default, |member| member.front)
    }

    /// Brings the connection to a server to the front. Says which one was there.
    pub(super) fn face(&mut self, node: NodeId) -> NodeId {
        let Some(mut member) = self.member.take() else { return node };
        let before = std::mem::replace(&mut member.front, node);
        self.swap(&mut member.behind[usize::from(before.0)]);
        self.swap(&mut member.behind[usize::from(node.0)]);
        self.member = Some(member);
        before
    }

    /// The servers that it may have a connection to.
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        if self.member.is_some() { servers().collect() } else { vec![NodeId::default()] }
    }

    /// Brings a connection to the front of which that is true; false if there is none.
    fn face_one(&mut self, is_meant: impl Fn(&Self) -> bool) -> bool {
        let mut nodes = self.nodes();
        nodes.rotate_left(usize::from(self.front().0));
        nodes.into_iter().any(|node| {
            self.face(node);
            is_meant(self)
        })
    }

    pub(super) fn face_connecting(&mut self) -> bool {
        self.face_one(|world| world.connecting)
    }

    pub(super) fn face_unsilent(&mut self) -> bool {
        self.face_one(|world| !world.is_silent())
    }

    /// Brings a connection to the front on which something is under way, the one that is there if possible.
    pub(super) fn face_busy(&mut self) -> bool {
        self.face_one(|world| world.connecting || !world.is_silent())
    }

    /// Whether nothing is on its way on any connection, nor the answer to a question for the routes.
    pub(super) fn is_silent_everywhere(&mut self) -> bool {
        let front = self.front();
        let silent = !self.face_unsilent();
        self.face(front);
        silent
    }

    /// Nothing keeps it from any server of a Cluster.
    pub(super) fn reach_all(&mut self) {
        if let Some(member) = &mut self.member {
            member.cut_off_from = None;
        }
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.cut_off_from == Some(member.front))
    }

    /// How a request reaches the server in front.
    pub(super) fn destination(&self, request: RequestId) -> Destination {
        let Some(member) = &self.member else { return Destination::Alone(self.server.clone()) };
        let send_mode =
            member.send_modes.get(&request).map_or(SendMode::Plain, |(send_mode, ..)| *send_mode);
        Destination::Member(member.cluster.clone(), member.front, send_mode)
    }

    /// A request is written.
    pub(super) fn note_send_mode(&mut self, request: RequestId, send_mode: SendMode, call: &Call) {
        if send_mode == SendMode::WithSource {
            self.with_source.insert(request);
        }
        if let Some(member) = &mut self.member {
            member.send_modes.insert(
                request,
                (defects::mislead(send_mode), call.script(), call.token().clone()),
            );
        }
    }

    /// The server in front executes a request.
    pub(super) fn reach_server(
        &mut self,
        request: RequestId,
        call: &Call,
    ) -> Result<Reply, Failure> {
        loop {
            if let Some(reply) = self.reach_server_step(request, call) {
                return reply;
            }
        }
    }

    /// The server in front executes a request, or the next of its plain commands; none if more of them follow.
    pub(super) fn reach_server_step(
        &mut self,
        request: RequestId,
        call: &Call,
    ) -> Option<Result<Reply, Failure>> {
        let destination = self.destination(request);
        let reply = if let Some(script) = call.script() {
            if !self.server.knows(script, self.with_source.remove(&request)) {
                return Some(Err(Failure::NoScript));
            }
            self.server.set_caller(Some(self.subscriber));
            let reply = destination.execute(self.now, call);
            self.server.set_caller(None);
            reply
        } else {
            let part = Plain::ALL[self.taking.len()];
            self.server.set_caller(Some(self.subscriber));
            self.taking.push(destination.execute_plain(self.now, call, part));
            self.server.set_caller(None);
            if self.taking.len() < Plain::ALL.len() {
                return None;
            }
            combine(call, std::mem::take(&mut self.taking))
        };
        self.check_way(call, &reply);
        if let Some(executed) = &mut self.executed {
            executed.push(format!("{}: {reply:?}", brief(call)));
        }
        Some(defects::misread(&self.machine, call, reply))
    }

    /// What was written and cannot be answered any more.
    pub(super) fn lose_wire(&mut self) -> Vec<(Destination, Call)> {
        let mut wire = std::mem::take(&mut self.wire);
        if !self.taking.is_empty() {
            // The rest of its commands changes no lock.
            self.taking.clear();
            wire.pop_front();
        }
        wire.into_iter().map(|(request, call)| (self.destination(request), call)).collect()
    }

    /// What was lost, and may still arrive.
    pub(super) fn take_late(&mut self) -> Vec<(Destination, Call)> {
        let alone = std::mem::take(&mut self.late).into_iter();
        let mut late: Vec<_> =
            alone.map(|call| (Destination::Alone(self.server.clone()), call)).collect();
        if let Some(member) = &mut self.member {
            late.append(&mut member.late);
        }
        late
    }

    /// What was lost may still arrive.
    pub(super) fn add_late(&mut self, lost: Vec<(Destination, Call)>) {
        match &mut self.member {
            Some(member) => member.late.extend(lost),
            None => self.late.extend(lost.into_iter().map(|(_, call)| call)),
        }
    }

    pub(super) fn asks_for_routes(&mut self) {
        let Some(member) = &mut self.member else { panic!("discovery is for Cluster") };
        assert!(member.discovery.is_none(), "two questions for the routes at once");
        member.discovery = Some(Discovery::Asked);
    }

    pub(super) fn is_discovering(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.discovery.is_some())
    }

    /// Somebody answers the question for the routes, or that answer arrives.
    pub(super) fn discover(&mut self, routes: Result<Routes, Failure>) {
        let Some(member) = &mut self.member else { return };
        match member.discovery.take() {
            Some(Discovery::Asked) => member.discovery = Some(Discovery::Answered(routes)),
            Some(Discovery::Answered(routes)) => self.event(Event::Discovered(routes)),
            None => {}
        }
    }

    /// A shard channel of the server in front is wanted, or no longer.
    pub(super) fn want_channel(&mut self, channel: Arc<str>, on: bool) {
        assert!(self.member.is_some(), "{channel} is for Cluster");
        self.shards.wanted.push_back((channel, on));
    }

    /// What is heard next on the connection for shard channels, if there is anything.
    pub(super) fn hear_one(&mut self) -> bool {
        let Some(member) = &self.member else { return false };
        let (cluster, node, subscriber) =
            (member.cluster.clone(), member.front, self.shards.subscriber);
        if let Some(message) = self.server.next_mail(subscriber) {
            self.event(Event::Message(message));
        } else if let Some(channel) = cluster.next_ended(node, subscriber) {
            self.event(Event::Listening { channel, on: false });
        } else if let Some((channel, on)) = self.shards.wanted.pop_front() {
            let on = cluster.listen(node, subscriber, &channel, on) && on;
            self.event(Event::Listening { channel, on });
        } else {
            return false;
        }
        true
    }

    /// Whether something is still to be heard from the server in front.
    pub(super) fn is_hearing(&self) -> bool {
        let Some(member) = &self.member else { return false };
        !self.shards.wanted.is_empty()
            || self.server.has_mail(self.shards.subscriber)
            || member.cluster.has_ended(member.front, self.shards.subscriber)
    }

    /// The connection for shard channels is gone, with all that was on its way there; the channels that it was for.
    pub(super) fn end_subscriptions(&mut self) -> Vec<Arc<str>> {
        let Some(member) = &self.member else { return Vec::new() };
        let mut channels = member.cluster.end_subscriptions(member.front, self.shards.subscriber);
        self.lose_channel_messages();
        let wanted = std::mem::take(&mut self.shards.wanted);
        channels.extend(wanted.into_iter().filter_map(|(channel, on)| on.then_some(channel)));
        channels
    }

    /// The messages of shard channels that are on their way never arrive.
    pub(super) fn lose_channel_messages(&self) {
        while self.server.next_mail(self.shards.subscriber).is_some() {}
    }

    /// Only that connection is lost.
    pub(super) fn lose_subscriptions(&mut self) {
        for channel in self.end_subscriptions() {
            self.event(Event::Listening { channel, on: false });
        }
    }

    /// A defect lets it forget what it has learned of the routes.
    pub(super) fn spoil_routes(&mut self) {
        let Some(member) = self.member.as_ref().filter(|_| Defect::RoutesKept.is_on()) else {
            return;
        };
        self.machine.servers.set_routes(member.first_routes.clone());
    }

    /// Whether a defect keeps it from a server that was not there at first.
    pub(super) fn is_stranger(&self, effect: &Effect) -> bool {
        let Some(member) = self.member.as_ref().filter(|_| Defect::StrangersIgnored.is_on()) else {
            return false;
        };
        matches!(effect, Effect::Connect { node } if !member.first_routes.nodes().contains(node))
    }

    /// Whether there is a connection to a server.
    fn is_up(&self, node: NodeId) -> bool {
        let behind = self.member.as_ref().filter(|member| member.front != node);
        behind.map_or(self.up, |member| member.behind[usize::from(node.0)].up)
    }

    /// A connection is gone: whatever was refused is asked for anew.
    pub(super) fn forget_refusals(&mut self) {
        if let Some(member) = &mut self.member {
            member.refused.clear();
        }
    }

    /// Whoever keeps or ends what it has, or keeps its queue entry, gets through while the slot moves: unless the keys
    /// for that are apart, or there is no connection to where they are, a few refusals are followed by a request that is
    /// none.
    fn check_way(&mut self, call: &Call, reply: &Result<Reply, Failure>) {
        let Some(member) = &self.member else { return };
        let refused = match reply {
            Err(Failure::Moved(to) | Failure::Moving(to)) => self.is_up(*to),
            Err(Failure::Refused(Refusal { code, .. })) => code == "TRYAGAIN",
            Err(Failure::NoScript) => return,
            _ => false,
        };
        let counts = refused && !member.cluster.is_out_of_reach(self.now, call.keys());
        let has = counts && self.has_something(call);
        let asking = self.asking(call.token());
        let Some(member) = &mut self.member else { return };
        if has && let Err(failure) = reply {
            let (token, script) = (call.token(), call.script());
            let refused = member.refused.entry(token.clone()).or_default();
            refused.push((member.front, script, failure.clone()));
            let few = refused.len() < REFUSED_MAX * asking.max(1);
            assert!(few, "{token} does not get through while its slot moves: {refused:?}");
        } else if !counts {
            member.refused.remove(call.token());
        }
    }

    /// Whether a call keeps or ends what its token has of a lock, or its queue entry.
    fn has_something(&self, call: &Call) -> bool {
        let (snapshot, token) = (self.server.snapshot(self.now, call.keys()), call.token());
        let holds = snapshot.held_ms(token.as_str()).is_some();
        let waits = snapshot.waiter(token.as_str()).is_some();
        match call {
            // A grant whose answer came too late is no lease: it is asked for once more.
            Call::Acquire { intent: Intent::Poll, .. } => waits || (holds && self.has_lease(token)),
            Call::KeepEntry { .. } => waits,
            Call::Extend { .. }
            | Call::Renew { .. }
            | Call::ExtendShare { .. }
            | Call::Free { .. }
            | Call::FreeShare { .. }
            | Call::KeepLock { .. }
            | Call::KeepShare { .. }
            | Call::HandoffShare { .. }
            | Call::Release { .. } => holds,
            _ => false,
        }
    }

    /// How many extensions and releases are under way for what a token has.
    fn asking(&self, token: &Token) -> usize {
        let shots = self.machine.one_shots.values();
        let extensions = shots.filter(|it| it.extends().is_some() && it.call.token() == token);
        let releases = self.machine.releases.values().filter(|it| it.is_of(token));
        extensions.count() + releases.count()
    }

    fn has_lease(&self, token: &Token) -> bool {
        let number = token.number(&self.machine.context.config.client);
        number.is_some_and(|number| self.machine.leases.get(TokenId(number)).is_some())
    }

    /// The script of a request that was answered, if it was sent on already and is sent on again.
    pub(super) fn sent_on(
        &mut self,
        request: RequestId,
        reply: &Result<Reply, Failure>,
    ) -> Option<(Option<Script>, Token)> {
        let (send_mode, script, token) = self.member.as_mut()?.send_modes.remove(&request)?;
        let sent_on = matches!(
            (send_mode, reply),
            (SendMode::Redirected | SendMode::Asking(_), Err(Failure::Moved(_)))
                | (SendMode::Asking(_), Err(Failure::Moving(_)))
        );
        sent_on.then_some((script, token))
    }
}

/// Whether one of these effects calls a script for a token.
pub(super) fn calls(effects: &[Effect], script: Option<Script>, token: &Token) -> bool {
    let meant = |effect: &Effect| matches!(effect, Effect::Send { call, .. } if call.script() == script && call.token() == token);
    effects.iter().any(meant)
}

/// The server that an effect is about.
pub(super) fn node_of(effect: &Effect) -> Option<NodeId> {
    match effect {
        Effect::Confirm { node, .. }
        | Effect::Connect { node }
        | Effect::Disconnect { node, .. }
        | Effect::Listen { node, .. }
        | Effect::Probe { node, .. }
        | Effect::Send { node, .. }
        | Effect::StopConnecting { node }
        | Effect::Track { node, .. }
        | Effect::Unlisten { node, .. } => Some(*node),
        _ => None,
    }
}
