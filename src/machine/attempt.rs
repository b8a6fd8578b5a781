//! One token's way to a lock: asking, standing in line, being granted.
//!
//! A grant comes in the answer to a request, or by a message from whoever gave the lock up. Messages
//! are hints; an attempt that stands in line asks again from time to time, which also tells the server
//! that somebody still waits.

use super::confirm::Granted;
use super::hand_on::Turn;
use super::renew::Owed;
use super::{
    AttemptId, Effect, Lease, LeaseId, Machine, Manner, NodeId, OpId, Outcome, Purpose, RequestId,
    Timer,
};
use crate::clock::Mono;
use crate::error::{Failure, Refusal};
use crate::keys::LockKeys;
use crate::message::Grant;
use crate::script::{CLAIM, Call, Held, Intent, Mode, Reply, valid_until};
use crate::token::{TOKEN_PREFIX, Token};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) keys: LockKeys,
    pub(super) whose: Whose,
    pub(super) way: Way,
    pub(super) mode: Mode,
    /// Why the lock is not its own yet.
    pub(super) obstacle: Obstacle,
    token: Token,
    /// The one in its token.
    label: Box<str>,
    /// The lease that was asked for last: that of whoever is first in line.
    ttl: Duration,
    /// The longest that was asked for: the server may have given as much.
    longest: Duration,
    /// What is left of its process's turn, if it was passed on to it.
    pub(super) turn: Option<Turn>,
    /// How many fences its grant reserves. Never changes, so that a repeat finds the same fence.
    block: u8,
    place: Place,
    /// When the caller came for whom it has this place.
    since: Mono,
    /// The request under way.
    request: Option<RequestId>,
    /// When it asks again.
    retry: Option<Mono>,
    /// A message said that it has the lock, but not for how long; on a quorum, that it may be free.
    hinted: bool,
    /// It has the lock, but not enough replicas are known to have that too.
    pub(super) unconfirmed: Option<Granted>,
    /// How often it was refused since there was a sign that the lock may be free.
    misses: u32,
    /// A request of this token was lost and may still be executed.
    pub(super) uncertain: bool,
}

/// Whom an attempt serves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Whose {
    /// One caller, who does not wait.
    Caller(OpId),
    /// Whoever is first in the line of its lock.
    Line,
}

/// What an attempt does about a lock that somebody else holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    /// Takes it away, once an answer has told the last fence issued: nobody who came later is robbed.
    Steal(Option<u64>),
    /// Nothing.
    Try,
    /// Stands in line.
    Wait,
}

#[derive(Debug)]
pub(super) enum Obstacle {
    /// The grant came when its lease was over already.
    Late,
    /// Nothing is known: not asked yet, or no answer.
    Unanswered,
    Held(Held),
    /// No majority of the servers could be reached.
    NoQuorum(Vec<String>),
    Refused(Refusal),
}

/// Where an attempt stands on the server, as far as is known.
#[derive(Clone, Copy, Debug)]
enum Place {
    Unknown,
    InLine(u64),
    /// The server has forgotten it; it gets its old place again.
    Lost(u64),
}

/// A place in line is confirmed at least so often, with jitter.
const POLL_MS: (u64, u64) = (2_000, 5_000);
/// Old code frees a lock without telling anybody; also the pace of those who get no messages.
const BLIND_POLL_MS: (u64, u64) = (100, 140);
/// Those who are woken at the same time by a quorum ask so far apart: longer than taking a lock lasts.
const WOKEN_MS: (u64, u64) = (0, 10);
/// The first pause of who was refused by a quorum.
const CONTENDED_MS: (u64, u64) = (10, 40);
/// A server that is not ready is asked again after so long.
pub(super) const RETRY_MS: (u64, u64) = (20, 60);

/// Whether other code holds a lock whose holder is named so.
pub(super) fn is_foreign(holder: &str) -> bool {
    !holder.is_empty() && !holder.starts_with(TOKEN_PREFIX)
}

