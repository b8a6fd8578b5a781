//! Releases: on a caller's request, or of a grant that no caller uses.
//!
//! Once a release was sent its token is burned: no later request acquires or extends with it. Only a value that its caller
//! has chosen may be adopted anew, here or in another process, and names no hold. So its release is sent once, while the
//! lease is valid, and never repeated without an answer: that could free a later hold under the same value.

use super::context::Context;
use super::interface::Outcome;
use super::queue_entry::Entry;
use super::request::{CallError, Fallback, Finished};
use super::servers::Servers;
use super::timers::{Owner, Timer};
use super::waiting_room::Rank;
use crate::protocol::{
    Call, LockKeys, Mode, Mono, OpId, Refusal, Reply, Script, ServerTime, Token, TokenId,
    WRONG_TYPE,
};
use std::time::Duration;

/// A server may still buffer a lost request: its release is repeated this much later.
pub(super) const REPEAT_AFTER: Duration = Duration::from_secs(1);
/// The pause before the rest of a queue is served that is too long for one script.
const SERVE_ON_AFTER: Duration = Duration::from_millis(2);
/// How long a release that a server refuses is retried.
const REFUSED_MAX: Duration = Duration::from_secs(30);

/// A release of the lock, share or queue entry of one token.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent")]
pub(super) struct Release {
    pub(super) keys: LockKeys,
    pub(super) token: Token,
    /// Whether the token is a value that its caller has chosen.
    pub(super) chosen: bool,
    /// The caller that waits for it; none when a lost or unused grant is given back.
    pub(super) op: Option<OpId>,
    /// Until when the lease was valid: if a release sent before finds it gone, an earlier one has freed it.
    until: Mono,
    /// Some of its keys have moved to another server: it frees the lock or share by its own keys, without a grant to
    /// others.
    alone: bool,
    /// No waiter is known, so it begins with the call that only deletes the lock.
    pub(super) fast_path: bool,
    /// A release that was sent while the lease was valid has lost its reply.
    pub(super) maybe_freed: bool,
    /// The caller that gets the share, while a handoff is still possible.
    pub(super) successor: Option<Successor>,
    /// The release is of a share, which the lock's own key does not show.
    pub(super) shared: bool,
    /// An acquire of this token was lost and may still be executed.
    pub(super) uncertain: bool,
    /// The time of the first refusal since the server last did not refuse.
    refused: Option<Mono>,
    /// The server's last refusal.
    refusal: Option<Refusal>,
    /// When the server first confirmed it; only the repeat is left.
    confirmed: Option<Mono>,
}

/// The entry of the caller here that gets a share by handoff, and its token's number.
pub(super) type Successor = (TokenId, Box<Entry>);

impl Release {
    /// Releases a lease that was valid until `until`, or an unknown grant.
    pub(super) const fn new(keys: LockKeys, token: Token, until: Mono, uncertain: bool) -> Self {
        Self {
            keys,
            token,
            chosen: false,
            op: None,
            until,
            alone: false,
            fast_path: false,
            maybe_freed: false,
            successor: None,
            shared: false,
            uncertain,
            refused: None,
            refusal: None,
            confirmed: None,
        }
    }

    fn call(&self) -> (Call, Fallback) {
        let (keys, token) = (self.keys.clone(), self.token.clone());
        let epoch = ServerTime::default();
        let by_share = self.shared && !self.alone;
        let fallback = if by_share { Fallback::FreeShare } else { Fallback::Free };
        let call = match &self.successor {
            _ if self.alone && self.shared => Call::FreeShare { keys, token },
            _ if self.alone => Call::Free { keys, token },
            None if self.fast_path => {
                let token = if self.shared { token.lone_share() } else { token };
                return (Call::Delete { keys, token }, Fallback::None);
            }
            None => Call::Release { keys, token, epoch, shared: self.shared },
            Some((_, successor)) => {
                let (successor, ttl, mode) =
                    (successor.token.clone(), successor.ttl, successor.mode);
                let call = Call::HandoffShare { keys, token, epoch, successor, ttl, mode };
                return (call, Fallback::None);
            }
        };
        (call, fallback)
    }

