//! Which server of a Cluster has which slot.
//!
//! Without a Cluster there is one server, and all locks are on it.

use super::ids::NodeId;
use super::keys::{LockKeys, SLOTS};

/// Which server has which slot. Empty where there is only one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Routes(Vec<NodeId>);

impl Routes {
    /// Routes by ranges of slots, both ends included.
    #[must_use]
    pub fn new(ranges: &[(u16, u16, NodeId)]) -> Self {
        // Slots without a server go to a known one, which refuses them. A server outside the Cluster might grant.
        let somebody = ranges.first().map(|(.., node)| *node).unwrap_or_default();
        let mut nodes = vec![somebody; usize::from(SLOTS)];
        for (first, last, node) in ranges {
            if let Some(range) = nodes.get_mut(usize::from(*first)..=usize::from(*last)) {
                range.fill(*node);
            }
        }
        Self(nodes)
    }

    /// The server of a lock.
    #[must_use]
    pub fn node(&self, keys: &LockKeys) -> NodeId {
        if self.0.is_empty() {
            return NodeId::default();
        }
        self.0.get(usize::from(keys.slot())).copied().unwrap_or_default()
    }

    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.0.is_empty() || self.0.contains(&node)
    }

    pub(crate) fn set(&mut self, keys: &LockKeys, node: NodeId) {
        if let Some(route) = self.0.get_mut(usize::from(keys.slot())) {
            *route = node;
        }
    }

    /// Every slot, and the server that has it.
    pub fn slots(&self) -> impl Iterator<Item = (u16, NodeId)> + '_ {
        (0..).zip(self.0.iter().copied())
    }

    /// The servers that have slots.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut nodes = self.0.clone();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_where_its_slot_is() {
        let routes = Routes::new(&[(0, 8_191, NodeId(1)), (8_192, SLOTS - 1, NodeId(2))]);
        let keys = LockKeys::new("", "123456789");
        assert_eq!(routes.node(&keys), NodeId(2));
        assert!(routes.has(NodeId(1)) && !routes.has(NodeId(3)), "only their servers are known");
        assert_eq!(Routes::default().node(&keys), NodeId(0));
    }

    #[test]
    fn a_slot_that_nobody_has_is_asked_for_where_others_are() {
        let routes = Routes::new(&[(0, 8_191, NodeId(1))]);
        assert_eq!(routes.nodes(), [NodeId(1)]);
    }

    #[test]
    fn ranges_beyond_the_last_slot_are_left_out_and_later_ones_count() {
        let routes = Routes::new(&[
            (0, SLOTS - 1, NodeId(1)),
            (5, 6, NodeId(2)),
            (9, 8, NodeId(3)),
            (10, SLOTS, NodeId(4)),
        ]);
        assert_eq!(routes.nodes(), [NodeId(1), NodeId(2)]);
        let of_two: Vec<_> = routes.slots().filter(|(_, node)| *node == NodeId(2)).collect();
        assert_eq!(of_two, [(5, NodeId(2)), (6, NodeId(2))]);
        assert_eq!(routes.slots().last(), Some((SLOTS - 1, NodeId(1))));
        assert_eq!(Routes::new(&[]).nodes(), [NodeId(0)]);
    }

    #[test]
    fn the_slot_of_a_lock_is_routed_elsewhere_alone() {
        let (keys, other) = (LockKeys::new("", "123456789"), LockKeys::new("", "lock:item:42"));
        let mut routes = Routes::new(&[(0, SLOTS - 1, NodeId(1))]);
        routes.set(&keys, NodeId(2));
        assert_eq!((routes.node(&keys), routes.node(&other)), (NodeId(2), NodeId(1)));
        assert_eq!(routes.nodes(), [NodeId(1), NodeId(2)]);
        let mut alone = Routes::default();
        alone.set(&keys, NodeId(2));
        assert_eq!((alone.node(&keys), alone.nodes().len()), (NodeId(0), 0));
        assert!(alone.has(NodeId(7)), "any may be the one");
    }
}
