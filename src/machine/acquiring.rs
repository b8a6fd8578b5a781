//! Waiting for locks: the queue of the callers here, and the entries that ask a server for its head.

use super::Machine;
use super::interface::Outcome;
use super::lease::Leases;
use super::queue_entry::{Approach, Beneficiary, Entry, Pending};
use super::timers::Owner;
use super::wait_queue::{AcquireRequest, Need};
use crate::protocol::{HeldBy, LockKeys, NodeId, OpId, TokenId};

impl Machine {
    pub(super) fn acquire(&mut self, op: OpId, mut request: AcquireRequest) {
        if self.takes_idle_lock(op, &request) {
            return;
        }
        if request.is_queued() {
            let keys = request.keys.clone();
            self.queues.insert(&mut self.context, op, request);
            return self.serve_queue(&keys, None);
        }
        let (id, mut entry) = request.entry(&mut self.context, Beneficiary::Caller(op));
        entry.block = self.block(&entry.keys, request.block(&self.context));
        entry.approach = self.approach(&entry);
        entry.take_position(request.began, None);
        request.own = Some(id);
        self.queues.insert(&mut self.context, op, request);
        self.entries.insert(id, entry);
        self.send_entry(id);
    }

    /// A caller that has polled goes on in the queue.
    pub(super) fn join_queue(&mut self, op: OpId) {
        let Some((keys, own)) = self.queues.join(op) else { return };
        if let Some(id) = own {
            self.abandon_entry(id);
        }
        self.serve_queue(&keys, None);
    }

    /// Keeps as many entries at the server as the head of a queue needs. `holder`: the lease here that owns the lock.
    pub(super) fn serve_queue(&mut self, keys: &LockKeys, holder: Option<TokenId>) {
        loop {
            match self.queues.next_need(keys, &self.entries) {
                Need::None => return,
                Need::Less(id) => self.abandon_entry(id),
                Need::More(op, mode) => {
                    self.enqueue(op, keys, holder);
                    if !mode.is_shared() {
                        return;
                    }
                }
            }
        }
    }

    /// Adds an entry at the server for the first caller here that has none.
    fn enqueue(&mut self, op: OpId, keys: &LockKeys, holder: Option<TokenId>) {
        let Some(request) = self.queues.get(op) else { return };
        let fences = request.block(&self.context).max(self.queues.block(keys));
        let block = self.block(keys, fences);
        let (context, servers) = (&mut self.context, &self.servers);
        let (id, mut entry) = request.entry(context, Beneficiary::Queue);
        // A caller that has waited here came before callers enqueued elsewhere meanwhile.
        let waited = (request.began < context.now).then_some(request.began);
        entry.take_position(
            request.began,
            waited.and_then(|at| servers.position_of(context, keys, at)),
        );
        if !entry.mode.is_shared() {
            entry.block = block;
            // The lock is held. A shared one may have room for one more.
            if let Some(held) = holder.and_then(|id| self.leases.get(id)) {
                let holder = Leases::token_of(context, held).to_string();
                let remaining = Some(entry.ttl);
                let held = HeldBy { remaining, holder, ..HeldBy::default() };
                entry.pending = Pending::Held(Box::new(held));
            }
        }
        if holder.is_none() {
            // A share that is being asked for here holds the key by then, and callers of other locks would get ahead.
            let behind = entry.mode.is_shared() && self.queues.has_entry(keys);
            entry.approach = if behind { Approach::Script } else { self.approach(&entry) };
        }
        self.queues.add_entry(keys, id);
        if self.context.config.quorum && matches!(entry.pending, Pending::Held(_)) {
            // Its votes would only delay others: without a queue they keep no place.
            entry.wait_for_release(&mut self.context, &self.servers, id);
            self.entries.insert(id, entry);
        } else {
            self.entries.insert(id, entry);
            self.send_entry(id);
        }
    }

    /// The number of fences that a request reserves, of `wanted`. While the counter is ahead of the server's clock it is one,
    /// since a server is too slow to let a counter outrun its clock one by one.
    pub(super) fn block(&self, keys: &LockKeys, wanted: u8) -> u8 {
        // Most requests want one, and need not look at the clock.
        let is_cut = wanted > 1
            && !self.context.config.quorum
            && self.servers.data_of(keys).has_outrun_clock(self.context.now);
        if is_cut { 1 } else { wanted }
    }

    /// Whether the fast path may do for a lock. A quorum's servers vote by scripts.
    pub(super) fn is_likely_free(&self, keys: &LockKeys) -> bool {
        !self.context.config.quorum && !self.contention.is_likely(keys)
    }

    /// The first request of a new entry.
    fn approach(&self, entry: &Entry) -> Approach {
        let may_be_free = !entry.steals() && self.is_likely_free(&entry.keys);
        if may_be_free { Approach::FastPath } else { Approach::Script }
    }

