//! The lock protocol of one manager. No clock, no sockets, no randomness of its own.
//!
//! Its inputs are those of a [`Protocol`]: commands of callers, replies to requests, events of connections, and time.
//! Each appends [`Effect`]s to a list that the caller owns and carries out in order.
//!
//! Each component owns its state and returns what follows; only [`Machine`] joins them:
//!
//! ```text
//!   wait_queue ─ queue_entry                    a caller waits and is granted
//!   lease ─ release                             holds, hands off, releases
//!   one_shot                                    extend, downgrade, adopt, force, several at once
//!   requests ─ servers ─ connection, routes     sending, and routing
//! ```

mod boxed_map;
mod connection;
mod contention;
mod context;
mod discovery;
mod handoff;
mod interface;
mod key_by_key;
mod lease;
mod lifecycle;
mod one_shot;
mod protocol;
mod queue_entry;
mod quorum;
mod release;
mod request;
mod routes;
mod server_data;
mod servers;
mod shard_channels;
mod stats;
#[cfg(test)]
#[cfg(feature = "core")]
mod tests;
mod timers;
mod wait_queue;
mod waiting_room;
mod window;

pub use crate::protocol::ids::{LeaseId, NodeId, OpId, RequestId, TokenId};
pub use interface::{
    Command, Config, Denied, Effect, Event, Hold, LossReason, Notice, Outcome, Polling, Risk,
    SendMode, ServerProbe, Wait,
};
pub use protocol::{Protocol, UnderWay};
pub use quorum::{Quorum, Settings};
pub use routes::Routes;
pub use stats::Stats;

use self::boxed_map::BoxedMap;
use self::contention::Contention;
use self::context::{Context, in_order};
use self::handoff::{HandoffBudget, Reservation};
use self::lease::{GiveBack, Lease, Leases, Loss, PendingRenewal};
use self::lifecycle::Lifecycle;
use self::one_shot::{OneShot, Purpose};
use self::queue_entry::{
    Again, Approach, Beneficiary, ContentionPolicy, Entry, Granted, Pending, Step,
};
use self::release::{Release, Successor};
use self::request::{CallError, Finished};
use self::servers::Servers;
use self::shard_channels::ShardChannels;
use self::timers::{Owner, Timer};
use self::wait_queue::{AcquireRequest, Need, WaitQueues};
use crate::protocol::message::inbox;
use crate::protocol::{
    CLAIM, Call, Failure, Grant, Held, LockKeys, Message, Mode, Mono, NAMED, Refusal, Reply,
    ServerTime, Take, Taken, Token, valid_until,
};
use crate::slim::Slim;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use std::time::Duration;

/// A caller that gives a lock up, and until when it waits for its outcome.
type Leaving = (OpId, Mono);

/// The lock protocol of one manager.
#[derive(Debug)]
pub struct Machine {
    context: Context,
    servers: Servers,
    queues: WaitQueues,
    contention: Contention,
    entries: BoxedMap<TokenId, Entry>,
    leases: Leases,
    /// Releases that wait for an answer. If that to a renewal, a claim or an extension confirms the lock, it is handed off
    /// here; after that to a queue entry, the entry can be moved back.
    undecided: FxHashMap<TokenId, Leaving>,
    releases: FxHashMap<TokenId, Release>,
    one_shots: FxHashMap<OpId, OneShot>,
    channels: ShardChannels,
    lifecycle: Lifecycle,
    /// The tokens whose locks their callers, or the end of this manager, left to expire: nothing may give them back.
    left_to_expire: FxHashSet<TokenId>,
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
            if let Some(patience) = machine.patience() {
                for node in machine.servers.silent(now, patience) {
                    let detail = format!("no answer within {} ms", patience.as_millis());
                    machine.disconnected(node, &detail);
                }
            }
            while let Some(timer) = machine.context.timers.pop(now) {
                machine.timeout(timer);
            }
        });
    }

    fn next_timeout(&mut self) -> Option<Mono> {
        let silence = self.patience().zip(self.servers.silent_since());
        let silence = silence.map(|(patience, since)| since + patience);
        [self.context.timers.next(), silence].into_iter().flatten().min()
    }

    fn is_idle(&self) -> bool {
        self.queues.is_empty()
            && self.entries.is_empty()
            && self.one_shots.is_empty()
            && self.leases.len() == 0
            && self.releases.is_empty()
            && self.servers.silent_since().is_none()
            && self.context.timers.is_empty()
    }

    fn server_time(&self, now: Mono, name: &str) -> Option<ServerTime> {
        let keys = LockKeys::new(&self.context.config.prefix, name);
        self.servers.data_of(&keys).shown_time(now)
    }

    fn under_way(&self) -> Vec<UnderWay> {
        let acquires = self.queues.ops().into_iter().map(UnderWay::Acquire);
        let one_shots = in_order(&self.one_shots).into_iter().map(UnderWay::OneShot);
        let releases = in_order(&self.releases).into_iter().map(UnderWay::Release);
        let all = acquires.chain(one_shots).chain(releases);
        all.filter(|what| self.is_under_way(*what)).collect()
    }

    fn is_under_way(&self, what: UnderWay) -> bool {
        let owner = match what {
            UnderWay::Acquire(op) => {
                // Callers that wait behind others have no entry of their own, and count as one with them.
                let Some(id) = self.queues.entry_of(op) else { return false };
                if self.entries.get(&id).is_none_or(Entry::is_queued) {
                    return false;
                }
                Owner::Entry(id)
            }
            UnderWay::OneShot(op) => Owner::OneShot(op),
            UnderWay::Release(id) => Owner::Release(id),
        };
        self.servers.is_under_way(owner)
    }

    fn stats(&self) -> Stats {
        let (held, waiting) = (self.leases.len() as u64, self.queues.len() as u64);
        Stats {
            held,
            waiting,
            unanswered: self.servers.unanswered_count(),
            ..self.context.stats.clone()
        }
    }
}

