//! Handing a lock off: whether a release passes it to the next caller of this process.
//!
//! A handoff gives the lock of one caller to the next caller of this process, ahead of other processes: without it a
//! thousand tasks would cost the server a thousand releases, grants and claims. A whole lock is handed off without the
//! server; a share by one call, since each has its own fence. A budget limits how long other processes wait meanwhile.

use super::context;
use super::handoff::{HandoffBudget, Reservation};
use super::interface::Outcome;
use super::lease::{Lease, Origin, RenewedBy};
use super::queue_entry::{Beneficiary, Entry, Granted, Step};
use super::release::Successor;
use super::request::{CallError, Finished};
use super::timers::Owner;
use super::wait_queue::AcquireRequest;
use super::{Machine, Releasing};
use crate::protocol::{LeaseId, Mode, Mono, OpId, Reply, TokenId, is_owner, valid_until};

impl Machine {
    pub(super) fn release(&mut self, op: OpId, lease: LeaseId, exported: bool) {
        let held = self.leases.valid(&self.context, lease);
        let Some(held) = held.filter(|_| !self.undecided.contains_key(&lease.token_id())) else {
            // The lease was lost or released before; its end gives back what is left of it.
            return self.context.complete(op, Outcome::Lost);
        };
        let id = lease.token_id();
        if held.origin == Origin::Foreign {
            self.end_extensions_of(lease);
            self.remove_lease(id);
            return self.context.complete(op, Outcome::Done);
        }
        let caller = (op, self.context.now + self.context.config.command_timeout);
        let idles = self.is_to_idle(held);
        if idles && !exported && self.may_idle(held) {
            self.begin_idling(lease);
            return self.context.complete(op, Outcome::Done);
        }
        // Unless somebody waits here, or is to find it here, there is no handoff to consider. A token that tells its owner
        // serves no other caller.
        if exported || is_owner(&held.label) || !(idles || self.queues.has(&held.keys)) {
            self.release_at_server(id, Some(caller), None);
        } else if (self.is_unanswered(held) && (idles || self.next_owner(held).is_some()))
            || self.keeps_a_position(held)
        {
            self.undecided.insert(id, caller);
        } else if self.may_get_handoffs(held) {
            self.leases.reservation(id).map(Reservation::delay);
            self.undecided.insert(id, caller);
        } else {
            self.hand_off_or_release(lease, caller);
        }
    }

    /// Whether a renewal, a claim or an extension is under way, whose answer may deny that the lock is held.
    pub(super) fn is_unanswered(&self, held: &Lease) -> bool {
        self.servers.is_open(Owner::Renewal(held.id.token_id()))
            || self.extensions_of(held.id).next().is_some()
    }

    /// Whether an entry at the server has the position of a caller that was served here, and cannot be moved back before
    /// its open request is answered: others would be overtaken by as many callers again as the lock may be handed off to.
    fn keeps_a_position(&self, held: &Lease) -> bool {
        let keeps = |(id, began): (TokenId, Mono)| {
            let entry = self.entries.get(&id);
            self.servers.asks(id) && entry.is_some_and(|entry| entry.came_before(began))
        };
        // The servers of a quorum have no queue.
        let queues = !self.context.config.quorum && !held.mode.is_shared();
        queues && self.queues.served(&held.keys).any(keeps)
    }

    /// Whether the budget is spent, but the answer to a request for more handoffs is to come.
    pub(super) fn may_get_handoffs(&self, held: &Lease) -> bool {
        held.budget.is_spent(self.context.now)
            && self.servers.is_open(Owner::Reservation(held.id.token_id()))
            && (self.is_to_idle(held) || self.fitting_owner(held).is_some())
    }

    /// The caller here that may get the whole lock from its owner without the server.
    fn next_owner(&self, held: &Lease) -> Option<OpId> {
        self.fitting_owner(held).filter(|_| !held.budget.is_spent(self.context.now))
    }

    /// The caller here that may get the whole lock from its owner, if there are handoffs left.
    fn fitting_owner(&self, held: &Lease) -> Option<OpId> {
        let op = self.queues.first(&held.keys)?;
        self.queues.get(op).filter(|next| self.fits(held, next)).map(|_| op)
    }

    /// Whether a lock may get another owner here without the server, on the terms of that one's request.
    pub(super) fn fits(&self, held: &Lease, next: &AcquireRequest) -> bool {
        let server = self.servers.of(&held.keys);
        // Fences reserved under another replication id may be smaller than those issued since.
        let known = server.connection.is_up()
            && held.data_number == server.data.number
            && !server.data.is_outdated(held.fence)
            && !self.queues.has_newer(&held.keys, held.fence);
        let whole = !held.mode.is_shared() && !next.mode.is_shared();
        // The lease continues: the rest must suffice for the successor, but a crash of it must not cost more. Until an
        // open request is answered, the rest is unknown.
        let suits = held.rest_suits(self.context.now, next.ttl)
            && (next.hold.renew || held.is_whole(self.context.now, next.ttl));
        let fits = self.is_unanswered(held) || suits;
        let lasts = held.renewed_by != RenewedBy::ScriptAfterLoss;
        known && whole && fits && lasts && !next.owned
    }

    /// Decides a release that has waited for an answer, if that has come or never will.
    pub(super) fn decide_release(&mut self, id: TokenId) {
        let Some(held) = self.leases.get(id) else { return };
        let lease = held.id;
        if !self.is_unanswered(held)
            && !self.keeps_a_position(held)
            && !self.may_get_handoffs(held)
            && let Some(caller) = self.undecided.remove(&id)
        {
            self.hand_off_or_release(lease, caller);
        }
    }

