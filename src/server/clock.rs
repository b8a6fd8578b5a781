//! The clock of a store in this process: that of the machine, until a test stops it and moves it.

use crate::protocol::Mono;
use std::sync::atomic::{AtomicU64, Ordering};

/// The clock of a store and of all its managers. It begins as the monotonic clock.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Where it stands, in µs; `u64::MAX` while it runs.
    stands_at: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { stands_at: AtomicU64::new(Mono::NEVER.as_micros()) }
    }
}

impl Clock {
    /// The time that it shows.
    pub(crate) fn now(&self) -> Mono {
        self.standing().unwrap_or_else(Mono::now)
    }

    /// Whether a test moves it: then nothing becomes due by itself.
    pub(crate) fn is_stopped(&self) -> bool {
        self.standing().is_some()
    }

    /// Stops it, unless it stands already.
    pub(crate) fn stop(&self) {
        let (runs, now) = (Mono::NEVER.as_micros(), Mono::now().as_micros());
        // Another thread may have stopped it meanwhile.
        let _ = self.stands_at.compare_exchange(runs, now, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Moves it, but never back.
    pub(crate) fn move_to(&self, at: Mono) {
        self.stands_at.fetch_max(at.as_micros(), Ordering::SeqCst);
    }

    fn standing(&self) -> Option<Mono> {
        let at = Mono::from_micros(self.stands_at.load(Ordering::SeqCst));
        (at != Mono::NEVER).then_some(at)
    }
}