/// The inputs.
impl Machine {
    /// A machine that has done nothing yet. `seed` decides its jitter.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            servers: Servers::new(inbox(&config.secret)),
            context: Context::new(config, seed),
            queues: WaitQueues::default(),
            contention: Contention::default(),
            entries: BoxedMap::default(),
            leases: Leases::default(),
            undecided: FxHashMap::default(),
            releases: FxHashMap::default(),
            one_shots: FxHashMap::default(),
            channels: ShardChannels::default(),
            lifecycle: Lifecycle::default(),
            left_to_expire: FxHashSet::default(),
        }
    }

    fn handle(&mut self, now: Mono, out: &mut Vec<Effect>, input: impl FnOnce(&mut Self)) {
        self.context.now = now;
        std::mem::swap(&mut self.context.effects, out);
        input(self);
        if !self.undecided.is_empty() {
            for id in in_order(&self.undecided) {
                self.decide_release(id);
            }
        }
        std::mem::swap(&mut self.context.effects, out);
    }

    fn command(&mut self, op: OpId, command: Command) {
        if self.lifecycle.closing().is_some() && command != Command::Cancel {
            let done = command == Command::Close;
            return self.context.complete(op, if done { Outcome::Done } else { Outcome::Closed });
        }
        match command {
            Command::Acquire { name, ttl, wait, label, hold, mode } => {
                let (keys, began) = (self.queues.keys_of(&self.context, &name), self.context.now);
                let (ticket, own) = (None, None);
                let polls = self.context.config.polling.is_some() && mode == Mode::Exclusive;
                self.acquire(
                    op,
                    AcquireRequest {
                        keys,
                        label,
                        ttl,
                        hold,
                        mode,
                        wait,
                        polls,
                        ticket,
                        own,
                        began,
                    },
                );
            }
            Command::Adopt { name, owner, label, ttl, hold, mode } => {
                let (owner, epoch) = (Token::from_text(&owner), ServerTime::default());
                let (id, keys) =
                    (self.context.next_token_id(), self.queues.keys_of(&self.context, &name));
                let label = if label.is_empty() { owner.label().into() } else { label };
                let token = self.context.token(id, &label);
                self.end_releases_of(&token);
                let call = Call::Adopt { keys, token, epoch, owner, ttl, mode };
                self.begin_one_shot(op, call, Purpose::Adopt { id, label, hold });
            }
            Command::Cancel => {
                self.end_acquire(op, Outcome::Cancelled);
                let shot = self.one_shots.get(&op);
                // An abort signal can cancel no other one-shot.
                if shot.is_some_and(|shot| matches!(shot.purpose, Purpose::AcquireAll { .. })) {
                    self.end_one_shot(op, Outcome::Cancelled);
                }
            }
            Command::Close => self.close(op),
            Command::Downgrade { lease } => self.downgrade(op, lease),
            Command::Extend { lease, ttl } => self.extend(op, lease, ttl, Purpose::Extend(lease)),
            Command::Leave { lease, ttl } => {
                self.extend(op, lease, Some(ttl), Purpose::Leave(lease))
            }
            Command::Force { name, foreign, owners } => {
                let (keys, token) = self.new_token(&name);
                let epoch = ServerTime::default();
                let owners = owners.iter().map(|owner| Token::from_text(owner)).collect();
                let call = Call::Force { keys, token, epoch, foreign, seen: None, owners };
                self.begin_one_shot(op, call, Purpose::Force);
            }
            Command::AcquireAll { names, ttl, label, hold } => {
                let keys: Vec<_> =
                    names.iter().map(|name| self.queues.keys_of(&self.context, name)).collect();
                // Without a connection only the acquire of one lock ends when its caller's patience does.
                let is_away = keys.first().is_some_and(|keys| self.servers.is_away(keys));
                let together = |context| one_shot::acquire_all(context, keys, &label, ttl);
                match (!is_away).then(|| together(&mut self.context)).flatten() {
                    None => self.context.complete(op, Outcome::Apart),
                    Some(call) => {
                        let purpose = Purpose::AcquireAll { label, hold };
                        self.begin_one_shot(op, call, purpose);
                    }
                }
            }
            Command::LetExpire { lease } => {
                let is_held = self.leases.let_expire(&mut self.context, lease);
                self.context.complete(op, if is_held { Outcome::Done } else { Outcome::Lost });
            }
            Command::Open => self.open(op),
            Command::Release { lease, exported } => self.release(op, lease, exported),
        }
    }

    /// The lock of a call that a new token makes, and the token.
    fn new_token(&mut self, name: &str) -> (LockKeys, Token) {
        let id = self.context.next_token_id();
        (self.queues.keys_of(&self.context, name), self.context.token(id, ""))
    }

    fn reply(&mut self, node: NodeId, request: RequestId, reply: Result<Reply, Failure>) {
        let lost = match &reply {
            Err(Failure::Lost(detail)) => Some(detail.clone()),
            // Another server may have replaced it, at the same address or not.
            reply if servers::is_readonly(reply) => Some("the server is a replica now".to_owned()),
            _ => None,
        };
        // A request that was sent again has lost neither its connection nor its server.
        if let Some(finished) = self.servers.finish(&mut self.context, node, request, reply) {
            self.finished(finished);
            if let Some(detail) = lost {
                // A connection may have died unnoticed after its handshake, so this one is given up.
                self.disconnected(node, &detail);
            }
        }
        self.send_waiting(node);
    }

    /// An answer has made room on a connection for those who wait for it.
    fn send_waiting(&mut self, node: NodeId) {
        while let Some(owner) = self.servers.next_in_turn(node) {
            match owner {
                Owner::Entry(id) => self.send_entry(id),
                Owner::OneShot(op) => self.send_one_shot(op),
                Owner::Release(id) => self.send_release(id),
                // These never wait.
                Owner::EntryBehind(_) | Owner::Renewal(_) | Owner::Reservation(_) => {}
            }
        }
    }

    fn finished(&mut self, finished: Finished) {
        match finished.owner {
            Owner::Entry(id) | Owner::EntryBehind(id) => self.entry_answered(id, finished),
            Owner::OneShot(op) => self.one_shot_answered(op, finished),
            Owner::Release(id) => {
                if let Some(finished) = self.settle_successor(id, finished) {
                    self.release_answered(id, finished);
                }
                self.finish_close_if_done();
            }
            Owner::Reservation(id) => self.reserved(id, &finished),
            Owner::Renewal(id) => {
                let loss = self.leases.renewed(&mut self.context, &mut self.servers, id, &finished);
                self.lose_if(loss);
            }
        }
    }

    fn event(&mut self, node: NodeId, event: Event) {
        let context = &mut self.context;
        match event {
            Event::Confirmed { attempt, verdict } => self.confirmed(node, attempt, verdict),
            Event::Connected { probe, risks, denied } => {
                self.replaced(node);
                self.servers.connected(&mut self.context, node, probe, risks, denied);
                self.opened_if_decided();
                self.resume(node);
            }
            Event::ConnectFailed(failure) => self.connect_failed(node, failure),
            Event::PubsubDenied(why) => {
                // No message comes, so its waiters poll.
                self.channels.forget_node(context, node);
                self.servers.set_pubsub_denied(context, node, Some(why));
                self.resume(node);
            }
            Event::Disconnected(detail) => self.disconnected(node, &detail),
            Event::Discovered(routes) => self.discovered(routes),
            Event::Listening { channel, on } => {
                // Both may mean that a message was missed.
                let Some(keys) = self.channels.listening(node, &channel, on) else { return };
                for id in self.queues.entries(&keys) {
                    self.send_entry(id);
                }
            }
            Event::Probed { probe, sent } => {
                let servers = &mut self.servers;
                servers.at(node).data.compare_clocks(sent, probe.time);
                if servers.learn(node, probe) {
                    self.leases.resume(&mut self.context, &mut self.servers, node);
                }
            }
            Event::Message(Message::Freed(keys)) => {
                // A lock of a quorum may be free: its first entry here asks soon.
                for id in self.queues.entries(&keys).into_iter().take(1) {
                    if let Some(entry) = self.entries.get_mut(&id) {
                        entry.ask_soon(&mut self.context, &self.servers, id);
                    }
                }
            }
            Event::Message(Message::Granted(grants)) => {
                for grant in &grants {
                    self.granted_by_message(node, grant);
                }
            }
            Event::Message(Message::Taken(taken)) => self.hear_of_loss(&taken),
            Event::Heartbeat(at) => self.leases.felt_heartbeat(at),
        }
    }

    fn timeout(&mut self, timer: Timer) {
        let Self { context, servers, .. } = self;
        match timer {
            Timer::AcquireDeadline(op) => self.acquire_deadline(op),
            Timer::CloseDeadline => self.finish_close(),
            Timer::Discover => servers.discovery.ask(context),
            Timer::ForgetChannels => {
                self.channels.forget_unused(context, |keys| self.queues.has(keys));
            }
            Timer::Lease(id) => {
                self.left_to_expire.remove(&id);
                let loss = self.leases.due(context, servers, id);
                self.lose_if(loss);
            }
            Timer::OneShotDeadline(op) => {
                if let Some(shot) = self.one_shots.get(&op) {
                    let outcome = shot.overdue(context, servers, op);
                    self.end_one_shot(op, outcome);
                }
            }
            Timer::OpenDeadline => self.lifecycle.open_deadline(context),
            Timer::Reconnect(node) => {
                let within = self.leases.pressure(context.now);
                servers.reconnect(context, node, within);
            }
            Timer::ReleaseDeadline(id) => {
                if let Some(release) = self.releases.get_mut(&id) {
                    release.deadline(context, servers, id);
                }
            }
            Timer::RetryEntry(id) => self.send_entry(id),
            Timer::RetryOneShot(op) => self.send_one_shot(op),
            Timer::RetryRelease(id) => self.send_release(id),
            // A lease plans its own renewals, and a quorum has timers of its own.
            Timer::RetryRenewal(_) | Timer::Ballot(_) | Timer::Withdrawal(..) => {}
        }
    }
}

