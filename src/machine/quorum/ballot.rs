//! Ballots: one request to all servers, and the count of their votes.
//!
//! A ballot is decided as soon as the result is certain: a majority has said yes, or can no longer, since too
//! many have said no, failed or stayed silent.

use crate::protocol::{Held, LockKeys, Mono, RequestId, Token};
use std::time::Duration;

/// The vote of one server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Vote {
    /// The server was asked, and may still answer.
    Awaited,
    /// The server cannot be asked, gave no answer in time, or refused: why.
    Failed(String),
    /// Another token has the lock; the holder, where the request asks for it.
    No(Option<Held>),
    /// The attempt has the lock.
    Yes,
}

/// The request of a ballot.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// Extend the lease.
    Extend {
        /// The lease.
        ttl: Duration,
    },
    /// First round: take the lock, and report what the fence must exceed.
    Lock(Grantee),
    /// Second round: accept the fences from `first` to `last`.
    Seal { grantee: Grantee, first: u64, last: u64 },
    /// Give the lock up.
    Withdraw,
}

/// The terms of a grant.
#[derive(Clone, Debug)]
pub(super) struct Grantee {
    /// How many fences the grant reserves.
    pub(super) block: u8,
    /// Whether the caller waits, and needs a message when the lock may be free.
    pub(super) waits: bool,
    /// The lowest fence that exceeds all known ones, and is not behind the servers' clocks.
    pub(super) least: u64,
    /// How many servers refused permanently, and the last refusal.
    pub(super) refused: Option<(usize, crate::protocol::error::Refusal)>,
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
    /// The deadline has passed without enough answers.
    pub(super) overdue: bool,
}

/// The state of a ballot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    Lost,
    Open,
    Won,
}

/// The majority of a number of servers: three of five, and three of four.
pub(super) const fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

impl Ballot {
    pub(super) fn standing(&self) -> Standing {
        let majority = majority(self.votes.len());
        let (yes, no, awaited) = (self.count_yes(), self.count_no(), self.count_awaited());
        if yes >= majority {
            Standing::Won
        } else if let Question::Withdraw = self.question {
            // The owner held it, so a missing answer is no sign of another owner.
            let enough = awaited == 0 || (self.overdue && yes + no >= majority);
            match enough {
                _ if no > self.votes.len() - majority => Standing::Lost,
                true if yes > 0 && yes + no >= majority => Standing::Won,
                true => Standing::Lost,
                false => Standing::Open,
            }
        } else if yes + awaited < majority {
            Standing::Lost
        } else {
            Standing::Open
        }
    }

    /// Whether a majority says that the caller does not own the lock: then it cannot.
    pub(super) fn is_denied(&self) -> bool {
        self.count_no() > self.votes.len() - majority(self.votes.len())
    }

    /// Whether too many servers failed for any majority.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.count(|vote| matches!(vote, Vote::Failed(_)))
            > self.votes.len() - majority(self.votes.len())
    }

    /// Counts missing votes as failed from now on.
    pub(super) fn end_patience(&mut self, patience: Duration) {
        let why = format!("no answer within {} ms", patience.as_millis());
        for vote in self.votes.iter_mut().filter(|vote| **vote == Vote::Awaited) {
            *vote = Vote::Failed(why.clone());
        }
    }

    /// By server, why it failed; empty if it did not.
    pub(super) fn causes(&self) -> Vec<String> {
        let cause = |vote: &Vote| match vote {
            Vote::Failed(why) => why.clone(),
            _ => String::new(),
        };
        self.votes.iter().map(cause).collect()
    }

    /// The holder on most servers; none if the lock is contended, or free by now.
    pub(super) fn holder(&self) -> Held {
        let seen = self.votes.iter().filter_map(|vote| match vote {
            Vote::No(Some(held)) => Some(held),
            _ => None,
        });
        let times = |holder: &str| seen.clone().filter(|held| held.holder == holder).count();
        let most = seen.clone().max_by_key(|held| (times(&held.holder), held.remaining));
        most.cloned().unwrap_or_default()
    }

    pub(super) fn count_yes(&self) -> usize {
        self.count(|vote| *vote == Vote::Yes)
    }

    fn count_no(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::No(_)))
    }

    fn count_awaited(&self) -> usize {
        self.count(|vote| *vote == Vote::Awaited)
    }

    fn count(&self, is: impl Fn(&Vote) -> bool) -> usize {
        self.votes.iter().filter(|vote| is(vote)).count()
    }
}
