//! Connects to a server, by the kind of its address.

use super::handshake::{self, Purpose};
use super::{Directory, Link, cluster, sentinel};
use crate::protocol::{Failure, NodeId};
use crate::server::{Address, Deliver, Endpoint, Welcome};
use std::sync::Arc;

/// Connects to a server of an address, by its number in the machine.
pub(in crate::server) async fn connect(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    node: NodeId,
    deliver: Deliver,
) -> Result<(Link, Welcome), Failure> {
    match &endpoint.address {
        Address::Cluster { .. } => cluster::connect(endpoint, directory, node, deliver).await,
        Address::Memory { .. } => {
            Err(Failure::Lost("it is opened without a connection".to_owned()))
        }
        Address::Quorum { servers, settings } => {
            let Some(server) = servers.get(usize::from(node.0)) else {
                return Err(Failure::Lost("a server that the target does not name".to_owned()));
            };
            // If servers may vote at once after a restart, each is asked whether its data survive one.
            let ask_persistence = settings.longest_lease.is_none();
            handshake::connect(server, directory, deliver, Purpose::Quorum { ask_persistence })
                .await
        }
        Address::Sentinel(sentinels) => {
            sentinel::connect(endpoint, sentinels, directory, deliver).await
        }
        Address::Tcp { .. } | Address::Unix { .. } => {
            handshake::connect(endpoint, directory, deliver, Purpose::Server).await
        }
    }
}
