//! How calls are written on one connection: the commands that its server understands and allows.

use crate::protocol::Counters;

/// How calls are written on one connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Dialect {
    pub(in crate::server) counters: Counters,
    pub(in crate::server) delete: Delete,
    /// Whether scripts may read the server's clock.
    pub(in crate::server) clock: bool,
}

/// How a key is deleted if its value is a token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::server) enum Delete {
    /// By a script, which every server runs.
    Script,
    /// `DELIFEQ`, of Valkey since 9.0: <https://valkey.io/commands/delifeq/>
    Delifeq,
    /// `DELEX`, of Redis since 8.4: <https://redis.io/docs/latest/commands/delex/>
    Delex,
}

impl Delete {
    /// The native command, if it is one.
    pub(super) const fn command(self) -> Option<&'static str> {
        match self {
            Self::Script => None,
            Self::Delifeq => Some("DELIFEQ"),
            Self::Delex => Some("DELEX"),
        }
    }
}

impl Dialect {
    /// That of every server.
    pub(in crate::server) const PLAIN: Self =
        Self { counters: Counters::Server, delete: Delete::Script, clock: true };
}
