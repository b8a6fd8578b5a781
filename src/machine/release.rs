//! Releases: on a caller's request, or of a grant that no caller uses.
//!
//! Once a release was sent its token is burned: no later request acquires or extends with it.

use super::context::{Context, in_order};
use super::interface::Outcome;
use super::lease::HandoffBudget;
use super::requests::{CallError, Fallback, Finished, Requests};
use super::timers::{Owner, Timer};
use crate::protocol::{
    Call, LockKeys, Mode, Mono, NodeId, OpId, Refusal, Reply, Script, ServerTime, Token, TokenId,
};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// A server may still buffer a lost request: its release is repeated this much later.
pub(super) const REPEAT_AFTER: Duration = Duration::from_secs(1);
/// The pause before the rest of a queue is served that is too long for one script.
const SERVE_ON_AFTER: Duration = Duration::from_millis(2);
/// How long a release that a server refuses is retried.
const REFUSED_MAX: Duration = Duration::from_secs(30);

/// A release of what a token has got.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent")]
pub(super) struct Release {
    pub(super) keys: LockKeys,
    token: Token,
    /// The caller that waits for it; none when a lost or unused grant is given back.
    pub(super) op: Option<OpId>,
    /// Until when the lease was valid: if a release sent before finds it gone, an earlier one has freed it.
    until: Mono,
    /// Some of its keys have moved to another server: it frees the lock or share by its own keys, without a grant to
    /// others.
    alone: bool,
    /// A release that was sent while the lease was valid has lost its reply.
    pub(super) maybe_freed: bool,
    /// The caller that gets the share, while a handoff is still possible.
    pub(super) successor: Option<Box<Successor>>,
    /// The release is of a share, which the lock's own key does not show.
    shared: bool,
    /// An acquire of this token was lost and may still be executed.
    pub(super) uncertain: bool,
    /// Since when the server has refused it.
    refused: Option<Mono>,
    /// The server's last refusal.
    refusal: Option<Refusal>,
    /// When the server first confirmed it; only the repeat is left.
    confirmed: Option<Mono>,
}

/// The caller here that gets a share by handoff.
#[derive(Debug)]
pub(super) struct Successor {
    pub(super) id: TokenId,
    pub(super) token: Token,
    pub(super) label: Box<str>,
    pub(super) ttl: Duration,
    pub(super) mode: Mode,
    pub(super) budget: HandoffBudget,
}

impl Release {
    /// Of a lease that was valid until `until`, or of an unknown grant.
    pub(super) const fn new(keys: LockKeys, token: Token, until: Mono, uncertain: bool) -> Self {
        Self {
            keys,
            token,
            op: None,
            until,
            alone: false,
            maybe_freed: false,
            successor: None,
            shared: false,
            uncertain,
            refused: None,
            refusal: None,
            confirmed: None,
        }
    }

    /// By a caller that gives up a lock or a share of it.
    pub(super) fn by_caller(
        self,
        op: OpId,
        shared: bool,
        successor: Option<Box<Successor>>,
    ) -> Self {
        Self { op: Some(op), shared, successor, ..self }
    }

    fn call(&self) -> (Call, Fallback) {
        let (keys, token) = (self.keys.clone(), self.token.clone());
        let epoch = ServerTime::default();
        let fallback = if self.shared { Fallback::FreeShare } else { Fallback::Free };
        let call = match &self.successor {
            _ if self.alone && self.shared => Call::FreeShare { keys, token },
            _ if self.alone => Call::Free { keys, token },
            None => Call::Release { keys, token, epoch },
            Some(successor) => {
                let (successor, ttl, mode) =
                    (successor.token.clone(), successor.ttl, successor.mode);
                return (
                    Call::HandoffShare { keys, token, epoch, successor, ttl, mode },
                    Fallback::None,
                );
            }
        };
        (call, fallback)
    }
}

#[derive(Debug, Default)]
pub(super) struct Releases(FxHashMap<TokenId, Release>);

impl Releases {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn ids(&self) -> Vec<TokenId> {
        in_order(&self.0)
    }

    pub(super) fn get(&self, id: TokenId) -> Option<&Release> {
        self.0.get(&id)
    }

    /// Whether the server has confirmed all. A release that waits only for its repeat does not delay closing.
    pub(super) fn are_confirmed(&self) -> bool {
        self.0.values().all(|release| release.confirmed.is_some())
    }

    /// Begins a release.
    pub(super) fn begin(&mut self, rq: &mut Requests, id: TokenId, release: Release) {
        self.0.insert(id, release);
        self.send(rq, id);
    }

    pub(super) fn send(&self, rq: &mut Requests, id: TokenId) {
        let owner = Owner::Release(id);
        if let Some(release) = self.get(id).filter(|_| !rq.is_open(owner)) {
            let (call, fallback) = release.call();
            rq.send(owner, call, fallback);
        }
    }

    /// Takes the successor of a release once the result of the handoff is known.
    pub(super) fn take_successor(&mut self, id: TokenId) -> Option<(LockKeys, Successor)> {
        let release = self.0.get_mut(&id)?;
        let successor = release.successor.take()?;
        Some((release.keys.clone(), *successor))
    }

