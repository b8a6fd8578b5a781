//! What goes into a machine and what comes out of it.

use super::routes::Routes;
use crate::protocol::call::{Call, Mode};
use crate::protocol::clock::{Mono, ServerTime};
use crate::protocol::error::{Failure, Refusal};
use crate::protocol::ids::{LeaseId, NodeId, OpId, RequestId, TokenId};
use crate::protocol::message::Message;
use crate::protocol::query::Page;
use crate::protocol::survey::Survey;
use std::sync::Arc;
use std::time::Duration;

/// What stays the same for the life of a manager.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names this manager in its tokens; unique among all managers everywhere.
    pub client: String,
    /// Names its inbox, see [`crate::protocol::message::inbox`]; as unique, and never told to anybody.
    pub secret: String,
    /// Stands before every lock's name.
    pub prefix: String,
    /// How long a request may stay unanswered before its connection is given up.
    pub command_timeout: Duration,
    /// For how long a first connection that fails is tried again. Not at all where nobody can be expected
    /// to take the server's place.
    pub open_patience: Duration,
    /// Whether the locks are spread over several servers by their slots.
    pub cluster: bool,
    /// Whether a grant counts only once replicas have it.
    pub confirm: bool,
    /// Whether the one server is a majority of several (see `super::Quorum`), which keeps no line.
    pub quorum: bool,
}

/// How long and on what conditions a lock is kept beyond its first lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hold {
    /// Whether the lease is renewed until the lock is released.
    pub renew: bool,
    /// Whether the lease runs to its end, though the manager is closed or its process ends before.
    pub keep: bool,
    /// The longest time that the lock is kept, renewals included.
    pub max_hold: Option<Duration>,
    /// How long JavaScript may give no sign of life before renewal pauses.
    pub stall_timeout: Duration,
}

/// How a lock was lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LossReason {
    /// Another process took it over, to whom its token was passed on.
    Adopted,
    /// Its lease ended, as its caller wanted it to: nothing to be counted.
    Ended,
    /// Its lease ended, or the server says that another owns it.
    Expired,
    /// It was kept for `max_hold`.
    MaxHold,
    /// Its lease ended because JavaScript gave no sign of life.
    Stalled,
    /// It was taken away.
    Stolen,
}

/// A caller wants something. Each ends in exactly one [`Effect::Complete`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command {
    /// Take a lock, or a share of it.
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
        /// How much of it.
        mode: Mode,
    },
    /// Take over a lock whose owner has passed its token on.
    Adopt {
        /// The lock's name, without prefix.
        name: String,
        /// The owner's token.
        owner: String,
        /// The lease.
        ttl: Duration,
        /// How long it is kept.
        hold: Hold,
        /// Whether it is a share.
        mode: Mode,
    },
    /// End the acquire that this operation began, of one lock or several, whatever has become of it.
    Cancel,
    /// Release all that is held, refuse all that is open, and end.
    Close,
    /// Turn a whole lock into a share of it.
    Downgrade {
        /// Which lease.
        lease: LeaseId,
    },
    /// Lengthen a lease to at least `ttl` from now.
    Extend {
        /// Which lease.
        lease: LeaseId,
        /// How long, or the length it was last given.
        ttl: Option<Duration>,
    },
    /// Free a lock whoever holds it.
    Force {
        /// The lock's name, without prefix.
        name: String,
        /// Whether also other code's value is deleted.
        foreign: bool,
    },
    /// Take several whole locks, if all of them are free.
    AcquireAll {
        /// Their names, without prefix.
        names: Vec<String>,
        /// The lease.
        ttl: Duration,
        /// Who holds them, for people.
        label: String,
        /// How long they are kept.
        hold: Hold,
    },
    /// Connect for the first time. If that fails for [`Config::open_patience`] the machine ends.
    Open,
    /// Give a lease up.
    Release {
        /// Which lease.
        lease: LeaseId,
        /// Whether its token was shown to anybody. Then nobody else may own the lock with it.
        exported: bool,
    },
}

/// How long an acquire waits for a lock that is held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wait {
    /// Until it is granted.
    Forever,
    /// One attempt.
    Never,
    /// It does not: the lock is taken from whoever of holdfast holds it.
    Steal,
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
        /// The label in its token, if that is not the caller's own.
        label: Option<String>,
    },
    /// Several locks are the caller's: the first one's lease, whose attempts follow each other, and the
    /// fence of each.
    AcquiredAll {
        /// The lease of the first.
        lease: LeaseId,
        /// Of each.
        fences: Vec<u64>,
    },
    /// These locks cannot be taken by one call: each is on another server, or wants more than that.
    Apart,
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
    /// What a query found; not asked of a machine.
    Page(Page),
    /// No majority of the servers could be reached: each one's cause, by its number; empty where there
    /// was none. What was asked is undone as soon as each server is reachable.
    Quorum(Vec<String>),
    /// The server refused.
    Server {
        /// What it said.
        refusal: Refusal,
        /// The key it was about.
        key: Option<String>,
    },
    /// What servers tell about themselves; not asked of a machine.
    Surveyed(Vec<Survey>),
    /// Somebody else held the lock for as long as the caller was ready to wait.
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
        /// The value of the lock.
        holder: String,
        /// How long the holder's lease lasted when last asked; none if it never ends by itself.
        remaining: Option<Duration>,
        /// The caller's position in the wait queue when last asked, 1 for the next; none if it was in none.
        position: Option<u32>,
    },
}

