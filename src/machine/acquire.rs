//! What callers wish: a lock, for so long, within so long.
//!
//! A wish ends when an attempt on the server gets the lock (see `attempt.rs`), when an owner of the
//! same process hands it on (`hand_on.rs`), or when its caller's patience does. All wishes that wait
//! for one lock form a line in the order of their calls. What its head wants, attempts stand in line for
//! at the server: one for a whole lock, as many as could have one at once for shares. Each serves whoever
//! is first here when it gets something.

use super::attempt::{Obstacle, Way, Whose, is_foreign};
use super::{AttemptId, Effect, Hold, Machine, Manner, OpId, Outcome, Timer, Wait};
use crate::clock::{Mono, ServerTime};
use crate::keys::LockKeys;
use crate::script::{Held, Mode};
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Acquire {
    pub(super) keys: LockKeys,
    pub(super) label: Box<str>,
    pub(super) ttl: Duration,
    pub(super) hold: Hold,
    pub(super) mode: Mode,
    wait: Wait,
    /// Its number in the line of its lock; none if it does not wait.
    ticket: Option<u64>,
    /// What gets the lock for it and for nobody else, if it does not wait.
    own: Option<AttemptId>,
    began: Mono,
    /// When it is looked at whether the caller still waits; none if it waits for ever.
    deadline: Option<Mono>,
}

/// Those of this process who wait for one lock, in the order of their calls.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiters: VecDeque<(u64, OpId)>,
    /// What stands in line at the server for the first of them, all of whom want the same of the lock.
    pub(super) attempts: VecDeque<AttemptId>,
    /// How many of them are about to get a share that an owner here passes on.
    pub(super) heirs: usize,
    /// Some have waited long enough, but nothing was known that could be told them.
    overdue: bool,
}

/// A hold can be handed on so many times, so no more fences than these are ever of use.
pub(super) const BLOCK_MAX: u8 = 16;

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

    /// Who comes behind so many.
    pub(super) fn behind(&self, count: usize) -> Option<OpId> {
        self.waiters.get(count).map(|(_, op)| *op)
    }

    /// An attempt does not stand in line any more.
    pub(super) fn forget(&mut self, id: AttemptId) {
        if let Some(place) = self.attempts.iter().position(|other| *other == id) {
            self.attempts.remove(place);
        }
    }

    fn remove(&mut self, ticket: u64) {
        let place = self.ahead_of(ticket);
        if self.waiters.get(place).is_some_and(|(other, _)| *other == ticket) {
            self.waiters.remove(place);
        }
    }
}

/// How many attempts of a process stand in line at the server at most: no more than could get something
/// at once.
fn places(mode: Mode) -> usize {
    match mode {
        Mode::Exclusive => 1,
        Mode::Shared { limit: None } => usize::MAX,
        Mode::Shared { limit: Some(limit) } => limit.get() as usize,
    }
}

