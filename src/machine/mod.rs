//! The lock protocol of one manager. No clock, no sockets, no randomness of its own.
//!
//! Its inputs are those of a [`Protocol`]: commands of callers, replies to requests, events of connections, and time.
//! Each appends [`Effect`]s to a list that the caller owns and carries out in order.
//!
//! Each component owns its state and returns what follows; only [`Machine`] joins them:
//!
//! ```text
//!   wait_queue ─ queue_entry ─ replication      a caller waits and is granted
//!   lease ─ handoff ─ release                   holds, hands off, releases
//!   one_shot                                    extend, downgrade, adopt, force, several at once
//!   requests ─ servers ─ connection, routes     sending, and routing
//! ```

mod connection;
mod context;
mod discovery;
mod handoff;
mod interface;
mod lease;
mod lifecycle;
mod one_shot;
mod protocol;
mod queue_entry;
mod quorum;
mod release;
mod replication;
mod requests;
mod routes;
mod server_data;
mod servers;
mod shard_channels;
mod stats;
#[cfg(test)]
#[cfg(feature = "driver")]
mod tests;
mod timers;
mod wait_queue;

pub use crate::protocol::ids::{LeaseId, NodeId, OpId, RequestId, TokenId};
pub use interface::{
    Command, Config, Effect, Event, Hold, LossReason, Notice, Outcome, Risk, SendMode, ServerProbe,
    Wait,
};
pub use protocol::Protocol;
pub use quorum::{Quorum, Settings};
pub use routes::Routes;
pub use stats::Stats;

use self::context::Context;
use self::handoff::Undecided;
use self::lease::{GiveBack, HandoffBudget, Lease, Leases, Loss, Owes};
use self::lifecycle::Lifecycle;
use self::one_shot::{Aim, Ended, OneShot, OneShots};
use self::queue_entry::{Again, Beneficiary, ContentionPolicy, Entries, Entry, Granted, Pending};
use self::release::{Release, Releases, Successor};
use self::replication::Replication;
use self::requests::{CallError, Finished, Requests};
use self::shard_channels::ShardChannels;
use self::timers::{Owner, Timer};
use self::wait_queue::{AcquireRequest, WaitQueues};
use crate::protocol::{
    CLAIM, Call, Failure, Grant, Held, LockKeys, Message, Mode, Mono, Refusal, Reply, ServerTime,
    Taken, Token, valid_until,
};
use std::time::Duration;

/// The lock protocol of one manager.
#[derive(Debug)]
pub struct Machine {
    rq: Requests,
    queues: WaitQueues,
    entries: Entries,
    replication: Replication,
    leases: Leases,
    undecided: Undecided,
    releases: Releases,
    one_shots: OneShots,
    channels: ShardChannels,
    lifecycle: Lifecycle,
}

impl Protocol for Machine {
    fn handle_command(&mut self, now: Mono, op: OpId, command: Command, out: &mut Vec<Effect>) {
        self.handle(now, out, |machine| machine.command(op, command));
    }

    fn handle_reply(
        &mut self,
        now: Mono,
        node: NodeId,
        request: RequestId,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        self.handle(now, out, |machine| machine.reply(node, request, reply));
    }

    fn handle_event(&mut self, now: Mono, node: NodeId, event: Event, out: &mut Vec<Effect>) {
        self.handle(now, out, |machine| machine.event(node, event));
    }

    fn handle_timeout(&mut self, now: Mono, out: &mut Vec<Effect>) {
        self.handle(now, out, |machine| {
            machine.give_up_silent_servers();
            while let Some(timer) = machine.rq.cx.timers.pop(now) {
                machine.timeout(timer);
            }
        });
    }

    fn next_timeout(&self) -> Option<Mono> {
        let silence = self.patience().zip(self.rq.servers.oldest_request());
        let silence = silence.map(|(patience, sent)| sent + patience);
        [self.rq.cx.timers.next(), silence].into_iter().flatten().min()
    }

    fn is_idle(&self) -> bool {
        self.queues.is_empty()
            && self.entries.is_empty()
            && self.replication.is_empty()
            && self.one_shots.is_empty()
            && self.leases.len() == 0
            && self.undecided.is_empty()
            && self.releases.is_empty()
            && self.rq.are_done()
            && self.channels.is_empty()
            && self.rq.cx.timers.is_empty()
    }

    fn stats(&self) -> Stats {
        let (held, waiting) = (self.leases.len() as u64, self.queues.len() as u64);
        Stats { held, waiting, ..self.rq.cx.stats.clone() }
    }
}

