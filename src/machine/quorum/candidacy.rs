//! A candidacy: what the servers of a quorum were asked for one token.

use crate::protocol::{Call, LockKeys, Mono, RequestId, Token};

/// One attempt of a token, on all servers: its value there is `token.attempt`.
#[derive(Clone, Debug)]
pub(super) struct Candidacy {
    pub(super) keys: LockKeys,
    /// With its attempt.
    pub(super) token: Token,
    /// By server, what it may have of the attempt.
    pub(super) reached: Vec<Reach>,
    /// The last fence of its grant, once it was granted.
    pub(super) last_fence: Option<u64>,
    /// The last ballot in which a majority was seen to carry it.
    pub(super) carried: Option<RequestId>,
    /// The ballot of its election.
    pub(super) election: RequestId,
}

/// What a server may have of an attempt.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Reach {
    /// Nothing: it was not asked for the lock.
    Not,
    /// The lock. A withdrawal follows all requests for it.
    Asked,
    /// The lock, now or later: a request for it was lost with its connection, and may still be executed.
    Lost,
}

/// A request to one server.
#[derive(Clone, Debug)]
pub(super) struct NodeRequest {
    pub(super) call: Call,
    /// The ballot that counts its answer, if it is still open then.
    pub(super) ballot: Option<RequestId>,
    /// The machine's token.
    pub(super) owner: Token,
    pub(super) sent: Mono,
}
