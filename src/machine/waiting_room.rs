//! The owners whose requests wait until a connection has room for them (see `window.rs`).
//!
//! An owner waits, not its request: in its turn it asks for what it needs then. One that needs nothing any more has asked
//! for nothing, so the server has nothing of it to be given back.

use super::timers::Owner;
use std::collections::VecDeque;

/// The order in which requests get room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rank {
    /// The server may have something of it: a lock to free, or a place in the queue to keep.
    Known,
    /// The server knows nothing of it.
    New,
}

/// The owners of one server, in the order in which they came. Owners that have left since are still in it.
#[derive(Debug, Default)]
pub(super) struct WaitingRoom {
    known: VecDeque<Owner>,
    new: VecDeque<Owner>,
}

impl WaitingRoom {
    pub(super) fn add(&mut self, owner: Owner, rank: Rank) {
        match rank {
            Rank::Known => self.known.push_back(owner),
            Rank::New => self.new.push_back(owner),
        }
    }

    pub(super) fn next(&mut self) -> Option<Owner> {
        let next = self.known.pop_front().or_else(|| self.new.pop_front());
        if next.is_none() {
            // A burst leaves no memory behind.
            *self = Self::default();
        }
        next
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.known.iter().chain(&self.new)
    }

    /// For a defect that the simulator must find.
    #[cfg(all(test, feature = "core"))]
    pub(super) fn reverse(&mut self) {
        self.new.make_contiguous().reverse();
    }
}
