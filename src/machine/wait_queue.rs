//! The acquire requests of callers: each for a lock, with its lease and its patience.
//!
//! All requests that wait for one lock here form a queue in the order of their calls. Entries wait in the queue at the
//! server (`queue_entry.rs`) for the head of it: one for a whole lock, and for shares as many as may be held at once. A
//! granted entry serves the first caller here.

use super::boxed_map::BoxedMap;
use super::context::Context;
use super::handoff::BLOCK_MAX;
use super::interface::{HoldTerms, Outcome, Wait};
use super::queue_entry::{Beneficiary, Entry, Pending, is_foreign};
use super::servers::Servers;
use super::timers::{Owner, Timer};
use crate::protocol::{
    HeldBy, Intent, LockKeys, Mode, Mono, OpId, TOKEN_PREFIX, TokenId, is_owner,
};
use crate::slim::Slim;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct AcquireRequest {
    pub(super) keys: LockKeys,
    pub(super) label: Arc<str>,
    pub(super) ttl: Duration,
    pub(super) hold: HoldTerms,
    pub(super) mode: Mode,
    pub(super) wait: Wait,
    /// Whether it waits as old code does: it asks again from time to time, and is in no queue.
    polls: bool,
    /// Whether it is for an owner whom the caller has named. Its token tells the owner, so it serves no other caller, and no
    /// other token serves it.
    pub(super) owned: bool,
    /// Its number in the queue of its lock; none if it does not wait.
    arrival: Option<u64>,
    /// The entry of a caller that is in no queue.
    pub(super) own: Option<TokenId>,
    pub(super) began: Mono,
}

impl AcquireRequest {
    /// A request that comes now.
    pub(super) fn new(
        context: &Context,
        keys: LockKeys,
        ttl: Duration,
        wait: Wait,
        label: Arc<str>,
        hold: HoldTerms,
        mode: Mode,
    ) -> Self {
        let owned = is_owner(&label);
        let polls = context.config.polling.is_some() && mode == Mode::Exclusive && !owned;
        let (arrival, own, began) = (None, None, context.now);
        Self { keys, label, ttl, hold, mode, wait, polls, owned, arrival, own, began }
    }

    /// A new token that asks for the lock.
    pub(super) fn entry(
        &self,
        context: &mut Context,
        beneficiary: Beneficiary,
    ) -> (TokenId, Entry) {
        let id = context.next_token_id();
        let (keys, label, token) =
            (self.keys.clone(), Arc::clone(&self.label), context.token(id, self.mode, &self.label));
        let (ttl, mode, intent) = (self.ttl, self.mode, self.intent());
        (id, Entry::new(keys, token, ttl, label, mode, beneficiary, intent))
    }

    /// The intent of its first call, if the lock is held. To steal it, the owners must be known: a poll shows them.
    const fn intent(&self) -> Intent {
        match self.wait {
            Wait::Steal => Intent::Poll,
            Wait::Never | Wait::UpTo(Duration::ZERO) => Intent::Try,
            Wait::Forever | Wait::UpTo(_) if self.polls => Intent::Try,
            Wait::Forever | Wait::UpTo(_) => Intent::Join(None),
        }
    }

    /// How many fences it wants: those of a lock with `linger` are for its later callers. A quorum has no blocks.
    pub(super) fn block(&self, context: &Context) -> u8 {
        let may_idle = !self.hold.linger.is_zero() && !self.mode.is_shared();
        if may_idle && !context.config.quorum { BLOCK_MAX } else { 1 }
    }

    /// Whether its caller waits in the queue of this process. One that names an owner waits in that of the server alone.
    pub(super) fn is_queued(&self) -> bool {
        matches!(self.intent(), Intent::Join(_)) && !self.owned
    }

    /// How long its caller waits for the lock.
    const fn limit(&self) -> Option<Duration> {
        match self.wait {
            Wait::Forever => None,
            Wait::Never | Wait::Steal => Some(Duration::ZERO),
            Wait::UpTo(wait) => Some(wait),
        }
    }
}

