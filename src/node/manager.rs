//! One manager, as JavaScript sees it.

use super::completions::number;
use crate::clock::Mono;
use crate::driver::{Caller, Handle, Ticket};
use crate::faults;
use crate::machine::{Command, Config, Hold, LeaseId, OpId, Settings, Stats, Wait};
use crate::message::{inbox, notices};
use crate::page::Question;
use crate::script::Mode;
use crate::server::{Address, Endpoint, Replicas, Sentinel, Sentinels, Tls, TlsOptions};
use napi_derive::napi;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// What a manager needs to know. Times in ms.
#[napi(object)]
pub struct ManagerOptions {
    /// Names the manager in its tokens.
    pub client: String,
    /// Stands before every lock's name.
    pub prefix: String,
    /// Some servers of a Cluster: host name or IP address and port, by turns.
    pub cluster: Option<Vec<String>>,
    /// The Sentinels that name the server.
    pub sentinels: Option<Vec<SentinelOptions>>,
    /// What the Sentinels call the server.
    pub master: Option<String>,
    /// Host name or IP address; null with `path`.
    pub host: Option<String>,
    /// Port.
    pub port: u16,
    /// Socket file.
    pub path: Option<String>,
    /// The store inside this process: its name, empty for one of its own.
    pub memory: Option<String>,
    /// The servers of a quorum, in place of all of the above.
    pub quorum: Option<QuorumOptions>,
    /// TLS; null for plain text.
    pub tls: Option<ManagerTlsOptions>,
    /// ACL user.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// Database number.
    pub db: u32,
    /// What `CLIENT LIST` shows.
    pub client_name: String,
    /// How long connecting may take.
    pub connect_timeout: u32,
    /// How many replicas must have a grant before it counts, 0 for a majority; null for none.
    pub replicas: Option<u32>,
    /// How long a command may stay unanswered.
    pub command_timeout: u32,
}

/// What a quorum needs to know. Times in ms.
#[napi(object)]
pub struct QuorumOptions {
    /// The servers.
    pub servers: Vec<QuorumServer>,
    /// How long one of them may think about one round of a ballot.
    pub node_timeout: u32,
    /// The longest lease that anybody takes there; 0 where the data survive every restart.
    pub longest_lease: u32,
}