impl Attempt {
    /// Reserves one fence.
    pub(super) const fn new(
        keys: LockKeys,
        token: Token,
        ttl: Duration,
        label: Box<str>,
        mode: Mode,
        whose: Whose,
        way: Way,
    ) -> Self {
        Self {
            keys,
            whose,
            way,
            mode,
            obstacle: Obstacle::Unanswered,
            token,
            label,
            ttl,
            longest: ttl,
            turn: None,
            block: 1,
            place: Place::Unknown,
            since: Mono::NEVER,
            request: None,
            retry: None,
            hinted: false,
            unconfirmed: None,
            misses: 0,
            uncertain: false,
        }
    }

    /// Whether this is its token.
    pub(super) fn is(&self, token: &Token) -> bool {
        self.token == *token
    }

    /// Its caller came at `since`, and it has no place ahead of those who came earlier: `seq`, if that is known.
    pub(super) fn take_place(&mut self, since: Mono, seq: Option<u64>) {
        self.since = since;
        if let Some(seq) = seq {
            self.place = Place::Lost(seq);
        }
    }

    /// Whether its place is that of an earlier caller than one who came at `began`, whose place is `seq`, and can be
    /// changed now.
    pub(super) fn is_ahead_of(&self, began: Mono, seq: u64) -> bool {
        let is_ahead = matches!(self.place, Place::InLine(place) if place < seq);
        is_ahead && self.since < began && self.request.is_none()
    }

    /// Whether it takes the lock from those who have it, now that `last` is the last fence issued. If an
    /// answer was lost it may have had the lock already, and who has it since is not robbed.
    fn may_steal(&self, last: u64) -> bool {
        match self.way {
            Way::Steal(None) => true,
            Way::Steal(Some(seen)) => seen != last && !self.uncertain,
            Way::Try | Way::Wait => false,
        }
    }
}

impl Machine {
    pub(super) fn new_attempt(
        &mut self,
        keys: &LockKeys,
        ttl: Duration,
        label: &str,
        mode: Mode,
        block: u8,
        whose: Whose,
        way: Way,
    ) -> AttemptId {
        let id = self.next_attempt();
        let token = Token::new(&self.config.client, id.0, label);
        let attempt = Attempt::new(keys.clone(), token, ttl, label.into(), mode, whose, way);
        // Nothing was asked for with this token yet.
        self.attempts.insert(id, Attempt { block, longest: Duration::ZERO, ..attempt });
        id
    }

    /// A name that no attempt had before.
    pub(super) const fn next_attempt(&mut self) -> AttemptId {
        self.last_attempt += 1;
        AttemptId(self.last_attempt)
    }

