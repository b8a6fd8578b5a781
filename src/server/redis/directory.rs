//! A manager's knowledge of its servers, kept between connections.

use super::slots::{Name, Slots};
use crate::protocol::{Failure, NodeId, Routes};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The knowledge that outlives a connection.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    cluster: Mutex<Known>,
    /// The master of Sentinels, as of the last connection.
    master: Mutex<Option<Name>>,
    /// The most replicas that the primary had at once.
    replicas: AtomicU32,
}

/// The known servers of a Cluster.
#[derive(Debug, Default)]
struct Known {
    /// Indexed by node number. No number is used for another server.
    names: Vec<Name>,
    /// The servers that had slots by the last answer.
    members: Vec<Name>,
    /// The node ids of the members and their replicas, at any address.
    ids: BTreeSet<String>,
}

impl Known {
    /// The number of a server; none if the numbers are used up.
    fn node(&mut self, name: &Name) -> Option<NodeId> {
        let index = self.names.iter().position(|known| known == name);
        let index = index.unwrap_or(self.names.len());
        let node = u16::try_from(index).ok()?;
        if index == self.names.len() {
            self.names.push(name.clone());
        }
        Some(NodeId(node))
    }
}

impl Directory {
    /// The number of the server at an address; none if the numbers are used up.
    pub(super) fn node(&self, host: &str, port: u16) -> Option<NodeId> {
        self.access().node(&(host.to_owned(), port))
    }

    pub(super) fn address(&self, node: NodeId) -> Option<Name> {
        self.access().names.get(usize::from(node.0)).cloned()
    }

    pub(super) fn members(&self) -> Vec<Name> {
        self.access().members.clone()
    }

    /// Makes routes of a server's answer. An answer from a member's address counts only if it contains a
    /// known node id: the address may belong to a server of another Cluster now.
    pub(super) fn accept(&self, slots: Slots, at_member: bool) -> Result<Routes, Failure> {
        let mut known = self.access();
        if at_member && !known.ids.is_empty() && known.ids.is_disjoint(&slots.ids) {
            return Err(Failure::Lost("it belongs to another Cluster".to_owned()));
        }
        let mut ranges = Vec::with_capacity(slots.ranges.len());
        for (first, last, name) in &slots.ranges {
            let node = known.node(name);
            let node = node.ok_or_else(|| Failure::Lost("too many addresses".to_owned()))?;
            ranges.push((*first, *last, node));
        }
        let members: BTreeSet<Name> = slots.ranges.into_iter().map(|(.., name)| name).collect();
        known.members = members.into_iter().collect();
        known.ids = slots.ids;
        Ok(Routes::new(&ranges))
    }

    /// Replaces `MOVED 3999 host:port` and `ASK 3999 host:port` by the number of the server. `asked` has sent it, and may
    /// omit its own host.
    pub(super) fn redirect(&self, failure: &mut Failure, asked: &str) {
        let Failure::Refused(refusal) = failure else { return };
        let moved = refusal.code == "MOVED";
        if !moved && refusal.code != "ASK" {
            return;
        }
        let address = refusal.detail.split(' ').nth(1).and_then(|address| address.rsplit_once(':'));
        let Some((host, Ok(port))) = address.map(|(host, port)| (host, port.parse())) else {
            return;
        };
        let host = if host.is_empty() { asked } else { host };
        let Some(node) = self.node(host, port) else { return };
        *failure = if moved { Failure::Moved(node) } else { Failure::Moving(node) };
    }

    /// The master that Sentinels named when the manager last connected.
    pub(super) fn master(&self) -> Option<Name> {
        self.master.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_master(&self, master: Name) {
        *self.master.lock().unwrap_or_else(PoisonError::into_inner) = Some(master);
    }

    /// Records that the primary has `count` replicas.
    pub(super) fn saw_replicas(&self, count: u32) {
        self.replicas.fetch_max(count, Ordering::Relaxed);
    }

    /// The most replicas that were ever seen.
    pub(super) fn replicas(&self) -> u32 {
        self.replicas.load(Ordering::Relaxed)
    }

    /// A panic elsewhere leaves only whole entries behind, so poison is ignored.
    fn access(&self) -> MutexGuard<'_, Known> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::read_slots;
    use super::*;
    use crate::protocol::Refusal;
    use redis::Value;

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
            directory.redirect(&mut failure, "10.0.0.1");
            failure
        };
        assert_eq!(read("MOVED", "3999 10.0.0.1:7000"), Failure::Moved(node));
        assert_eq!(read("ASK", "3999 :7000"), Failure::Moving(node));
        assert_eq!(read("MOVED", "3999 ::1:7001"), Failure::Moved(NodeId(1)));
        assert!(
            matches!(read("MOVED", "3999"), Failure::Refused(_)),
            "a redirection without an address stays a refusal"
        );
        assert!(
            matches!(read("TRYAGAIN", "Multiple keys"), Failure::Refused(_)),
            "another refusal is no redirection"
        );
    }

    #[test]
    fn a_number_is_never_given_to_two_servers() {
        let directory = Directory::default();
        directory.access().names =
            (0..=u16::MAX).map(|number| (format!("server-{number}"), 6379)).collect();
        assert_eq!(directory.node("server-65535", 6379), Some(NodeId(u16::MAX)));
        assert_eq!(directory.node("another", 6379), None);
        assert!(
            directory.accept(slots(vec![server("another", "a")]), false).is_err(),
            "no number is left for another server"
        );
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
        assert!(directory.accept(other(), true).is_err(), "another Cluster is not believed");
        // If no member answers, the configured seeds are believed.
        assert!(directory.accept(other(), false).is_ok(), "a seed's answer is believed");
    }
}
