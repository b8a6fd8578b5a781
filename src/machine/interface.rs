//! The interface of a manager, on one server (or one for each slot) or on several at once: its inputs and outputs.

use super::idle_locks::IdleSnapshot;
use super::stats::Stats;
use crate::protocol::query::Page;
use crate::protocol::survey::Survey;
use crate::protocol::{
    Call, Denied, Failure, Label, LeaseId, LockKeys, Message, Mode, Mono, NodeId, OpId, Refusal,
    Reply, RequestId, Risk, Routes, SendMode, ServerProbe, ServerTime, Token, TokenId,
};
use std::sync::Arc;
use std::time::Duration;

/// The settings of a manager, constant for its life.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names this manager in its tokens; unique among all managers everywhere.
    pub client: String,
    /// When the manager began: its tokens are numbered by the µs since then. Before it they are counted.
    pub started: Mono,
    /// Names its inbox, see [`crate::protocol::message::inbox`]; as unique, and never revealed.
    pub secret: String,
    /// Stands before every lock's name.
    pub prefix: String,
    /// How long a server that was asked may answer nothing before its connection is given up.
    pub command_timeout: Duration,
    /// How long attempts at the first connection are repeated. Zero where no other server can replace the first.
    pub open_patience: Duration,
    /// Whether the locks are spread over several servers by their slots.
    pub cluster: bool,
    /// Whether a grant counts only once replicas have it.
    pub confirm: bool,
    /// Whether the one server is a majority of several (see `super::Quorum`), which has no wait queue.
    pub quorum: bool,
    /// Whether callers wait for a whole lock as old code does, which polls: without the queue, so that old code gets its
    /// share of the lock.
    pub polling: Option<Polling>,
    /// The most locks that are kept for their next callers.
    pub linger_max: usize,
}

/// The pause between two polls of a caller: random, between these two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Polling {
    /// The shortest pause.
    pub least: Duration,
    /// The longest pause.
    pub most: Duration,
}

/// The terms of a hold beyond the first lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HoldTerms {
    /// Whether the lease is renewed until the lock is released.
    pub renew: bool,
    /// Whether the lease runs to its end, though the manager is closed or its process ends before.
    pub leave_to_expire: bool,
    /// The longest time that the lock is kept, renewals included.
    pub max_hold: Option<Duration>,
    /// How long JavaScript may show no sign of life before renewal pauses.
    pub stall_timeout: Duration,
    /// How long the manager keeps a whole lock for its next caller when this one has released it, and nobody here waits.
    pub linger: Duration,
}

impl HoldTerms {
    /// How many lengths of time they have.
    pub const TIMES: usize = 3;

    /// Reads them as JavaScript writes them (`js/native/records.ts`): each flag is a bit, and no length of time is one
    /// without end.
    #[must_use]
    pub fn read(flags: u64, times: [Option<Duration>; Self::TIMES]) -> Self {
        const ENDLESS: Duration = Duration::from_millis((1 << 53) - 1);
        let [max_hold, stall_timeout, linger] = times;
        Self {
            renew: flags & 1 != 0,
            leave_to_expire: flags & 2 != 0,
            max_hold,
            // No process lives longer.
            stall_timeout: stall_timeout.unwrap_or(ENDLESS),
            linger: linger.unwrap_or(ENDLESS),
        }
    }
}

/// Why a lease ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LossReason {
    /// Another process took the lock over with its token.
    Adopted,
    /// The lease ended, as its caller wanted, or as other code did whose lease it is: not counted as a loss.
    Ended,
    /// The lease ended, or the server denies that it owns the lock.
    Expired,
    /// The lock was held for `max_hold`.
    MaxHold,
    /// The lease ended because JavaScript showed no sign of life.
    Stalled,
    /// The lock was taken away.
    Stolen,
}

