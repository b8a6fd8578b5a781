//! Which server of a Cluster has which slot, and when that is asked anew.
//!
//! Everywhere else there is one server, and all locks are on it.

use super::context::Context;
use super::interface::Effect;
use super::timers::Timer;
use crate::protocol::clock::Mono;
use crate::protocol::ids::NodeId;
use crate::protocol::keys::{LockKeys, SLOTS};
use std::time::Duration;

/// Which server has which slot. Empty where there is only one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Routes(Vec<NodeId>);

/// Two questions for the routes are so far apart at least.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(100);
/// The longest pause between two of them while nobody answers.
const DISCOVERY_MS_MAX: u64 = 1_000;

impl Routes {
    /// Routes by ranges of slots, both ends included.
    #[must_use]
    pub fn new(ranges: &[(u16, u16, NodeId)]) -> Self {
        // One of those who are there, which refuses the slots that nobody has. Any other might grant.
        let somebody = ranges.first().map(|(.., node)| *node).unwrap_or_default();
        let mut nodes = vec![somebody; usize::from(SLOTS)];
        for (first, last, node) in ranges {
            if let Some(range) = nodes.get_mut(usize::from(*first)..=usize::from(*last)) {
                range.fill(*node);
            }
        }
        Self(nodes)
    }

    /// Where a lock is.
    pub(super) fn node(&self, keys: &LockKeys) -> NodeId {
        if self.0.is_empty() {
            return NodeId::default();
        }
        self.0.get(usize::from(keys.slot())).copied().unwrap_or_default()
    }

    /// Whether any lock is there.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.0.is_empty() || self.0.contains(&node)
    }

    pub(super) fn set(&mut self, keys: &LockKeys, node: NodeId) {
        if let Some(route) = self.0.get_mut(usize::from(keys.slot())) {
            *route = node;
        }
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

/// Asking for the routes.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    /// When it was last done.
    asked: Option<Mono>,
    /// An answer is still missing.
    under_way: bool,
    /// How often in a row nobody knew the answer.
    failures: u32,
}

impl Discovery {
    /// Asks which server has which slot, if nobody does already.
    pub(super) fn ask(&mut self, cx: &mut Context) {
        if !std::mem::replace(&mut self.under_way, true) {
            self.asked = Some(cx.now);
            cx.push(Effect::Discover);
        }
    }

    /// The routes may have changed: asks for them, but not all the time.
    pub(super) fn ask_soon(&self, cx: &mut Context) {
        if !cx.config.cluster || cx.timers.at(Timer::Discover).is_some() {
            return;
        }
        let interval = match self.failures {
            0 => DISCOVERY_INTERVAL,
            failures => {
                let most_ms = (100_u64 << failures.min(10)).min(DISCOVERY_MS_MAX);
                cx.jitter((most_ms / 2, most_ms))
            }
        };
        let earliest = self.asked.map_or(cx.now, |asked| asked + interval);
        cx.timers.set(Timer::Discover, earliest.max(cx.now));
    }

    pub(super) fn answered(&mut self, known: bool) {
        self.under_way = false;
        self.failures = if known { 0 } else { self.failures + 1 };
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
        assert!(routes.has(NodeId(1)) && !routes.has(NodeId(3)));
        assert_eq!(Routes::default().node(&keys), NodeId(0));
    }

    #[test]
    fn a_slot_that_nobody_has_is_asked_for_where_others_are() {
        let routes = Routes::new(&[(0, 8_191, NodeId(1))]);
        assert_eq!(routes.nodes(), [NodeId(1)]);
    }
}
