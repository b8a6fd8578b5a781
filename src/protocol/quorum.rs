//! The rules of a quorum, which its servers share.

use std::time::Duration;

/// The settings of a quorum, besides those of a manager.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The names of the servers for people, without login, by node number.
    pub servers: Vec<String>,
    /// How long a server may take for one round of a ballot. At most a tenth of the lease counts.
    pub node_timeout: Duration,
    /// The longest lease that any manager takes on these servers: one that has restarted has no vote for this long,
    /// since it may have lost locks. None where the data survive every restart.
    pub longest_lease: Option<Duration>,
}