/// Something that whoever runs the manager may want to know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Notice {
    /// The server lets this manager neither publish nor subscribe: its waiters poll. Once.
    PubsubDenied(String),
    /// The connection is gone. It is made anew at once.
    Disconnected(String),
    /// There is a connection again.
    Reconnected,
    /// Locks may be less safe on a server than they could be. With each connection to it.
    Risk(Risk),
    /// Two servers of a quorum are the same one, and it has two votes.
    SameServer(String),
}

/// Why locks may be less safe on a server than they could be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Risk {
    /// It may evict them when its memory is full: which one, and its policy.
    Eviction(String),
    /// It may forget them when it restarts, and votes at once afterwards: which one, and why.
    Forgets(String),
    /// It is a replica, so none can be taken until it is promoted: which one.
    Replica(String),
}

impl Risk {
    /// Whether it is that of a replica.
    #[must_use]
    pub const fn is_replica(&self) -> bool {
        matches!(self, Self::Replica(_))
    }
}

/// Something happened to a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// The answer to [`Effect::Confirm`].
    Confirmed {
        /// Which grant.
        attempt: TokenId,
        /// Why too few replicas have it, if so.
        verdict: Result<(), Refusal>,
    },
    /// An attempt to connect succeeded.
    Connected {
        /// What the server shows.
        probe: ServerProbe,
        /// Why locks may be less safe there than they could be.
        risks: Vec<Risk>,
        /// Why no messages can be sent or received, if so.
        pubsub_denied: Option<String>,
    },
    /// An attempt to connect failed.
    ConnectFailed(Failure),
    /// The server lets this manager neither publish nor subscribe, and why.
    PubsubDenied(String),
    /// The connection broke.
    Disconnected(String),
    /// The answer to [`Effect::Discover`].
    Discovered(Result<Routes, Failure>),
    /// The messages of a shard channel come from now on, or come no longer.
    Listening {
        /// Which.
        channel: Arc<str>,
        /// Whether they come.
        on: bool,
    },
    /// The server answered [`Effect::Probe`].
    Probed {
        /// What it shows.
        probe: ServerProbe,
        /// When it was asked.
        sent: Mono,
    },
    /// A script published this.
    Message(Message),
    /// JavaScript gave a sign of life at this time.
    Heartbeat(Mono),
}

/// Which data the server holds, and its time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerProbe {
    /// Names the history of the data: it changes with every promotion and every restart. None
    /// where the server keeps it to itself.
    pub history: Option<String>,
    /// The server's clock.
    pub time: ServerTime,
    /// How long it has been up. None where it keeps that to itself.
    pub uptime: Option<Duration>,
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
    /// Wait until replicas have a grant; answered by [`Event::Confirmed`].
    Confirm {
        /// Who granted it.
        node: NodeId,
        /// Which grant.
        attempt: TokenId,
    },
    /// Connect; answered by [`Event::Connected`] or [`Event::ConnectFailed`].
    Connect {
        /// To whom.
        node: NodeId,
    },
    /// Give the connection up. `abort`: drop what is still unsent, so that nothing arrives late.
    Disconnect {
        /// To whom.
        node: NodeId,
        /// Whether the connection is suspect.
        abort: bool,
    },
    /// Ask which server has which slot; answered by [`Event::Discovered`].
    Discover,
    /// Get the messages of a shard channel; answered by [`Event::Listening`].
    Listen {
        /// Who publishes them.
        node: NodeId,
        /// Which.
        channel: Arc<str>,
    },
    /// Ask which data the server holds; answered by [`Event::Probed`].
    Probe {
        /// Whom.
        node: NodeId,
        /// Now; part of the answer.
        sent: Mono,
    },
    /// A lease ended that its caller had not released. Once for each.
    Lose {
        /// Which.
        lease: LeaseId,
        /// How.
        reason: LossReason,
    },
    /// Ask JavaScript for a sign of life; answered by [`Event::Heartbeat`].
    Ping,
    /// Call a script; answered by [`super::Protocol::handle_reply`].
    Send {
        /// Where.
        node: NodeId,
        /// Names the answer.
        request: RequestId,
        /// What to call.
        call: Call,
        /// How to call it.
        send_mode: SendMode,
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
    /// Tell whoever runs the manager.
    Notify(Notice),
    /// Get the messages of a shard channel no longer.
    Unlisten {
        /// Who publishes them.
        node: NodeId,
        /// Which.
        channel: Arc<str>,
    },
}

/// How a script is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendMode {
    /// By its hash.
    Plain,
    /// So too, where another server has sent it.
    Redirected,
    /// With its text, since the server did not know its hash.
    WithSource,
    /// With its text, and on a server that a slot is only moving to.
    Asking(NodeId),
}
