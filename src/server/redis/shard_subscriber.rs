//! The shard channels of a server of a Cluster.

use super::{Deliver, Endpoint, Incoming, link, single, wire};
use crate::faults::{self, OnPanic};
use crate::protocol::{DEFECT, Failure, Mono};
use redis::{PushInfo, PushKind, Value};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// A channel, and whether to subscribe or unsubscribe.
pub(super) type Subscription = (Arc<str>, bool);

/// A connection that is silent for this long is checked: a firewall may have dropped it without notice.
const CHECK_AFTER: Duration = Duration::from_secs(2);

/// Subscribes to shard channels on a connection of its own: when a slot moves, the server ends its
/// subscriptions with pushes that could not be told apart from replies.
pub(super) async fn listen(
    server: Endpoint,
    mut wanted: UnboundedReceiver<Subscription>,
    deliver: Deliver,
) {
    let _reported = OnPanic(|| deliver(Incoming::Disconnected(DEFECT.to_owned())));
    let mut pace = Pace::default();
    let mut open: Option<ShardSubscriber> = None;
    loop {
        let in_use = open.as_ref().is_some_and(ShardSubscriber::is_in_use);
        let limit = if in_use { CHECK_AFTER } else { Duration::MAX };
        let subscription = match tokio::time::timeout(limit, wanted.recv()).await {
            Ok(Some(subscription)) => Some(subscription),
            Ok(None) => return,
            Err(_) => None,
        };
        faults::at("subscriber");
        if open.as_ref().is_none_or(ShardSubscriber::is_over) {
            let Some((channel, true)) = &subscription else { continue };
            // Sleeping for zero still takes a ms, in which waiters cannot be notified.
            let pause = pace.pause();
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            open = ShardSubscriber::open(&server, &deliver).await;
            if open.is_none() {
                deliver(Incoming::Listening(Arc::clone(channel), false));
                refuse_all(&mut wanted, &deliver);
                continue;
            }
        }
        if let Some(subscriber) = &mut open
            && !subscriber.ask(subscription, &deliver).await
        {
            open = None;
        }
    }
}

/// Refuses all subscriptions that are pending: each would otherwise wait for its own failing connection.
fn refuse_all(wanted: &mut UnboundedReceiver<Subscription>, deliver: &Deliver) {
    while let Ok((channel, on)) = wanted.try_recv() {
        if on {
            deliver(Incoming::Listening(channel, false));
        }
    }
}

/// The longest pause between two connections for shard channels.
const PAUSE_MS_MAX: u64 = 1_000;

/// Spaces out failing or short connections: after each failure the waiters ask the server and then want to
/// subscribe again.
#[derive(Default)]
struct Pace {
    /// When the last connection began.
    last: Option<Mono>,
    /// The connections since one last lasted.
    tries: u32,
}

impl Pace {
    /// The pause before the next connection.
    fn pause(&mut self) -> Duration {
        let now = Mono::now();
        let lasted =
            self.last.is_none_or(|last| now.since(last).as_millis() > u128::from(2 * PAUSE_MS_MAX));
        self.tries = if lasted { 0 } else { self.tries + 1 };
        let most_ms = match self.tries {
            0 => 0,
            tries => (50_u64 << (tries - 1).min(10)).min(PAUSE_MS_MAX),
        };
        let pause = Duration::from_millis(most_ms / 2 + super::chance() % (most_ms / 2 + 1));
        self.last = Some(now + pause);
        pause
    }
}

struct ShardSubscriber {
    dialled: single::Dialled,
    /// The subscribed channels; none when the connection is gone.
    channels: Arc<Mutex<Option<BTreeSet<Arc<str>>>>>,
    /// The timeout of a reply.
    patience: Duration,
}

impl ShardSubscriber {
    async fn open(server: &Endpoint, deliver: &Deliver) -> Option<Self> {
        let channels = Arc::new(Mutex::new(Some(BTreeSet::new())));
        let (known, onwards) = (Arc::clone(&channels), Arc::clone(deliver));
        let dialled = single::dial(server, move |push| heard(&push, &known, &onwards));
        let patience = server.connect_timeout;
        let dialled = tokio::time::timeout(patience, dialled).await.ok()?.ok()?;
        Some(Self { dialled, channels, patience })
    }

