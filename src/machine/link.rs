//! The connections: coming, going, and which history of the data each shows.

use super::{
    Effect, Look, Machine, Manner, News, NodeId, OpId, Outcome, Request, RequestId, Risk, Timer,
    in_order,
};
use crate::clock::{Mono, ServerTime};
use crate::error::Failure;
use crate::keys::LockKeys;
use crate::script::{DRIFT, Held, Reply};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How often the history of the data is looked at while a connection is in use.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How many histories are remembered. Forgetting one only makes its fences jump.
const HISTORIES: usize = 64;
/// The longest pause between two attempts to connect.
const BACKOFF_MS_MAX: u64 = 1_000;
/// Clocks run apart by one part of so many, more or less: an old reading is worth as much less than a new one.
const CLOCKS_APART: i128 = 10_000;
/// A fence of a new counter may be ahead of the clock by so many µs.
const FENCE_AHEAD_US: u64 = 1_000;
/// A connection that answers when it is so old is steady: its successor is made without a pause. One that answers and
/// dies at once is not, or it would be followed by a thousand others in a second.
pub(super) const STEADY_AFTER: Duration = Duration::from_millis(20);
/// Two clocks that were compared longer ago than this are not believed to run alike any more.
const CLOCKS_AGE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Link {
    state: State,
    /// Connections, made or tried, since one was steady.
    failures: u32,
    /// When the connection was made.
    connected: Mono,
    /// Whether the server was seen to be a replica and has taken no write since: it may be promoted
    /// at any moment, so every acquire is preceded by a look.
    suspect: bool,
    /// Why there is no connection, for the errors of those who wait for one.
    pub(super) trouble: String,
    /// When the history was last asked for.
    looked: Mono,
    /// A moment of ours before which the server read this time.
    clocks: Option<(Mono, ServerTime)>,
    /// The reading of this connection that was delayed least.
    closest: Option<(Mono, ServerTime)>,
    /// Requests without an answer, oldest first.
    requests: VecDeque<(RequestId, Request)>,
    /// Whether the server lets this manager neither publish nor subscribe.
    deaf: bool,
    /// Fences at or below it may be known to a history that this server has lost: sent with every
    /// request that issues fences.
    pub(super) epoch: ServerTime,
    /// A fence below it was issued for another history of the data. Unlike the epoch it is only raised
    /// by a history that has a name: without one, nothing tells whether the data is another's.
    floor: ServerTime,
    /// The server's time when this process first saw a history.
    epochs: BTreeMap<String, ServerTime>,
    /// The history that the server showed last; none if it keeps that to itself.
    shown: Option<String>,
    /// The number of that history, see [`Links::learn`].
    pub(super) history: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Nobody has asked for it yet.
    Idle,
    /// It is made for the first time.
    First,
    /// It was there, and is made anew.
    Down,
    Up,
}

/// The connections by their servers.
#[derive(Debug)]
pub(super) struct Links {
    nodes: Vec<Link>,
    /// Where grants are told to this manager; in a Cluster each lock has a channel of that name and its own tag.
    pub(super) inbox: Arc<str>,
    opening: Option<Opening>,
    /// The number of the history that was seen last.
    last_history: u32,
}

/// The first connection, while somebody waits for it.
#[derive(Debug)]
struct Opening {
    op: OpId,
    /// Until when it is tried again.
    until: Mono,
    /// Why it could not be made last.
    failure: Option<Failure>,
}

impl Links {
    pub(super) fn new(inbox: Arc<str>) -> Self {
        Self { nodes: vec![Link::new()], inbox, opening: None, last_history: 0 }
    }

    /// Takes note of the history that a server shows, and says whether it is another one than before. Each change
    /// gets a number that no server had: a lease remembers by it which history has confirmed it.
    pub(super) fn learn(&mut self, node: NodeId, look: Look) -> bool {
        let link = self.at(node);
        let changed = link.shown != look.history || link.history == 0;
        link.shown.clone_from(&look.history);
        link.learn(look);
        if changed {
            self.number_history(node);
        }
        changed
    }

    /// From now on the data of a server count as another history.
    fn number_history(&mut self, node: NodeId) {
        self.last_history += 1;
        self.at(node).history = self.last_history;
    }

    pub(super) fn at(&mut self, node: NodeId) -> &mut Link {
        let index = usize::from(node.0);
        if self.nodes.len() <= index {
            self.nodes.resize_with(index + 1, Link::new);
        }
        &mut self.nodes[index]
    }