/// The callers of this process that wait for one lock, in the order of their calls.
#[derive(Debug, Default)]
struct WaitQueue {
    waiters: VecDeque<(u64, OpId)>,
    /// The entries at the server for the first waiters, which all have one mode.
    entries: VecDeque<TokenId>,
    /// How many waiters are about to get a share by handoff.
    successors: usize,
    /// Some waiters are overdue, but no answer had come for them.
    overdue: bool,
    /// When a share was last handed off, no other manager waited for the lock.
    alone: bool,
    /// The last answer to an entry that wants the whole lock: no other was ahead of it at the server.
    foremost: bool,
    /// The last fence that an entry was granted.
    fence: u64,
    /// The end of the turn that the first grant has begun, if there is one: see [`TURN`].
    turn_ends: Option<Mono>,
}

impl WaitQueue {
    fn ahead_of(&self, arrival: u64) -> usize {
        self.waiters.partition_point(|(other, _)| *other < arrival)
    }

    /// Removes a waiter, if it is still there.
    fn leave(&mut self, arrival: u64) {
        let index = self.ahead_of(arrival);
        if self.waiters.get(index).is_some_and(|(other, _)| *other == arrival) {
            self.waiters.remove(index);
        }
    }
}

/// On a quorum a process asks for its next caller right behind a release, for so long since its first grant. Then its callers
/// wait as others do, who would never get a lock whose holds are shorter than the pauses in [`super::queue_entry`].
const TURN: Duration = Duration::from_millis(50);

/// Most queues are short and end soon: so many of them leave their memory to the next.
const SPARE_MAX: usize = 1_000;
const SPARE_LENGTH_MAX: usize = 4;

/// The most entries of a process at the server: as many as may be granted at once.
fn entries_max(mode: Mode) -> usize {
    match mode {
        Mode::Exclusive => 1,
        Mode::Shared { limit: None, .. } => usize::MAX,
        Mode::Shared { limit: Some(limit), permits } => {
            usize::try_from(limit.get() / permits).unwrap_or(usize::MAX).max(1)
        }
    }
}

/// The next change to the entries of a queue at the server: each of its first callers must have one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Need {
    /// Nothing.
    None,
    /// The end of this entry, which the queue has no more.
    Less(TokenId),
    /// An entry for this caller. If it wants the whole lock, that is the only one.
    More(OpId, Mode),
}

#[derive(Debug, Default)]
pub(super) struct WaitQueues {
    requests: BoxedMap<OpId, AcquireRequest>,
    queues: FxHashMap<LockKeys, WaitQueue>,
    /// The callers that name an owner, and wait at the server.
    owned: FxHashMap<LockKeys, Vec<OpId>>,
    /// The memory of queues that ended, for those that begin.
    spare: Vec<WaitQueue>,
    last_arrival: u64,
}