/// A caller's operation. Each ends in exactly one [`Effect::Complete`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command {
    /// Take a lock, or a share of it.
    Acquire {
        /// The lock's name, without prefix.
        name: String,
        /// The lease.
        ttl: Duration,
        /// How long to wait while the lock is held.
        wait: Wait,
        /// The label in the token, for people. Empty for none.
        label: Arc<str>,
        /// Its terms.
        hold: HoldTerms,
        /// The whole lock, or a share of it.
        mode: Mode,
    },
    /// Take over a lock whose owner has exported its token.
    Adopt {
        /// The lock's name, without prefix.
        name: String,
        /// The owner's token.
        owner: String,
        /// The label in the new owner's token; empty for that in the owner's. Or the whole new token, one that no manager makes.
        label: Label,
        /// The lease.
        ttl: Duration,
        /// The terms of the hold.
        hold: HoldTerms,
        /// The whole lock, or a share of it.
        mode: Mode,
    },
    /// Renew other code's lease of a lock as long as its value is this, and nothing else: the lock is never taken, nor
    /// released, also not by a [`Self::Release`] of this lease, which ends the renewal. No request is sent before a third of
    /// the lease is over.
    KeepForeign {
        /// The lock's key, with any prefix.
        key: String,
        /// What that code has put there.
        value: Arc<str>,
        /// Its lease.
        ttl: Duration,
        /// For how long it has had this lease: at most a third of that counts.
        age: Duration,
        /// How long JavaScript may show no sign of life before renewal pauses.
        stall_timeout: Duration,
    },
    /// End the acquire that this operation began, of one lock or several, in whatever state.
    Cancel,
    /// Release all leases, fail all open operations, and end.
    Close,
    /// Renew a lease no more, and leave it to expire.
    StopRenewing {
        /// The lease.
        lease: LeaseId,
    },
    /// Extend a lease to at least `ttl` from now, and leave the lock to expire: from then on it is not this manager's.
    ExpireIn {
        /// The lease.
        lease: LeaseId,
        /// Its length.
        ttl: Duration,
    },
    /// Turn a whole lock into a share of it.
    Downgrade {
        /// The lease.
        lease: LeaseId,
    },
    /// Extend a lease to at least `ttl` from now.
    Extend {
        /// The lease.
        lease: LeaseId,
        /// Its length; none for the last one.
        ttl: Option<Duration>,
    },
    /// Free a lock, whatever its holder.
    Force {
        /// The lock's name, without prefix.
        name: String,
        /// Whether other code's value is also deleted.
        foreign: bool,
        /// The tokens of all from whom it may be taken; empty for anybody.
        owners: Vec<String>,
    },
    /// Take several whole locks, if all of them are free.
    AcquireAll {
        /// The locks' names, without prefix.
        names: Vec<String>,
        /// The lease.
        ttl: Duration,
        /// The label in their tokens, for people.
        label: Arc<str>,
        /// The terms of their holds.
        hold: HoldTerms,
    },
    /// Connect for the first time. If that fails for [`Config::open_patience`] the machine ends.
    Open,
    /// Give a lease up.
    Release {
        /// The lease.
        lease: LeaseId,
        /// Whether its token was exported. Then no other caller may own the lock with it.
        exported: bool,
    },
}

/// How long an acquire waits for a held lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wait {
    /// Until it is granted.
    Forever,
    /// One request only.
    Never,
    /// Not at all: the lock is taken from its holder, unless that is other code.
    Steal,
    /// At most this long.
    UpTo(Duration),
}

/// The result of an operation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The caller owns the lock.
    Acquired {
        /// The new lease.
        lease: LeaseId,
        /// Strictly greater than every fence issued for this lock before.
        fence: u64,
        /// The label in its token, if that differs from the caller's.
        label: Option<String>,
    },
    /// The caller owns all locks. The token numbers of the others' leases follow that of the first.
    AcquiredAll {
        /// The lease of the first.
        lease: LeaseId,
        /// The fence of each lock.
        fences: Vec<u64>,
    },
    /// One call cannot take these locks: they are on several servers, or need more than that.
    OneByOne,
    /// The caller has cancelled it.
    Cancelled,
    /// The manager was closed.
    Closed,
    /// No answer in time; the request may have been executed, and is undone as soon as the server is reachable.
    Connection(String),
    /// The operation succeeded.
    Done,
    /// The lock is held, and the caller did not want to wait.
    Held,
    /// A defect of holdfast; the request may have been executed.
    Internal,
    /// The lease had ended.
    Lost,
    /// The page of a query; not a machine's.
    Page(Page),
    /// No majority of the servers could be reached: the cause of each, by node number; empty where there was none. The
    /// request is undone as soon as each server is reachable.
    Quorum(Vec<String>),
    /// The server refused.
    Server {
        /// The server's error.
        refusal: Refusal,
        /// The key that the error is about.
        key: Option<String>,
    },
    /// The results of a server probe; not a machine's.
    Surveyed(Vec<Survey>),
    /// The lock was held for as long as the caller was ready to wait.
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
        /// The value of the lock, or the token of one of those who share it.
        holder: String,
        /// How many share it; 0 if it is not shared.
        holders: u32,
        /// How long the holder's lease lasted when last asked; none if it never ends by itself.
        remaining: Option<Duration>,
        /// The caller's position in the wait queue when last asked, 1 for the next; none if it was in none.
        position: Option<u32>,
    },
}

/// A notice for the operator of the manager.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Notice {
    /// The server denies this manager publishing and subscribing: its waiters poll. Once.
    PubsubDenied(String),
    /// The server denies this manager plain commands or the fence counter: every lock is taken by a script. Once.
    PlainCommandsDenied(String),
    /// The server denies its scripts the clock: exclusive locks alone work there, without a wait queue. Once.
    ClockDenied(String),
    /// The connection is lost, and reconnects at once.
    Disconnected(String),
    /// The lost connection is not made again: the server refuses the login. Its name, empty for the only one, and its words.
    LoginRefused(String, Refusal),
    /// The login of a connection is about to end, and could not be renewed yet: why. Not a machine's.
    LoginNotRenewed(String),
    /// The connection is up again.
    Reconnected,
    /// Locks are less safe on a server than they could be. With each connection to it.
    Risk(Risk),
    /// Two servers of a quorum are one, which has two votes.
    SameServer(String),
}

