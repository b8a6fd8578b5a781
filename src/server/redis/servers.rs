//! The servers of an address.

use super::{Directory, cluster, sentinel};
use crate::protocol::Failure;
use crate::server::{Address, Endpoint};
use std::sync::Arc;

/// The servers that have keys, in a stable order.
pub(super) async fn servers(
    endpoint: &Arc<Endpoint>,
    directory: &Arc<Directory>,
) -> Result<Vec<Endpoint>, Failure> {
    match &endpoint.address {
        Address::Cluster { .. } => cluster::primaries(endpoint, directory).await,
        Address::Sentinel(sentinels) => Ok(sentinel::masters(endpoint, sentinels, directory)
            .await?
            .into_iter()
            .take(1)
            .collect()),
        Address::Quorum { servers, .. } => Ok(servers.clone()),
        _ => Ok(vec![Endpoint::clone(endpoint)]),
    }
}
