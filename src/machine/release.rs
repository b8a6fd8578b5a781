//! Giving a lock back: on request, or because nobody wants what an attempt may have got.
//!
//! Once a release was sent its token is burned: nothing acquires or extends with it again.

use super::hand_on::Heir;
use super::{
    AttemptId, Effect, LeaseId, Machine, Manner, NodeId, OpId, Outcome, Purpose, Timer, in_order,
};
use crate::clock::Mono;
use crate::error::{Failure, Refusal};
use crate::keys::LockKeys;
use crate::script::{Call, Reply};
use crate::token::Token;
use std::time::Duration;

/// A lost request may still lie in a buffer of the server: its release is repeated this much later.
const REPEAT_AFTER: Duration = Duration::from_secs(1);
/// A line that is too long to be walked at once is walked on after so long.
const WALK_ON_AFTER: Duration = Duration::from_millis(2);
/// How long a server that refuses to release is asked again.
const REFUSED_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent")]
pub(super) struct Release {
    pub(super) keys: LockKeys,
    token: Token,
    /// Who waits for it; none when a lost or unwanted grant is given back.
    pub(super) op: Option<OpId>,
    /// Until when the lease was valid: whoever asks before and finds it gone had freed it.
    until: Mono,
    deadline: Option<Mono>,
    retry: Option<Mono>,
    sending: bool,
    /// Some of its keys are on another server already: what is given up is freed by its own keys, and nobody is granted it.
    alone: bool,
    /// A release that went out while the lease was valid has lost its reply.
    pub(super) maybe_freed: bool,
    /// Who gets what is given up, while that may still be.
    pub(super) heir: Option<Box<Heir>>,
    /// What is given up is a share, of which the lock's own key tells nothing.
    shared: bool,
    /// An acquire of this token was lost and may still be executed.
    pub(super) uncertain: bool,
    /// Since when the server refuses.
    refused: Option<Mono>,
    /// What the server said last, if it refused.
    refusal: Option<Refusal>,
    /// When the server first confirmed it; only the repeat is left.
    pub(super) confirmed: Option<Mono>,
}

/// A release that waits for the answer to a renewal: if that says that the lock is held, it is handed on here.
#[derive(Debug)]
pub(super) struct Undecided {
    op: OpId,
    /// Until when its caller waits.
    deadline: Mono,
}

impl Release {
    fn new(keys: LockKeys, token: Token, until: Mono, uncertain: bool) -> Self {
        Self {
            keys,
            token,
            op: None,
            until,
            deadline: None,
            retry: None,
            sending: false,
            alone: false,
            maybe_freed: false,
            heir: None,
            shared: false,
            uncertain,
            refused: None,
            refusal: None,
            confirmed: None,
        }
    }
}

impl Machine {
    pub(super) fn begin_release(
        &mut self,
        now: Mono,
        op: OpId,
        lease: LeaseId,
        exported: bool,
        out: &mut Vec<Effect>,
    ) {
        let given_up = self.undecided.contains_key(&lease.attempt());
        if given_up || self.hold_of(lease).is_none_or(|held| held.until <= now) {
            // Lost before, or released before; the end of the lease gives back what is left of it.
            return out.push(Effect::Complete { op, outcome: Outcome::Lost });
        }
        let deadline = now + self.config.command_timeout;
        if exported {
            return self.release_at_server(now, op, lease, deadline, None, out);
        }
        let unanswered = self.hold_of(lease).is_some_and(|held| self.is_unanswered(held));
        if unanswered && self.successor(now, lease).is_some() {
            self.undecided.insert(lease.attempt(), Undecided { op, deadline });
            return;
        }
        self.release_or_hand_on(now, op, lease, deadline, out);
    }

    fn release_or_hand_on(
        &mut self,
        now: Mono,
        op: OpId,
        lease: LeaseId,
        deadline: Mono,
        out: &mut Vec<Effect>,
    ) {
        if self.hand_on(now, lease, out) {
            return out.push(Effect::Complete { op, outcome: Outcome::Done });
        }
        let heir = self.heir(now, lease);
        self.release_at_server(now, op, lease, deadline, heir, out);
    }

    /// A renewal or an extension was answered, or never will be: decides the release that has waited for it.
    pub(super) fn decide_release(
        &mut self,
        now: Mono,
        id: Option<AttemptId>,
        out: &mut Vec<Effect>,
    ) {
        let Some(id) = id.filter(|id| self.undecided.contains_key(id)) else { return };
        let Some(held) = self.leases.get(&id).filter(|held| !self.is_unanswered(held)) else {
            return;
        };
        let lease = held.id;
        if let Some(Undecided { op, deadline }) = self.undecided.remove(&id) {
            self.release_or_hand_on(now, op, lease, deadline, out);
        }
    }

