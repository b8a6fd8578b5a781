//! The requests to the servers. This is the one place that sends: it routes each request, handles its end, and sends it again.
//!
//! A server may not know a script by its hash (NOSCRIPT), may not carry out several requests together, may redirect a request to the server that has the lock
//! (MOVED) or gets it (ASK), or may have some keys of a moving lock no more (TRYAGAIN). Every request handles these
//! alike, so no owner learns of them. An owner that ends calls [`Servers::forget`]: its request is not sent again,
//! since its withdrawal went ahead.
//!
//! The requests in flight on a connection are bounded (`window.rs`). An owner whose request can wait looks for room first, and
//! waits if there is none. A request that a lease depends on, or that follows an answer, whose room it takes, is sent at
//! once.

use super::Servers;
use crate::machine::connection::InFlight;
use crate::machine::context::Context;
use crate::machine::interface::{Effect, Outcome};
use crate::machine::request::{CallError, Fallback, Finished, Open, Sent};
use crate::machine::timers::{Owner, Timer};
use crate::machine::waiting_room::Rank;
use crate::protocol::{
    Call, Failure, LockKeys, Mono, NodeId, Refusal, Reply, RequestId, SendMode, Take, TokenId,
};
use crate::slim::Slim;
use std::time::Duration;

/// The pause before a request to a server that is not ready, in ms.
pub(in crate::machine) const RETRY_MS: (u64, u64) = (20, 60);

impl Servers {
    /// How many requests have no answer yet that somebody waits for.
    pub(in crate::machine) fn unanswered_count(&self) -> u64 {
        self.open.len() as u64
    }

    pub(in crate::machine) fn is_open(&self, owner: Owner) -> bool {
        self.open.has(owner)
    }

    /// Whether an owner has an open request, or waits to send it.
    pub(in crate::machine) fn is_under_way(&self, owner: Owner) -> bool {
        self.is_open(owner) || self.waiting.contains_key(&owner)
    }

    /// Whether an entry has an open request.
    pub(in crate::machine) fn asks(&self, entry: TokenId) -> bool {
        self.is_open(Owner::Entry(entry)) || self.is_open(Owner::EntryBehind(entry))
    }

    /// Whether a request about a lock need not wait. It cannot wait for room where there is no connection.
    pub(in crate::machine) fn has_room(&self, keys: &LockKeys) -> bool {
        let connection = &self.of(keys).connection;
        connection.has_room() || self.closing || !connection.is_up()
    }

    /// Lets an owner wait for room on the connection to the server that has its lock, unless it does already. If it waits
    /// elsewhere, the lock has moved since.
    pub(in crate::machine) fn wait(&mut self, owner: Owner, keys: &LockKeys, rank: Rank) {
        let node = self.node(keys);
        if self.waiting.insert(owner, node) != Some(node) {
            self.at(node).room.add(owner, rank);
        }
    }

    /// The owner whose turn it is to ask, if there is room for its request.
    pub(in crate::machine) fn next_in_turn(&mut self, node: NodeId) -> Option<Owner> {
        if self.at(node).connection.has_room() { self.next_waiting(node) } else { None }
    }

