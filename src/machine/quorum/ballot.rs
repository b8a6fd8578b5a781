//! One question to all servers, and how their votes are counted.
//!
//! A ballot is decided as soon as it is certain either way: a majority has said yes, or so many have
//! said no, failed or stayed silent that none can come about any more.

use crate::protocol::clock::Mono;
use crate::protocol::ids::RequestId;
use crate::protocol::keys::LockKeys;
use crate::protocol::reply::Held;
use crate::protocol::token::Token;
use std::time::Duration;

/// What one server says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Vote {
    /// It was asked, and may still answer.
    Awaited,
    /// It cannot be asked, gave no answer in time, or refused to serve at all: why.
    Failed(String),
    /// Another has the lock; who, where it was asked for that.
    No(Option<Held>),
    /// It is the attempt's.
    Yes,
}

/// What is asked.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// Lengthen the lease.
    Extend {
        /// The lease.
        ttl: Duration,
    },
    /// First round: take the lock, and tell what the fence must exceed.
    Lock(Grantee),
    /// Second round: accept the fences from `first` to `last`.
    Seal { grantee: Grantee, first: u64, last: u64 },
    /// Give the lock up.
    Withdraw,
}

/// For what a lock is taken.
#[derive(Clone, Debug)]
pub(super) struct Grantee {
    /// How many fences the grant reserves.
    pub(super) block: u8,
    /// Whether the caller waits, and wants to hear when the lock may be free.
    pub(super) waits: bool,
    /// The lowest fence that exceeds all that was heard of, and is not behind the servers' clocks.
    pub(super) least: u64,
    /// How many servers refused in a way that time does not mend, and what the last of them said.
    pub(super) refused: Option<(usize, crate::protocol::error::Refusal)>,
}

#[derive(Clone, Debug)]
pub(super) struct Ballot {
    /// The machine's request that it answers.
    pub(super) request: RequestId,
    /// The machine's token.
    pub(super) owner: Token,
    pub(super) keys: LockKeys,
    pub(super) question: Question,
    /// By the numbers of the servers.
    pub(super) votes: Vec<Vote>,
    /// When silence counts as failure.
    pub(super) deadline: Mono,
    /// The deadline has passed, and too few have answered to tell anything.
    pub(super) overdue: bool,
}

/// How a ballot stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    Lost,
    Open,
    Won,
}

/// How many of so many servers are a majority: three of five, and three of four.
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
            // Its owner held it: what a server that gives no answer has was not seen to be another's.
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

    /// Whether a majority says that the lock is not the caller's: then it cannot be.
    pub(super) fn is_denied(&self) -> bool {
        self.count_no() > self.votes.len() - majority(self.votes.len())
    }

    /// Whether so many servers failed that no majority can be reached at all.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.count(|vote| matches!(vote, Vote::Failed(_)))
            > self.votes.len() - majority(self.votes.len())
    }

    /// Silence counts as failure from now on.
    pub(super) fn end_patience(&mut self, patience: Duration) {
        let why = format!("no answer within {} ms", patience.as_millis());
        for vote in self.votes.iter_mut().filter(|vote| **vote == Vote::Awaited) {
            *vote = Vote::Failed(why.clone());
        }
    }

    /// By server, why it failed; empty where it did not.
    pub(super) fn causes(&self) -> Vec<String> {
        let cause = |vote: &Vote| match vote {
            Vote::Failed(why) => why.clone(),
            _ => String::new(),
        };
        self.votes.iter().map(cause).collect()
    }

    /// Who holds the lock on most servers; nobody where it is contended, or free by now.
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
