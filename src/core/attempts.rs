//! The attempts to connect to one server that are under way. The first that succeeds ends the others.
//!
//! Source: <https://www.rfc-editor.org/rfc/rfc8305>, section 5

use crate::protocol::Mono;
use std::time::Duration;
use tokio::task::JoinHandle;

/// An attempt that takes longer ends for the next one, unless it is the oldest: that has the whole connect timeout, so
/// also a slow server is reached. Most likely its first packet was lost, and the kernel sends that again too late.
const PATIENCE: Duration = Duration::from_secs(1);

/// Names an attempt to connect and the connection that it makes, so that events of earlier ones can be ignored.
pub(super) type Generation = u64;

/// The attempts, oldest first.
#[derive(Default)]
pub(super) struct Attempts(Vec<Attempt>);

/// One attempt. Dropping it closes what it has opened.
struct Attempt {
    generation: Generation,
    began: Mono,
    task: JoinHandle<()>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Attempts {
    pub(super) fn begin(&mut self, now: Mono, generation: Generation, task: JoinHandle<()>) {
        let mut is_oldest = true;
        self.0.retain(|attempt| {
            std::mem::take(&mut is_oldest) || now.since(attempt.began) < PATIENCE
        });
        self.0.push(Attempt { generation, began: now, task });
    }

    /// An attempt has ended. False if it was not wanted any more.
    pub(super) fn end(&mut self, generation: Generation) -> bool {
        let index = self.0.iter().position(|attempt| attempt.generation == generation);
        index.map(|index| self.0.remove(index)).is_some()
    }

    pub(super) fn end_all(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts attempts that never end, each so many ms after the first.
    fn begun(after_ms: &[u64]) -> Attempts {
        let mut attempts = Attempts::default();
        for (ms, generation) in after_ms.iter().zip(1..) {
            let now = Mono::from_micros(ms * 1_000);
            attempts.begin(now, generation, tokio::spawn(std::future::pending()));
        }
        attempts
    }

    #[tokio::test]
    async fn the_oldest_attempt_and_those_of_the_last_second_go_on() {
        let mut attempts = begun(&[0, 400, 900, 1_500]);
        let going: Vec<_> = (1..=4).filter(|generation| attempts.end(*generation)).collect();
        assert_eq!(going, [1, 3, 4]);
    }

    #[tokio::test]
    async fn an_attempt_that_is_not_needed_is_dropped() {
        let (held, dropped) = tokio::sync::oneshot::channel::<()>();
        let mut attempts = begun(&[0]);
        let task = tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        attempts.begin(Mono::default(), 9, task);
        attempts.end_all();
        assert!(dropped.await.is_err(), "what it holds is dropped");
        assert!(!attempts.end(9), "its result does not count");
    }
}
