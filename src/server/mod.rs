//! The servers that store locks. The only module that names the Redis client.

mod cluster;
mod directory;
pub(crate) mod embedded;
#[cfg(any(test, fuzzing))]
#[path = "../fuzzing/replies.rs"]
pub(crate) mod fuzz;
pub(crate) mod memory;
mod persistence;
mod query;
mod race;
mod replicas;
mod sentinel;
mod shard_subscriber;
mod single;
mod stream;
mod survey;
mod tls;
mod wire;

pub(crate) use cluster::discover;
pub(crate) use directory::Directory;
pub use replicas::Replicas;
pub use sentinel::{Sentinel, Sentinels};
pub(crate) use survey::Questions;
pub use tls::{BadOption, Tls, TlsOptions};

use crate::machine::{NodeId, RequestId, Risk, SendMode, ServerProbe, Settings, TokenId};
use crate::protocol::query::{Page, Question};
use crate::protocol::survey::Survey;
use crate::protocol::{Call, Failure, Message, Mono, Refusal, Reply};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
    /// The answer to a server probe, and when the probe was sent.
    Probed(ServerProbe, Mono),
    /// Replies, in the order of the requests.
    Replies(Vec<(RequestId, Result<Reply, Failure>)>),
    /// A message that a script published.
    Message(Message),
}

/// The receiver of a connection's events.
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
    /// The reason if pub/sub is denied.
    pub(crate) pubsub_denied: Option<String>,
}

/// An open connection. Dropping it closes it.
pub(crate) enum Connection {
    Cluster(cluster::Connection),
    Embedded(embedded::Connection),
    Sentinel(sentinel::Connection),
    Single(single::Connection),
}

/// Connects to `node`, authenticates, subscribes to the inbox and probes the server. `deliver` gets all later
/// events of the connection.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    node: NodeId,
    deliver: Deliver,
) -> Result<(Connection, Welcome), Failure> {
    match &endpoint.address {
        Address::Cluster { .. } => {
            let (connection, welcome) =
                cluster::connect(endpoint, directory, node, deliver).await?;
            Ok((Connection::Cluster(connection), welcome))
        }
        Address::Memory { name } => {
            let (connection, welcome) = embedded::connect(name, endpoint, deliver);
            Ok((Connection::Embedded(connection), welcome))
        }
        Address::Quorum { servers, settings } => {
            let Some(server) = servers.get(usize::from(node.0)) else {
                return Err(Failure::Lost("a server that nobody has named".to_owned()));
            };
            let connecting = connect_voter(server, settings, directory, deliver);
            let (connection, welcome) = single::in_time(server, connecting).await?;
            Ok((Connection::Single(connection), welcome))
        }
        Address::Sentinel(sentinels) => {
            let (connection, welcome) =
                sentinel::connect(endpoint, sentinels, directory, deliver).await?;
            Ok((Connection::Sentinel(connection), welcome))
        }
        Address::Tcp { .. } | Address::Unix { .. } => {
            let (connection, welcome) = single::connect(endpoint, directory, deliver).await?;
            Ok((Connection::Single(connection), welcome))
        }
    }
}

/// Connects to a server of a quorum. If servers may vote at once after a restart, each is asked whether its
/// data survive one.
async fn connect_voter(
    server: &Endpoint,
    settings: &Settings,
    directory: &Arc<Directory>,
    deliver: Deliver,
) -> Result<(single::Connection, Welcome), Failure> {
    let (mut connection, mut welcome) = single::connect(server, directory, deliver).await?;
    if settings.longest_lease.is_none() {
        welcome.risks.extend(connection.ask_persistence(server).await?);
    }
    Ok((connection, welcome))
}

/// The next page of a query, with a timeout of `patience` per reply. For an in-process store see
/// [`Connection::page`].
pub(crate) async fn page(
    endpoint: &Arc<Endpoint>,
    directory: &Arc<Directory>,
    question: &Question,
    patience: Duration,
) -> Result<Page, Failure> {
    query::page(endpoint, directory, question, patience).await
}

/// The answers of every server of an address, on connections of their own.
pub(crate) async fn survey(
    endpoint: &Arc<Endpoint>,
    questions: Questions,
) -> Result<Vec<Survey>, Failure> {
    survey::survey(endpoint, questions).await
}

impl Connection {
    /// The whole page, if the store is in this process.
    pub(crate) fn page(&self, question: &Question) -> Option<Page> {
        match self {
            Self::Embedded(connection) => Some(connection.page(question)),
            Self::Cluster(_) | Self::Sentinel(_) | Self::Single(_) => None,
        }
    }