    /// A subscription has begun or ended. Both may mean that a message was missed.
    pub(super) fn listening(&mut self, node: NodeId, channel: &str, on: bool) {
        let Some(keys) = self.channels.listening(node, channel, on) else { return };
        for id in self.queues.entries(&keys) {
            self.send_entry(id);
        }
    }

    /// A lock of a quorum may be free: its first entry here asks soon.
    pub(super) fn freed(&mut self, keys: &LockKeys) {
        for id in self.queues.entries(keys).into_iter().take(1) {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.ask_soon(&mut self.context, &self.servers, id);
            }
        }
    }

    /// The lock of other code may be free: an entry that waits for it asks at once.
    pub(super) fn tell_waiter(&mut self, id: TokenId) {
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.waits_for_other_code(&self.context)
            && !self.servers.asks(id)
        {
            entry.told = true;
            self.send_entry(id);
        }
    }

    /// Lets an entry ask, in its turn.
    pub(super) fn send_entry(&mut self, id: TokenId) {
        if let Some(entry) = self.entries.get_mut(&id)
            && !entry.waits(&mut self.servers, id)
        {
            self.send_entry_now(id);
        }
    }

    /// Lets an entry go on after an answer.
    pub(super) fn send_entry_now(&mut self, id: TokenId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let first = self.queues.first_of(entry).and_then(|op| self.queues.get(op));
        entry.send(&mut self.context, &mut self.servers, id, first.map(|request| request.ttl));
    }

    /// Removes an entry, and forgets its requests.
    pub(super) fn remove_entry(&mut self, id: TokenId) -> Option<Entry> {
        self.servers.forget(&mut self.context, Owner::Entry(id));
        self.servers.forget(&mut self.context, Owner::EntryBehind(id));
        self.entries.remove(&id)
    }

    /// No caller needs it any more: gives back what it has got or may yet get.
    fn abandon_entry(&mut self, id: TokenId) {
        let asks = self.servers.asks(id);
        let Some(entry) = self.remove_entry(id) else { return };
        // What it may take over its owner had before, and keeps.
        let is_open = asks && entry.takes_over.is_none();
        let is_granted = entry.confirming.is_some() || entry.approach == Approach::Completion;
        if entry.uncertain || is_open || is_granted || entry.is_queued() {
            self.give_back(entry.keys, entry.token, entry.uncertain);
        }
    }

    /// Moves each queue entry whose caller was served in the process back to the position of its present caller, before
    /// this process gives the lock to the first waiter at the server.
    pub(super) fn move_entries_back(&mut self, keys: &LockKeys) {
        for (id, began) in self.queues.served(keys).collect::<Vec<_>>() {
            let is_open = self.servers.asks(id);
            let seq = self.servers.position_of(&self.context, keys, began);
            if let (Some(seq), Some(entry)) = (seq, self.entries.get_mut(&id))
                && !is_open
                && entry.is_ahead_of(began, seq)
            {
                entry.move_back(began, seq);
                self.send_entry(id);
            }
        }
    }

    /// The caller's patience is over. If an answer may still be on its way, it waits for one round trip.
    pub(super) fn acquire_deadline(&mut self, op: OpId) {
        let known = self.queues.entry_of(op);
        let request = self.queues.get(op);
        let is_away = request.is_some_and(|request| self.servers.is_away(&request.keys));
        let may_answer = matches!(self.pending(known), Pending::Unanswered) && !is_away;
        if !(may_answer && self.queues.wait_for_first_answer(&mut self.context, op)) {
            self.end_for_pending(op, known);
        }
    }

    fn pending(&self, id: Option<TokenId>) -> &Pending {
        let entry = id.and_then(|id| self.entries.get(&id));
        entry.map_or(&Pending::Unanswered, |entry| &entry.pending)
    }

    /// Ends a request for the reason why the entry `known` has no lock.
    pub(super) fn end_for_pending(&mut self, op: OpId, known: Option<TokenId>) {
        let Some(request) = self.queues.get(op) else { return };
        let pending = self.pending(known);
        let outcome = self.queues.outcome(&self.context, &self.servers, request, known, pending);
        self.end_acquire(op, outcome);
    }

    /// Ends a request without a lock. Its entry is abandoned, unless another caller in the queue needs it.
    pub(super) fn end_acquire(&mut self, op: OpId, outcome: Outcome) {
        let Some(request) = self.queues.remove(&mut self.context, op) else { return };
        self.context.stats.timed_out += u64::from(matches!(outcome, Outcome::TimedOut { .. }));
        self.context.complete(op, outcome);
        if let Some(id) = request.own {
            self.abandon_entry(id);
        }
        self.serve_queue(&request.keys, None);
    }
}
