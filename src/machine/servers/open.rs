//! Which request of each owner has no answer yet.

use crate::machine::timers::Owner;
use crate::protocol::RequestId;
use crate::slim::Slim;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// The open request of each owner, by kinds of owners: for an uncontended lock most kinds have none, and are looked up at
/// no cost.
#[derive(Debug, Default)]
pub(super) struct Open([FxHashMap<u64, RequestId>; Owner::KINDS]);

impl Open {
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(FxHashMap::len).sum()
    }

    pub(super) fn has(&self, owner: Owner) -> bool {
        let (kind, number) = owner.parts();
        self.0[kind].contains_key(&number)
    }

    pub(super) fn insert(&mut self, owner: Owner, id: RequestId) {
        let (kind, number) = owner.parts();
        self.0[kind].insert(number, id);
    }

    /// Returns whether the owner had one.
    pub(super) fn remove(&mut self, owner: Owner) -> bool {
        let (kind, number) = owner.parts();
        let open = &mut self.0[kind];
        !open.is_empty() && open.remove(&number).is_some()
    }

    /// Removes the request `id`. Returns whether it was its owner's open one.
    pub(super) fn end(&mut self, owner: Owner, id: RequestId) -> bool {
        let (kind, number) = owner.parts();
        match self.0[kind].entry(number) {
            Entry::Occupied(open) if *open.get() == id => {
                open.remove();
                self.0[kind].slim();
                true
            }
            _ => false,
        }
    }
}