    /// A request was answered, or never will be.
    pub(super) fn answered(&mut self, rq: &mut Requests, id: TokenId, finished: Finished) {
        let Some(release) = self.0.get_mut(&id) else { return };
        let Finished { sent, script, reply, .. } = finished;
        let alone = matches!(script, Script::Free | Script::FreeShare);
        let owner = Owner::Release(id);
        match reply {
            Ok(Reply::Owner(false)) if alone && release.op.is_none() => {
                // The token may still be in the wait queue.
                release.alone = false;
                self.refused(rq, id);
            }
            Ok(Reply::Owner(freed)) => {
                // A repeat may read "not the owner" as the success of the request before it.
                let freed = freed || release.maybe_freed;
                let outcome = if freed { Outcome::Done } else { Outcome::Lost };
                self.confirm(rq, id, sent, outcome);
            }
            Ok(Reply::More) => {
                release.maybe_freed = true;
                self.answer(&mut rq.cx, id, Outcome::Done);
                rq.retry_at(owner, rq.cx.now + SERVE_ON_AFTER);
            }
            Ok(_) => debug_assert!(false, "not a reply of release"),
            // The quorum keeps the pending withdrawals, and knows their servers.
            Err(CallError::NoQuorum(causes)) => {
                self.confirm(rq, id, sent, Outcome::Quorum(causes));
            }
            Err(CallError::Lost(_)) => {
                release.maybe_freed |= sent < release.until;
                // Requests before it on the connection may be lost too, an acquire included.
                release.uncertain = true;
                release.refused = None;
                // The reconnection of an ASK target resumes no release.
                rq.retry_at(owner, rq.cx.now + SERVE_ON_AFTER);
            }
            Err(CallError::Unsent) => rq.retry_at(owner, rq.cx.now + SERVE_ON_AFTER),
            Err(CallError::Halfway(_)) => {
                // The lock was freed first. The next waiter has lost its position, and learns that when it polls.
                release.maybe_freed |= sent < release.until;
                release.alone = true;
                rq.retry_at(owner, rq.cx.now + SERVE_ON_AFTER);
            }
            Err(CallError::Refused(refusal)) => {
                let transient = refusal.is_transient();
                release.refusal = Some(refusal);
                if !transient {
                    self.deadline(rq, id);
                }
                self.refused(rq, id);
            }
        }
    }

    /// Retries later, unless the server has refused for too long.
    fn refused(&mut self, rq: &mut Requests, id: TokenId) {
        let Some(release) = self.0.get_mut(&id) else { return };
        if rq.cx.now.since(*release.refused.get_or_insert(rq.cx.now)) >= REFUSED_MAX {
            self.deadline(rq, id);
            self.remove(rq, id);
        } else {
            rq.retry_at(Owner::Release(id), rq.cx.now + REPEAT_AFTER);
        }
    }

    fn confirm(&mut self, rq: &mut Requests, id: TokenId, sent: Mono, outcome: Outcome) {
        self.answer(&mut rq.cx, id, outcome);
        let Some(release) = self.0.get_mut(&id) else { return };
        // A repeat that a reconnection sent early does not count.
        let repeat_at = *release.confirmed.get_or_insert(rq.cx.now) + REPEAT_AFTER;
        if release.uncertain && sent < repeat_at {
            rq.retry_at(Owner::Release(id), repeat_at);
        } else {
            self.remove(rq, id);
        }
    }

    /// The caller's patience is over.
    pub(super) fn deadline(&mut self, rq: &mut Requests, id: TokenId) {
        let Some(release) = self.get(id) else { return };
        let outcome = match release.refusal.clone() {
            Some(refusal) => {
                let key = Some(release.keys.blamed_by(&refusal.detail));
                Outcome::Server { refusal, key }
            }
            None => rq.servers.unanswered(&release.keys, rq.cx.config.command_timeout),
        };
        self.answer(&mut rq.cx, id, outcome);
    }

    /// Completes the caller's operation once; the release itself goes on until the server has confirmed it.
    fn answer(&mut self, cx: &mut Context, id: TokenId, outcome: Outcome) {
        if let Some(op) = self.0.get_mut(&id).and_then(|release| release.op.take()) {
            cx.timers.clear(Timer::ReleaseDeadline(id));
            cx.complete(op, outcome);
        }
    }

    fn remove(&mut self, rq: &mut Requests, id: TokenId) {
        rq.forget(Owner::Release(id));
        self.0.remove(&id);
    }

    /// Sends the open releases whose locks `node` has.
    pub(super) fn resume(&self, rq: &mut Requests, node: NodeId) {
        for id in self.ids() {
            if self.get(id).is_some_and(|release| rq.servers.node(&release.keys) == node) {
                self.send(rq, id);
            }
        }
    }

    /// The manager has ended: fails the releases that callers wait for.
    pub(super) fn end(&mut self, rq: &mut Requests) {
        for release in std::mem::take(&mut self.0).into_values() {
            if let Some(op) = release.op {
                let error = rq.servers.of(&release.keys).connection.last_error.clone();
                rq.cx.complete(op, Outcome::Connection(error));
            }
        }
    }

    /// Whether a release hands a share off to this token.
    #[cfg(all(test, feature = "driver"))]
    pub(super) fn names_successor(&self, id: TokenId) -> bool {
        let successors = self.0.values().filter_map(|release| release.successor.as_ref());
        successors.into_iter().any(|successor| successor.id == id)
    }

    #[cfg(all(test, feature = "driver"))]
    pub(super) fn spoil(&mut self, keep: impl Fn(&Release) -> bool, change: impl Fn(&mut Release)) {
        self.0.retain(|_, release| keep(release));
        self.0.values_mut().for_each(change);
    }
}
