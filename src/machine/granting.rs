//! From an answer or a message about an entry to the lease of its caller.

use super::Machine;
use super::context;
use super::handoff::HandoffBudget;
use super::interface::{Effect, LossReason, Outcome};
use super::lease::{GiveBack, Lease, Origin, PendingRenewal};
use super::queue_entry::{Again, Beneficiary, Entry, Granted, Pending, Step, TakeOver};
use super::request::{CallError, Finished};
use super::timers::Owner;
use crate::protocol::{CLAIM, Grant, Intent, NodeId, Refusal, Reply, Take, TokenId, valid_until};

impl Machine {
    pub(super) fn entry_answered(&mut self, id: TokenId, finished: Finished) {
        if !finished.awaited {
            // A message has granted it meanwhile, or it was abandoned; a lost request may still be executed.
            if let Err(CallError::Lost(_)) = finished.reply {
                self.leases.change(&mut self.context, id, |held| held.uncertain = true);
                // Its release may have gone to another server of a Cluster, and not have been lost with it.
                if let Some(release) = self.releases.get_mut(&id) {
                    release.uncertain = true;
                }
            }
            return;
        }
        if let Some(entry) = self.entries.get_mut(&id) {
            let (mut own_hold, mut marked) = (None, None);
            match finished.reply {
                Ok(Reply::Take(Take::Held)) => {
                    self.contention.was_held(&entry.keys);
                    if let Some(op) = self.queues.tries_whole(entry) {
                        return self.end_acquire(op, Outcome::Held);
                    }
                }
                Ok(Reply::Held(ref held)) => {
                    self.contention.was_held(&entry.keys);
                    // The entry may have marked the lock of another caller here.
                    marked = self.leases.tracked.of(&entry.keys);
                    self.queues.has_position(entry, held);
                    own_hold = entry.hold_of_owner(held);
                }
                Ok(Reply::Joined { .. }) => self.contention.was_held(&entry.keys),
                Ok(Reply::Granted { .. }) if matches!(entry.pending, Pending::Unanswered) => {
                    self.contention.was_free(&entry.keys);
                }
                _ => {}
            }
            let node = finished.node;
            let step = entry.answered(&mut self.context, &self.servers, id, finished);
            if let Some(former) = own_hold {
                entry.take_over(&mut self.context, former);
                return self.send_entry_now(id);
            }
            self.entry_step(node, id, step);
            if let Some(holder) = marked {
                self.track(holder);
            }
        }
    }

