//! Numbers, as JavaScript has them.

#![expect(unreachable_pub, reason = "napi exports nothing that is not `pub`")]

use napi_derive::napi;
use std::time::Duration;

/// The remaining time of a lease that never ends by itself.
#[napi]
pub const LEASE_ENDLESS: f64 = -1.0;
/// A time in ms, which TypeScript has checked.
pub(super) const fn millis(ms: f64) -> Duration {
    Duration::from_millis(whole(ms))
}

/// TypeScript has checked that these are whole, positive and below 2^53.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and TypeScript has checked the range"
)]
pub(super) const fn whole(value: f64) -> u64 {
    value as u64
}

#[expect(clippy::cast_precision_loss, reason = "fences, lease numbers and counts stay below 2^53")]
pub(super) const fn number(value: u64) -> f64 {
    value as f64
}

pub(super) fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round()
}