/// A change of a connection, or a message on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// The answer to [`Effect::Confirm`].
    Confirmed {
        /// The grant.
        attempt: TokenId,
        /// Why too few replicas have it, if so.
        verdict: Result<(), Refusal>,
    },
    /// An attempt to connect succeeded.
    Connected {
        /// The server's probe.
        probe: ServerProbe,
        /// Why locks may be less safe there than they could be.
        risks: Vec<Risk>,
        /// The rights that it denies.
        denied: Denied,
    },
    /// An attempt to connect failed.
    ConnectFailed(Failure),
    /// The server denies this manager publishing and subscribing, and why.
    PubsubDenied(String),
    /// The server refuses to tell of changed keys, as on a new connection that it denies that.
    TrackingDenied,
    /// The connection broke.
    Disconnected(String),
    /// The answer to [`Effect::Discover`].
    Discovered(Result<Routes, Failure>),
    /// A subscription to a shard channel has begun or ended.
    Listening {
        /// The channel.
        channel: Arc<str>,
        /// Whether it has begun.
        on: bool,
    },
    /// The server answered [`Effect::Probe`].
    Probed {
        /// The server's probe.
        probe: ServerProbe,
        /// When the probe was sent.
        sent: Mono,
    },
    /// A script has published a message.
    Message(Message),
    /// JavaScript showed a sign of life at this time.
    Heartbeat(Mono),
}

/// An order of the machine. The core carries effects out in order and never retries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Effect {
    /// An operation ended.
    Complete {
        /// The operation.
        op: OpId,
        /// Its result.
        outcome: Outcome,
    },
    /// Wait until replicas have a grant; answered by [`Event::Confirmed`].
    Confirm {
        /// The server that granted it.
        node: NodeId,
        /// The grant.
        attempt: TokenId,
    },
    /// Connect, beside the attempts that are under way and the connection that there is. The first attempt that succeeds
    /// is answered by [`Event::Connected`]: it ends the other attempts, and replaces that connection as
    /// [`Effect::Disconnect`] with `abort` would end it. One that fails is answered by [`Event::ConnectFailed`].
    Connect {
        /// The server.
        node: NodeId,
    },
    /// Close the connection, not the attempts at another one. `abort`: drop unsent bytes, so that nothing arrives late.
    Disconnect {
        /// The server.
        node: NodeId,
        /// Whether the connection is suspect.
        abort: bool,
    },
    /// Query which server has which slot; answered by [`Event::Discovered`].
    Discover,
    /// Subscribe to a shard channel; answered by [`Event::Listening`].
    Listen {
        /// The server.
        node: NodeId,
        /// The channel.
        channel: Arc<str>,
    },
    /// Probe a server; answered by [`Event::Probed`].
    Probe {
        /// The server.
        node: NodeId,
        /// The present time, which is part of the answer.
        sent: Mono,
    },
    /// A lease has ended without its caller's release. Once for each.
    Lose {
        /// The lease.
        lease: LeaseId,
        /// Why it ended.
        reason: LossReason,
    },
    /// Ask JavaScript for a sign of life; answered by [`Event::Heartbeat`].
    Ping,
    /// Call a script; answered by [`super::Protocol::handle_reply`].
    Send {
        /// The server.
        node: NodeId,
        /// The number by which the answer comes back.
        request: RequestId,
        /// The call.
        call: Call,
        /// How to send it.
        send_mode: SendMode,
    },
    /// Until when a lease is valid; none when it has ended.
    SetDeadline {
        /// The lease.
        lease: LeaseId,
        /// The moment before which the server cannot grant the lock to another.
        until: Option<Mono>,
    },
    /// The machine has ended; no effect follows.
    Stop,
    /// End the attempts to connect.
    StopConnecting {
        /// The server.
        node: NodeId,
    },
    /// Notify the operator of the manager.
    Notify(Notice),
    /// Have the server tell when the key of a lock changes next ([`Message::Changed`]): at once, if the lock is free, or its
    /// value is not `token`.
    Track {
        /// The server.
        node: NodeId,
        /// The keys of the lock.
        keys: LockKeys,
        /// The token that has the lock, if it is this manager's.
        token: Option<Token>,
    },
    /// Unsubscribe from a shard channel.
    Unlisten {
        /// The server.
        node: NodeId,
        /// The channel.
        channel: Arc<str>,
    },
}

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

    /// The time on the clock of the server of the lock `name`, give or take a round trip; none if it is unknown.
    fn server_time(&self, now: Mono, name: &str) -> Option<ServerTime>;

    /// The changes that are on their way to a server: a query that is started now must see it.
    fn under_way(&self) -> Vec<UnderWay>;

    /// Whether something of [`Self::under_way`] still is. It ends with the reply that grants, enqueues or refuses, or
    /// with its connection.
    fn is_under_way(&self, what: UnderWay) -> bool;

    /// The locks that are kept for their next callers.
    fn idle_locks(&self, now: Mono) -> IdleSnapshot;

    /// The counters of this manager.
    fn stats(&self) -> Stats;
}
