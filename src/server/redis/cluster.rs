//! Redis Cluster: the routes from slots to servers, and a connection to each server.
//!
//! Source: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>

use super::dialogue::{Dialogue, in_time};
use super::directory::Name;
use super::handshake::{self, Purpose};
use super::link::{Link, Origin};
use super::{Address, Deliver, Directory, Endpoint, Welcome, naming, race, shard_channels, wire};
use crate::machine::{NodeId, Routes};
use crate::protocol::Failure;
use redis::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

impl Endpoint {
    /// A single server. Its shard channels have a connection of their own.
    pub(super) fn server(&self, host: String, port: u16) -> Self {
        Self { address: Address::Tcp { host, port }, ..self.clone() }
    }
}

/// The servers that have slots, ordered by name.
pub(super) async fn primaries(
    endpoint: &Arc<Endpoint>,
    directory: &Arc<Directory>,
) -> Result<Vec<Endpoint>, Failure> {
    let routes = discover(endpoint, directory).await?;
    let nodes = routes.nodes().into_iter();
    let known = nodes.filter_map(|node| directory.address(node));
    Ok(known.map(|(host, port)| endpoint.server(host, port)).collect())
}

/// If a server has not answered within this time, the next one is asked as well.
const NEXT_AFTER: Duration = Duration::from_millis(150);

/// Asks for the slots of all servers. The last known members are asked first. The seeds are believed only if
/// no member answers: a seed may have left the Cluster since, and know only an old or another one.
pub(crate) async fn discover(
    endpoint: &Arc<Endpoint>,
    directory: &Arc<Directory>,
) -> Result<Routes, Failure> {
    let members = directory.members();
    let mut failures =
        match ask_in_turn(endpoint, members, |slots| directory.accept(slots, true)).await {
            Ok(routes) => return Ok(routes),
            Err(failures) => failures,
        };
    if let Address::Cluster { seeds } = &endpoint.address {
        let accept = |slots| directory.accept(slots, false);
        match ask_in_turn(endpoint, seeds.clone(), accept).await {
            Ok(routes) => return Ok(routes),
            Err(more) => failures.extend(more),
        }
    }
    // A wrong login is wrong on every server.
    if let Some((_, refused)) = failures.iter().find(|(_, failure)| wire::is_login(failure)) {
        return Err(refused.clone());
    }
    let mut failures: Vec<_> = failures
        .iter()
        .map(|((host, port), failure)| format!("{host}:{port}: {failure}"))
        .collect();
    failures.sort_unstable();
    failures.dedup();
    Err(Failure::Lost(failures.join("; ")))
}

/// Asks one server after the other, the next as soon as one fails or is slow. The first accepted answer
/// counts.
async fn ask_in_turn(
    endpoint: &Arc<Endpoint>,
    mut servers: Vec<Name>,
    accept: impl Fn(Slots) -> Result<Routes, Failure>,
) -> Result<Routes, Vec<(Name, Failure)>> {
    // Otherwise all managers would ask the same server.
    let first = usize::try_from(super::chance()).unwrap_or(0).checked_rem(servers.len());
    servers.rotate_left(first.unwrap_or(0));
    let questions = servers.into_iter().map(|name| {
        let server = endpoint.server(name.0.clone(), name.1);
        async move {
            let answer = ask_for_slots(&server, &name.0).await;
            (name, answer)
        }
    });
    race::first_of(questions, NEXT_AFTER, |(name, answer)| {
        answer.and_then(&accept).map_err(|failure| (name, failure))
    })
    .await
}

async fn ask_for_slots(server: &Endpoint, host: &str) -> Result<Slots, Failure> {
    let question = async {
        let mut dialogue = Dialogue::open(server).await?;
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        dialogue.ask_one(&slots).await
    };
    let answer = in_time(server, question).await?;
    read_slots(&answer, host)
        .filter(|slots| !slots.ranges.is_empty())
        .ok_or_else(|| Failure::Lost("it names no server that has slots".to_owned()))
}

/// A server's answer to CLUSTER SLOTS.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// First slot, last slot and primary of each range.
    pub(super) ranges: Vec<(u16, u16, Name)>,
    /// The node ids of the servers with slots and of their replicas.
    pub(super) ids: BTreeSet<String>,
}

