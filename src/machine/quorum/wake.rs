//! Waking the callers that wait when a lock may be free.
//!
//! There is no wait queue, since several servers would order it differently. A refused caller marks the holder's value
//! and subscribes to the lock's channel on every server; the withdrawal of a marked value publishes there. The first
//! message wakes the waiter, which asks after a random pause, so that waiters do not split the votes. A missed message
//! costs one more pause.

use super::{Channel, Quorum, Timer, VIRTUAL, node_id};
use crate::machine::interface::{Effect, Event};
use crate::machine::protocol::Protocol;
use crate::machine::shard_channels::{CHANNEL_KEPT, Unused};
use crate::protocol::message::free_channel;
use crate::protocol::{LockKeys, Message};
use std::sync::Arc;

impl Quorum {
    /// A caller waits for a lock: subscribes to its channel on every server.
    pub(super) fn listen(&mut self, keys: &LockKeys) {
        let channel = free_channel(keys);
        if let Some(known) = self.channels.get_mut(&channel) {
            known.unused.end();
            return;
        }
        if self.channels.is_empty() {
            self.timers.insert((self.now + CHANNEL_KEPT, Timer::Forget));
        }
        for node in (0..self.nodes.len()).filter(|node| self.nodes[*node].connection.is_up()) {
            self.out.push(Effect::Listen { node: node_id(node), channel: Arc::clone(&channel) });
        }
        self.channels.insert(channel, Channel { keys: keys.clone(), unused: Unused::default() });
    }

    /// Subscribes on a new connection.
    pub(super) fn listen_again(&mut self, node: usize) {
        for channel in self.channels.keys() {
            self.out.push(Effect::Listen { node: node_id(node), channel: Arc::clone(channel) });
        }
    }

    /// A subscription has begun; a message may have been missed before.
    pub(super) fn listening(&mut self, channel: &str) {
        if let Some(known) = self.channels.get(channel) {
            let freed = Event::Message(Message::Freed(known.keys.clone()));
            self.tell(|machine, now, wanted| machine.handle_event(now, VIRTUAL, freed, wanted));
        }
    }

    /// A server denies subscriptions. If most do, the machine is notified.
    pub(super) fn pubsub_denied(&mut self, node: usize, why: String) {
        self.nodes[node].connection.pubsub_denied = true;
        let denied = self.nodes.iter().filter(|node| node.connection.pubsub_denied).count();
        if denied >= super::ballot::majority(self.nodes.len()) {
            let denied = Event::PubsubDenied(why);
            self.tell(|machine, now, wanted| machine.handle_event(now, VIRTUAL, denied, wanted));
        }
    }

    /// Unsubscribes from channels that have been unused for a while.
    pub(super) fn forget_channels(&mut self) {
        let (machine, nodes, now) = (&self.machine, &self.nodes, self.now);
        self.channels.retain(|channel, known| {
            let keep = known.unused.is_kept(now, machine.waits_for(&known.keys));
            if !keep {
                let up = (0..nodes.len()).filter(|node| nodes[*node].connection.is_up());
                self.out.extend(up.map(|node| Effect::Unlisten {
                    node: node_id(node),
                    channel: Arc::clone(channel),
                }));
            }
            keep
        });
        if !self.channels.is_empty() {
            self.timers.insert((self.now + CHANNEL_KEPT, Timer::Forget));
        }
    }
}
