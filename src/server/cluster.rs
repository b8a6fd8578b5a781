//! Redis Cluster: which server has which slot, and a connection to each.
//!
//! Source: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>

use super::{Address, Deliver, Directory, Endpoint, Incoming, Item, Welcome, ears, single, wire};
use crate::error::Failure;
use crate::machine::{NodeId, Routes};
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::{JoinHandle, JoinSet};

impl Endpoint {
    /// One server of the same kind. Its shard channels have a connection of their own.
    fn server(&self, host: String, port: u16) -> Self {
        Self { address: Address::Tcp { host, port }, ..self.clone() }
    }
}

/// The servers that have slots, in the order of their names.
pub(super) async fn primaries(
    endpoint: &Arc<Endpoint>,
    directory: &Arc<Directory>,
) -> Result<Vec<Endpoint>, Failure> {
    let routes = discover(endpoint, directory).await?;
    let nodes = routes.nodes().into_iter();
    let known = nodes.filter_map(|node| directory.address(node));
    Ok(known.map(|(host, port)| endpoint.server(host, port)).collect())
}

/// A server that has not told the slots within this time is not waited for: another is asked as well.
const NEXT_AFTER: Duration = Duration::from_millis(150);

/// Asks the servers that are known which has which slot. The first answer counts.
pub(crate) async fn discover(
    endpoint: &Arc<Endpoint>,
    directory: &Arc<Directory>,
) -> Result<Routes, Failure> {
    let mut servers = directory.all();
    if let Address::Cluster { seeds } = &endpoint.address {
        let unknown: Vec<_> = seeds.iter().filter(|seed| !servers.contains(seed)).collect();
        servers.extend(unknown.into_iter().cloned());
    }
    // All managers would otherwise ask the same one.
    let first = usize::try_from(super::chance()).unwrap_or(0).checked_rem(servers.len());
    servers.rotate_left(first.unwrap_or(0));
    let mut questions = JoinSet::new();
    for ((host, port), turn) in servers.into_iter().zip(0_u32..) {
        let (endpoint, directory) = (Arc::clone(endpoint), Arc::clone(directory));
        questions.spawn(async move {
            tokio::time::sleep(NEXT_AFTER * turn).await;
            let server = endpoint.server(host.clone(), port);
            let answer = ask_for_slots(&server, &host, &directory).await;
            answer.map_err(|failure| (format!("{host}:{port}"), failure))
        });
    }
    let mut failures = Vec::new();
    while let Some(answer) = questions.join_next().await {
        match answer {
            Ok(Ok(routes)) => return Ok(routes),
            // The login is wrong everywhere.
            Ok(Err((_, Failure::Refused(refusal)))) if is_login(&refusal.code) => {
                return Err(Failure::Refused(refusal));
            }
            Ok(Err((server, failure))) => failures.push(format!("{server}: {failure}")),
            Err(defect) => failures.push(defect.to_string()),
        }
    }
    failures.sort_unstable();
    Err(Failure::Lost(failures.join("; ")))
}

fn is_login(code: &str) -> bool {
    matches!(code, "WRONGPASS" | "NOAUTH")
}

async fn ask_for_slots(
    server: &Endpoint,
    host: &str,
    directory: &Directory,
) -> Result<Routes, Failure> {
    let question = async {
        let mut dialled = single::dial(server, |_| {}).await?;
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        let answer = dialled.inner.send_packed_command(&slots).await;
        answer.and_then(Value::extract_error).map_err(|error| wire::failure(&error))
    };
    let answer = single::in_time(server, question).await?;
    read_slots(&answer, host, directory)
        .filter(|ranges| !ranges.is_empty())
        .map(|ranges| Routes::new(&ranges))
        .ok_or_else(|| Failure::Lost("it knows no servers with slots".to_owned()))
}

