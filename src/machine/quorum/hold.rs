//! Keeping a lock that a majority carries, and giving a lock up.

use super::Quorum;
use super::ballot::{Ballot, Question, Standing, Vote};
use super::candidacy::{Candidacy, Reach};
use super::node::{Node, PendingWithdrawal};
use crate::machine::release::REPEAT_AFTER;
use crate::protocol::{Call, Failure, LockKeys, Mono, Reply, RequestId, Token};
use std::time::Duration;

impl Quorum {
    /// A longer lease than known is taken: a server that restarts has no vote for as long.
    pub(super) fn note_lease(&mut self, ttl: Duration) {
        if let Some(longest) = &mut self.settings.longest_lease {
            *longest = ttl.max(*longest);
        }
    }

    /// Asks all servers to extend the lease, also those that have no vote in elections: what counts here is that they
    /// carry the token.
    pub(super) fn extend(
        &mut self,
        request: RequestId,
        keys: &LockKeys,
        owner: &Token,
        ttl: Duration,
    ) {
        self.note_lease(ttl);
        let Some(token) = self.candidacies.get(owner).map(|candidacy| candidacy.token.clone())
        else {
            self.verdicts.push_back((request, Ok(Reply::Owner(false))));
            return;
        };
        let call = Call::Extend { keys: keys.clone(), token, ttl };
        let votes: Vec<_> = self.nodes.iter().map(Node::awaited).collect();
        for node in (0..votes.len()).filter(|node| votes[*node] == Vote::Awaited) {
            self.ask_about(node, call.clone(), owner, Some(request));
        }
        let deadline = self.now + self.patience(ttl);
        self.begin(request, owner, keys, Question::Extend { ttl }, votes, deadline);
        self.decide(request);
    }

    fn begin(
        &mut self,
        request: RequestId,
        owner: &Token,
        keys: &LockKeys,
        question: Question,
        votes: Vec<Vote>,
        deadline: Mono,
    ) {
        let (owner, keys) = (owner.clone(), keys.clone());
        self.begin_ballot(Ballot {
            request,
            owner,
            keys,
            question,
            votes,
            deadline,
            overdue: false,
        });
    }

    /// A majority carries the token: fills the servers that lack it.
    pub(super) fn extended(&mut self, ballot: &Ballot, ttl: Duration) {
        if let Some(candidacy) = self.candidacies.get_mut(&ballot.owner) {
            candidacy.carried = Some(ballot.request);
        }
        self.verdicts.push_back((ballot.request, Ok(Reply::Owner(true))));
        for node in 0..ballot.votes.len() {
            if matches!(ballot.votes[node], Vote::No(_)) {
                self.fill(node, &ballot.owner, ttl);
            }
        }
    }

    /// Gives the lock to a server that lacks it, only in the round in which a majority was seen to carry it: after a
    /// lost majority the lock may be another's, and this would be a vote against it.
    pub(super) fn fill(&mut self, node: usize, owner: &Token, ttl: Duration) {
        let up = self.nodes[node].connection.is_up();
        let Some(candidacy) = self.candidacies.get_mut(owner).filter(|_| up) else { return };
        let Candidacy { keys, token, last_fence: Some(last), .. } = candidacy.clone() else {
            return;
        };
        candidacy.reached[node] = candidacy.reached[node].max(Reach::Asked);
        self.ask_about(node, Call::Fill { keys, token, ttl, last }, owner, None);
    }

    /// No majority has confirmed the lease. That is final only if a majority denies it; else the machine asks again
    /// while the lease lasts. A missing answer alone ends no lease.
    pub(super) fn not_extended(&mut self, ballot: &Ballot) {
        let verdict = if ballot.is_denied() {
            self.give_up(&ballot.owner, None);
            Ok(Reply::Owner(false))
        } else {
            Err(Failure::NoQuorum(ballot.causes()))
        };
        self.verdicts.push_back((ballot.request, verdict));
    }

