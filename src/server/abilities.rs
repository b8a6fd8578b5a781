//! The abilities of a connected server.

use crate::protocol::Risk;

/// The version of the protocol on a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Resp {
    /// RESP2: messages come on a connection of their own.
    Two,
    /// RESP3.
    Three,
}

/// The abilities of a connected server. Its locks work without any of them, some more slowly.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent")]
pub struct Abilities {
    /// The server's name for people.
    pub server: String,
    /// The protocol that it speaks.
    pub resp: Resp,
    /// Whether scripts may read its clock.
    pub clock: bool,
    /// Whether this manager and its scripts may publish and subscribe.
    pub pubsub: bool,
    /// Whether locks may be taken by plain commands.
    pub plain_commands: bool,
    /// Whether it tells at once of held locks that other code deletes, and of those that it loses.
    pub tracking: bool,
    /// Its command for a compare-and-delete; none if a script does it.
    pub compare_and_delete: Option<&'static str>,
    /// Why locks are less safe there than they could be.
    pub risks: Vec<Risk>,
    /// The server's words, if the connection is lost and the server refuses the login since.
    pub refused: Option<String>,
}
