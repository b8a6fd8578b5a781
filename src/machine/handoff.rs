//! Handing what one caller of this process gives up to the next, ahead of others.
//!
//! A thousand tasks of one process that want one lock would otherwise cost the server a thousand
//! releases, grants and claims. A whole lock is handed on without the server; a share by one call, since each
//! has its own fence. Others wait meanwhile, so it ends after a while; then what is given up goes to
//! whoever is first in the wait queue at the server.

use super::context::{Context, in_order};
use super::lease::Lease;
use super::release::Successor;
use super::requests::Requests;
use super::wait_queue::{AcquireRequest, WaitQueues};
use crate::protocol::call::Mode;
use crate::protocol::clock::Mono;
use crate::protocol::ids::{OpId, TokenId};
use rustc_hash::FxHashMap;

/// Releases that wait for the answer to a renewal, a claim or an extension: if that says that the lock is held, it is
/// handed on here.
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

    /// A caller gives a lock up, and waits until `deadline` to hear whether it was held.
    pub(super) fn insert(&mut self, id: TokenId, op: OpId, deadline: Mono) {
        self.0.insert(id, (op, deadline));
    }

    pub(super) fn take(&mut self, id: TokenId) -> Option<(OpId, Mono)> {
        if self.0.is_empty() { None } else { self.0.remove(&id) }
    }
}

/// Whether the whole lock of a caller who gives it up may go to the next one here without the server. `unanswered`: a
/// request is under way whose answer may say that another has the lock; then it is too early to know how long the lease
/// lasts.
pub(super) fn may_follow(
    rq: &Requests,
    held: &Lease,
    next: &AcquireRequest,
    unanswered: bool,
) -> bool {
    let data = rq.servers.data_of(&held.keys);
    // Fences that were reserved in another history of the data may be smaller than what others got in this.
    let known = rq.servers.is_up(&held.keys)
        && held.history == data.history
        && !data.is_outdated(held.fence);
    let whole = !held.mode.is_shared() && !next.mode.is_shared();
    let left = held.until.since(rq.cx.now);
    // The lease goes on as it is: enough of it for the successor, and no more than a crash of his may cost.
    let fits = unanswered || (next.ttl / 2..=next.ttl).contains(&left);
    known && whole && fits && next.hold.renew && !held.budget.is_spent(rq.cx.now)
}

/// Who here gets the share of a caller who gives it up: one who wants the same, and to whom nobody hands one on yet.
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
