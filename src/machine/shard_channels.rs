//! The shard channels of a Cluster, on which the grants of a lock are told: each is in its lock's slot, as everything
//! that a script touches must be.

use super::context::Context;
use super::interface::Effect;
use super::timers::Timer;
use crate::protocol::clock::Mono;
use crate::protocol::ids::NodeId;
use crate::protocol::keys::LockKeys;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;

/// A channel that nobody waits on is kept so long, for whoever waits next.
const CHANNEL_KEPT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct ShardChannels(FxHashMap<Arc<str>, Channel>);

/// A channel that a server was asked for.
#[derive(Debug)]
struct Channel {
    node: NodeId,
    keys: LockKeys,
    /// Since when nobody waits.
    unused: Option<Mono>,
}

impl ShardChannels {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Somebody waits for a lock: listens to its channel on `node`.
    pub(super) fn listen(
        &mut self,
        cx: &mut Context,
        node: NodeId,
        channel: Arc<str>,
        keys: &LockKeys,
    ) {
        if let Some(known) = self.0.get_mut(&channel)
            && known.node == node
        {
            known.unused = None;
            return;
        }
        if self.0.is_empty() {
            cx.timers.set(Timer::ForgetChannels, cx.now + CHANNEL_KEPT);
        }
        let new = Channel { node, keys: keys.clone(), unused: None };
        if let Some(Channel { node, .. }) = self.0.insert(Arc::clone(&channel), new) {
            cx.push(Effect::Unlisten { node, channel: Arc::clone(&channel) });
        }
        cx.push(Effect::Listen { node, channel });
    }

    /// Messages come from now on, or do so no longer. The lock that they are about, if they are waited for.
    pub(super) fn listening(&mut self, node: NodeId, channel: &str, on: bool) -> Option<LockKeys> {
        let known = self.0.get(channel).filter(|known| known.node == node)?;
        let keys = known.keys.clone();
        if !on {
            self.0.remove(channel);
        }
        Some(keys)
    }

    /// Gives up the channels that nobody has waited on for a while.
    pub(super) fn forget_unused(&mut self, cx: &mut Context, waits: impl Fn(&LockKeys) -> bool) {
        let now = cx.now;
        self.0.retain(|channel, known| {
            known.unused = if waits(&known.keys) { None } else { known.unused.or(Some(now)) };
            let keep = known.unused.is_none_or(|since| now.since(since) < CHANNEL_KEPT);
            if !keep {
                let (node, channel) = (known.node, Arc::clone(channel));
                cx.push(Effect::Unlisten { node, channel });
            }
            keep
        });
        if !self.0.is_empty() {
            cx.timers.set(Timer::ForgetChannels, cx.now + CHANNEL_KEPT);
        }
    }

    /// The connection is gone, and with it what came over it.
    pub(super) fn forget_node(&mut self, cx: &mut Context, node: NodeId) {
        self.0.retain(|_, known| known.node != node);
        if self.0.is_empty() {
            cx.timers.clear(Timer::ForgetChannels);
        }
    }
}