    /// The machine gives a token up, in whatever state.
    pub(super) fn withdraw(&mut self, request: RequestId, keys: &LockKeys, owner: &Token) {
        let Some(candidacy) = self.candidacies.get(owner).cloned() else {
            self.verdicts.push_back((request, Ok(Reply::Owner(false))));
            return;
        };
        if self.end_ballot(candidacy.election).is_some() {
            // No component waits for the election any more.
            self.verdicts.push_back((candidacy.election, Err(Failure::NoQuorum(Vec::new()))));
        }
        let vote = |node: usize| match candidacy.reached[node] {
            Reach::Not => Vote::No(None),
            Reach::Asked | Reach::Lost => self.nodes[node].awaited(),
        };
        let votes = (0..self.nodes.len()).map(vote).collect();
        self.give_up(owner, Some(request));
        let deadline = self.now + self.settings.node_timeout;
        self.begin(request, owner, keys, Question::Withdraw, votes, deadline);
        self.decide(request);
    }

    pub(super) fn withdrawn(&mut self, ballot: &Ballot, standing: Standing) {
        let verdict = match standing {
            Standing::Won => Ok(Reply::Owner(true)),
            _ if ballot.is_denied() => Ok(Reply::Owner(false)),
            _ => Err(Failure::NoQuorum(ballot.causes())),
        };
        self.verdicts.push_back((ballot.request, verdict));
    }

    /// Withdraws an attempt from every server that was asked for it, after all requests to it, even unanswered ones.
    /// Where the connection is lost, or is another than that of a request, the withdrawal is also kept as pending: the
    /// request may be executed late.
    pub(super) fn give_up(&mut self, owner: &Token, ballot: Option<RequestId>) {
        let Some(Candidacy { keys, token, reached, .. }) = self.candidacies.remove(owner) else {
            return;
        };
        for node in (0..reached.len()).filter(|node| reached[*node] != Reach::Not) {
            let up = self.nodes[node].connection.is_up();
            if !up || reached[node] == Reach::Lost {
                self.owe(node, &keys, &token);
            }
            if up {
                let call = Call::Withdraw { keys: keys.clone(), token: token.clone() };
                self.ask_about(node, call, owner, ballot);
            }
        }
    }

    /// Keeps a withdrawal that must be sent, or repeated.
    pub(super) fn owe(&mut self, node: usize, keys: &LockKeys, token: &Token) {
        let withdrawal = PendingWithdrawal { keys: keys.clone(), due: self.now, confirmed: false };
        self.nodes[node].withdrawals.entry(token.clone()).or_insert(withdrawal);
    }

    /// Sends all due withdrawals to a server.
    pub(super) fn send_withdrawals(&mut self, node: usize) {
        if !self.nodes[node].connection.is_up() {
            return;
        }
        let due = self.nodes[node]
            .withdrawals
            .iter()
            .filter(|(_, withdrawal)| withdrawal.due <= self.now);
        let due: Vec<_> =
            due.map(|(token, withdrawal)| (token.clone(), withdrawal.keys.clone())).collect();
        for (token, keys) in due {
            let call = Call::Withdraw { keys, token: token.clone() };
            self.ask_about(node, call, &token, None);
        }
    }

    /// A server has answered a withdrawal that was sent at `sent`.
    pub(super) fn withdrawal_answered(
        &mut self,
        node: usize,
        token: &Token,
        sent: Mono,
        gone: bool,
    ) {
        let Some(withdrawal) = self.nodes[node].withdrawals.get_mut(token) else { return };
        if gone && withdrawal.confirmed && sent >= withdrawal.due {
            self.nodes[node].withdrawals.remove(token);
            return;
        }
        if !(gone && withdrawal.confirmed) {
            withdrawal.confirmed = gone;
            withdrawal.due = self.now + REPEAT_AFTER;
        }
        let due = withdrawal.due;
        self.timers.insert((due, super::Timer::Withdrawals(node)));
    }
}