/// The inputs.
impl Machine {
    /// A machine that has done nothing yet. `seed` decides its jitter.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            rq: Requests::new(Context::new(config, seed)),
            queues: WaitQueues::default(),
            entries: Entries::default(),
            replication: Replication::default(),
            leases: Leases::default(),
            undecided: Undecided::default(),
            releases: Releases::default(),
            one_shots: OneShots::default(),
            channels: ShardChannels::default(),
            lifecycle: Lifecycle::default(),
        }
    }

    fn handle(&mut self, now: Mono, out: &mut Vec<Effect>, input: impl FnOnce(&mut Self)) {
        self.rq.cx.now = now;
        std::mem::swap(&mut self.rq.cx.effects, out);
        input(self);
        std::mem::swap(&mut self.rq.cx.effects, out);
    }

    fn command(&mut self, op: OpId, command: Command) {
        if self.lifecycle.closing().is_some() && command != Command::Cancel {
            let done = command == Command::Close;
            return self.rq.cx.complete(op, if done { Outcome::Done } else { Outcome::Closed });
        }
        match command {
            Command::Acquire { name, ttl, wait, label, hold, mode } => {
                let (keys, now) = (self.queues.keys_of(&self.rq.cx, &name), self.rq.cx.now);
                let label = label.into();
                self.acquire(op, AcquireRequest::new(keys, label, ttl, hold, mode, wait, now));
            }
            Command::Adopt { name, owner, ttl, hold, mode } => {
                let owner = Token::from_text(&owner);
                let (id, keys, token) = self.new_token(&name);
                let epoch = ServerTime::default();
                let call = Call::Adopt { keys, token, epoch, owner, ttl, mode };
                self.begin_one_shot(op, call, Aim::Adopt { id, hold });
            }
            Command::Cancel => {
                self.end_acquire(op, Outcome::Cancelled);
                // An abort signal can cancel no other one-shot.
                if self.one_shots.is_together(op) {
                    self.end_one_shot(op, Outcome::Cancelled);
                }
            }
            Command::Close => self.close(op),
            Command::Downgrade { lease } => self.downgrade(op, lease),
            Command::Extend { lease, ttl } => self.extend(op, lease, ttl),
            Command::Force { name, foreign } => {
                let (id, keys, token) = self.new_token(&name);
                let epoch = ServerTime::default();
                let call = Call::Force { keys, token, epoch, foreign, seen: None };
                self.begin_one_shot(op, call, Aim::Force(id));
            }
            Command::AcquireAll { names, ttl, label, hold } => {
                let keys =
                    names.iter().map(|name| self.queues.keys_of(&self.rq.cx, name)).collect();
                match OneShots::together(&mut self.rq.cx, keys, &label, ttl) {
                    None => self.rq.cx.complete(op, Outcome::Apart),
                    Some((first, call)) => {
                        let aim = Aim::AcquireAll { first, label: label.into(), hold };
                        self.begin_one_shot(op, call, aim);
                    }
                }
            }
            Command::Open => self.open(op),
            Command::Release { lease, exported } => self.release(op, lease, exported),
        }
    }

    /// The lock of a call that a new token makes, and the token.
    fn new_token(&mut self, name: &str) -> (TokenId, LockKeys, Token) {
        let id = self.rq.cx.next_token_id();
        (id, self.queues.keys_of(&self.rq.cx, name), self.rq.cx.token(id, ""))
    }

    fn reply(&mut self, node: NodeId, request: RequestId, reply: Result<Reply, Failure>) {
        let lost = match &reply {
            Err(Failure::Lost(detail)) => Some(detail.clone()),
            // Another server may have replaced it, at the same address or not.
            reply if requests::is_readonly(reply) => Some("the server is a replica now".to_owned()),
            _ => None,
        };
        // A request that was sent again has lost neither its connection nor its server.
        let Some(finished) = self.rq.finish(node, request, reply) else { return };
        self.finished(finished);
        if let Some(detail) = lost {
            // A connection may have died unnoticed after its handshake, so this one is given up.
            self.disconnected(node, &detail);
        }
    }

    fn finished(&mut self, finished: Finished) {
        match finished.owner {
            Owner::Entry(id) => self.entry_answered(id, finished),
            Owner::OneShot(op) => self.one_shot_answered(op, finished),
            Owner::Release(id) => {
                if let Some(finished) = self.settle_successor(id, finished) {
                    self.releases.answered(&mut self.rq, id, finished);
                }
                self.finish_close_if_done();
            }
            Owner::Renewal(id) => {
                let loss = self.leases.renewed(&mut self.rq, id, &finished);
                self.lose_if(loss);
                self.decide_release(id);
            }
        }
    }

    fn event(&mut self, node: NodeId, event: Event) {
        let cx = &mut self.rq.cx;
        match event {
            Event::Confirmed { attempt, verdict } => self.confirmed(node, attempt, verdict),
            Event::Connected { probe, risks, pubsub_denied } => {
                self.rq.servers.connected(cx, node, probe, risks, pubsub_denied);
                self.opened_if_decided();
                self.resume(node);
            }
            Event::ConnectFailed(failure) => self.connect_failed(node, failure),
            Event::PubsubDenied(why) => {
                // No message comes, so its waiters poll.
                self.channels.forget_node(cx, node);
                self.rq.servers.set_pubsub_denied(cx, node, Some(why));
                self.resume(node);
            }
            Event::Disconnected(detail) => self.disconnected(node, &detail),
            Event::Discovered(routes) => self.discovered(routes),
            Event::Listening { channel, on } => {
                // Both may mean that a message was missed.
                if let Some(keys) = self.channels.listening(node, &channel, on) {
                    self.send_entries(&keys);
                }
            }
            Event::Probed { probe, sent } => {
                let servers = &mut self.rq.servers;
                servers.at(node).data.compare_clocks(sent, probe.time);
                if servers.learn(node, probe) {
                    self.leases.resume(&mut self.rq, node);
                }
            }
            Event::Message(Message::Freed(keys)) => self.ask_soon(&keys),
            Event::Message(Message::Granted(grants)) => {
                for grant in &grants {
                    self.granted_by_message(node, grant);
                }
            }
            Event::Message(Message::Taken(taken)) => self.hear_of_loss(&taken),
            Event::Heartbeat(at) => self.leases.heartbeat.felt(at),
        }
    }

    fn timeout(&mut self, timer: Timer) {
        let rq = &mut self.rq;
        match timer {
            Timer::AcquireDeadline(op) => self.acquire_deadline(op),
            Timer::CloseDeadline => self.finish_close(),
            Timer::Discover => rq.servers.discovery.ask(&mut rq.cx),
            Timer::ForgetChannels => {
                self.channels.forget_unused(&mut rq.cx, |keys| self.queues.has(keys));
            }
            Timer::Lease(id) => {
                let loss = self.leases.due(rq, id);
                self.lose_if(loss);
            }
            Timer::OneShotDeadline(op) => {
                let lease = self.one_shots.extends(op);
                if let Some(ended) = self.one_shots.deadline(rq, op) {
                    self.one_shot_ended(op, ended);
                }
                self.decide_release_of(lease);
            }
            Timer::OpenDeadline => self.lifecycle.open_deadline(&mut rq.cx),
            Timer::Reconnect(node) => rq.servers.reconnect(&mut rq.cx, node),
            Timer::ReleaseDeadline(id) => self.releases.deadline(rq, id),
            Timer::Retry(Owner::Entry(id)) => self.send_entry(id),
            Timer::Retry(Owner::OneShot(op)) => {
                self.one_shots.send(rq, &self.leases, op);
            }
            Timer::Retry(Owner::Release(id)) => self.releases.send(rq, id),
            // A lease plans its own renewals.
            Timer::Retry(Owner::Renewal(_)) => {}
        }
    }
}

