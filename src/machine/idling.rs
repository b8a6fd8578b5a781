//! Idle locks: a whole lock that its caller has released while nobody here waited, and that the manager keeps for its next
//! caller, for the `linger` of the last one at most.
//!
//! The next caller gets it by handoff: without the server, with its own fence, within the limits of
//! [`super::handoff`]. A lock that it cannot get that way is released ahead of its request, on the same connection. No caller
//! holds an idle lock, so its loss is nobody's.
//!
//! Old code and `tryAcquire` elsewhere leave no trace at the server. So a lock is idle for no longer than `linger` from the
//! first time on that it was, however often it is taken meanwhile: then it is released at the server.

use super::Machine;
use super::lease::Lease;
use super::timers::Owner;
use super::wait_queue::AcquireRequest;
use crate::protocol::{LeaseId, LockKeys, OpId, TokenId};
use std::time::Duration;

impl Machine {
    /// Whether a lock that its caller releases is to be kept for the next one: nobody waits for it here, and as far as is
    /// known nobody elsewhere.
    pub(super) fn is_to_idle(&self, held: &Lease) -> bool {
        let id = held.id.token_id();
        let polls = self.context.config.polling.is_some() && self.queues.has_poller(&held.keys);
        self.leases.idle.end_of(self.context.now, id).is_some()
            && !self.queues.has(&held.keys)
            && !polls
            && !held.mode.is_shared()
            && held.renew
            && held.notice.is_none()
            && held.id.followers() > 0
            && !self.leases.is_awaited(id)
            && self.lifecycle.closing().is_none()
            && self.context.config.linger_max > 0
            && held.may_stay_confirmed(self.servers.of(&held.keys).connection.round_trip())
    }

    /// Whether the next caller could get it at once.
    pub(super) fn may_idle(&self, held: &Lease) -> bool {
        self.is_to_idle(held) && !held.budget.is_spent(self.context.now) && self.is_fresh(held)
    }

    /// Whether the server has confirmed a lease lately, and nobody says otherwise. A question under way does not matter:
    /// if its answer denies the lock, the next caller learns it then.
    fn is_fresh(&self, held: &Lease) -> bool {
        held.is_confirmed(self.context.now)
            && held.notice.is_none()
            && self.extensions_of(held.id).next().is_none()
    }

    /// Keeps a lock that its caller has released.
    pub(super) fn begin_idling(&mut self, lease: LeaseId) {
        let id = lease.token_id();
        // One that the server has given away meanwhile, also to this manager, may not know that yet.
        if let Some(keys) = self.leases.get(id).map(|held| held.keys.clone()) {
            self.release_idle(&[keys]);
        }
        self.end_extensions_of(lease);
        self.leases.end_hold(&mut self.context, id);
        let round_trip = self.round_trip_of(id);
        let is_asked = self.servers.is_open(Owner::Renewal(id));
        self.leases.begin_idling(&mut self.context, id, round_trip.filter(|_| !is_asked));
        if self.leases.idle.len() > self.context.config.linger_max
            && let Some(oldest) = self.leases.idle.first()
        {
            self.release_at_server(oldest, None, None);
        }
    }

    /// Gives a caller the idle lock that it asks for. An idle lock that it cannot get is released ahead of its request.
    /// False if it must ask the server.
    pub(super) fn takes_idle_lock(&mut self, op: OpId, next: &AcquireRequest) -> bool {
        let Some(id) = self.leases.idle.with(&next.keys) else { return false };
        let now = self.context.now;
        let fits = self.leases.get(id).is_some_and(|held| {
            let is_valid = now < held.until && !held.budget.is_spent(now);
            // A question under way makes it last as long as its last caller wanted.
            let suits = held.rest_suits(now, next.ttl) && held.ttl() <= next.ttl;
            is_valid && self.is_fresh(held) && suits && self.fits(held, next)
        });
        if fits {
            self.pass_on(id, op, next);
        } else {
            self.release_at_server(id, None, None);
        }
        fits
    }

    /// A round trip to the server of a lease, as it takes now.
    pub(super) fn round_trip_of(&self, id: TokenId) -> Option<Duration> {
        Some(self.servers.of(&self.leases.get(id)?.keys).connection.round_trip())
    }

    /// Releases the idle locks among these, which a request needs that no handoff serves.
    pub(super) fn release_idle(&mut self, keys: &[LockKeys]) {
        for id in keys.iter().filter_map(|keys| self.leases.idle.with(keys)).collect::<Vec<_>>() {
            self.release_at_server(id, None, None);
        }
    }
}