    /// The connection to a server that was named before.
    pub(super) fn get(&self, node: NodeId) -> &Link {
        &self.nodes[usize::from(node.0)]
    }

    fn all(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..u16::try_from(self.nodes.len()).unwrap_or(u16::MAX)).map(NodeId)
    }

    /// Whether every other server that was asked for has failed already.
    fn is_last(&self, node: NodeId) -> bool {
        let others = self.all().filter(|other| *other != node).map(|other| self.get(other));
        let mut wanted = others.filter(|link| link.state != State::Idle);
        wanted.all(|link| link.failures > 0)
    }

    /// Whether every server that was asked for is connected or has failed.
    fn is_decided(&self) -> bool {
        let mut wanted = self.nodes.iter().filter(|link| link.state != State::Idle);
        wanted.all(|link| link.is_up() || link.failures > 0)
    }

    /// When the oldest request without an answer was sent.
    pub(super) fn oldest_request(&self) -> Option<Mono> {
        self.nodes.iter().filter_map(Link::oldest_request).min()
    }

    /// All that was asked was asked now.
    #[cfg(all(test, feature = "driver"))]
    pub(super) fn redate(&mut self, now: Mono) {
        for (_, request) in self.nodes.iter_mut().flat_map(|link| &mut link.requests) {
            request.sent = now;
        }
    }

    /// The servers that have not answered a request for so long.
    pub(super) fn silent_since(&self, now: Mono, patience: Duration) -> Vec<NodeId> {
        let is_silent = |node: &NodeId| {
            self.get(*node).oldest_request().is_some_and(|sent| sent + patience <= now)
        };
        self.all().filter(is_silent).collect()
    }
}

impl Link {
    const fn new() -> Self {
        Self {
            state: State::Idle,
            failures: 0,
            connected: Mono::from_micros(0),
            suspect: false,
            trouble: String::new(),
            looked: Mono::from_micros(0),
            clocks: None,
            closest: None,
            requests: VecDeque::new(),
            deaf: false,
            epoch: ServerTime::from_micros(0),
            floor: ServerTime::from_micros(0),
            epochs: BTreeMap::new(),
            shown: None,
            history: 0,
        }
    }

