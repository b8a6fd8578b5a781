//! Redlock: one lock on several servers that know nothing of each other.
//!
//! ```text
//!   driver ── Quorum ── Machine     one virtual server, whose answers are the results of ballots
//!               └────── servers     each with a connection, a deadline and withdrawals of its own
//! ```
//!
//! The [`Machine`] inside assumes one server. Each of its requests becomes a [`Ballot`]: a request to all servers at
//! once, decided as soon as the result is certain. So waiting, renewal, loss and closing are those of a single server;
//! only what several servers need is here.
//!
//! Source: <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>; the two rounds
//! that issue a fence are those of a replicated register, as ABD and Paxos write one.

mod ballot;
mod candidacy;
mod connections;
mod election;
mod hold;
mod node;
mod replies;
#[cfg(all(test, feature = "driver"))]
mod spoil;
mod wake;

use self::ballot::Ballot;
use self::candidacy::{Candidacy, NodeRequest};
use self::node::Node;
use crate::machine::Machine;
use crate::machine::interface::{Command, Config, Effect, Event, Notice, SendMode};
use crate::machine::protocol::Protocol;
use crate::machine::shard_channels::Unused;
use crate::machine::stats::Stats;
use crate::protocol::{
    Call, Failure, Intent, LockKeys, Message, Mono, NodeId, OpId, Reply, RequestId, Token,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The settings of a quorum, besides a manager's [`Config`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The names of the servers for people, without login, by node number.
    pub servers: Vec<String>,
    /// How long a server may take for one round of a ballot. At most a tenth of the lease counts.
    pub node_timeout: Duration,
    /// The longest lease that any manager takes on these servers: one that has restarted has no vote for this long,
    /// since it may have lost locks. None where the data survive every restart.
    pub longest_lease: Option<Duration>,
}

/// The protocol of one manager on several servers. The same inputs and outputs as [`Machine`].
#[derive(Debug)]
pub struct Quorum {
    machine: Machine,
    /// When the present input came.
    now: Mono,
    /// The effects of the present input, in order.
    out: Vec<Effect>,
    /// The effects of the machine, not carried out yet.
    wanted: VecDeque<Effect>,
    settings: Settings,
    nodes: Vec<Node>,
    /// By the request of the machine.
    ballots: BTreeMap<RequestId, Ballot>,
    /// The candidacies of the machine's tokens.
    candidacies: FxHashMap<Token, Candidacy>,
    /// Answers for the machine.
    verdicts: VecDeque<(RequestId, Result<Reply, Failure>)>,
    /// The subscribed channels.
    channels: BTreeMap<Arc<str>, Channel>,
    timers: BTreeSet<(Mono, Timer)>,
    last_attempt: u64,
    last_request: u64,
    requests: u64,
    opening: Opening,
    closing: Option<OpId>,
    /// The effects that end the manager, held back until the last withdrawals are through.
    shutdown_effects: Vec<Effect>,
    rng: fastrand::Rng,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Timer {
    Ballot(RequestId),
    Withdrawals(usize),
    Shutdown,
    Forget,
    Open,
    Reconnect(usize),
}

/// The first connections.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Opening {
    /// They are not wanted yet.
    #[default]
    Before,
    /// The attempts are under way, and a majority is not certain yet.
    Awaited,
    /// A majority is connected; the others have a moment more.
    Enough,
    Done,
}

/// The channel for messages that a lock may be free.
#[derive(Debug)]
struct Channel {
    keys: LockKeys,
    unused: Unused,
}

/// The only server that the machine knows.
const VIRTUAL: NodeId = NodeId(0);

impl Protocol for Quorum {
    fn handle_command(&mut self, now: Mono, op: OpId, command: Command, out: &mut Vec<Effect>) {
        self.handle(now, out, |quorum| {
            if command == Command::Close && quorum.closing.is_none() {
                quorum.closing = Some(op);
            }
            quorum.tell(|machine, now, wanted| machine.handle_command(now, op, command, wanted));
        });
    }

