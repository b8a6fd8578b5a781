//! One server of a quorum: its connection, what it was asked, and what must still be given back there.

use super::Errand;
use crate::clock::Mono;
use crate::keys::LockKeys;
use crate::machine::link::STEADY_AFTER;
use crate::machine::{Look, RequestId};
use crate::token::Token;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A server's uptime is told in whole seconds, and its keys outlive their leases a little.
const UPTIME_MARGIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Node {
    pub(super) up: bool,
    /// Whether it was connected at least once, or could not be.
    pub(super) tried: bool,
    /// Why it is not connected.
    pub(super) trouble: String,
    /// Connections, made or tried, since one was steady.
    pub(super) failures: u32,
    /// When the connection was made.
    connected: Mono,
    /// Names its run and its data.
    pub(super) history: Option<String>,
    /// How long it had been up, and when it said so; none if it does not tell.
    uptime: Option<(Duration, Mono)>,
    /// It lets this manager listen to no channel.
    pub(super) deaf: bool,
    /// Requests without an answer, oldest first.
    requests: VecDeque<(RequestId, Errand)>,
    /// What was given up while the connection was gone, or went, or after a request for it was lost, by token.
    pub(super) debts: BTreeMap<Token, Debt>,
}

/// A token that has to be withdrawn, and once more in case that an earlier request lay in a buffer.
#[derive(Clone, Debug)]
pub(super) struct Debt {
    pub(super) keys: LockKeys,
    /// When it is asked for next, while connected.
    pub(super) due: Mono,
    /// The server has said once that it is gone; only the repeat is left.
    pub(super) confirmed: bool,
}

impl Node {
    pub(super) fn new() -> Self {
        Self {
            up: false,
            tried: false,
            trouble: "not connected yet".to_owned(),
            failures: 0,
            connected: Mono::from_micros(0),
            history: None,
            uptime: None,
            deaf: false,
            requests: VecDeque::new(),
            debts: BTreeMap::new(),
        }
    }

    pub(super) fn connected(&mut self, now: Mono, look: Look) {
        self.up = true;
        self.connected = now;
        self.tried = true;
        self.history = look.history;
        self.uptime = look.uptime.map(|uptime| (uptime, now));
    }

    /// Why it cannot be asked for a lock now, if so. A server that has restarted may have forgotten
    /// locks: until the longest of them would have ended it has no vote. `longest` is none where its
    /// data survive.
    pub(super) fn excuse(
        &self,
        now: Mono,
        patience: Duration,
        longest: Option<Duration>,
    ) -> Option<String> {
        if !self.up {
            return Some(self.trouble.clone());
        }
        let silent = self.oldest_request().map_or(Duration::ZERO, |sent| now.since(sent));
        if silent > patience {
            return Some(format!("no answer for {} ms", silent.as_millis()));
        }
        let needed = longest? + UPTIME_MARGIN;
        let Some((uptime, read)) = self.uptime else {
            return Some("its uptime is not known: INFO is needed, or longestLease: 0".to_owned());
        };
        let up = uptime + now.since(read);
        (up <= needed).then(|| {
            format!(
                "it started {} ms ago and has no vote within {} ms of that",
                up.as_millis(),
                needed.as_millis()
            )
        })
    }

    /// It has answered a request.
    pub(super) fn answered(&mut self, now: Mono) {
        if now.since(self.connected) >= STEADY_AFTER {
            self.failures = 0;
        }
    }

    pub(super) fn add_request(&mut self, id: RequestId, errand: Errand) {
        self.requests.push_back((id, errand));
    }

    pub(super) fn take_request(&mut self, id: RequestId) -> Option<Errand> {
        let place = self.requests.partition_point(|(other, _)| *other < id);
        self.requests.get(place).filter(|(other, _)| *other == id)?;
        self.requests.remove(place).map(|(_, errand)| errand)
    }

    pub(super) fn take_requests(&mut self) -> VecDeque<(RequestId, Errand)> {
        std::mem::take(&mut self.requests)
    }

    pub(super) fn oldest_request(&self) -> Option<Mono> {
        self.requests.front().map(|(_, errand)| errand.sent)
    }
}
