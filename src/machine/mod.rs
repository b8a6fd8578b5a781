//! The lock protocol of one manager. No clock, no sockets, no randomness of its own.
//!
//! Three kinds of input: [`Machine::handle_command`] (a caller wants something),
//! [`Machine::handle_reply`] (a request ended) and [`Machine::handle_event`] (the connection came
//! or went). Each appends [`Effect`]s to a list that the caller owns and carries out in order.
//! [`Machine::next_timeout`] says when [`Machine::handle_timeout`] is due.
//!
//! `now` is the first argument of every input and never goes back.

mod acquire;
mod extend;
mod link;
mod release;
mod renew;
#[cfg(test)]
mod tests;

pub use renew::{Hold, LossReason};

use crate::clock::{Mono, ServerTime};
use crate::error::{Failure, Refusal};
use crate::keys::LockKeys;
use crate::script::{Call, Reply};
use crate::token::Token;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What stays the same for the life of a manager.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names this manager in its tokens; unique among all managers everywhere.
    pub client: String,
    /// Stands before every lock's name.
    pub prefix: String,
    /// How long a request may stay unanswered before its connection is given up.
    pub command_timeout: Duration,
}

/// Names an operation of a caller. Chosen by the caller, unique among the open ones.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct OpId(pub u32);

impl OpId {
    /// An operation that nobody waits for.
    pub const NOBODY: Self = Self(u32::MAX);
}

/// Names a lease of this manager: the number in its token.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct LeaseId(pub u64);

/// Names a request to the server. Requests are answered in the order of their numbers.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u64);

/// A caller wants something. Each ends in exactly one [`Effect::Complete`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command {
    /// Take a lock.
    Acquire {
        /// The lock's name, without prefix.
        name: String,
        /// The lease.
        ttl: Duration,
        /// How long to wait while somebody else holds it.
        wait: Wait,
        /// Who holds it, for people; part of the token. Empty for none.
        label: String,
        /// How long it is kept.
        hold: Hold,
    },
    /// End the acquire that this operation began, whatever has become of it.
    Cancel,
    /// Release all that is held, refuse all that is open, and end.
    Close,
    /// Lengthen a lease to at least `ttl` from now.
    Extend {
        /// Which lease.
        lease: LeaseId,
        /// How long, or the length it was last given.
        ttl: Option<Duration>,
    },
    /// Connect for the first time. If that fails the machine ends.
    Open,
    /// Give a lease up.
    Release {
        /// Which lease.
        lease: LeaseId,
    },
}

/// How long an acquire waits for a lock that is held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wait {
    /// Until it is granted.
    Forever,
    /// One attempt.
    Never,
    /// At most this long.
    UpTo(Duration),
}

/// How an operation ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The lock is the caller's.
    Acquired {
        /// The new lease.
        lease: LeaseId,
        /// Strictly greater than every fence issued for this lock before.
        fence: u64,
    },
    /// The caller did not want to wait any longer.
    Cancelled,
    /// The manager was closed.
    Closed,
    /// No answer in time; what was asked may have happened and is undone as soon as the server
    /// is reachable.
    Connection(String),
    /// Done.
    Done,
    /// Somebody else holds the lock, and the caller did not want to wait.
    Held,
    /// A defect of holdfast; what was asked may have happened.
    Internal,
    /// The lease had ended before.
    Lost,
    /// The server refused.
    Server {
        /// What it said.
        refusal: Refusal,
        /// The key it was about.
        key: Option<String>,
    },
    /// Somebody else held the lock for as long as the caller was ready to wait.
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
        /// The value of the lock.
        holder: String,
        /// How long the holder's lease lasted when last asked; none if it never ends by itself.
        remaining: Option<Duration>,
    },
}

/// Something happened to the connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// An attempt to connect succeeded.
    Connected(Look),
    /// An attempt to connect failed.
    ConnectFailed(Failure),
    /// The connection broke.
    Disconnected(String),
    /// The server answered [`Effect::Look`].
    Looked(Look),
    /// JavaScript gave a sign of life at this time.
    Turned(Mono),
}

/// Which data the server holds, and its time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Look {
    /// Names the history of the data: it changes with every promotion and every restart. None
    /// where the server keeps it to itself.
    pub history: Option<String>,
    /// The server's clock.
    pub time: ServerTime,
}