/// One server of a quorum, with its own login.
#[napi(object)]
pub struct QuorumServer {
    /// What people call it, without login.
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
    ) -> Endpoint {
        Endpoint {
            address: server(self.host, self.port, self.path),
            tls: tls.filter(|_| self.tls).cloned(),
            username: self.username,
            password: self.password,
            db: self.db,
            client_name: client_name.to_owned(),
            // Each lock has a channel of its own there.
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
    ) -> Address {
        let longest_lease = Duration::from_millis(self.longest_lease.into());
        let settings = Settings {
            servers: self.servers.iter().map(|server| server.label.clone()).collect(),
            node_timeout: Duration::from_millis(self.node_timeout.into()),
            longest_lease: (!longest_lease.is_zero()).then_some(longest_lease),
        };
        let servers = self.servers.into_iter();
        let servers = servers.map(|server| server.endpoint(client_name, connect_timeout, tls));
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
    /// What the machine and what the server module needs to know.
    pub(super) fn split(self) -> napi::Result<(Config, Endpoint)> {
        let tls = self.tls.map(|tls| Tls::new(tls.into())).transpose().map_err(|bad| {
            napi::Error::new(napi::Status::InvalidArg, format!("options.tls.{bad}"))
        })?;
        let tls = tls.map(Arc::new);
        let connect_timeout = Duration::from_millis(self.connect_timeout.into());
        let address = if let Some(parts) = self.cluster {
            Address::Cluster { seeds: addresses(&parts) }
        } else if let Some(quorum) = self.quorum {
            quorum.address(&self.client_name, connect_timeout, tls.as_ref())
        } else if let Some(sentinels) = self.sentinels {
            let all = sentinels.into_iter().map(Sentinel::from).collect();
            Address::Sentinel(Sentinels { master: self.master.unwrap_or_default(), all })
        } else if let Some(name) = self.memory {
            Address::Memory { name }
        } else {
            server(self.host, self.port, self.path)
        };
        let secret = uuid::Uuid::new_v4().simple().to_string();
        let mut channels = vec![notices(&self.client)];
        if !matches!(address, Address::Cluster { .. }) {
            // There each lock has an inbox in its own slot.
            channels.push(inbox(&secret));
        }
        let endpoint = Endpoint {
            address,
            tls,
            username: self.username,
            password: self.password,
            db: self.db,
            client_name: self.client_name,
            channels,
            connect_timeout,
            replicas: self.replicas.map(|count| match count {
                0 => Replicas::Majority,
                count => Replicas::AtLeast(count),
            }),
        };
        let open_patience = match endpoint.address {
            Address::Sentinel(_) => connect_timeout,
            _ => Duration::ZERO,
        };
        let config = Config {
            client: self.client,
            secret,
            prefix: self.prefix,
            command_timeout: Duration::from_millis(self.command_timeout.into()),
            open_patience,
            confirm: self.replicas.is_some(),
            cluster: matches!(endpoint.address, Address::Cluster { .. }),
            quorum: matches!(endpoint.address, Address::Quorum { .. }),
        };
        Ok((config, endpoint))
    }
}

/// How to speak TLS; certificates and keys are PEM.
#[napi(object)]
pub struct ManagerTlsOptions {
    /// Who is trusted; null for the system's roots.
    pub ca: Option<String>,
    /// The client's certificate, and those that lead to its CA.
    pub cert: Option<String>,
    /// The private key of `cert`.
    pub key: Option<String>,
    /// The server's name; null for the host's own.
    pub servername: Option<String>,
    /// Whether the server's certificate is checked.
    pub reject_unauthorized: bool,
}

impl From<ManagerTlsOptions> for TlsOptions {
    fn from(options: ManagerTlsOptions) -> Self {
        let ManagerTlsOptions { ca, cert, key, servername, reject_unauthorized } = options;
        Self { ca, cert, key, server_name: servername, verify: reject_unauthorized }
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
}

impl From<SentinelOptions> for Sentinel {
    fn from(options: SentinelOptions) -> Self {
        let SentinelOptions { host, port, username, password } = options;
        Self { host, port, username, password }
    }
}

/// Host and port by turns, as pairs.
fn addresses(parts: &[String]) -> Vec<(String, u16)> {
    let pairs = parts.chunks_exact(2);
    pairs.filter_map(|pair| Some((pair.first()?.clone(), pair.last()?.parse().ok()?))).collect()
}

/// What an operation asks for.
#[napi]
pub enum OpKind {
    /// slot, ttl ms, wait ms (Infinity: for ever, -1: never, -2: steal), longest hold ms (Infinity:
    /// none), stall limit ms (-1: do not renew, -2: nor give back when the manager ends), share (-1: the
    /// whole lock, 0: a share, more: a share of one that at most so many have); strings: name, label
    Acquire = 0,
    /// slot of the acquire to cancel
    Cancel = 1,
    /// slot
    Close = 2,
    /// slot, lease, ttl ms (-1: as before)
    Extend = 3,
    /// slot, lease, whether its token was read
    Release = 4,
    /// slot, lease
    Downgrade = 5,
    /// slot, ttl ms, 0, longest hold ms, stall limit ms, share; strings: name, token
    Adopt = 6,
    /// slot, whether also other code's value is deleted; strings: name
    Force = 7,
    /// slot, how many keys are looked at; strings: cursor, what the keys begin with
    Query = 8,
    /// slot, ttl ms, how many names, longest hold ms, stall limit ms; strings: label, names
    Together = 9,
}

/// Numbers per operation that `submit` reads: kind, slot, and five that depend on the kind.
const OP_LENGTH: usize = 7;

/// A manager. Dropping it releases what it holds, as far as that is still possible.
#[napi]
pub struct NativeManager {
    handle: Handle,
    caller: Arc<dyn Caller>,
}

#[napi]
impl NativeManager {
    pub(super) fn new(handle: Handle, caller: Arc<dyn Caller>) -> Self {
        Self { handle, caller }
    }

    /// Starts the first `count` operations in `ops` (seven numbers each, see `OpKind`), with their
    /// strings. If it throws, none was started.
    #[napi(catch_unwind)]
    pub fn submit(&self, count: u32, ops: &[f64], strings: Vec<String>) {
        faults::at("submit");
        let mut strings = strings.into_iter();
        let ops = ops.chunks_exact(OP_LENGTH).take(count as usize);
        let operations: Vec<_> = ops.filter_map(|op| read(op, &mut strings)).collect();
        for (op, operation) in operations {
            let ticket = || Ticket::new(op, Arc::clone(&self.caller));
            match operation {
                Operation::Cancel => self.handle.cancel(op),
                Operation::Command(command) => self.handle.submit(ticket(), command),
                Operation::Query(question) => self.handle.query(ticket(), question),
                // It makes no sense, which is a defect of ours: the ticket says so.
                Operation::Senseless => drop(ticket()),
            }
        }
    }

    /// How long a lease is still valid, in ms; 0 if it has ended.
    #[napi(catch_unwind)]
    pub fn remaining(&self, lease: f64) -> f64 {
        faults::at("remaining");
        let remaining = self.handle.shared().remaining(LeaseId(whole(lease)), Mono::now());
        remaining.as_secs_f64() * 1000.0
    }

    /// What it has counted so far.
    #[napi(catch_unwind)]
    pub fn stats(&self) -> ManagerStats {
        faults::at("stats");
        self.handle.shared().stats().into()
    }
}

/// What a manager has counted. See `Stats` in the machine.
#[napi(object)]
pub struct ManagerStats {
    /// Locks held now.
    pub held: f64,
    /// Acquires without an outcome now.
    pub waiting: f64,
    /// Locks acquired.
    pub acquired: f64,
    /// Those that came from another caller of this process.
    pub handed_on: f64,
    /// Acquires that waited in vain.
    pub timed_out: f64,
    /// Locks lost.
    pub lost: f64,
    /// Leases renewed.
    pub renewals: f64,
    /// Requests sent.
    pub requests: f64,
    /// Hand-offs between processes that took at most 2^i µs.
    pub hand_offs: Vec<f64>,
}

impl From<Stats> for ManagerStats {
    fn from(stats: Stats) -> Self {
        Self {
            held: number(stats.held),
            waiting: number(stats.waiting),
            acquired: number(stats.acquired),
            handed_on: number(stats.handed_on),
            timed_out: number(stats.timed_out),
            lost: number(stats.lost),
            renewals: number(stats.renewals),
            requests: number(stats.requests),
            hand_offs: stats.hand_offs.map(number).into(),
        }
    }
}

/// What `submit` is to start.
enum Operation {
    Cancel,
    Command(Command),
    Query(Question),
    Senseless,
}

fn read(op: &[f64], strings: &mut impl Iterator<Item = String>) -> Option<(OpId, Operation)> {
    let &[kind, slot, ref numbers @ ..] = op else { return None };
    let op = OpId(u32::try_from(whole(slot)).unwrap_or(u32::MAX));
    let kind = whole(kind);
    let operation = if kind == OpKind::Cancel as u64 {
        Some(Operation::Cancel)
    } else if kind == OpKind::Query as u64 {
        question(numbers, strings).map(Operation::Query)
    } else {
        command(kind, numbers, strings).map(Operation::Command)
    };
    Some((op, operation.unwrap_or(Operation::Senseless)))
}

fn command(
    kind: u64,
    numbers: &[f64],
    strings: &mut impl Iterator<Item = String>,
) -> Option<Command> {
    const ACQUIRE: u64 = OpKind::Acquire as u64;
    const ADOPT: u64 = OpKind::Adopt as u64;
    const CLOSE: u64 = OpKind::Close as u64;
    const DOWNGRADE: u64 = OpKind::Downgrade as u64;
    const EXTEND: u64 = OpKind::Extend as u64;
    const FORCE: u64 = OpKind::Force as u64;
    const RELEASE: u64 = OpKind::Release as u64;
    const TOGETHER: u64 = OpKind::Together as u64;
    let &[a, b, longest_hold, stall_limit, share] = numbers else { return None };
    let hold = Hold {
        renew: stall_limit >= 0.0,
        keep: stall_limit <= -2.0,
        max_hold: finite(longest_hold),
        stall_timeout: Duration::from_millis(whole(stall_limit)),
    };
    Some(match kind {
        ACQUIRE => Command::Acquire {
            name: strings.next()?,
            label: strings.next()?,
            ttl: Duration::from_millis(whole(a)),
            wait: wait(b),
            hold,
            mode: mode(share),
        },
        ADOPT => Command::Adopt {
            name: strings.next()?,
            owner: strings.next()?,
            ttl: Duration::from_millis(whole(a)),
            hold,
            mode: mode(share),
        },
        CLOSE => Command::Close,
        DOWNGRADE => Command::Downgrade { lease: LeaseId(whole(a)) },
        EXTEND => Command::Extend {
            lease: LeaseId(whole(a)),
            ttl: (b >= 0.0).then(|| Duration::from_millis(whole(b))),
        },
        FORCE => Command::Force { name: strings.next()?, foreign: a > 0.0 },
        RELEASE => Command::Release { lease: LeaseId(whole(a)), exported: b > 0.0 },
        TOGETHER => Command::Together {
            ttl: Duration::from_millis(whole(a)),
            label: strings.next()?,
            names: strings.take(usize::try_from(whole(b)).unwrap_or(0)).collect(),
            hold,
        },
        _ => return None,
    })
}

fn question(numbers: &[f64], strings: &mut impl Iterator<Item = String>) -> Option<Question> {
    let (cursor, starts_with) = (strings.next()?, strings.next()?);
    let count = u32::try_from(whole(*numbers.first()?)).unwrap_or(u32::MAX);
    Some(Question { cursor, starts_with, count })
}

fn wait(ms: f64) -> Wait {
    if ms < -1.0 {
        Wait::Steal
    } else if ms < 0.0 {
        Wait::Never
    } else {
        finite(ms).map_or(Wait::Forever, Wait::UpTo)
    }
}

fn mode(share: f64) -> Mode {
    if share < 0.0 {
        return Mode::Exclusive;
    }
    let limit = u32::try_from(whole(share)).unwrap_or(u32::MAX);
    Mode::Shared { limit: NonZeroU32::new(limit) }
}

fn finite(ms: f64) -> Option<Duration> {
    ms.is_finite().then(|| Duration::from_millis(whole(ms)))
}

/// TypeScript has checked that these are whole, positive and below 2^53.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and TypeScript has checked the range"
)]
const fn whole(value: f64) -> u64 {
    value as u64
}
