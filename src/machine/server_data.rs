//! What a manager knows of the data of one server and of its clock.

use super::interface::ServerProbe;
use crate::protocol::clock::{Mono, ServerTime};
use crate::protocol::validity::DRIFT;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a server is probed while a connection is in use.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How many histories of the data are remembered. Forgetting one only makes its fences jump.
const HISTORIES: usize = 64;
/// Clocks run apart by one part of so many, more or less: an old reading is worth as much less than a new one.
const CLOCKS_APART: i128 = 10_000;
/// A fence of a new counter may be ahead of the clock by so many µs.
const FENCE_AHEAD_US: u64 = 1_000;
/// Two clocks that were compared longer ago than this are not believed to run alike any more.
const CLOCKS_AGE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct ServerData {
    /// Whether the server was seen to be a replica and has taken no write since: it may be promoted
    /// at any moment, so every acquire is preceded by a probe.
    pub(super) suspect: bool,
    /// When it was probed last.
    probed: Mono,
    /// A moment of ours before which the server read this time.
    clocks: Option<(Mono, ServerTime)>,
    /// The reading of this connection that was delayed least.
    closest: Option<(Mono, ServerTime)>,
    /// Fences at or below it may be known to a history that this server has lost: sent with every
    /// request that issues fences.
    pub(super) epoch: ServerTime,
    /// A fence below it was issued for another history of the data. Unlike the epoch it is only raised
    /// by a history that has a name: without one, nothing tells whether the data is another's.
    floor: ServerTime,
    /// The server's time when this process first saw a history.
    epochs: BTreeMap<String, ServerTime>,
    /// The history that the server showed last; none if it keeps that to itself.
    shown: Option<String>,
    /// The number of that history, see [`super::servers::Servers::learn`].
    pub(super) history: u32,
}

impl ServerData {
    /// Whether another history is shown than before.
    pub(super) fn is_new(&self, probe: &ServerProbe) -> bool {
        self.shown != probe.history || self.history == 0
    }

    /// An epoch belongs to a history: it is the server's time when this process first saw it, so a
    /// return to a known history does not raise it. Without a history every probe raises it.
    pub(super) fn learn(&mut self, probe: ServerProbe) {
        let ServerProbe { history, time, .. } = probe;
        self.shown.clone_from(&history);
        self.epoch = match history {
            None => self.epoch.max(time),
            Some(history) => {
                if self.epochs.len() >= HISTORIES && !self.epochs.contains_key(&history) {
                    self.epochs.clear();
                }
                self.floor = *self.epochs.entry(history).or_insert(time);
                self.floor
            }
        };
    }

    /// Whether a fence was issued for another history of the data, and may be issued again.
    pub(super) const fn is_outdated(&self, fence: u64) -> bool {
        fence < self.floor.as_micros()
    }

    /// There is another connection, on which no clock was read yet.
    pub(super) const fn connected(&mut self, now: Mono) {
        self.probed = now;
        self.forget_clocks();
    }

    pub(super) const fn forget_clocks(&mut self) {
        (self.clocks, self.closest) = (None, None);
    }

    /// Whether the server must be probed ahead of the next request.
    pub(super) fn probe_due(&mut self, now: Mono, issues_fences: bool) -> bool {
        let due = now.since(self.probed) >= PROBE_INTERVAL || (self.suspect && issues_fences);
        if due {
            self.probed = now;
        }
        due
    }

    /// The server read `time` after `sent`.
    pub(super) fn compare_clocks(&mut self, sent: Mono, time: ServerTime) {
        self.clocks = Some((sent, time));
        // How far the server's clock is ahead, and by how much too far that is told: the time until it was read.
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

    /// A moment of ours before the server's clock showed `time`; none if that cannot be told.
    ///
    /// The clock was read after our request left, so counting from there is on the safe side, less what
    /// clocks that run at different speeds may have drifted apart since.
    pub(super) fn local_time(&self, now: Mono, time: ServerTime) -> Option<Mono> {
        let (sent, read) = self.clocks.filter(|(sent, _)| now.since(*sent) <= CLOCKS_AGE_MAX)?;
        let apart_us = time.as_micros().abs_diff(read.as_micros());
        let us = (sent.as_micros() + time.as_micros()).checked_sub(read.as_micros())?;
        us.checked_sub(apart_us / u64::from(DRIFT)).map(Mono::from_micros)
    }

    /// What the server's clock showed when a request reached it that was sent at `at` and was not delayed; none if
    /// nothing is known of it. It decides the order of callers and nothing else.
    pub(super) fn server_time(&self, at: Mono) -> Option<ServerTime> {
        let (sent, read) = self.closest?;
        let us = (read.as_micros() + at.as_micros()).checked_sub(sent.as_micros())?;
        Some(ServerTime::from_micros(us))
    }

    /// Whether a fence is ahead of the server's clock, as far as that is known. A counter begins at the clock and rises
    /// by less than one a µs, so none is but for a moment after its first use, or if the clock was set back.
    pub(super) fn is_from_the_future(&self, now: Mono, fence: u64) -> bool {
        let latest_us = self.clocks.map_or(0, |(sent, read)| {
            let since_us = now.as_micros().saturating_sub(sent.as_micros());
            read.as_micros() + since_us + since_us / u64::from(DRIFT) + FENCE_AHEAD_US
        });
        fence > latest_us
    }
}
