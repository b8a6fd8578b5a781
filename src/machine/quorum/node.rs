//! One server of a quorum: its connection, its uptime, and its pending withdrawals.

use super::ballot::Vote;
use super::candidacy::NodeRequest;
use crate::machine::connection::Connection;
use crate::machine::interface::ServerProbe;
use crate::protocol::{LockKeys, Mono, Token};
use std::collections::BTreeMap;
use std::time::Duration;

/// Servers report uptime in whole seconds, and keys outlive their leases a little.
const UPTIME_MARGIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Node {
    pub(super) connection: Connection<NodeRequest>,
    /// The replication id, which names its run and its data.
    pub(super) history: Option<String>,
    /// Its uptime, and when it was read; none if it is not shown.
    uptime: Option<(Duration, Mono)>,
    /// Withdrawals to be sent or repeated, since a connection was lost before them or before their answer, by token.
    pub(super) withdrawals: BTreeMap<Token, PendingWithdrawal>,
}

/// A token that must be withdrawn, and once more in case a server buffers an earlier request.
#[derive(Clone, Debug)]
pub(super) struct PendingWithdrawal {
    pub(super) keys: LockKeys,
    /// When it is sent next, while connected.
    pub(super) due: Mono,
    /// The server has confirmed it once; only the repeat is left.
    pub(super) confirmed: bool,
}

impl Node {
    pub(super) fn new() -> Self {
        let connection = Connection::new();
        Self { connection, history: None, uptime: None, withdrawals: BTreeMap::new() }
    }

    pub(super) fn connected(&mut self, now: Mono, probe: ServerProbe) {
        self.connection.connected(now);
        self.history = probe.history;
        self.uptime = probe.uptime.map(|uptime| (uptime, now));
    }

    /// The vote of a server that is asked now: awaited, if it is connected.
    pub(super) fn awaited(&self) -> Vote {
        if self.connection.is_up() {
            Vote::Awaited
        } else {
            Vote::Failed(self.connection.last_error.clone())
        }
    }

    /// Why it cannot be asked for a lock now, if so. A server that has restarted may have lost locks: until the longest
    /// of them would have ended it has no vote. `longest` is none where its data survive.
    pub(super) fn ineligible_reason(
        &self,
        now: Mono,
        patience: Duration,
        longest: Option<Duration>,
    ) -> Option<String> {
        if !self.connection.is_up() {
            return Some(self.connection.last_error.clone());
        }
        let silent = self.connection.oldest().map_or(Duration::ZERO, |sent| now.since(sent));
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
}