    fn handle_reply(
        &mut self,
        now: Mono,
        node: NodeId,
        request: RequestId,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        self.handle(now, out, |quorum| quorum.reply(usize::from(node.0), request, reply));
    }

    fn handle_event(&mut self, now: Mono, node: NodeId, event: Event, out: &mut Vec<Effect>) {
        self.handle(now, out, |quorum| {
            quorum.event(usize::from(node.0), event);
            quorum.open_if_decided();
        });
    }

    fn handle_timeout(&mut self, now: Mono, out: &mut Vec<Effect>) {
        self.handle(now, out, |quorum| {
            // The servers go first: votes that fail with their connections do not wait for a ballot's deadline.
            quorum.give_silent_up();
            quorum.timeouts();
            quorum.settle();
            if !quorum.has_left() {
                quorum.tell(Machine::handle_timeout);
            }
        });
    }

    fn next_timeout(&self) -> Option<Mono> {
        let timer = self.timers.first().map(|&(at, _)| at);
        let oldest = self.nodes.iter().filter_map(|node| node.connection.oldest()).min();
        let silence = oldest.map(|sent| sent + self.machine.config().command_timeout);
        [timer, silence, self.machine.next_timeout()].into_iter().flatten().min()
    }

    fn is_idle(&self) -> bool {
        let is_done =
            |node: &Node| node.connection.oldest().is_none() && node.withdrawals.is_empty();
        self.machine.is_idle()
            && self.ballots.is_empty()
            && self.candidacies.is_empty()
            && self.timers.is_empty()
            && self.nodes.iter().all(is_done)
    }

    /// The requests to all servers count.
    fn stats(&self) -> Stats {
        Stats { requests: self.requests, ..self.machine.stats() }
    }
}

impl Quorum {
    /// A manager that has done nothing yet. `seed` decides its jitter.
    #[must_use]
    pub fn new(config: Config, settings: Settings, seed: u64) -> Self {
        let nodes = settings.servers.iter().map(|_| Node::new()).collect();
        Self {
            machine: Machine::new(Config { quorum: true, ..config }, seed),
            now: Mono::default(),
            out: Vec::new(),
            wanted: VecDeque::new(),
            settings,
            nodes,
            ballots: BTreeMap::new(),
            candidacies: FxHashMap::default(),
            verdicts: VecDeque::new(),
            channels: BTreeMap::new(),
            timers: BTreeSet::new(),
            last_attempt: 0,
            last_request: 0,
            requests: 0,
            opening: Opening::default(),
            closing: None,
            shutdown_effects: Vec::new(),
            rng: fastrand::Rng::with_seed(!seed),
        }
    }

