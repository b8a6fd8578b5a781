//! The one place that sends: it routes each request, handles its end, and sends it again.
//!
//! A server may not know a script by its hash (NOSCRIPT), may redirect a request to the server that has the lock
//! (MOVED) or gets it (ASK), or may have some keys of a moving lock no more (TRYAGAIN). Every request handles these
//! alike, so no owner learns of them. An owner that ends calls [`Requests::forget`]: its request is not sent again,
//! since its withdrawal went ahead.
//!
//! What is in flight on a connection is bounded (`window.rs`). An owner whose request can wait looks for room first, and
//! waits if there is none. A request that a lease depends on, or that follows an answer, whose room it takes, is sent at
//! once.

use super::connection::InFlight;
use super::context::Context;
use super::interface::{Effect, Outcome, SendMode};
use super::key_by_key::KeyByKey;
use super::servers::Servers;
use super::timers::{Owner, Timer};
use super::waiting_room::Rank;
use crate::protocol::message;
use crate::protocol::{
    Call, Failure, LockKeys, Mono, NodeId, Refusal, Reply, RequestId, Script, ServerTime, Take,
    TokenId,
};
use crate::slim::Slim;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::time::Duration;

/// The pause before a request to a server that is not ready, in ms.
pub(super) const RETRY_MS: (u64, u64) = (20, 60);

#[derive(Debug)]
pub(super) struct Requests {
    pub(super) cx: Context,
    pub(super) servers: Servers,
    open: Open,
    /// The owners that wait for room on a connection, and on which.
    waiting: FxHashMap<Owner, NodeId>,
    /// Whether the manager closes: what it still sends need not make room for anything.
    closing: bool,
    last: u64,
}

/// The open request of each owner, by kinds of owners: for an uncontended lock most kinds have none, and are looked up at
/// no cost.
#[derive(Debug, Default)]
struct Open([FxHashMap<u64, RequestId>; Owner::KINDS]);

impl Open {
    fn len(&self) -> usize {
        self.0.iter().map(FxHashMap::len).sum()
    }

    fn has(&self, owner: Owner) -> bool {
        let (kind, number) = owner.parts();
        self.0[kind].contains_key(&number)
    }

    fn insert(&mut self, owner: Owner, id: RequestId) {
        let (kind, number) = owner.parts();
        self.0[kind].insert(number, id);
    }

    /// Returns whether the owner had one.
    fn remove(&mut self, owner: Owner) -> bool {
        let (kind, number) = owner.parts();
        let open = &mut self.0[kind];
        !open.is_empty() && open.remove(&number).is_some()
    }

    /// Removes the request `id`. Returns whether it was its owner's open one.
    fn end(&mut self, owner: Owner, id: RequestId) -> bool {
        let (kind, number) = owner.parts();
        match self.0[kind].entry(number) {
            Entry::Occupied(open) if *open.get() == id => {
                open.remove();
                self.0[kind].slim();
                true
            }
            _ => false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Sent {
    owner: Owner,
    call: Call,
    pub(super) send_mode: SendMode,
    fallback: Fallback,
    /// The calls, one for each key, of which this is one.
    key_by_key: Option<KeyByKey>,
}

/// The call that replaces another while the slot of a lock moves: it names only keys that certainly exist.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fallback {
    /// Nothing: the owner decides.
    None,
    Extend,
    /// Calls by one key after the other.
    ExtendShare,
    Free,
    FreeShare,
    KeepEntry,
}

impl Fallback {
    fn of(self, call: &Call) -> Option<Call> {
        let (keys, token) = (call.keys().clone(), call.token().clone());
        match self {
            Self::None => None,
            Self::Extend => Some(Call::Extend { keys, token, ttl: call.ttl() }),
            Self::ExtendShare => Some(KeyByKey::Alone.call(call)),
            Self::Free => Some(Call::Free { keys, token }),
            Self::FreeShare => Some(Call::FreeShare { keys, token }),
            Self::KeepEntry => Some(Call::KeepEntry { keys, token }),
        }
    }

    /// The fallback of this fallback: a share that was a whole lock before may still be one.
    const fn next(self) -> Self {
        if let Self::FreeShare = self { Self::Free } else { Self::None }
    }

    const fn key_by_key(self) -> Option<KeyByKey> {
        if let Self::ExtendShare = self { Some(KeyByKey::Alone) } else { None }
    }
}

impl Sent {
    /// The reply, for its owner; none if another call follows it.
    fn decided(&mut self, sent: Mono, reply: Reply) -> Option<Result<Reply, CallError>> {
        let Some(next) = self.key_by_key.and_then(|step| step.next(sent, &reply)) else {
            return Some(Ok(reply));
        };
        (self.call, self.send_mode) = (next.call(&self.call), SendMode::Plain);
        self.key_by_key = Some(next);
        None
    }
}

/// A request that has ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) owner: Owner,
    /// Whether its owner still waits for the answer.
    pub(super) awaited: bool,
    /// The script that was called, if it was one, and its lease.
    pub(super) script: Option<Script>,
    pub(super) ttl: Duration,
    pub(super) node: NodeId,
    pub(super) sent: Mono,
    pub(super) reply: Result<Reply, CallError>,
}

/// Why a request has no reply of its script, as far as that matters to its owner: see [`Failure`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum CallError {
    Halfway(String),
    Lost(String),
    NoQuorum(Vec<String>),
    Refused(Refusal),
    /// The request was not executed, and the right server is not connected yet.
    Unsent,
}

