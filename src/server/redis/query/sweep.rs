//! The order in which a query reads the servers, and whether it reads them once more.
//!
//! Keys that move from a server to one that was read before would be missed. So each server of a Cluster says, once it was
//! read, which slots it has, and whether some are on their way from it. If these are not those of the beginning, all are read
//! once more: then each key that had left before it was read is where it went.

use crate::protocol::query::Question;
use crate::protocol::{Failure, LockKeys, NodeId, Routes};
use crate::server::redis::servers::servers;
use crate::server::redis::{Directory, cluster};
use crate::server::{Address, Endpoint};
use std::fmt;
use std::sync::Arc;

/// The servers of a query, in the order of their numbers, which stay the same.
pub(super) struct Servers {
    pub(super) list: Vec<(u16, Endpoint)>,
    /// The slots of a Cluster.
    table: Option<Routes>,
}

impl Servers {
    pub(super) async fn of(
        endpoint: &Arc<Endpoint>,
        directory: &Arc<Directory>,
        question: &Question,
    ) -> Result<Self, Failure> {
        let Address::Cluster { .. } = endpoint.address else {
            let servers = servers(endpoint, directory).await?;
            return Ok(Self { list: (0..).zip(servers).collect(), table: None });
        };
        let table = cluster::discover(endpoint, directory).await?;
        let nodes = if question.whole_key {
            vec![table.node(&LockKeys::from_key(&question.starts_with))]
        } else {
            table.nodes()
        };
        let known = |node: NodeId| {
            let (host, port) = directory.address(node)?;
            Some((node.0, endpoint.server(host, port)))
        };
        let list = nodes.into_iter().filter_map(known).collect();
        Ok(Self { list, table: Some(table).filter(|_| !question.whole_key) })
    }

    pub(super) fn get(&self, number: u16) -> Option<&Endpoint> {
        self.list.iter().find(|(other, _)| *other == number).map(|(_, server)| server)
    }
}

/// Where a query is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) server: u16,
    /// The cursor of SCAN there.
    pub(super) cursor: String,
    round: Round,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Round {
    /// The slots of the servers that are still to be read, as a checksum: zero at the end, unless some have moved.
    First(u64),
    /// Slots are moving, so there will be another round.
    Moving,
    Last,
}

impl Place {
    /// The place that a cursor names, at first the beginning.
    pub(super) fn of(cursor: &str, servers: &Servers) -> Self {
        let mut parts = cursor.split(':');
        if let (Some(Ok(server)), Some(cursor), Some(round)) =
            (parts.next().map(str::parse), parts.next(), parts.next())
        {
            let round = match round {
                "last" => Round::Last,
                sum => u64::from_str_radix(sum, 16).map_or(Round::Moving, Round::First),
            };
            return Self { server, cursor: cursor.to_owned(), round };
        }
        let sum =
            |table: &Routes| table.slots().fold(0, |sum, (slot, node)| sum ^ mark(node, slot));
        let round = servers.table.as_ref().map_or(Round::Last, |table| Round::First(sum(table)));
        Self::beginning(servers, round)
    }

    fn beginning(servers: &Servers, round: Round) -> Self {
        let server = servers.list.first().map_or(0, |(number, _)| *number);
        Self { server, cursor: "0".to_owned(), round }
    }

    /// Whether the server is to say which slots it has, once it was read.
    pub(super) fn asks_for_slots(&self) -> bool {
        matches!(self.round, Round::First(_))
    }

    /// The server was read, and answers `CLUSTER NODES` with this text, if with any.
    pub(super) fn compare(&mut self, nodes: Option<&str>) {
        let Round::First(sum) = self.round else { return };
        let slots = nodes.and_then(settled_slots);
        let node = NodeId(self.server);
        self.round = slots.map_or(Round::Moving, |slots| {
            Round::First(slots.into_iter().fold(sum, |sum, slot| sum ^ mark(node, slot)))
        });
    }