    /// Takes the first owner that waits for room on a connection. Those ahead of it have left.
    pub(super) fn next_waiting(&mut self, node: NodeId) -> Option<Owner> {
        loop {
            let owner = self.at(node).room.next()?;
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
    pub(in crate::machine) const fn begin_close(&mut self) {
        self.closing = true;
    }

    /// The outcome of an operation that got no answer for `patience`.
    pub(in crate::machine) fn no_answer(
        &self,
        owner: Owner,
        keys: &LockKeys,
        patience: Duration,
    ) -> Outcome {
        if self.waiting.contains_key(&owner) {
            let ms = patience.as_millis();
            return Outcome::Connection(format!(
                "not sent within {ms} ms: the server answers more slowly than it is asked"
            ));
        }
        self.unanswered(keys, patience)
    }

    /// Sends a call to the server that has its lock. False if that is not connected: `Machine::resume` sends it later.
    pub(in crate::machine) fn send(
        &mut self,
        context: &mut Context,
        owner: Owner,
        call: Call,
        fallback: Fallback,
    ) -> bool {
        self.send_as(context, Sent::new(owner, call, fallback))
    }

    fn send_again(&mut self, context: &mut Context, mut request: Sent) -> bool {
        request.repeat();
        self.send_as(context, request)
    }

    fn send_as(&mut self, context: &mut Context, mut request: Sent) -> bool {
        let node = match request.send_mode {
            SendMode::Asking(node) => node,
            _ => self.node(request.call.keys()),
        };
        context.timers.clear(Timer::retry(request.owner));
        self.leave_room(request.owner);
        if !self.at(node).connection.is_up() {
            self.want(context, node);
            return false;
        }
        self.last_request += 1;
        let id = RequestId(self.last_request);
        self.open.insert(request.owner, id);
        let server = self.at(node);
        let issues_fences = !matches!(request.owner, Owner::Renewal(_));
        if server.data.probe_due(context.now, issues_fences) {
            context.push(Effect::Probe { node, sent: context.now });
        }
        request.call.set_epoch(server.data.epoch);
        context.stats.requests += 1;
        let (call, send_mode) = (request.call.clone(), request.send_mode);
        server.connection.add(id, context.now, request);
        context.push(Effect::Send { node, request: id, call, send_mode });
        true
    }

    /// Lets an owner ask again at `at`, unless it asks now.
    pub(in crate::machine) fn retry_at(&self, context: &mut Context, owner: Owner, at: Mono) {
        if !self.is_open(owner) {
            context.timers.set(Timer::retry(owner), at);
        }
    }

    /// Lets an owner ask again after a short pause, unless it asks now.
    pub(in crate::machine) fn retry(&self, context: &mut Context, owner: Owner) {
        let at = context.now + context.jitter(RETRY_MS);
        self.retry_at(context, owner, at);
    }

    /// Forgets an owner. Returns whether it has an open request.
    pub(in crate::machine) fn forget(&mut self, context: &mut Context, owner: Owner) -> bool {
        context.timers.clear(Timer::retry(owner));
        self.leave_room(owner);
        self.open.remove(owner)
    }

    /// A request has ended. None if it was given up before, or was sent again.
    pub(in crate::machine) fn finish(
        &mut self,
        context: &mut Context,
        node: NodeId,
        id: RequestId,
        reply: Result<Reply, Failure>,
    ) -> Option<Finished> {
        let taken = self.at(node).connection.take(id, context.now)?;
        let InFlight { sent, mut request, .. } = taken;
        self.answered(context, node, sent, &reply);
        let mut finished = request.ended(node, sent, self.open.end(request.owner, id));
        let decided = match reply {
            Ok(reply) => request.decided(sent, reply),
            // The script says what is wrong, and goes where the lock is moved to.
            Err(Failure::Refused(_) | Failure::Moving(_)) if finished.script.is_none() => {
                Some(Ok(Reply::Take(Take::Unfenced)))
            }
            Err(failure) => self.redirect(context, &mut request, failure).err().map(Err),
        };
        finished.reply = match decided {
            Some(reply) => reply,
            None if !finished.awaited || self.send_again(context, request) => return None,
            None => Err(CallError::Unsent),
        };
        Some(finished)
    }

    /// Ends all requests and connections.
    pub(in crate::machine) fn end(&mut self, context: &mut Context) {
        self.open = Open::default();
        self.waiting.clear();
        self.disconnect_all(context);
    }

    /// Prepares a request to be sent again, or returns the error for its owner. A request follows one redirection only:
    /// servers that redirect it to each other would do so until the Cluster is repaired.
    fn redirect(
        &mut self,
        context: &mut Context,
        request: &mut Sent,
        failure: Failure,
    ) -> Result<(), CallError> {
        let keys = request.call.keys();
        let redirected = CallError::Refused(Refusal::redirected(keys.slot()));
        match failure {
            Failure::NoScript => request.send_mode = SendMode::WithSource,
            Failure::Together => request.send_mode = SendMode::Alone,
            Failure::Moved(to) => {
                self.moved(context, keys, to);
                if matches!(request.send_mode, SendMode::Redirected | SendMode::Asking(_)) {
                    return Err(redirected);
                }
                request.send_mode = SendMode::Redirected;
            }
            Failure::Moving(_) if matches!(request.send_mode, SendMode::Asking(_)) => {
                return Err(redirected);
            }
            Failure::Moving(to) => request.send_mode = SendMode::Asking(to),
            Failure::Refused(refusal) if refusal.code == "TRYAGAIN" && request.fall_back() => {}
            Failure::Refused(refusal) => return Err(CallError::Refused(refusal)),
            Failure::Halfway => return Err(CallError::Halfway(failure.to_string())),
            Failure::Lost(why) => return Err(CallError::Lost(why)),
            Failure::NoQuorum(causes) => return Err(CallError::NoQuorum(causes)),
        }
        Ok(())
    }
}
