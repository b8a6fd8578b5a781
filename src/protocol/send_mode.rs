//! How a call is sent.

use super::ids::NodeId;

/// How a call is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendMode {
    /// By its hash; with others about the same lock, where that changes nothing for its caller.
    Plain,
    /// By its hash, alone.
    Alone,
    /// By its hash, after a redirection.
    Redirected,
    /// With its text, since the server did not know its hash.
    WithSource,
    /// With its text, after ASKING, to the server that the slot moves to.
    Asking(NodeId),
}
