//! Candidacies: what the servers of a quorum were asked for each token of the machine.

use super::ballot::{Ballot, Vote};
use crate::machine::interface::Effect;
use crate::protocol::{Call, LockKeys, NodeId, RequestId, TOKEN_PREFIX, Token};
use rustc_hash::FxHashMap;

/// One attempt of a token, on all servers: its value there is `token.attempt`.
#[derive(Clone, Debug)]
pub(super) struct Candidacy {
    /// The machine's token.
    owner: Token,
    pub(super) attempt: u64,
    keys: LockKeys,
    /// With its attempt.
    token: Token,
    /// By server, what it may have of the attempt.
    pub(super) reached: Vec<Reach>,
    /// The last fence of its grant, once it was granted.
    pub(super) last_fence: Option<u64>,
    /// The last ballot in which a majority was seen to carry it.
    pub(super) carried: Option<RequestId>,
    /// The ballot of its election.
    pub(super) election: RequestId,
}

/// How far an attempt may have got on a server.
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
    /// The machine's token, and its attempt.
    pub(super) owner: Token,
    pub(super) attempt: u64,
    /// The ballot that counts its answer, if it is still open then.
    pub(super) ballot: Option<RequestId>,
}

impl Candidacy {
    /// A call about the attempt.
    pub(super) fn request(
        &self,
        ballot: Option<RequestId>,
        call: impl FnOnce(LockKeys, Token) -> Call,
    ) -> NodeRequest {
        let call = call(self.keys.clone(), self.token.clone());
        NodeRequest { call, owner: self.owner.clone(), attempt: self.attempt, ballot }
    }

    /// Has a server tell when it no longer carries the attempt.
    pub(super) fn tracking(&self, node: NodeId) -> Effect {
        Effect::Track { node, keys: self.keys.clone(), token: Some(self.token.clone()) }
    }
}

#[derive(Debug, Default)]
pub(super) struct Candidacies {
    by_owner: FxHashMap<Token, Candidacy>,
    last_attempt: u64,
}

impl Candidacies {
    pub(super) fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    /// Begins an attempt in an election. Returns it, and its number.
    pub(super) fn begin(&mut self, ballot: &Ballot) -> (&Candidacy, u64) {
        self.last_attempt += 1;
        let (owner, attempt) = (ballot.owner.clone(), self.last_attempt);
        let asked = |vote: &Vote| if *vote == Vote::Awaited { Reach::Asked } else { Reach::Not };
        let candidacy = Candidacy {
            token: Token::from_text(&format!("{owner}.{attempt}")),
            owner: owner.clone(),
            attempt,
            keys: ballot.keys.clone(),
            reached: ballot.votes.iter().map(asked).collect(),
            last_fence: None,
            carried: None,
            election: ballot.request,
        };
        (self.by_owner.entry(owner).insert_entry(candidacy).into_mut(), attempt)
    }

    pub(super) fn get(&self, owner: &Token) -> Option<&Candidacy> {
        self.by_owner.get(owner)
    }

    pub(super) fn get_mut(&mut self, owner: &Token) -> Option<&mut Candidacy> {
        self.by_owner.get_mut(owner)
    }

    pub(super) fn remove(&mut self, owner: &Token) -> Option<Candidacy> {
        self.by_owner.remove(owner)
    }

    /// The candidacy of a request; none if its attempt was given up.
    pub(super) fn of(&mut self, asked: &NodeRequest) -> Option<&mut Candidacy> {
        self.get_mut(&asked.owner).filter(|candidacy| candidacy.attempt == asked.attempt)
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Candidacy> {
        self.by_owner.values_mut()
    }
}

/// The machine's token in a value, which has the attempt behind it on a server.
pub(super) fn without_attempt(holder: &str) -> &str {
    let attempt = |(_, number): &(&str, &str)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    match holder.rsplit_once('.').filter(attempt) {
        Some((token, _)) if holder.starts_with(TOKEN_PREFIX) => token,
        _ => holder,
    }
}
