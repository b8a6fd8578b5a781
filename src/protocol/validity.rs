//! How long a lease may be relied on.

use super::clock::Mono;
use std::time::Duration;

/// The longest lease of a grant by message, until its owner claims it. The same number stands in `lua/wait_queue.lua`.
pub const CLAIM: Duration = Duration::from_secs(3);

/// How long a client may rely on a lease of `ttl` that it requested at `sent`.
///
/// Counted from before the request left, less 1 % + 2 ms for clocks that run at different speeds:
/// <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>
#[must_use]
pub fn valid_until(sent: Mono, ttl: Duration) -> Mono {
    sent + ttl.saturating_sub(drift(ttl))
}

/// How far clocks may drift apart, as a part of the time: 1 %.
pub(crate) const DRIFT: u32 = 100;

/// The part of a lease that is not relied on.
#[must_use]
pub fn drift(ttl: Duration) -> Duration {
    ttl / DRIFT + Duration::from_millis(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_ends_before_the_lease() {
        let sent = Mono::from_micros(1_000_000);
        let until = valid_until(sent, Duration::from_secs(10));
        assert_eq!(until.since(sent), Duration::from_millis(10_000 - 100 - 2));
    }
}
