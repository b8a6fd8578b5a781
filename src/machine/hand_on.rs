//! Passing a lock from one caller of this process to the next without the server.
//!
//! A thousand tasks of one process that want one lock would otherwise cost the server a thousand
//! releases and grants. Others wait meanwhile, so it ends after a while; then the lock goes through
//! the server to whoever is first in line there.

use super::renew::{Hold, Owed};
use super::{Effect, Lease, LeaseId, Machine, Outcome};
use crate::clock::Mono;
use crate::script::CLAIM;
use std::time::Duration;

impl Machine {
    /// Hands the lock of `held`, which its caller gives up, to the next in line here. False if it must
    /// go through the server.
    pub(super) fn hand_on(&mut self, now: Mono, lease: LeaseId, out: &mut Vec<Effect>) -> bool {
        let id = lease.attempt();
        let Some(held) = self.leases.get(&id) else { return false };
        let Some(op) = self.first_in_line(&held.keys) else { return false };
        let Some(next) = self.acquires.get(&op) else { return false };
        // Reserved fences of another history of the data may be smaller than what others got in this.
        let outdated = self.link_of(&held.keys).is_outdated(held.fence);
        let whole = !held.mode.is_shared() && !next.mode.is_shared();
        if outdated || !whole || !held.can_be_handed_on(now, next.ttl, next.hold) {
            return false;
        }
        let Some(next) = self.remove_acquire(op) else { return false };
        self.end_extends_of(lease, out);
        self.change_lease(id, |held| {
            held.id = lease.next();
            held.fence += 1;
            held.fences_left -= 1;
            held.ttl = next.ttl;
            held.hold = next.hold;
            held.began = now;
            held.plan_next_renewal(now);
        });
        let Some(held) = self.leases.get(&id) else { return false };
        let (lease_now, fence, until) = (held.id, held.fence, held.held_until());
        let label = (held.label != next.label).then(|| held.label.to_string());
        self.stats.acquired += 1;
        self.stats.handed_on += 1;
        out.push(Effect::SetDeadline { lease, until: None });
        out.push(Effect::SetDeadline { lease: lease_now, until: Some(until) });
        out.push(Effect::Complete {
            op,
            outcome: Outcome::Acquired { lease: lease_now, fence, label },
        });
        self.serve_line(now, &next.keys, Some(id), out);
        true
    }
}

impl Lease {
    /// Whether enough is left of it for a caller who wants `ttl`: fences, time, and fairness to those
    /// who wait elsewhere.
    fn can_be_handed_on(&self, now: Mono, ttl: Duration, hold: Hold) -> bool {
        // Until the claim is answered, its length is all that can be asked for.
        let whole = if self.owed == Some(Owed::Claim) { ttl.min(CLAIM) } else { ttl };
        self.fences_left > 0
            && hold.renew
            && now < self.fair_until
            && self.until.since(now) >= whole / 2
    }
}
