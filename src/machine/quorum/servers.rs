//! The servers of a quorum: the connection to each, its uptime, and when they are enough.

use super::ballot::{Vote, majority};
use super::candidacy::NodeRequest;
use crate::machine::connection::{self, Connection, InFlight};
use crate::machine::context::Context;
use crate::machine::interface::{Effect, Event, Notice};
use crate::machine::timers::Timer;
use crate::protocol::quorum::Settings;
use crate::protocol::{
    COUNTER_AHEAD_MAX, Denied, FENCE_MAX, Failure, Mono, NodeId, Reply, RequestId, Risk, SendMode,
    ServerProbe, ServerTime,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// Servers report uptime in whole seconds, and keys outlive their leases a little.
const UPTIME_MARGIN: Duration = Duration::from_secs(1);

/// How far a proposed fence is ahead of the servers' clocks, in µs: time for the way there. After a loss of the counters,
/// fences go on from the clocks, so they must not be far behind.
const PROPOSAL_AHEAD_US: u64 = 50_000;

#[derive(Debug)]
pub(super) struct Servers {
    settings: Settings,
    /// By node number.
    list: Vec<Server>,
    /// Whether it is not certain yet that a majority can be connected. Once a majority is, the others have a moment
    /// more, until [`Timer::OpenDeadline`].
    opening: bool,
    last_request: u64,
}

#[derive(Debug)]
struct Server {
    connection: Connection<NodeRequest>,
    /// The replication id, which names its run and its data.
    replication_id: Option<String>,
    /// Its uptime, and when it was read; none if it is not shown.
    uptime: Option<(Duration, Mono)>,
    /// Whether it tells of changed keys.
    tells: bool,
    /// Its clock, and a time before it was read or soon after; none before the first connection.
    clock: Option<(ServerTime, Mono)>,
}

impl Servers {
    pub(super) fn new(settings: Settings) -> Self {
        let new = |_| Server {
            connection: Connection::new(),
            replication_id: None,
            uptime: None,
            tells: false,
            clock: None,
        };
        let list = settings.servers.iter().map(new).collect();
        Self { settings, list, opening: false, last_request: 0 }
    }

    pub(super) fn all(&self) -> Range<usize> {
        0..self.list.len()
    }

    /// Pushes an effect for every connected server.
    pub(super) fn push_to_all_up(&self, context: &mut Context, effect: impl Fn(NodeId) -> Effect) {
        let up = self.all().filter(|node| self.list[*node].connection.is_up());
        context.effects.extend(up.map(|node| effect(node_id(node))));
    }

    /// The same to those that tell of changed keys.
    pub(super) fn push_to_all_that_tell(
        &self,
        context: &mut Context,
        effect: impl Fn(NodeId) -> Effect,
    ) {
        let tells = |node: &usize| self.list[*node].tells && self.list[*node].connection.is_up();
        context.effects.extend(self.all().filter(tells).map(|node| effect(node_id(node))));
    }

    fn count(&self, is: impl Fn(&Connection<NodeRequest>) -> bool) -> usize {
        self.list.iter().filter(|server| is(&server.connection)).count()
    }

    /// Since when a server is silent, if one is; none if nothing is asked.
    pub(super) fn silent_since(&self) -> Option<Mono> {
        self.list.iter().filter_map(|server| server.connection.silent_since()).min()
    }

    /// When something is due next: a timer, or an answer.
    pub(super) fn next_timeout(&self, context: &mut Context) -> Option<Mono> {
        let silence = self.silent_since().map(|since| since + context.config.command_timeout);
        [context.timers.next(), silence].into_iter().flatten().min()
    }

    /// The servers that have been asked and silent for too long, and how to tell so.
    pub(super) fn silent(&self, context: &Context) -> (Vec<usize>, String) {
        let patience = context.config.command_timeout;
        let since = |node: usize| self.list[node].connection.silent_since();
        let is_silent =
            |node: &usize| since(*node).is_some_and(|since| since + patience <= context.now);
        let detail = format!("no answer within {} ms", patience.as_millis());
        (self.all().filter(is_silent).collect(), detail)
    }

    /// How long a server may take to withdraw, and at most for one round of an election.
    pub(super) const fn node_timeout(&self) -> Duration {
        self.settings.node_timeout
    }

    /// How long a server may take for the round of an election in which the fence is written.
    pub(super) fn round_patience(&self, context: &Context) -> Duration {
        self.node_timeout().min(context.config.command_timeout / 4)
    }

    /// How long a server may take for one round: little of the lease, which counts from the start of the round.
    pub(super) fn patience(&self, context: &Context, ttl: Duration) -> Duration {
        self.round_patience(context).min(ttl / 10)
    }

    /// A longer lease than known is taken: a server that restarts has no vote for as long.
    pub(super) fn note_lease(&mut self, ttl: Duration) {
        if let Some(longest) = &mut self.settings.longest_lease {
            *longest = ttl.max(*longest);
        }
    }

    /// A server read its clock after `sent`.
    pub(super) fn note_clock(&mut self, node: usize, sent: Mono, time: ServerTime) {
        self.list[node].clock = Some((time, sent));
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn forget_clocks(&mut self) {
        self.list.iter_mut().for_each(|server| server.clock = None);
    }

    /// A fence that no server's clock has reached when it arrives there, unless it takes long; none while no clock is
    /// known. Only the number of rounds of an election depends on it.
    pub(super) fn proposal(&self, context: &Context) -> Option<u64> {
        let sound = self.all().filter(|node| !self.is_clock_ahead(context, *node));
        let clocks = sound.filter_map(|node| self.clock_us(context, node));
        let proposal = clocks.max()?.saturating_add(PROPOSAL_AHEAD_US);
        (proposal <= FENCE_MAX).then_some(proposal)
    }

    /// The time on a server's clock now, in µs; none before the first connection.
    fn clock_us(&self, context: &Context, node: usize) -> Option<u64> {
        let (time, at) = self.list[node].clock?;
        let since_us = u64::try_from(context.now.since(at).as_micros()).unwrap_or(u64::MAX);
        Some(time.as_micros().saturating_add(since_us))
    }

    /// Whether a server's clock is so far ahead of those of most servers that they would refuse the fences that follow it.
    pub(super) fn is_clock_ahead(&self, context: &Context, node: usize) -> bool {
        let Some(own_us) = self.clock_us(context, node) else { return false };
        let known = self.all().filter_map(|other| self.clock_us(context, other));
        let is_behind = |other_us: &u64| {
            u128::from(own_us.saturating_sub(*other_us)) > COUNTER_AHEAD_MAX.as_micros()
        };
        known.clone().filter(is_behind).count() * 2 >= known.count()
    }

    /// The vote of a server that is asked now: awaited, if it is connected.
    pub(super) fn vote_of(&self, node: usize) -> Vote {
        let connection = &self.list[node].connection;
        if connection.is_up() { Vote::Awaited } else { Vote::Failed(connection.last_error.clone()) }
    }

    /// The vote of a server that is asked for a lock now: awaited, unless it has none.
    pub(super) fn vote_in_election(
        &self,
        context: &Context,
        node: usize,
        patience: Duration,
    ) -> Vote {
        match self.vote_of(node) {
            Vote::Awaited => {
                self.ineligible_reason(context, node, patience).map_or(Vote::Awaited, Vote::Failed)
            }
            failed => failed,
        }
    }

    /// Why a connected server cannot be asked for a lock now, if so. A server that has restarted may have lost locks:
    /// until the longest of them would have ended it has no vote.
    fn ineligible_reason(
        &self,
        context: &Context,
        node: usize,
        patience: Duration,
    ) -> Option<String> {
        let (server, now, silent) = (&self.list[node], context.now, self.silence(context, node));
        if silent > patience {
            return Some(format!("no answer for {} ms", silent.as_millis()));
        }
        let needed = self.settings.longest_lease? + UPTIME_MARGIN;
        let Some((uptime, read)) = server.uptime else {
            return Some("its uptime is not known: INFO is needed, or longestLease: 0".to_owned());
        };
        let up = uptime + now.since(read);
        (up <= needed).then(|| {
            format!(
                "it started {} ms ago and has no vote within {} ms of that",
                up.as_millis(),
                needed.as_millis()
            )
        })
    }

    /// Sends a request to one server, after all earlier ones. False if that is not connected.
    pub(super) fn send(
        &mut self,
        context: &mut Context,
        node: usize,
        request: NodeRequest,
    ) -> bool {
        let is_up = self.list[node].connection.is_up();
        if is_up {
            self.send_as(context, node, request, SendMode::Plain);
        }
        is_up
    }

    pub(super) fn send_as(
        &mut self,
        context: &mut Context,
        node: usize,
        request: NodeRequest,
        send_mode: SendMode,
    ) {
        context.stats.requests += 1;
        self.last_request += 1;
        let (id, call) = (RequestId(self.last_request), request.call.clone());
        self.list[node].connection.add(id, context.now, request);
        context.push(Effect::Send { node: node_id(node), request: id, call, send_mode });
    }

    /// Takes a request that was answered or lost.
    pub(super) fn take(
        &mut self,
        context: &mut Context,
        node: usize,
        id: RequestId,
        reply: &Result<Reply, Failure>,
    ) -> Option<InFlight<NodeRequest>> {
        let connection = &mut self.list[node].connection;
        let answered = connection.take(id, context.now)?;
        if !matches!(reply, Err(Failure::Lost(_))) {
            connection.answered(context, node_id(node));
        }
        Some(answered)
    }

    pub(super) fn connect_all(&mut self, context: &mut Context) {
        self.opening = true;
        for node in self.all() {
            if self.list[node].connection.want() {
                connection::attempt(context, node_id(node), None);
            }
        }
    }

    pub(super) fn connected(
        &mut self,
        context: &mut Context,
        node: usize,
        probe: ServerProbe,
        risks: Vec<Risk>,
        denied: &Denied,
    ) {
        let server = &mut self.list[node];
        server.tells = !denied.tracking;
        if server.connection.connected(context, node_id(node)) {
            context.push(Effect::Notify(Notice::Reconnected));
        }
        server.replication_id = probe.replication_id;
        server.uptime = probe.uptime.map(|uptime| (uptime, context.now));
        server.clock = Some((probe.time, context.now));
        self.notify_same_server(context, node);
        for risk in risks {
            context.push(Effect::Notify(Notice::Risk(risk)));
        }
    }

    /// Notifies of one server with two names, which would have two votes.
    fn notify_same_server(&self, context: &mut Context, node: usize) {
        let replication_id = |node: usize| self.list[node].replication_id.as_ref();
        let is_same =
            |other: &usize| *other != node && replication_id(*other) == replication_id(node);
        for other in self.all().filter(|other| replication_id(node).is_some() && is_same(other)) {
            let names =
                format!("{} and {}", self.name(node.min(other)), self.name(node.max(other)));
            context.effects.push(Effect::Notify(Notice::SameServer(names)));
        }
    }

    fn name(&self, node: usize) -> &str {
        self.settings.servers.get(node).map_or("", String::as_str)
    }

    /// An attempt failed, and another one follows. `within`: how soon a lease needs that, as below.
    pub(super) fn connect_failed(
        &mut self,
        context: &mut Context,
        node: usize,
        failure: &Failure,
        within: Option<Duration>,
    ) {
        let connection = &mut self.list[node].connection;
        if let Some(refusal) = connection.failed(context, node_id(node), failure, within) {
            let name = self.name(node).to_owned();
            context.push(Effect::Notify(Notice::LoginRefused(name, refusal)));
        }
    }

    /// A lease waits for these servers, unless they have answered all that they were asked.
    pub(super) fn press(&mut self, context: &mut Context, nodes: &[usize], within: Duration) {
        for node in nodes {
            let connection = &mut self.list[*node].connection;
            if !connection.is_up() || connection.oldest().is_some() {
                connection.press(context, node_id(*node), within);
            }
        }
    }

    /// Whether enough servers are connected for a majority.
    pub(super) fn has_majority(&self) -> bool {
        self.count(Connection::is_up) >= majority(self.list.len())
    }

    /// A connection is lost or given up: returns its requests in flight; none if it was not up.
    pub(super) fn disconnected(
        &mut self,
        context: &mut Context,
        node: usize,
        detail: &str,
        within: Option<Duration>,
    ) -> Option<VecDeque<InFlight<NodeRequest>>> {
        let in_flight = self.lost(context, node, detail)?;
        // Unsent or undelivered bytes must not arrive later: their locks are withdrawn after reconnecting.
        context.push(Effect::Disconnect { node: node_id(node), abort: true });
        self.list[node].connection.reconnect(context, node_id(node), within);
        Some(in_flight)
    }

    /// A connection has ended, or another one has answered first: returns its requests in flight; none if it was not up.
    pub(super) fn lost(
        &mut self,
        context: &mut Context,
        node: usize,
        detail: &str,
    ) -> Option<VecDeque<InFlight<NodeRequest>>> {
        let in_flight = self.list[node].connection.lost(detail)?;
        let notice = Notice::Disconnected(format!("{}: {detail}", self.name(node)));
        context.push(Effect::Notify(notice));
        Some(in_flight)
    }

    /// How long a server has left its oldest request unanswered.
    pub(super) fn silence(&self, context: &Context, node: usize) -> Duration {
        let oldest = self.list[node].connection.oldest();
        oldest.map_or(Duration::ZERO, |sent| context.now.since(sent))
    }

    /// A server denies subscriptions. Returns whether most do.
    pub(super) fn pubsub_denied(&mut self, node: usize) -> bool {
        self.list[node].connection.pubsub_denied = true;
        self.count(|connection| connection.pubsub_denied) >= majority(self.list.len())
    }

    /// A server tells of no changed keys any more. Returns whether none does.
    pub(super) fn tracking_denied(&mut self, node: usize) -> bool {
        self.list[node].tells = false;
        !self.list.iter().any(|server| server.tells)
    }

    /// The virtual server's first event, once it is certain whether a majority can be connected.
    pub(super) fn opened(&mut self, context: &mut Context) -> Option<Event> {
        if !self.opening {
            return None;
        }
        let (all, majority) = (self.list.len(), majority(self.list.len()));
        let (up, tried) = (self.count(Connection::is_up), self.count(Connection::was_tried));
        if up >= majority && tried == all {
            return Some(self.open_now(context));
        }
        if up >= majority && context.timers.at(Timer::OpenDeadline).is_none() {
            // With all servers the first locks are as safe as the later ones.
            context.timers.set(Timer::OpenDeadline, context.now + self.node_timeout());
        }
        (up < majority && tried - up > all - majority).then(|| {
            self.opening = false;
            context.timers.clear_all();
            Event::ConnectFailed(Failure::NoQuorum(self.last_errors()))
        })
    }

    /// Enough servers are connected. From now on the machine counts as connected: each ballot finds out which servers
    /// are.
    pub(super) fn open_now(&mut self, context: &mut Context) -> Event {
        self.opening = false;
        context.timers.clear(Timer::OpenDeadline);
        let probe = ServerProbe { replication_id: None, time: ServerTime::default(), uptime: None };
        let tells = self.list.iter().any(|server| server.tells);
        let denied = Denied { tracking: !tells, ..Denied::default() };
        Event::Connected { probe, risks: Vec::new(), denied }
    }

    /// By server, why it is not connected; empty if it is.
    fn last_errors(&self) -> Vec<String> {
        let error = |Server { connection, .. }: &Server| {
            let is_missing = !connection.is_up() && connection.was_tried();
            if is_missing { connection.last_error.clone() } else { String::new() }
        };
        self.list.iter().map(error).collect()
    }

    /// The goodbyes to all servers.
    pub(super) fn goodbyes(&self) -> impl Iterator<Item = Effect> + use<> {
        self.all().map(|node| Effect::Disconnect { node: node_id(node), abort: false })
    }
}

/// The id of a server by number. All numbers fit.
pub(super) fn node_id(node: usize) -> NodeId {
    NodeId(u16::try_from(node).unwrap_or(u16::MAX))
}