/// Opening, connections and closing.
impl Machine {
    /// How long a server may leave a request unanswered. A quorum has no limit: ballots end by themselves, and one that
    /// a suspended process ends late is no sign of dead servers.
    fn patience(&self) -> Option<Duration> {
        (!self.rq.cx.config.quorum).then_some(self.rq.cx.config.command_timeout)
    }

    fn give_up_silent_servers(&mut self) {
        let Some(patience) = self.patience() else { return };
        for node in self.rq.servers.silent_since(self.rq.cx.now, patience) {
            self.disconnected(node, &format!("no answer within {} ms", patience.as_millis()));
        }
    }

    fn open(&mut self, op: OpId) {
        self.lifecycle.begin(&self.rq.cx, op);
        let servers = &mut self.rq.servers;
        if self.rq.cx.config.cluster {
            servers.discovery.ask(&mut self.rq.cx);
        } else {
            servers.want(&mut self.rq.cx, NodeId::default());
        }
    }

    /// The manager is open once each of its first servers is connected or has failed.
    fn opened_if_decided(&mut self) {
        if self.rq.servers.are_decided() {
            self.lifecycle.opened(&mut self.rq.cx, Ok(()));
        }
    }

    fn connect_failed(&mut self, node: NodeId, failure: Failure) {
        let (cx, servers) = (&mut self.rq.cx, &mut self.rq.servers);
        let is_refused = matches!(failure, Failure::Refused(_));
        let decides = !cx.config.cluster || is_refused || servers.is_last(node);
        if !self.lifecycle.is_opening() || !decides {
            servers.connect_failed(cx, node, &failure);
            self.opened_if_decided();
        } else if self.lifecycle.may_open_later(cx, &failure) {
            servers.reconnect_later(cx, node);
        } else {
            self.lifecycle.opened(cx, Err(failure));
        }
    }

    fn discovered(&mut self, routes: Result<Routes, Failure>) {
        let (cx, servers) = (&mut self.rq.cx, &mut self.rq.servers);
        servers.discovery.answered(routes.is_ok());
        match routes {
            Ok(routes) => {
                for node in servers.discovered(cx, routes) {
                    self.resume(node);
                }
            }
            Err(failure) if self.lifecycle.is_opening() => self.lifecycle.opened(cx, Err(failure)),
            Err(_) => servers.discovery.ask_soon(cx),
        }
    }

    /// Sends every request that waits for a server. Releases go first, so that abandoned entries do not block new
    /// requests.
    fn resume(&mut self, node: NodeId) {
        let rq = &mut self.rq;
        self.releases.resume(rq, node);
        self.leases.resume(rq, node);
        for op in self.one_shots.ops() {
            // Includes those sent elsewhere while their slot moved to a server without a connection.
            self.one_shots.send(rq, &self.leases, op);
        }
        for id in self.entries.ids() {
            let servers = &self.rq.servers;
            if self.entries.get(id).is_some_and(|entry| servers.node(&entry.keys) == node) {
                self.send_entry(id);
            }
        }
    }

    /// The connection is lost, or is given up.
    fn disconnected(&mut self, node: NodeId, detail: &str) {
        let Some(lost) = self.rq.disconnected(node, detail) else { return };
        self.channels.forget_node(&mut self.rq.cx, node);
        for id in self.replication.take_all_of(node) {
            // It owns the lock, so its end must release it.
            if let Some(entry) = self.entries.get_mut(id) {
                entry.uncertain = true;
            }
        }
        for finished in lost {
            self.finished(finished);
        }
    }

    /// Fails open operations, releases all leases but those to keep, and ends once the server has confirmed that or
    /// `command_timeout` has passed.
    fn close(&mut self, op: OpId) {
        self.lifecycle.begin_close(&mut self.rq.cx, op);
        for op in self.one_shots.ops() {
            self.end_one_shot(op, Outcome::Closed);
        }
        for id in self.undecided.ids() {
            // Closing ends all handoffs.
            let lease = self.leases.get(id).map(|held| held.id);
            if let Some((lease, (op, deadline))) = lease.zip(self.undecided.take(id)) {
                self.release_at_server(op, lease, deadline, None);
            }
        }
        for op in self.queues.ops() {
            self.end_acquire(op, Outcome::Closed);
        }
        for id in self.leases.ids() {
            let Some(held) = self.leases.remove(&mut self.rq, id) else {
                continue;
            };
            if !held.keep {
                let token = Leases::token_of(&self.rq.cx, &held);
                self.give_back(id, held.keys, token, held.uncertain);
            }
        }
        self.finish_close_if_done();
    }

    fn finish_close_if_done(&mut self) {
        if self.lifecycle.closing().is_some() && self.releases.are_confirmed() {
            self.finish_close();
        }
    }

    fn finish_close(&mut self) {
        let Some(op) = self.lifecycle.closing() else { return };
        self.releases.end(&mut self.rq);
        self.rq.cx.timers.clear_all();
        self.channels.clear();
        self.rq.cx.complete(op, Outcome::Done);
        self.rq.end();
        self.rq.cx.push(Effect::Stop);
    }
}

