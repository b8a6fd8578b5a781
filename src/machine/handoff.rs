//! Handoffs: the lock of one caller goes to the next caller of this process, ahead of other processes.
//!
//! A thousand tasks of one process that want one lock would otherwise cost the server a thousand releases, grants and
//! claims. A whole lock is handed off without the server; a share by one call, since each has its own fence. Other
//! processes wait meanwhile, so a budget limits it; then the lock goes to the first waiter at the server.

use super::context::{Context, in_order};
use super::lease::Lease;
use super::release::Successor;
use super::requests::Requests;
use super::wait_queue::{AcquireRequest, WaitQueues};
use crate::protocol::{Mode, Mono, OpId, TokenId};
use rustc_hash::FxHashMap;

/// Releases that wait for the answer to a renewal, a claim or an extension: if that confirms the lock, it is handed off
/// here.
#[derive(Debug, Default)]
pub(super) struct Undecided(FxHashMap<TokenId, (OpId, Mono)>);

impl Undecided {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn ids(&self) -> Vec<TokenId> {
        in_order(&self.0)
    }

    pub(super) fn has(&self, id: TokenId) -> bool {
        self.0.contains_key(&id)
    }

    /// A caller gives a lock up, and waits until `deadline` for its outcome.
    pub(super) fn insert(&mut self, id: TokenId, op: OpId, deadline: Mono) {
        self.0.insert(id, (op, deadline));
    }

    pub(super) fn take(&mut self, id: TokenId) -> Option<(OpId, Mono)> {
        self.0.remove(&id)
    }
}

/// Whether a whole lock may go from its owner to the next caller here without the server. `unanswered`: a request is
/// under way whose answer may deny the lock; until then the length of the lease is unknown.
pub(super) fn may_follow(
    rq: &Requests,
    held: &Lease,
    next: &AcquireRequest,
    unanswered: bool,
) -> bool {
    let data = rq.servers.data_of(&held.keys);
    // Fences reserved under another replication id may be smaller than those issued since.
    let known = rq.servers.is_up(&held.keys)
        && held.history == data.history
        && !data.is_outdated(held.fence);
    let whole = !held.mode.is_shared() && !next.mode.is_shared();
    let left = held.until.since(rq.cx.now);
    // The lease continues: the rest must suffice for the successor, but a crash of it must not cost more.
    let fits = unanswered || (next.ttl / 2..=next.ttl).contains(&left);
    known && whole && fits && next.hold.renew && !held.budget.is_spent(rq.cx.now)
}

/// The caller here that gets a share by handoff: the next one of the same mode that is not a successor yet.
pub(super) fn successor(
    cx: &mut Context,
    queues: &mut WaitQueues,
    held: &Lease,
) -> Option<Box<Successor>> {
    if !matches!(held.mode, Mode::Shared { limit: Some(_) }) || held.budget.is_spent(cx.now) {
        return None;
    }
    let next = queues.reserve_successor(&held.keys, held.mode)?;
    let (label, ttl, mode, budget) = (next.label.clone(), next.ttl, next.mode, held.budget.next());
    let id = cx.next_token_id();
    let token = cx.token(id, &label);
    Some(Box::new(Successor { id, token, label, ttl, mode, budget }))
}
