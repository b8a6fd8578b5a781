//! The shard channels of a server of a Cluster.

use super::dialogue::{Dialogue, in_time};
use super::subscriber::{Channels, Subscriber, Subscription};
use crate::faults::OnPanic;
use crate::protocol::{DEFECT, Mono};
use crate::server::{Deliver, Endpoint, Incoming};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// If no message has come for this long, the connection is checked.
const CHECK_AFTER: Duration = Duration::from_secs(2);

/// Subscribes to shard channels on a connection of its own: when a slot moves, the server ends its
/// subscriptions with pushes that look like replies.
pub(super) async fn listen(
    server: Endpoint,
    mut wanted: UnboundedReceiver<Subscription>,
    deliver: Deliver,
) {
    let _reported = OnPanic(|| deliver(Incoming::Disconnected(DEFECT.to_owned())));
    let mut pace = Pace::default();
    while let Some((channel, on)) = wanted.recv().await {
        if !on {
            continue;
        }
        // Sleeping for zero still takes a ms, in which waiters cannot be notified.
        let pause = pace.pause();
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let Ok(dialogue) = in_time(&server, Dialogue::open(&server)).await else {
            deliver(Incoming::Listening(channel, false));
            refuse_all(&mut wanted, &deliver);
            continue;
        };
        let patience = server.connect_timeout;
        let mut subscriber = Subscriber::new(dialogue, Channels::Shard, CHECK_AFTER, patience);
        if subscriber.ask((channel, true)).await.is_ok() {
            let open = |server: Endpoint| async move { Dialogue::open(&server).await };
            let _broken = subscriber.run_renewed(&server, open, &mut wanted, &deliver).await;
        }
        for channel in subscriber.into_channels() {
            deliver(Incoming::Listening(channel, false));
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
        let pause = random_pause(most_ms, uuid::Uuid::new_v4().as_u64_pair().0);
        self.last = Some(now + pause);
        pause
    }
}

/// A pause between the half of `most_ms` and that. `chance`: a random number.
const fn random_pause(most_ms: u64, chance: u64) -> Duration {
    let least_ms = most_ms / 2;
    Duration::from_millis(least_ms + chance % (most_ms - least_ms + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_between_the_half_of_the_longest_and_that() {
        for (most_ms, chance, ms) in
            [(0, 7, 0), (50, 0, 25), (50, 25, 50), (50, 26, 25), (1_000, 500, 1_000)]
        {
            assert_eq!(random_pause(most_ms, chance), Duration::from_millis(ms));
        }
    }

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
