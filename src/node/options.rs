//! The options of a manager, as JavaScript passes them.

use super::logins::{AskLogin, Logins};
use super::numbers::millis;
use super::records::REPLICAS_MAJORITY;
use super::tls::ManagerTlsOptions;
use crate::machine::{Config, Polling, Settings};
use crate::protocol::Mono;
use crate::protocol::message::{inbox, notices};
use crate::server::{
    Address, Endpoint, LoginSource, MemoryStore, Replicas, Sentinel, Sentinels, Tls,
};
use napi_derive::napi;
use std::sync::Arc;
use std::time::Duration;

/// The options of a manager. Times in ms.
#[napi(object, object_to_js = false)]
pub struct ManagerOptions {
    /// Names the manager in its tokens.
    pub client: String,
    /// The prefix of every lock's key.
    pub prefix: String,
    /// Seeds of a Cluster: host name or IP address and port, alternating.
    pub cluster: Option<Vec<String>>,
    /// The Sentinels that monitor the server.
    pub sentinels: Option<Vec<SentinelOptions>>,
    /// The Sentinels' name for the server.
    pub master: Option<String>,
    /// Host name or IP address; null with `path`.
    pub host: Option<String>,
    /// Port.
    pub port: u16,
    /// Socket file.
    pub path: Option<String>,
    /// The in-process store: its name, or empty for a private one.
    pub memory: Option<String>,
    /// The servers of a quorum, instead of all of the above.
    pub quorum: Option<QuorumOptions>,
    /// TLS; null for plain text.
    pub tls: Option<ManagerTlsOptions>,
    /// ACL user.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// The number of a login that `ask_login` asks for, instead of both.
    pub login: Option<u32>,
    /// Asks for the login of a number; `answer_login` gets the answer.
    pub ask_login: Option<AskLogin>,
    /// Database number.
    pub db: u32,
    /// The name that `CLIENT LIST` shows.
    pub client_name: String,
    /// The timeout of connecting.
    pub connect_timeout: u32,
    /// How many replicas must acknowledge a grant, or `REPLICAS_MAJORITY`; null for none.
    pub replicas: Option<u32>,
    /// The timeout of a command.
    pub command_timeout: u32,
    /// How callers poll; null if they wait in the queue.
    pub polling: Option<PollingOptions>,
    /// The most locks that are kept for their next callers.
    pub linger_max: u32,
}

/// The pause between two polls of a caller.
#[napi(object)]
pub struct PollingOptions {
    /// The shortest pause, in ms.
    pub least: f64,
    /// The longest pause, in ms.
    pub most: f64,
}

/// The options of a quorum. Times in ms.
#[napi(object)]
pub struct QuorumOptions {
    /// The servers.
    pub servers: Vec<QuorumServer>,
    /// The timeout of one server in one round of a ballot.
    pub server_timeout: u32,
    /// The longest lease that any client takes there; 0 where the data survive every restart.
    pub longest_lease: f64,
}

/// One server of a quorum, with its own login.
#[napi(object)]
pub struct QuorumServer {
    /// The server's name for people, without login.
    pub label: String,
    /// Host name or IP address; null with `path`.
    pub host: Option<String>,
    /// Port.
    pub port: u16,
    /// Socket file.
    pub path: Option<String>,
    /// ACL user.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// The number of a login that is asked for, instead of both.
    pub login: Option<u32>,
    /// Database number.
    pub db: u32,
    /// Whether it speaks TLS.
    pub tls: bool,
}

impl QuorumServer {
    fn endpoint(
        self,
        client_name: &str,
        connect_timeout: Duration,
        tls: Option<&Arc<Tls>>,
        asked: &AskedLogins<'_>,
    ) -> Endpoint {
        Endpoint {
            address: server(self.host, self.port, self.path),
            tls: tls.filter(|_| self.tls).cloned(),
            login_source: asked.login_source(self.username, self.password, self.login),
            db: self.db,
            client_name: client_name.to_owned(),
            // On a Cluster each lock has its own channel.
            channels: Vec::new(),
            connect_timeout,
            replicas: None,
        }
    }
}

impl QuorumOptions {
    fn address(
        self,
        client_name: &str,
        connect_timeout: Duration,
        tls: Option<&Arc<Tls>>,
        asked: &AskedLogins<'_>,
    ) -> Address {
        let longest_lease = millis(self.longest_lease);
        let settings = Settings {
            servers: self.servers.iter().map(|server| server.label.clone()).collect(),
            node_timeout: Duration::from_millis(self.server_timeout.into()),
            longest_lease: (!longest_lease.is_zero()).then_some(longest_lease),
        };
        let servers = self.servers.into_iter();
        let servers =
            servers.map(|server| server.endpoint(client_name, connect_timeout, tls, asked));
        Address::Quorum { servers: servers.collect(), settings }
    }
}