impl Acquire {
    fn is_overdue(&self, now: Mono) -> bool {
        match self.wait {
            Wait::Forever => false,
            Wait::Never | Wait::Steal => true,
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
        mode: Mode,
        out: &mut Vec<Effect>,
    ) {
        let keys = self.keys_of(name);
        let patience = match wait {
            Wait::Forever => None,
            // A short wait is a wait for the lock, not for the network: one round trip is always left.
            Wait::Never | Wait::Steal => Some(self.config.command_timeout),
            Wait::UpTo(wait) if wait.is_zero() => Some(self.config.command_timeout),
            Wait::UpTo(wait) => Some(wait),
        };
        let deadline = patience.map(|patience| now + patience);
        if let Some(at) = deadline {
            self.timers.insert((at, Timer::AcquireDeadline(op)));
        }
        let mut acquire = Acquire {
            keys: keys.clone(),
            label: label.into(),
            ttl,
            hold,
            mode,
            wait,
            ticket: None,
            own: None,
            began: now,
            deadline,
        };
        let way = match wait {
            Wait::Steal => Way::Steal(None),
            Wait::Never | Wait::UpTo(Duration::ZERO) => Way::Try,
            Wait::Forever | Wait::UpTo(_) => Way::Wait,
        };
        if way == Way::Wait {
            let ticket = self.next_ticket();
            acquire.ticket = Some(ticket);
            self.acquires.insert(op, Box::new(acquire));
            self.lines.entry(keys.clone()).or_default().waiters.push_back((ticket, op));
            return self.serve_line(now, &keys, None, out);
        }
        self.acquires.insert(op, Box::new(acquire));
        self.ask_for(now, op, way, out);
    }

    /// The keys of a lock. All who wait for one share them, for there may be thousands.
    pub(super) fn keys_of(&self, name: &str) -> LockKeys {
        let keys = LockKeys::new(&self.config.prefix, name);
        let shared = self.lines.get_key_value(&keys).map(|(shared, _)| shared.clone());
        shared.unwrap_or(keys)
    }

    fn next_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Begins an attempt of this wish alone.
    fn ask_for(&mut self, now: Mono, op: OpId, way: Way, out: &mut Vec<Effect>) {
        let Some(acquire) = self.acquires.get(&op) else { return };
        let (keys, ttl, label) = (acquire.keys.clone(), acquire.ttl, acquire.label.clone());
        let id = self.new_attempt(&keys, ttl, &label, acquire.mode, 1, Whose::Caller(op), way);
        if let Some(acquire) = self.acquires.get_mut(&op) {
            acquire.own = Some(id);
        }
        self.send_attempt(now, id, Manner::Plain, out);
    }

    /// One has joined or left a line: keeps as many in line at the server as its head needs. `holder`:
    /// whose lease here is known to be the lock's.
    pub(super) fn serve_line(
        &mut self,
        now: Mono,
        keys: &LockKeys,
        holder: Option<AttemptId>,
        out: &mut Vec<Effect>,
    ) {
        let head = self.first_in_line(keys).and_then(|op| self.acquires.get(&op));
        let mode = head.map(|acquire| acquire.mode);
        while let Some(id) = self.lines.get_mut(keys).and_then(|line| line.attempts.pop_back()) {
            let count = self.lines.get(keys).map_or(0, |line| line.attempts.len());
            let right = self.attempts.get(&id).is_some_and(|attempt| Some(attempt.mode) == mode);
            if right && self.wanted_behind(keys, count) == mode {
                self.add_to_line(keys, id);
                break;
            }
            self.abandon_attempt(now, id, out);
        }
        let Some(mode) = mode else { return drop(self.lines.remove(keys)) };
        while let Some(line) = self.lines.get(keys)
            && line.attempts.len() < places(mode)
            && self.wanted_behind(keys, line.attempts.len()) == Some(mode)
        {
            self.stand_in_line(now, keys, holder, out);
        }
    }

    /// What the one behind so many of a line wants.
    fn wanted_behind(&self, keys: &LockKeys, count: usize) -> Option<Mode> {
        let op = self.lines.get(keys)?.behind(count)?;
        self.acquires.get(&op).map(|acquire| acquire.mode)
    }

    fn add_to_line(&mut self, keys: &LockKeys, id: AttemptId) {
        if let Some(line) = self.lines.get_mut(keys) {
            line.attempts.push_back(id);
        }
    }

    /// One more attempt stands in line: for the first here who has none.
    fn stand_in_line(
        &mut self,
        now: Mono,
        keys: &LockKeys,
        holder: Option<AttemptId>,
        out: &mut Vec<Effect>,
    ) {
        let Some(line) = self.lines.get(keys) else { return };
        let op = line.behind(line.attempts.len());
        let Some(wish) = op.and_then(|op| self.acquires.get(&op)) else { return };
        let (ttl, label, mode, began) = (wish.ttl, wish.label.clone(), wish.mode, wish.began);
        // Whoever has waited here so far came before those who stood in line elsewhere meanwhile.
        let seq = if began < now { self.place_of(keys, began) } else { None };
        let block = if mode.is_shared() { 1 } else { self.block(line) };
        let id = self.new_attempt(keys, ttl, &label, mode, block, Whose::Line, Way::Wait);
        self.add_to_line(keys, id);
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.take_place(began, seq);
        }
        // Beside a share there may be room for another.
        let holder = holder.filter(|_| !mode.is_shared()).and_then(|id| self.leases.get(&id));
        let known = holder.map(|held| self.token_of(held));
        if let (Some(attempt), Some(holder)) = (self.attempts.get_mut(&id), known) {
            let (remaining, holder) = (Some(ttl), holder.to_string());
            attempt.obstacle = Obstacle::Held(Held { remaining, holder, ..Held::default() });
        }
        self.send_attempt(now, id, Manner::Plain, out);
    }

