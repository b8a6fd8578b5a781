//! What the servers answer.

use super::ballot::{Question, Vote};
use super::{Errand, Quorum, Reach};
use crate::error::Failure;
use crate::machine::{Manner, RequestId};
use crate::script::{Call, Reply};
use crate::token::Token;
use std::time::Duration;

impl Quorum {
    pub(super) fn reply(&mut self, node: usize, request: RequestId, reply: Result<Reply, Failure>) {
        let Some(answered) = self.nodes[node].connection.take(request) else { return };
        let errand = answered.request;
        if !matches!(reply, Err(Failure::Lost(_))) {
            self.nodes[node].connection.answered(self.now);
        }
        match reply {
            Err(Failure::Lost(detail)) => {
                self.lost(node, &errand, &detail);
                self.disconnected(node, &detail);
            }
            Err(Failure::NoScript) if self.is_wanted(&errand) => {
                self.send(node, errand, Manner::WithSource);
            }
            Err(failure) => {
                self.note_refusal(&errand, &failure);
                self.failed(node, &errand, &failure.to_string());
            }
            Ok(reply) => self.answered(node, &errand, &reply),
        }
    }

    /// Whether what was not executed is still to be: not if its attempt was given up meanwhile, for its
    /// withdrawal went ahead of a repeat.
    fn is_wanted(&self, errand: &Errand) -> bool {
        match &errand.call {
            Call::Vote { attempt, .. } => {
                let token = Token::from_text(&format!("{}.{attempt}", errand.owner));
                self.is_live(&errand.owner, &token)
            }
            Call::Extend { token, .. } | Call::Fill { token, .. } | Call::Seal { token, .. } => {
                self.is_live(&errand.owner, token)
            }
            _ => true,
        }
    }

    fn answered(&mut self, node: usize, errand: &Errand, reply: &Reply) {
        match (&errand.call, reply) {
            (Call::Vote { .. }, reply) => self.voted(node, errand, reply),
            (Call::Extend { ttl, .. }, Reply::Owner(carries)) => {
                self.confirmed(node, errand, *ttl, *carries);
            }
            (Call::Seal { .. }, Reply::Owner(accepted)) => {
                self.count_for(errand, node, vote(*accepted));
            }
            (Call::Withdraw { token, .. }, Reply::Owner(freed)) => {
                self.debt_answered(node, token, errand.sent, true);
                self.count_for(errand, node, vote(*freed));
            }
            (Call::Fill { .. }, Reply::Owner(_)) => {}
            _ => debug_assert!(false, "{reply:?} is no answer to {:?}", errand.call),
        }
    }

    /// An answer to round one. In round two, and after it, the server is asked to accept the fence, too.
    fn voted(&mut self, node: usize, errand: &Errand, answer: &Reply) {
        if !self.is_wanted(errand) {
            // Its withdrawal is behind it on the same connection.
            return;
        }
        let Reply::Voted { counter, time } = answer else {
            let holder = if let Reply::Held(holder) = answer { Some(holder.clone()) } else { None };
            return self.count_for(errand, node, Vote::No(holder));
        };
        let owner = &errand.owner;
        let open = errand.ballot.and_then(|request| self.ballots.get_mut(&request));
        match open.map(|ballot| (&mut ballot.question, ballot.request)) {
            Some((Question::Lock(grantee), _)) => {
                grantee.least = grantee.least.max(counter + 1).max(time.as_micros());
                self.count_for(errand, node, Vote::Yes);
            }
            Some((Question::Seal { first, last, .. }, request)) => {
                let fences = (*first, *last);
                self.seal(node, owner, fences, Some(request));
            }
            _ => {
                // Granted meanwhile: one more server carries the lock, and must know its fence.
                if let Some(last) = self.bids.get(owner).and_then(|bid| bid.last_fence) {
                    self.seal(node, owner, (last, last), None);
                }
            }
        }
    }

    /// An answer to an extension.
    fn confirmed(&mut self, node: usize, errand: &Errand, ttl: Duration, carries: bool) {
        let won = self.bids.get(&errand.owner).and_then(|bid| bid.carried);
        let open = errand.ballot.is_some_and(|request| self.ballots.contains_key(&request));
        if !open && !carries && won.is_some() && won == errand.ballot {
            // Too late to vote, but in a round that a majority has won.
            return self.fill(node, &errand.owner, ttl);
        }
        self.count_for(errand, node, vote(carries));
    }

    fn count_for(&mut self, errand: &Errand, node: usize, vote: Vote) {
        if let Some(request) = errand.ballot {
            self.count(request, node, vote);
        }
    }

    /// A request has no answer, for its connection is gone. What was asked may have happened, or may yet.
    pub(super) fn lost(&mut self, node: usize, errand: &Errand, why: &str) {
        let takes = matches!(errand.call, Call::Vote { .. } | Call::Fill { .. });
        if takes
            && self.is_wanted(errand)
            && let Some(bid) = self.bids.get_mut(&errand.owner)
        {
            bid.reached[node] = Reach::Lost;
        }
        self.failed(node, errand, why);
    }

    /// A request was not answered by its script.
    fn failed(&mut self, node: usize, errand: &Errand, why: &str) {
        if let Call::Withdraw { keys, token } = &errand.call {
            self.owe(node, keys, token);
            self.debt_answered(node, token, errand.sent, false);
        }
        self.count_for(errand, node, Vote::Failed(why.to_owned()));
    }

    /// A refusal of most servers that time does not mend is worth more to a caller than a lost ballot.
    fn note_refusal(&mut self, errand: &Errand, failure: &Failure) {
        let Failure::Refused(refusal) = failure else { return };
        if refusal.is_transient() {
            return;
        }
        let ballot = errand.ballot.and_then(|request| self.ballots.get_mut(&request));
        if let Some(Question::Lock(grantee) | Question::Seal { grantee, .. }) =
            ballot.map(|ballot| &mut ballot.question)
        {
            let count = grantee.refused.as_ref().map_or(0, |(count, _)| *count);
            grantee.refused = Some((count + 1, refusal.clone()));
        }
    }
}

const fn vote(yes: bool) -> Vote {
    if yes { Vote::Yes } else { Vote::No(None) }
}
