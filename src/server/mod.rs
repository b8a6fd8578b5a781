//! The servers that store locks: Redis and Valkey, or a store in this process. The only module that names the Redis
//! client.

mod abilities;
mod clock;
mod credentials;
pub(crate) mod embedded;
mod endpoint;
pub(crate) mod memory;
mod redis;

pub use abilities::{Abilities, Resp};
pub(crate) use clock::Clock;
pub use credentials::{Asked, Credentials, Login};
pub use embedded::MemoryStore;
pub use endpoint::{Address, Endpoint};
pub use redis::{BadOption, Replicas, Sentinel, Sentinels, Tls, TlsOptions};
pub(crate) use redis::{Directory, Link, Socket, discover, explained, page, survey};
#[cfg(any(test, fuzzing))]
pub(crate) use redis::{fuzz, fuzz_frames};

use crate::machine::{Denied, NodeId, RequestId, Risk, SendMode, ServerProbe, TokenId};
use crate::protocol::query::{Page, Question};
use crate::protocol::{Call, Failure, Message, Mono, Refusal, Reply};
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
    /// What it denies.
    pub(crate) denied: Denied,
    /// What it allows; none for a store in this process, which has all of it.
    pub(crate) abilities: Option<Abilities>,
}

/// An open connection. Dropping it closes it.
pub(crate) enum Connection {
    Embedded(embedded::Connection),
    Remote(Box<Link>),
}

/// Opens the store in this process that the address names, if it names one.
pub(crate) fn open_embedded(
    endpoint: &Endpoint,
    deliver: Deliver,
) -> Option<(Connection, Welcome)> {
    let Address::Memory(store) = &endpoint.address else { return None };
    let (connection, welcome) = store.connect(endpoint, deliver);
    Some((Connection::Embedded(connection), welcome))
}

/// Connects to `node`, authenticates, subscribes to the inbox and probes the server. `deliver` gets the events that
/// are not read from the connection itself.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    node: NodeId,
    deliver: Deliver,
) -> Result<(Connection, Welcome), Failure> {
    let (link, welcome) = redis::connect(endpoint, directory, node, deliver).await?;
    Ok((Connection::Remote(Box::new(link)), welcome))
}

impl Connection {
    /// The whole page, if the store is in this process.
    pub(crate) fn page(&self, question: &Question) -> Option<Page> {
        match self {
            Self::Embedded(connection) => Some(connection.page(question)),
            Self::Remote(_) => None,
        }
    }

    /// The connection to another process, if it is one.
    pub(crate) fn link(&mut self) -> Option<&mut Link> {
        match self {
            Self::Embedded(_) => None,
            Self::Remote(link) => Some(link),
        }
    }

    /// Executes `items`, whose outcomes are added to `into`, or adds them to what [`Link::flush`] writes.
    pub(crate) fn send(&mut self, items: &[Item], into: &mut Vec<Incoming>) {
        match self {
            Self::Embedded(connection) => connection.send(items, into),
            Self::Remote(link) => link.send(items),
        }
    }

    /// Reports when enough replicas have a grant whose reply was read before.
    pub(crate) fn confirm(&self, grant: TokenId) {
        if let Self::Remote(link) = self {
            link.confirm(grant);
        }
    }

    /// Subscribes to a channel (in a Cluster: a shard channel), or unsubscribes from it.
    pub(crate) fn listen(&mut self, channel: Arc<str>, on: bool) {
        if let Self::Remote(link) = self {
            link.listen(channel, on);
        }
    }

    /// Logs in again; `told` gets what the server says.
    pub(crate) fn log_in(&mut self, login: &Login, told: oneshot::Sender<Result<(), Refusal>>) {
        if let Self::Remote(link) = self {
            link.log_in(login, told);
        }
    }

    /// Closes the connection and discards what it has not delivered yet.
    pub(crate) fn abort(self) {
        if let Self::Remote(link) = self {
            link.abort();
        }
    }
}
