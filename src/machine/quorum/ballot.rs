//! Ballots: one request of the machine to all servers, and the count of their votes.
//!
//! A ballot is decided as soon as the result is certain: a majority has said yes, or can no longer, since too
//! many have said no, failed or stayed silent.

use crate::machine::context::Context;
use crate::machine::timers::Timer;
use crate::protocol::{Failure, HeldBy, LockKeys, Mono, Refusal, RequestId, Token};
use std::collections::BTreeMap;
use std::time::Duration;

/// The vote of one server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Vote {
    /// The server was asked, and may still answer.
    Awaited,
    /// The server cannot be asked, gave no answer in time, or refused: why.
    Failed(String),
    /// Another token has the lock; the holder, where the request asks for it.
    No(Option<HeldBy>),
    /// The attempt has the lock.
    Yes,
}

impl Vote {
    pub(super) const fn of(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No(None) }
    }
}

/// The request of a ballot.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// Extend the lease.
    Extend {
        /// The lease.
        ttl: Duration,
    },
    /// First round: take the lock, accept the proposed fences, or else report what a fence must exceed.
    Lock(Grantee),
    /// Second round: accept the fences from `first` to `last`.
    WriteFence { grantee: Grantee, first: u64, last: u64 },
    /// Give the lock up.
    Withdraw {
        /// The deadline has passed without enough answers.
        overdue: bool,
    },
}

/// The terms of a grant.
#[derive(Clone, Debug)]
pub(super) struct Grantee {
    /// How many fences the grant reserves.
    pub(super) block: u8,
    /// Whether the caller waits, and needs a message when the lock may be free.
    pub(super) waits: bool,
    /// The first and the last of the fences that round one proposes; zeros if none.
    pub(super) proposed: (u64, u64),
    /// How many servers have written them.
    pub(super) written: usize,
    /// The lowest fence that exceeds all known ones, and is not behind the servers' clocks.
    pub(super) least: u64,
    /// How many servers refused permanently, and the last refusal.
    pub(super) refused: Option<(usize, Refusal)>,
}

#[derive(Clone, Debug)]
pub(super) struct Ballot {
    /// The machine's request, which the ballot answers.
    pub(super) request: RequestId,
    /// The machine's token.
    pub(super) owner: Token,
    pub(super) keys: LockKeys,
    pub(super) question: Question,
    /// By node number.
    pub(super) votes: Vec<Vote>,
    /// When missing votes count as failed.
    pub(super) deadline: Mono,
}

/// The majority of a number of servers: three of five, and three of four.
pub(super) const fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

impl Ballot {
    /// Whether it is won; none while that is not certain.
    fn is_won(&self) -> Option<bool> {
        let majority = majority(self.votes.len());
        let yes = self.count(|vote| *vote == Vote::Yes);
        let awaited = self.count(|vote| *vote == Vote::Awaited);
        if yes >= majority {
            return Some(true);
        }
        let is_lost = yes + awaited < majority;
        let overdue = match self.question {
            Question::Withdraw { overdue } => overdue,
            // A majority that denies the lock ends its lease at once, so an extension waits for votes that can make one.
            Question::Extend { .. } => {
                return (is_lost && (self.is_denied() || !self.may_be_denied(awaited)))
                    .then_some(false);
            }
            Question::Lock(_) | Question::WriteFence { .. } => return is_lost.then_some(false),
        };
        // The owner held it, so a missing answer is no sign of another owner.
        let known = yes + self.count_no() >= majority;
        if self.is_denied() {
            Some(false)
        } else {
            (awaited == 0 || (overdue && known)).then_some(yes > 0 && known)
        }
    }

    /// Whether a majority says that the caller does not own the lock: then it cannot.
    pub(super) fn is_denied(&self) -> bool {
        self.count_no() > self.votes.len() - majority(self.votes.len())
    }

    /// Whether that majority is possible once the `awaited` votes are there.
    fn may_be_denied(&self, awaited: usize) -> bool {
        self.count_no() + awaited > self.votes.len() - majority(self.votes.len())
    }

    /// Whether too many servers failed for any majority.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.count(|vote| matches!(vote, Vote::Failed(_)))
            > self.votes.len() - majority(self.votes.len())
    }

    /// Why it has no majority.
    pub(super) fn failure(&self) -> Failure {
        let cause = |vote: &Vote| match vote {
            Vote::Failed(why) => why.clone(),
            _ => String::new(),
        };
        Failure::NoQuorum(self.votes.iter().map(cause).collect())
    }

    /// The holder on most servers; none if the lock is contended, or free by now.
    pub(super) fn holder(&self) -> HeldBy {
        let seen = self.votes.iter().filter_map(|vote| match vote {
            Vote::No(Some(held)) => Some(held),
            _ => None,
        });
        let times = |holder: &str| seen.clone().filter(|held| held.holder == holder).count();
        let most = seen.clone().max_by_key(|held| (times(&held.holder), held.remaining));
        most.cloned().unwrap_or_default()
    }

    /// The servers with such a vote.
    pub(super) fn nodes(&self, is: impl Fn(&Vote) -> bool) -> Vec<usize> {
        (0..self.votes.len()).filter(|node| is(&self.votes[*node])).collect()
    }

    fn count_no(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::No(_)))
    }

    fn count(&self, is: impl Fn(&Vote) -> bool) -> usize {
        self.votes.iter().filter(|vote| is(vote)).count()
    }

    /// Notes a permanent refusal: by most servers it helps a caller more than a lost ballot.
    pub(super) fn note_refusal(&mut self, refusal: &Refusal) {
        if let Question::Lock(grantee) | Question::WriteFence { grantee, .. } = &mut self.question
            && !refusal.is_transient()
        {
            let count = grantee.refused.as_ref().map_or(0, |(count, _)| *count);
            grantee.refused = Some((count + 1, refusal.clone()));
        }
    }
}

/// The ballots that are not decided.
#[derive(Debug, Default)]
pub(super) struct Ballots(BTreeMap<RequestId, Ballot>);

impl Ballots {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn begin(&mut self, context: &mut Context, ballot: Ballot) {
        context.timers.set(Timer::Ballot(ballot.request), ballot.deadline);
        self.0.insert(ballot.request, ballot);
    }

    pub(super) fn get_mut(&mut self, request: Option<RequestId>) -> Option<&mut Ballot> {
        self.0.get_mut(&request?)
    }

    pub(super) fn end(&mut self, context: &mut Context, request: RequestId) -> Option<Ballot> {
        let ballot = self.0.remove(&request)?;
        context.timers.clear(Timer::Ballot(request));
        Some(ballot)
    }

    /// Ends a ballot if it is decided. Returns it, and whether it is won.
    pub(super) fn decide(
        &mut self,
        context: &mut Context,
        request: RequestId,
    ) -> Option<(Ballot, bool)> {
        let is_won = self.0.get(&request)?.is_won()?;
        Some((self.end(context, request)?, is_won))
    }

    /// The servers have had `patience`: every vote still missing counts as failed.
    pub(super) fn deadline(&mut self, request: RequestId, patience: Duration) {
        let Some(ballot) = self.0.get_mut(&request) else { return };
        if let Question::Withdraw { overdue } = &mut ballot.question {
            *overdue = true;
            return;
        }
        let why = format!("no answer within {} ms", patience.as_millis());
        for vote in ballot.votes.iter_mut().filter(|vote| **vote == Vote::Awaited) {
            *vote = Vote::Failed(why.clone());
        }
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn all(&self) -> impl Iterator<Item = &Ballot> {
        self.0.values()
    }
}
