//! A manager's knowledge of its servers, kept between connections.

use super::cluster::Slots;
use crate::machine::{NodeId, Routes};
use crate::protocol::Failure;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A host and a port, as servers and Sentinels name them.
pub(super) type Name = (String, u16);

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
pub(super) struct Known {
    /// Indexed by node number. No number is used for another server.
    pub(super) names: Vec<Name>,
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
    pub(super) fn access(&self) -> MutexGuard<'_, Known> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