    /// Whether the server has confirmed it. A release that waits only for its repeat does not delay closing.
    pub(super) const fn is_confirmed(&self) -> bool {
        self.confirmed.is_some()
    }

    /// Whether it is too late for it: a lease that has ended may be followed by another process's, under the same value.
    pub(super) fn is_too_late(&self, now: Mono) -> bool {
        self.chosen && self.until <= now
    }

    /// Sends it in its turn, unless it has an open request.
    pub(super) fn send(&self, context: &mut Context, servers: &mut Servers, id: TokenId) {
        let owner = Owner::Release(id);
        if servers.is_open(owner) {
            return;
        }
        if servers.has_room(&self.keys) {
            self.send_now(context, servers, id);
        } else {
            servers.wait(owner, &self.keys, Rank::Known);
        }
    }

    fn send_now(&self, context: &mut Context, servers: &mut Servers, id: TokenId) {
        let (call, fallback) = self.call();
        servers.send(context, Owner::Release(id), call, fallback);
    }

    /// A request was answered, or never will be. Returns whether the release is over.
    pub(super) fn answered(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        id: TokenId,
        finished: Finished,
    ) -> bool {
        let Finished { sent, script, reply, .. } = finished;
        match reply {
            Ok(Reply::Owner(true)) => self.confirm(context, servers, id, sent, Outcome::Done),
            Ok(Reply::Owner(false)) => self.not_owner(context, servers, id, sent, script),
            Ok(Reply::More) => {
                self.maybe_freed = true;
                if self.chosen {
                    // The lock is free. A token of nobody serves the rest of the queue.
                    self.token = context.token(id, Mode::Exclusive, "");
                    self.chosen = false;
                }
                self.answer(context, id, Outcome::Done);
                Self::send_later(context, servers, id)
            }
            Ok(_) => {
                debug_assert!(false, "not a reply of release");
                false
            }
            Err(error) => self.failed(context, servers, id, (sent, script), error),
        }
    }

    /// The server knows no such owner, or not where the script looked.
    fn not_owner(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        id: TokenId,
        sent: Mono,
        script: Option<Script>,
    ) -> bool {
        match script {
            // Somebody waits, or the lock is lost.
            Some(Script::Delete) => self.go_on_by_release(context, servers, id),
            // The token may still be in the wait queue, unless it was chosen.
            Some(Script::Free | Script::FreeShare) if self.op.is_none() && !self.chosen => {
                self.alone = false;
                self.refused(context, servers, id)
            }
            // The last fallback has found no whole lock. Whether there is a share, its keys tell once they are in one
            // place.
            Some(Script::Free) if self.shared => {
                self.refusal = Some(Refusal::apart(self.keys.slot()));
                self.refused(context, servers, id)
            }
            _ => self.is_over(context, servers, id, sent),
        }
    }

    /// There is nothing to release. A repeat may read the success of the request before it so.
    fn is_over(
        &mut self,
        context: &mut Context,
        servers: &Servers,
        id: TokenId,
        sent: Mono,
    ) -> bool {
        let outcome = if self.maybe_freed { Outcome::Done } else { Outcome::Lost };
        self.confirm(context, servers, id, sent, outcome)
    }

    /// The call that only deletes the lock has not freed it.
    fn go_on_by_release(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        id: TokenId,
    ) -> bool {
        self.fast_path = false;
        self.send_now(context, servers, id);
        false
    }

