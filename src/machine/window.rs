//! How many requests a connection has in flight at most, so that an answer is never far behind its request.
//!
//! A server answers in order, so what is sent at once is answered one after the other: without a limit, a renewal would wait
//! behind a burst of acquires. The rule is that of LEDBAT (RFC 6817): what an answer takes longer than the quickest one is
//! the time that its request has waited in queues. Up to 100 ms of that, each answer widens the window by one, which
//! doubles it within a round trip; each later answer narrows it by one. So a slow server gets few requests at once, and a
//! fast or a distant one many.

use std::time::Duration;

/// How long a request may wait in queues, as in RFC 6817.
const TARGET: Duration = Duration::from_millis(100);
/// Enough to keep a slow server busy. A server that answers 100 requests per second is 320 ms behind then.
const LEAST: usize = 32;
/// Enough for 20 000 requests per second at a distance of 50 ms. A wider window would take longer to narrow when a server
/// becomes slow.
const MOST: usize = 1_024;

#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    least: usize,
    most: usize,
    /// The shortest time that an answer of this connection has taken.
    quickest: Duration,
    /// How long the last answer of this connection has taken.
    last: Duration,
}

impl Window {
    pub(super) const fn new() -> Self {
        Self::between(LEAST, MOST)
    }

    const fn between(least: usize, most: usize) -> Self {
        Self { size: least, least, most, quickest: Duration::MAX, last: Duration::MAX }
    }

    /// The connection is new.
    pub(super) const fn restart(&mut self) {
        *self = Self::between(self.least, self.most);
    }

    /// A round trip as it takes now, the queues at the server included.
    pub(super) const fn round_trip(&self) -> Duration {
        self.last
    }

    pub(super) const fn has_room(&self, in_flight: usize) -> bool {
        in_flight < self.size
    }

    /// An answer has taken this long, when so many requests were in flight. A window that was not full says nothing about a
    /// wider one.
    pub(super) fn answered(&mut self, took: Duration, in_flight: usize) {
        self.last = took;
        self.quickest = self.quickest.min(took);
        if took.saturating_sub(self.quickest) > TARGET {
            self.size = (self.size - 1).max(self.least);
        } else if !self.has_room(in_flight) {
            self.size = (self.size + 1).min(self.most);
        }
    }

    /// For schedules with few requests.
    #[cfg(all(test, feature = "core"))]
    pub(super) const fn limit(&mut self, least: usize, most: usize) {
        (self.least, self.most) = (least, most);
        if self.size > most {
            self.size = most;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Serves many requests, one after the other. Returns how long it took, the longest time that an answer took once
    /// `settled` are served, and the widest window.
    fn serve(
        window: &mut Window,
        requests: usize,
        service: Duration,
        distance: Duration,
        settled: usize,
    ) -> (Duration, Duration, usize) {
        let (mut now, mut free, mut longest, mut widest) =
            (Duration::ZERO, Duration::ZERO, Duration::ZERO, 0);
        let mut in_flight: VecDeque<(Duration, Duration)> = VecDeque::new();
        let mut sent = 0;
        for served in 0..requests {
            while sent < requests && window.has_room(in_flight.len()) {
                free = free.max(now + distance / 2) + service;
                in_flight.push_back((now, free + distance / 2));
                sent += 1;
            }
            let (asked, answered) = in_flight.pop_front().unwrap();
            now = answered;
            window.answered(now.saturating_sub(asked), in_flight.len() + 1);
            widest = widest.max(window.size);
            if served >= settled {
                longest = longest.max(now.saturating_sub(asked));
            }
        }
        (now, longest, widest)
    }

    #[test]
    fn a_slow_server_is_kept_busy_and_is_never_far_behind() {
        for per_second in [100, 1_000, 5_000] {
            let service = Duration::from_secs(1) / per_second;
            let (took, longest, _) =
                serve(&mut Window::new(), 20_000, service, Duration::from_millis(1), 0);
            assert!(took < service * 20_000 + Duration::from_millis(50), "{per_second}: {took:?}");
            assert!(longest < Duration::from_millis(450), "{per_second}: {longest:?}");
        }
    }

    #[test]
    fn a_fast_server_and_a_distant_one_get_as_many_as_they_can_serve() {
        for (distance_ms, least) in [(0, 1_000), (50, 1_000), (200, 1_000)] {
            let service = Duration::from_micros(10);
            let distance = Duration::from_millis(distance_ms);
            let (_, _, widest) = serve(&mut Window::new(), 50_000, service, distance, 0);
            assert!(widest >= least, "{distance_ms} ms away: {widest}");
        }
    }

    #[test]
    fn a_server_that_becomes_slow_is_soon_not_far_behind_any_more() {
        let mut window = Window::new();
        serve(&mut window, 50_000, Duration::from_micros(10), Duration::ZERO, 0);
        let slow = Duration::from_millis(1);
        let (_, longest, _) = serve(&mut window, 20_000, slow, Duration::ZERO, 2 * MOST);
        assert!(longest < Duration::from_millis(450), "{longest:?}");
    }

    #[test]
    fn requests_one_at_a_time_do_not_widen_it() {
        let mut window = Window::new();
        (0..10_000).for_each(|_| window.answered(Duration::from_micros(50), 1));
        assert!(!window.has_room(LEAST), "the window stays as narrow as it began");
    }
}
