//! Redis and Valkey servers: addresses, connections, commands and replies.

mod cluster;
mod command;
mod descriptors;
mod dialect;
mod dialogue;
mod directory;
mod frames;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzzing/replies.rs"]
pub(crate) mod fuzz;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzzing/frames.rs"]
pub(crate) mod fuzz_frames;
mod handshake;
mod link;
mod messages;
mod persistence;
mod probe;
pub(super) mod query;
mod race;
mod renewal;
mod replicas;
mod sentinel;
mod shard_channels;
mod socket;
mod stream;
mod subscriber;
mod survey;
mod tls;
mod together;
mod values;
pub(super) mod wire;

pub(crate) use cluster::discover;
pub(super) use command::Command;
pub(crate) use descriptors::explained;
pub(super) use dialect::Dialect;
pub(crate) use directory::Directory;
pub(crate) use link::Link;
pub(crate) use query::page;
pub use replicas::Replicas;
pub use sentinel::{Sentinel, Sentinels};
pub(crate) use socket::Socket;
pub(crate) use survey::survey;
pub use tls::{BadOption, Tls, TlsOptions};

use super::{Address, Deliver, Endpoint, Incoming, Item, Welcome};
use crate::machine::NodeId;
use crate::protocol::Failure;
use handshake::Purpose;
use std::sync::Arc;

/// Connects to a server of an address, by its number in the machine.
pub(super) async fn connect(
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

/// Adds the server's name to the reason of a disconnect.
fn naming(name: String, deliver: Deliver) -> Deliver {
    Arc::new(move |incoming| {
        deliver(match incoming {
            Incoming::Disconnected(why) => Incoming::Disconnected(format!("{name}: {why}")),
            other => other,
        });
    })
}

/// A random number.
fn chance() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}