/// Reads `[first, last, [host, port, id, …], replica, …]` of every range. A server that does not know its own
/// address omits the host.
pub(super) fn read_slots(answer: &Value, asked: &str) -> Option<Slots> {
    let Value::Array(ranges) = answer else { return None };
    let mut slots = Slots::default();
    for range in ranges {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), servers @ ..] = range.as_slice() else {
            return None;
        };
        let Some(Value::Array(primary)) = servers.first() else { return None };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host = match host {
            Value::BulkString(host) if !host.is_empty() => std::str::from_utf8(host).ok()?,
            _ => asked,
        };
        let name = (host.to_owned(), u16::try_from(*port).ok()?);
        slots.ranges.push((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, name));
        slots.ids.extend(servers.iter().filter_map(read_id));
    }
    Some(slots)
}

fn read_id(server: &Value) -> Option<String> {
    let Value::Array(server) = server else { return None };
    let Value::BulkString(id) = server.get(2)? else { return None };
    String::from_utf8(id.clone()).ok()
}

/// Connects to the server `node`. Its shard channels have a connection of their own, which ends with it.
pub(super) async fn connect(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    node: NodeId,
    deliver: Deliver,
) -> Result<(Link, Welcome), Failure> {
    let Some((host, port)) = directory.address(node) else {
        return Err(Failure::Lost("the server is not known any more".to_owned()));
    };
    let server = endpoint.server(host.clone(), port);
    let named = naming(format!("{host}:{port}"), Arc::clone(&deliver));
    let (mut link, welcome) =
        handshake::connect(&server, directory, named, Purpose::Cluster).await?;
    let (channels, wanted) = mpsc::unbounded_channel();
    link.tasks.spawn(shard_channels::listen(server, wanted, deliver));
    link.set_channels(channels);
    let directory = Arc::clone(directory);
    link.set_origin((host.clone(), port), Origin { host, directory });
    Ok((link, welcome))
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
    let host = if host.is_empty() { asked } else { host };
    let Some(node) = directory.node(host, port) else { return };
    *failure = if moved { Failure::Moved(node) } else { Failure::Moving(node) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::error::Refusal;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn server(host: &str, id: &str) -> Value {
        Value::Array(vec![bulk(host), Value::Int(7000), bulk(id)])
    }

    /// The slots of a Cluster in which one server has all of them.
    fn slots(servers: Vec<Value>) -> Slots {
        let range = [vec![Value::Int(0), Value::Int(16_383)], servers].concat();
        read_slots(&Value::Array(vec![Value::Array(range)]), "10.0.0.9").unwrap()
    }

    #[test]
    fn a_redirection_names_a_server() {
        let directory = Directory::default();
        let node = directory.node("10.0.0.1", 7000).unwrap();
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

    #[test]
    fn a_number_is_never_given_to_two_servers() {
        let directory = Directory::default();
        directory.access().names =
            (0..=u16::MAX).map(|number| (format!("server-{number}"), 6379)).collect();
        assert_eq!(directory.node("server-65535", 6379), Some(NodeId(u16::MAX)));
        assert_eq!(directory.node("another", 6379), None);
        assert!(directory.accept(slots(vec![server("another", "a")]), false).is_err());
    }

    #[test]
    fn a_server_without_slots_is_not_asked_for_them() {
        let directory = Directory::default();
        directory
            .accept(slots(vec![server("10.0.0.1", "a"), server("10.0.0.2", "b")]), false)
            .unwrap();
        assert_eq!(directory.members(), [("10.0.0.1".to_owned(), 7000)]);
        // The first server has failed, and its replica has taken over.
        let routes = directory.accept(slots(vec![server("10.0.0.2", "b")]), true).unwrap();
        assert_eq!(directory.members(), [("10.0.0.2".to_owned(), 7000)]);
        assert_eq!(routes.nodes(), [NodeId(1)]);
    }

    #[test]
    fn another_cluster_at_the_address_of_a_member_is_not_believed() {
        let directory = Directory::default();
        directory.accept(slots(vec![server("", "a")]), false).unwrap();
        assert_eq!(directory.members(), [("10.0.0.9".to_owned(), 7000)]);
        let other = || slots(vec![server("10.0.0.9", "x"), server("10.0.0.8", "y")]);
        assert!(directory.accept(other(), true).is_err());
        // If no member answers, the configured seeds are believed.
        assert!(directory.accept(other(), false).is_ok());
    }
}