    pub(super) fn send_attempt(
        &mut self,
        now: Mono,
        id: AttemptId,
        manner: Manner,
        out: &mut Vec<Effect>,
    ) {
        let first = self.first_of(id).and_then(|op| self.acquires.get(&op));
        let wanted = first.map(|acquire| acquire.ttl);
        let Some(keys) = self.attempts.get(&id).map(|attempt| attempt.keys.clone()) else { return };
        let (epoch, inbox) = (self.link_of(&keys).epoch, self.inbox(&keys));
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        if attempt.request.is_some() || attempt.unconfirmed.is_some() {
            return;
        }
        if let Some(at) = attempt.retry.take() {
            self.timers.remove(&(at, Timer::AttemptRetry(id)));
        }
        attempt.ttl = wanted.unwrap_or(attempt.ttl);
        attempt.longest = attempt.longest.max(attempt.ttl);
        let intent = match (attempt.way, attempt.place) {
            (Way::Steal(Some(seen)), _) => Intent::Steal(seen),
            (Way::Try, _) => Intent::Try,
            (Way::Wait, Place::Unknown) => Intent::Join(None),
            (Way::Steal(None), _) | (Way::Wait, Place::InLine(_)) => Intent::Poll,
            (Way::Wait, Place::Lost(seq)) => Intent::Join(Some(seq)),
        };
        let call = Call::Acquire {
            keys,
            token: attempt.token.clone(),
            ttl: attempt.ttl,
            epoch,
            block: attempt.block,
            inbox,
            intent,
            mode: attempt.mode,
        };
        attempt.hinted = false;
        let request = self.send(now, Purpose::Attempt(id), call, manner, out);
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.request = request;
        }
    }

    pub(super) fn attempt_reply(
        &mut self,
        now: Mono,
        node: NodeId,
        id: AttemptId,
        sent: Mono,
        reply: Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        if let Ok(Reply::Held(held)) = &reply {
            self.links.at(node).compare_clocks(sent, held.time);
        }
        let Some(attempt) = self.attempts.get_mut(&id) else {
            // Granted by a message meanwhile; what was lost on the way may still be executed.
            if let (Err(Failure::Lost(_)), Some(held)) = (&reply, self.leases.get_mut(&id)) {
                held.uncertain = true;
            }
            return;
        };
        attempt.request = None;
        match reply {
            Ok(Reply::Granted { fence }) => {
                let until = valid_until(sent, attempt.ttl);
                if self.links.get(node).is_outdated(fence) {
                    self.renounce(now, id, out);
                } else if until <= now {
                    self.grant_too_late(now, id, out);
                } else {
                    let granted = Granted { fence, until, since: sent, owed: None };
                    self.accept(now, node, id, granted, out);
                }
            }
            Ok(Reply::Held(held)) => self.attempt_held(now, id, held, out),
            Ok(_) => debug_assert!(false, "not a reply of acquire"),
            Err(Failure::NoQuorum(causes)) => {
                attempt.obstacle = Obstacle::NoQuorum(causes);
                self.end_overdue(now, id, out);
                self.attempt_later(now, id);
            }
            Err(Failure::Lost(_)) => {
                // The same token asks again once connected: if it was granted, it still is.
                // Who has only looked may have got nothing.
                attempt.uncertain |= attempt.way != Way::Steal(None);
                attempt.obstacle = Obstacle::Unanswered;
                // Unless it was sent where its slot moves to.
                self.attempt_later(now, id);
            }
            Err(Failure::NoScript) => self.send_attempt(now, id, Manner::WithSource, out),
            Err(Failure::Halfway) => {
                attempt.uncertain = true;
                self.attempt_later(now, id);
            }
            Err(Failure::Moved(_)) => self.send_attempt(now, id, Manner::Redirected, out),
            Err(Failure::Moving(to)) => {
                self.send_attempt(now, id, Manner::Asking(to), out);
                self.attempt_later(now, id);
            }
            Err(Failure::Refused(refusal)) => {
                // Who is in line already needs no more of the server than to stay there.
                let in_line = matches!(attempt.place, Place::InLine(_));
                if in_line && refusal.code == "TRYAGAIN" {
                    return self.keep_entry(now, id, Manner::Plain, out);
                }
                let transient = refusal.is_transient() || (in_line && refusal.is_shortage());
                attempt.obstacle = Obstacle::Refused(refusal);
                if !transient {
                    return self.end_all_of(now, id, out);
                }
                self.end_overdue(now, id, out);
                self.attempt_later(now, id);
            }
        }
    }

    /// While a slot moves, a poll is refused until all keys have arrived: so that this takes no entry from its place,
    /// the server is told that its owner lives, by the keys that exist.
    fn keep_entry(&mut self, now: Mono, id: AttemptId, manner: Manner, out: &mut Vec<Effect>) {
        let Some(attempt) = self.attempts.get(&id) else { return };
        let call = Call::KeepEntry { keys: attempt.keys.clone(), token: attempt.token.clone() };
        let request = self.send(now, Purpose::Entry(id), call, manner, out);
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.request = request;
        }
        // Where the slot moves to, there may be no connection yet.
        self.attempt_later(now, id);
    }

    pub(super) fn entry_reply(
        &mut self,
        now: Mono,
        id: AttemptId,
        reply: &Result<Reply, Failure>,
        out: &mut Vec<Effect>,
    ) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.request = None;
        match reply {
            Err(Failure::NoScript) => self.keep_entry(now, id, Manner::WithSource, out),
            Err(Failure::Moved(_)) => self.keep_entry(now, id, Manner::Redirected, out),
            Err(Failure::Moving(to)) => self.keep_entry(now, id, Manner::Asking(*to), out),
            Ok(_) | Err(_) => {
                let pause = self.jitter(BLIND_POLL_MS);
                self.retry_attempt(id, now + pause);
            }
        }
    }

    /// Asks again after a short pause, if nobody asks now.
    fn attempt_later(&mut self, now: Mono, id: AttemptId) {
        if self.attempts.get(&id).is_some_and(|attempt| attempt.request.is_none()) {
            let pause = self.jitter(RETRY_MS);
            self.retry_attempt(id, now + pause);
        }
    }

    fn attempt_held(&mut self, now: Mono, id: AttemptId, held: Held, out: &mut Vec<Effect>) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.place = match (attempt.place, held.place) {
            (_, Some(place)) => Place::InLine(place.seq),
            (Place::InLine(seq) | Place::Lost(seq), None) => Place::Lost(seq),
            (Place::Unknown, None) => Place::Unknown,
        };
        attempt.misses = if attempt.hinted { 0 } else { attempt.misses + 1 };
        let hinted = attempt.hinted && !self.config.quorum;
        let ask_at_once = hinted || matches!(attempt.place, Place::Lost(_));
        let seen = held.last;
        attempt.obstacle = Obstacle::Held(held);
        if attempt.may_steal(seen) {
            attempt.way = Way::Steal(Some(seen));
            return self.send_attempt(now, id, Manner::Plain, out);
        }
        self.end_overdue(now, id, out);
        if let Some(attempt) = self.attempts.get(&id).filter(|attempt| attempt.way == Way::Wait) {
            let keys = attempt.keys.clone();
            self.listen(now, &keys, out);
        }
        if ask_at_once {
            return self.send_attempt(now, id, Manner::Plain, out);
        }
        let pause = self.poll_pause(id);
        self.retry_attempt(id, now + pause);
    }

    /// When to ask again: when the holder's lease ends, and every few seconds to stay in line.
    fn poll_pause(&mut self, id: AttemptId) -> Duration {
        let heartbeat = self.jitter(POLL_MS);
        let (blind, behind) = (self.jitter(BLIND_POLL_MS), self.jitter((50, 200)));
        let Some(attempt) = self.attempts.get(&id) else { return heartbeat };
        let deaf = self.link_of(&attempt.keys).is_deaf();
        let Obstacle::Held(held) = &attempt.obstacle else { return heartbeat };
        if self.config.quorum {
            let (misses, remaining) = (attempt.misses, held.remaining);
            let foreign = !held.holder.starts_with(TOKEN_PREFIX);
            return self.pause_without_line(misses, remaining, foreign || deaf);
        }
        let claim = CLAIM.min(attempt.ttl);
        if is_foreign(&held.holder) {
            return blind;
        }
        let position = held.place.map_or(1, |place| place.position);
        let after_expiry = if position <= 1 { Duration::from_millis(5) } else { behind };
        let expiry = held.remaining.map_or(heartbeat, |remaining| remaining + after_expiry);
        let mut pause = heartbeat.min(expiry);
        if position <= 2 {
            // Its turn may come, and the message be lost, at any moment.
            pause = pause.min(claim);
        }
        if deaf {
            pause = pause.min(claim / 3).min(blind);
        }
        pause
    }

    /// When to ask a quorum again: nobody stands in line there, so random pauses keep those who want the
    /// lock apart. They grow while it stays held, for a message tells when it may be free.
    fn pause_without_line(
        &mut self,
        misses: u32,
        remaining: Option<Duration>,
        untold: bool,
    ) -> Duration {
        if misses == 0 {
            return self.jitter(WOKEN_MS);
        }
        let (least_ms, most_ms) = CONTENDED_MS;
        let doublings = misses.min(if untold { 2 } else { 5 }) - 1;
        let pause = self.jitter((least_ms << doublings, most_ms << doublings));
        let apart = self.jitter(WOKEN_MS);
        remaining.map_or(pause, |remaining| pause.min(remaining + apart))
    }

    /// A lock of a quorum may be free: whoever waits for it here asks soon.
    pub(super) fn ask_soon(&mut self, now: Mono, keys: &LockKeys) {
        let Some(&id) = self.lines.get(keys).and_then(|line| line.attempts.front()) else { return };
        let at = now + self.jitter(WOKEN_MS);
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.misses = 0;
        if attempt.request.is_some() {
            attempt.hinted = true;
        } else if attempt.retry.is_none_or(|planned| planned > at) {
            if let Some(planned) = attempt.retry.take() {
                self.timers.remove(&(planned, Timer::AttemptRetry(id)));
            }
            self.retry_attempt(id, at);
        }
    }

    fn retry_attempt(&mut self, id: AttemptId, at: Mono) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.retry = Some(at);
        self.timers.insert((at, Timer::AttemptRetry(id)));
    }

    /// Somebody gave a lock up, and this manager is next.
    pub(super) fn granted_by_message(
        &mut self,
        now: Mono,
        node: NodeId,
        grant: Grant,
        out: &mut Vec<Effect>,
    ) {
        let Some(id) = grant.token.number(&self.config.client).map(AttemptId) else { return };
        if let Some(attempt) = self.attempts.get(&id) {
            if attempt.keys == grant.keys && attempt.token == grant.token {
                self.take_message(now, node, id, &grant, out);
            }
            return;
        }
        if self.releases.contains_key(&id) {
            return self.send_release(now, id, Manner::Plain, out);
        }
        // A claim that is over is nobody's to give back: of a lock that is kept, another may have the token.
        let began = self.links.get(node).local_time(now, grant.time);
        let over = began.is_some_and(|began| valid_until(began, grant.claim) <= now);
        if !over && !self.leases.contains_key(&id) {
            // Nobody knows it any more, but it owns a lock.
            self.abandon(now, id, grant.keys, grant.token, false, out);
        }
    }

    fn take_message(
        &mut self,
        now: Mono,
        node: NodeId,
        id: AttemptId,
        grant: &Grant,
        out: &mut Vec<Effect>,
    ) {
        if self.attempts.get(&id).is_some_and(|attempt| attempt.unconfirmed.is_some()) {
            return;
        }
        let link = self.links.get(node);
        let began = link.local_time(now, grant.time).map(|began| began.min(now));
        if link.is_outdated(grant.fence) {
            return self.renounce(now, id, out);
        }
        // A forged fence from the future would be above those of all later owners. Only the server's word counts then.
        let began = began.filter(|_| !link.is_from_the_future(now, grant.fence));
        // A server that has forgotten the grant since has said so already.
        let denied = |attempt: &Attempt| matches!(&attempt.obstacle, Obstacle::Held(held) if held.time > grant.time);
        let began = began.filter(|_| !self.attempts.get(&id).is_some_and(denied));
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        match began.map(|began| (began, valid_until(began, grant.claim))) {
            Some((began, until)) if now < until => {
                self.stats.hand_off(now.since(began));
                let owed = Some(Owed::Claim);
                let granted = Granted { fence: grant.fence, until, since: began, owed };
                self.accept(now, node, id, granted, out);
            }
            _ => {
                // How much of the claim is left cannot be told: its answer will.
                attempt.hinted = true;
                self.send_attempt(now, id, Manner::Plain, out);
            }
        }
    }

    /// The lock is the attempt's until `until`, and its caller's.
    pub(super) fn grant(
        &mut self,
        now: Mono,
        id: AttemptId,
        granted: Granted,
        out: &mut Vec<Effect>,
    ) {
        let Granted { fence, until, since, owed } = granted;
        let first = self.first_of(id);
        let Some(attempt) = self.attempts.get(&id) else { return };
        let wish = first.and_then(|op| self.acquires.get(&op));
        let longest =
            if owed == Some(Owed::Claim) { attempt.longest.min(CLAIM) } else { attempt.longest };
        if wish.is_some_and(|wish| wish.ttl < longest) {
            // The caller who was first before wanted it for longer. A lease is never shortened, and this caller may
            // crash, or have asked that nobody gives it back.
            return self.renounce(now, id, out);
        }
        let Some(attempt) = self.remove_attempt(id) else { return };
        let Some((op, acquire)) = first.and_then(|op| Some((op, self.remove_acquire(op)?))) else {
            return self.abandon(now, id, attempt.keys, attempt.token, attempt.uncertain, out);
        };
        let Attempt { keys, whose, label, mode, ttl, turn, block, uncertain, .. } = attempt;
        self.stats.handed_on += u64::from(turn.is_some());
        let lease = LeaseId::first(id);
        let owed = owed.or_else(|| (ttl < acquire.ttl).then_some(Owed::Length));
        let other_label = (label != acquire.label).then(|| label.to_string());
        let held = Lease {
            label,
            mode,
            ttl: acquire.ttl,
            turn: turn.unwrap_or_else(|| Turn::new(now, acquire.ttl, mode, block)),
            owed,
            uncertain,
            confirmed: since,
            ..Lease::new(lease, keys.clone(), fence, until)
        };
        self.begin_lease(now, held, acquire.hold, out);
        out.push(Effect::Complete {
            op,
            outcome: Outcome::Acquired { lease, fence, label: other_label },
        });
        if owed.is_some() {
            self.send_renewal(now, id, acquire.ttl, Manner::Plain, out);
        }
        if let (Whose::Line, Some(line)) = (whose, self.lines.get_mut(&keys)) {
            line.forget(id);
        }
        self.serve_line(now, &keys, Some(id), out);
    }

    /// The answer took longer than its lease: asks again, if anybody still wants it.
    pub(super) fn grant_too_late(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        attempt.obstacle = Obstacle::Late;
        // What was granted is given back with it, should this be the end of the attempt.
        attempt.uncertain = true;
        self.end_overdue(now, id, out);
        self.attempt_later(now, id);
    }

    /// The grant cannot be used: its token is given back, and another stands at the same place.
    pub(super) fn renounce(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let Some(old) = self.remove_attempt(id) else { return };
        let Attempt { ttl, mode, block, whose, way, .. } = old;
        let new = self.new_attempt(&old.keys, ttl, &old.label, mode, block, whose, way);
        if let Some(attempt) = self.attempts.get_mut(&new) {
            if let Place::InLine(seq) | Place::Lost(seq) = old.place {
                attempt.place = Place::Lost(seq);
            }
            // It has robbed somebody, and robs nobody else.
            attempt.uncertain = matches!(way, Way::Steal(_));
        }
        match old.whose {
            Whose::Caller(op) => self.reseat(op, new),
            Whose::Line => {
                let line = self.lines.get_mut(&old.keys).into_iter();
                for known in line.flat_map(|line| &mut line.attempts).filter(|known| **known == id)
                {
                    *known = new;
                }
            }
        }
        self.abandon(now, id, old.keys, old.token, old.uncertain || old.request.is_some(), out);
        self.send_attempt(now, new, Manner::Plain, out);
    }

    /// Nobody wants it any more: gives back what it may have got, or may yet get.
    pub(super) fn abandon_attempt(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let Some(attempt) = self.remove_attempt(id) else { return };
        let unknown =
            attempt.uncertain || attempt.request.is_some() || attempt.unconfirmed.is_some();
        if unknown || matches!(attempt.place, Place::InLine(_)) {
            self.abandon(now, id, attempt.keys, attempt.token, attempt.uncertain, out);
        }
    }

    fn remove_attempt(&mut self, id: AttemptId) -> Option<Attempt> {
        let attempt = self.attempts.remove(&id)?;
        if let Some(at) = attempt.retry {
            self.timers.remove(&(at, Timer::AttemptRetry(id)));
        }
        Some(attempt)
    }
}
