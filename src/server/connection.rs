//! Opens connections: to a store in this process, or to a server of an address.

use super::embedded;
use super::redis::{self, Directory, Link};
use super::{Address, Deliver, Endpoint, Incoming, Item, Login, Welcome};
use crate::protocol::query::{Page, Question};
use crate::protocol::{Failure, NodeId, Refusal, TokenId};
use std::sync::Arc;
use tokio::sync::oneshot;

/// An open connection. Dropping it closes it.
pub(crate) enum Connection {
    Embedded(embedded::Connection),
    Remote(Box<Link>),
}

/// Opens the store in this process that the address names, if it names one.
pub(crate) fn open_embedded(
    endpoint: &Endpoint,
    deliver: Deliver,
) -> Option<(Connection, Welcome)> {
    let Address::Memory(store) = &endpoint.address else { return None };
    let (connection, welcome) = store.connect(&endpoint.channels, deliver);
    Some((Connection::Embedded(connection), welcome))
}

/// Connects to `node`, authenticates, subscribes to the inbox and probes the server. `deliver` gets the events that
/// are not read from the connection itself.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    directory: &Arc<Directory>,
    node: NodeId,
    deliver: Deliver,
) -> Result<(Connection, Welcome), Failure> {
    let (link, welcome) = redis::connect(endpoint, directory, node, deliver).await?;
    Ok((Connection::Remote(Box::new(link)), welcome))
}

impl Connection {
    /// The whole page, if the store is in this process.
    pub(crate) fn page(&self, question: &Question) -> Option<Page> {
        match self {
            Self::Embedded(connection) => Some(connection.page(question)),
            Self::Remote(_) => None,
        }
    }

    /// The connection to another process, if it is one.
    pub(crate) fn link(&mut self) -> Option<&mut Link> {
        match self {
            Self::Embedded(_) => None,
            Self::Remote(link) => Some(link),
        }
    }

    /// Executes `items`, whose outcomes are added to `into`, or adds them to what [`Link::flush`] writes.
    pub(crate) fn send(&mut self, items: &[Item], into: &mut Vec<Incoming>) {
        match self {
            Self::Embedded(connection) => connection.send(items, into),
            Self::Remote(link) => link.send(items),
        }
    }

    /// Reports when enough replicas have a grant whose reply was read before.
    pub(crate) fn confirm(&self, grant: TokenId) {
        if let Self::Remote(link) = self {
            link.confirm(grant);
        }
    }

    /// Subscribes to a channel (in a Cluster: a shard channel), or unsubscribes from it.
    pub(crate) fn listen(&mut self, channel: Arc<str>, on: bool) {
        if let Self::Remote(link) = self {
            link.listen(channel, on);
        }
    }

    /// Logs in again; `told` gets what the server says.
    pub(crate) fn log_in(&mut self, login: &Login, told: oneshot::Sender<Result<(), Refusal>>) {
        if let Self::Remote(link) = self {
            link.log_in(login, told);
        }
    }

    /// Closes the connection and discards what it has not delivered yet.
    pub(crate) fn abort(self) {
        if let Self::Remote(link) = self {
            link.abort();
        }
    }
}
