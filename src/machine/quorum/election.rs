//! Elections: acquiring a lock in two rounds.
//!
//! Round one takes the lock on each server and reads its fence counter and its clock. Once a majority has said yes, the
//! fence is above all their counters and not behind their clocks. Round two writes it where the attempt still has the
//! lock and the counter is *strictly* below: of two attempts with the same fence one gets it. A grant takes a majority
//! in both rounds. Round two is never repeated, and a missing answer counts as no.
//!
//! One round is not enough: two attempts that read the same counters on different majorities would have the same fence.

use super::ballot::{Ballot, Grantee, Question, Standing, Vote, majority};
use super::candidacy::{Candidacy, NodeRequest, Reach};
use super::{Quorum, Timer};
use crate::machine::interface::SendMode;
use crate::protocol::{Call, Failure, Held, LockKeys, Reply, RequestId, TOKEN_PREFIX, Token};
use std::time::Duration;

impl Quorum {
    /// Round one.
    pub(super) fn elect(
        &mut self,
        request: RequestId,
        keys: &LockKeys,
        owner: &Token,
        ttl: Duration,
        block: u8,
        waits: bool,
    ) {
        self.note_lease(ttl);
        // An earlier grant of this token came too late.
        self.give_up(owner, None);
        let patience = self.patience(ttl);
        let longest = self.settings.longest_lease;
        let votes = self.nodes.iter().map(|node| {
            node.ineligible_reason(self.now, patience, longest).map_or(Vote::Awaited, Vote::Failed)
        });
        let grantee = Grantee { block, waits, least: 0, refused: None };
        let ballot = Ballot {
            request,
            owner: owner.clone(),
            keys: keys.clone(),
            question: Question::Lock(grantee),
            votes: votes.collect(),
            deadline: self.now + patience,
            overdue: false,
        };
        if ballot.is_out_of_reach() {
            // An attempt without a chance is not made: it would only delay others.
            self.verdicts.push_back((request, Err(Failure::NoQuorum(ballot.causes()))));
            return;
        }
        self.last_attempt += 1;
        let attempt = self.last_attempt;
        let asked = |vote: &Vote| if *vote == Vote::Awaited { Reach::Asked } else { Reach::Not };
        let reached: Vec<Reach> = ballot.votes.iter().map(asked).collect();
        for node in (0..reached.len()).filter(|node| reached[*node] == Reach::Asked) {
            let (keys, token) = (keys.clone(), owner.clone());
            let call = Call::Vote { keys, token, attempt, ttl, mark: waits };
            self.ask_about(node, call, owner, Some(request));
        }
        let candidacy = Candidacy {
            keys: keys.clone(),
            token: Token::from_text(&format!("{owner}.{attempt}")),
            reached,
            last_fence: None,
            carried: None,
            election: request,
        };
        self.candidacies.insert(owner.clone(), candidacy);
        self.begin_ballot(ballot);
    }

    /// Sends a request whose answer counts in `ballot`.
    pub(super) fn ask_about(
        &mut self,
        node: usize,
        call: Call,
        owner: &Token,
        ballot: Option<RequestId>,
    ) {
        let asked = NodeRequest { call, ballot, owner: owner.clone(), sent: self.now };
        self.send(node, asked, SendMode::Plain);
    }

    pub(super) fn begin_ballot(&mut self, ballot: Ballot) {
        self.timers.insert((ballot.deadline, Timer::Ballot(ballot.request)));
        self.ballots.insert(ballot.request, ballot);
    }

    /// Counts a server's vote: ends the ballot if that decides it.
    pub(super) fn count(&mut self, request: RequestId, node: usize, vote: Vote) {
        let Some(ballot) = self.ballots.get_mut(&request) else { return };
        ballot.votes[node] = vote;
        self.decide(request);
    }

