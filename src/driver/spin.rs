//! A short busy wait, used only while it pays.
//!
//! Putting a thread to sleep and waking it costs more than the round trip to a server on the same machine. So
//! while replies keep arriving within microseconds the driver polls again before it sleeps; as soon as they
//! do not, it stops polling. The rule is that of the Linux kernel's
//! haltpoll governor: <https://docs.kernel.org/virt/guest-halt-polling.html>

use crate::protocol::Mono;
use std::time::Duration;

/// The longest spin without a result.
const BUDGET_MAX: Duration = Duration::from_micros(60);
/// A budget below this counts as zero.
const BUDGET_MIN: Duration = Duration::from_micros(5);
/// A sleep of this length, including falling asleep and waking up, could have been a spin.
const WORTHWHILE: Duration = Duration::from_micros(150);

/// The budget for spinning in the next wait.
#[derive(Debug)]
pub(super) struct Spin {
    since: Mono,
    budget: Duration,
}

impl Spin {
    pub(super) const fn new(now: Mono) -> Self {
        Self { since: now, budget: Duration::ZERO }
    }

    /// Starts a wait.
    pub(super) const fn begin(&mut self, now: Mono) {
        self.since = now;
    }

    /// Whether to poll again rather than sleep.
    pub(super) fn is_on(&self, now: Mono) -> bool {
        now.since(self.since) < self.budget
    }

    /// Ends a wait. Each spin without a result halves the budget.
    pub(super) fn end(&mut self, now: Mono) {
        let waited = now.since(self.since);
        let was_on = !self.budget.is_zero();
        if waited <= self.budget || (!was_on && waited <= WORTHWHILE) {
            self.budget = BUDGET_MAX;
        } else {
            self.budget /= 2;
            if self.budget < BUDGET_MIN {
                self.budget = Duration::ZERO;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_waits(waits_us: &[u64]) -> Spin {
        let mut spin = Spin::new(Mono::default());
        let mut now = Mono::default();
        for us in waits_us {
            spin.begin(now);
            now = now + Duration::from_micros(*us);
            spin.end(now);
        }
        spin.begin(now);
        spin
    }

    #[test]
    fn spins_while_waits_are_short_and_stops_after_a_few_long_ones() {
        let on = |spin: &Spin| spin.is_on(spin.since);
        assert!(!on(&after_waits(&[])));
        assert!(on(&after_waits(&[20])));
        assert!(on(&after_waits(&[20, 300, 20])));
        assert!(!on(&after_waits(&[20, 300, 300, 300, 300])));
    }

    #[test]
    fn never_spins_longer_than_the_budget() {
        let spin = after_waits(&[20]);
        assert!(spin.is_on(spin.since + Duration::from_micros(59)));
        assert!(!spin.is_on(spin.since + Duration::from_micros(60)));
    }
}
