//! The lock protocol of one manager. No clock, no sockets, no randomness of its own.
//!
//! Three kinds of input: [`Machine::handle_command`] (a caller wants something),
//! [`Machine::handle_reply`] (a request ended) and [`Machine::handle_event`] (the connection came
//! or went). Each appends [`Effect`]s to a list that the caller owns and carries out in order.
//! [`Machine::next_timeout`] says when [`Machine::handle_timeout`] is due.
//!
//! `now` is the first argument of every input and never goes back.

mod acquire;
mod attempt;
mod confirm;
mod errand;
mod extend;
#[cfg(all(any(test, fuzzing), feature = "driver"))]
#[expect(clippy::panic, reason = "a fuzzer learns so that a promise is broken")]
pub(crate) mod fuzz;
mod hand_on;
mod interface;
mod link;
mod quorum;
mod release;
mod renew;
mod routes;
mod stats;
#[cfg(test)]
#[cfg(feature = "driver")]
mod tests;

pub use interface::{
    AttemptId, Command, Config, Effect, Event, LeaseId, Look, Manner, News, NodeId, OpId, Outcome,
    RequestId, Risk, Wait,
};
pub use quorum::{Quorum, Settings};
pub use renew::{Hold, LossReason};
pub use routes::Routes;
pub use stats::Stats;

use crate::clock::Mono;
use crate::error::Failure;
use crate::keys::LockKeys;
use crate::message::{self, Message};
use crate::script::{Call, Mode, Reply};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The lock protocol of one manager.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    rng: fastrand::Rng,
    links: link::Links,
    /// Whether `Close` was commanded, and by whom.
    closing: Option<OpId>,
    last_attempt: u64,
    last_request: u64,
    last_ticket: u64,
    stats: Stats,
    // Those of which there may be very many are boxed, since a map that grows is half empty.
    acquires: FxHashMap<OpId, Box<acquire::Acquire>>,
    attempts: FxHashMap<AttemptId, attempt::Attempt>,
    errands: FxHashMap<OpId, errand::Errand>,
    extends: FxHashMap<OpId, extend::Extend>,
    leases: FxHashMap<AttemptId, Box<Lease>>,
    lines: FxHashMap<LockKeys, acquire::Line>,
    pulse: renew::Pulse,
    /// Releases that wait for the answer to a renewal, to hand the lock on.
    undecided: FxHashMap<AttemptId, release::Undecided>,
    releases: FxHashMap<AttemptId, release::Release>,
    routes: Routes,
    /// When the routes were last asked for, and whether an answer is still missing.
    discovery: routes::Discovery,
    /// The shard channels that it listens to.
    channels: FxHashMap<Arc<str>, routes::Channel>,
    timers: BTreeSet<(Mono, Timer)>,
}

/// A lock that this manager holds, by its own clock. There may be very many, so what can be computed is not
/// kept.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent")]
struct Lease {
    /// Whose hold it is now.
    id: LeaseId,
    keys: LockKeys,
    /// The label in its token, which [`Machine::token_of`] writes out.
    label: Box<str>,
    mode: Mode,
    fence: u64,
    ttl: Duration,
    until: Mono,
    /// How long it may be handed on here.
    turn: hand_on::Turn,
    /// Which history of the data has confirmed it last, by its number.
    history: u32,
    /// When the last answer that confirmed it was asked for.
    confirmed: Mono,
    /// See [`Hold`].
    renew: bool,
    keep: bool,
    stall_timeout_ms: u64,
    /// When its caller has had it for as long as it may be held.
    hold_end: Mono,
    /// What must be asked of the server, also if the lease is not renewed.
    owed: Option<renew::Owed>,
    /// When the next renewal is due.
    renewal: Option<Mono>,
    /// Whether a request for one is under way.
    renewing: bool,
    /// Whether a message says that it was taken away.
    notice: renew::Notice,
    /// Whether renewal pauses because JavaScript gives no sign of life.
    stalled: bool,
    /// An acquire of this token was lost and may still be executed: release it twice.
    uncertain: bool,
}

