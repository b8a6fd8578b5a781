//! The tracking of held locks: the server tells at once when other code changes or loses the key of a lock.
//!
//! A message proves nothing: it may be about a waiter's mark, come late, twice, or never. So it makes the machine ask, and only
//! the answer counts. No promise rests on messages, since renewals go on.
//!
//! A server tells once of each key, and no more once this manager itself has written it. So it is asked anew after each
//! answer to a renewal, and names the key's value then: what has changed since the answer counts as told.

use super::{Lease, Leases, SLICE};
use crate::machine::Machine;
use crate::machine::interface::{Effect, LossReason};
use crate::machine::timers::Owner;
use crate::machine::tracked::{TRACKED_AFTER, Tracking};
use crate::machine::waiting_room::Rank;
use crate::protocol::{LockKeys, Mono, NodeId, TokenId};

impl Lease {
    /// Plans its renewal anew, at a step that was planned for the tracking alone. Returns whether it was.
    fn skips_to_renewal(&mut self, now: Mono) -> bool {
        let pause = self.until_renewal(now);
        // The time of a question counts from the last answer.
        let rest = if self.gets_longer() { pause } else { pause.saturating_sub(TRACKED_AFTER) };
        let is_alone = self.pending_renewal.is_none() && self.notice.is_none() && rest > SLICE;
        if is_alone {
            self.plan_renewal(now, now + rest);
        }
        is_alone
    }
}

impl Leases {
    /// A lease is tracked no more, and again as `then` says.
    pub(in crate::machine) fn end_tracking(&mut self, id: TokenId, then: Tracking) {
        let Some(held) = self.by_token.get_mut(&id) else { return };
        if held.tracking.is_on() {
            self.tracked.remove(&held.keys);
        }
        if held.tracking != Tracking::Off {
            held.tracking = then;
        }
    }

    /// Begins to track a lease, if there is room.
    fn begin_tracking(&mut self, id: TokenId) {
        let Some(held) = self.by_token.get_mut(&id) else { return };
        let is_tracked = self.tracked.add(&held.keys, id);
        held.tracking = if is_tracked { Tracking::On(0) } else { Tracking::Later };
    }
}

impl Machine {
    /// The next step of a lease is due: it is tracked from now on. Returns whether that was all, and no renewal is due.
    pub(super) fn tracking_due(&mut self, id: TokenId) -> bool {
        let Some(held) = self.leases.get(id) else { return false };
        // A question about an idle lock is no sign of a long hold.
        let is_idle =
            self.leases.is_idle(id) || self.leases.idle.is_taken_unconfirmed(id, held.confirmed);
        if held.tracking == Tracking::Off || is_idle {
            return false;
        }
        let was_young = held.tracking == Tracking::Young;
        self.leases.begin_tracking(id);
        if !was_young || self.servers.is_open(Owner::Renewal(id)) {
            return false;
        }
        let (now, mut skips) = (self.context.now, false);
        self.leases.change(&mut self.context, id, |held| skips = held.skips_to_renewal(now));
        if skips {
            self.track(id);
        }
        skips
    }

    /// Has the server tell when the key of a lease changes next, if it is tracked.
    pub(in crate::machine) fn track(&mut self, id: TokenId) {
        let Some(held) = self.leases.get(id) else { return };
        if held.tracking.is_on() && self.servers.of(&held.keys).connection.is_up() {
            let (node, keys) = (self.servers.node(&held.keys), held.keys.clone());
            let token = Some(Leases::token_of(&self.context, held));
            self.context.push(Effect::Track { node, keys, token });
        }
    }

    /// The server says that the key of a lock has changed.
    pub(in crate::machine) fn changed(&mut self, keys: &LockKeys) {
        if let Some(id) = self.leases.tracked.of(keys) {
            self.told(id);
        }
        for id in self.queues.entries(keys) {
            self.tell_waiter(id);
        }
    }

    /// A server says that everything may have changed.
    pub(in crate::machine) fn all_changed(&mut self, node: NodeId) {
        let here = self.leases.tracked.all().filter(|(keys, _)| self.servers.node(keys) == node);
        let mut ids: Vec<_> = here.map(|(_, id)| id).collect();
        ids.sort_unstable();
        for id in ids {
            self.told(id);
        }
        for id in self.entries.keys_in_order() {
            if self.entries.get(&id).is_some_and(|entry| self.servers.node(&entry.keys) == node) {
                self.tell_waiter(id);
            }
        }
    }

    /// The server tells no more, nor what it was asked to tell last.
    pub(in crate::machine) fn tracking_denied(&mut self, node: NodeId) {
        if std::mem::replace(&mut self.servers.at(node).data.tells, false) {
            self.track_anew(node);
        }
    }

    /// A connection to a server is new, so it tracks nothing. What has changed meanwhile was told to nobody.
    pub(in crate::machine) fn track_anew(&mut self, node: NodeId) {
        let tells = self.servers.get(node).data.tells;
        for id in self.leases.ids() {
            let Some(held) = self.leases.by_token.get_mut(&id) else { continue };
            if self.servers.node(&held.keys) != node {
                continue;
            }
            match held.tracking {
                _ if !tells => self.leases.end_tracking(id, Tracking::Off),
                Tracking::Off if !held.mode.is_shared() => held.tracking = Tracking::Later,
                Tracking::On(_) => held.tracking = Tracking::On(0),
                _ => {}
            }
        }
        self.all_changed(node);
    }

    /// The server has said, or shown by a grant, that a lease may have ended. There may be very many at once, so each is asked
    /// about when there is room for that.
    pub(in crate::machine) fn told(&mut self, id: TokenId) {
        let Some(held) = self.leases.by_token.get_mut(&id) else { return };
        // A message that says more may have come before.
        held.notice.get_or_insert(LossReason::Expired);
        held.asked = false;
        let (keys, tracking) = (held.keys.clone(), held.tracking.told());
        if tracking.is_on() {
            held.tracking = tracking;
        } else {
            // It does not wait for its next renewal: that of a long lease is much later.
            self.leases.end_tracking(id, tracking);
        }
        if self.servers.has_room(&keys) {
            self.ask_about_notice(id);
        } else {
            self.servers.wait(Owner::Renewal(id), &keys, Rank::Known);
        }
    }
}

#[cfg(all(test, feature = "core"))]
impl Lease {
    /// Whether no sign of life is missing, without which it is not asked about when its renewal is due.
    pub(in crate::machine) const fn may_be_asked(&self) -> bool {
        !self.stalled
    }
}

#[cfg(all(test, feature = "core"))]
impl Machine {
    /// The leases that a message about these keys is for; none: about all.
    pub(in crate::machine) fn tracked_leases(&self, keys: Option<&LockKeys>) -> Vec<TokenId> {
        match keys {
            Some(keys) => self.leases.tracked.of(keys).into_iter().collect(),
            None => self.leases.tracked.all().map(|(_, id)| id).collect(),
        }
    }
}