/// Waiting and grants.
impl Machine {
    fn acquire(&mut self, op: OpId, request: AcquireRequest) {
        let (keys, waits) = (request.keys.clone(), request.policy() == ContentionPolicy::Wait);
        self.queues.insert(&mut self.rq.cx, op, request);
        if waits {
            return self.serve_queue(&keys, None);
        }
        if let Some(id) = self.begin_entry(op, 1, Beneficiary::Caller(op)) {
            self.queues.set_own(op, id);
            self.send_entry(id);
        }
    }

    /// Creates the entry of an acquire request.
    fn begin_entry(&mut self, op: OpId, block: u8, beneficiary: Beneficiary) -> Option<TokenId> {
        let request = self.queues.get(op)?;
        let id = self.rq.cx.next_token_id();
        let token = self.rq.cx.token(id, &request.label);
        let (keys, label) = (request.keys.clone(), request.label.clone());
        let policy = request.policy();
        let mut entry =
            Entry::new(keys, token, request.ttl, label, request.mode, beneficiary, policy);
        entry.block = block;
        self.entries.insert(id, entry);
        Some(id)
    }

    /// A caller has joined or left a queue: keeps as many entries at the server as its head needs. `holder`: the lease
    /// here that owns the lock.
    fn serve_queue(&mut self, keys: &LockKeys, holder: Option<TokenId>) {
        while let Some(id) = self.queues.take_surplus(keys, &self.entries) {
            self.abandon_entry(id);
        }
        while let Some(op) = self.queues.next_without_entry(keys) {
            self.enqueue(op, keys, holder);
        }
    }

    /// Adds an entry at the server for the first caller here that has none.
    fn enqueue(&mut self, op: OpId, keys: &LockKeys, holder: Option<TokenId>) {
        let Some(request) = self.queues.get(op) else { return };
        let (began, ttl, mode) = (request.began, request.ttl, request.mode);
        // A caller that has waited here came before callers enqueued elsewhere meanwhile.
        let waited = (began < self.rq.cx.now).then_some(began);
        let seq = waited.and_then(|at| self.rq.servers.position_of(&self.rq.cx, keys, at));
        let block = if mode.is_shared() { 1 } else { self.queues.block(keys) };
        let Some(id) = self.begin_entry(op, block, Beneficiary::Queue) else { return };
        self.queues.add_entry(keys, id);
        // A shared lock may have room for one more.
        let holder = holder.filter(|_| !mode.is_shared()).and_then(|id| self.leases.get(id));
        let holder = holder.map(|held| Leases::token_of(&self.rq.cx, held).to_string());
        if let Some(entry) = self.entries.get_mut(id) {
            entry.take_position(began, seq);
            if let Some(holder) = holder {
                let remaining = Some(ttl);
                entry.pending = Pending::Held(Held { remaining, holder, ..Held::default() });
            }
        }
        self.send_entry(id);
    }

    /// Moves each queue entry whose caller was served in the process back to the position of its present caller, before
    /// this process gives the lock to the first waiter at the server.
    fn move_entries_back(&mut self, keys: &LockKeys) {
        for (id, began) in self.queues.served(keys) {
            let is_open = self.rq.is_open(Owner::Entry(id));
            let seq = self.rq.servers.position_of(&self.rq.cx, keys, began);
            if let (Some(seq), Some(entry)) = (seq, self.entries.get_mut(id))
                && !is_open
                && entry.is_ahead_of(began, seq)
            {
                entry.take_position(began, Some(seq));
                self.send_entry(id);
            }
        }
    }

    fn send_entries(&mut self, keys: &LockKeys) {
        for id in self.queues.entries(keys) {
            self.send_entry(id);
        }
    }

    fn send_entry(&mut self, id: TokenId) {
        if self.replication.is_awaited(id) {
            return;
        }
        let served = self.first_of(id).and_then(|op| self.queues.get(op));
        let wanted = served.map(|request| request.ttl);
        self.entries.send(&mut self.rq, id, wanted);
    }

    /// The caller that it serves now.
    fn first_of(&self, id: TokenId) -> Option<OpId> {
        let entry = self.entries.get(id)?;
        match entry.beneficiary {
            Beneficiary::Caller(op) => Some(op),
            Beneficiary::Queue => self.queues.first(&entry.keys),
        }
    }

    fn entry_answered(&mut self, id: TokenId, finished: Finished) {
        if !finished.awaited {
            // A message has granted it meanwhile; a lost request may still be executed.
            if let Err(CallError::Lost(_)) = finished.reply {
                self.leases.doubt(id);
            }
            return;
        }
        let node = finished.node;
        let step = self.entries.answered(&mut self.rq, id, finished);
        self.entry_step(node, id, step);
    }

    fn entry_step(&mut self, node: NodeId, id: TokenId, step: queue_entry::Step) {
        use queue_entry::Step;
        match step {
            Step::Nothing => {}
            Step::Granted(granted) if self.rq.cx.config.confirm => {
                self.replication.wait(&mut self.rq.cx, node, id, granted);
            }
            Step::Granted(granted) => self.grant(id, granted),
            Step::Discard => self.discard_grant(id),
            Step::Known(again) => self.known(id, again),
            Step::Refused => {
                while let Some(op) = self.first_of(id) {
                    self.end_for_pending(op, Some(id));
                }
            }
            Step::Send => self.send_entry(id),
        }
    }

    /// An answer about a lock has come: ends the requests that have waited only for that.
    fn known(&mut self, id: TokenId, again: Again) {
        let Some(entry) = self.entries.get(id) else { return };
        let keys = entry.keys.clone();
        let caller = match entry.beneficiary {
            Beneficiary::Caller(op) => Some(op),
            Beneficiary::Queue => None,
        };
        for op in self.queues.take_overdue(self.rq.cx.now, &keys, caller) {
            self.end_for_pending(op, Some(id));
        }
        let Some(entry) = self.entries.get(id) else { return };
        if matches!(entry.pending, Pending::Held(_)) && entry.policy == ContentionPolicy::Wait {
            self.listen(&keys);
        }
        match again {
            Again::Now => self.send_entry(id),
            Again::Soon => self.rq.retry(Owner::Entry(id)),
            Again::Poll => self.entries.poll_later(&mut self.rq, id),
        }
    }

