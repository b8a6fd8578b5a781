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

/// The shortest lease in whole ms that a client may rely on until `until` if it requests it at `sent`: what
/// [`valid_until`] takes off is added.
#[must_use]
pub fn lease_until(sent: Mono, until: Mono) -> Duration {
    let us = (until.since(sent) + SLACK).as_micros() * u128::from(DRIFT);
    let ms = us.div_ceil(u128::from(DRIFT - 1) * 1_000);
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}

/// How far clocks may drift apart, as a part of the time: 1 %.
pub(crate) const DRIFT: u32 = 100;
/// The least part of a lease that is not relied on, however short it is: servers count in whole ms.
const SLACK: Duration = Duration::from_millis(2);

/// The part of a lease that is not relied on.
#[must_use]
pub fn drift(ttl: Duration) -> Duration {
    ttl / DRIFT + SLACK
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

    #[test]
    fn a_lease_until_some_time_is_the_shortest_that_lasts_so_long() {
        let sent = Mono::from_micros(1_000_000);
        for us in (1_000..1_000_000).step_by(777) {
            let until = sent + Duration::from_micros(us);
            let ttl = lease_until(sent, until);
            assert!(valid_until(sent, ttl) >= until, "{ttl:?} for {us} us");
            assert!(
                valid_until(sent, ttl.saturating_sub(Duration::from_millis(1))) < until,
                "{ttl:?} for {us} us"
            );
        }
        assert_eq!(
            lease_until(sent, valid_until(sent, Duration::from_secs(5))),
            Duration::from_secs(5)
        );
        assert!(lease_until(sent, Mono::NEVER) > Duration::from_secs(1 << 40), "it never ends");
    }
}
