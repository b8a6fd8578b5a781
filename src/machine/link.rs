//! The connection: coming, going, and which history of the data it shows.

use super::{Effect, Look, Machine, News, OpId, Outcome, Request, Timer, in_order};
use crate::clock::{Mono, ServerTime};
use crate::error::Failure;
use crate::script::{DRIFT, Held, Reply};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often the history of the data is looked at while a connection is in use.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How many histories are remembered. Forgetting one only makes its fences jump.
const HISTORIES: usize = 64;
/// The longest pause between two attempts to connect.
const BACKOFF_MS_MAX: u64 = 1_000;
/// Two clocks that were compared longer ago than this are not believed to run alike any more.
const CLOCKS_AGE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Link {
    state: State,
    /// Connections, made or tried, since the last answer to a request.
    failures: u32,
    /// Whether the server was seen to be a replica and has taken no write since: it may be promoted
    /// at any moment, so every acquire is preceded by a look.
    suspect: bool,
    /// Why there is no connection, for the errors of those who wait for one.
    pub(super) trouble: String,
    /// When the history was last asked for.
    looked: Mono,
    /// A moment of ours before which the server read this time.
    clocks: Option<(Mono, ServerTime)>,
    /// Where messages to this manager go.
    inbox: Arc<str>,
    /// Whether the server lets this manager neither publish nor subscribe.
    deaf: bool,
    /// Fences at or below it may be known to a history that this server has lost: sent with every
    /// request that issues fences.
    pub(super) epoch: ServerTime,
    /// A fence below it was issued for another history of the data. Unlike the epoch it is only raised
    /// by a history that has a name: without one, nothing tells whether the data is another's.
    floor: ServerTime,
    /// The server's time when this process first saw a history.
    epochs: BTreeMap<String, ServerTime>,
}

#[derive(Debug)]
enum State {
    /// Before the first connection; who waits for it.
    Opening(Option<OpId>),
    Down,
    Up,
}

impl Link {
    pub(super) fn new(inbox: Arc<str>) -> Self {
        Self {
            state: State::Opening(None),
            failures: 0,
            suspect: false,
            trouble: "not connected yet".to_owned(),
            looked: Mono::default(),
            clocks: None,
            inbox,
            deaf: false,
            epoch: ServerTime::default(),
            floor: ServerTime::default(),
            epochs: BTreeMap::new(),
        }
    }

