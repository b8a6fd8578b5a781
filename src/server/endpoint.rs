//! Which servers hold the locks of a manager, and how to reach them.

use super::{Clock, LoginSource, MemoryStore, Tls};
use crate::protocol::quorum::Settings;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One server and how to reach it.
#[derive(Clone)]
pub struct Endpoint {
    /// The server's address.
    pub address: Address,
    /// The TLS options; none for plain text.
    pub tls: Option<Arc<Tls>>,
    /// The logins of its connections.
    pub login_source: LoginSource,
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
    Memory(MemoryStore),
    /// A socket file.
    Unix {
        /// Its path.
        path: String,
    },
}

/// The processes that monitor a master and its replicas, and promote a replica when the master fails.
#[derive(Clone, Debug)]
pub struct Sentinels {
    /// The Sentinels' name for the master.
    pub master: String,
    /// The addresses of the Sentinels.
    pub all: Vec<Sentinel>,
}

/// One Sentinel and how to log in to it.
#[derive(Clone, Debug)]
pub struct Sentinel {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The logins of connections to it.
    pub login_source: LoginSource,
}

/// The replicas that must have a grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Replicas {
    /// This number of replicas.
    AtLeast(u32),
    /// With the primary, more than half of all servers that were ever seen, and at least one replica.
    Majority,
}

impl Endpoint {
    /// A single server. Its shard channels have a connection of their own.
    pub(super) fn server(&self, host: String, port: u16) -> Self {
        Self { address: Address::Tcp { host, port }, ..self.clone() }
    }
}

impl Address {
    /// Whether a test may move that clock.
    pub(crate) const fn is_movable(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// The clock by which its managers live.
    pub(crate) fn clock(&self) -> Arc<Clock> {
        match self {
            Self::Memory(store) => Arc::clone(store.clock()),
            _ => Arc::default(),
        }
    }
}

/// The address as people write it.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { .. } => f.write_str("a Cluster"),
            Self::Memory(store) => write!(f, "{store}"),
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
            .field("login_source", &self.login_source)
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
    use crate::server::TlsOptions;

    #[test]
    fn neither_a_password_nor_the_side_of_tls_is_shown() {
        let server_name = Some("redis.test".to_owned());
        let tls = TlsOptions { ca: None, cert: None, key: None, server_name, verify: false };
        let endpoint = Endpoint {
            address: Address::Tcp { host: "::1".to_owned(), port: 6379 },
            tls: Some(Arc::new(Tls::new(tls).unwrap())),
            login_source: LoginSource::fixed(None, Some("s3cret".to_owned())),
            db: 0,
            client_name: "holdfast".to_owned(),
            channels: vec!["inbox".into()],
            connect_timeout: Duration::from_secs(1),
            replicas: None,
        };
        let shown = format!("{endpoint:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(
            shown.contains("tls: Some(Tls { server_name: Some(DnsName(\"redis.test\")), .. })"),
            "TLS shows its server's name alone: {shown}"
        );
    }
}
