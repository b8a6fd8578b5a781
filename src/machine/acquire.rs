//! What callers wish: a lock, for so long, within so long.
//!
//! A wish ends when an attempt on the server gets the lock (see `attempt.rs`), when an owner of the
//! same process hands it on (`hand_on.rs`), or when its caller's patience does. All wishes that wait
//! for one lock form a line in the order of their calls, and share one attempt.

use super::attempt::{Obstacle, Whose};
use super::{AttemptId, Effect, Hold, Machine, Manner, OpId, Outcome, Timer, Wait};
use crate::clock::Mono;
use crate::keys::LockKeys;
use crate::script::Held;
use crate::token::Token;
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Acquire {
    pub(super) keys: LockKeys,
    pub(super) label: String,
    pub(super) ttl: Duration,
    pub(super) hold: Hold,
    wait: Wait,
    seat: Seat,
    began: Mono,
    /// When it is looked at whether the caller still waits; none if it waits for ever.
    deadline: Option<Mono>,
}

/// Where a wish waits.
#[derive(Clone, Copy, Debug)]
enum Seat {
    /// In the line of its lock, by this number.
    Line(u64),
    /// Nowhere: one attempt of its own.
    Alone(AttemptId),
}

/// Those of this process who wait for one lock, in the order of their calls. Never empty.
#[derive(Debug)]
pub(super) struct Line {
    waiters: VecDeque<(u64, OpId)>,
    /// What gets the lock for the first of them.
    pub(super) attempt: AttemptId,
    /// Some have waited long enough, but nothing was known that could be told them.
    overdue: bool,
}

/// A hold can be handed on so many times, so no more fences than these are ever of use.
const BLOCK_MAX: u8 = 16;

impl Line {
    /// How many of it come before `ticket`.
    fn ahead_of(&self, ticket: u64) -> usize {
        self.waiters.partition_point(|(other, _)| *other < ticket)
    }

    /// All of it, if some may be overdue.
    fn take_overdue(&mut self) -> Vec<OpId> {
        if std::mem::take(&mut self.overdue) {
            return self.waiters.iter().map(|(_, op)| *op).collect();
        }
        Vec::new()
    }

    fn remove(&mut self, ticket: u64) {
        let place = self.ahead_of(ticket);
        if self.waiters.get(place).is_some_and(|(other, _)| *other == ticket) {
            self.waiters.remove(place);
        }
    }

    /// How many fences an attempt for this line reserves: one for each who could get the lock in turn.
    pub(super) fn block(&self) -> u8 {
        u8::try_from(self.waiters.len()).map_or(BLOCK_MAX, |count| count.min(BLOCK_MAX))
    }
}

impl Acquire {
    fn is_overdue(&self, now: Mono) -> bool {
        match self.wait {
            Wait::Forever => false,
            Wait::Never => true,
            Wait::UpTo(wait) => self.began + wait <= now,
        }
    }
}

impl Machine {
    pub(super) fn begin_acquire(
        &mut self,
        now: Mono,
        op: OpId,
        name: &str,
        ttl: Duration,
        wait: Wait,
        label: String,
        hold: Hold,
        out: &mut Vec<Effect>,
    ) {
        let keys = self.keys_of(name);
        let patience = match wait {
            Wait::Forever => None,
            // A short wait is a wait for the lock, not for the network: one round trip is always left.
            Wait::Never => Some(self.config.command_timeout),
            Wait::UpTo(wait) if wait.is_zero() => Some(self.config.command_timeout),
            Wait::UpTo(wait) => Some(wait),
        };
        let deadline = patience.map(|patience| now + patience);
        if let Some(at) = deadline {
            self.timers.insert((at, Timer::AcquireDeadline(op)));
        }
        let alone = matches!(wait, Wait::Never | Wait::UpTo(Duration::ZERO));
        let seat = if alone {
            let attempt = self.new_attempt(&keys, ttl, &label, 1, Whose::Caller(op));
            Seat::Alone(attempt)
        } else {
            Seat::Line(self.next_ticket())
        };
        let acquire =
            Acquire { keys: keys.clone(), label, ttl, hold, wait, seat, began: now, deadline };
        self.acquires.insert(op, Box::new(acquire));
        match seat {
            Seat::Alone(attempt) => self.send_attempt(now, attempt, Manner::Plain, out),
            Seat::Line(ticket) => self.join_line(now, keys, ticket, op, out),
        }
    }

