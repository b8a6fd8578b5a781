//! The events between the core and a connection.

use super::{Abilities, Login};
use crate::protocol::{
    Call, Denied, Failure, LockKeys, Message, Mono, Refusal, Reply, RequestId, Risk, SendMode,
    ServerProbe, Token, TokenId,
};
use std::sync::Arc;
use tokio::sync::oneshot;

/// An event of a connection.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Enough replicas have a grant, or the reason why not.
    Confirmed(TokenId, Result<(), Refusal>),
    /// Pub/sub is denied, with the reason.
    PubsubDenied(String),
    /// The connection broke, or the server closed it.
    Disconnected(String),
    /// A subscription to a shard channel began or ended.
    Listening(Arc<str>, bool),
    /// The login of the connection is due, and could not be renewed yet.
    LoginNotRenewed(String),
    /// The connection must log in again; the sender gets what the server says.
    Login(Arc<Login>, oneshot::Sender<Result<(), Refusal>>),
    /// The answer to a server probe, and when the probe was sent.
    Probed(ServerProbe, Mono),
    /// The server tells of no changed keys any more.
    TrackingDenied,
    /// The reply to a request.
    Reply(RequestId, Result<Reply, Failure>),
    /// A message that a script published.
    Message(Message),
}

/// The receiver of events that are not read from the connection itself.
pub(crate) type Deliver = Arc<dyn Fn(Incoming) + Send + Sync>;

/// An item of a pipeline.
#[derive(Debug)]
pub(crate) enum Item {
    /// Ask for the replication id.
    Probe {
        /// The time of sending.
        sent: Mono,
    },
    /// Have the server tell when the key of a lock changes next, and tell at once if the lock is free, or not of `token`.
    Track {
        /// The keys of the lock.
        keys: LockKeys,
        /// The token that has the lock; none if any other may have it.
        token: Option<Token>,
    },
    /// Call a script.
    Call {
        /// Identifies the reply.
        request: RequestId,
        /// The call.
        call: Call,
        /// How the call is sent.
        send_mode: SendMode,
    },
}

/// A server's answers to a new connection.
#[derive(Debug)]
pub(crate) struct Welcome {
    /// The first server probe.
    pub(crate) probe: ServerProbe,
    /// The reasons why locks may be less safe there than they could be.
    pub(crate) risks: Vec<Risk>,
    /// The rights that it denies.
    pub(crate) denied: Denied,
    /// The abilities that it has; none for a store in this process, which has all of them.
    pub(crate) abilities: Option<Abilities>,
}

/// Adds the server's name to the reason of a disconnect.
pub(super) fn naming(name: String, deliver: Deliver) -> Deliver {
    Arc::new(move |incoming| {
        deliver(match incoming {
            Incoming::Disconnected(why) => Incoming::Disconnected(format!("{name}: {why}")),
            other => other,
        });
    })
}