    /// Subscribes to the channel of a lock in a Cluster. Until then a release skips this manager's entries, so they ask
    /// again once subscribed.
    fn listen(&mut self, keys: &LockKeys) {
        let servers = &self.rq.servers;
        if self.rq.cx.config.cluster && !servers.of(keys).connection.pubsub_denied {
            let (node, channel) = (servers.node(keys), servers.shard_channel(keys));
            self.channels.listen(&mut self.rq.cx, node, channel, keys);
        }
    }

    /// The server has granted this manager a freed lock.
    fn granted_by_message(&mut self, node: NodeId, grant: &Grant) {
        let Some(id) = self.rq.cx.number_of(&grant.token) else { return };
        if let Some(entry) = self.entries.get(id) {
            let is_meant = entry.keys == grant.keys && entry.token == grant.token;
            if is_meant && !self.replication.is_awaited(id) {
                let step = self.entries.granted_by_message(&mut self.rq, id, node, grant);
                self.entry_step(node, id, step);
            }
            return;
        }
        if self.releases.get(id).is_some() {
            return self.releases.send(&mut self.rq, id);
        }
        // A claim that is over needs no release: the token of a kept lock may be another process's now.
        let began = self.rq.servers.get(node).data.local_time(self.rq.cx.now, grant.time);
        let is_over = began.is_some_and(|began| valid_until(began, grant.claim) <= self.rq.cx.now);
        if !is_over && self.leases.get(id).is_none() {
            // No component knows it, but it owns a lock.
            self.give_back(id, grant.keys.clone(), grant.token.clone(), false);
        }
    }

    /// The replicas' verdict on a grant.
    fn confirmed(&mut self, node: NodeId, id: TokenId, verdict: Result<(), Refusal>) {
        let Some(granted) = self.replication.take(id) else { return };
        let Some(entry) = self.entries.get_mut(id) else { return };
        match verdict {
            Ok(()) if self.rq.cx.now < granted.until => self.grant(id, granted),
            Ok(()) => {
                let step = entry.too_late();
                self.entry_step(node, id, step);
            }
            Err(refusal) => {
                // The token owns the lock, whatever its position.
                entry.uncertain = true;
                entry.pending = Pending::Refused(refusal);
                if let Some(op) = self.first_of(id) {
                    self.end_for_pending(op, Some(id));
                }
                // Other waiters of the queue need another token that asks.
                self.discard_grant(id);
            }
        }
    }

    /// The entry's caller owns the lock until `granted.until`.
    fn grant(&mut self, id: TokenId, granted: Granted) {
        let first = self.first_of(id);
        let Some(entry) = self.entries.get(id) else { return };
        let is_claim = granted.owes == Some(Owes::Claim);
        let longest = if is_claim { entry.longest.min(CLAIM) } else { entry.longest };
        let request = first.and_then(|op| self.queues.get(op));
        if request.is_some_and(|request| request.ttl < longest) {
            // An earlier first caller asked for more. A lease is never shortened, and this caller may crash or may
            // leave the lock to expire.
            return self.discard_grant(id);
        }
        let rq = &mut self.rq;
        let Some((entry, _)) = self.entries.remove(rq, id) else { return };
        let Some((op, request)) =
            first.and_then(|op| Some((op, self.queues.remove(&mut rq.cx, op)?)))
        else {
            return self.give_back(id, entry.keys, entry.token, entry.uncertain);
        };
        let Entry { keys, mode, block, budget, ttl, beneficiary, label, .. } = entry;
        rq.cx.stats.handed_on += u64::from(budget.is_some());
        let other_label = (label != request.label).then(|| label.to_string());
        let mut held = Lease::new(LeaseId::first(id), keys.clone(), granted.fence, granted.until);
        (held.label, held.mode, held.ttl) = (label, mode, request.ttl);
        held.budget =
            budget.unwrap_or_else(|| HandoffBudget::new(rq.cx.now, request.ttl, mode, block));
        held.owes = granted.owes.or_else(|| (ttl < request.ttl).then_some(Owes::Length));
        (held.uncertain, held.confirmed) = (entry.uncertain, granted.since);
        let (lease, fence, owes) = (held.id, held.fence, held.owes.is_some());
        self.leases.begin(rq, held, request.hold);
        rq.cx.complete(op, Outcome::Acquired { lease, fence, label: other_label });
        if owes {
            self.leases.renew(rq, id, request.ttl);
        }
        if beneficiary == Beneficiary::Queue {
            self.queues.remove_entry(&keys, id);
        }
        self.serve_queue(&keys, Some(id));
    }

    /// The grant is unusable: gives its token back; another token takes its position.
    fn discard_grant(&mut self, id: TokenId) {
        let rq = &mut self.rq;
        let Some((old, is_open)) = self.entries.remove(rq, id) else { return };
        let new = rq.cx.next_token_id();
        let token = rq.cx.token(new, &old.label);
        self.entries.insert(new, old.replacement(token));
        match old.beneficiary {
            Beneficiary::Caller(op) => self.queues.set_own(op, new),
            Beneficiary::Queue => self.queues.replace_entry(&old.keys, id, new),
        }
        self.give_back(id, old.keys, old.token, old.uncertain || is_open);
        self.send_entry(new);
    }

    /// No caller needs it any more: gives back what it has got or may yet get.
    fn abandon_entry(&mut self, id: TokenId) {
        let rq = &mut self.rq;
        let Some((entry, is_open)) = self.entries.remove(rq, id) else { return };
        let is_granted = self.replication.take(id).is_some();
        if entry.uncertain || is_open || is_granted || entry.is_queued() {
            self.give_back(id, entry.keys, entry.token, entry.uncertain);
        }
    }