    /// The keys of a lock. All who wait for one share them, for there may be thousands.
    fn keys_of(&self, name: &str) -> LockKeys {
        let keys = LockKeys::new(&self.config.prefix, name);
        let shared = self.lines.get_key_value(&keys).map(|(shared, _)| shared.clone());
        shared.unwrap_or(keys)
    }

    fn next_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    fn join_line(
        &mut self,
        now: Mono,
        keys: LockKeys,
        ticket: u64,
        op: OpId,
        out: &mut Vec<Effect>,
    ) {
        if let Some(line) = self.lines.get_mut(&keys) {
            line.waiters.push_back((ticket, op));
            return;
        }
        let Some(acquire) = self.acquires.get(&op) else { return };
        let (ttl, label) = (acquire.ttl, acquire.label.clone());
        let attempt = self.new_attempt(&keys, ttl, &label, 1, Whose::Line);
        self.lines.insert(
            keys,
            Line { waiters: VecDeque::from([(ticket, op)]), attempt, overdue: false },
        );
        self.send_attempt(now, attempt, Manner::Plain, out);
    }

    /// The first of a line has the lock as `holder`: the next attempt stands in line for those behind.
    pub(super) fn serve_line(
        &mut self,
        now: Mono,
        keys: &LockKeys,
        holder: &Token,
        out: &mut Vec<Effect>,
    ) {
        let Some(line) = self.lines.get(keys) else { return };
        let block = line.block();
        let first = line.waiters.front().and_then(|(_, op)| self.acquires.get(op));
        let Some(first) = first else { return };
        let (ttl, label) = (first.ttl, first.label.clone());
        let attempt = self.new_attempt(keys, ttl, &label, block, Whose::Line);
        if let Some(line) = self.lines.get_mut(keys) {
            line.attempt = attempt;
        }
        if let Some(attempt) = self.attempts.get_mut(&attempt) {
            let (remaining, holder) = (Some(ttl), holder.to_string());
            attempt.obstacle = Obstacle::Held(Held { remaining, holder, ..Held::default() });
        }
        self.send_attempt(now, attempt, Manner::Plain, out);
    }

    /// Who of a line gets the lock next.
    pub(super) fn first_in_line(&self, keys: &LockKeys) -> Option<OpId> {
        self.lines.get(keys)?.waiters.front().map(|(_, op)| *op)
    }

    /// Removes a wish, and with the last one of a line the line; its attempt stays.
    pub(super) fn remove_acquire(&mut self, op: OpId) -> Option<Acquire> {
        let acquire = self.acquires.remove(&op)?;
        if let Some(at) = acquire.deadline {
            self.timers.remove(&(at, Timer::AcquireDeadline(op)));
        }
        if let Seat::Line(ticket) = acquire.seat
            && let Some(line) = self.lines.get_mut(&acquire.keys)
        {
            line.remove(ticket);
            if line.waiters.is_empty() {
                self.lines.remove(&acquire.keys);
            }
        }
        Some(*acquire)
    }

    /// The caller's patience is over, unless nothing is known yet: one round trip is always left.
    pub(super) fn acquire_deadline(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        let Some(acquire) = self.acquires.get(&op) else { return };
        let last = acquire.began + self.config.command_timeout;
        if now < last && matches!(self.obstacle(acquire), Obstacle::Unanswered) {
            if let Some(acquire) = self.acquires.get_mut(&op) {
                acquire.deadline = Some(last);
                self.timers.insert((last, Timer::AcquireDeadline(op)));
                if let Some(line) = self.lines.get_mut(&acquire.keys) {
                    line.overdue = true;
                }
            }
            return;
        }
        self.end_acquire_by_obstacle(now, op, out);
    }

    /// Something is known about the lock: ends the wishes that have waited only for that.
    pub(super) fn end_overdue(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let Some(attempt) = self.attempts.get(&id) else { return };
        let candidates: Vec<OpId> = match attempt.whose {
            Whose::Caller(op) => vec![op],
            Whose::Line => {
                self.lines.get_mut(&attempt.keys).map(Line::take_overdue).unwrap_or_default()
            }
        };
        for op in candidates {
            if self.acquires.get(&op).is_some_and(|acquire| acquire.is_overdue(now)) {
                self.end_acquire_by_obstacle(now, op, out);
            }
        }
    }

