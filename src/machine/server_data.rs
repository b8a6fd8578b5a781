//! The data of one server and its clock, as far as a manager knows them.

use crate::protocol::{COUNTER_AHEAD_MAX, DRIFT, Mode, Mono, ServerProbe, ServerTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a server is probed while a connection is in use.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How many replication ids are remembered. Forgetting one only makes its fences jump.
const IDS_KEPT: usize = 64;
/// Clocks drift apart by one part in this many, as NTP corrects each of two by half of that at most: an old reading is worth
/// as much less than a new one.
const CLOCKS_APART: i128 = 1_000;
/// How far, in µs, a fence of a new counter may be ahead of the clock.
const FENCE_AHEAD_US: u64 = 1_000;
/// How far, in µs, the counter may be ahead of the clock until fences are reserved one by one.
const OUTRUN_US: u64 = 100_000;
/// An epoch that stands for the clock is no older than this.
const EPOCH_AGE_MAX_US: u64 = 86_400_000_000;
/// Clocks that were compared longer ago than this may have drifted apart too far.
const CLOCKS_AGE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub(super) struct ServerData {
    /// Whether the server was a replica and has taken no write since: it may be promoted at any moment, so a probe
    /// precedes every acquire.
    pub(super) suspect: bool,
    probed: Mono,
    /// The local time before which the server read this time.
    clocks: Option<(Mono, ServerTime)>,
    /// The least delayed reading on this connection.
    closest: Option<(Mono, ServerTime)>,
    /// The local time after which the server read this time, when this connection was opened.
    greeting: Option<(Mono, ServerTime)>,
    /// The greatest reading on this connection, and when it had come: the clock has shown no less since.
    most: Option<(Mono, ServerTime)>,
    /// When a reading on this connection last showed that the clock had been set back.
    set_back: Option<Mono>,
    /// Fences at or below it may have been issued by data that this server has lost: sent with every request that
    /// issues fences.
    pub(super) epoch: ServerTime,
    /// A fence below it was issued under another replication id. Unlike the epoch it is raised only by a probe with a
    /// replication id: without one, a change of the data cannot be seen.
    floor: ServerTime,
    /// The server's time when this process first saw a replication id.
    epochs: BTreeMap<String, ServerTime>,
    /// The last replication id of the server; none if it shows none.
    shown: Option<String>,
    /// The server denies a plain command that takes a lock, or the fence counter.
    pub(super) refuses_plain_commands: bool,
    /// Its scripts may not read the clock, so there are no shares.
    pub(super) denies_clock: bool,
    /// It renews a lock by a script alone.
    pub(super) refuses_plain_renewals: bool,
    /// It takes several locks by a script alone.
    pub(super) refuses_several: bool,
    /// It tells of changed keys.
    pub(super) tells: bool,
    /// The last fence that its counter is known to have issued.
    last_fence: u64,
    /// The number of that replication id, see [`super::servers::Servers::learn`].
    pub(super) number: u32,
}

impl ServerData {
    /// Records a probe, and returns whether it shows another replication id than the last. The epoch is the server's
    /// time when this process first saw the replication id, so a return to a known one does not raise it. Without a
    /// replication id every probe raises it, and once a day one does where the epoch stands for the clock in scripts.
    pub(super) fn learn(&mut self, probe: ServerProbe) -> bool {
        let ServerProbe { replication_id, time, .. } = probe;
        let is_new = self.shown != replication_id || self.number == 0;
        self.shown.clone_from(&replication_id);
        self.epoch = match replication_id {
            None => self.epoch.max(time),
            Some(replication_id) => {
                if self.epochs.len() >= IDS_KEPT && !self.epochs.contains_key(&replication_id) {
                    self.epochs.clear();
                }
                self.floor = *self.epochs.entry(replication_id).or_insert(time);
                let is_old = time.as_micros() > self.epoch.as_micros() + EPOCH_AGE_MAX_US;
                match (self.denies_clock, is_old) {
                    (true, true) => time,
                    (true, false) => self.epoch.max(self.floor),
                    (false, _) => self.floor,
                }
            }
        };
        is_new
    }

    /// Whether a fence was issued under another replication id, and may be issued again.
    pub(super) const fn is_outdated(&self, fence: u64) -> bool {
        fence < self.floor.as_micros()
    }

    /// Whether a lock, or a share of it, may be taken there on the fast path.
    pub(super) const fn has_fast_path(&self, mode: Mode) -> bool {
        !self.refuses_plain_commands && (!self.denies_clock || !mode.is_shared())
    }

    /// Whether several locks may be taken there on the fast path.
    pub(super) const fn has_fast_path_for_several(&self) -> bool {
        !self.refuses_plain_commands && !self.refuses_several
    }

    /// Whether a fence may follow `before`, the counter of the server: `INCRBY` knows no epoch, begins a counter at zero,
    /// and follows one that other code has raised.
    pub(super) fn may_follow(&self, now: Mono, before: u64) -> bool {
        let clock = self.clocks.or(self.greeting);
        let clock_us = clock.map_or(self.epoch.as_micros(), |(at, read)| {
            read.as_micros() + now.as_micros().saturating_sub(at.as_micros())
        });
        let ahead_us = u128::from(before.saturating_sub(clock_us));
        before >= self.epoch.as_micros() && ahead_us <= COUNTER_AHEAD_MAX.as_micros()
    }

    /// The connection is new, so no clock was read on it yet.
    pub(super) const fn connected(&mut self, now: Mono, time: ServerTime) {
        self.probed = now;
        self.forget_clocks();
        self.greeting = Some((now, time));
        self.most = self.greeting;
    }

    pub(super) const fn forget_clocks(&mut self) {
        (self.clocks, self.closest) = (None, None);
        (self.most, self.set_back) = (None, None);
    }

    /// Whether the server must be probed ahead of the next request.
    pub(super) fn probe_due(&mut self, now: Mono, issues_fences: bool) -> bool {
        let due = now.since(self.probed) >= PROBE_INTERVAL || (self.suspect && issues_fences);
        if due {
            self.probed = now;
        }
        due
    }

    /// The server read `time` after `sent` and before `now`.
    pub(super) fn compare_clocks(&mut self, now: Mono, sent: Mono, time: ServerTime) {
        self.clocks = Some((sent, time));
        let is_set_back = time < self.least_at(sent);
        if is_set_back {
            self.set_back = Some(now);
        }
        if is_set_back || time >= self.least_at(now) {
            self.most = Some((now, time));
        }
        // How far the server's clock seems ahead: too far by the time until it was read.
        let ahead = |(sent, read): (Mono, ServerTime)| {
            i128::from(read.as_micros()) - i128::from(sent.as_micros())
        };
        let is_closer = self.closest.is_none_or(|closest| {
            let apart_us = i128::from(sent.as_micros()) - i128::from(closest.0.as_micros());
            ahead((sent, time)) <= ahead(closest) + apart_us / CLOCKS_APART
        });
        if is_closer {
            self.closest = self.clocks;
        }
    }

    /// The least that the server's clock can have shown at `at`, unless it was set back.
    fn least_at(&self, at: Mono) -> ServerTime {
        let least = self.most.map_or(0, |(since, read)| {
            let passed_us = at.as_micros().saturating_sub(since.as_micros());
            read.as_micros() + passed_us - passed_us / u64::from(DRIFT)
        });
        ServerTime::from_micros(least)
    }

    /// Whether the clock was set back so recently that a message on its way may have a later time than one that follows it.
    pub(super) fn is_set_back(&self, now: Mono) -> bool {
        self.set_back.is_some_and(|at| now.since(at) <= CLOCKS_AGE_MAX)
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) const fn forget_set_back(&mut self) {
        self.set_back = None;
    }

    /// A local time before the server's clock showed `time`; none if it is unknown.
    ///
    /// The clock was read after our request left, so counting from there is on the safe side, less what
    /// clocks that run at different speeds may have drifted apart since.
    pub(super) fn local_time(&self, now: Mono, time: ServerTime) -> Option<Mono> {
        let (sent, read) = self.clocks.filter(|(sent, _)| now.since(*sent) <= CLOCKS_AGE_MAX)?;
        let apart_us = time.as_micros().abs_diff(read.as_micros());
        let us = (sent.as_micros() + time.as_micros()).checked_sub(read.as_micros())?;
        us.checked_sub(apart_us / u64::from(DRIFT)).map(Mono::from_micros)
    }

    /// The server's clock when an undelayed request that was sent at `at` would have reached it; none if it is unknown.
    /// It decides only the order of callers.
    pub(super) fn server_time(&self, at: Mono) -> Option<ServerTime> {
        let (sent, read) = self.closest?;
        let us = (read.as_micros() + at.as_micros()).checked_sub(sent.as_micros())?;
        Some(ServerTime::from_micros(us))
    }

    /// The time on the server's clock now, give or take a round trip; none if it is unknown.
    pub(super) fn shown_time(&self, now: Mono) -> Option<ServerTime> {
        let (at, read) = self.closest.or(self.greeting)?;
        let since_us = now.as_micros().saturating_sub(at.as_micros());
        Some(ServerTime::from_micros(read.as_micros() + since_us))
    }

    /// The server's counter has issued a fence.
    pub(super) fn issued(&mut self, fence: u64) {
        self.last_fence = self.last_fence.max(fence);
    }

    /// Whether the counter is ahead of the clock: if it were lost, it would begin again at the clock, below the fences that
    /// it has issued.
    pub(super) fn has_outrun_clock(&self, now: Mono) -> bool {
        let shown_us = self.shown_time(now).map_or(u64::MAX, ServerTime::as_micros);
        self.last_fence > shown_us.saturating_add(OUTRUN_US)
    }

    /// Whether a fence is ahead of the server's clock, as far as that is known. A counter begins at the clock and rises
    /// by less than one per µs, so this holds only just after its first use, or if the clock was set back.
    pub(super) fn is_from_the_future(&self, now: Mono, fence: u64) -> bool {
        let latest_us = self.clocks.map_or(0, |(sent, read)| {
            let since_us = now.as_micros().saturating_sub(sent.as_micros());
            read.as_micros() + since_us + since_us / u64::from(DRIFT) + FENCE_AHEAD_US
        });
        fence > latest_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_that_stands_for_the_clock_begins_anew_once_a_day() {
        const DAY_US: u64 = EPOCH_AGE_MAX_US;
        for (denies_clock, at_us, epoch_us) in
            [(true, DAY_US, 1), (true, DAY_US + 2, DAY_US + 2), (false, 2 * DAY_US, 1)]
        {
            let mut data = ServerData { denies_clock, ..ServerData::default() };
            let mut probe = |us| {
                let (replication_id, time) = (Some("one".to_owned()), ServerTime::from_micros(us));
                data.learn(ServerProbe { replication_id, time, uptime: None });
                (data.epoch.as_micros(), data.is_outdated(1))
            };
            probe(1);
            assert_eq!(probe(at_us), (epoch_us, false));
            assert_eq!(probe(at_us + 1), (epoch_us, false));
        }
    }

    /// NTP corrects a server's clock by half a ms a second. The first reading was the least delayed one.
    #[test]
    fn callers_have_the_present_time_of_a_clock_that_is_being_corrected() {
        let mut data = ServerData::default();
        let shows = |us: u64| 1_000_000 + us + us / 2_000;
        for us in (0..3_600_000_000).step_by(1_000_000) {
            let (sent, delay_us) = (Mono::from_micros(us), if us == 0 { 0 } else { 100 });
            let read = ServerTime::from_micros(shows(us + delay_us));
            data.compare_clocks(Mono::from_micros(us + 2 * delay_us), sent, read);
            let known = data.server_time(sent).map_or(0, ServerTime::as_micros);
            assert!(known.abs_diff(shows(us)) <= 600, "{known} after {us} µs");
        }
    }

    /// A message with the time of the old clock may be on its way until then.
    #[test]
    fn a_clock_that_was_set_back_is_known_for_ten_seconds() {
        const HOUR_US: u64 = 3_600_000_000;
        let mut data = ServerData::default();
        let mut read = |at_us, shows_us| {
            let at = Mono::from_micros(at_us);
            data.compare_clocks(at, at, ServerTime::from_micros(HOUR_US + shows_us));
            data.is_set_back(at)
        };
        assert!(!read(0, 0), "the first reading");
        assert!(!read(5_000_000, 5_000_000), "it runs");
        assert!(read(6_000_000, 4_000_000), "it was set back by two seconds");
        assert!(read(16_000_000, 14_000_000), "ten seconds ago");
        assert!(!read(17_000_000, 15_000_000), "it runs, from where it was set");
    }

    const YEAR_US: u64 = 365 * 24 * 3_600 * 1_000_000;

    fn at(us: u64) -> Mono {
        Mono::from_micros(us)
    }

    fn time(us: u64) -> ServerTime {
        ServerTime::from_micros(us)
    }

    fn show(data: &mut ServerData, replication_id: &str, us: u64) -> bool {
        let replication_id = Some(replication_id.to_owned());
        data.learn(ServerProbe { replication_id, time: time(us), uptime: None })
    }

    #[test]
    fn a_fence_may_follow_a_counter_between_the_epoch_and_a_year_ahead_of_the_clock() {
        let mut data = ServerData { epoch: time(1_000), ..ServerData::default() };
        let is_followed_up_to = |data: &ServerData, now_us, clock_us: u64| {
            let follows = |before| data.may_follow(at(now_us), before);
            let most = clock_us + YEAR_US;
            assert_eq!([999, 1_000].map(follows), [false, true]);
            assert_eq!([most, most + 1].map(follows), [true, false], "the clock shows {clock_us}");
        };
        is_followed_up_to(&data, 7, 1_000);
        data.connected(at(10), time(5_000));
        is_followed_up_to(&data, 30, 5_020);
        data.compare_clocks(at(45), at(40), time(9_000));
        is_followed_up_to(&data, 60, 9_020);
    }

    #[test]
    fn fences_below_the_first_time_of_a_history_are_outdated() {
        let mut data = ServerData::default();
        assert!(!data.is_outdated(0), "nothing is known");
        assert!(show(&mut data, "one", 70));
        data.number = 1;
        assert!(!show(&mut data, "one", 80), "no change");
        assert_eq!([69, 70].map(|fence| data.is_outdated(fence)), [true, false]);
        assert!(show(&mut data, "two", 90));
        assert_eq!((data.epoch, data.is_outdated(89)), (time(90), true));
        assert!(show(&mut data, "one", 95));
        assert_eq!((data.epoch, data.is_outdated(70)), (time(70), false), "it is known again");
    }

    #[test]
    fn without_a_replication_id_each_later_time_raises_the_epoch_alone() {
        let mut data = ServerData::default();
        let mut learn = |us| {
            let changed =
                data.learn(ServerProbe { replication_id: None, time: time(us), uptime: None });
            data.number = 1;
            (changed, data.epoch.as_micros(), data.is_outdated(0))
        };
        assert_eq!(learn(9), (true, 9, false), "the first look");
        assert_eq!(learn(7), (false, 9, false));
        assert_eq!(learn(12), (false, 12, false));
    }

    #[test]
    fn an_epoch_that_stands_for_the_clock_does_not_return_with_an_earlier_history() {
        let mut data = ServerData { denies_clock: true, ..ServerData::default() };
        for (replication_id, us, epoch_us) in [("one", 5, 5), ("two", 9, 9), ("one", 12, 9)] {
            show(&mut data, replication_id, us);
            assert_eq!(data.epoch, time(epoch_us), "{replication_id} at {us}");
        }
    }

    #[test]
    fn as_many_histories_are_remembered_as_there_is_room_for() {
        let mut data = ServerData::default();
        for us in 1..=IDS_KEPT as u64 {
            show(&mut data, &us.to_string(), us);
        }
        show(&mut data, "1", 1_000);
        assert_eq!(data.epoch, time(1), "the oldest is known");
        show(&mut data, "one more", 2_000);
        assert_eq!(data.epoch, time(2_000));
        show(&mut data, "1", 3_000);
        assert_eq!(data.epoch, time(3_000), "it made room");
    }

    #[test]
    fn a_server_is_looked_at_once_a_second_and_ahead_of_each_fence_while_it_is_suspect() {
        let mut data = ServerData::default();
        data.connected(at(5), time(0));
        let second_us = 1_000_000;
        assert!(!data.probe_due(at(4 + second_us), true));
        assert!(data.probe_due(at(5 + second_us), false));
        assert!(!data.probe_due(at(4 + 2 * second_us), true), "it counts from the last look");
        data.suspect = true;
        assert!(!data.probe_due(at(4 + 2 * second_us), false));
        assert!(data.probe_due(at(4 + 2 * second_us), true));
        assert!(data.probe_due(at(4 + 2 * second_us), true), "each time");
        assert!(!data.probe_due(at(3 + 3 * second_us), false));
    }

    #[test]
    fn the_fast_paths_need_what_the_server_allows() {
        let all = |refuses_plain_commands, denies_clock, refuses_several| {
            let data = ServerData {
                refuses_plain_commands,
                denies_clock,
                refuses_several,
                ..ServerData::default()
            };
            let of = [Mode::Exclusive, Mode::SHARED].map(|mode| data.has_fast_path(mode));
            (of, data.has_fast_path_for_several())
        };
        assert_eq!(all(false, false, false), ([true, true], true));
        assert_eq!(all(true, false, false), ([false, false], false));
        assert_eq!(all(false, true, false), ([true, false], true));
        assert_eq!(all(false, false, true), ([true, true], false));
    }

    /// A clock that runs slower by one part in a hundred is not set back.
    #[test]
    fn a_clock_is_set_back_that_shows_less_than_it_could() {
        let is_set_back = |shows_us: u64| {
            let mut data = ServerData::default();
            data.connected(at(0), time(1_000_000));
            // A late answer, read somewhere on the way: it shows no more than is known.
            data.compare_clocks(at(200_000), at(100_000), time(1_100_000));
            assert!(!data.is_set_back(at(200_000)));
            data.compare_clocks(at(200_000), at(200_000), time(shows_us));
            data.is_set_back(at(200_000))
        };
        assert!(!is_set_back(1_198_000));
        assert!(is_set_back(1_197_999));
    }

    #[test]
    fn a_clock_that_shows_the_most_counts_from_then_on() {
        let is_set_back = |shows_us: u64| {
            let mut data = ServerData::default();
            data.compare_clocks(at(0), at(0), time(1_000_000));
            data.compare_clocks(at(1_000), at(1_000), time(3_000_000));
            data.compare_clocks(at(101_000), at(101_000), time(shows_us));
            data.is_set_back(at(101_000))
        };
        assert!(!is_set_back(3_099_000));
        assert!(is_set_back(3_098_999));
    }

    #[test]
    fn a_new_connection_knows_no_clock_that_was_set_back() {
        let mut data = ServerData::default();
        data.compare_clocks(at(0), at(0), time(1_000_000));
        data.compare_clocks(at(1), at(1), time(5));
        assert!(data.is_set_back(at(1)));
        data.connected(at(2), time(6));
        assert!(!data.is_set_back(at(2)));
        assert_eq!((data.local_time(at(2), time(6)), data.server_time(at(2))), (None, None));
        data.compare_clocks(at(3), at(3), time(5));
        assert!(data.is_set_back(at(3)), "it is compared with the first reading");
    }

    #[test]
    fn a_time_of_the_server_is_dated_ahead_by_what_the_clocks_may_have_drifted_apart() {
        let mut data = ServerData::default();
        assert_eq!(data.local_time(at(0), time(1)), None);
        data.compare_clocks(at(20_000), at(10_000), time(500_000));
        let local = |now_us, time_us| data.local_time(at(now_us), time(time_us));
        assert_eq!(local(20_000, 500_000), Some(at(10_000)));
        assert_eq!(local(20_000, 501_000), Some(at(11_000 - 10)));
        assert_eq!(local(20_000, 499_000), Some(at(9_000 - 10)));
        assert_eq!(local(20_000, 480_000), None, "before the clock began");
        let last_us = 10_000 + 10_000_000;
        assert_eq!(local(last_us, 500_000), Some(at(10_000)));
        assert_eq!(local(last_us + 1, 500_000), None, "the comparison is too old");
    }

    #[test]
    fn the_least_delayed_reading_tells_the_time() {
        let mut data = ServerData::default();
        assert_eq!((data.server_time(at(5)), data.shown_time(at(5))), (None, None));
        data.connected(at(10), time(1_000));
        assert_eq!(data.server_time(at(15)), None, "the greeting orders no callers");
        assert_eq!(data.shown_time(at(15)), Some(time(1_005)));
        let shows = |data: &ServerData, us, shown| {
            assert_eq!(data.server_time(at(us)), Some(time(shown)));
            assert_eq!(data.shown_time(at(us)), Some(time(shown)));
        };
        data.compare_clocks(at(40), at(20), time(1_030));
        shows(&data, 50, 1_060);
        data.compare_clocks(at(80), at(50), time(1_065));
        shows(&data, 70, 1_080);
        data.compare_clocks(at(90), at(80), time(1_088));
        shows(&data, 100, 1_108);
        // A thousandth of the time since may be drift.
        data.compare_clocks(at(10_100), at(10_080), time(11_098));
        shows(&data, 10_080, 11_098);
        data.compare_clocks(at(20_100), at(20_080), time(21_109));
        shows(&data, 20_080, 21_098);
    }

    #[test]
    fn a_counter_outruns_the_clock_by_more_than_a_tenth_of_a_second() {
        let mut data = ServerData::default();
        data.issued(u64::MAX - 1);
        assert!(!data.has_outrun_clock(at(0)), "no clock is known");
        let mut data = ServerData::default();
        data.connected(at(10), time(1_000));
        for (fence, has_outrun) in [(101_005, false), (101_006, true), (5, true)] {
            data.issued(fence);
            assert_eq!(data.has_outrun_clock(at(15)), has_outrun, "{fence}");
        }
        assert!(!data.has_outrun_clock(at(16)), "the clock follows");
    }

    #[test]
    fn a_fence_from_the_future_is_more_than_a_ms_ahead_of_the_clock() {
        let mut data = ServerData::default();
        let is_from_it =
            |data: &ServerData, now_us, fence| data.is_from_the_future(at(now_us), fence);
        assert!(is_from_it(&data, 0, 1) && !is_from_it(&data, 0, 0), "no clock is known");
        data.compare_clocks(at(20), at(10), time(500_000));
        for (now_us, most) in [(10, 501_000), (10_010, 500_000 + 10_000 + 100 + 1_000)] {
            assert!(!is_from_it(&data, now_us, most), "{now_us}");
            assert!(is_from_it(&data, now_us, most + 1), "{now_us}");
        }
    }
}
