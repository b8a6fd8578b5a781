//! The servers of a manager: the connection to each, its data as far as known, the routes of locks, and the requests.

mod requests;

use super::connection::{self, Connection, InFlight};
use super::context::Context;
use super::discovery::Discovery;
use super::interface::{Effect, Notice, Outcome};
use super::request::{CallError, Finished, Open, Sent};
use super::server_data::ServerData;
use super::timers::Owner;
use super::waiting_room::WaitingRoom;
use crate::protocol::{
    Denied, Failure, LockKeys, Mono, NodeId, Reply, Risk, Routes, ServerProbe, ServerTime, Take,
};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Servers {
    list: Vec<Server>,
    /// The requests that owners wait for; the connections have the calls.
    open: Open,
    last_request: u64,
    /// The owners that wait for room on a connection, and on which.
    waiting: FxHashMap<Owner, NodeId>,
    /// Whether the manager closes: what it still sends need not make room for anything.
    closing: bool,
    routes: Routes,
    /// Whether a MOVED has changed the routes since the last discovery.
    rerouted: bool,
    /// How many connections were reported as lost whose servers have no locks any more.
    gone: u32,
    pub(super) discovery: Discovery,
    /// The channel of this manager's grants; in a Cluster each lock has a channel of that name and its own tag.
    inbox: Arc<str>,
    last_number: u32,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) connection: Connection<Sent>,
    pub(super) data: ServerData,
    /// The owners whose requests wait for room on the connection.
    pub(super) room: WaitingRoom,
}

impl Server {
    fn new() -> Self {
        Self {
            connection: Connection::new(),
            data: ServerData::default(),
            room: WaitingRoom::default(),
        }
    }
}

impl Servers {
    pub(super) fn new(inbox: Arc<str>) -> Self {
        Self { list: vec![Server::new()], inbox, ..Self::default() }
    }

    pub(super) fn at(&mut self, node: NodeId) -> &mut Server {
        let index = usize::from(node.0);
        if self.list.len() <= index {
            self.list.resize_with(index + 1, Server::new);
        }
        &mut self.list[index]
    }

    /// A server that [`Self::at`] has created before.
    pub(super) fn get(&self, node: NodeId) -> &Server {
        &self.list[usize::from(node.0)]
    }

    pub(super) fn node(&self, keys: &LockKeys) -> NodeId {
        self.routes.node(keys)
    }

    pub(super) fn of(&self, keys: &LockKeys) -> &Server {
        self.get(self.node(keys))
    }

    pub(super) fn data_of(&self, keys: &LockKeys) -> &ServerData {
        &self.of(keys).data
    }

    /// Whether the server of a lock has no connection, though one was made or tried.
    pub(super) fn is_away(&self, keys: &LockKeys) -> bool {
        let connection = &self.of(keys).connection;
        !connection.is_up() && connection.was_tried()
    }