impl Requests {
    pub(super) fn new(cx: Context) -> Self {
        let servers = Servers::new(message::inbox(&cx.config.secret));
        let (open, waiting) = (Open::default(), FxHashMap::default());
        Self { cx, servers, open, waiting, closing: false, last: 0 }
    }

    /// How many requests have no answer yet that somebody waits for.
    pub(super) fn unanswered(&self) -> u64 {
        self.open.len() as u64
    }

    pub(super) fn is_open(&self, owner: Owner) -> bool {
        self.open.has(owner)
    }

    /// Whether an owner has an open request, or waits to send it.
    pub(super) fn is_under_way(&self, owner: Owner) -> bool {
        self.is_open(owner) || self.waiting.contains_key(&owner)
    }

    /// Whether an entry has an open request.
    pub(super) fn asks(&self, entry: TokenId) -> bool {
        self.is_open(Owner::Entry(entry)) || self.is_open(Owner::EntryBehind(entry))
    }

    /// Whether a request about a lock need not wait. It cannot wait for room where there is no connection.
    pub(super) fn has_room(&self, keys: &LockKeys) -> bool {
        let connection = &self.servers.of(keys).connection;
        connection.has_room() || self.closing || !connection.is_up()
    }

    /// Lets an owner wait for room on the connection to the server that has its lock, unless it does already.
    pub(super) fn wait(&mut self, owner: Owner, keys: &LockKeys, rank: Rank) {
        let node = self.servers.node(keys);
        let room = &mut self.servers.at(node).room;
        self.waiting.entry(owner).or_insert_with(|| {
            room.add(owner, rank);
            node
        });
    }

    /// The owner whose turn it is to ask, if there is room for its request.
    pub(super) fn next_in_turn(&mut self, node: NodeId) -> Option<Owner> {
        if self.servers.at(node).connection.has_room() { self.next_waiting(node) } else { None }
    }

    /// Takes the first owner that waits for room on a connection. Those ahead of it have left.
    fn next_waiting(&mut self, node: NodeId) -> Option<Owner> {
        loop {
            let owner = self.servers.at(node).room.next()?;
            if self.waiting.get(&owner) == Some(&node) {
                self.leave_room(owner);
                return Some(owner);
            }
        }
    }

    fn leave_room(&mut self, owner: Owner) {
        if !self.waiting.is_empty() {
            self.waiting.remove(&owner);
            self.waiting.slim();
        }
    }

    /// Everything is sent at once from now on.
    pub(super) const fn begin_close(&mut self) {
        self.closing = true;
    }

    /// The outcome of an operation that got no answer for `patience`.
    pub(super) fn no_answer(&self, owner: Owner, keys: &LockKeys, patience: Duration) -> Outcome {
        if self.waiting.contains_key(&owner) {
            let ms = patience.as_millis();
            return Outcome::Connection(format!(
                "not sent within {ms} ms: the server answers more slowly than it is asked"
            ));
        }
        self.servers.unanswered(keys, patience)
    }