    pub(super) fn entry_step(&mut self, node: NodeId, id: TokenId, step: Step) {
        match step {
            Step::Nothing => {}
            Step::Granted(granted) if self.context.config.confirm => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    if entry.takes_over.is_some() {
                        // As any adoption.
                        return self.grant(id, granted);
                    }
                    entry.confirming = Some(Box::new((node, granted)));
                    self.context.push(Effect::Confirm { node, attempt: id });
                }
            }
            Step::Granted(granted) => self.grant(id, granted),
            Step::Discard => self.discard_grant(id),
            Step::Known(again) => self.answer_known(id, again),
            Step::Refused => {
                while let Some(entry) = self.entries.get(&id)
                    && let Some(op) = self.queues.first_of(entry)
                {
                    self.end_for_pending(op, Some(id));
                }
            }
            Step::Send => self.send_entry_now(id),
        }
    }

    /// An answer about a lock has come: ends the requests that have waited only for that.
    fn answer_known(&mut self, id: TokenId, again: Again) {
        let Some(entry) = self.entries.get(&id) else { return };
        let keys = entry.keys.clone();
        let caller = match entry.beneficiary {
            Beneficiary::Caller(op) => Some(op),
            Beneficiary::Queue => None,
        };
        for op in self.queues.take_overdue(self.context.now, &keys, caller) {
            self.end_for_pending(op, Some(id));
        }
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Some(op) = caller.filter(|_| entry.should_join()) {
            return self.join_queue(op);
        }
        let servers = &self.servers;
        if matches!(entry.pending, Pending::Held(_))
            && matches!(entry.intent, Intent::Join(_))
            && self.context.config.cluster
            && !servers.of(&keys).connection.pubsub_denied
        {
            // No message reaches this manager until it has subscribed; then its entries ask again.
            let (node, channel) = (servers.node(&keys), servers.shard_channel(&keys));
            self.channels.listen(&mut self.context, node, channel, &keys);
        }
        match again {
            Again::Now => self.send_entry_now(id),
            Again::Soon => self.servers.retry(&mut self.context, Owner::Entry(id)),
            Again::Poll => entry.poll_later(&mut self.context, &self.servers, id),
        }
    }

    /// The server has granted this manager a freed lock.
    pub(super) fn granted_by_message(&mut self, node: NodeId, grant: &Grant) {
        let Some(id) = self.context.number_of(&grant.token) else { return };
        if let Some(entry) = self.entries.get_mut(&id) {
            let is_meant = entry.keys == grant.keys && entry.token == grant.token;
            if is_meant && entry.confirming.is_none() {
                let data = &self.servers.get(node).data;
                let step =
                    entry.granted_by_message(&mut self.context, &self.servers, data, id, grant);
                self.entry_step(node, id, step);
            }
            return;
        }
        if self.releases.contains_key(&id) {
            return self.send_release(id);
        }
        // A claim that is over needs no release: the token of a kept lock may be another process's now.
        let began = self.servers.get(node).data.local_time(self.context.now, grant.time);
        let is_over =
            began.is_some_and(|began| valid_until(began, grant.claim) <= self.context.now);
        let is_kept = self.leases.get(id).is_some() || self.left_to_expire.contains(&id);
        if !is_over && !is_kept {
            // No component knows it, but it owns a lock.
            self.give_back(grant.keys.clone(), grant.token.clone(), false);
        }
    }

    pub(super) fn confirmed(&mut self, node: NodeId, id: TokenId, verdict: Result<(), Refusal>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let Some((_, granted)) = entry.confirming.take().map(|confirming| *confirming) else {
            return;
        };
        match verdict {
            Ok(()) if self.context.now < granted.until => self.grant(id, granted),
            Ok(()) => {
                let step = entry.too_late();
                self.entry_step(node, id, step);
            }
            Err(refusal) => {
                // The token owns the lock, whatever its position.
                entry.uncertain = true;
                entry.pending = Pending::Refused(refusal);
                if let Some(op) = self.queues.first_of(entry) {
                    self.end_for_pending(op, Some(id));
                }
                // Other waiters of the queue need another token that asks.
                self.discard_grant(id);
            }
        }
    }

    /// The entry's caller owns the lock until `granted.until`.
    fn grant(&mut self, id: TokenId, granted: Granted) {
        let Some(entry) = self.entries.get(&id) else { return };
        let first = self.queues.first_of(entry);
        let is_claim = granted.pending_renewal == Some(PendingRenewal::Claim);
        let max_ttl = if is_claim { entry.max_ttl.min(CLAIM) } else { entry.max_ttl };
        let request = first.and_then(|op| self.queues.get(op));
        if request.is_some_and(|request| request.ttl < max_ttl) {
            // An earlier first caller asked for more. A lease is never shortened, and this caller may crash.
            return self.discard_grant(id);
        }
        if entry.mode.is_shared()
            && request.is_some_and(|request| request.began > granted.issued_after)
        {
            // The share was granted for an earlier caller, who has left. Others may have had shares since, with greater
            // fences, before this caller asked.
            return self.discard_grant(id);
        }
        let Some(entry) = self.remove_entry(id) else { return };
        let context = &mut self.context;
        let Some((op, request)) = first.and_then(|op| Some((op, self.queues.remove(context, op)?)))
        else {
            return self.give_back(entry.keys, entry.token, entry.uncertain);
        };
        let may_be_queued = entry.uncertain || entry.is_queued();
        let behind = entry.behind(&context.config.client);
        let Entry { keys, token, mode, block, budget, beneficiary, label, takes_over, .. } = entry;
        let (id, uncertain) = match &takes_over {
            Some(take_over) => (take_over.id, take_over.uncertain),
            None => (id, entry.uncertain),
        };
        context.stats.handed_off += u64::from(budget.is_some());
        // A caller that has taken over its owner's hold is told so by its label.
        let other_label = if takes_over.is_some() {
            Some(label.to_string())
        } else {
            context::other_label(&label, &request.label)
        };
        let Granted { fence, until, pending_renewal, since, fast_path, .. } = granted;
        let mut held = Lease::new(id, keys.clone(), label, mode, request.ttl, fence, until);
        held.budget =
            budget.unwrap_or_else(|| HandoffBudget::new(context.now, request.ttl, mode, block));
        held.pending_renewal = pending_renewal
            .or_else(|| (entry.ttl < request.ttl).then_some(PendingRenewal::Extension));
        (held.uncertain, held.confirmed) = (uncertain, since);
        if fast_path && mode.is_shared() {
            held.origin = Origin::LoneShare;
        }
        let (lease, is_incomplete) = (held.id, held.pending_renewal.is_some());
        if let Some(TakeOver { former, .. }) = takes_over.as_deref() {
            self.lose_adopted(former, LossReason::Adopted, GiveBack::IfUncertain);
            if may_be_queued {
                self.give_back(keys.clone(), token, entry.uncertain);
            }
        }
        self.begin_lease(held, request.hold);
        self.context.complete(op, Outcome::Acquired { lease, fence, label: other_label });
        if is_incomplete {
            self.renew(id, request.ttl);
        }
        if beneficiary == Beneficiary::Queue {
            self.queues.remove_entry(&keys, id);
        }
        self.queues.granted(&keys, fence, self.context.now);
        self.serve_queue(&keys, Some(id));
        if let Some(former) = behind.filter(|former| *former != id) {
            // If that is still held here, the server has lost it.
            self.told(former);
        }
    }

    /// The grant is unusable: gives its token back; another token takes its position.
    fn discard_grant(&mut self, id: TokenId) {
        let is_open = self.servers.asks(id);
        let Some(old) = self.remove_entry(id) else { return };
        let new = self.context.next_token_id();
        let token = self.context.token(new, old.mode, &old.label);
        self.entries.insert(new, old.replacement(token));
        self.queues.replace_entry(&old, id, new);
        self.give_back(old.keys, old.token, old.uncertain || is_open);
        self.send_entry_now(new);
    }
}
