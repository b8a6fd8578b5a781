//! The counters of a manager.

use std::time::Duration;

/// Counts since the start, except for `held`, `idle`, `waiting` and `unanswered`, which are current.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Locks that a caller holds now.
    pub held: u64,
    /// Idle locks: kept for the next caller.
    pub idle: u64,
    /// Acquires without an outcome.
    pub waiting: u64,
    /// Requests without an answer. An acquire that waits in the queue has its answer.
    pub unanswered: u64,
    /// Locks acquired.
    pub acquired: u64,
    /// Locks acquired by handoff in the process: whole locks without the server, permits by one request.
    pub handed_off: u64,
    /// Acquires that timed out.
    pub timed_out: u64,
    /// Locks lost, but for those whose release was the first to find out.
    pub lost: u64,
    /// Leases renewed. The claim of a lock that was granted by message is none.
    pub renewals: u64,
    /// Requests sent to the server.
    pub requests: u64,
    /// The time from the server's grant until it was known here: slot i counts hand-offs between processes that took at
    /// most 2^i µs, and more than the slot before.
    pub hand_offs: [u64; HAND_OFF_SLOTS],
}

/// The last slot counts all above four seconds.
const HAND_OFF_SLOTS: usize = 23;

impl Stats {
    pub(super) fn hand_off(&mut self, took: Duration) {
        let us = took.as_micros().max(1);
        let slot = usize::try_from((us - 1).checked_ilog2().map_or(0, |log| log + 1))
            .map_or(HAND_OFF_SLOTS - 1, |slot| slot.min(HAND_OFF_SLOTS - 1));
        if let Some(count) = self.hand_offs.get_mut(slot) {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_off_is_counted_by_the_power_of_two_above_it() {
        let mut stats = Stats::default();
        for (us, slot) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1_000_000_000, 22)] {
            let before = stats.hand_offs;
            stats.hand_off(Duration::from_micros(us));
            let changed = (0..HAND_OFF_SLOTS).find(|i| before[*i] != stats.hand_offs[*i]);
            assert_eq!(changed, Some(slot), "{us} µs");
        }
    }
}