    /// A lease has ended: its release comes too late.
    pub(super) fn end_undecided(&mut self, id: AttemptId, out: &mut Vec<Effect>) {
        if self.undecided.is_empty() {
            return;
        }
        if let Some(Undecided { op, .. }) = self.undecided.remove(&id) {
            out.push(Effect::Complete { op, outcome: Outcome::Lost });
        }
    }

    /// The manager is closed: nothing is handed on any more.
    pub(super) fn release_undecided(&mut self, now: Mono, out: &mut Vec<Effect>) {
        for id in in_order(&self.undecided) {
            let Some(lease) = self.leases.get(&id).map(|held| held.id) else { continue };
            if let Some(Undecided { op, deadline }) = self.undecided.remove(&id) {
                self.release_at_server(now, op, lease, deadline, None, out);
            }
        }
    }

    fn release_at_server(
        &mut self,
        now: Mono,
        op: OpId,
        lease: LeaseId,
        deadline: Mono,
        heir: Option<Box<Heir>>,
        out: &mut Vec<Effect>,
    ) {
        let id = lease.attempt();
        let Some(held) = self.remove_lease(id, out) else { return };
        self.move_entries_back(now, &held.keys, out);
        self.timers.insert((deadline, Timer::ReleaseDeadline(id)));
        let token = self.token_of(&held);
        let mut release = Release::new(held.keys, token, held.until, held.uncertain);
        release.op = Some(op);
        release.deadline = Some(deadline);
        release.heir = heir;
        release.shared = held.mode.is_shared();
        self.releases.insert(id, release);
        self.send_release(now, id, Manner::Plain, out);
    }

    /// Gives back what a token has got or may yet get. Nobody waits for it.
    pub(super) fn abandon(
        &mut self,
        now: Mono,
        id: AttemptId,
        keys: LockKeys,
        token: Token,
        uncertain: bool,
        out: &mut Vec<Effect>,
    ) {
        self.releases.insert(id, Release::new(keys, token, now, uncertain));
        self.send_release(now, id, Manner::Plain, out);
    }

    pub(super) fn send_release(
        &mut self,
        now: Mono,
        id: AttemptId,
        manner: Manner,
        out: &mut Vec<Effect>,
    ) {
        let Some(release) = self.releases.get(&id) else { return };
        let epoch = self.link_of(&release.keys).epoch;
        let Some(release) = self.releases.get_mut(&id) else {
            return;
        };
        if release.sending {
            return;
        }
        if let Some(at) = release.retry.take() {
            self.timers.remove(&(at, Timer::ReleaseRetry(id)));
        }
        let (keys, token) = (release.keys.clone(), release.token.clone());
        let call = if release.alone && release.shared {
            Call::FreeShare { keys, token }
        } else if release.alone {
            Call::Free { keys, token }
        } else if let Some(heir) = &release.heir {
            let (heir, ttl, mode) = (heir.token.clone(), heir.ttl, heir.mode);
            Call::Pass { keys, token, epoch, heir, ttl, mode }
        } else {
            Call::Release { keys, token, epoch }
        };
        let sending = self.send(now, Purpose::Release(id), call, manner, out).is_some();
        if let Some(release) = self.releases.get_mut(&id) {
            release.sending = sending;
        }
    }

