//! The two clocks of the protocol, as types that cannot be mixed up.

use std::ops::Add;
use std::time::Duration;

/// A point on this machine's monotonic clock, in µs since boot, that also advances during suspend.
///
/// `std::time::Instant` stops while a laptop or a virtual machine sleeps; a lease does not.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Mono(u64);

impl Mono {
    /// A point that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `us` microseconds after boot.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us)
    }

    /// Microseconds since boot.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Reads the clock.
    #[cfg(feature = "core")]
    #[must_use]
    pub fn now() -> Self {
        read::now()
    }
}

impl Add<Duration> for Mono {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(us))
    }
}

/// A server's wall clock, as its `TIME` command returns it: µs since 1970.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct ServerTime(u64);

impl ServerTime {
    /// The point `us` microseconds after 1970.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us)
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Reads this machine's wall clock: for a server inside this process, or to compare it with a server's.
    #[cfg(feature = "core")]
    #[must_use]
    #[expect(clippy::disallowed_types, reason = "decides nothing about a server elsewhere")]
    pub fn now() -> Self {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self(since_1970.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX)))
    }
}

#[cfg(all(feature = "core", unix))]
mod read {
    use super::Mono;
    use rustix::time::{ClockId, clock_gettime};

    /// `CLOCK_BOOTTIME` counts suspend on Linux; macOS' `CLOCK_MONOTONIC` does so by itself.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    pub(super) fn now() -> Mono {
        let time = clock_gettime(CLOCK);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Mono(seconds * 1_000_000 + nanos / 1_000)
    }
}

#[cfg(all(feature = "core", not(unix)))]
mod read {
    use super::Mono;
    use std::sync::OnceLock;

    /// On Windows `Instant` is the performance counter, which runs on during suspend.
    #[expect(clippy::disallowed_types, reason = "right on this platform, and the only reader")]
    type Counter = std::time::Instant;

    static START: OnceLock<Counter> = OnceLock::new();

    pub(super) fn now() -> Mono {
        // One second ahead, so that no sum of the protocol can fall before the start.
        Mono::from_micros(1_000_000) + START.get_or_init(Counter::now).elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_never_goes_below_zero() {
        let early = Mono::from_micros(5);
        let late = early + Duration::from_micros(7);
        assert_eq!(late.since(early), Duration::from_micros(7));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[cfg(feature = "core")]
    #[test]
    fn the_clock_never_goes_back() {
        let first = Mono::now();
        assert!(Mono::now() >= first, "the later reading is no earlier");
        assert!(first.as_micros() > 0, "the clock is past its start");
    }
}