    pub(super) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up)
    }

    /// What a reply says about the server it came from.
    pub(super) fn judge(&mut self, now: Mono, reply: &Result<Reply, Failure>) {
        let replica = is_readonly(reply);
        let answered = !replica && !matches!(reply, Err(Failure::Lost(_)));
        if answered && now.since(self.connected) >= STEADY_AFTER {
            self.failures = 0;
        }
        match reply {
            // To grant a lock or a place in line is to write, which a replica would have refused.
            Ok(Reply::Granted { .. } | Reply::Held(Held { place: Some(_), .. })) => {
                self.suspect = false;
            }
            _ if replica => self.suspect = true,
            Ok(_) | Err(_) => {}
        }
    }

    pub(super) const fn is_deaf(&self) -> bool {
        self.deaf
    }

    pub(super) fn add_request(&mut self, id: RequestId, request: Request) {
        self.requests.push_back((id, request));
    }

    /// A request that was answered. Answers come in the order of the requests, so it is the first one,
    /// or was given up before.
    pub(super) fn take_request(&mut self, id: RequestId) -> Option<Request> {
        let place = self.requests.partition_point(|(other, _)| *other < id);
        self.requests.get(place).filter(|(other, _)| *other == id)?;
        self.requests.remove(place).map(|(_, request)| request)
    }

    fn oldest_request(&self) -> Option<Mono> {
        self.requests.front().map(|(_, request)| request.sent)
    }

    /// The server read `time` after `sent`.
    pub(super) fn compare_clocks(&mut self, sent: Mono, time: ServerTime) {
        self.clocks = Some((sent, time));
        // How far the server's clock is ahead, and by how much too far that is told: the time until it was read.
        let ahead = |(sent, read): (Mono, ServerTime)| {
            i128::from(read.as_micros()) - i128::from(sent.as_micros())
        };
        let is_closer = self.closest.is_none_or(|closest| {
            let apart_us = i128::from(sent.as_micros()) - i128::from(closest.0.as_micros());
            ahead((sent, time)) <= ahead(closest) + apart_us / CLOCKS_APART
        });
        if is_closer {
            self.closest = self.clocks;
        }
    }

    /// A moment of ours before the server's clock showed `time`; none if that cannot be told.
    ///
    /// The clock was read after our request left, so counting from there is on the safe side, less what
    /// clocks that run at different speeds may have drifted apart since.
    pub(super) fn local_time(&self, now: Mono, time: ServerTime) -> Option<Mono> {
        let (sent, read) = self.clocks.filter(|(sent, _)| now.since(*sent) <= CLOCKS_AGE_MAX)?;
        let apart_us = time.as_micros().abs_diff(read.as_micros());
        let us = (sent.as_micros() + time.as_micros()).checked_sub(read.as_micros())?;
        us.checked_sub(apart_us / u64::from(DRIFT)).map(Mono::from_micros)
    }

    /// What the server's clock showed when a request reached it that was sent at `at` and was not delayed; none if
    /// nothing is known of it. It decides the order of callers and nothing else.
    pub(super) fn server_time(&self, at: Mono) -> Option<ServerTime> {
        let (sent, read) = self.closest?;
        let us = (read.as_micros() + at.as_micros()).checked_sub(sent.as_micros())?;
        Some(ServerTime::from_micros(us))
    }

    /// Whether a fence is ahead of the server's clock, as far as that is known. A counter begins at the clock and rises
    /// by less than one a µs, so none is but for a moment after its first use, or if the clock was set back.
    pub(super) fn is_from_the_future(&self, now: Mono, fence: u64) -> bool {
        let latest_us = self.clocks.map_or(0, |(sent, read)| {
            let since_us = now.as_micros().saturating_sub(sent.as_micros());
            read.as_micros() + since_us + since_us / u64::from(DRIFT) + FENCE_AHEAD_US
        });
        fence > latest_us
    }

    /// Whether the history must be looked at before the next request.
    pub(super) fn look_due(&mut self, now: Mono, issues_fences: bool) -> bool {
        let due = now.since(self.looked) >= LOOK_INTERVAL || (self.suspect && issues_fences);
        if due {
            self.looked = now;
        }
        due
    }

    /// An epoch belongs to a history: it is the server's time when this process first saw it, so a
    /// return to a known history does not raise it. Without a history every look raises it.
    fn learn(&mut self, look: Look) {
        let Look { history, time, .. } = look;
        self.epoch = match history {
            None => self.epoch.max(time),
            Some(history) => {
                if self.epochs.len() >= HISTORIES && !self.epochs.contains_key(&history) {
                    self.epochs.clear();
                }
                self.floor = *self.epochs.entry(history).or_insert(time);
                self.floor
            }
        };
    }

    /// Whether a fence was issued for another history of the data, and may be issued again.
    pub(super) const fn is_outdated(&self, fence: u64) -> bool {
        fence < self.floor.as_micros()
    }
}

/// Whether a server turned out to be a replica.
pub(super) fn is_readonly(reply: &Result<Reply, Failure>) -> bool {
    matches!(reply, Err(Failure::Refused(refusal)) if refusal.code == "READONLY")
}

impl Machine {
    pub(super) fn open(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        let until = now + self.config.open_patience;
        self.links.opening = Some(Opening { op, until, failure: None });
        if self.config.cluster {
            self.discover(now, out);
        } else {
            self.want(NodeId::default(), out);
        }
    }

    /// Whether the first connection is still to be made.
    pub(super) const fn is_opening(&self) -> bool {
        self.links.opening.is_some()
    }

