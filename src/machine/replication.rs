//! Grants that count only once replicas have them.
//!
//! Until then an entry has the lock but its caller is not notified. If the connection breaks meanwhile the same token
//! asks again, so no grant counts as confirmed that another server never had.

use super::context::Context;
use super::interface::Effect;
use super::queue_entry::Granted;
use crate::protocol::{NodeId, TokenId};
use rustc_hash::FxHashMap;

/// The grants that wait for replicas, by token.
#[derive(Debug, Default)]
pub(super) struct Replication(FxHashMap<TokenId, (NodeId, Granted)>);

impl Replication {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_awaited(&self, id: TokenId) -> bool {
        self.0.contains_key(&id)
    }

    /// Waits until replicas of `node` have a grant.
    pub(super) fn wait(&mut self, cx: &mut Context, node: NodeId, id: TokenId, granted: Granted) {
        self.0.insert(id, (node, granted));
        cx.push(Effect::Confirm { node, attempt: id });
    }

    /// Takes a grant that waits for replicas, if it does.
    pub(super) fn take(&mut self, id: TokenId) -> Option<Granted> {
        self.0.remove(&id).map(|(_, granted)| granted)
    }

    /// The connection and its acknowledgements are lost: takes the tokens whose grants waited for them.
    pub(super) fn take_all_of(&mut self, node: NodeId) -> Vec<TokenId> {
        let of_node = self.0.iter().filter(|(_, (other, _))| *other == node);
        let ids: Vec<_> = of_node.map(|(id, _)| *id).collect();
        self.0.retain(|_, (other, _)| *other != node);
        ids
    }
}
