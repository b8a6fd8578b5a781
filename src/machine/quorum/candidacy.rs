//! What the servers of a quorum were asked for on behalf of one token.

use crate::protocol::call::Call;
use crate::protocol::clock::Mono;
use crate::protocol::ids::RequestId;
use crate::protocol::keys::LockKeys;
use crate::protocol::token::Token;

/// One attempt of a token, on all servers: its value there is `token.attempt`.
#[derive(Clone, Debug)]
pub(super) struct Candidacy {
    pub(super) keys: LockKeys,
    /// With its attempt.
    pub(super) token: Token,
    /// By server, what may stand there.
    pub(super) reached: Vec<Reach>,
    /// The last fence of its grant, once it was granted.
    pub(super) last_fence: Option<u64>,
    /// The last ballot in which a majority was seen to carry it.
    pub(super) carried: Option<RequestId>,
    /// The ballot that is about it first.
    pub(super) election: RequestId,
}

/// What a server may have of an attempt.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Reach {
    /// Nothing: it was not asked for the lock.
    Not,
    /// The lock. A withdrawal comes behind all that it was asked.
    Asked,
    /// The lock, now or later: such a request was lost with its connection, and may still be executed.
    Lost,
}

/// A request to one server.
#[derive(Clone, Debug)]
pub(super) struct NodeRequest {
    pub(super) call: Call,
    /// The ballot that its answer counts in, if it is still open then.
    pub(super) ballot: Option<RequestId>,
    /// The machine's token.
    pub(super) owner: Token,
    pub(super) sent: Mono,
}