    /// A lock of a quorum may be free: its first entry here asks soon.
    fn ask_soon(&mut self, keys: &LockKeys) {
        if let Some(id) = self.queues.entries(keys).first() {
            self.entries.ask_soon(&mut self.rq, *id);
        }
    }

    /// The caller's patience is over. Without any answer yet, it waits for one round trip.
    fn acquire_deadline(&mut self, op: OpId) {
        let known = self.queues.entry_of(op);
        let is_unanswered = matches!(self.pending(known), Pending::Unanswered);
        if !(is_unanswered && self.queues.wait_for_first_answer(&mut self.rq.cx, op)) {
            self.end_for_pending(op, known);
        }
    }

    /// Why an entry has no lock yet.
    fn pending(&self, id: Option<TokenId>) -> &Pending {
        let entry = id.and_then(|id| self.entries.get(id));
        entry.map_or(&Pending::Unanswered, |entry| &entry.pending)
    }

    /// Ends a request for the reason why the entry `known` has no lock.
    fn end_for_pending(&mut self, op: OpId, known: Option<TokenId>) {
        let Some(request) = self.queues.get(op) else { return };
        let (servers, pending) = (&self.rq.servers, self.pending(known));
        let outcome = self.queues.outcome(&self.rq.cx, servers, request, known, pending);
        self.end_acquire(op, outcome);
    }

    /// Ends a request without a lock. What its entry has got or may yet get is given back, unless another caller in the
    /// queue needs it.
    fn end_acquire(&mut self, op: OpId, outcome: Outcome) {
        let Some(request) = self.queues.remove(&mut self.rq.cx, op) else { return };
        self.rq.cx.stats.timed_out += u64::from(matches!(outcome, Outcome::TimedOut { .. }));
        self.rq.cx.complete(op, outcome);
        if let Some(id) = request.own {
            self.abandon_entry(id);
        }
        self.serve_queue(&request.keys, None);
    }
}

/// Holding, handing off and releasing.
impl Machine {
    /// A message says that a lock was taken from its owner.
    fn hear_of_loss(&mut self, taken: &Taken) {
        let Some(id) = self.rq.cx.number_of(&taken.token) else { return };
        if let Some(entry) = self.entries.get_mut(id)
            && entry.keys == taken.keys
            && entry.token == taken.token
            && self.replication.take(id).is_some()
        {
            // Replicas would confirm a lost grant: the same token asks again. If the message is forged it owns the lock
            // still, so its end must release it.
            entry.uncertain = true;
            return self.send_entry(id);
        }
        self.leases.hear_of_loss(&mut self.rq, taken);
    }

    fn lose_if(&mut self, loss: Option<Loss>) {
        let Some(Loss { id, reason, give_back }) = loss else { return };
        let rq = &mut self.rq;
        let Some(held) = self.leases.remove(rq, id) else { return };
        if let Some((op, _)) = self.undecided.take(id) {
            rq.cx.complete(op, Outcome::Lost);
        }
        rq.cx.stats.lost += u64::from(reason != LossReason::Ended);
        rq.cx.push(Effect::Lose { lease: held.id, reason });
        self.end_extensions_of(held.id);
        let outdated = self.rq.servers.data_of(&held.keys).is_outdated(held.fence);
        let uncertain = held.uncertain || outdated;
        let (given_back, twice) = match give_back {
            GiveBack::Always => (true, held.uncertain),
            GiveBack::IfUncertain => (uncertain, true),
            GiveBack::Never => (false, false),
        };
        if given_back {
            let token = Leases::token_of(&self.rq.cx, &held);
            self.give_back(id, held.keys, token, twice);
        }
    }

    fn end_extensions_of(&mut self, lease: LeaseId) {
        for op in self.one_shots.extensions_of(lease) {
            self.end_one_shot(op, Outcome::Lost);
        }
    }

    /// Gives back what a token has got or may yet get. No caller waits.
    fn give_back(&mut self, id: TokenId, keys: LockKeys, token: Token, uncertain: bool) {
        let release = Release::new(keys, token, self.rq.cx.now, uncertain);
        self.releases.begin(&mut self.rq, id, release);
    }

    fn release(&mut self, op: OpId, lease: LeaseId, exported: bool) {
        let held = self.leases.valid(&self.rq.cx, lease);
        let Some(held) = held.filter(|_| !self.undecided.has(lease.token_id())) else {
            // The lease was lost or released before; its end gives back what is left of it.
            return self.rq.cx.complete(op, Outcome::Lost);
        };
        let deadline = self.rq.cx.now + self.rq.cx.config.command_timeout;
        if exported {
            self.release_at_server(op, lease, deadline, None);
        } else if self.is_unanswered(held) && self.next_owner(held).is_some() {
            self.undecided.insert(lease.token_id(), op, deadline);
        } else {
            self.hand_off_or_release(op, lease, deadline);
        }
    }

    /// Whether a renewal, a claim or an extension is under way, whose answer may deny that the lock is held.
    fn is_unanswered(&self, held: &Lease) -> bool {
        self.rq.is_open(Owner::Renewal(held.id.token_id())) || self.one_shots.is_extended(held.id)
    }

    /// The caller here that may get the whole lock from its owner without the server.
    fn next_owner(&self, held: &Lease) -> Option<OpId> {
        let op = self.queues.first(&held.keys)?;
        let next = self.queues.get(op)?;
        let unanswered = self.is_unanswered(held);
        handoff::may_follow(&self.rq, held, next, unanswered).then_some(op)
    }

    fn hand_off_or_release(&mut self, op: OpId, lease: LeaseId, deadline: Mono) {
        if self.hand_off(lease) {
            return self.rq.cx.complete(op, Outcome::Done);
        }
        let held = self.leases.get(lease.token_id());
        let successor =
            held.and_then(|held| handoff::successor(&mut self.rq.cx, &mut self.queues, held));
        self.release_at_server(op, lease, deadline, successor);
    }

