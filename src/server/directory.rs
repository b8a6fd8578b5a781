//! What a manager knows of its servers, from one connection to the next.

use crate::machine::NodeId;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a manager keeps when a connection ends.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Of a Cluster, the servers that were ever heard of, by their names in the protocol.
    servers: Mutex<Vec<(String, u16)>>,
    /// The most replicas that a primary had at once.
    replicas: AtomicU32,
}

impl Directory {
    /// The name of the server at an address.
    pub(super) fn node(&self, host: &str, port: u16) -> NodeId {
        let mut known = self.access();
        let place = known.iter().position(|(name, number)| name == host && *number == port);
        let place = place.unwrap_or_else(|| {
            known.push((host.to_owned(), port));
            known.len() - 1
        });
        NodeId(u16::try_from(place).unwrap_or(u16::MAX))
    }

    pub(super) fn address(&self, node: NodeId) -> Option<(String, u16)> {
        self.access().get(usize::from(node.0)).cloned()
    }

    pub(super) fn all(&self) -> Vec<(String, u16)> {
        self.access().clone()
    }

    /// Takes note that a primary has so many replicas.
    pub(super) fn saw_replicas(&self, count: u32) {
        self.replicas.fetch_max(count, Ordering::Relaxed);
    }

    /// How many replicas there are, as far as was ever seen.
    pub(super) fn replicas(&self) -> u32 {
        self.replicas.load(Ordering::Relaxed)
    }

    /// A panic elsewhere leaves whole entries behind, so poison means nothing.
    fn access(&self) -> MutexGuard<'_, Vec<(String, u16)>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