    /// Ends a ballot that is decided.
    pub(super) fn decide(&mut self, request: RequestId) {
        let standing = self.ballots.get(&request).map(Ballot::standing);
        let Some(standing @ (Standing::Lost | Standing::Won)) = standing else { return };
        let Some(ballot) = self.end_ballot(request) else { return };
        match (ballot.question.clone(), standing) {
            (Question::Lock(grantee), Standing::Won) => {
                self.begin_second_round(ballot, grantee);
            }
            (Question::Seal { first, last, .. }, Standing::Won) => {
                if let Some(candidacy) = self.candidacies.get_mut(&ballot.owner) {
                    candidacy.last_fence = Some(last);
                }
                self.verdicts.push_back((request, Ok(Reply::Granted { fence: first })));
            }
            (Question::Lock(grantee) | Question::Seal { grantee, .. }, _) => {
                self.lose_election(&ballot, grantee);
            }
            (Question::Extend { ttl }, Standing::Won) => self.extended(&ballot, ttl),
            (Question::Extend { .. }, _) => self.not_extended(&ballot),
            (Question::Withdraw, standing) => self.withdrawn(&ballot, standing),
        }
    }

    pub(super) fn end_ballot(&mut self, request: RequestId) -> Option<Ballot> {
        let ballot = self.ballots.remove(&request)?;
        self.timers.remove(&(ballot.deadline, Timer::Ballot(request)));
        Some(ballot)
    }

    /// Round two: every server that said yes is asked to accept the fence, and any other as soon as it says yes.
    fn begin_second_round(&mut self, mut ballot: Ballot, grantee: Grantee) {
        let first = grantee.least;
        let last = first + u64::from(grantee.block) - 1;
        // Round two has its own patience, since a slow round one may have used up its own.
        let (patience, request) = (self.settings.node_timeout, ballot.request);
        ballot.deadline = self.now + patience.min(self.machine.config().command_timeout / 4);
        ballot.question = Question::Seal { grantee, first, last };
        let yes: Vec<usize> =
            (0..ballot.votes.len()).filter(|node| ballot.votes[*node] == Vote::Yes).collect();
        for node in &yes {
            // The connection may be lost since the vote.
            ballot.votes[*node] = self.nodes[*node].awaited();
        }
        let owner = ballot.owner.clone();
        self.begin_ballot(ballot);
        for node in yes {
            self.seal(node, &owner, (first, last), Some(request));
        }
        self.decide(request);
    }

    /// Asks a server that has granted the lock to accept the fence.
    pub(super) fn seal(
        &mut self,
        node: usize,
        owner: &Token,
        (first, last): (u64, u64),
        ballot: Option<RequestId>,
    ) {
        let Some(candidacy) =
            self.candidacies.get(owner).filter(|_| self.nodes[node].connection.is_up())
        else {
            return;
        };
        let call = Call::Seal {
            keys: candidacy.keys.clone(),
            token: candidacy.token.clone(),
            first,
            last,
        };
        self.ask_about(node, call, owner, ballot);
    }

    /// No majority: gives the locks back on all servers, before the next attempt.
    fn lose_election(&mut self, ballot: &Ballot, grantee: Grantee) {
        self.give_up(&ballot.owner, None);
        let verdict = match grantee.refused {
            Some((servers, refusal)) if servers >= majority(ballot.votes.len()) => {
                Err(Failure::Refused(refusal))
            }
            _ if ballot.is_out_of_reach() => Err(Failure::NoQuorum(ballot.causes())),
            _ => {
                if grantee.waits {
                    self.listen(&ballot.keys);
                }
                let held = ballot.holder();
                Ok(Reply::Held(Held { holder: without_attempt(&held.holder).to_owned(), ..held }))
            }
        };
        self.verdicts.push_back((ballot.request, verdict));
    }

    /// Counts every vote still missing as failed.
    pub(super) fn ballot_deadline(&mut self, request: RequestId) {
        let patience = self.settings.node_timeout;
        let Some(ballot) = self.ballots.get_mut(&request) else { return };
        if let Question::Withdraw = ballot.question {
            ballot.overdue = true;
        } else {
            ballot.end_patience(patience);
        }
        self.decide(request);
    }
}

/// The machine's token in a value, which has the attempt behind it on a server.
fn without_attempt(holder: &str) -> &str {
    let attempt = |(_, number): &(&str, &str)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    match holder.rsplit_once('.').filter(attempt) {
        Some((token, _)) if holder.starts_with(TOKEN_PREFIX) => token,
        _ => holder,
    }
}