/// What the machine wants done. The driver carries effects out in order and never retries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Effect {
    /// An operation ended.
    Complete {
        /// Which.
        op: OpId,
        /// How.
        outcome: Outcome,
    },
    /// Connect; answered by [`Event::Connected`] or [`Event::ConnectFailed`].
    Connect,
    /// Give the connection up. `abort`: drop what is still unsent, so that nothing arrives late.
    Disconnect {
        /// Whether the connection is suspect.
        abort: bool,
    },
    /// Ask which data the server holds; answered by [`Event::Looked`].
    Look,
    /// A lease ended that its caller had not released. Once for each.
    Lose {
        /// Which.
        lease: LeaseId,
        /// How.
        reason: LossReason,
    },
    /// Ask JavaScript for a sign of life; answered by [`Event::Turned`].
    Ping,
    /// Call a script; answered by [`Machine::handle_reply`].
    Send {
        /// Names the answer.
        request: RequestId,
        /// What to call.
        call: Call,
        /// Send the whole script, since the server did not know its hash.
        with_source: bool,
    },
    /// Until when a lease is valid; none when it has ended.
    SetDeadline {
        /// Which lease.
        lease: LeaseId,
        /// The moment before which the server cannot let another in.
        until: Option<Mono>,
    },
    /// The machine has ended; nothing will follow.
    Stop,
}

/// The lock protocol of one manager.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    rng: fastrand::Rng,
    link: link::Link,
    /// Whether `Close` was commanded, and by whom.
    closing: Option<OpId>,
    next_lease: u64,
    next_request: u64,
    acquires: BTreeMap<OpId, acquire::Acquire>,
    extends: BTreeMap<OpId, extend::Extend>,
    leases: BTreeMap<LeaseId, Lease>,
    pulse: renew::Pulse,
    releases: BTreeMap<LeaseId, release::Release>,
    /// Requests without an answer, oldest first.
    requests: BTreeMap<RequestId, Request>,
    timers: BTreeSet<(Mono, Timer)>,
}

/// A lock that this manager holds, by its own clock.
#[derive(Debug)]
struct Lease {
    keys: LockKeys,
    token: Token,
    ttl: Duration,
    until: Mono,
    granted: Mono,
    hold: Hold,
    renewal: renew::Renewal,
    /// An acquire of this token was lost and may still be executed: release it twice.
    uncertain: bool,
}

impl Lease {
    /// The call that makes this lease last at least `ttl`.
    fn extension(&self, ttl: Duration) -> Call {
        Call::Extend { keys: self.keys.clone(), token: self.token.clone(), ttl }
    }
}

#[derive(Debug)]
struct Request {
    purpose: Purpose,
    sent: Mono,
}