    /// The machine inside, for tests that corrupt it.
    #[cfg(all(test, feature = "driver"))]
    pub(in crate::machine) fn inner(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// Handles one input and all its consequences.
    fn handle(&mut self, now: Mono, out: &mut Vec<Effect>, input: impl FnOnce(&mut Self)) {
        self.now = now;
        std::mem::swap(&mut self.out, out);
        input(self);
        self.settle();
        std::mem::swap(&mut self.out, out);
    }

    /// Gives the machine an input. Its effects are kept until [`Self::settle`].
    fn tell(&mut self, input: impl FnOnce(&mut Machine, Mono, &mut Vec<Effect>)) {
        let mut wanted = Vec::new();
        input(&mut self.machine, self.now, &mut wanted);
        self.wanted.extend(wanted);
    }

    fn event(&mut self, node: usize, event: Event) {
        match event {
            Event::Connected { probe, risks, .. } => {
                self.connected(node, probe);
                self.out.extend(risks.into_iter().map(|risk| Effect::Notify(Notice::Risk(risk))));
            }
            Event::ConnectFailed(failure) => self.connect_failed(node, &failure),
            Event::PubsubDenied(why) => self.pubsub_denied(node, why),
            Event::Disconnected(detail) => self.disconnected(node, &detail),
            Event::Listening { channel, on: true } => self.listening(&channel),
            Event::Message(Message::Freed(_)) | Event::Heartbeat(_) => {
                self.tell(|machine, now, wanted| machine.handle_event(now, VIRTUAL, event, wanted));
            }
            // A quorum never asks for these.
            Event::Confirmed { .. }
            | Event::Discovered(_)
            | Event::Listening { .. }
            | Event::Probed { .. }
            | Event::Message(_) => {}
        }
    }

    fn timeouts(&mut self) {
        while let Some(&(at, timer)) = self.timers.first()
            && at <= self.now
        {
            self.timers.pop_first();
            match timer {
                Timer::Ballot(request) => self.ballot_deadline(request),
                Timer::Withdrawals(node) => self.send_withdrawals(node),
                Timer::Shutdown => {
                    self.settle();
                    return self.leave();
                }
                Timer::Forget => self.forget_channels(),
                Timer::Open => self.open_now(),
                Timer::Reconnect(node) => self.out.push(Effect::Connect { node: node_id(node) }),
            }
        }
    }

    /// Carries out the machine's effects and hands it the results of its ballots, until none is left.
    fn settle(&mut self) {
        loop {
            while let Some((request, verdict)) = self.verdicts.pop_front() {
                self.tell(|machine, now, wanted| {
                    machine.handle_reply(now, VIRTUAL, request, verdict, wanted);
                });
            }
            let Some(effect) = self.wanted.pop_front() else { break };
            match effect {
                Effect::Connect { .. } => self.connect_all(),
                Effect::Disconnect { .. } => self.disconnect_all(),
                Effect::Complete { op, .. } if Some(op) == self.closing => {
                    self.shutdown_effects.push(effect);
                }
                // The servers' replication ids do not matter: a majority remembers.
                Effect::Probe { .. } => {}
                Effect::Send { request, call, .. } => self.put_to_vote(request, call),
                Effect::Stop => self.stop(),
                other => self.out.push(other),
            }
        }
        self.leave_if_done();
    }

    /// Turns a request of the machine into a ballot.
    fn put_to_vote(&mut self, request: RequestId, call: Call) {
        match call {
            Call::Acquire { keys, token, ttl, block, intent, .. } => {
                let waits = intent != Intent::Try;
                self.elect(request, &keys, &token, ttl, block, waits);
            }
            Call::Extend { keys, token, ttl } => self.extend(request, &keys, &token, ttl),
            Call::Release { keys, token, .. } => self.withdraw(request, &keys, &token),
            _ => debug_assert!(false, "the machine does not ask {call:?}"),
        }
    }

    /// Sends a request to one server, after all earlier ones.
    fn send(&mut self, node: usize, asked: NodeRequest, send_mode: SendMode) {
        self.requests += 1;
        self.last_request += 1;
        let request = RequestId(self.last_request);
        let call = asked.call.clone();
        self.nodes[node].connection.add(request, self.now, NodeRequest { sent: self.now, ..asked });
        self.out.push(Effect::Send { node: node_id(node), request, call, send_mode });
    }

    /// How long a server may take for one round: little of the lease, which counts from the start of the round.
    fn patience(&self, ttl: Duration) -> Duration {
        self.settings.node_timeout.min(ttl / 10).min(self.machine.config().command_timeout / 4)
    }

    /// Whether an attempt is still valid: it was not given up.
    fn is_live(&self, owner: &Token, attempt: &Token) -> bool {
        self.candidacies.get(owner).is_some_and(|candidacy| candidacy.token == *attempt)
    }
}

/// The id of a server by number. All numbers fit.
fn node_id(node: usize) -> NodeId {
    NodeId(u16::try_from(node).unwrap_or(u16::MAX))
}