    /// Sends a call to the server that has its lock. False if that is not connected: `Machine::resume` sends it later.
    pub(super) fn send(&mut self, owner: Owner, call: Call, fallback: Fallback) -> bool {
        self.send_as(Sent { owner, call, send_mode: SendMode::Plain, fallback, key_by_key: None })
    }

    fn send_as(&mut self, mut request: Sent) -> bool {
        let node = match request.send_mode {
            SendMode::Asking(node) => node,
            _ => self.servers.node(request.call.keys()),
        };
        self.cx.timers.clear(Timer::retry(request.owner));
        self.leave_room(request.owner);
        if !self.servers.at(node).connection.is_up() {
            self.servers.want(&mut self.cx, node);
            return false;
        }
        let server = self.servers.at(node);
        let issues_fences = !matches!(request.owner, Owner::Renewal(_));
        if server.data.probe_due(self.cx.now, issues_fences) {
            self.cx.push(Effect::Probe { node, sent: self.cx.now });
        }
        request.call.set_epoch(server.data.epoch);
        self.cx.stats.requests += 1;
        self.last += 1;
        let id = RequestId(self.last);
        self.open.insert(request.owner, id);
        let (call, send_mode) = (request.call.clone(), request.send_mode);
        server.connection.add(id, self.cx.now, request);
        self.cx.push(Effect::Send { node, request: id, call, send_mode });
        true
    }

    /// Lets an owner ask again at `at`, unless it asks now.
    pub(super) fn retry_at(&mut self, owner: Owner, at: Mono) {
        if !self.is_open(owner) {
            self.cx.timers.set(Timer::retry(owner), at);
        }
    }

    /// Lets an owner ask again after a short pause, unless it asks now.
    pub(super) fn retry(&mut self, owner: Owner) {
        let at = self.cx.now + self.cx.jitter(RETRY_MS);
        self.retry_at(owner, at);
    }

    /// Forgets an owner. Returns whether it has an open request.
    pub(super) fn forget(&mut self, owner: Owner) -> bool {
        self.cx.timers.clear(Timer::retry(owner));
        self.leave_room(owner);
        self.open.remove(owner)
    }

    /// A request has ended. None if it was given up before, or was sent again.
    pub(super) fn finish(
        &mut self,
        node: NodeId,
        id: RequestId,
        reply: Result<Reply, Failure>,
    ) -> Option<Finished> {
        let InFlight { sent, mut request, .. } =
            self.servers.at(node).connection.take(id, self.cx.now)?;
        self.update_server(node, sent, &reply);
        let mut finished = self.ended(node, id, sent, &request);
        let decided = match reply {
            Ok(reply) => request.decided(sent, reply),
            // The script says what is wrong, and goes where the lock is moved to.
            Err(Failure::Refused(_) | Failure::Moving(_)) if finished.script.is_none() => {
                Some(Ok(Reply::Take(Take::Unfenced)))
            }
            Err(failure) => self.redirect(&mut request, failure).err().map(Err),
        };
        finished.reply = match decided {
            Some(reply) => reply,
            None if !finished.awaited || self.send_as(request) => return None,
            None => Err(CallError::Unsent),
        };
        Some(finished)
    }

    /// Ends a request without an answer.
    fn ended(&mut self, node: NodeId, id: RequestId, sent: Mono, request: &Sent) -> Finished {
        let Sent { owner, call, .. } = request;
        let awaited = self.open.end(*owner, id);
        let (script, ttl, reply) = (call.script(), call.ttl(), Err(CallError::Unsent));
        let sent = request.key_by_key.and_then(KeyByKey::since).unwrap_or(sent);
        Finished { owner: *owner, awaited, script, ttl, node, sent, reply }
    }