#[derive(Clone, Copy, Debug)]
enum Purpose {
    Acquire(OpId),
    Extend(OpId),
    Release(LeaseId),
    Renew(LeaseId),
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Timer {
    AcquireDeadline(OpId),
    AcquireRetry(OpId),
    CloseDeadline,
    ExtendDeadline(OpId),
    HoldEnd(LeaseId),
    LeaseEnd(LeaseId),
    Reconnect,
    ReleaseDeadline(LeaseId),
    ReleaseRetry(LeaseId),
    Renew(LeaseId),
}

impl Machine {
    /// A machine that has done nothing yet. `seed` decides its jitter.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            rng: fastrand::Rng::with_seed(seed),
            link: link::Link::default(),
            closing: None,
            next_lease: 0,
            next_request: 0,
            acquires: BTreeMap::new(),
            extends: BTreeMap::new(),
            leases: BTreeMap::new(),
            pulse: renew::Pulse::default(),
            releases: BTreeMap::new(),
            requests: BTreeMap::new(),
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
            Command::Acquire { name, ttl, wait, label, hold } => {
                self.begin_acquire(now, op, &name, ttl, wait, label, hold, out);
            }
            Command::Cancel => self.end_acquire(now, op, Outcome::Cancelled, out),
            Command::Close => self.begin_close(now, op, out),
            Command::Extend { lease, ttl } => self.begin_extend(now, op, lease, ttl, out),
            Command::Open => self.open(op, out),
            Command::Release { lease } => self.begin_release(now, op, lease, out),
        }
    }

    /// A request ended. Does nothing if `request` is unknown or was given up before.
    pub fn handle_reply(
        &mut self,
        now: Mono,
        request: RequestId,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        let Some(Request { purpose, sent }) = self.requests.remove(&request) else {
            return;
        };
        self.link.judge(&reply);
        let lost = match &reply {
            Err(Failure::Lost(detail)) => Some(detail.clone()),
            _ => None,
        };
        self.end_request(now, request, purpose, sent, reply, out);
        if let Some(detail) = lost {
            // The connection may have died unnoticed, behind its handshake: it is not believed.
            self.disconnected(now, &detail, true, out);
        }
    }

    /// Something happened to the connection.
    pub fn handle_event(&mut self, now: Mono, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Connected(look) => self.connected(now, look, out),
            Event::ConnectFailed(failure) => self.connect_failed(now, failure, out),
            Event::Disconnected(detail) => self.disconnected(now, &detail, false, out),
            Event::Looked(look) => self.link.learn(look),
            Event::Turned(at) => self.pulse.feel(at),
        }
    }

    /// Deadlines have passed. Early or repeated calls change nothing.
    pub fn handle_timeout(&mut self, now: Mono, out: &mut Vec<Effect>) {
        if self.request_timeout().is_some_and(|at| at <= now) {
            let ms = self.config.command_timeout.as_millis();
            self.disconnected(now, &format!("no answer within {ms} ms"), true, out);
        }
        while let Some(&(at, timer)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            match timer {
                Timer::AcquireDeadline(op) => self.acquire_deadline(now, op, out),
                Timer::AcquireRetry(op) => self.send_acquire(now, op, false, out),
                Timer::CloseDeadline => self.finish_close(out),
                Timer::ExtendDeadline(op) => self.extend_deadline(op, out),
                Timer::HoldEnd(lease) => self.hold_end(now, lease, out),
                Timer::LeaseEnd(lease) => self.lease_end(now, lease, out),
                Timer::Reconnect => out.push(Effect::Connect),
                Timer::ReleaseDeadline(lease) => self.release_deadline(lease, out),
                Timer::ReleaseRetry(lease) => self.send_release(now, lease, false, out),
                Timer::Renew(lease) => self.renewal_due(now, lease, out),
            }
        }
    }

    /// When [`Self::handle_timeout`] is due next, if at all.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Mono> {
        let timer = self.timers.first().map(|&(at, _)| at);
        [timer, self.request_timeout()].into_iter().flatten().min()
    }

    /// Whether every operation, request and lease has ended.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.acquires.is_empty()
            && self.extends.is_empty()
            && self.leases.is_empty()
            && self.releases.is_empty()
            && self.requests.is_empty()
            && self.timers.is_empty()
    }

    /// Requests are answered in order, so the oldest one decides.
    fn request_timeout(&self) -> Option<Mono> {
        let (_, oldest) = self.requests.first_key_value()?;
        Some(oldest.sent + self.config.command_timeout)
    }

    fn end_request(
        &mut self,
        now: Mono,
        request: RequestId,
        purpose: Purpose,
        sent: Mono,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        match purpose {
            Purpose::Acquire(op) => self.acquire_reply(now, op, request, sent, reply, out),
            Purpose::Extend(op) => self.extend_reply(now, op, request, sent, reply, out),
            Purpose::Release(lease) => self.release_reply(now, lease, sent, reply, out),
            Purpose::Renew(lease) => self.renewal_reply(now, lease, sent, &reply, out),
        }
    }

    /// Asks the server, if it is connected. The caller asks again when it is.
    fn send(
        &mut self,
        now: Mono,
        purpose: Purpose,
        call: Call,
        with_source: bool,
        out: &mut Vec<Effect>,
    ) -> Option<RequestId> {
        if !self.link.is_up() {
            return None;
        }
        if self.link.look_due(now, matches!(purpose, Purpose::Acquire(_))) {
            out.push(Effect::Look);
        }
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.requests.insert(request, Request { purpose, sent: now });
        out.push(Effect::Send { request, call, with_source });
        Some(request)
    }

    /// The outcome of an operation that got no answer for `patience`.
    fn unanswered(&self, patience: Duration) -> Outcome {
        Outcome::Connection(if self.link.is_up() {
            format!("no answer within {} ms", patience.as_millis())
        } else {
            self.link.trouble.clone()
        })
    }

    fn new_lease_id(&mut self) -> LeaseId {
        self.next_lease += 1;
        LeaseId(self.next_lease)
    }

    /// A time between `least_ms` and `most_ms`, so that many clients do not move in step.
    fn jitter(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_micros(self.rng.u64(least_ms * 1000..most_ms * 1000))
    }
}
