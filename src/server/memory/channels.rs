//! Subscriptions and published messages.

use std::collections::BTreeMap;

/// One published message on its way to one subscriber.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Message {
    /// The receiver.
    pub(crate) subscriber: u64,
    /// The channel of the PUBLISH.
    pub(crate) channel: String,
    /// The published bytes.
    pub(crate) payload: Vec<u8>,
}

/// The channels with subscribers, and the messages that are not taken yet.
#[derive(Default)]
pub(super) struct Channels {
    /// Subscribers in the order of their subscriptions; no list is empty.
    subscribers: BTreeMap<String, Vec<u64>>,
    messages: Vec<Message>,
}

impl Channels {
    pub(super) fn subscribe(&mut self, subscriber: u64, channel: &str) {
        let subscribers = self.subscribers.entry(channel.to_owned()).or_default();
        if !subscribers.contains(&subscriber) {
            subscribers.push(subscriber);
        }
    }

    pub(super) fn unsubscribe(&mut self, subscriber: u64) {
        self.subscribers.retain(|_, subscribers| {
            subscribers.retain(|other| *other != subscriber);
            !subscribers.is_empty()
        });
    }

    /// How many subscribers `channel` has.
    pub(super) fn listening(&self, channel: &[u8]) -> usize {
        self.of(channel).map_or(0, |(_, subscribers)| subscribers.len())
    }

    /// Returns the number of subscribers that will get `payload`.
    pub(super) fn publish(&mut self, channel: &[u8], payload: &[u8]) -> usize {
        let Some((channel, subscribers)) = self.of(channel) else { return 0 };
        let messages: Vec<Message> = subscribers
            .iter()
            .map(|&subscriber| Message {
                subscriber,
                channel: channel.to_owned(),
                payload: payload.to_vec(),
            })
            .collect();
        let count = messages.len();
        self.messages.extend(messages);
        count
    }

    pub(super) fn take_messages(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.messages)
    }

    fn of(&self, channel: &[u8]) -> Option<(&str, &[u64])> {
        let channel = std::str::from_utf8(channel).ok()?;
        let (channel, subscribers) = self.subscribers.get_key_value(channel)?;
        Some((channel, subscribers))
    }
}