    /// Ends every wish that an attempt serves, for the reason that it has met.
    pub(super) fn end_all_of(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        while let Some(op) = self.first_of(id) {
            self.end_acquire_by_obstacle(now, op, out);
        }
    }

    /// Whose wish an attempt would fulfil now.
    pub(super) fn first_of(&self, id: AttemptId) -> Option<OpId> {
        let attempt = self.attempts.get(&id)?;
        match attempt.whose {
            Whose::Caller(op) => Some(op),
            Whose::Line => self.first_in_line(&attempt.keys),
        }
    }

    fn attempt_of(&self, acquire: &Acquire) -> Option<AttemptId> {
        match acquire.seat {
            Seat::Alone(id) => Some(id),
            Seat::Line(_) => self.lines.get(&acquire.keys).map(|line| line.attempt),
        }
    }

    fn obstacle(&self, acquire: &Acquire) -> &Obstacle {
        self.attempt_of(acquire)
            .and_then(|id| self.attempts.get(&id))
            .map_or(&Obstacle::Unanswered, |attempt| &attempt.obstacle)
    }

    /// A wish that waits alone has an attempt with another token now.
    pub(super) fn reseat(&mut self, op: OpId, id: AttemptId) {
        if let Some(acquire) = self.acquires.get_mut(&op) {
            acquire.seat = Seat::Alone(id);
        }
    }

    pub(super) fn end_acquire_by_obstacle(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        let Some(acquire) = self.acquires.get(&op) else { return };
        let outcome = match self.obstacle(acquire) {
            Obstacle::Late => {
                let ms = acquire.ttl.as_millis();
                Outcome::Connection(format!("each answer took longer than the lease of {ms} ms"))
            }
            Obstacle::Unanswered => self.unanswered(&acquire.keys, now.since(acquire.began)),
            Obstacle::Held(_) if acquire.wait == Wait::Never => Outcome::Held,
            Obstacle::Held(held) => self.timed_out(now, acquire, held),
            Obstacle::NoQuorum(causes) => Outcome::Quorum(causes.clone()),
            Obstacle::Refused(refusal) => {
                let keys = &acquire.keys;
                let key = [keys.fence(), keys.queue(), keys.waiters()]
                    .into_iter()
                    .find(|key| refusal.detail.starts_with(*key))
                    .unwrap_or_else(|| keys.lock());
                Outcome::Server { refusal: refusal.clone(), key: Some(key.to_owned()) }
            }
        };
        self.end_acquire(now, op, outcome, out);
    }

    fn timed_out(&self, now: Mono, acquire: &Acquire, held: &Held) -> Outcome {
        let ahead_here = match acquire.seat {
            Seat::Alone(_) => 0,
            Seat::Line(ticket) => {
                self.lines.get(&acquire.keys).map_or(0, |line| line.ahead_of(ticket))
            }
        };
        let ahead_here = u32::try_from(ahead_here).unwrap_or(u32::MAX);
        Outcome::TimedOut {
            waited: now.since(acquire.began),
            holder: held.holder.clone(),
            remaining: held.remaining,
            position: held.place.map(|place| place.position.saturating_add(ahead_here)),
        }
    }

    /// Ends a wish without a lock. What its attempt may have got, or may yet get, is given back unless
    /// somebody else in line wants it.
    pub(super) fn end_acquire(
        &mut self,
        now: Mono,
        op: OpId,
        outcome: Outcome,
        out: &mut Vec<Effect>,
    ) {
        let Some(acquire) = self.acquires.get(&op) else { return };
        let attempt = self.attempt_of(acquire);
        let Some(acquire) = self.remove_acquire(op) else { return };
        if matches!(outcome, Outcome::TimedOut { .. }) {
            self.stats.timed_out += 1;
        }
        out.push(Effect::Complete { op, outcome });
        if let Some(id) = attempt
            && self.lines.get(&acquire.keys).is_none_or(|line| line.attempt != id)
        {
            self.abandon_attempt(now, id, out);
        }
    }
}