/// Opening, connections and closing.
impl Machine {
    /// How long a server may leave a request unanswered. A quorum has no limit: ballots end by themselves, and one that
    /// a suspended process ends late is no sign of dead servers.
    fn patience(&self) -> Option<Duration> {
        (!self.context.config.quorum).then_some(self.context.config.command_timeout)
    }

    fn open(&mut self, op: OpId) {
        self.lifecycle.begin(&self.context, op);
        let servers = &mut self.servers;
        if self.context.config.cluster {
            servers.discovery.ask(&mut self.context);
        } else {
            servers.want(&mut self.context, NodeId::default());
        }
    }

    /// The manager is open once each of its first servers is connected or has failed.
    fn opened_if_decided(&mut self) {
        if self.servers.are_decided() {
            self.lifecycle.opened(&mut self.context, Ok(()));
        }
    }

    fn connect_failed(&mut self, node: NodeId, failure: Failure) {
        let (context, servers) = (&mut self.context, &mut self.servers);
        let is_refused = matches!(failure, Failure::Refused(_));
        let decides = !context.config.cluster || is_refused || servers.is_last(node);
        if !self.lifecycle.is_opening() || !decides {
            servers.connect_failed(context, node, &failure, self.leases.pressure(context.now));
            self.opened_if_decided();
        } else if self.lifecycle.may_open_later(context, &failure) {
            servers.at(node).connection.back_off(context, node, None);
        } else {
            self.lifecycle.opened(context, Err(failure));
        }
    }

    fn discovered(&mut self, routes: Result<Routes, Failure>) {
        let (context, servers) = (&mut self.context, &mut self.servers);
        servers.discovery.answered(routes.is_ok());
        match routes {
            Ok(routes) => {
                let connected = servers.discovered(context, routes);
                // What they have not answered is asked where the locks are now.
                for node in self.servers.deserted() {
                    self.disconnected(
                        node,
                        "its slots are on other servers now, and it does not answer",
                    );
                }
                for node in connected {
                    self.resume(node);
                }
            }
            Err(failure) if self.lifecycle.is_opening() => {
                self.lifecycle.opened(context, Err(failure))
            }
            Err(_) => servers.discovery.ask_soon(context),
        }
    }

    /// Sends every request that waits for a server, releases first: abandoned entries must not block new requests.
    fn resume(&mut self, node: NodeId) {
        let is_here = |servers: &Servers, keys: Option<&LockKeys>| {
            keys.is_some_and(|keys| servers.node(keys) == node)
        };
        for id in in_order(&self.releases) {
            if is_here(&self.servers, self.releases.get(&id).map(|release| &release.keys)) {
                self.send_release(id);
            }
        }
        self.leases.resume(&mut self.context, &mut self.servers, node);
        for op in in_order(&self.one_shots) {
            // Includes those sent elsewhere while their slot moved to a server without a connection.
            self.send_one_shot(op);
        }
        for id in self.entries.keys_in_order() {
            if is_here(&self.servers, self.entries.get(&id).map(|entry| &entry.keys)) {
                self.send_entry(id);
            }
        }
    }

    fn disconnected(&mut self, node: NodeId, detail: &str) {
        let within = self.leases.pressure(self.context.now);
        if let Some(lost) = self.servers.disconnected(&mut self.context, node, detail, within) {
            self.lost(node, lost);
        }
    }

    /// A new connection is there: if the one before was still waited for, its requests are lost. They may be executed all
    /// the same, as those of any connection that is given up.
    fn replaced(&mut self, node: NodeId) {
        let silent = self.servers.at(node).connection.oldest();
        let silent = silent.map_or(Duration::ZERO, |sent| self.context.now.since(sent));
        let detail =
            format!("no answer within {} ms, and a new connection has one", silent.as_millis());
        if let Some(lost) = self.servers.replaced(&mut self.context, node, &detail) {
            self.lost(node, lost);
        }
    }