    pub(super) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up)
    }

    /// What a reply says about the server it came from.
    pub(super) fn judge(&mut self, reply: &Result<Reply, Failure>) {
        if !matches!(reply, Err(Failure::Lost(_))) {
            self.failures = 0;
        }
        match reply {
            // To grant a lock or a place in line is to write, which a replica would have refused.
            Ok(Reply::Granted { .. } | Reply::Held(Held { place: Some(_), .. })) => {
                self.suspect = false;
            }
            Err(Failure::Refused(refusal)) if refusal.code == "READONLY" => self.suspect = true,
            Ok(_) | Err(_) => {}
        }
    }

    pub(super) const fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// Where grants can be told to this manager; empty if nowhere.
    pub(super) fn inbox(&self) -> Arc<str> {
        if self.deaf { Arc::from("") } else { Arc::clone(&self.inbox) }
    }

    /// The server read `time` after `sent`.
    pub(super) const fn compare_clocks(&mut self, sent: Mono, time: ServerTime) {
        self.clocks = Some((sent, time));
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

    /// Whether the history must be looked at before the next request.
    pub(super) fn look_due(&mut self, now: Mono, issues_fences: bool) -> bool {
        let due = now.since(self.looked) >= LOOK_INTERVAL || (self.suspect && issues_fences);
        if due {
            self.looked = now;
        }
        due
    }

    /// An epoch belongs to a history: it is the server's time when this process first saw it, so a
    /// return to a known history does not raise it. Without a history every look raises it.
    pub(super) fn learn(&mut self, look: Look) {
        let Look { history, time } = look;
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
}

impl Machine {
    pub(super) fn open(&mut self, op: OpId, out: &mut Vec<Effect>) {
        self.link.state = State::Opening(Some(op));
        out.push(Effect::Connect);
    }

    pub(super) fn connected(
        &mut self,
        now: Mono,
        look: Look,
        deaf: Option<String>,
        out: &mut Vec<Effect>,
    ) {
        self.link.learn(look);
        self.link.looked = now;
        self.link.clocks = None;
        match self.link.state {
            State::Opening(Some(op)) => {
                out.push(Effect::Complete { op, outcome: Outcome::Done });
            }
            State::Opening(None) => {}
            State::Down | State::Up => out.push(Effect::Tell(News::Reconnected)),
        }
        self.link.state = State::Up;
        let was_deaf = std::mem::replace(&mut self.link.deaf, deaf.is_some());
        if let Some(why) = deaf
            && !was_deaf
        {
            out.push(Effect::Tell(News::Deaf(why)));
        }
        self.resume(now, out);
    }

    /// Asks for everything that waits for an answer. Releases first: what this manager no longer wants
    /// must not stand in its own way.
    fn resume(&mut self, now: Mono, out: &mut Vec<Effect>) {
        for id in in_order(&self.releases) {
            self.send_release(now, id, false, out);
        }
        self.resume_renewals(now, out);
        for op in in_order(&self.extends) {
            self.send_extend(now, op, false, out);
        }
        for id in in_order(&self.attempts) {
            self.send_attempt(now, id, false, out);
        }
    }

    pub(super) fn connect_failed(&mut self, now: Mono, failure: Failure, out: &mut Vec<Effect>) {
        if let State::Opening(op) = self.link.state {
            if let Some(op) = op {
                let outcome = match failure {
                    Failure::Refused(refusal) => Outcome::Server { refusal, key: None },
                    other => Outcome::Connection(other.to_string()),
                };
                out.push(Effect::Complete { op, outcome });
            }
            return out.push(Effect::Stop);
        }
        self.link.trouble = format!("not connected: {failure}");
        self.reconnect_later(now);
    }

    fn reconnect_later(&mut self, now: Mono) {
        self.link.failures += 1;
        let most_ms = (50_u64 << (self.link.failures - 1).min(10)).min(BACKOFF_MS_MAX);
        let pause = self.jitter((most_ms / 2, most_ms));
        self.timers.insert((now + pause, Timer::Reconnect));
    }

    /// The connection is gone, or is given up.
    pub(super) fn disconnected(&mut self, now: Mono, detail: &str, out: &mut Vec<Effect>) {
        if !self.link.is_up() {
            return;
        }
        self.link.state = State::Down;
        self.link.clocks = None;
        // What is unsent or undelivered may not arrive later: it is asked for again, or given back.
        out.push(Effect::Disconnect { abort: true });
        out.push(Effect::Tell(News::Disconnected(detail.to_owned())));
        if self.link.failures == 0 {
            self.link.failures = 1;
            out.push(Effect::Connect);
        } else {
            // The last one answered nothing either: another one at once would hardly do better.
            self.reconnect_later(now);
        }
        detail.clone_into(&mut self.link.trouble);
        for (request, Request { purpose, sent }) in std::mem::take(&mut self.requests) {
            let lost = Err(Failure::Lost(detail.to_owned()));
            self.end_request(now, request, purpose, sent, lost, out);
        }
    }

    /// Refuses what is open, gives back what is held, and ends once the server has confirmed it or
    /// `command_timeout` has passed.
    pub(super) fn begin_close(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        self.closing = Some(op);
        for op in in_order(&self.extends) {
            self.end_extend(op, Outcome::Closed, out);
        }
        for op in in_order(&self.acquires) {
            self.end_acquire(now, op, Outcome::Closed, out);
        }
        for id in in_order(&self.leases) {
            self.give_up_lease(now, id, out);
        }
        self.timers.insert((now + self.config.command_timeout, Timer::CloseDeadline));
        self.finish_close_if_done(out);
    }

    pub(super) fn finish_close_if_done(&mut self, out: &mut Vec<Effect>) {
        // A release that only waits to be repeated does not keep the caller waiting.
        if self.closing.is_some()
            && self.releases.values().all(|release| release.confirmed.is_some())
        {
            self.finish_close(out);
        }
    }

    pub(super) fn finish_close(&mut self, out: &mut Vec<Effect>) {
        let Some(op) = self.closing else { return };
        for release in std::mem::take(&mut self.releases).into_values() {
            if let Some(op) = release.op {
                let outcome = Outcome::Connection(self.link.trouble.clone());
                out.push(Effect::Complete { op, outcome });
            }
        }
        self.timers.clear();
        self.requests.clear();
        self.link.state = State::Down;
        out.push(Effect::Complete { op, outcome: Outcome::Done });
        out.push(Effect::Disconnect { abort: false });
        out.push(Effect::Stop);
    }
}