    pub(super) fn hand_off_or_release(&mut self, lease: LeaseId, caller: Releasing) {
        if self.hand_off(lease) {
            return self.context.complete(caller.0, Outcome::Done);
        }
        if self.leases.hold_of(lease).is_some_and(|held| self.may_idle(held)) {
            self.begin_idling(lease);
            return self.context.complete(caller.0, Outcome::Done);
        }
        let successor = self.successor(lease.token_id());
        self.release_at_server(lease.token_id(), Some(caller), successor);
    }

    /// Hands the whole lock off to the next caller here. False if it must be released at the server.
    fn hand_off(&mut self, lease: LeaseId) -> bool {
        let Some(held) = self.leases.hold_of(lease).filter(|held| self.is_sure(held)) else {
            return false;
        };
        let Some(op) = self.next_owner(held) else { return false };
        let Some(next) = self.queues.remove(&mut self.context, op) else { return false };
        self.end_extensions_of(lease);
        self.leases.end_hold(&mut self.context, lease.token_id());
        self.pass_on(lease.token_id(), op, &next);
        true
    }

    /// Whether the server has confirmed a lease lately, and no answer under way may deny it.
    pub(super) fn is_sure(&self, held: &Lease) -> bool {
        !self.is_unanswered(held) && held.is_confirmed(self.context.now)
    }

    /// The next caller here has the lock, without the server.
    pub(super) fn pass_on(&mut self, id: TokenId, op: OpId, next: &AcquireRequest) {
        let context = &mut self.context;
        let Some(held) = self.leases.hand_off(context, id, next.ttl, next.hold) else { return };
        let label = context::other_label(&held.label, &next.label);
        context.stats.acquired += 1;
        context.stats.handed_off += 1;
        let (lease, fence) = (held.id, held.fence);
        context.complete(op, Outcome::Acquired { lease, fence, label });
        self.serve_queue(&next.keys, Some(id));
        self.reserve_handoffs(id);
    }

    /// A request for more handoffs was answered, or never will be.
    pub(super) fn reserved(&mut self, id: TokenId, finished: &Finished) {
        let Some(held) = self.leases.get(id).filter(|_| finished.awaited) else { return };
        let loss = match finished.reply {
            _ if held.until <= self.context.now => self.leases.end(id),
            Ok(Reply::Reserved { fence, waiting }) => {
                let alone = self.queues.are_only_own(&held.keys, waiting, &self.entries);
                self.handoffs_reserved(id, (fence, alone), finished);
                None
            }
            // Its downgrade came first: a share is not handed off that way.
            Ok(Reply::Owner(false)) if !held.mode.is_shared() => self.leases.denied(id),
            _ => {
                self.leases.reservation(id).map(Reservation::end);
                None
            }
        };
        self.lose_if(loss);
    }

    /// An entry for the caller here that gets a share by handoff.
    fn successor(&mut self, id: TokenId) -> Option<Successor> {
        let (context, held) = (&mut self.context, self.leases.get(id)?);
        if !matches!(held.mode, Mode::Shared { limit: Some(_), .. })
            || held.budget.is_spent(context.now)
        {
            return None;
        }
        let budget = held.budget.next(true);
        let next = self.queues.reserve_successor(&held.keys, held.mode)?;
        let (id, mut entry) = next.entry(context, Beneficiary::Queue);
        (entry.budget, entry.max_ttl) = (Some(budget), entry.ttl);
        Some((id, Box::new(entry)))
    }

    /// Takes the successor of a release, and returns the answer for the caller that releases; none if the release was
    /// sent again without a successor.
    pub(super) fn settle_successor(
        &mut self,
        release: TokenId,
        finished: Finished,
    ) -> Option<Finished> {
        if finished.reply == Err(CallError::Unsent) {
            return Some(finished);
        }
        let successor = self.releases.get_mut(&release).and_then(|it| it.successor.take());
        let Some((id, mut entry)) = successor else {
            return Some(finished);
        };
        self.queues.release_successor(&entry.keys);
        match finished.reply {
            Ok(Reply::HandedOff { fence, waiting }) => {
                let alone = self.queues.are_only_own(&entry.keys, waiting, &self.entries);
                self.queues.set_alone(&entry.keys, alone);
                if alone {
                    // It has overtaken no waiter.
                    entry.budget = entry.budget.map(HandoffBudget::restored);
                }
                self.grant_successor(id, *entry, fence, &finished);
                Some(Finished { reply: Ok(Reply::Owner(true)), ..finished })
            }
            // A release needs less than a handoff, and the successor's limit may allow no more shares.
            Ok(Reply::More) | Err(CallError::Refused(_)) => {
                self.move_entries_back(&entry.keys);
                self.send_release(release);
                None
            }
            Ok(_) => Some(finished),
            // Whether the successor has it is unknown.
            Err(_) => {
                self.give_back(entry.keys, entry.token, true);
                Some(finished)
            }
        }
    }

    /// The successor has the share: the first caller of the queue gets it.
    fn grant_successor(&mut self, id: TokenId, entry: Entry, fence: u64, answer: &Finished) {
        let (node, since) = (answer.node, answer.sent);
        let until = valid_until(since, entry.ttl);
        let outdated = self.servers.get(node).data.is_outdated(fence);
        // That caller may have left.
        let first = self.queues.first(&entry.keys).and_then(|op| self.queues.get(op));
        let wanted = first.is_some_and(|first| first.mode == entry.mode);
        if until <= self.context.now || outdated || !wanted {
            return self.give_back(entry.keys, entry.token, false);
        }
        self.queues.add_first_entry(&entry.keys, id);
        self.entries.insert(id, entry);
        let (issued_after, pending_renewal, fast_path) = (since, None, false);
        let granted = Granted { fence, until, since, issued_after, pending_renewal, fast_path };
        self.entry_step(node, id, Step::Granted(granted));
    }
}