    /// A connection has ended, and with it the requests `lost`.
    fn lost(&mut self, node: NodeId, lost: Vec<Finished>) {
        self.channels.forget_node(&mut self.context, node);
        for entry in self.entries.values_mut() {
            // An entry whose grant waited for replicas owns the lock, so its end must release it.
            entry.uncertain |=
                entry.confirming.take_if(|confirming| confirming.0 == node).is_some();
        }
        for finished in lost {
            self.finished(finished);
        }
    }

    /// Fails open operations, releases all leases but those to keep, and ends when that is confirmed or takes too long.
    fn close(&mut self, op: OpId) {
        self.lifecycle.begin_close(&mut self.context, op);
        self.servers.begin_close();
        for op in in_order(&self.one_shots) {
            self.end_one_shot(op, Outcome::Closed);
        }
        for id in in_order(&self.undecided) {
            // Closing ends all handoffs.
            if let Some(caller) = self.undecided.remove(&id) {
                self.release_at_server(id, caller, None);
            }
        }
        for op in self.queues.ops() {
            self.end_acquire(op, Outcome::Closed);
        }
        for id in self.leases.ids() {
            let Some(held) = self.leases.remove(&mut self.context, &mut self.servers, id) else {
                continue;
            };
            if held.leave_to_expire {
                self.left_to_expire.insert(id);
            } else {
                let token = Leases::token_of(&self.context, &held);
                self.give_back(held.keys, token, held.uncertain);
            }
        }
        for id in in_order(&self.releases) {
            self.send_release(id);
        }
        self.finish_close_if_done();
    }

    fn finish_close_if_done(&mut self) {
        if self.lifecycle.closing().is_some() && self.releases.values().all(Release::is_confirmed) {
            self.finish_close();
        }
    }

    fn finish_close(&mut self) {
        let Some(op) = self.lifecycle.closing() else { return };
        for release in std::mem::take(&mut self.releases).into_values() {
            if let Some(op) = release.op {
                let error = self.servers.of(&release.keys).connection.last_error.clone();
                self.context.complete(op, Outcome::Connection(error));
            }
        }
        self.context.timers.clear_all();
        self.channels = ShardChannels::default();
        self.context.complete(op, Outcome::Done);
        self.servers.end(&mut self.context);
        self.context.push(Effect::Stop);
    }
}

/// Waiting and grants.
impl Machine {
    fn acquire(&mut self, op: OpId, mut request: AcquireRequest) {
        if request.policy() == ContentionPolicy::Wait {
            let keys = request.keys.clone();
            self.queues.insert(&mut self.context, op, request);
            return self.serve_queue(&keys, None);
        }
        let (id, mut entry) = request.entry(&mut self.context, Beneficiary::Caller(op));
        entry.approach = self.approach(&entry);
        request.own = Some(id);
        self.queues.insert(&mut self.context, op, request);
        self.entries.insert(id, entry);
        self.send_entry(id);
    }

    /// A caller that has polled goes on in the queue.
    fn join_queue(&mut self, op: OpId) {
        let Some((keys, own)) = self.queues.join(op) else { return };
        if let Some(id) = own {
            self.abandon_entry(id);
        }
        self.serve_queue(&keys, None);
    }

    /// Keeps as many entries at the server as the head of a queue needs. `holder`: the lease here that owns the lock.
    fn serve_queue(&mut self, keys: &LockKeys, holder: Option<TokenId>) {
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
        let (context, servers) = (&mut self.context, &self.servers);
        let (id, mut entry) = request.entry(context, Beneficiary::Queue);
        // A caller that has waited here came before callers enqueued elsewhere meanwhile.
        let waited = (request.began < context.now).then_some(request.began);
        entry.take_position(
            request.began,
            waited.and_then(|at| servers.position_of(context, keys, at)),
        );
        if !entry.mode.is_shared() {
            entry.block = self.queues.block(keys);
            // The lock is held. A shared one may have room for one more.
            if let Some(held) = holder.and_then(|id| self.leases.get(id)) {
                let holder = Leases::token_of(context, held).to_string();
                let remaining = Some(entry.ttl);
                let held = Held { remaining, holder, ..Held::default() };
                entry.pending = Pending::Held(Box::new(held));
            }
        }
        if holder.is_none() {
            entry.approach = self.approach(&entry);
        }
        self.queues.add_entry(keys, id);
        self.entries.insert(id, entry);
        self.send_entry(id);
    }

    /// Whether the fast path may do for a lock. A quorum's servers vote by scripts.
    fn is_likely_free(&self, keys: &LockKeys) -> bool {
        !self.context.config.quorum && !self.contention.is_likely(keys)
    }

    /// The first request of a new entry.
    fn approach(&self, entry: &Entry) -> Approach {
        let may_be_free =
            !matches!(entry.policy, ContentionPolicy::Steal(_)) && self.is_likely_free(&entry.keys);
        if may_be_free { Approach::FastPath } else { Approach::Script }
    }

    /// Moves each queue entry whose caller was served in the process back to the position of its present caller, before
    /// this process gives the lock to the first waiter at the server.
    fn move_entries_back(&mut self, keys: &LockKeys) {
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

    /// Lets an entry ask, in its turn.
    fn send_entry(&mut self, id: TokenId) {
        if let Some(entry) = self.entries.get_mut(&id)
            && !entry.waits(&mut self.servers, id)
        {
            self.send_entry_now(id);
        }
    }

    /// Lets an entry go on after an answer.
    fn send_entry_now(&mut self, id: TokenId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let first = self.queues.first_of(entry).and_then(|op| self.queues.get(op));
        entry.send(&mut self.context, &mut self.servers, id, first.map(|request| request.ttl));
    }

    /// Removes an entry, and forgets its requests.
    fn remove_entry(&mut self, id: TokenId) -> Option<Entry> {
        self.servers.forget(&mut self.context, Owner::Entry(id));
        self.servers.forget(&mut self.context, Owner::EntryBehind(id));
        self.entries.remove(&id)
    }

    fn entry_answered(&mut self, id: TokenId, finished: Finished) {
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
            match finished.reply {
                Ok(Reply::Take(Take::Held)) => {
                    self.contention.was_held(&entry.keys);
                    if let Some(op) = self.queues.tries_whole(entry) {
                        return self.end_acquire(op, Outcome::Held);
                    }
                }
                Ok(Reply::Held(ref held)) => {
                    self.contention.was_held(&entry.keys);
                    self.queues.has_position(entry, held);
                }
                Ok(Reply::Joined { .. }) => self.contention.was_held(&entry.keys),
                Ok(Reply::Granted { .. }) if matches!(entry.pending, Pending::Unanswered) => {
                    self.contention.was_free(&entry.keys);
                }
                _ => {}
            }
            let node = finished.node;
            let step = entry.answered(&mut self.context, &self.servers, id, finished);
            self.entry_step(node, id, step);
        }
    }