    /// The place at the server of a caller who came at `began`; none if that cannot be told, or if there is no queue.
    fn place_of(&self, keys: &LockKeys, began: Mono) -> Option<u64> {
        if self.config.quorum {
            return None;
        }
        self.link_of(keys).server_time(began).map(ServerTime::as_micros)
    }

    /// What this process has is about to go to whoever is first at the server. The entries there that had stood for
    /// callers who were served in the process since move back to the places of those for whom they stand now.
    pub(super) fn move_entries_back(&mut self, now: Mono, keys: &LockKeys, out: &mut Vec<Effect>) {
        let Some(line) = self.lines.get(keys) else { return };
        let served = line.attempts.iter().zip(&line.waiters).filter_map(|(id, (_, op))| {
            let began = self.acquires.get(op)?.began;
            let seq = self.place_of(keys, began)?;
            self.attempts.get(id)?.is_ahead_of(began, seq).then_some((*id, began, seq))
        });
        for (id, began, seq) in served.collect::<Vec<_>>() {
            if let Some(attempt) = self.attempts.get_mut(&id) {
                attempt.take_place(began, Some(seq));
            }
            self.send_attempt(now, id, Manner::Plain, out);
        }
    }

    /// How many fences an attempt for a line reserves: one for each who could get the lock in turn.
    fn block(&self, line: &Line) -> u8 {
        let whole = |(_, op): &&(u64, OpId)| {
            self.acquires.get(op).is_some_and(|acquire| !acquire.mode.is_shared())
        };
        let count = line.waiters.iter().take(BLOCK_MAX.into()).take_while(whole).count();
        u8::try_from(count).unwrap_or(BLOCK_MAX)
    }

    /// What stands in line at the server for those who wait here.
    pub(super) fn attempts_in_line(&self, keys: &LockKeys) -> Vec<AttemptId> {
        self.lines.get(keys).into_iter().flat_map(|line| line.attempts.iter().copied()).collect()
    }

    /// Who of a line gets the lock next.
    pub(super) fn first_in_line(&self, keys: &LockKeys) -> Option<OpId> {
        self.lines.get(keys)?.waiters.front().map(|(_, op)| *op)
    }

    /// Removes a wish. Who is at the head of its line is to be served then.
    pub(super) fn remove_acquire(&mut self, op: OpId) -> Option<Acquire> {
        let acquire = self.acquires.remove(&op)?;
        if let Some(at) = acquire.deadline {
            self.timers.remove(&(at, Timer::AcquireDeadline(op)));
        }
        if let Some(ticket) = acquire.ticket
            && let Some(line) = self.lines.get_mut(&acquire.keys)
        {
            line.remove(ticket);
        }
        Some(*acquire)
    }

    /// The caller's patience is over, unless nothing is known yet: one round trip is always left.
    pub(super) fn acquire_deadline(&mut self, now: Mono, op: OpId, out: &mut Vec<Effect>) {
        let Some(acquire) = self.acquires.get(&op) else { return };
        let last = acquire.began + self.config.command_timeout;
        let known = self.attempt_of(acquire);
        if now < last && matches!(self.obstacle(known), Obstacle::Unanswered) {
            if let Some(acquire) = self.acquires.get_mut(&op) {
                acquire.deadline = Some(last);
                self.timers.insert((last, Timer::AcquireDeadline(op)));
                if let Some(line) = self.lines.get_mut(&acquire.keys) {
                    line.overdue = true;
                }
            }
            return;
        }
        self.end_acquire_by_obstacle(now, op, known, out);
    }

