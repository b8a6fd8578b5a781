//! The servers' answers.

use super::Quorum;
use super::ballot::{Question, Vote};
use super::candidacy::{NodeRequest, Reach};
use crate::machine::interface::SendMode;
use crate::protocol::{Call, Failure, Reply, RequestId, Token};
use std::time::Duration;

impl Quorum {
    pub(super) fn reply(&mut self, node: usize, request: RequestId, reply: Result<Reply, Failure>) {
        let Some(answered) = self.nodes[node].connection.take(request) else { return };
        let asked = answered.request;
        if !matches!(reply, Err(Failure::Lost(_))) {
            self.nodes[node].connection.answered(self.now);
        }
        match reply {
            Err(Failure::Lost(detail)) => {
                self.lost(node, &asked, &detail);
                self.disconnected(node, &detail);
            }
            Err(Failure::NoScript) if self.is_wanted(&asked) => {
                self.send(node, asked, SendMode::WithSource);
            }
            Err(failure) => {
                self.note_refusal(&asked, &failure);
                self.failed(node, &asked, &failure.to_string());
            }
            Ok(reply) => self.answered(node, &asked, &reply),
        }
    }

    /// Whether an unexecuted request is still needed: not if its attempt was given up, since the withdrawal went ahead
    /// of a repeat.
    fn is_wanted(&self, asked: &NodeRequest) -> bool {
        match &asked.call {
            Call::Vote { attempt, .. } => {
                let token = Token::from_text(&format!("{}.{attempt}", asked.owner));
                self.is_live(&asked.owner, &token)
            }
            Call::Extend { token, .. } | Call::Fill { token, .. } | Call::Seal { token, .. } => {
                self.is_live(&asked.owner, token)
            }
            _ => true,
        }
    }

    fn answered(&mut self, node: usize, asked: &NodeRequest, reply: &Reply) {
        match (&asked.call, reply) {
            (Call::Vote { .. }, reply) => self.voted(node, asked, reply),
            (Call::Extend { ttl, .. }, Reply::Owner(carries)) => {
                self.confirmed(node, asked, *ttl, *carries);
            }
            (Call::Seal { .. }, Reply::Owner(accepted)) => {
                self.count_for(asked, node, vote(*accepted));
            }
            (Call::Withdraw { token, .. }, Reply::Owner(freed)) => {
                self.withdrawal_answered(node, token, asked.sent, true);
                self.count_for(asked, node, vote(*freed));
            }
            (Call::Fill { .. }, Reply::Owner(_)) => {}
            _ => debug_assert!(false, "{reply:?} is no answer to {:?}", asked.call),
        }
    }

    /// An answer to round one. If it comes in round two or later, the server is asked to accept the fence, too.
    fn voted(&mut self, node: usize, asked: &NodeRequest, answer: &Reply) {
        if !self.is_wanted(asked) {
            // Its withdrawal follows on the same connection.
            return;
        }
        let Reply::Voted { counter, time } = answer else {
            let holder = if let Reply::Held(holder) = answer { Some(holder.clone()) } else { None };
            return self.count_for(asked, node, Vote::No(holder));
        };
        let owner = &asked.owner;
        let open = asked.ballot.and_then(|request| self.ballots.get_mut(&request));
        match open.map(|ballot| (&mut ballot.question, ballot.request)) {
            Some((Question::Lock(grantee), _)) => {
                grantee.least = grantee.least.max(counter + 1).max(time.as_micros());
                self.count_for(asked, node, Vote::Yes);
            }
            Some((Question::Seal { first, last, .. }, request)) => {
                let fences = (*first, *last);
                self.seal(node, owner, fences, Some(request));
            }
            _ => {
                // The lock was granted meanwhile: this server carries it too, and must know its fence.
                if let Some(last) =
                    self.candidacies.get(owner).and_then(|candidacy| candidacy.last_fence)
                {
                    self.seal(node, owner, (last, last), None);
                }
            }
        }
    }

    /// An answer to an extension.
    fn confirmed(&mut self, node: usize, asked: &NodeRequest, ttl: Duration, carries: bool) {
        let won = self.candidacies.get(&asked.owner).and_then(|candidacy| candidacy.carried);
        let open = asked.ballot.is_some_and(|request| self.ballots.contains_key(&request));
        if !open && !carries && won.is_some() && won == asked.ballot {
            // The vote is too late, but a majority has won its round.
            return self.fill(node, &asked.owner, ttl);
        }
        self.count_for(asked, node, vote(carries));
    }

    fn count_for(&mut self, asked: &NodeRequest, node: usize, vote: Vote) {
        if let Some(request) = asked.ballot {
            self.count(request, node, vote);
        }
    }

    /// The connection of a request is lost. The request may have been executed, or may yet be.
    pub(super) fn lost(&mut self, node: usize, asked: &NodeRequest, why: &str) {
        let takes = matches!(asked.call, Call::Vote { .. } | Call::Fill { .. });
        if takes
            && self.is_wanted(asked)
            && let Some(candidacy) = self.candidacies.get_mut(&asked.owner)
        {
            candidacy.reached[node] = Reach::Lost;
        }
        self.failed(node, asked, why);
    }

    /// A request has no reply of its script.
    fn failed(&mut self, node: usize, asked: &NodeRequest, why: &str) {
        if let Call::Withdraw { keys, token } = &asked.call {
            self.owe(node, keys, token);
            self.withdrawal_answered(node, token, asked.sent, false);
        }
        self.count_for(asked, node, Vote::Failed(why.to_owned()));
    }

    /// A permanent refusal by most servers helps a caller more than a lost ballot.
    fn note_refusal(&mut self, asked: &NodeRequest, failure: &Failure) {
        let Failure::Refused(refusal) = failure else { return };
        if refusal.is_transient() {
            return;
        }
        let ballot = asked.ballot.and_then(|request| self.ballots.get_mut(&request));
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
