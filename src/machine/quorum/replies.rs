//! What the servers answer.

use super::ballot::{Question, Vote};
use super::{Errand, Quorum, Reach};
use crate::clock::Mono;
use crate::error::Failure;
use crate::machine::{Effect, Manner, RequestId};
use crate::script::{Call, Reply};
use crate::token::Token;
use std::time::Duration;

impl Quorum {
    pub(super) fn reply(
        &mut self,
        now: Mono,
        node: usize,
        request: RequestId,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        let Some(errand) = self.nodes[node].take_request(request) else { return };
        match reply {
            Err(Failure::Lost(detail)) => {
                self.lost(now, node, &errand, &detail, out);
                self.disconnected(now, node, &detail, out);
            }
            Err(Failure::NoScript) if self.is_wanted(&errand) => {
                self.nodes[node].answered(now);
                self.send(now, node, errand, Manner::WithSource, out);
            }
            Err(failure) => {
                self.nodes[node].answered(now);
                self.note_refusal(&errand, &failure);
                self.failed(now, node, &errand, &failure.to_string(), out);
            }
            Ok(reply) => {
                self.nodes[node].answered(now);
                self.answered(now, node, &errand, &reply, out);
            }
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

    fn answered(
        &mut self,
        now: Mono,
        node: usize,
        errand: &Errand,
        reply: &Reply,
        out: &mut Vec<Effect>,
    ) {
        match (&errand.call, reply) {
            (Call::Vote { .. }, reply) => self.voted(now, node, errand, reply, out),
            (Call::Extend { ttl, .. }, Reply::Owner(carries)) => {
                self.confirmed(now, node, errand, *ttl, *carries, out);
            }
            (Call::Seal { .. }, Reply::Owner(accepted)) => {
                self.count_for(now, errand, node, vote(*accepted), out);
            }
            (Call::Withdraw { token, .. }, Reply::Owner(freed)) => {
                self.debt_answered(now, node, token, errand.sent, true);
                self.count_for(now, errand, node, vote(*freed), out);
            }
            (Call::Fill { .. }, Reply::Owner(_)) => {}
            _ => debug_assert!(false, "{reply:?} is no answer to {:?}", errand.call),
        }
    }

    /// An answer to round one. In round two, and after it, the server is asked to accept the fence, too.
    fn voted(
        &mut self,
        now: Mono,
        node: usize,
        errand: &Errand,
        answer: &Reply,
        out: &mut Vec<Effect>,
    ) {
        if !self.is_wanted(errand) {
            // Its withdrawal is behind it on the same connection.
            return;
        }
        let Reply::Voted { counter, time } = answer else {
            let holder = if let Reply::Held(holder) = answer { Some(holder.clone()) } else { None };
            return self.count_for(now, errand, node, Vote::No(holder), out);
        };
        let owner = &errand.owner;
        let open = errand.ballot.and_then(|request| self.ballots.get_mut(&request));
        match open.map(|ballot| (&mut ballot.question, ballot.request)) {
            Some((Question::Lock(grantee), _)) => {
                grantee.least = grantee.least.max(counter + 1).max(time.as_micros());
                self.count_for(now, errand, node, Vote::Yes, out);
            }
            Some((Question::Seal { first, last, .. }, request)) => {
                let fences = (*first, *last);
                self.seal(now, node, owner, fences, Some(request), out);
            }
            _ => {
                // Granted meanwhile: one more server carries the lock, and must know its fence.
                if let Some(last) = self.bids.get(owner).and_then(|bid| bid.last_fence) {
                    self.seal(now, node, owner, (last, last), None, out);
                }
            }
        }
    }

    /// An answer to an extension.
    fn confirmed(
        &mut self,
        now: Mono,
        node: usize,
        errand: &Errand,
        ttl: Duration,
        carries: bool,
        out: &mut Vec<Effect>,
    ) {
        let won = self.bids.get(&errand.owner).and_then(|bid| bid.carried);
        let open = errand.ballot.is_some_and(|request| self.ballots.contains_key(&request));
        if !open && !carries && won.is_some() && won == errand.ballot {
            // Too late to vote, but in a round that a majority has won.
            return self.fill(now, node, &errand.owner, ttl, out);
        }
        self.count_for(now, errand, node, vote(carries), out);
    }

    fn count_for(
        &mut self,
        now: Mono,
        errand: &Errand,
        node: usize,
        vote: Vote,
        out: &mut Vec<Effect>,
    ) {
        if let Some(request) = errand.ballot {
            self.count(now, request, node, vote, out);
        }
    }

    /// A request has no answer, for its connection is gone. What was asked may have happened, or may yet.
    pub(super) fn lost(
        &mut self,
        now: Mono,
        node: usize,
        errand: &Errand,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        let takes = matches!(errand.call, Call::Vote { .. } | Call::Fill { .. });
        if takes
            && self.is_wanted(errand)
            && let Some(bid) = self.bids.get_mut(&errand.owner)
        {
            bid.reached[node] = Reach::Lost;
        }
        self.failed(now, node, errand, why, out);
    }

    /// A request was not answered by its script.
    fn failed(
        &mut self,
        now: Mono,
        node: usize,
        errand: &Errand,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        if let Call::Withdraw { keys, token } = &errand.call {
            self.owe(now, node, keys, token);
            self.debt_answered(now, node, token, errand.sent, false);
        }
        self.count_for(now, errand, node, Vote::Failed(why.to_owned()), out);
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