    /// There is no answer, or an error.
    fn failed(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        id: TokenId,
        (sent, script): (Mono, Option<Script>),
        error: CallError,
    ) -> bool {
        match error {
            // The quorum keeps the pending withdrawals, and knows their servers.
            CallError::NoQuorum(causes) => {
                return self.confirm(context, servers, id, sent, Outcome::Quorum(causes));
            }
            CallError::Refused(refusal) if self.denies_lock(&refusal) => {
                return self.is_over(context, servers, id, sent);
            }
            // A server may refuse its own command of late, or stand in for one that had it.
            CallError::Refused(refusal)
                if script == Some(Script::Delete) && !refusal.is_transient() =>
            {
                return self.go_on_by_release(context, servers, id);
            }
            CallError::Refused(refusal) => {
                let transient = refusal.is_transient();
                self.refusal = Some(refusal);
                if !transient {
                    self.deadline(context, servers, id);
                }
                return self.refused(context, servers, id);
            }
            CallError::Lost(why) if self.chosen => {
                let outcome = self.undecided(context, Outcome::Connection(why));
                self.answer(context, id, outcome);
                return true;
            }
            CallError::Halfway(_) if self.chosen => {
                self.answer(context, id, Outcome::Done);
                return true;
            }
            CallError::Lost(_) => {
                self.maybe_freed |= sent < self.until;
                // Requests before it on the connection may be lost too, an acquire included.
                self.uncertain = true;
                self.refused = None;
            }
            CallError::Unsent => {}
            CallError::Halfway(_) => {
                // The lock was freed first. The next waiter has lost its position, and learns that when it polls.
                self.maybe_freed |= sent < self.until;
                self.alone = true;
            }
        }
        Self::send_later(context, servers, id)
    }

    /// The reconnection of an ASK target resumes no release, so a timer does.
    fn send_later(context: &mut Context, servers: &Servers, id: TokenId) -> bool {
        servers.retry_at(context, Owner::Release(id), context.now + SERVE_ON_AFTER);
        false
    }

    /// Whether other code has written another type over the lock's key, so that it holds no lock.
    fn denies_lock(&self, refusal: &Refusal) -> bool {
        refusal.code == WRONG_TYPE && self.keys.named_by(&refusal.detail).is_none()
    }

    /// Retries later; true if the server has refused for too long.
    fn refused(&mut self, context: &mut Context, servers: &Servers, id: TokenId) -> bool {
        let since = *self.refused.get_or_insert(context.now);
        let is_over = context.now.since(since) >= REFUSED_MAX;
        if is_over {
            self.deadline(context, servers, id);
        } else {
            servers.retry_at(context, Owner::Release(id), context.now + REPEAT_AFTER);
        }
        is_over
    }

    fn confirm(
        &mut self,
        context: &mut Context,
        servers: &Servers,
        id: TokenId,
        sent: Mono,
        outcome: Outcome,
    ) -> bool {
        self.answer(context, id, outcome);
        // A repeat that a reconnection sent early does not count.
        let repeat_at = *self.confirmed.get_or_insert(context.now) + REPEAT_AFTER;
        let repeats = self.uncertain && sent < repeat_at;
        if repeats {
            servers.retry_at(context, Owner::Release(id), repeat_at);
        }
        !repeats
    }

    pub(super) fn is_of(&self, token: &Token) -> bool {
        self.token == *token
    }

    /// Its token gets the lock anew: nothing is left to release.
    pub(super) fn give_up(&mut self, context: &mut Context, id: TokenId) {
        let outcome = if self.maybe_freed { Outcome::Done } else { Outcome::Lost };
        self.answer(context, id, outcome);
    }

    /// The caller's patience is over.
    pub(super) fn deadline(&mut self, context: &mut Context, servers: &Servers, id: TokenId) {
        let outcome = if let Some(refusal) = self.refusal.clone() {
            let key = Some(self.keys.blamed_by(&refusal.detail));
            Outcome::Server { refusal, key }
        } else {
            let patience = context.config.command_timeout;
            let outcome = servers.no_answer(Owner::Release(id), &self.keys, patience);
            if self.chosen { self.undecided(context, outcome) } else { outcome }
        };
        self.answer(context, id, outcome);
    }

    /// The outcome of a release that is not repeated, though it may not have been executed.
    fn undecided(&self, context: &Context, outcome: Outcome) -> Outcome {
        let Outcome::Connection(why) = outcome else { return outcome };
        let ms = self.until.since(context.now).as_millis();
        Outcome::Connection(format!(
            "{why}; it may still be held until its lease ends, in about {ms} ms: a value that others may have is not \
             released again, so acquire it then"
        ))
    }

    /// Completes the caller's operation once; the release itself goes on until the server has confirmed it.
    fn answer(&mut self, context: &mut Context, id: TokenId, outcome: Outcome) {
        if let Some(op) = self.op.take() {
            context.timers.clear(Timer::ReleaseDeadline(id));
            context.complete(op, outcome);
        }
    }
}