#[derive(Debug)]
struct Request {
    purpose: Purpose,
    manner: Manner,
    sent: Mono,
}

#[derive(Clone, Copy, Debug)]
enum Purpose {
    Attempt(AttemptId),
    /// Of an attempt, to keep its entry in the queue while its slot moves.
    Entry(AttemptId),
    Errand(OpId),
    Extend(OpId),
    Release(AttemptId),
    /// Of a lease, for so long from when it was sent.
    Renew(AttemptId, Duration),
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Timer {
    AcquireDeadline(OpId),
    AttemptRetry(AttemptId),
    CloseDeadline,
    Discover,
    ErrandDeadline(OpId),
    ErrandRetry(OpId),
    ExtendDeadline(OpId),
    ExtendRetry(OpId),
    Forget,
    /// Whatever a lease plans next: of each there is one.
    Lease(AttemptId),
    OpenDeadline,
    Reconnect(NodeId),
    ReleaseDeadline(AttemptId),
    ReleaseRetry(AttemptId),
}

/// The names in `map`, the oldest first.
fn in_order<K: Copy + Ord, V>(map: &FxHashMap<K, V>) -> Vec<K> {
    let mut names: Vec<K> = map.keys().copied().collect();
    names.sort_unstable();
    names
}

impl Machine {
    /// A machine that has done nothing yet. `seed` decides its jitter.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        let inbox = message::inbox(&config.secret);
        Self {
            config,
            rng: fastrand::Rng::with_seed(seed),
            links: link::Links::new(inbox),
            closing: None,
            last_attempt: 0,
            last_request: 0,
            last_ticket: 0,
            stats: Stats::default(),
            acquires: FxHashMap::default(),
            attempts: FxHashMap::default(),
            errands: FxHashMap::default(),
            extends: FxHashMap::default(),
            leases: FxHashMap::default(),
            lines: FxHashMap::default(),
            pulse: renew::Pulse::default(),
            undecided: FxHashMap::default(),
            releases: FxHashMap::default(),
            routes: Routes::default(),
            discovery: routes::Discovery::default(),
            channels: FxHashMap::default(),
            timers: BTreeSet::new(),
        }
    }

    /// A caller wants something.
    pub fn handle_command(&mut self, now: Mono, op: OpId, command: Command, out: &mut Vec<Effect>) {
        if self.closing.is_some() && command != Command::Cancel {
            let outcome = match command {
                Command::Close => Outcome::Done,
                _ => Outcome::Closed,
            };
            return out.push(Effect::Complete { op, outcome });
        }
        match command {
            Command::Acquire { name, ttl, wait, label, hold, mode } => {
                self.begin_acquire(now, op, &name, ttl, wait, label, hold, mode, out);
            }
            Command::Adopt { name, owner, ttl, hold, mode } => {
                self.begin_adopt(now, op, &name, &owner, ttl, hold, mode, out);
            }
            Command::Cancel => {
                self.end_acquire(now, op, Outcome::Cancelled, out);
                self.cancel_errand(now, op, out);
            }
            Command::Close => self.begin_close(now, op, out),
            Command::Downgrade { lease } => self.begin_downgrade(now, op, lease, out),
            Command::Extend { lease, ttl } => self.begin_extend(now, op, lease, ttl, out),
            Command::Force { name, foreign } => self.begin_force(now, op, &name, foreign, out),
            Command::Together { names, ttl, label, hold } => {
                self.begin_together(now, op, &names, ttl, &label, hold, out);
            }
            Command::Open => self.open(now, op, out),
            Command::Release { lease, exported } => {
                self.begin_release(now, op, lease, exported, out);
            }
        }
    }

