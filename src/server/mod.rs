//! Where locks live. The only module that names the Redis client.

#[cfg(test)]
pub(crate) mod embedded;
#[cfg(feature = "memory")]
#[cfg_attr(not(test), expect(dead_code, reason = "nothing connects to it yet"))]
pub(crate) mod memory;
mod single;
mod stream;
mod wire;

pub(crate) use single::{Connection, Deliver, Incoming, Item, Welcome, connect};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One server and how to reach it.
#[derive(Clone)]
pub struct Endpoint {
    /// Where it listens.
    pub address: Address,
    /// The ACL user; none for the default user.
    pub username: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
    /// The database number.
    pub db: u32,
    /// What `CLIENT LIST` shows.
    pub client_name: String,
    /// The channel on which grants are told.
    pub inbox: Arc<str>,
    /// How long connecting may take, handshake included.
    pub connect_timeout: Duration,
}

/// Where a server listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// Host name or IP address, and port.
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// A socket file.
    Unix {
        /// Its path.
        path: String,
    },
}

/// Shows everything but the password.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("db", &self.db)
            .field("client_name", &self.client_name)
            .field("inbox", &self.inbox)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let endpoint = Endpoint {
            address: Address::Tcp { host: "::1".to_owned(), port: 6379 },
            username: None,
            password: Some("s3cret".to_owned()),
            db: 0,
            client_name: "holdfast".to_owned(),
            inbox: "inbox".into(),
            connect_timeout: Duration::from_secs(1),
        };
        assert!(!format!("{endpoint:?}").contains("s3cret"));
    }
}