    fn all(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..u16::try_from(self.list.len()).unwrap_or(u16::MAX)).map(NodeId)
    }

    /// Whether every wanted server is connected or has failed.
    pub(super) fn are_decided(&self) -> bool {
        let mut wanted = self.list.iter().map(|it| &it.connection).filter(|it| it.is_wanted());
        wanted.all(|connection| connection.is_up() || connection.has_failed())
    }

    /// Whether every other wanted server has failed already.
    pub(super) fn is_last(&self, node: NodeId) -> bool {
        let mut others = self.all().filter(|other| *other != node);
        others.all(|other| {
            let connection = &self.get(other).connection;
            !connection.is_wanted() || connection.has_failed()
        })
    }

    /// Since when a server is silent, if one is; none if nothing is asked.
    pub(super) fn silent_since(&self) -> Option<Mono> {
        self.list.iter().filter_map(|server| server.connection.silent_since()).min()
    }

    /// The servers that have been asked and silent for `patience`.
    pub(super) fn silent(&self, now: Mono, patience: Duration) -> Vec<NodeId> {
        let since = |node: NodeId| self.get(node).connection.silent_since();
        let is_silent = |node: &NodeId| since(*node).is_some_and(|since| since + patience <= now);
        self.all().filter(is_silent).collect()
    }

    /// The outcome of an operation on a lock that got no answer for `patience`.
    pub(super) fn unanswered(&self, keys: &LockKeys, patience: Duration) -> Outcome {
        let connection = &self.of(keys).connection;
        Outcome::Connection(if connection.is_up() {
            format!("no answer within {} ms", patience.as_millis())
        } else {
            connection.last_error.clone()
        })
    }

    /// The reading of the lock's server's clock at `at`, for the order of callers; none if it is unknown, or if there
    /// is no wait queue.
    pub(super) fn position_of(&self, context: &Context, keys: &LockKeys, at: Mono) -> Option<u64> {
        let time = self.data_of(keys).server_time(at).filter(|_| !context.config.quorum);
        time.map(ServerTime::as_micros)
    }

    /// The channel on which this manager gets the grants of a lock; empty if it cannot.
    pub(super) fn inbox(&self, context: &Context, keys: &LockKeys) -> Arc<str> {
        if self.of(keys).connection.pubsub_denied {
            Arc::from("")
        } else if context.config.cluster {
            self.shard_channel(keys)
        } else {
            Arc::clone(&self.inbox)
        }
    }

    pub(super) fn shard_channel(&self, keys: &LockKeys) -> Arc<str> {
        format!("{}:{{{}}}", self.inbox, keys.tag()).into()
    }

    /// Records the replication id that a server shows, and returns whether it has changed. Each change gets a number
    /// that no server had, by which a lease remembers the data that confirmed it.
    pub(super) fn learn(&mut self, node: NodeId, probe: ServerProbe) -> bool {
        let is_new = self.at(node).data.learn(probe);
        if is_new {
            self.number_data(node);
        }
        is_new
    }

    /// Counts the data of a server as new from now on.
    fn number_data(&mut self, node: NodeId) {
        self.last_number += 1;
        self.at(node).data.number = self.last_number;
    }

    /// Connects to a server, unless that was begun before.
    pub(super) fn want(&mut self, context: &mut Context, node: NodeId) {
        if self.at(node).connection.want() {
            connection::attempt(context, node, None);
        }
    }

    pub(super) fn connected(
        &mut self,
        context: &mut Context,
        node: NodeId,
        probe: ServerProbe,
        risks: Vec<Risk>,
        denied: Denied,
    ) {
        let (unnamed, time) = (probe.replication_id.is_none(), probe.time);
        if !self.learn(node, probe) && unnamed {
            // Without a replication id the data may be different from before.
            self.number_data(node);
        }
        let server = self.at(node);
        server.data.connected(context.now, time);
        server.data.suspect |= risks.iter().any(Risk::is_replica);
        if server.connection.connected(context, node) {
            context.push(Effect::Notify(Notice::Reconnected));
        }
        let refused = &mut server.data.refuses_plain_commands;
        let before = std::mem::replace(refused, denied.plain_commands.is_some());
        if let Some(why) = denied.plain_commands.filter(|_| !before) {
            context.push(Effect::Notify(Notice::PlainCommandsDenied(why)));
        }
        server.data.refuses_plain_renewals = denied.renewal;
        server.data.refuses_several = denied.several;
        server.data.tells = !denied.tracking;
        server.data.denies_clock = denied.clock.is_some();
        if let Some(why) = denied.clock {
            // Without a wait queue no lock is granted by a message.
            if !std::mem::replace(&mut self.at(node).connection.pubsub_denied, true) {
                context.push(Effect::Notify(Notice::ClockDenied(why)));
            }
        } else {
            self.set_pubsub_denied(context, node, denied.pubsub);
        }
        for risk in risks {
            // In a Cluster the manager discovers by itself which servers are replicas.
            if !(context.config.cluster && risk.is_replica()) {
                context.push(Effect::Notify(Notice::Risk(risk)));
            }
        }
        self.report_gone(context);
    }

    pub(super) fn set_pubsub_denied(
        &mut self,
        context: &mut Context,
        node: NodeId,
        why: Option<String>,
    ) {
        let denied = &mut self.at(node).connection.pubsub_denied;
        let before = std::mem::replace(denied, why.is_some());
        if let Some(why) = why
            && !before
        {
            context.push(Effect::Notify(Notice::PubsubDenied(why)));
        }
    }

    /// An attempt to connect failed, and another one follows. `within`: how soon a lease needs that, as below.
    pub(super) fn connect_failed(
        &mut self,
        context: &mut Context,
        node: NodeId,
        failure: &Failure,
        within: Option<Duration>,
    ) {
        if let Some(refusal) = self.at(node).connection.failed(context, node, failure, within) {
            context.push(Effect::Notify(Notice::LoginRefused(String::new(), refusal)));
        }
        self.discovery.ask_soon(context);
    }

    /// Connects once more, unless the server has no locks any more.
    pub(super) fn reconnect(
        &mut self,
        context: &mut Context,
        node: NodeId,
        within: Option<Duration>,
    ) {
        if self.routes.has(node) {
            connection::attempt(context, node, within);
            // A server that does not answer may have been replaced.
            self.discovery.ask_soon(context);
        } else if !self.get(node).connection.is_up() {
            connection::stop_attempts(context, node);
            let Server { connection, .. } = self.at(node);
            let was_lost = connection.was_lost();
            connection.end();
            self.gone += u32::from(was_lost);
            self.report_gone(context);
        }
    }

    /// Each lost connection is reported as made again, also one whose server has no locks any more: once all that have
    /// any are connected.
    fn report_gone(&mut self, context: &mut Context) {
        if self.gone > 0
            && self.routes.nodes().iter().all(|node| self.get(*node).connection.is_up())
        {
            for _ in 0..std::mem::take(&mut self.gone) {
                context.push(Effect::Notify(Notice::Reconnected));
            }
        }
    }

    /// A lease waits for a connection to its server, or for an answer on it, and needs an attempt `within` this time.
    pub(super) fn press(&mut self, context: &mut Context, keys: &LockKeys, within: Duration) {
        // A quorum knows which of its servers a lease waits for.
        if !context.config.quorum {
            let node = self.node(keys);
            self.at(node).connection.press(context, node, within);
            self.discovery.ask_soon(context);
        }
    }

    /// A connection is lost or given up: ends its requests without replies; none if it was not up. `within`: how soon a
    /// lease needs another.
    pub(super) fn disconnected(
        &mut self,
        context: &mut Context,
        node: NodeId,
        detail: &str,
        within: Option<Duration>,
    ) -> Option<Vec<Finished>> {
        let lost = self.lost(context, node, detail)?;
        let has_locks = self.routes.has(node);
        // Unsent or undelivered bytes must not arrive later: their requests are repeated, or given back.
        context.push(Effect::Disconnect { node, abort: true });
        let connection = &mut self.at(node).connection;
        if has_locks {
            connection.reconnect(context, node, within);
        } else {
            connection.back_off(context, node, within);
        }
        self.discovery.ask_soon(context);
        Some(lost)
    }

    /// A connection has ended, or another one has answered first: ends its requests without replies; none if it was not
    /// up.
    pub(super) fn lost(
        &mut self,
        context: &mut Context,
        node: NodeId,
        detail: &str,
    ) -> Option<Vec<Finished>> {
        let Server { connection, data, .. } = self.at(node);
        let in_flight = connection.lost(detail)?;
        data.forget_clocks();
        context.push(Effect::Notify(Notice::Disconnected(detail.to_owned())));
        // Those who wait ask once there is a connection, as all do that cannot ask now.
        while self.next_waiting(node).is_some() {}
        let end = |InFlight { id, sent, request }: InFlight<Sent>| {
            let reply = Err(CallError::Lost(detail.to_owned()));
            Finished { reply, ..request.ended(node, sent, self.open.end(request.owner, id)) }
        };
        Some(in_flight.into_iter().map(end).collect())
    }

    /// A request that was sent at `sent` was answered, or is lost: notes what that says about its server.
    fn answered(
        &mut self,
        context: &mut Context,
        node: NodeId,
        sent: Mono,
        reply: &Result<Reply, Failure>,
    ) {
        let server = self.at(node);
        let is_replica = is_readonly(reply);
        if !is_replica && !matches!(reply, Err(Failure::Lost(_))) {
            server.connection.answered(context, node);
        }
        // A server whose scripts cannot read the clock leaves the time out.
        if let Ok(Reply::Held(held)) = reply
            && held.time != ServerTime::default()
        {
            server.data.compare_clocks(context.now, sent, held.time);
        }
        if let Some(fence) = reply.as_ref().ok().and_then(Reply::issued) {
            server.data.issued(fence);
        }
        match reply {
            // Granting or enqueuing is a write, which a replica would have refused.
            Ok(
                Reply::Granted { .. }
                | Reply::Joined { .. }
                | Reply::HandedOff { .. }
                | Reply::Reserved { .. }
                | Reply::Take(Take::Taken { .. }),
            ) => {
                server.data.suspect = false;
            }
            Ok(Reply::Held(held)) if held.queued.is_some() => server.data.suspect = false,
            _ => server.data.suspect |= is_replica,
        }
    }

    /// The servers that leave a renewal unanswered and have no locks any more.
    pub(super) fn deserted(&self) -> Vec<NodeId> {
        let is_deserted =
            |node: &NodeId| self.get(*node).connection.is_doubted() && !self.routes.has(*node);
        self.all().filter(is_deserted).collect()
    }

    /// A server says that a lock is elsewhere.
    fn moved(&mut self, context: &mut Context, keys: &LockKeys, to: NodeId) {
        self.rerouted |= self.node(keys) != to;
        self.routes.set(keys, to);
        self.want(context, to);
        self.discovery.ask_soon(context);
    }

    /// Replaces the routes. Returns those servers among them that are connected, if anything has changed since the last
    /// call: an owner that waits for a connection to where its lock was is to ask where it is.
    pub(super) fn discovered(&mut self, context: &mut Context, routes: Routes) -> Vec<NodeId> {
        let changed = std::mem::take(&mut self.rerouted) || self.routes != routes;
        self.routes = routes;
        let mut nodes = self.routes.nodes();
        for node in &nodes {
            // Creates each server first: a resumed request may go to any of them.
            self.want(context, *node);
        }
        nodes.retain(|node| changed && self.get(*node).connection.is_up());
        self.report_gone(context);
        nodes
    }

    fn disconnect_all(&mut self, context: &mut Context) {
        for node in self.all() {
            self.at(node).connection.end();
            context.push(Effect::Disconnect { node, abort: false });
        }
    }

    /// All tell of changed keys.
    #[cfg(all(test, feature = "core"))]
    pub(super) fn tell(&mut self) {
        self.list.iter_mut().for_each(|server| server.data.tells = true);
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Server> {
        self.list.iter_mut()
    }

    /// Those who wait for room wait where they first did, though their locks have moved.
    #[cfg(all(test, feature = "core"))]
    pub(super) fn wait_where_they_were(&mut self) {
        for (index, server) in self.list.iter().enumerate().rev() {
            let node = NodeId(u16::try_from(index).unwrap_or_default());
            for owner in server.room.owners() {
                self.waiting.entry(*owner).and_modify(|now| *now = node);
            }
        }
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn set_routes(&mut self, routes: Routes) {
        self.routes = routes;
    }
}

/// Whether a server turned out to be a replica.
pub(super) fn is_readonly(reply: &Result<Reply, Failure>) -> bool {
    matches!(reply, Err(Failure::Refused(refusal)) if refusal.code == "READONLY")
}