impl WaitQueues {
    /// How many requests have no outcome yet.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.queues.is_empty()
    }

    pub(super) fn ops(&self) -> Vec<OpId> {
        self.requests.keys_in_order()
    }

    /// The keys of a lock, shared by all its requests, since there may be thousands.
    pub(super) fn keys_of(&self, context: &Context, name: &str) -> LockKeys {
        let keys = LockKeys::new(&context.config.prefix, name);
        let shared = self.queues.get_key_value(&keys).map(|(shared, _)| shared.clone());
        shared.unwrap_or(keys)
    }

    pub(super) fn get(&self, op: OpId) -> Option<&AcquireRequest> {
        self.requests.get(&op)
    }

    pub(super) fn insert(&mut self, context: &mut Context, op: OpId, mut request: AcquireRequest) {
        if let Some(limit) = request.limit() {
            // A short wait is for the lock, not for the network: one round trip is always allowed.
            let patience = if limit.is_zero() { context.config.command_timeout } else { limit };
            context.timers.set(Timer::AcquireDeadline(op), context.now + patience);
        }
        if request.is_queued() {
            self.enqueue(op, &mut request);
        } else if request.owned {
            self.owned.entry(request.keys.clone()).or_default().push(op);
        }
        self.requests.insert(op, request);
    }

    /// A request that has polled goes on at the end of its queue. Returns the lock, and the entry that it needs no more.
    pub(super) fn join(&mut self, op: OpId) -> Option<(LockKeys, Option<TokenId>)> {
        if !self.get(op)?.polls {
            return None;
        }
        let mut request = self.requests.remove(&op)?;
        let own = request.own.take();
        request.polls = false;
        self.enqueue(op, &mut request);
        let keys = request.keys.clone();
        self.requests.insert(op, request);
        Some((keys, own))
    }

    fn enqueue(&mut self, op: OpId, request: &mut AcquireRequest) {
        self.last_arrival += 1;
        request.arrival = Some(self.last_arrival);
        let new = || self.spare.pop().unwrap_or_default();
        let queue = self.queues.entry(request.keys.clone()).or_insert_with(new);
        queue.waiters.push_back((self.last_arrival, op));
    }

    /// Removes a request. The caller must then serve its queue.
    pub(super) fn remove(&mut self, context: &mut Context, op: OpId) -> Option<AcquireRequest> {
        let request = self.requests.remove(&op);
        if let Some(AcquireRequest { keys, arrival, owned, .. }) = &request {
            context.timers.clear(Timer::AcquireDeadline(op));
            if let (Some(arrival), Some(queue)) = (*arrival, self.queues.get_mut(keys)) {
                queue.leave(arrival);
            }
            if *owned && let Some(ops) = self.owned.get_mut(keys) {
                ops.retain(|other| *other != op);
                if ops.is_empty() {
                    self.owned.remove(keys);
                    self.owned.slim();
                }
            }
        }
        request
    }

    pub(super) fn has(&self, keys: &LockKeys) -> bool {
        self.queues.contains_key(keys) || (!self.owned.is_empty() && self.owned.contains_key(keys))
    }

    /// Whether a caller here polls for a lock, in no queue.
    pub(super) fn has_poller(&self, keys: &LockKeys) -> bool {
        self.requests.iter().any(|(_, request)| request.polls && request.keys == *keys)
    }

    /// The caller of a queue that gets the lock next.
    pub(super) fn first(&self, keys: &LockKeys) -> Option<OpId> {
        self.queues.get(keys)?.waiters.front().map(|(_, op)| *op)
    }

    pub(super) fn first_of(&self, entry: &Entry) -> Option<OpId> {
        match entry.beneficiary {
            Beneficiary::Caller(op) => Some(op),
            Beneficiary::Queue => self.first(&entry.keys),
        }
    }

    /// The caller of an entry, if it needs only to know that the whole lock is held: not by whom, nor to wait for it.
    pub(super) fn tries_whole(&self, entry: &Entry) -> Option<OpId> {
        let Beneficiary::Caller(op) = entry.beneficiary else { return None };
        let request = self.get(op)?;
        let is_whole = request.mode == Mode::Exclusive && !request.owned;
        (request.wait == Wait::Never && is_whole).then_some(op)
    }

    /// The entries at the server for the callers here.
    pub(super) fn entries(&self, keys: &LockKeys) -> Vec<TokenId> {
        let owned = self.owned.get(keys).into_iter().flatten();
        let of_owners = owned.filter_map(|op| self.get(*op)?.own);
        let queue = self.queues.get(keys).into_iter().flat_map(|queue| queue.entries.iter());
        queue.copied().chain(of_owners).collect()
    }

    /// The next change that the entries of a queue need. A surplus entry leaves the queue; a queue without callers and
    /// entries ends.
    pub(super) fn next_need(
        &mut self,
        keys: &LockKeys,
        entries: &BoxedMap<TokenId, Entry>,
    ) -> Need {
        let Some(queue) = self.queues.get_mut(keys) else { return Need::None };
        let caller = |index: usize| {
            let (_, op) = queue.waiters.get(index)?;
            self.requests.get(op).map(|request| (*op, request.mode))
        };
        let wanted = caller(0).map(|(_, mode)| mode);
        if let Some(last) = queue.entries.back() {
            // More than the callers need, or for another mode than they want.
            let asked = entries.get(last).map(|entry| entry.mode);
            let last_wants = caller(queue.entries.len() - 1).map(|(_, mode)| mode);
            if wanted.is_none() || last_wants != wanted || asked != wanted {
                return queue.entries.pop_back().map_or(Need::None, Need::Less);
            }
        }
        let Some(wanted) = wanted else {
            self.end(keys);
            return Need::None;
        };
        let has_room = queue.entries.len() < entries_max(wanted);
        match has_room.then(|| caller(queue.entries.len())).flatten() {
            Some((op, mode)) if mode == wanted => Need::More(op, mode),
            _ => Need::None,
        }
    }

    fn end(&mut self, keys: &LockKeys) {
        let Some(WaitQueue { waiters, entries, .. }) = self.queues.remove(keys) else { return };
        self.queues.slim();
        if waiters.capacity() <= SPARE_LENGTH_MAX && self.spare.len() < SPARE_MAX {
            self.spare.push(WaitQueue { waiters, entries, ..WaitQueue::default() });
        }
    }

    /// Whether a caller of a queue has an entry at the server.
    pub(super) fn has_entry(&self, keys: &LockKeys) -> bool {
        self.queues.get(keys).is_some_and(|queue| !queue.entries.is_empty())
    }

    pub(super) fn add_entry(&mut self, keys: &LockKeys, id: TokenId) {
        if let Some(queue) = self.queues.get_mut(keys) {
            queue.entries.push_back(id);
        }
    }

    /// Adds an entry that was granted already, for the first caller of a queue.
    pub(super) fn add_first_entry(&mut self, keys: &LockKeys, id: TokenId) {
        if let Some(queue) = self.queues.get_mut(keys) {
            queue.entries.push_front(id);
        }
    }

    /// Another token takes the position of an entry.
    pub(super) fn replace_entry(&mut self, entry: &Entry, old: TokenId, new: TokenId) {
        if let Beneficiary::Caller(op) = entry.beneficiary
            && let Some(request) = self.requests.get_mut(&op)
        {
            request.own = Some(new);
        }
        let queue = self.queues.get_mut(&entry.keys).into_iter();
        for known in queue.flat_map(|queue| &mut queue.entries).filter(|known| **known == old) {
            *known = new;
        }
    }

    pub(super) fn remove_entry(&mut self, keys: &LockKeys, id: TokenId) {
        if let Some(queue) = self.queues.get_mut(keys)
            && let Some(index) = queue.entries.iter().position(|other| *other == id)
        {
            queue.entries.remove(index);
        }
    }

    /// The server has granted the lock to a caller here.
    pub(super) fn granted(&mut self, keys: &LockKeys, fence: u64, now: Mono) {
        if let Some(queue) = self.queues.get_mut(keys) {
            queue.fence = fence;
            queue.turn_ends.get_or_insert(now + TURN);
        }
    }

    /// Whether the next caller may still ask right behind a release. If not, the next grant begins a turn.
    pub(super) fn has_turn(&mut self, keys: &LockKeys, now: Mono) -> bool {
        let Some(queue) = self.queues.get_mut(keys) else { return false };
        queue.turn_ends = queue.turn_ends.filter(|end| now < *end);
        queue.turn_ends.is_some()
    }

    /// Whether the server has granted the lock to a caller here since it issued `fence`: the lease with that has ended there.
    pub(super) fn has_newer(&self, keys: &LockKeys, fence: u64) -> bool {
        self.queues.get(keys).is_some_and(|queue| queue.fence > fence)
    }

    /// Each entry of a queue, and when the caller that it would serve came.
    pub(super) fn served(&self, keys: &LockKeys) -> impl Iterator<Item = (TokenId, Mono)> {
        let queue = self.queues.get(keys).into_iter();
        let served = queue.flat_map(|queue| queue.entries.iter().zip(&queue.waiters));
        served.filter_map(|(id, (_, op))| Some((*id, self.get(*op)?.began)))
    }

    /// How many fences an entry reserves: one for each caller that could get the whole lock in turn.
    pub(super) fn block(&self, keys: &LockKeys) -> u8 {
        let is_whole = |op: OpId| self.get(op).is_some_and(|request| !request.mode.is_shared());
        let waiters = self.queues.get(keys).into_iter().flat_map(|queue| &queue.waiters);
        let count = waiters.take(BLOCK_MAX.into()).take_while(|(_, op)| is_whole(*op)).count();
        u8::try_from(count).unwrap_or(BLOCK_MAX)
    }

    /// An answer has the position of an entry at the server.
    pub(super) fn has_position(&mut self, entry: &Entry, held: &HeldBy) {
        if entry.beneficiary == Beneficiary::Queue
            && let (Some(queue), Some(queued)) = (self.queues.get_mut(&entry.keys), held.queued)
        {
            queue.foremost = queued.position == 1 && !entry.mode.is_shared();
        }
    }

    /// The entry that gets the whole lock when it is released next, as far as is known.
    pub(super) fn likely_next(&self, keys: &LockKeys) -> Option<TokenId> {
        let queue = self.queues.get(keys).filter(|queue| queue.foremost)?;
        queue.entries.front().copied()
    }

    /// The next caller of a queue that can get a share by handoff. A caller waits for a share without a limit only
    /// behind one that wants the whole lock, which a handoff must not delay.
    pub(super) fn reserve_successor(
        &mut self,
        keys: &LockKeys,
        mode: Mode,
    ) -> Option<&AcquireRequest> {
        let queue = self.queues.get_mut(keys)?;
        let (_, op) = queue.waiters.get(queue.successors)?;
        let request = self.requests.get(op).filter(|request| request.mode == mode)?;
        queue.successors += 1;
        Some(request)
    }

    /// Whether only entries of this manager are in the queue at the server, where `waiting` are.
    pub(super) fn are_only_own(
        &self,
        keys: &LockKeys,
        waiting: u64,
        entries: &BoxedMap<TokenId, Entry>,
    ) -> bool {
        let own = self.queues.get(keys).into_iter().flat_map(|queue| &queue.entries);
        let is_queued = |id: &&TokenId| entries.get(id).is_some_and(Entry::is_queued);
        waiting <= own.filter(is_queued).count() as u64
    }

    /// The answer to a handoff of a share says whether another manager waits.
    pub(super) fn set_alone(&mut self, keys: &LockKeys, alone: bool) {
        if let Some(queue) = self.queues.get_mut(keys) {
            queue.alone = alone;
        }
    }

    /// Whether no other manager is known to wait for a lock whose shares are handed off.
    pub(super) fn is_alone(&self, keys: &LockKeys) -> bool {
        self.queues.get(keys).is_some_and(|queue| queue.alone)
    }

    /// The result of a share's handoff is known.
    pub(super) fn release_successor(&mut self, keys: &LockKeys) {
        if let Some(queue) = self.queues.get_mut(keys) {
            queue.successors = queue.successors.saturating_sub(1);
        }
    }

    /// Lets a caller without any answer wait until `command_timeout` is over. False if it is already.
    pub(super) fn wait_for_first_answer(&mut self, context: &mut Context, op: OpId) -> bool {
        let Some(request) = self.requests.get(&op) else { return false };
        let last = request.began + context.config.command_timeout;
        if last <= context.now {
            return false;
        }
        context.timers.set(Timer::AcquireDeadline(op), last);
        if let Some(queue) = self.queues.get_mut(&request.keys) {
            queue.overdue = true;
        }
        true
    }

    /// An answer has come: takes the callers that waited only for that. `caller`: the one whose own entry got it.
    pub(super) fn take_overdue(
        &mut self,
        now: Mono,
        keys: &LockKeys,
        caller: Option<OpId>,
    ) -> Vec<OpId> {
        let mut ops: Vec<_> = caller.into_iter().collect();
        if let Some(queue) = self.queues.get_mut(keys).filter(|_| caller.is_none())
            && std::mem::take(&mut queue.overdue)
        {
            ops.extend(queue.waiters.iter().map(|(_, op)| *op));
        }
        let end =
            |op: &OpId| self.get(*op).and_then(|request| Some(request.began + request.limit()?));
        ops.retain(|op| end(op).is_some_and(|end| end <= now));
        ops
    }

    /// The entry of a request, or else of the last caller ahead of it that has one.
    pub(super) fn entry_of(&self, op: OpId) -> Option<TokenId> {
        let request = self.get(op)?;
        let of_queue = || {
            let queue = self.queues.get(&request.keys)?;
            let index = queue.ahead_of(request.arrival?);
            queue.entries.get(index).or_else(|| queue.entries.back()).copied()
        };
        request.own.or_else(of_queue)
    }

    /// The outcome of a request without a lock: why the entry `known` has none.
    pub(super) fn outcome(
        &self,
        context: &Context,
        servers: &Servers,
        request: &AcquireRequest,
        known: Option<TokenId>,
        pending: &Pending,
    ) -> Outcome {
        let waited = context.now.since(request.began);
        match pending {
            Pending::Late => {
                let ms = request.ttl.as_millis();
                Outcome::Connection(format!("each answer took longer than the lease of {ms} ms"))
            }
            Pending::Unanswered => match known {
                Some(id) => servers.no_answer(Owner::Entry(id), &request.keys, waited),
                None => servers.unanswered(&request.keys, waited),
            },
            Pending::Held(held) if request.wait == Wait::Steal && !is_foreign(&held.holder) => {
                Outcome::Connection("it changed hands before it could be stolen".to_owned())
            }
            Pending::Held(_) if matches!(request.wait, Wait::Never | Wait::Steal) => Outcome::Held,
            Pending::Held(held) => {
                let queue = self.queues.get(&request.keys).zip(request.arrival);
                let ahead_here = queue.map_or(0, |(queue, arrival)| {
                    let index = queue.entries.iter().position(|id| Some(*id) == known).unwrap_or(0);
                    queue.ahead_of(arrival).saturating_sub(index)
                });
                let ahead_here = u32::try_from(ahead_here).unwrap_or(u32::MAX);
                let position = held.queued.map(|queued| queued.position.saturating_add(ahead_here));
                // Other code may have written a share that is no token.
                let is_told = held.sharer.starts_with(TOKEN_PREFIX);
                let holder = if is_told { &held.sharer } else { &held.holder }.clone();
                let (holders, remaining) = (held.sharers, held.remaining);
                Outcome::TimedOut { waited, holder, holders, remaining, position }
            }
            Pending::NoQuorum(causes) => Outcome::Quorum(causes.clone()),
            Pending::Refused(refusal) => {
                let key = Some(request.keys.blamed_by(&refusal.detail));
                Outcome::Server { refusal: refusal.clone(), key }
            }
        }
    }
}

/// Gives tests access to the requests, to corrupt them.
#[cfg(all(test, feature = "core"))]
impl WaitQueues {
    pub(super) fn requests_mut(&mut self) -> impl Iterator<Item = &mut AcquireRequest> {
        self.requests.values_mut()
    }
}