    fn channels(&self) -> MutexGuard<'_, Option<BTreeSet<Arc<str>>>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.channels().is_none()
    }

    fn is_in_use(&self) -> bool {
        self.channels().as_ref().is_some_and(|channels| !channels.is_empty())
    }

    /// Changes a subscription, or only checks the connection. Returns whether the server answered.
    async fn ask(&mut self, subscription: Option<Subscription>, deliver: &Deliver) -> bool {
        let mut command = redis::cmd(match subscription {
            Some((_, true)) => "SSUBSCRIBE",
            Some((_, false)) => "SUNSUBSCRIBE",
            // Every user of locks may run it.
            None => "TIME",
        });
        if let Some((channel, _)) = &subscription {
            command.arg(&**channel);
        }
        let answer = self.dialled.inner.send_packed_command(&command);
        let Ok(answer) = tokio::time::timeout(self.patience, answer).await else {
            self.give_up(subscription, deliver);
            return false;
        };
        let Err(error) = answer.and_then(Value::extract_error) else { return true };
        match (wire::failure(&error), subscription) {
            // The slot has moved, or is about to: the waiters find out where to.
            (Failure::Refused(refusal), Some((channel, true))) if is_elsewhere(&refusal.code) => {
                deliver(Incoming::Listening(channel, false));
            }
            (Failure::Refused(refusal), Some((_, true))) => {
                deliver(Incoming::PubsubDenied(refusal.to_string()));
            }
            (Failure::Lost(_), subscription) => {
                self.give_up(subscription, deliver);
                return false;
            }
            _ => {}
        }
        true
    }

    /// Ends all subscriptions.
    fn give_up(&self, subscription: Option<Subscription>, deliver: &Deliver) {
        let mut unheard = self.channels().take().unwrap_or_default();
        unheard.extend(subscription.and_then(|(channel, on)| on.then_some(channel)));
        for channel in unheard {
            deliver(Incoming::Listening(channel, false));
        }
    }
}

fn is_elsewhere(code: &str) -> bool {
    matches!(code, "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN")
}

/// Handles a push on a connection that subscribes.
fn heard(push: &PushInfo, known: &Mutex<Option<BTreeSet<Arc<str>>>>, deliver: &Deliver) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    match (&push.kind, push.data.first()) {
        (PushKind::Disconnection, _) => {
            for channel in known.take().unwrap_or_default() {
                deliver(Incoming::Listening(channel, false));
            }
        }
        (
            kind @ (PushKind::SSubscribe | PushKind::SUnsubscribe),
            Some(Value::BulkString(channel)),
        ) => {
            let Ok(channel) = std::str::from_utf8(channel) else { return };
            let (channel, on): (Arc<str>, _) = (channel.into(), *kind == PushKind::SSubscribe);
            // After `give_up`, the end of all subscriptions is already reported.
            let Some(known) = known.as_mut() else { return };
            if on {
                known.insert(Arc::clone(&channel))
            } else {
                known.remove(&channel)
            };
            deliver(Incoming::Listening(channel, on));
        }
        (PushKind::Message | PushKind::SMessage, _) => {
            if let Some(message) = link::message(&push.data) {
                deliver(message);
            }
        }
        _ => {}
    }
}

/// Handles a push with two channels subscribed.
#[cfg(any(test, fuzzing))]
pub(super) fn overhear(push: &PushInfo, deliver: &Deliver) {
    let channels = ["a".into(), "b".into()];
    heard(push, &Mutex::new(Some(BTreeSet::from(channels))), deliver);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_come_to_nothing_are_spaced_out() {
        let mut pace = Pace::default();
        let pauses: Vec<_> = (0..8).map(|_| pace.pause().as_millis()).collect();
        assert_eq!(pauses.first(), Some(&0));
        assert!(matches!(pauses.get(1), Some(25..=50)), "{pauses:?}");
        assert!(matches!(pauses.last(), Some(500..=1_000)), "{pauses:?}");
        let long_ago = Mono::now().as_micros().saturating_sub(3_000_000);
        pace.last = Some(Mono::from_micros(long_ago));
        assert_eq!(pace.pause(), Duration::ZERO);
    }
}
