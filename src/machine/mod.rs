//! The lock protocol of one manager. No clock, no sockets, no randomness of its own.
//!
//! Its inputs are those of a [`Protocol`]: commands of callers, replies to requests, events of connections, and time.
//! Each appends [`Effect`]s to a list that the caller owns and carries out in order.
//!
//! Each component owns its state and returns what follows. Only [`Machine`] joins them, in a chapter for each thing that
//! it does:
//!
//! ```text
//!   chapter                       components
//!   acquiring, granting           wait_queue ─ queue_entry
//!   handing_off, releasing        lease ─ release
//!   idling                        idle_locks
//!   operating                     one_shot
//!   connecting, closing           servers ─ connection, routes; lifecycle
//! ```

mod acquiring;
mod boxed_map;
mod closing;
mod connecting;
mod connection;
mod contention;
mod context;
mod discovery;
mod granting;
mod handing_off;
mod handoff;
mod idle_locks;
mod idling;
mod interface;
mod key_by_key;
mod lease;
mod lifecycle;
mod one_shot;
mod operating;
mod queue_entry;
mod quorum;
mod release;
mod releasing;
mod request;
mod server_data;
mod servers;
mod shard_channels;
mod stats;
#[cfg(test)]
#[cfg(feature = "core")]
mod tests;
mod timers;
mod tracked;
mod wait_queue;
mod waiting_room;
mod window;

pub use crate::protocol::ids::{LeaseId, NodeId, OpId, RequestId, TokenId};
pub use crate::protocol::quorum::Settings;
pub use crate::protocol::{Denied, Risk, Routes, SendMode, ServerProbe};
pub use idle_locks::IdleSnapshot;
pub use interface::{
    Command, Config, Effect, Event, HoldTerms, LossReason, Notice, Outcome, Polling, Protocol,
    UnderWay, Wait,
};
pub use quorum::Quorum;
pub use stats::Stats;

use self::boxed_map::BoxedMap;
use self::contention::Contention;
use self::context::{Context, in_order};
use self::lease::Leases;
use self::lifecycle::Lifecycle;
use self::one_shot::{OneShot, Purpose};
use self::queue_entry::Entry;
use self::release::Release;
use self::request::Finished;
use self::servers::Servers;
use self::shard_channels::ShardChannels;
use self::timers::{Owner, Timer};
use self::wait_queue::{AcquireRequest, WaitQueues};
use crate::protocol::message::inbox;
use crate::protocol::{Failure, LockKeys, Message, Mono, Reply, ServerTime, Token};
use rustc_hash::{FxHashMap, FxHashSet};

/// A caller that gives a lock up, and until when it waits for its outcome.
type Releasing = (OpId, Mono);

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
    undecided: FxHashMap<TokenId, Releasing>,
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
                let waits = |entry: &Entry| entry.is_queued() && entry.takes_over.is_none();
                if self.entries.get(&id).is_none_or(waits) {
                    return false;
                }
                Owner::Entry(id)
            }
            UnderWay::OneShot(op) => Owner::OneShot(op),
            UnderWay::Release(id) => Owner::Release(id),
        };
        self.servers.is_under_way(owner)
    }

    fn idle_locks(&self, now: Mono) -> IdleSnapshot {
        IdleSnapshot::new(&self.context.config.client, now, &self.leases.idle)
    }

    fn stats(&self) -> Stats {
        let (idle, waiting) = (self.leases.idle.len() as u64, self.queues.len() as u64);
        let held = self.leases.len() as u64 - idle;
        let unanswered = self.servers.unanswered_count();
        Stats { held, idle, waiting, unanswered, ..self.context.stats.clone() }
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
                let keys = self.queues.keys_of(&self.context, &name);
                let request =
                    AcquireRequest::new(&self.context, keys, ttl, wait, label, hold, mode);
                self.acquire(op, request);
            }
            Command::Adopt { name, owner, label, ttl, hold, mode } => {
                let keys = self.queues.keys_of(&self.context, &name);
                self.adopt(op, keys, Token::from_text(&owner), (ttl, mode), (label, hold));
            }
            Command::KeepForeign { key, value, ttl, age, stall_timeout } => {
                let keys = LockKeys::from_key(&key);
                self.keep_foreign(op, keys, value, (ttl, age), stall_timeout);
            }
            Command::Cancel => self.cancel(op),
            Command::Close => self.close(op),
            Command::Downgrade { lease } => self.downgrade(op, lease),
            Command::Extend { lease, ttl } => self.extend(op, lease, ttl, Purpose::Extend(lease)),
            Command::ExpireIn { lease, ttl } => {
                self.extend(op, lease, Some(ttl), Purpose::ExpireIn(lease));
            }
            Command::Force { name, foreign, owners } => {
                let keys = self.queues.keys_of(&self.context, &name);
                self.force(op, keys, foreign, &owners);
            }
            Command::AcquireAll { names, ttl, label, hold } => {
                let keys =
                    names.iter().map(|name| self.queues.keys_of(&self.context, name)).collect();
                self.acquire_all(op, keys, ttl, label, hold);
            }
            Command::StopRenewing { lease } => self.stop_renewing(op, lease),
            Command::Open => self.open(op),
            Command::Release { lease, exported } => self.release(op, lease, exported),
        }
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
                Owner::Renewal(id) => self.ask_about_notice(id),
                // These never wait.
                Owner::EntryBehind(_) | Owner::Reservation(_) => {}
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
                let loss = self.renewed(id, &finished);
                self.lose_if(loss);
            }
        }
    }

    fn event(&mut self, node: NodeId, event: Event) {
        match event {
            Event::Confirmed { attempt, verdict } => self.confirmed(node, attempt, verdict),
            Event::Connected { probe, risks, denied } => self.connected(node, probe, risks, denied),
            Event::ConnectFailed(failure) => self.connect_failed(node, failure),
            Event::PubsubDenied(why) => self.pubsub_denied(node, why),
            Event::TrackingDenied => self.tracking_denied(node),
            Event::Disconnected(detail) => self.disconnected(node, &detail),
            Event::Discovered(routes) => self.discovered(routes),
            Event::Listening { channel, on } => self.listening(node, &channel, on),
            Event::Probed { probe, sent } => self.probed(node, probe, sent),
            Event::Message(Message::Changed(keys)) => self.changed(&keys),
            Event::Message(Message::AllChanged) => self.all_changed(node),
            Event::Message(Message::Freed(keys)) => self.freed(&keys),
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
                let loss = self.lease_due(id);
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
            Timer::ReleaseDeadline(id) => self.release_deadline(id),
            Timer::RetryEntry(id) => self.send_entry(id),
            Timer::RetryOneShot(op) => self.send_one_shot(op),
            Timer::RetryRelease(id) => self.send_release(id),
            // A lease plans its own renewals, and a quorum has timers of its own.
            Timer::RetryRenewal(_) | Timer::Ballot(_) | Timer::Withdrawal(..) => {}
        }
    }
}
