//! A server's introduction on a new connection.

use super::clock::ServerTime;
use std::time::Duration;

/// The rights that a server denies a manager, and why.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Denied {
    /// Publishing and subscribing.
    pub pubsub: Option<String>,
    /// The plain commands that take a lock, or the fence counter.
    pub plain_commands: Option<String>,
    /// Its clock, to scripts.
    pub clock: Option<String>,
    /// The plain command that renews a lock; many servers have none.
    pub renewal: bool,
    /// The plain command that takes several locks; many servers have none.
    pub several: bool,
    /// Telling of changed keys (`CLIENT TRACKING`), which takes RESP3.
    pub tracking: bool,
}

/// A server's answer to a probe: its clock, and the identity of its data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerProbe {
    /// The replication id: it changes with every promotion and every restart. None where the server does not show it.
    pub replication_id: Option<String>,
    /// The server's clock.
    pub time: ServerTime,
    /// The server's uptime. None where it does not show that.
    pub uptime: Option<Duration>,
}

/// Why locks are less safe on a server than they could be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Risk {
    /// The server is one of several that take writes, each before the others have them: its name.
    ActiveReplica(String),
    /// The server may evict locks when its memory is full: its name, and its policy.
    Eviction(String),
    /// The server may lose locks when it restarts, and votes at once afterwards: its name, and why.
    Forgets(String),
    /// The server is a replica, so it grants no lock until it is promoted: its name.
    Replica(String),
}

impl Risk {
    /// Whether the server is a replica.
    #[must_use]
    pub const fn is_replica(&self) -> bool {
        matches!(self, Self::Replica(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_one_risk_of_several() {
        let name = || "one".to_owned();
        assert!(Risk::Replica(name()).is_replica());
        for other in [Risk::ActiveReplica(name()), Risk::Eviction(name()), Risk::Forgets(name())] {
            assert!(!other.is_replica(), "{other:?}");
        }
    }
}