fn server(host: Option<String>, port: u16, path: Option<String>) -> Address {
    match host {
        Some(host) => Address::Tcp { host, port },
        None => Address::Unix { path: path.unwrap_or_default() },
    }
}

impl ManagerOptions {
    /// The configuration of the machine and the endpoint of the server module.
    pub(super) fn split(self, logins: &Logins) -> napi::Result<(Config, Endpoint)> {
        let asked = &AskedLogins { logins, ask: self.ask_login.map(Arc::new) };
        let tls = self.tls.map(|tls| Tls::new(tls.into())).transpose().map_err(|bad| {
            napi::Error::new(napi::Status::InvalidArg, format!("options.tls.{bad}"))
        })?;
        let tls = tls.map(Arc::new);
        let connect_timeout = Duration::from_millis(self.connect_timeout.into());
        let address = if let Some(parts) = self.cluster {
            Address::Cluster { seeds: addresses(&parts) }
        } else if let Some(quorum) = self.quorum {
            quorum.address(&self.client_name, connect_timeout, tls.as_ref(), asked)
        } else if let Some(sentinels) = self.sentinels {
            let all = sentinels.into_iter().map(|sentinel| sentinel.sentinel(asked)).collect();
            Address::Sentinel(Sentinels { master: self.master.unwrap_or_default(), all })
        } else if let Some(name) = self.memory {
            Address::Memory(MemoryStore::open(name))
        } else {
            server(self.host, self.port, self.path)
        };
        let secret = uuid::Uuid::new_v4().simple().to_string();
        let mut channels = vec![notices(&self.client)];
        if !matches!(address, Address::Cluster { .. }) {
            // On a Cluster each lock has an inbox in its own slot.
            channels.push(inbox(&secret));
        }
        let endpoint = Endpoint {
            address,
            tls,
            login_source: asked.login_source(self.username, self.password, self.login),
            db: self.db,
            client_name: self.client_name,
            channels,
            connect_timeout,
            replicas: self.replicas.map(|count| match count {
                REPLICAS_MAJORITY => Replicas::Majority,
                count => Replicas::AtLeast(count),
            }),
        };
        let open_patience = match endpoint.address {
            Address::Sentinel(_) => connect_timeout,
            _ => Duration::ZERO,
        };
        let config = Config {
            client: self.client,
            started: Mono::now(),
            secret,
            prefix: self.prefix,
            command_timeout: Duration::from_millis(self.command_timeout.into()),
            open_patience,
            confirm: self.replicas.is_some(),
            cluster: matches!(endpoint.address, Address::Cluster { .. }),
            quorum: matches!(endpoint.address, Address::Quorum { .. }),
            polling: self.polling.map(|PollingOptions { least, most }| Polling {
                least: millis(least),
                most: millis(most),
            }),
            linger_max: usize::try_from(self.linger_max).unwrap_or(usize::MAX),
        };
        Ok((config, endpoint))
    }
}

/// One Sentinel and how to log in to it.
#[napi(object)]
pub struct SentinelOptions {
    /// Host name or IP address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// ACL user.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// The number of a login that is asked for, instead of both.
    pub login: Option<u32>,
}

impl SentinelOptions {
    fn sentinel(self, asked: &AskedLogins<'_>) -> Sentinel {
        let Self { host, port, username, password, login } = self;
        Sentinel { host, port, login_source: asked.login_source(username, password, login) }
    }
}

/// The logins that are asked for.
struct AskedLogins<'a> {
    logins: &'a Logins,
    ask: Option<Arc<AskLogin>>,
}

impl AskedLogins<'_> {
    fn login_source(
        &self,
        username: Option<String>,
        password: Option<String>,
        login: Option<u32>,
    ) -> LoginSource {
        match (login, &self.ask) {
            (Some(number), Some(ask)) => self.logins.add(number, ask),
            _ => LoginSource::fixed(username, password),
        }
    }
}

/// Pairs of host and port from an alternating list.
fn addresses(parts: &[String]) -> Vec<(String, u16)> {
    let pairs = parts.chunks_exact(2);
    pairs.filter_map(|pair| Some((pair.first()?.clone(), pair.last()?.parse().ok()?))).collect()
}