    /// Hands the whole lock off to the next caller here. False if it must be released at the server.
    fn hand_off(&mut self, lease: LeaseId) -> bool {
        let Some(held) = self.leases.hold_of(lease) else { return false };
        if self.is_unanswered(held) || !held.is_confirmed(self.rq.cx.now) {
            return false;
        }
        let Some(op) = self.next_owner(held) else { return false };
        let Some(next) = self.queues.remove(&mut self.rq.cx, op) else { return false };
        self.end_extensions_of(lease);
        let (cx, id) = (&mut self.rq.cx, lease.token_id());
        let Some(held) = self.leases.hand_on(cx, id, next.ttl, next.hold) else { return false };
        let label = (held.label != next.label).then(|| held.label.to_string());
        cx.stats.acquired += 1;
        cx.stats.handed_on += 1;
        let (lease, fence) = (held.id, held.fence);
        cx.complete(op, Outcome::Acquired { lease, fence, label });
        self.serve_queue(&next.keys, Some(id));
        true
    }

    /// A renewal or an extension was answered, or never will be: decides the release that waits for it.
    fn decide_release(&mut self, id: TokenId) {
        let Some(held) = self.leases.get(id).filter(|_| self.undecided.has(id)) else { return };
        let lease = held.id;
        if !self.is_unanswered(held)
            && let Some((op, deadline)) = self.undecided.take(id)
        {
            self.hand_off_or_release(op, lease, deadline);
        }
    }

    fn decide_release_of(&mut self, lease: Option<LeaseId>) {
        if let Some(lease) = lease {
            self.decide_release(lease.token_id());
        }
    }

    fn release_at_server(
        &mut self,
        op: OpId,
        lease: LeaseId,
        deadline: Mono,
        successor: Option<Box<Successor>>,
    ) {
        let id = lease.token_id();
        let Some(held) = self.leases.remove(&mut self.rq, id) else { return };
        self.move_entries_back(&held.keys);
        self.rq.cx.timers.set(Timer::ReleaseDeadline(id), deadline);
        let token = Leases::token_of(&self.rq.cx, &held);
        let release = Release::new(held.keys, token, held.until, held.uncertain);
        let release = release.by_caller(op, held.mode.is_shared(), successor);
        self.releases.begin(&mut self.rq, id, release);
    }

    /// Takes the successor of a release, and returns the answer for the caller that releases; none if the release was
    /// sent again without a successor.
    fn settle_successor(&mut self, release: TokenId, finished: Finished) -> Option<Finished> {
        if finished.reply == Err(CallError::Unsent) {
            return Some(finished);
        }
        let Some((keys, successor)) = self.releases.take_successor(release) else {
            return Some(finished);
        };
        self.queues.release_successor(&keys);
        match finished.reply {
            Ok(Reply::Granted { fence }) => {
                self.grant_successor(finished.node, keys, successor, fence, finished.sent);
                Some(Finished { reply: Ok(Reply::Owner(true)), ..finished })
            }
            // A release needs less than a handoff. If more shares are held than the successor's limit allows, it must
            // wait.
            Ok(Reply::More) | Err(CallError::Refused(_)) => {
                self.releases.send(&mut self.rq, release);
                None
            }
            Ok(_) => Some(finished),
            // Whether the successor has it is unknown.
            Err(_) => {
                self.give_back(successor.id, keys, successor.token, true);
                Some(finished)
            }
        }
    }

    /// The successor has the share, asked for at `sent`: the first caller of the queue gets it.
    fn grant_successor(
        &mut self,
        node: NodeId,
        keys: LockKeys,
        successor: Successor,
        fence: u64,
        sent: Mono,
    ) {
        let Successor { id, token, label, ttl, mode, budget } = successor;
        let until = valid_until(sent, ttl);
        let outdated = self.rq.servers.get(node).data.is_outdated(fence);
        // That caller may have left.
        let wanted = self.queues.first_request(&keys).is_some_and(|first| first.mode == mode);
        if until <= self.rq.cx.now || outdated || !wanted {
            return self.give_back(id, keys, token, false);
        }
        self.queues.add_first_entry(&keys, id);
        let policy = ContentionPolicy::Wait;
        let mut entry = Entry::new(keys, token, ttl, label, mode, Beneficiary::Queue, policy);
        (entry.budget, entry.longest) = (Some(budget), ttl);
        self.entries.insert(id, entry);
        let granted = Granted { fence, until, since: sent, owes: None };
        self.entry_step(node, id, queue_entry::Step::Granted(granted));
    }
}

/// One-shots.
impl Machine {
    fn begin_one_shot(&mut self, op: OpId, call: Call, aim: Aim) {
        let rq = &mut self.rq;
        self.one_shots.insert(&mut rq.cx, op, call, aim);
        self.one_shots.send(rq, &self.leases, op);
    }

    fn extend(&mut self, op: OpId, lease: LeaseId, ttl: Option<Duration>) {
        let Some(held) = self.leases.valid(&self.rq.cx, lease) else {
            return self.rq.cx.complete(op, Outcome::Lost);
        };
        let ttl = ttl.unwrap_or(held.ttl);
        let (call, _) = Leases::extension(&self.rq, held, ttl);
        self.begin_one_shot(op, call, Aim::Extend(lease));
    }

    fn downgrade(&mut self, op: OpId, lease: LeaseId) {
        let Some(held) = self.leases.valid(&self.rq.cx, lease) else {
            return self.rq.cx.complete(op, Outcome::Lost);
        };
        let (keys, token) = (held.keys.clone(), Leases::token_of(&self.rq.cx, held));
        let (epoch, fence) = (ServerTime::default(), held.fence);
        self.leases.downgrade(lease.token_id());
        let call = Call::Downgrade { keys, token, epoch, fence };
        self.begin_one_shot(op, call, Aim::Downgrade(lease));
    }