    /// The cursor behind this server; empty at the end.
    pub(super) fn next(self, servers: &Servers) -> String {
        let later = servers.list.iter().find(|(number, _)| *number > self.server);
        match (later, self.round) {
            (Some((server, _)), round) => {
                Self { server: *server, cursor: "0".to_owned(), round }.to_string()
            }
            (None, Round::First(0) | Round::Last) => String::new(),
            (None, _) => Self::beginning(servers, Round::Last).to_string(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, cursor, round } = self;
        write!(f, "{server}:{cursor}:")?;
        match round {
            Round::First(sum) => write!(f, "{sum:x}"),
            Round::Moving => f.write_str("moving"),
            Round::Last => f.write_str("last"),
        }
    }
}

/// A number for a slot of a server, for checksums.
///
/// Source: splitmix64, <https://prng.di.unimi.it/splitmix64.c>
fn mark(node: NodeId, slot: u16) -> u64 {
    let mut mixed = (u64::from(node.0) << 16 | u64::from(slot)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The slots that the answering server has by `CLUSTER NODES`; none if some are on their way from it, or if it does not say.
///
/// Source: <https://redis.io/docs/latest/commands/cluster-nodes/>
fn settled_slots(nodes: &str) -> Option<Vec<u16>> {
    let is_own = |line: &&str| {
        line.split(' ').nth(2).is_some_and(|flags| flags.split(',').any(|flag| flag == "myself"))
    };
    let own = nodes.lines().find(is_own)?;
    let mut slots = Vec::new();
    for range in own.split_whitespace().skip(8) {
        if range.starts_with('[') {
            if range.contains("->-") {
                return None;
            }
            continue;
        }
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        slots.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::SLOTS;
    use crate::server::{LoginSource, MemoryStore};

    const HALF: u16 = SLOTS / 2;

    fn servers(ranges: &[(u16, u16, NodeId)]) -> Servers {
        let table = Routes::new(ranges);
        let server = Endpoint {
            address: Address::Memory(MemoryStore::open(String::new())),
            tls: None,
            login_source: LoginSource::fixed(None, None),
            db: 0,
            client_name: String::new(),
            channels: Vec::new(),
            connect_timeout: std::time::Duration::ZERO,
            replicas: None,
        };
        let list = table.nodes().into_iter().map(|node| (node.0, server.clone())).collect();
        Servers { list, table: Some(table) }
    }

    fn nodes(slots: &str) -> String {
        format!(
            "id0 10.0.0.9:7000@17000 master - 0 1 1 connected 0-16383\n\
             id1 10.0.0.1:7000@17000 myself,master - 0 1 1 connected {slots}\n"
        )
    }

    /// The servers that are read, in order, if each answers with these slots.
    fn read(servers: &Servers, answers: &[(u16, Option<&str>)]) -> Vec<u16> {
        let mut read = Vec::new();
        let mut cursor = String::new();
        loop {
            let mut place = Place::of(&cursor, servers);
            read.push(place.server);
            if place.asks_for_slots() {
                let answer = answers.iter().find(|(number, _)| *number == place.server);
                let text = answer.and_then(|(_, slots)| slots.map(nodes));
                place.compare(text.as_deref());
            }
            cursor = place.next(servers);
            if cursor.is_empty() {
                return read;
            }
        }
    }

    #[test]
    fn servers_are_read_once_more_if_slots_have_moved_or_move() {
        let halves = servers(&[(0, HALF - 1, NodeId(3)), (HALF, SLOTS - 1, NodeId(7))]);
        let (low, high) = (Some("0-8191"), Some("8192-16383"));
        let read = |answers: [Option<&str>; 2]| read(&halves, &[(3, answers[0]), (7, answers[1])]);
        assert_eq!(read([low, high]), [3, 7]);
        assert_eq!(
            read([Some("0-8191 [9000-<-id1]"), Some("8192-16383 [9000->-id0]")]),
            [3, 7, 3, 7]
        );
        assert_eq!(read([Some("0-8191 [9000-<-id1]"), high]), [3, 7]);
        assert_eq!(read([low, Some("8192-8999 9001-16383")]), [3, 7, 3, 7]);
        assert_eq!(read([Some("0-8191 9000"), Some("8192-8999 9001-16383")]), [3, 7, 3, 7]);
        // It may not say which slots it has.
        assert_eq!(read([None, high]), [3, 7, 3, 7]);
    }

    #[test]
    fn a_cursor_says_where_to_go_on() {
        let all = servers(&[(0, SLOTS - 1, NodeId(2))]);
        for round in [Round::First(0xabc), Round::Moving, Round::Last] {
            let place = Place { server: 2, cursor: "1536".to_owned(), round };
            assert_eq!(Place::of(&place.to_string(), &all), place);
        }
    }
}