    /// Something is known about the lock: ends the wishes that have waited only for that.
    pub(super) fn end_overdue(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        let Some(attempt) = self.attempts.get(&id) else { return };
        let caller = if let Whose::Caller(op) = attempt.whose { Some(op) } else { None };
        let line = self.lines.get_mut(&attempt.keys).filter(|_| attempt.way == Way::Wait);
        let overdue = line.map(Line::take_overdue).unwrap_or_default();
        for op in caller.into_iter().chain(overdue) {
            if self.acquires.get(&op).is_some_and(|acquire| acquire.is_overdue(now)) {
                self.end_acquire_by_obstacle(now, op, Some(id), out);
            }
        }
    }

    /// Ends every wish that an attempt serves, for the reason that it has met.
    pub(super) fn end_all_of(&mut self, now: Mono, id: AttemptId, out: &mut Vec<Effect>) {
        while let Some(op) = self.first_of(id) {
            self.end_acquire_by_obstacle(now, op, Some(id), out);
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

    /// What stands in line for a wish, or else for the last ahead of it who is stood in line for.
    fn attempt_of(&self, acquire: &Acquire) -> Option<AttemptId> {
        let of_line = || {
            let line = self.lines.get(&acquire.keys)?;
            let place = line.ahead_of(acquire.ticket?);
            line.attempts.get(place).or_else(|| line.attempts.back()).copied()
        };
        acquire.own.or_else(of_line)
    }

    /// Why an attempt has not got the lock.
    fn obstacle(&self, id: Option<AttemptId>) -> &Obstacle {
        id.and_then(|id| self.attempts.get(&id))
            .map_or(&Obstacle::Unanswered, |attempt| &attempt.obstacle)
    }

    /// The attempt of a wish alone has another token now.
    pub(super) fn reseat(&mut self, op: OpId, id: AttemptId) {
        if let Some(acquire) = self.acquires.get_mut(&op) {
            acquire.own = Some(id);
        }
    }

    /// Ends a wish for the reason that an attempt has met.
    pub(super) fn end_acquire_by_obstacle(
        &mut self,
        now: Mono,
        op: OpId,
        known: Option<AttemptId>,
        out: &mut Vec<Effect>,
    ) {
        let Some(acquire) = self.acquires.get(&op) else { return };
        let outcome = match self.obstacle(known) {
            Obstacle::Late => {
                let ms = acquire.ttl.as_millis();
                Outcome::Connection(format!("each answer took longer than the lease of {ms} ms"))
            }
            Obstacle::Unanswered => self.unanswered(&acquire.keys, now.since(acquire.began)),
            Obstacle::Held(held) if acquire.wait == Wait::Steal && !is_foreign(&held.holder) => {
                Outcome::Connection("it changed hands before it could be stolen".to_owned())
            }
            Obstacle::Held(_) if matches!(acquire.wait, Wait::Never | Wait::Steal) => Outcome::Held,
            Obstacle::Held(held) => self.timed_out(now, acquire, known, held),
            Obstacle::NoQuorum(causes) => Outcome::Quorum(causes.clone()),
            Obstacle::Refused(refusal) => {
                let keys = &acquire.keys;
                let key = Some(keys.blamed_by(&refusal.detail));
                Outcome::Server { refusal: refusal.clone(), key }
            }
        };
        self.end_acquire(now, op, outcome, out);
    }

    fn timed_out(
        &self,
        now: Mono,
        acquire: &Acquire,
        known: Option<AttemptId>,
        held: &Held,
    ) -> Outcome {
        let line = self.lines.get(&acquire.keys).zip(acquire.ticket);
        let ahead_here = line.map_or(0, |(line, ticket)| {
            let place = line.attempts.iter().position(|id| Some(*id) == known).unwrap_or(0);
            line.ahead_of(ticket).saturating_sub(place)
        });
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
        let Some(acquire) = self.remove_acquire(op) else { return };
        if matches!(outcome, Outcome::TimedOut { .. }) {
            self.stats.timed_out += 1;
        }
        out.push(Effect::Complete { op, outcome });
        if let Some(id) = acquire.own {
            self.abandon_attempt(now, id, out);
        }
        self.serve_line(now, &acquire.keys, None, out);
    }
}
