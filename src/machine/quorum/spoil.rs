//! Hands in the state of a quorum, for tests that spoil it: so the code that is shipped has no switch.

use super::Quorum;
use super::ballot::{Question, Vote};
use super::candidacy::Reach;

impl Quorum {
    /// Every extension counts as won.
    pub(in crate::machine) fn believe_every_extension(&mut self) {
        for ballot in self.ballots.values() {
            if let Question::Extend { .. } = ballot.question
                && let Some(candidacy) = self.candidacies.get_mut(&ballot.owner)
            {
                candidacy.carried = Some(ballot.request);
            }
        }
    }

    /// Whose votes are awaited has nothing.
    pub(in crate::machine) fn forget_awaited_votes(&mut self) {
        for ballot in self.ballots.values() {
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

    /// Nothing has to be withdrawn any more.
    pub(in crate::machine) fn forget_withdrawals(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.withdrawals.clear());
    }

    /// No request is known to be lost.
    pub(in crate::machine) fn forget_lost_requests(&mut self) {
        let reached = self.candidacies.values_mut().flat_map(|candidacy| &mut candidacy.reached);
        reached.for_each(|reach| *reach = Reach::Asked.min(*reach));
    }
}