    /// Sends `items` as one pipeline, after all earlier items.
    pub(crate) fn send(&self, items: &[Item]) {
        match self {
            Self::Cluster(connection) => connection.send(items),
            Self::Embedded(connection) => connection.send(items),
            Self::Sentinel(connection) => connection.send(items),
            Self::Single(connection) => connection.send(items),
        }
    }

    /// Reports when enough replicas have a grant whose reply was read before.
    pub(crate) fn confirm(&self, grant: TokenId) {
        match self {
            Self::Sentinel(connection) => connection.confirm(grant),
            Self::Single(connection) => connection.confirm(grant),
            Self::Cluster(_) | Self::Embedded(_) => {}
        }
    }

    /// Subscribes to a channel (in a Cluster: a shard channel), or unsubscribes from it.
    pub(crate) fn listen(&self, channel: Arc<str>, on: bool) {
        match self {
            Self::Cluster(connection) => connection.listen(channel, on),
            Self::Single(connection) => connection.listen_to(channel, on),
            Self::Embedded(_) | Self::Sentinel(_) => {}
        }
    }

    /// Closes the connection and discards what it has not delivered yet.
    pub(crate) fn abort(self) {
        match self {
            Self::Cluster(connection) => connection.abort(),
            Self::Embedded(connection) => drop(connection),
            Self::Sentinel(connection) => connection.abort(),
            Self::Single(connection) => connection.abort(),
        }
    }
}

/// A random number.
fn chance() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

/// One server and how to reach it.
#[derive(Clone)]
pub struct Endpoint {
    /// The server's address.
    pub address: Address,
    /// The TLS options; none for plain text.
    pub tls: Option<Arc<Tls>>,
    /// The ACL user; none for the default user.
    pub username: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
    /// The database number.
    pub db: u32,
    /// The name that `CLIENT LIST` shows.
    pub client_name: String,
    /// The channels to subscribe to; publishing is probed on the first of them.
    pub channels: Vec<Arc<str>>,
    /// The timeout of connecting, handshake included.
    pub connect_timeout: Duration,
    /// The replicas that must acknowledge a grant, if any.
    pub replicas: Option<Replicas>,
}

/// The address of one server or of several.
#[derive(Clone, Debug)]
pub enum Address {
    /// A Cluster, by some of its servers: host names or IP addresses, and ports.
    Cluster {
        /// The servers that are asked for the others.
        seeds: Vec<(String, u16)>,
    },
    /// The master that Sentinels name.
    Sentinel(Sentinels),
    /// Host name or IP address, and port.
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// Several independent servers, of which a majority decides.
    Quorum {
        /// Each server, with its own login.
        servers: Vec<Endpoint>,
        /// The rules of the majority.
        settings: Settings,
    },
    /// A store in this process.
    Memory {
        /// The name of a shared store; empty for a private one.
        name: String,
    },
    /// A socket file.
    Unix {
        /// Its path.
        path: String,
    },
}

/// The address as people write it.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { .. } => f.write_str("a Cluster"),
            Self::Memory { name } => write!(f, "memory:{name}"),
            Self::Quorum { .. } => f.write_str("a quorum"),
            Self::Sentinel(Sentinels { master, .. }) => f.write_str(master),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { path } => f.write_str(path),
        }
    }
}

/// Shows everything but passwords, keys, and the names of channels, one of which is a secret.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .field("tls", &self.tls)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("db", &self.db)
            .field("client_name", &self.client_name)
            .field("connect_timeout", &self.connect_timeout)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_password_nor_the_side_of_tls_is_shown() {
        let server_name = Some("redis.test".to_owned());
        let tls = TlsOptions { ca: None, cert: None, key: None, server_name, verify: false };
        let endpoint = Endpoint {
            address: Address::Tcp { host: "::1".to_owned(), port: 6379 },
            tls: Some(Arc::new(Tls::new(tls).unwrap())),
            username: None,
            password: Some("s3cret".to_owned()),
            db: 0,
            client_name: "holdfast".to_owned(),
            channels: vec!["inbox".into()],
            connect_timeout: Duration::from_secs(1),
            replicas: None,
        };
        let shown = format!("{endpoint:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(
            shown.contains("tls: Some(Tls { server_name: Some(DnsName(\"redis.test\")), .. })")
        );
    }
}