    fn entry_step(&mut self, node: NodeId, id: TokenId, step: Step) {
        match step {
            Step::Nothing => {}
            Step::Granted(granted) if self.context.config.confirm => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.confirming = Some(Box::new((node, granted)));
                    self.context.push(Effect::Confirm { node, attempt: id });
                }
            }
            Step::Granted(granted) => self.grant(id, granted),
            Step::Discard => self.discard_grant(id),
            Step::Known(again) => self.known(id, again),
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
    fn known(&mut self, id: TokenId, again: Again) {
        let Some(entry) = self.entries.get(&id) else { return };
        let keys = entry.keys.clone();
        let caller = match entry.beneficiary {
            Beneficiary::Caller(op) => Some(op),
            Beneficiary::Queue => None,
        };
        for op in self.queues.take_overdue(self.context.now, &keys, caller) {
            self.end_for_pending(op, Some(id));
        }
        let Some(entry) = self.entries.get(&id) else { return };
        if let Some(op) = caller.filter(|_| entry.should_join()) {
            return self.join_queue(op);
        }
        let servers = &self.servers;
        if matches!(entry.pending, Pending::Held(_))
            && entry.policy == ContentionPolicy::Wait
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
    fn granted_by_message(&mut self, node: NodeId, grant: &Grant) {
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

    fn confirmed(&mut self, node: NodeId, id: TokenId, verdict: Result<(), Refusal>) {
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
        if entry.mode.is_shared() && request.is_some_and(|request| request.began > granted.since) {
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
        let Entry { keys, mode, block, budget, beneficiary, label, .. } = entry;
        context.stats.handed_off += u64::from(budget.is_some());
        let other_label = context::other_label(&label, &request.label);
        let Granted { fence, until, pending_renewal, since, fast_path } = granted;
        let mut held = Lease::new(id, keys.clone(), label, mode, request.ttl, fence, until);
        held.budget =
            budget.unwrap_or_else(|| HandoffBudget::new(context.now, request.ttl, mode, block));
        held.pending_renewal =
            pending_renewal.or((entry.ttl < request.ttl).then_some(PendingRenewal::Extension));
        (held.uncertain, held.confirmed) = (entry.uncertain, since);
        held.lone_share = fast_path && mode.is_shared();
        let (lease, is_incomplete) = (held.id, held.pending_renewal.is_some());
        self.leases.begin(context, &self.servers, held, request.hold);
        context.complete(op, Outcome::Acquired { lease, fence, label: other_label });
        if is_incomplete {
            self.leases.renew(context, &mut self.servers, id, request.ttl);
        }
        if beneficiary == Beneficiary::Queue {
            self.queues.remove_entry(&keys, id);
        }
        self.serve_queue(&keys, Some(id));
    }

    /// The grant is unusable: gives its token back; another token takes its position.
    fn discard_grant(&mut self, id: TokenId) {
        let is_open = self.servers.asks(id);
        let Some(old) = self.remove_entry(id) else { return };
        let new = self.context.next_token_id();
        let token = self.context.token(new, &old.label);
        self.entries.insert(new, old.replacement(token));
        self.queues.replace_entry(&old, id, new);
        self.give_back(old.keys, old.token, old.uncertain || is_open);
        self.send_entry_now(new);
    }

    /// No caller needs it any more: gives back what it has got or may yet get.
    fn abandon_entry(&mut self, id: TokenId) {
        let is_open = self.servers.asks(id);
        let Some(entry) = self.remove_entry(id) else { return };
        let is_granted = entry.confirming.is_some() || entry.approach == Approach::Completion;
        if entry.uncertain || is_open || is_granted || entry.is_queued() {
            self.give_back(entry.keys, entry.token, entry.uncertain);
        }
    }

    /// The caller's patience is over. If an answer may still be on its way, it waits for one round trip.
    fn acquire_deadline(&mut self, op: OpId) {
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
    fn end_for_pending(&mut self, op: OpId, known: Option<TokenId>) {
        let Some(request) = self.queues.get(op) else { return };
        let pending = self.pending(known);
        let outcome = self.queues.outcome(&self.context, &self.servers, request, known, pending);
        self.end_acquire(op, outcome);
    }

    /// Ends a request without a lock. Its entry is abandoned, unless another caller in the queue needs it.
    fn end_acquire(&mut self, op: OpId, outcome: Outcome) {
        let Some(request) = self.queues.remove(&mut self.context, op) else { return };
        self.context.stats.timed_out += u64::from(matches!(outcome, Outcome::TimedOut { .. }));
        self.context.complete(op, outcome);
        if let Some(id) = request.own {
            self.abandon_entry(id);
        }
        self.serve_queue(&request.keys, None);
    }
}

/// Holding, handing off and releasing.
///
/// A handoff gives the lock of one caller to the next caller of this process, ahead of other processes: without it a
/// thousand tasks would cost the server a thousand releases, grants and claims. A whole lock is handed off without the
/// server; a share by one call, since each has its own fence. A budget limits how long other processes wait meanwhile.
impl Machine {
    /// A message says that a lock was taken from its owner.
    fn hear_of_loss(&mut self, taken: &Taken) {
        let Some(id) = self.context.number_of(&taken.token) else { return };
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.keys == taken.keys
            && entry.token == taken.token
            && entry.confirming.take().is_some()
        {
            // Replicas would confirm a lost grant: the same token asks again. If the message is forged it owns the lock
            // still, so its end must release it.
            entry.uncertain = true;
            return self.send_entry(id);
        }
        self.leases.hear_of_loss(&mut self.context, &mut self.servers, id, taken);
    }

    fn lose_if(&mut self, loss: Option<Loss>) {
        let Some(Loss { id, reason, give_back }) = loss else { return };
        let context = &mut self.context;
        let Some(held) = self.leases.remove(context, &mut self.servers, id) else { return };
        if let Some((op, _)) = self.undecided.remove(&id) {
            context.complete(op, Outcome::Lost);
        }
        context.stats.lost += u64::from(reason != LossReason::Ended);
        context.push(Effect::Lose { lease: held.id, reason });
        self.end_extensions_of(held.id);
        let outdated = self.servers.data_of(&held.keys).is_outdated(held.fence);
        let uncertain = held.uncertain || outdated;
        let (given_back, twice) = match give_back {
            GiveBack::Always => (true, held.uncertain),
            GiveBack::IfUncertain => (uncertain, true),
            GiveBack::Never => (false, false),
        };
        if given_back {
            let token = Leases::token_of(&self.context, &held);
            self.give_back(held.keys, token, twice);
        }
    }

    /// A lock has a last lease of `ttl`, and is not this manager's any more.
    fn leave(&mut self, lease: LeaseId, ttl: Duration) {
        let Some(held) = self.leases.hold_of(lease) else { return };
        let id = held.id.token_id();
        self.lose_if(Some(Loss { id, reason: LossReason::Ended, give_back: GiveBack::Never }));
        // A message about its grant may still be on its way.
        self.left_to_expire.insert(id);
        self.context.timers.set(Timer::Lease(id), self.context.now + ttl);
    }

    fn extensions_of(&self, lease: LeaseId) -> impl Iterator<Item = OpId> {
        let shots = self.one_shots.iter().filter(move |(_, shot)| shot.extends() == Some(lease));
        shots.map(|(op, _)| *op)
    }

    fn end_extensions_of(&mut self, lease: LeaseId) {
        let mut ops: Vec<_> = self.extensions_of(lease).collect();
        ops.sort_unstable();
        for op in ops {
            self.end_one_shot(op, Outcome::Lost);
        }
    }

    /// Gives back what a token has got or may yet get. No caller waits.
    fn give_back(&mut self, keys: LockKeys, token: Token, uncertain: bool) {
        // A token that its caller has chosen has no number.
        let own = self.context.number_of(&token);
        let id = own.unwrap_or_else(|| self.context.next_token_id());
        let release = Release::new(keys, token, self.context.now, uncertain);
        self.begin_release(id, release);
    }

    fn begin_release(&mut self, id: TokenId, release: Release) {
        release.send(&mut self.context, &mut self.servers, id);
        self.releases.insert(id, release);
    }

    fn send_release(&mut self, id: TokenId) {
        if let Some(release) = self.releases.get(&id) {
            release.send(&mut self.context, &mut self.servers, id);
        }
    }

    /// A token that its caller has chosen may have been released before. A repeat of that would free its next hold, for
    /// which it is adopted now.
    fn end_releases_of(&mut self, token: &Token) {
        for id in in_order(&self.releases) {
            if let Some(release) = self.releases.get_mut(&id).filter(|each| each.is_of(token)) {
                release.give_up(&mut self.context, id);
                self.servers.forget(&mut self.context, Owner::Release(id));
                self.releases.remove(&id);
            }
        }
    }

    fn release_answered(&mut self, id: TokenId, finished: Finished) {
        if let Some(release) = self.releases.get_mut(&id)
            && release.answered(&mut self.context, &mut self.servers, id, finished)
        {
            self.servers.forget(&mut self.context, Owner::Release(id));
            self.releases.remove(&id);
            self.releases.slim();
        }
    }

    fn release(&mut self, op: OpId, lease: LeaseId, exported: bool) {
        let held = self.leases.valid(&self.context, lease);
        let Some(held) = held.filter(|_| !self.undecided.contains_key(&lease.token_id())) else {
            // The lease was lost or released before; its end gives back what is left of it.
            return self.context.complete(op, Outcome::Lost);
        };
        let id = lease.token_id();
        let caller = (op, self.context.now + self.context.config.command_timeout);
        // Unless somebody waits here, there is no handoff to consider.
        if exported || !self.queues.has(&held.keys) {
            self.release_at_server(id, caller, None);
        } else if (self.is_unanswered(held) && self.next_owner(held).is_some())
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
    fn is_unanswered(&self, held: &Lease) -> bool {
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
    fn may_get_handoffs(&self, held: &Lease) -> bool {
        held.budget.is_spent(self.context.now)
            && self.servers.is_open(Owner::Reservation(held.id.token_id()))
            && self.fitting_owner(held).is_some()
    }

    /// The caller here that may get the whole lock from its owner without the server.
    fn next_owner(&self, held: &Lease) -> Option<OpId> {
        self.fitting_owner(held).filter(|_| !held.budget.is_spent(self.context.now))
    }

    /// The caller here that may get the whole lock from its owner, if there are handoffs left.
    fn fitting_owner(&self, held: &Lease) -> Option<OpId> {
        let op = self.queues.first(&held.keys)?;
        let next = self.queues.get(op)?;
        let server = self.servers.of(&held.keys);
        // Fences reserved under another replication id may be smaller than those issued since.
        let known = server.connection.is_up()
            && held.data_number == server.data.number
            && !server.data.is_outdated(held.fence);
        let whole = !held.mode.is_shared() && !next.mode.is_shared();
        // The lease continues: the rest must suffice for the successor, but a crash of it must not cost more. Until an
        // open request is answered, the rest is unknown.
        let left = held.until.since(self.context.now);
        let fits = self.is_unanswered(held) || (next.ttl / 2..=next.ttl).contains(&left);
        (known && whole && fits && next.hold.renew).then_some(op)
    }

    fn hand_off_or_release(&mut self, lease: LeaseId, caller: Leaving) {
        if self.hand_off(lease) {
            return self.context.complete(caller.0, Outcome::Done);
        }
        let successor = self.successor(lease.token_id());
        self.release_at_server(lease.token_id(), caller, successor);
    }

    /// Hands the whole lock off to the next caller here. False if it must be released at the server.
    fn hand_off(&mut self, lease: LeaseId) -> bool {
        let Some(held) = self.leases.hold_of(lease) else { return false };
        if self.is_unanswered(held) || !held.is_confirmed(self.context.now) {
            return false;
        }
        let Some(op) = self.next_owner(held) else { return false };
        let Some(next) = self.queues.remove(&mut self.context, op) else { return false };
        self.end_extensions_of(lease);
        let (context, id) = (&mut self.context, lease.token_id());
        let Some(held) = self.leases.hand_off(context, id, next.ttl, next.hold) else {
            return false;
        };
        let label = context::other_label(&held.label, &next.label);
        context.stats.acquired += 1;
        context.stats.handed_off += 1;
        let (lease, fence) = (held.id, held.fence);
        context.complete(op, Outcome::Acquired { lease, fence, label });
        self.serve_queue(&next.keys, Some(id));
        self.leases
            .reserve(&mut self.context, &mut self.servers, id, |keys| self.queues.block(keys));
        true
    }

    /// A request for more handoffs was answered, or never will be.
    fn reserved(&mut self, id: TokenId, finished: &Finished) {
        let Some(held) = self.leases.get(id).filter(|_| finished.awaited) else { return };
        let loss = match finished.reply {
            _ if held.until <= self.context.now => self.leases.end(id),
            Ok(Reply::Reserved { fence, waiting }) => {
                let alone = self.queues.are_only_own(&held.keys, waiting, &self.entries);
                self.leases.reserved(
                    &mut self.context,
                    &self.servers,
                    id,
                    (fence, alone),
                    finished,
                );
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
        if !matches!(held.mode, Mode::Shared { limit: Some(_) })
            || held.budget.is_spent(context.now)
        {
            return None;
        }
        let budget = held.budget.next();
        let next = self.queues.reserve_successor(&held.keys, held.mode)?;
        let (id, mut entry) = next.entry(context, Beneficiary::Queue);
        (entry.budget, entry.max_ttl) = (Some(budget), entry.ttl);
        Some((id, Box::new(entry)))
    }

    /// Decides a release that has waited for an answer, if that has come or never will.
    fn decide_release(&mut self, id: TokenId) {
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

    fn release_at_server(&mut self, id: TokenId, caller: Leaving, successor: Option<Successor>) {
        let Some(held) = self.leases.remove(&mut self.context, &mut self.servers, id) else {
            return;
        };
        let waits_here = self.queues.has(&held.keys);
        // A handoff while nobody else waits takes nobody's turn.
        if waits_here && (successor.is_none() || !self.queues.is_alone(&held.keys)) {
            self.move_entries_back(&held.keys);
        }
        let (op, deadline) = caller;
        self.context.timers.set(Timer::ReleaseDeadline(id), deadline);
        let token = Leases::token_of(&self.context, &held);
        let mut release = Release::new(held.keys, token, held.until, held.uncertain);
        (release.op, release.shared) = (Some(op), held.mode.is_shared());
        release.fast_path = (held.lone_share || !release.shared)
            && held.pending_renewal.is_none()
            && !held.uncertain
            && !waits_here
            && self.is_likely_free(&release.keys)
            && self.servers.data_of(&release.keys).has_fast_path(held.mode);
        release.successor = successor;
        let asks_behind = (waits_here && !release.shared).then(|| release.keys.clone());
        self.begin_release(id, release);
        if let Some(keys) = asks_behind.filter(|_| self.servers.is_open(Owner::Release(id))) {
            self.ask_behind_release(&keys);
        }
    }

    /// Lets the entry here that is likely to get a whole lock by its release ask right behind that.
    fn ask_behind_release(&mut self, keys: &LockKeys) {
        if let Some(id) = self.queues.likely_next(keys)
            && let Some(entry) = self.entries.get(&id)
            && !entry.mode.is_shared()
        {
            entry.ask_behind(&mut self.context, &mut self.servers, id);
        }
    }

    /// Takes the successor of a release, and returns the answer for the caller that releases; none if the release was
    /// sent again without a successor.
    fn settle_successor(&mut self, release: TokenId, finished: Finished) -> Option<Finished> {
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
                    // It has overtaken nobody.
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
        let granted = Granted { fence, until, since, pending_renewal: None, fast_path: false };
        self.entry_step(node, id, Step::Granted(granted));
    }
}

/// One-shots.
impl Machine {
    fn begin_one_shot(&mut self, op: OpId, call: Call, purpose: Purpose) {
        let deadline = self.context.now + self.context.config.command_timeout;
        self.context.timers.set(Timer::OneShotDeadline(op), deadline);
        self.one_shots.insert(op, OneShot::new(call, purpose));
        self.send_one_shot(op);
    }

    fn send_one_shot(&mut self, op: OpId) {
        if let Some(shot) = self.one_shots.get_mut(&op) {
            shot.send(&mut self.context, &mut self.servers, &self.leases, op);
        }
    }

    fn remove_one_shot(&mut self, op: OpId) -> Option<OneShot> {
        let mut shot = self.one_shots.remove(&op)?;
        self.context.timers.clear(Timer::OneShotDeadline(op));
        shot.uncertain |= self.servers.forget(&mut self.context, Owner::OneShot(op));
        Some(shot)
    }

    fn extend(&mut self, op: OpId, lease: LeaseId, ttl: Option<Duration>, purpose: Purpose) {
        let Some(held) = self.leases.valid(&self.context, lease) else {
            return self.context.complete(op, Outcome::Lost);
        };
        let ttl = ttl.unwrap_or(held.ttl);
        let (call, _) = Leases::extension(&self.context, held, ttl);
        self.begin_one_shot(op, call, purpose);
    }

    fn downgrade(&mut self, op: OpId, lease: LeaseId) {
        let Some(held) = self.leases.valid(&self.context, lease) else {
            return self.context.complete(op, Outcome::Lost);
        };
        let (keys, token) = (held.keys.clone(), Leases::token_of(&self.context, held));
        let (epoch, fence) = (ServerTime::default(), held.fence);
        // From now on requests for the lease are for a share; they also extend the whole lock while the downgrade is not
        // executed.
        self.leases.change(&mut self.context, lease.token_id(), |held| held.mode = Mode::SHARED);
        let call = Call::Downgrade { keys, token, epoch, fence };
        self.begin_one_shot(op, call, Purpose::Downgrade(lease));
    }

    fn one_shot_answered(&mut self, op: OpId, finished: Finished) {
        let Some(shot) = self.one_shots.get_mut(&op).filter(|_| finished.awaited) else { return };
        let lease = shot.extends();
        let held = lease.and_then(|lease| self.leases.hold_of(lease));
        if held.is_some_and(|held| held.until <= self.context.now) {
            // A lease that has ended stays lost, even if an extension succeeds later.
            let loss = lease.and_then(|lease| self.leases.end(lease.token_id()));
            return self.lose_if(loss);
        }
        let sent = finished.sent;
        match shot.answered(&mut self.context, &mut self.servers, op, finished) {
            Some(Ok(reply)) => self.one_shot_succeeded(op, sent, reply),
            Some(Err(outcome)) => self.end_one_shot(op, outcome),
            None => {}
        }
    }

    /// The server has answered the request of a one-shot, sent at `sent`.
    fn one_shot_succeeded(&mut self, op: OpId, sent: Mono, reply: Reply) {
        let Some(shot) = self.remove_one_shot(op) else { return };
        if let (Purpose::Extend(lease) | Purpose::Leave(lease), Call::Extend { ttl, .. }) =
            (&shot.purpose, &shot.call)
            && reply == Reply::Owner(false)
            && self.leases.hold_of(*lease).is_some_and(|held| held.mode.is_shared())
        {
            // It was sent again, after its downgrade: whether there is a share, only a request for the share tells.
            return self.extend(op, *lease, Some(*ttl), shot.purpose);
        }
        let outcome = match (&shot.purpose, reply) {
            (Purpose::Adopt { .. }, Reply::Granted { fence }) => self.adopted(sent, shot, fence),
            (Purpose::AcquireAll { .. }, Reply::All(fences)) => {
                self.acquired_all(sent, shot, fences)
            }
            (Purpose::AcquireAll { .. }, _) => {
                if shot.uncertain {
                    self.give_back_all(shot);
                }
                Outcome::Held
            }
            (Purpose::Extend(lease), Reply::Owner(true) | Reply::Granted { .. }) => {
                if self.leases.hold_of(*lease).is_some() {
                    self.leases.confirm(
                        &mut self.context,
                        &self.servers,
                        lease.token_id(),
                        sent,
                        shot.call.ttl(),
                    );
                }
                Outcome::Done
            }
            (Purpose::Leave(lease), Reply::Owner(true) | Reply::Granted { .. }) => {
                self.leave(*lease, shot.call.ttl());
                Outcome::Done
            }
            (_, Reply::Owner(true)) => Outcome::Done,
            (Purpose::Extend(lease) | Purpose::Leave(lease) | Purpose::Downgrade(lease), _) => {
                if let Some(held) = self.leases.hold_of(*lease) {
                    let loss = self.leases.denied(held.id.token_id());
                    self.lose_if(loss);
                }
                Outcome::Lost
            }
            // The lock was freed, but its queue is too long for one script. A release serves the rest, since a second
            // force would rob a later owner.
            (Purpose::Force, Reply::More) => {
                self.give_back(shot.call.keys().clone(), shot.call.token().clone(), false);
                Outcome::Done
            }
            (Purpose::Adopt { .. } | Purpose::Force, _) => Outcome::Lost,
        };
        self.context.complete(op, outcome);
    }

    fn adopted(&mut self, sent: Mono, shot: OneShot, fence: u64) -> Outcome {
        let (
            Call::Adopt { keys, token, owner, ttl, mode, .. },
            Purpose::Adopt { id: new, label, hold: terms },
        ) = (shot.call, shot.purpose)
        else {
            return Outcome::Internal;
        };
        // This manager may be the owner, and miss the message.
        let own = self.context.number_of(&owner).filter(|id| self.leases.get(*id).is_some());
        // A caller that has chosen a token for its own lock loses nothing.
        let is_named = label.starts_with(NAMED);
        let reason = if is_named { LossReason::Ended } else { LossReason::Adopted };
        let give_back = GiveBack::IfUncertain;
        self.lose_if(own.map(|id| Loss { id, reason, give_back }));
        let until = valid_until(sent, ttl);
        if until <= self.context.now {
            self.give_back(keys, token, false);
            let ms = ttl.as_millis();
            return Outcome::Connection(format!(
                "the answer took longer than the lease of {ms} ms"
            ));
        }
        let told = (!label.is_empty()).then(|| label.to_string());
        let mut held = Lease::new(new, keys, label, mode, ttl, fence, until);
        held.uncertain = shot.uncertain;
        self.leases.begin(&mut self.context, &self.servers, held, terms);
        Outcome::Acquired { lease: LeaseId::first(new), fence, label: told }
    }

    fn acquired_all(&mut self, sent: Mono, shot: OneShot, fences: Vec<u64>) -> Outcome {
        let first = self.context.number_of(shot.call.token());
        let (Purpose::AcquireAll { label, hold: terms }, Some(first)) = (&shot.purpose, first)
        else {
            return Outcome::Internal;
        };
        let ttl = shot.call.ttl();
        let until = valid_until(sent, ttl);
        let data = self.servers.data_of(shot.call.keys());
        if until <= self.context.now || fences.iter().any(|fence| data.is_outdated(*fence)) {
            // Unreliable leases go back; the locks are acquired one by one.
            self.give_back_all(shot);
            return Outcome::Held;
        }
        for (((keys, _), fence), number) in shot.call.into_locks().zip(&fences).zip(first.0..) {
            let (id, label, mode) = (TokenId(number), Arc::clone(label), Mode::Exclusive);
            let mut held = Lease::new(id, keys, label, mode, ttl, *fence, until);
            held.uncertain = shot.uncertain;
            self.leases.begin(&mut self.context, &self.servers, held, *terms);
        }
        Outcome::AcquiredAll { lease: LeaseId::first(first), fences }
    }

    fn give_back_all(&mut self, shot: OneShot) {
        if matches!(shot.purpose, Purpose::Adopt { .. } | Purpose::AcquireAll { .. }) {
            for (keys, token) in shot.call.into_locks() {
                self.give_back(keys, token, true);
            }
        }
    }

    fn end_one_shot(&mut self, op: OpId, outcome: Outcome) {
        let Some(shot) = self.remove_one_shot(op) else { return };
        // One that the server was never asked for has got nothing.
        if shot.uncertain {
            self.give_back_all(shot);
        }
        self.context.complete(op, outcome);
    }
}

/// The interface of the machine for a quorum.
impl Machine {
    fn waits_for(&self, keys: &LockKeys) -> bool {
        self.queues.has(keys)
    }

    /// The servers deny that the token has the lock: its lease ends, if it has not ended before.
    fn deny(&mut self, now: Mono, token: &Token, out: &mut Vec<Effect>) {
        self.handle(now, out, |machine| {
            let id = machine.context.number_of(token);
            let loss = id.and_then(|id| machine.leases.denied(id));
            machine.lose_if(loss);
        });
    }

    /// A majority can be asked again: sends every renewal that is due.
    fn resume_renewals(&mut self, now: Mono, out: &mut Vec<Effect>) {
        self.handle(now, out, |machine| {
            let Self { context, servers, leases, .. } = machine;
            leases.resume(context, servers, NodeId::default());
        });
    }

    /// How soon the lease that is nearest its end needs an attempt to connect.
    fn pressure(&self, now: Mono) -> Option<Duration> {
        self.leases.pressure(now)
    }

    /// The same of the lease of one token.
    fn pressure_of(&self, now: Mono, token: &Token) -> Option<Duration> {
        self.context.number_of(token).and_then(|id| self.leases.pressure_of(now, id))
    }

    /// The token and the label of a lease.
    fn labelled_token(&self, lease: LeaseId) -> Option<(Token, &str)> {
        let held = self.leases.hold_of(lease)?;
        Some((Leases::token_of(&self.context, held), &held.label))
    }
}
