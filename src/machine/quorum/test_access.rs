//! Access to the state of a quorum, for tests that corrupt it: so the shipped code has no switch.

use super::Quorum;
use super::ballot::{Question, Vote};
use super::candidacy::Reach;

impl Quorum {
    /// Counts every extension as won.
    pub(in crate::machine) fn believe_every_extension(&mut self) {
        for ballot in self.ballots.all() {
            if let Question::Extend { .. } = ballot.question
                && let Some(candidacy) = self.candidacies.get_mut(&ballot.owner)
            {
                candidacy.carried = Some(ballot.request);
            }
        }
    }

    /// Takes servers whose votes are awaited for untouched.
    pub(in crate::machine) fn forget_awaited_votes(&mut self) {
        for ballot in self.ballots.all() {
            if let Question::Lock(_) = ballot.question
                && let Some(candidacy) = self.candidacies.get_mut(&ballot.owner)
            {
                for (reach, vote) in candidacy.reached.iter_mut().zip(&ballot.votes) {
                    let yes = *vote == Vote::Yes;
                    *reach = if yes { Reach::Asked } else { Reach::Not };
                }
            }
        }
    }

    /// Reads no clock of a server.
    pub(in crate::machine) fn forget_clocks(&mut self) {
        self.servers.forget_clocks();
    }

    /// Drops all pending withdrawals.
    pub(in crate::machine) fn forget_withdrawals(&mut self) {
        self.withdrawals.clear();
    }

    /// Takes no request for lost.
    pub(in crate::machine) fn forget_lost_requests(&mut self) {
        let reached = self.candidacies.all().flat_map(|candidacy| &mut candidacy.reached);
        reached.for_each(|reach| *reach = Reach::Asked.min(*reach));
    }
}
