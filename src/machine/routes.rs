//! Where in a Cluster a lock lives, and the shard channels on which its grants are told.
//!
//! Everywhere else there is one server, and all locks are on it.

use super::{Effect, Machine, Manner, NodeId, Purpose, Timer};
use crate::clock::Mono;
use crate::error::{Failure, Refusal};
use crate::keys::{LockKeys, SLOTS};
use crate::script::Reply;
use std::sync::Arc;
use std::time::Duration;

/// Which server has which slot. Empty where there is only one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Routes(Vec<NodeId>);

/// Two questions for the routes are so far apart at least.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(100);
/// The longest pause between two of them while nobody answers.
const DISCOVERY_MS_MAX: u64 = 1_000;
/// A channel that nobody waits on is kept so long, for whoever waits next.
const CHANNEL_KEPT: Duration = Duration::from_secs(30);

/// Asking for the routes.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    /// When it was last done.
    asked: Option<Mono>,
    /// An answer is still missing.
    under_way: bool,
    /// It is planned.
    planned: bool,
    /// How often in a row nobody knew the answer.
    failures: u32,
}

/// A shard channel that a server was asked for.
#[derive(Debug)]
pub(super) struct Channel {
    node: NodeId,
    keys: LockKeys,
    /// Nobody has waited since.
    unused: Option<Mono>,
}

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

    fn set(&mut self, keys: &LockKeys, node: NodeId) {
        if let Some(place) = self.0.get_mut(usize::from(keys.slot())) {
            *place = node;
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

impl Machine {
    /// Asks which server has which slot, if nobody does already.
    pub(super) fn discover(&mut self, now: Mono, out: &mut Vec<Effect>) {
        self.discovery.planned = false;
        if !std::mem::replace(&mut self.discovery.under_way, true) {
            self.discovery.asked = Some(now);
            out.push(Effect::Discover);
        }
    }

    /// The routes may have changed: asks for them, but not all the time.
    pub(super) fn discover_soon(&mut self, now: Mono) {
        if !self.config.cluster || self.closing.is_some() || self.discovery.planned {
            return;
        }
        let interval = match self.discovery.failures {
            0 => DISCOVERY_INTERVAL,
            failures => {
                let most_ms = (100_u64 << failures.min(10)).min(DISCOVERY_MS_MAX);
                self.jitter((most_ms / 2, most_ms))
            }
        };
        let earliest = self.discovery.asked.map_or(now, |asked| asked + interval);
        self.discovery.planned = true;
        self.timers.insert((earliest.max(now), Timer::Discover));
    }

    pub(super) fn discovered(
        &mut self,
        now: Mono,
        routes: Result<Routes, Failure>,
        out: &mut Vec<Effect>,
    ) {
        self.discovery.under_way = false;
        let routes = match routes {
            Ok(routes) => routes,
            Err(failure) if self.is_opening() => return self.opened(Err(failure), out),
            Err(_) => {
                self.discovery.failures += 1;
                return self.discover_soon(now);
            }
        };
        self.discovery.failures = 0;
        let news = self.routes != routes;
        self.routes = routes;
        let nodes = self.routes.nodes();
        for node in &nodes {
            // Each exists from now on: what is resumed may be on any of them.
            self.want(*node, out);
        }
        for node in nodes {
            if news && self.links.at(node).is_up() {
                self.resume(now, node, out);
            }
        }
    }

    /// What becomes of a reply that may say that a lock is elsewhere. A request follows that once: servers that
    /// send it to each other would do so until somebody mends the Cluster, so the second says no.
    pub(super) fn redirected(
        &mut self,
        now: Mono,
        purpose: Purpose,
        manner: Manner,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) -> Result<Reply, Failure> {
        let (Err(Failure::Moved(_) | Failure::Moving(_)), Some(keys)) =
            (&reply, self.keys_for(purpose))
        else {
            return reply;
        };
        let (keys, slot) = (keys.clone(), keys.slot());
        if let Err(Failure::Moved(to)) = reply {
            self.moved(now, &keys, to, out);
        }
        match (&reply, manner) {
            (Err(Failure::Moved(_)), Manner::Redirected | Manner::Asking(_))
            | (Err(Failure::Moving(_)), Manner::Asking(_)) => Err(Refusal::redirected(slot).into()),
            _ => reply,
        }
    }

    /// A server says that a lock is elsewhere.
    fn moved(&mut self, now: Mono, keys: &LockKeys, to: NodeId, out: &mut Vec<Effect>) {
        self.routes.set(keys, to);
        self.want(to, out);
        self.discover_soon(now);
    }

    /// The shard channel on which the grants of a lock are told: in the lock's slot, as everything
    /// that a script touches must be.
    pub(super) fn channel(&self, keys: &LockKeys) -> Arc<str> {
        format!("{}:{{{}}}", self.links.inbox, keys.tag()).into()
    }

    /// Somebody stands in line for a lock: listens to its channel. While it does not yet, a release
    /// skips whoever waits, so the line asks again as soon as it does.
    pub(super) fn listen(&mut self, now: Mono, keys: &LockKeys, out: &mut Vec<Effect>) {
        if !self.config.cluster || self.link_of(keys).is_deaf() {
            return;
        }
        let (node, channel) = (self.routes.node(keys), self.channel(keys));
        if let Some(known) = self.channels.get_mut(&channel)
            && known.node == node
        {
            known.unused = None;
            return;
        }
        if self.channels.is_empty() {
            self.timers.insert((now + CHANNEL_KEPT, Timer::Forget));
        }
        let unused = None;
        let old = self
            .channels
            .insert(Arc::clone(&channel), Channel { node, keys: keys.clone(), unused });
        if let Some(Channel { node, .. }) = old {
            out.push(Effect::Unlisten { node, channel: Arc::clone(&channel) });
        }
        out.push(Effect::Listen { node, channel });
    }

    /// Messages come from now on, or do so no longer: either way one may have been missed.
    pub(super) fn listening(
        &mut self,
        now: Mono,
        node: NodeId,
        channel: &str,
        on: bool,
        out: &mut Vec<Effect>,
    ) {
        let Some(known) = self.channels.get(channel).filter(|known| known.node == node) else {
            return;
        };
        let waiting = self.attempts_in_line(&known.keys);
        if !on {
            self.channels.remove(channel);
        }
        for attempt in waiting {
            self.send_attempt(now, attempt, Manner::Plain, out);
        }
    }

    /// A server lets this manager listen to no channel: its waiters ask instead, and from now on.
    pub(super) fn deafened(&mut self, now: Mono, node: NodeId, why: String, out: &mut Vec<Effect>) {
        self.forget_channels_of(node);
        self.set_deaf(node, Some(why), out);
        self.resume(now, node, out);
    }

    /// Gives up the channels that nobody has waited on for a while.
    pub(super) fn forget_channels(&mut self, now: Mono, out: &mut Vec<Effect>) {
        let lines = &self.lines;
        self.channels.retain(|channel, known| {
            let waits = lines.contains_key(&known.keys);
            let unused = if waits { None } else { Some(known.unused.unwrap_or(now)) };
            known.unused = unused;
            let keep = unused.is_none_or(|since| now.since(since) < CHANNEL_KEPT);
            if !keep {
                out.push(Effect::Unlisten { node: known.node, channel: Arc::clone(channel) });
            }
            keep
        });
        if !self.channels.is_empty() {
            self.timers.insert((now + CHANNEL_KEPT, Timer::Forget));
        }
    }

    /// The connection is gone, and with it what came over it.
    pub(super) fn forget_channels_of(&mut self, node: NodeId) {
        self.channels.retain(|_, known| known.node != node);
        if self.channels.is_empty() {
            self.timers.retain(|(_, timer)| *timer != Timer::Forget);
        }
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