    /// Prepares a request to be sent again, or returns the error for its owner. A request follows one redirection only:
    /// servers that redirect it to each other would do so until the Cluster is repaired.
    fn redirect(&mut self, request: &mut Sent, failure: Failure) -> Result<(), CallError> {
        let keys = request.call.keys();
        let redirected = CallError::Refused(Refusal::redirected(keys.slot()));
        match failure {
            Failure::NoScript => request.send_mode = SendMode::WithSource,
            Failure::Moved(to) => {
                self.servers.moved(&mut self.cx, keys, to);
                if matches!(request.send_mode, SendMode::Redirected | SendMode::Asking(_)) {
                    return Err(redirected);
                }
                request.send_mode = SendMode::Redirected;
            }
            Failure::Moving(_) if matches!(request.send_mode, SendMode::Asking(_)) => {
                return Err(redirected);
            }
            Failure::Moving(to) => request.send_mode = SendMode::Asking(to),
            Failure::Refused(refusal) => match request.fallback.of(&request.call) {
                Some(instead) if refusal.code == "TRYAGAIN" => {
                    (request.call, request.send_mode) = (instead, SendMode::Plain);
                    request.key_by_key = request.fallback.key_by_key();
                    request.fallback = request.fallback.next();
                }
                _ => return Err(CallError::Refused(refusal)),
            },
            Failure::Halfway => return Err(CallError::Halfway(failure.to_string())),
            Failure::Lost(why) => return Err(CallError::Lost(why)),
            Failure::NoQuorum(causes) => return Err(CallError::NoQuorum(causes)),
        }
        Ok(())
    }

    fn update_server(&mut self, node: NodeId, sent: Mono, reply: &Result<Reply, Failure>) {
        let server = self.servers.at(node);
        let is_replica = is_readonly(reply);
        if !is_replica && !matches!(reply, Err(Failure::Lost(_))) {
            server.connection.answered(&mut self.cx, node);
        }
        // A server whose scripts cannot read the clock leaves the time out.
        if let Ok(Reply::Held(held)) = reply
            && held.time != ServerTime::default()
        {
            server.data.compare_clocks(sent, held.time);
        }
        match reply {
            // Granting or enqueuing is a write, which a replica would have refused.
            Ok(
                Reply::Granted { .. }
                | Reply::Joined { .. }
                | Reply::HandedOff { .. }
                | Reply::Reserved { .. }
                | Reply::Take(Take::Taken { .. }),
            ) => {
                server.data.suspect = false;
            }
            Ok(Reply::Held(held)) if held.queued.is_some() => server.data.suspect = false,
            _ => server.data.suspect |= is_replica,
        }
    }

    /// A connection is lost, or is given up: ends its requests without replies. `within`: how soon a lease needs another.
    pub(super) fn disconnected(
        &mut self,
        node: NodeId,
        detail: &str,
        within: Option<Duration>,
    ) -> Option<Vec<Finished>> {
        let in_flight = self.servers.disconnected(&mut self.cx, node, detail, within)?;
        Some(self.end_lost(node, detail, in_flight))
    }

    /// Another connection has answered first: ends the requests of the one before without replies.
    pub(super) fn replaced(&mut self, node: NodeId, detail: &str) -> Option<Vec<Finished>> {
        let in_flight = self.servers.lost(&mut self.cx, node, detail)?;
        Some(self.end_lost(node, detail, in_flight))
    }

    fn end_lost(
        &mut self,
        node: NodeId,
        detail: &str,
        in_flight: VecDeque<InFlight<Sent>>,
    ) -> Vec<Finished> {
        // Those who wait ask once there is a connection, as all do that cannot ask now.
        while self.next_waiting(node).is_some() {}
        let lost = in_flight.into_iter().map(|InFlight { id, sent, request }| {
            let reply = Err(CallError::Lost(detail.to_owned()));
            Finished { reply, ..self.ended(node, id, sent, &request) }
        });
        lost.collect()
    }

    /// A lease waits for a connection, or for an answer on it, and needs another attempt `within` this time.
    pub(super) fn press(&mut self, keys: &LockKeys, within: Duration) {
        self.servers.press(&mut self.cx, keys, within);
    }

    pub(super) fn end(&mut self) {
        self.open = Open::default();
        self.waiting.clear();
        self.servers.disconnect_all(&mut self.cx);
    }
}

/// Whether a server turned out to be a replica.
pub(super) fn is_readonly(reply: &Result<Reply, Failure>) -> bool {
    matches!(reply, Err(Failure::Refused(refusal)) if refusal.code == "READONLY")
}