    /// The first connection was made, or cannot be.
    pub(super) fn opened(&mut self, result: Result<(), Failure>, out: &mut Vec<Effect>) {
        let Some(Opening { op, .. }) = self.links.opening.take() else { return };
        self.timers.retain(|(_, timer)| *timer != Timer::OpenDeadline);
        let failed = result.is_err();
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(Failure::NoQuorum(causes)) => Outcome::Quorum(causes),
            Err(Failure::Refused(refusal)) => Outcome::Server { refusal, key: None },
            Err(other) => Outcome::Connection(other.to_string()),
        };
        out.push(Effect::Complete { op, outcome });
        if failed {
            // Nothing follows the end.
            self.timers.clear();
            out.push(Effect::Stop);
        }
    }

    /// The manager is open once every server that it began with is connected or has failed.
    fn opened_if_decided(&mut self, out: &mut Vec<Effect>) {
        if self.links.is_decided() {
            self.opened(Ok(()), out);
        }
    }

    /// Somebody has to do with a server: connects, if nobody did so far.
    pub(super) fn want(&mut self, node: NodeId, out: &mut Vec<Effect>) {
        let link = self.links.at(node);
        if link.state == State::Idle {
            link.state = State::First;
            "not connected yet".clone_into(&mut link.trouble);
            out.push(Effect::Connect { node });
        }
    }

    /// Where a grant of a lock can be told to this manager; empty if nowhere.
    pub(super) fn inbox(&self, keys: &LockKeys) -> Arc<str> {
        if self.link_of(keys).deaf {
            Arc::from("")
        } else if self.config.cluster {
            self.channel(keys)
        } else {
            Arc::clone(&self.links.inbox)
        }
    }

    pub(super) fn connected(
        &mut self,
        now: Mono,
        node: NodeId,
        look: Look,
        risks: Vec<Risk>,
        deaf: Option<String>,
        out: &mut Vec<Effect>,
    ) {
        let unnamed = look.history.is_none();
        if !self.links.learn(node, look) && unnamed {
            // Nothing tells whether the data are those of before.
            self.links.number_history(node);
        }
        let link = self.links.at(node);
        link.looked = now;
        link.connected = now;
        (link.clocks, link.closest) = (None, None);
        link.suspect |= risks.iter().any(Risk::is_replica);
        if std::mem::replace(&mut link.state, State::Up) == State::Down {
            out.push(Effect::Tell(News::Reconnected));
        }
        self.set_deaf(node, deaf, out);
        // Who is whose replica in a Cluster, the manager finds out by itself.
        let risks = risks.into_iter().filter(|risk| !(self.config.cluster && risk.is_replica()));
        out.extend(risks.map(|risk| Effect::Tell(News::Risk(risk))));
        self.opened_if_decided(out);
        self.resume(now, node, out);
    }

    /// Whether a server lets this manager neither publish nor subscribe, and why.
    pub(super) fn set_deaf(&mut self, node: NodeId, why: Option<String>, out: &mut Vec<Effect>) {
        let link = self.links.at(node);
        let was_deaf = std::mem::replace(&mut link.deaf, why.is_some());
        if let Some(why) = why
            && !was_deaf
        {
            out.push(Effect::Tell(News::Deaf(why)));
        }
    }

    /// Asks a server for everything that waits for its answer. Releases first: what this manager no
    /// longer wants must not stand in its own way.
    pub(super) fn resume(&mut self, now: Mono, node: NodeId, out: &mut Vec<Effect>) {
        let here = |machine: &Self, keys: &LockKeys| machine.routes.node(keys) == node;
        for id in in_order(&self.releases) {
            if self.releases.get(&id).is_some_and(|release| here(self, &release.keys)) {
                self.send_release(now, id, Manner::Plain, out);
            }
        }
        self.resume_renewals(now, node, out);
        for op in in_order(&self.extends) {
            // Also those that were sent elsewhere while their slot moved to a server without a connection.
            self.send_extend(now, op, Manner::Plain, out);
        }
        for op in in_order(&self.errands) {
            self.send_errand(now, op, Manner::Plain, out);
        }
        for id in in_order(&self.attempts) {
            if self.attempts.get(&id).is_some_and(|attempt| here(self, &attempt.keys)) {
                self.send_attempt(now, id, Manner::Plain, out);
            }
        }
    }

    pub(super) fn connect_failed(
        &mut self,
        now: Mono,
        node: NodeId,
        failure: Failure,
        out: &mut Vec<Effect>,
    ) {
        let refused = matches!(failure, Failure::Refused(_));
        if self.is_opening() && (!self.config.cluster || refused || self.links.is_last(node)) {
            if self.may_open_later(now, &failure) {
                return self.reconnect_later(now, node);
            }
            return self.opened(Err(failure), out);
        }
        let link = self.links.at(node);
        link.trouble = format!("not connected: {failure}");
        self.reconnect_later(now, node);
        self.discover_soon(now);
        self.opened_if_decided(out);
    }

    /// Whether the first connection is to be tried again after this failure.
    fn may_open_later(&mut self, now: Mono, failure: &Failure) -> bool {
        let curable = match failure {
            Failure::Refused(refusal) => refusal.is_transient(),
            _ => true,
        };
        match &mut self.links.opening {
            Some(opening) if curable && now < opening.until => {
                opening.failure = Some(failure.clone());
                self.timers.insert((opening.until, Timer::OpenDeadline));
                true
            }
            _ => false,
        }
    }

    /// Nobody waits any longer for the first connection.
    pub(super) fn open_deadline(&mut self, out: &mut Vec<Effect>) {
        let failure = self.links.opening.as_mut().and_then(|opening| opening.failure.take());
        if let Some(failure) = failure {
            self.opened(Err(failure), out);
        }
    }

    fn reconnect_later(&mut self, now: Mono, node: NodeId) {
        let link = self.links.at(node);
        link.failures += 1;
        let most_ms = (50_u64 << (link.failures - 1).min(10)).min(BACKOFF_MS_MAX);
        let pause = self.jitter((most_ms / 2, most_ms));
        self.timers.insert((now + pause, Timer::Reconnect(node)));
    }

    /// Connects again, unless the server has no locks any more.
    pub(super) fn reconnect(&mut self, node: NodeId, out: &mut Vec<Effect>) {
        if self.routes.has(node) {
            out.push(Effect::Connect { node });
        } else {
            self.links.at(node).state = State::Idle;
        }
    }

    /// The connection is gone, or is given up.
    pub(super) fn disconnected(
        &mut self,
        now: Mono,
        node: NodeId,
        detail: &str,
        out: &mut Vec<Effect>,
    ) {
        let link = self.links.at(node);
        if !link.is_up() {
            return;
        }
        link.state = State::Down;
        (link.clocks, link.closest) = (None, None);
        let first = link.failures == 0;
        detail.clone_into(&mut link.trouble);
        let requests = std::mem::take(&mut link.requests);
        // What is unsent or undelivered may not arrive later: it is asked for again, or given back.
        out.push(Effect::Disconnect { node, abort: true });
        out.push(Effect::Tell(News::Disconnected(detail.to_owned())));
        if first && self.routes.has(node) {
            self.links.at(node).failures = 1;
            out.push(Effect::Connect { node });
        } else {
            // The last one answered nothing either: another one at once would hardly do better.
            self.reconnect_later(now, node);
        }
        self.forget_channels_of(node);
        self.forget_confirmations(node);
        self.discover_soon(now);
        for (request, Request { purpose, sent, .. }) in requests {
            let lost = Err(Failure::Lost(detail.to_owned()));
            self.end_request(now, node, request, purpose, sent, lost, out);
        }
    }

    /// Refuses what is open, gives back what is held and not to be kept, and ends once the server has confirmed it or
    /// `command_timeout` has passed.
    pub(super) fn begin_close(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        self.closing = Some(op);
        if let Some(Opening { op, .. }) = self.links.opening.take() {
            out.push(Effect::Complete { op, outcome: Outcome::Closed });
        }
        for op in in_order(&self.extends) {
            self.end_extend(op, Outcome::Closed, out);
        }
        self.end_errands(now, out);
        self.release_undecided(now, out);
        for op in in_order(&self.acquires) {
            self.end_acquire(now, op, Outcome::Closed, out);
        }
        for id in in_order(&self.leases) {
            if self.leases.get(&id).is_some_and(|held| held.keep) {
                self.remove_lease(id, out);
            } else {
                self.give_up_lease(now, id, out);
            }
        }
        self.timers.insert((now + self.config.command_timeout, Timer::CloseDeadline));
        self.finish_close_if_done(out);
    }

    pub(super) fn finish_close_if_done(&mut self, out: &mut Vec<Effect>) {
        // A release that only waits to be repeated does not keep the caller waiting.
        if self.closing.is_some()
            && self.releases.values().all(|release| release.confirmed.is_some())
        {
            self.finish_close(out);
        }
    }

    pub(super) fn finish_close(&mut self, out: &mut Vec<Effect>) {
        let Some(op) = self.closing else { return };
        for release in std::mem::take(&mut self.releases).into_values() {
            if let Some(op) = release.op {
                let outcome = Outcome::Connection(self.link_of(&release.keys).trouble.clone());
                out.push(Effect::Complete { op, outcome });
            }
        }
        self.timers.clear();
        self.channels.clear();
        out.push(Effect::Complete { op, outcome: Outcome::Done });
        for node in self.links.all() {
            let link = self.links.at(node);
            link.requests.clear();
            link.state = State::Idle;
            out.push(Effect::Disconnect { node, abort: false });
        }
        out.push(Effect::Stop);
    }
}