    pub(super) fn release_reply(
        &mut self,
        now: Mono,
        node: NodeId,
        id: AttemptId,
        sent: Mono,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        let Some(release) = self.releases.get_mut(&id) else {
            return;
        };
        release.sending = false;
        let Some(reply) = self.passed(now, node, id, sent, reply, out) else { return };
        let Some(release) = self.releases.get_mut(&id) else { return };
        let alone = release.alone;
        match reply {
            Ok(Reply::Owner(false)) if alone && release.op.is_none() => {
                // It may stand in line still.
                release.alone = false;
                self.release_refused(now, id, out);
            }
            Ok(Reply::Owner(freed)) => {
                // A repeat may read "not the owner" as the success of the request before it.
                let freed = freed || release.maybe_freed;
                let outcome = if freed { Outcome::Done } else { Outcome::Lost };
                self.confirm_release(now, id, sent, outcome, out);
            }
            Ok(Reply::More) => {
                release.maybe_freed = true;
                self.answer_release(id, Outcome::Done, out);
                self.retry_release(id, now + WALK_ON_AFTER);
            }
            Ok(_) => debug_assert!(false, "not a reply of release"),
            // The rest is owed by the quorum, which knows to which servers.
            Err(Failure::NoQuorum(causes)) => {
                self.confirm_release(now, id, sent, Outcome::Quorum(causes), out);
            }
            Err(Failure::Lost(_)) => {
                release.maybe_freed |= sent < release.until;
                // Whatever went ahead of it on the connection may be lost too, an acquire included.
                release.uncertain = true;
                release.refused = None;
                // Where its slot moves to, nobody asks again once connected.
                self.release_later(now, id);
            }
            Err(Failure::NoScript) => self.send_release(now, id, Manner::WithSource, out),
            Err(Failure::Moved(_)) => self.send_release(now, id, Manner::Redirected, out),
            Err(Failure::Moving(to)) => {
                self.send_release(now, id, Manner::Asking(to), out);
                self.release_later(now, id);
            }
            Err(Failure::Halfway) => {
                // The lock was freed first. Who was next has lost its place, and finds out when it asks.
                release.maybe_freed |= sent < release.until;
                release.alone = true;
                self.release_later(now, id);
            }
            // Some of its keys have moved already: the lock itself can be freed at least.
            Err(Failure::Refused(refusal)) if refusal.code == "TRYAGAIN" && !alone => {
                release.alone = true;
                self.send_release(now, id, Manner::Plain, out);
            }
            Err(Failure::Refused(refusal)) => {
                release.refusal = Some(refusal.clone());
                if !refusal.is_transient() {
                    self.release_deadline(id, out);
                }
                self.release_refused(now, id, out);
            }
        }
    }

    /// Asks again later, unless the server has refused for long.
    fn release_refused(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let Some(release) = self.releases.get_mut(&id) else { return };
        if now.since(*release.refused.get_or_insert(now)) >= REFUSED_MAX {
            self.release_deadline(id, out);
            self.remove_release(id);
            self.finish_close_if_done(out);
        } else {
            self.retry_release(id, now + REPEAT_AFTER);
        }
    }

    /// Asks again after a short pause, if nobody asks now.
    fn release_later(&mut self, now: Mono, id: AttemptId) {
        if self.releases.get(&id).is_some_and(|release| !release.sending) {
            self.retry_release(id, now + WALK_ON_AFTER);
        }
    }

    fn confirm_release(
        &mut self,
        now: Mono,
        id: AttemptId,
        sent: Mono,
        outcome: Outcome,
        out: &mut Vec<Effect>,
    ) {
        self.answer_release(id, outcome, out);
        let Some(release) = self.releases.get_mut(&id) else {
            return;
        };
        // A reconnect may have asked earlier than planned, and that does not count.
        let repeat_at = *release.confirmed.get_or_insert(now) + REPEAT_AFTER;
        if release.uncertain && sent < repeat_at {
            self.retry_release(id, repeat_at);
        } else {
            self.remove_release(id);
        }
        self.finish_close_if_done(out);
    }

    pub(super) fn release_deadline(&mut self, id: AttemptId, out: &mut Vec<Effect>) {
        let Some(release) = self.releases.get(&id) else {
            return;
        };
        let outcome = match release.refusal.clone() {
            Some(refusal) => {
                let key = Some(release.keys.blamed_by(&refusal.detail));
                Outcome::Server { refusal, key }
            }
            None => self.unanswered(&release.keys, self.config.command_timeout),
        };
        self.answer_release(id, outcome, out);
    }

    /// Tells the caller once; the release itself goes on until the server has confirmed it.
    fn answer_release(&mut self, id: AttemptId, outcome: Outcome, out: &mut Vec<Effect>) {
        let Some(release) = self.releases.get_mut(&id) else {
            return;
        };
        if let Some(at) = release.deadline.take() {
            self.timers.remove(&(at, Timer::ReleaseDeadline(id)));
        }
        if let Some(op) = release.op.take() {
            out.push(Effect::Complete { op, outcome });
        }
    }

    fn retry_release(&mut self, id: AttemptId, at: Mono) {
        let Some(release) = self.releases.get_mut(&id) else {
            return;
        };
        release.retry = Some(at);
        self.timers.insert((at, Timer::ReleaseRetry(id)));
    }

    fn remove_release(&mut self, id: AttemptId) {
        if let Some(release) = self.releases.remove(&id)
            && let Some(at) = release.retry
        {
            self.timers.remove(&(at, Timer::ReleaseRetry(id)));
        }
    }
}
