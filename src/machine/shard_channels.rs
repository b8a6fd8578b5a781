//! The shard channels of a Cluster, for the grants of locks: each is in its lock's slot, as everything must be that a
//! script touches.

use super::context::Context;
use super::interface::Effect;
use super::timers::Timer;
use crate::protocol::{LockKeys, Mono, NodeId};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long an unused channel is kept for later waiters.
pub(super) const CHANNEL_KEPT: Duration = Duration::from_secs(30);

/// Since when no caller has waited on a channel; none while one does.
#[derive(Debug, Default)]
pub(super) struct Unused(Option<Mono>);

impl Unused {
    pub(super) const fn end(&mut self) {
        self.0 = None;
    }

    /// Whether the channel is kept for later waiters. `waits`: whether a caller waits now.
    pub(super) fn is_kept(&mut self, now: Mono, waits: bool) -> bool {
        self.0 = if waits { None } else { self.0.or(Some(now)) };
        self.0.is_none_or(|since| now.since(since) < CHANNEL_KEPT)
    }
}

#[derive(Debug, Default)]
pub(super) struct ShardChannels(FxHashMap<Arc<str>, Channel>);

/// A channel that a server was asked to subscribe to.
#[derive(Debug)]
struct Channel {
    node: NodeId,
    keys: LockKeys,
    unused: Unused,
}

impl ShardChannels {
    /// A caller waits for a lock: subscribes to its channel on `node`.
    pub(super) fn listen(
        &mut self,
        context: &mut Context,
        node: NodeId,
        channel: Arc<str>,
        keys: &LockKeys,
    ) {
        if let Some(known) = self.0.get_mut(&channel)
            && known.node == node
        {
            known.unused.end();
            return;
        }
        if self.0.is_empty() {
            context.timers.set(Timer::ForgetChannels, context.now + CHANNEL_KEPT);
        }
        let new = Channel { node, keys: keys.clone(), unused: Unused::default() };
        if let Some(Channel { node, .. }) = self.0.insert(Arc::clone(&channel), new) {
            context.push(Effect::Unlisten { node, channel: Arc::clone(&channel) });
        }
        context.push(Effect::Listen { node, channel });
    }

    /// A subscription has begun or ended. Returns the lock of the channel, if that is wanted.
    pub(super) fn listening(&mut self, node: NodeId, channel: &str, on: bool) -> Option<LockKeys> {
        let known = self.0.get(channel).filter(|known| known.node == node)?;
        let keys = known.keys.clone();
        if !on {
            self.0.remove(channel);
        }
        Some(keys)
    }

    /// Unsubscribes from channels that have been unused for a while.
    pub(super) fn forget_unused(
        &mut self,
        context: &mut Context,
        waits: impl Fn(&LockKeys) -> bool,
    ) {
        let now = context.now;
        self.0.retain(|channel, known| {
            let keep = known.unused.is_kept(now, waits(&known.keys));
            if !keep {
                let (node, channel) = (known.node, Arc::clone(channel));
                context.push(Effect::Unlisten { node, channel });
            }
            keep
        });
        if !self.0.is_empty() {
            context.timers.set(Timer::ForgetChannels, context.now + CHANNEL_KEPT);
        }
    }

    /// The connection and its subscriptions are lost.
    pub(super) fn forget_node(&mut self, context: &mut Context, node: NodeId) {
        self.0.retain(|_, known| known.node != node);
        if self.0.is_empty() {
            context.timers.clear(Timer::ForgetChannels);
        }
    }
}