/// Reads `[first, last, [host, port, …], …]` of every range. A server that does not know its own
/// address leaves the host out.
pub(super) fn read_slots(
    answer: &Value,
    asked: &str,
    directory: &Directory,
) -> Option<Vec<(u16, u16, NodeId)>> {
    let Value::Array(ranges) = answer else { return None };
    let mut known = Vec::new();
    for range in ranges {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = range.as_slice()
        else {
            return None;
        };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host = match host {
            Value::BulkString(host) if !host.is_empty() => std::str::from_utf8(host).ok()?,
            _ => asked,
        };
        let node = directory.node(host, u16::try_from(*port).ok()?);
        known.push((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, node));
    }
    Some(known)
}

/// An open connection to one server. Dropping it closes it, and that of its shard channels.
pub(crate) struct Connection {
    inner: single::Connection,
    channels: UnboundedSender<ears::Wish>,
    ears: JoinHandle<()>,
}

pub(super) async fn connect(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    node: NodeId,
    deliver: Deliver,
) -> Result<(Connection, Welcome), Failure> {
    let Some((host, port)) = directory.address(node) else {
        return Err(Failure::Lost("a server that nobody has heard of".to_owned()));
    };
    let server = endpoint.server(host.clone(), port);
    let known = Arc::clone(directory);
    let onwards = Arc::clone(&deliver);
    let redirect: Deliver = Arc::new(move |incoming| {
        onwards(match incoming {
            Incoming::Replies(mut replies) => {
                for (_, reply) in &mut replies {
                    if let Err(failure) = reply {
                        redirect(failure, &host, &known);
                    }
                }
                Incoming::Replies(replies)
            }
            Incoming::Disconnected(detail) => {
                Incoming::Disconnected(format!("{host}:{port}: {detail}"))
            }
            other => other,
        });
    });
    let (inner, welcome) = single::connect(&server, directory, redirect).await?;
    let (channels, wanted) = mpsc::unbounded_channel();
    let ears = tokio::spawn(ears::listen(server, wanted, deliver));
    Ok((Connection { inner, channels, ears }, welcome))
}

/// Reads `MOVED 3999 host:port` and `ASK 3999 host:port`.
pub(super) fn redirect(failure: &mut Failure, asked: &str, directory: &Directory) {
    let Failure::Refused(refusal) = failure else { return };
    let moved = refusal.code == "MOVED";
    if !moved && refusal.code != "ASK" {
        return;
    }
    let address = refusal.detail.split(' ').nth(1).and_then(|address| address.rsplit_once(':'));
    let Some((host, Ok(port))) = address.map(|(host, port)| (host, port.parse())) else { return };
    let node = directory.node(if host.is_empty() { asked } else { host }, port);
    *failure = if moved { Failure::Moved(node) } else { Failure::Moving(node) };
}

impl Connection {
    pub(super) fn send(&self, items: &[Item]) {
        self.inner.send(items);
    }

    /// Gets the messages of a shard channel, or does so no longer.
    pub(super) fn listen(&self, channel: Arc<str>, on: bool) {
        // If the task has ended, so has the connection.
        drop(self.channels.send((channel, on)));
    }

    pub(super) fn abort(self) {
        self.ears.abort();
        self.inner.abort();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.ears.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refusal;

    #[test]
    fn a_redirection_names_a_server() {
        let directory = Directory::default();
        let node = directory.node("10.0.0.1", 7000);
        let read = |code: &str, detail: &str| {
            let refusal = Refusal { code: code.to_owned(), detail: detail.to_owned() };
            let mut failure = Failure::Refused(refusal);
            redirect(&mut failure, "10.0.0.1", &directory);
            failure
        };
        assert_eq!(read("MOVED", "3999 10.0.0.1:7000"), Failure::Moved(node));
        assert_eq!(read("ASK", "3999 :7000"), Failure::Moving(node));
        assert_eq!(read("MOVED", "3999 ::1:7001"), Failure::Moved(NodeId(1)));
        assert!(matches!(read("MOVED", "3999"), Failure::Refused(_)));
        assert!(matches!(read("TRYAGAIN", "Multiple keys"), Failure::Refused(_)));
    }
}
