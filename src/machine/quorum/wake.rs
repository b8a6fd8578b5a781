//! Waking the callers that wait when a lock may be free.
//!
//! There is no wait queue, since several servers would order it differently. A refused caller marks the holder's value
//! and subscribes to the lock's channel on every server; the withdrawal of a marked value publishes there. The first
//! message wakes the waiter, which asks after a random pause, so that waiters do not split the votes. A missed message
//! costs one more pause.

use super::servers::{Servers, node_id};
use crate::machine::context::Context;
use crate::machine::interface::Effect;
use crate::machine::shard_channels::{CHANNEL_KEPT, Unused};
use crate::machine::timers::Timer;
use crate::protocol::LockKeys;
use crate::protocol::message::free_channel;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The subscribed channels.
#[derive(Debug, Default)]
pub(super) struct Channels(BTreeMap<Arc<str>, Channel>);

/// The channel for messages that a lock may be free.
#[derive(Debug)]
struct Channel {
    keys: LockKeys,
    unused: Unused,
}

impl Channels {
    /// A caller waits for a lock: subscribes to its channel on every server.
    pub(super) fn listen(&mut self, context: &mut Context, servers: &Servers, keys: &LockKeys) {
        let channel = free_channel(keys);
        if let Some(known) = self.0.get_mut(&channel) {
            return known.unused.end();
        }
        if self.0.is_empty() {
            context.timers.set(Timer::ForgetChannels, context.now + CHANNEL_KEPT);
        }
        servers
            .push_to_all_up(context, |node| Effect::Listen { node, channel: Arc::clone(&channel) });
        self.0.insert(channel, Channel { keys: keys.clone(), unused: Unused::default() });
    }

    /// Subscribes on a new connection.
    pub(super) fn connected(&self, context: &mut Context, node: usize) {
        for channel in self.0.keys() {
            let channel = Arc::clone(channel);
            context.push(Effect::Listen { node: node_id(node), channel });
        }
    }

    /// The lock of a channel.
    pub(super) fn lock_of(&self, channel: &str) -> Option<LockKeys> {
        self.0.get(channel).map(|known| known.keys.clone())
    }

    /// Unsubscribes from channels that have been unused for a while.
    pub(super) fn forget_unused(
        &mut self,
        context: &mut Context,
        servers: &Servers,
        waits: impl Fn(&LockKeys) -> bool,
    ) {
        self.0.retain(|channel, known| {
            let keep = known.unused.is_kept(context.now, waits(&known.keys));
            if !keep {
                servers.push_to_all_up(context, |node| Effect::Unlisten {
                    node,
                    channel: Arc::clone(channel),
                });
            }
            keep
        });
        if !self.0.is_empty() {
            context.timers.set(Timer::ForgetChannels, context.now + CHANNEL_KEPT);
        }
    }
}