    /// A request ended. Does nothing if `request` is unknown or was given up before.
    pub fn handle_reply(
        &mut self,
        now: Mono,
        node: NodeId,
        request: RequestId,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        let link = self.links.at(node);
        let Some(Request { purpose, manner, sent }) = link.take_request(request) else { return };
        link.judge(now, &reply);
        let lost = match &reply {
            Err(Failure::Lost(detail)) => Some(detail.clone()),
            // Its place may have been taken by another, at the same address or not.
            reply if link::is_readonly(reply) => Some("the server is a replica now".to_owned()),
            _ => None,
        };
        let reply = self.redirected(now, purpose, manner, reply, out);
        self.end_request(now, node, request, purpose, sent, reply, out);
        if let Some(detail) = lost {
            // A connection may also have died unnoticed, behind its handshake: it is not believed.
            self.disconnected(now, node, &detail, out);
        }
    }

    /// Something happened to the connection to `node`.
    pub fn handle_event(&mut self, now: Mono, node: NodeId, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Confirmed { attempt, verdict } => self.confirmed(now, attempt, verdict, out),
            Event::Connected { look, risks, deaf } => {
                self.connected(now, node, look, risks, deaf, out);
            }
            Event::ConnectFailed(failure) => self.connect_failed(now, node, failure, out),
            Event::Deaf(why) => self.deafened(now, node, why, out),
            Event::Disconnected(detail) => self.disconnected(now, node, &detail, out),
            Event::Discovered(routes) => self.discovered(now, routes, out),
            Event::Listening { channel, on } => self.listening(now, node, &channel, on, out),
            Event::Looked { look, sent } => {
                self.links.at(node).compare_clocks(sent, look.time);
                if self.links.learn(node, look) {
                    self.resume_renewals(now, node, out);
                }
            }
            Event::Told(message) => self.told(now, node, message, out),
            Event::Turned(at) => self.pulse.feel(at),
        }
    }

    /// A script published something for this manager.
    fn told(&mut self, now: Mono, node: NodeId, message: Message, out: &mut Vec<Effect>) {
        match message {
            Message::Freed(keys) => self.ask_soon(now, &keys),
            Message::Granted(grants) => {
                for grant in grants {
                    self.granted_by_message(now, node, grant, out);
                }
            }
            Message::Taken(taken) => self.hear_of_loss(now, &taken, out),
        }
    }

    /// Deadlines have passed. Early or repeated calls change nothing.
    pub fn handle_timeout(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if let Some(patience) = self.patience() {
            for node in self.links.silent_since(now, patience) {
                let detail = format!("no answer within {} ms", patience.as_millis());
                self.disconnected(now, node, &detail, out);
            }
        }
        while let Some(&(at, timer)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            match timer {
                Timer::AcquireDeadline(op) => self.acquire_deadline(now, op, out),
                Timer::AttemptRetry(id) => self.send_attempt(now, id, Manner::Plain, out),
                Timer::CloseDeadline => self.finish_close(out),
                Timer::ErrandDeadline(op) => self.errand_deadline(now, op, out),
                Timer::ErrandRetry(op) => self.send_errand(now, op, Manner::Plain, out),
                Timer::ExtendDeadline(op) => {
                    let lease = self.extended(op);
                    self.extend_deadline(op, out);
                    self.decide_release(now, lease, out);
                }
                Timer::ExtendRetry(op) => self.send_extend(now, op, Manner::Plain, out),
                Timer::Lease(id) => self.lease_due(now, id, out),
                Timer::OpenDeadline => self.open_deadline(out),
                Timer::Discover => self.discover(now, out),
                Timer::Forget => self.forget_channels(now, out),
                Timer::Reconnect(node) => self.reconnect(node, out),
                Timer::ReleaseDeadline(id) => self.release_deadline(id, out),
                Timer::ReleaseRetry(id) => self.send_release(now, id, Manner::Plain, out),
            }
        }
    }

    /// When [`Self::handle_timeout`] is due next, if at all.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Mono> {
        let timer = self.timers.first().map(|&(at, _)| at);
        let silence = self.patience().zip(self.links.oldest_request());
        let silence = silence.map(|(patience, sent)| sent + patience);
        [timer, silence].into_iter().flatten().min()
    }

    /// How long a server may leave a request unanswered. That of a quorum may for ever: ballots end by
    /// themselves, and one that a stopped process finds out late about says nothing of the servers.
    fn patience(&self) -> Option<Duration> {
        (!self.config.quorum).then_some(self.config.command_timeout)
    }

    /// Whether every operation, request and lease has ended.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.acquires.is_empty()
            && self.attempts.is_empty()
            && self.errands.is_empty()
            && self.extends.is_empty()
            && self.leases.is_empty()
            && self.lines.is_empty()
            && self.undecided.is_empty()
            && self.releases.is_empty()
            && self.links.oldest_request().is_none()
            && self.channels.is_empty()
            && self.timers.is_empty()
    }

    /// What this manager has done so far, and what it does now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (held, waiting) = (self.leases.len() as u64, self.acquires.len() as u64);
        Stats { held, waiting, ..self.stats.clone() }
    }

    fn end_request(
        &mut self,
        now: Mono,
        node: NodeId,
        request: RequestId,
        purpose: Purpose,
        sent: Mono,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        match purpose {
            Purpose::Attempt(id) => self.attempt_reply(now, node, id, sent, reply, out),
            Purpose::Entry(id) => self.entry_reply(now, id, &reply, out),
            Purpose::Errand(op) => self.errand_reply(now, op, request, sent, reply, out),
            Purpose::Extend(op) => {
                let lease = self.extended(op);
                self.extend_reply(now, op, request, sent, reply, out);
                self.decide_release(now, lease, out);
            }
            Purpose::Release(id) => self.release_reply(now, node, id, sent, reply, out),
            Purpose::Renew(id, asked) => {
                self.renewal_reply(now, id, sent, asked, &reply, out);
                self.decide_release(now, Some(id), out);
            }
        }
    }

    /// Which lock a request is about, if anybody still wants to know.
    fn keys_for(&self, purpose: Purpose) -> Option<&LockKeys> {
        match purpose {
            Purpose::Attempt(id) | Purpose::Entry(id) => {
                self.attempts.get(&id).map(|attempt| &attempt.keys)
            }
            Purpose::Errand(op) => self.errands.get(&op).map(|errand| errand.call.keys()),
            Purpose::Extend(op) => self.extends.get(&op).map(|extend| &extend.keys),
            Purpose::Release(id) => self.releases.get(&id).map(|release| &release.keys),
            Purpose::Renew(id, _) => self.leases.get(&id).map(|held| &held.keys),
        }
    }

    /// Asks the server of the lock, if it is connected. The caller asks again when it is.
    fn send(
        &mut self,
        now: Mono,
        purpose: Purpose,
        call: Call,
        manner: Manner,
        out: &mut Vec<Effect>,
    ) -> Option<RequestId> {
        let node = match manner {
            Manner::Asking(node) => node,
            Manner::Plain | Manner::Redirected | Manner::WithSource => {
                self.routes.node(call.keys())
            }
        };
        let link = self.links.at(node);
        if !link.is_up() {
            self.want(node, out);
            return None;
        }
        let issues_fences =
            matches!(purpose, Purpose::Attempt(_) | Purpose::Errand(_) | Purpose::Release(_));
        if link.look_due(now, issues_fences) {
            out.push(Effect::Look { node, sent: now });
        }
        self.stats.requests += 1;
        self.last_request += 1;
        let request = RequestId(self.last_request);
        link.add_request(request, Request { purpose, manner, sent: now });
        out.push(Effect::Send { node, request, call, manner });
        Some(request)
    }

    /// The outcome of an operation on a lock that got no answer for `patience`.
    fn unanswered(&self, keys: &LockKeys, patience: Duration) -> Outcome {
        let link = self.link_of(keys);
        Outcome::Connection(if link.is_up() {
            format!("no answer within {} ms", patience.as_millis())
        } else {
            link.trouble.clone()
        })
    }

    /// The connection to where a lock lives.
    fn link_of(&self, keys: &LockKeys) -> &link::Link {
        self.links.get(self.routes.node(keys))
    }

    /// A time between so many ms, so that many clients do not move in step.
    fn jitter(&mut self, (least_ms, most_ms): (u64, u64)) -> Duration {
        Duration::from_micros(self.rng.u64(least_ms * 1000..most_ms * 1000))
    }
}