    fn one_shot_answered(&mut self, op: OpId, finished: Finished) {
        let lease = self.one_shots.extends(op).filter(|_| finished.awaited);
        let held = lease.and_then(|lease| self.leases.hold_of(lease));
        if held.is_some_and(|held| held.until <= self.rq.cx.now) {
            // A lease that has ended stays lost, even if an extension succeeds later.
            let loss = lease.and_then(|lease| self.leases.end(lease.token_id()));
            return self.lose_if(loss);
        }
        if let Some(ended) = self.one_shots.answered(&mut self.rq, op, finished) {
            self.one_shot_ended(op, ended);
        }
        self.decide_release_of(lease);
    }

    fn one_shot_ended(&mut self, op: OpId, Ended { shot, sent, result }: Ended) {
        let outcome = match (&shot.aim, result) {
            (_, Err(outcome)) => {
                self.give_back_all(shot);
                outcome
            }
            (Aim::Adopt { .. }, Ok(Reply::Granted { fence })) => self.adopted(sent, shot, fence),
            (Aim::AcquireAll { .. }, Ok(Reply::All(fences))) => {
                self.acquired_all(sent, shot, fences)
            }
            (Aim::AcquireAll { .. }, Ok(_)) => {
                if shot.uncertain {
                    self.give_back_all(shot);
                }
                Outcome::Held
            }
            (Aim::Extend(lease), Ok(Reply::Owner(true) | Reply::Granted { .. })) => {
                self.leases.extended(&mut self.rq, *lease, sent, shot.call.ttl());
                Outcome::Done
            }
            (_, Ok(Reply::Owner(true))) => Outcome::Done,
            (Aim::Extend(lease) | Aim::Downgrade(lease), Ok(_)) => {
                if let Some(held) = self.leases.hold_of(*lease) {
                    let loss = self.leases.denied(held.id.token_id());
                    self.lose_if(loss);
                }
                Outcome::Lost
            }
            // The lock was freed, but its queue is too long for one script. A release serves the rest, since a second
            // force would rob a later owner.
            (Aim::Force(id), Ok(Reply::More)) => {
                let (keys, token) = (shot.call.keys().clone(), shot.call.token().clone());
                self.give_back(*id, keys, token, false);
                Outcome::Done
            }
            (Aim::Adopt { .. } | Aim::Force(_), Ok(_)) => Outcome::Lost,
        };
        self.rq.cx.complete(op, outcome);
    }

    /// The owner's lock is the caller's now.
    fn adopted(&mut self, sent: Mono, shot: OneShot, fence: u64) -> Outcome {
        let OneShot { call, aim, uncertain, .. } = shot;
        let (Call::Adopt { keys, token, owner, ttl, mode, .. }, Aim::Adopt { id, hold }) =
            (call, aim)
        else {
            return Outcome::Internal;
        };
        // This manager may be the owner, and miss the message.
        let own = self.rq.cx.number_of(&owner).filter(|id| self.leases.get(*id).is_some());
        let (reason, give_back) = (LossReason::Adopted, GiveBack::IfUncertain);
        self.lose_if(own.map(|id| Loss { id, reason, give_back }));
        let until = valid_until(sent, ttl);
        if until <= self.rq.cx.now {
            self.give_back(id, keys, token, false);
            let ms = ttl.as_millis();
            return Outcome::Connection(format!(
                "the answer took longer than the lease of {ms} ms"
            ));
        }
        let lease = LeaseId::first(id);
        let mut held = Lease::new(lease, keys, fence, until);
        (held.mode, held.ttl, held.uncertain) = (mode, ttl, uncertain);
        self.begin_one_shot_lease(held, hold);
        Outcome::Acquired { lease, fence, label: None }
    }

    /// All locks were free.
    fn acquired_all(&mut self, sent: Mono, shot: OneShot, fences: Vec<u64>) -> Outcome {
        let Aim::AcquireAll { first, label, hold } = shot.aim.clone() else {
            return Outcome::Internal;
        };
        let ttl = shot.call.ttl();
        let until = valid_until(sent, ttl);
        let data = self.rq.servers.data_of(shot.call.keys());
        if until <= self.rq.cx.now || fences.iter().any(|fence| data.is_outdated(*fence)) {
            // Unreliable leases go back; the locks are acquired one by one.
            self.give_back_all(shot);
            return Outcome::Held;
        }
        for (((keys, _), fence), number) in shot.call.into_locks().zip(&fences).zip(first.0..) {
            let lease = LeaseId::first(TokenId(number));
            let mut held = Lease::new(lease, keys, *fence, until);
            (held.label, held.mode, held.ttl) = (label.clone(), Mode::Exclusive, ttl);
            held.uncertain = shot.uncertain;
            self.begin_one_shot_lease(held, hold);
        }
        Outcome::AcquiredAll { lease: LeaseId::first(first), fences }
    }

    /// Begins a lease that a one-shot has got. It is not handed off.
    fn begin_one_shot_lease(&mut self, mut held: Lease, terms: Hold) {
        held.budget = HandoffBudget::none(self.rq.cx.now);
        held.confirmed = self.rq.cx.now;
        self.leases.begin(&mut self.rq, held, terms);
    }

    /// Gives back what a one-shot has got or may yet get.
    fn give_back_all(&mut self, shot: OneShot) {
        for (id, keys, token) in shot.given_back() {
            self.give_back(id, keys, token, true);
        }
    }

    fn end_one_shot(&mut self, op: OpId, outcome: Outcome) {
        let rq = &mut self.rq;
        let Some(shot) = self.one_shots.remove(rq, op) else { return };
        self.give_back_all(shot);
        self.rq.cx.complete(op, outcome);
    }
}

/// The interface of the machine for a quorum.
impl Machine {
    const fn config(&self) -> &Config {
        &self.rq.cx.config
    }

    fn waits_for(&self, keys: &LockKeys) -> bool {
        self.queues.has(keys)
    }
}
