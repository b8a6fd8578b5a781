//! Sentinel: who the master is, asked of those who watch it.
//!
//! Source: <https://redis.io/docs/latest/develop/reference/sentinel-clients/>

use super::{Address, Deliver, Endpoint, Incoming, Welcome, single, wire};
use crate::clock::Mono;
use crate::error::Failure;
use redis::Value;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Those who watch a master and its replicas, and promote one of these when the master is gone.
#[derive(Clone, Debug)]
pub struct Sentinels {
    master: String,
    all: Vec<Sentinel>,
    /// Who is asked first.
    first: Arc<AtomicUsize>,
}

/// One Sentinel and how to log in to it.
#[derive(Clone)]
pub struct Sentinel {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The ACL user; none for the default user.
    pub username: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
}

/// Shows everything but the password.
impl fmt::Debug for Sentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinel")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .finish()
    }
}

impl Sentinels {
    /// All that watch the master which they call `master`.
    #[must_use]
    pub fn new(master: String, all: Vec<Sentinel>) -> Self {
        Self { master, all, first: Arc::default() }
    }

    /// All of them with their numbers, from the one that is asked first.
    fn in_turn(&self) -> impl Iterator<Item = (usize, &Sentinel)> {
        let numbered = self.all.iter().enumerate();
        let count = self.all.len();
        numbered.cycle().skip(self.first.load(Ordering::Relaxed)).take(count)
    }

    /// Who is asked first from now on: whoever knew the master, or the next after one who did not.
    fn begin_with(&self, number: usize) {
        self.first.store(number % self.all.len().max(1), Ordering::Relaxed);
    }
}

/// Connects to the master that the Sentinels name. A server that turns out not to be one is refused:
/// while a failover is under way, nobody may be.
pub(super) async fn connect(
    endpoint: &Endpoint,
    sentinels: &Sentinels,
    deliver: Deliver,
) -> Result<(single::Connection, Welcome), Failure> {
    let began = Mono::now();
    let (number, host, port) = find_master(endpoint, sentinels).await?;
    // Kept below if that was the master indeed: a Sentinel may not have heard of the failover yet.
    sentinels.begin_with(number + 1);
    let connect_timeout = endpoint.connect_timeout.saturating_sub(Mono::now().since(began));
    let address = Address::Tcp { host: host.clone(), port };
    let server = Endpoint { address, connect_timeout, ..endpoint.clone() };
    let name = format!("the master {host}:{port}");
    let (connection, welcome) = single::connect(&server, named(name.clone(), deliver))
        .await
        .map_err(|failure| match failure {
            Failure::Lost(why) => Failure::Lost(format!("{name}: {why}")),
            other => other,
        })?;
    if welcome.replica {
        return Err(Failure::Lost(format!("{name}: it is a replica, a failover is under way")));
    }
    sentinels.begin_with(number);
    Ok((connection, welcome))
}

/// Tells which server it was that went away.
fn named(name: String, deliver: Deliver) -> Deliver {
    Arc::new(move |incoming| {
        deliver(match incoming {
            Incoming::Disconnected(why) => Incoming::Disconnected(format!("{name}: {why}")),
            other => other,
        });
    })
}

/// The number of the first Sentinel that knows the master, and the master's host and port.
async fn find_master(
    endpoint: &Endpoint,
    sentinels: &Sentinels,
) -> Result<(usize, String, u16), Failure> {
    // Half of the time is the master's, even if no Sentinel but the last one answers.
    let share = u32::try_from(sentinels.all.len()).unwrap_or(u32::MAX).saturating_mul(2).max(1);
    let limit = endpoint.connect_timeout / share;
    let mut failures = Vec::new();
    for (number, sentinel) in sentinels.in_turn() {
        match ask(endpoint, sentinel, &sentinels.master, limit).await {
            Ok((host, port)) => return Ok((number, host, port)),
            Err(failure) => {
                failures.push(format!("{}:{}: {failure}", sentinel.host, sentinel.port));
            }
        }
    }
    Err(Failure::Lost(format!("no Sentinel knows the master: {}", failures.join("; "))))
}

async fn ask(
    endpoint: &Endpoint,
    sentinel: &Sentinel,
    master: &str,
    limit: Duration,
) -> Result<(String, u16), Failure> {
    let Sentinel { host, port, username, password } = sentinel.clone();
    let address = Address::Tcp { host, port };
    let server = Endpoint { address, username, password, db: 0, ..endpoint.clone() };
    let question = async {
        let mut dialled = single::dial(&server, |_| {}).await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let answer = dialled.inner.send_packed_command(&question).await;
        answer.and_then(Value::extract_error).map_err(|error| wire::failure(&error))
    };
    let answer = tokio::time::timeout(limit, question).await;
    let answer =
        answer.map_err(|_| Failure::Lost(format!("no answer within {} ms", limit.as_millis())))?;
    read_address(&answer?)
}

fn read_address(answer: &Value) -> Result<(String, u16), Failure> {
    let read = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    };
    let address = match answer {
        Value::Nil => return Err(Failure::Lost("it watches no master of this name".to_owned())),
        Value::Array(parts) => match parts.as_slice() {
            [host, port] => read(host).zip(read(port).and_then(|port| port.parse().ok())),
            _ => None,
        },
        _ => None,
    };
    address.ok_or_else(|| Failure::Lost(format!("it answered {answer:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentinel(port: u16) -> Sentinel {
        let (username, password) = (None, Some("s3cret".to_owned()));
        Sentinel { host: "::1".to_owned(), port, username, password }
    }

    #[test]
    fn the_first_one_comes_first_and_all_others_in_turn() {
        let sentinels = Sentinels::new("m".to_owned(), vec![sentinel(1), sentinel(2), sentinel(3)]);
        let order = || sentinels.in_turn().map(|(number, _)| number).collect::<Vec<_>>();
        assert_eq!(order(), [0, 1, 2]);
        sentinels.begin_with(2);
        assert_eq!(order(), [2, 0, 1]);
        sentinels.begin_with(3);
        assert_eq!(order(), [0, 1, 2]);
    }

    #[test]
    fn a_password_is_never_shown() {
        let sentinels = Sentinels::new("m".to_owned(), vec![sentinel(1)]);
        assert!(!format!("{sentinels:?}").contains("s3cret"));
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let good = Value::Array(vec![bulk("10.0.0.1"), bulk("6379")]);
        assert_eq!(read_address(&good).unwrap(), ("10.0.0.1".to_owned(), 6379));
        for bad in [
            Value::Nil,
            Value::Okay,
            Value::Array(vec![bulk("10.0.0.1")]),
            Value::Array(vec![bulk("10.0.0.1"), bulk("66000")]),
        ] {
            assert!(matches!(read_address(&bad), Err(Failure::Lost(_))));
        }
    }
}
