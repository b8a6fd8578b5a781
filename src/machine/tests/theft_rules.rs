//! The rules of steal, force and locks that are left to expire, implemented a second time.

use super::callers::is_chosen;
use super::ledger::Lock;
use super::process::{Held, OpKind, Process};
use super::simulator::{Kind, Simulation};
use super::snapshot::is_foreign;
use super::watch::{Executed, expect};
use super::world::{COMMAND_TIMEOUT, RENEWED, ms};
use crate::machine::{Command, LeaseId, LossReason, Wait};
use crate::protocol::{Call, Intent, Mode, Mono, Reply, Token, drift};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The thefts so far.
#[derive(Debug, Default)]
pub(super) struct Thefts {
    /// The number of executed calls.
    calls: usize,
    /// All owners so far, and the number of calls at their first grants: thieves know them by their tokens.
    since: BTreeMap<String, usize>,
    /// The number of calls when a theft was first requested, by its token and the owners that it had seen.
    shown: BTreeMap<(String, Arc<str>), usize>,
    /// The tokens that have held or stolen the lock.
    had: BTreeSet<String>,
    /// The victims, and when their leases would have ended, by the server's clock in ms.
    pub(super) victims: BTreeMap<String, u64>,
    /// The tokens from which others have taken the lock over.
    pub(super) adopted: BTreeSet<String>,
    /// The server has lost data, so a victim may have its lock back.
    pub(super) forgotten: bool,
    /// The tokens of locks that are left to expire, and whether they have had theirs since: only their callers release them
    /// before their leases end.
    pub(super) left_to_expire: BTreeMap<String, bool>,
}

impl Executed<'_> {
    /// Whether the lock may be stolen from its present owners.
    fn may_steal(&self, seen: &str, also_foreign: bool) -> bool {
        let foreign = self.before.owner().is_some_and(is_foreign);
        let shown = self.before.owners() == seen;
        !self.before.is_free() && (also_foreign || !foreign) && shown
    }

    /// Whether this call steals the lock from all its owners.
    pub(super) fn is_theft(&self) -> bool {
        match self.call {
            Call::Acquire { intent: Intent::Steal(seen), token, .. } => {
                self.may_steal(seen, false) && self.before.held_ms(token.as_str()).is_none()
            }
            Call::Force { foreign, owners, .. } if !owners.is_empty() => {
                let is_meant = |owner: &str| owners.iter().any(|meant| meant.as_str() == owner);
                let meant = self.before.holders().all(|(owner, _)| is_meant(owner));
                meant && self.may_steal(self.before.owners(), *foreign)
            }
            Call::Force { foreign, seen: Some(seen), .. } => self.may_steal(seen, *foreign),
            _ => false,
        }
    }

    /// Whether the caller gets the lock before all waiters.
    pub(super) fn steals(&self) -> bool {
        matches!(self.intent(), Some(Intent::Steal(_)))
            && (self.is_theft() || self.before.is_free())
    }
}

impl Thefts {
    /// Records that a machine has sent a call.
    pub(super) fn sent(&mut self, call: &Call) {
        if let Some(theft) = theft(call) {
            self.shown.entry(theft).or_insert(self.calls);
        }
    }

    pub(super) fn judge(&mut self, done: &Executed<'_>) -> Result<(), String> {
        self.calls += 1;
        // Once its lease has ended on the server, the token leaves nothing to expire: a manager may give back what a late
        // request gets for it.
        let lasts = |token: &String| done.before.held_ms(token).is_some();
        self.left_to_expire.retain(|token, has| !*has || lasts(token));
        if done.is_theft() && !self.forgotten {
            self.theft_is_right(done)?;
        }
        losses_are_right(done)?;
        if let (Call::Force { .. }, Some(Reply::Owner(freed))) = (done.call, done.reply) {
            expect(*freed == done.is_theft(), "a force did something else than it says")?;
        }
        let token = done.token();
        // After an adoption a late request may be granted the lock for a token that no caller uses any more.
        let is_adopted = self.adopted.contains(token);
        let left = done.gives_up() && self.left_to_expire.contains_key(token) && !is_adopted;
        let owned = done.before.held_ms(token).is_some() && !self.victims.contains_key(token);
        expect(
            !(left && owned),
            "a lock that is left to expire is given back, and not by its caller",
        )?;
        self.remember(done);
        Ok(())
    }

    /// A thief steals once, and only from owners up to the one that it has seen.
    fn theft_is_right(&self, done: &Executed<'_>) -> Result<(), String> {
        let thief = done.token();
        let seen = theft(done.call).map(|(_, seen)| seen);
        // A request of that owner may have taken the lock once more, late.
        let again = seen.as_deref() == done.before.owner();
        let first = again || !self.had.contains(thief);
        expect(first, "a token that has had the lock takes it from another")?;
        let shown = theft(done.call).and_then(|theft| self.shown.get(&theft)).copied();
        for (victim, _) in done.before.holders().filter(|(victim, _)| !is_foreign(victim)) {
            let since = self.since.get(victim).copied().unwrap_or(0);
            let earlier = shown.is_none_or(|shown| since <= shown);
            expect(earlier, &format!("{victim} lost the lock to {thief}, which had asked before"))?;
        }
        Ok(())
    }

    /// A token has taken a free lock by a plain command.
    pub(super) fn taken(&mut self, token: &str) {
        self.calls += 1;
        self.since.entry(token.to_owned()).or_insert(self.calls);
        self.had.insert(token.to_owned());
    }

    fn remember(&mut self, done: &Executed<'_>) {
        if done.is_theft() {
            self.had.insert(done.token().to_owned());
            for (victim, left_ms) in done.before.holders() {
                let ends_ms = done.now_ms().saturating_add_signed(left_ms);
                self.victims.insert(victim.to_owned(), ends_ms);
            }
        }
        self.adopted.extend(done.adopted().map(str::to_owned));
        for (holder, _) in done.after.holders() {
            // An adopter has the grant of the former owner.
            let adopted = done.adopted().filter(|_| holder == done.token());
            let since = self.since.get(adopted.unwrap_or(holder)).copied().unwrap_or(self.calls);
            self.since.entry(holder.to_owned()).or_insert(since);
            self.had.insert(holder.to_owned());
            if let Some(has) = self.left_to_expire.get_mut(holder) {
                *has = true;
            }
        }
    }
}

/// The token of a steal or force, and the owners that it is for.
fn theft(call: &Call) -> Option<(String, Arc<str>)> {
    match call {
        Call::Acquire { intent: Intent::Steal(seen), token, .. }
        | Call::Force { seen: Some(seen), token, .. } => {
            Some((token.to_string(), Arc::clone(seen)))
        }
        _ => None,
    }
}

/// Each owner that loses the lock gets a message with the reason, and no other owner does.
fn losses_are_right(done: &Executed<'_>) -> Result<(), String> {
    let victims =
        done.before.holders().filter(|_| done.is_theft()).map(|(owner, _)| (owner, false));
    let adopted = done.adopted().map(|owner| (owner, true));
    let listens = |(owner, _): &(&str, bool)| !is_foreign(owner) && (done.listens)(owner);
    let due: BTreeSet<_> = victims.chain(adopted).filter(listens).collect();
    let notified = done.taken.iter().map(|taken| (taken.token.as_str(), taken.adopted));
    let notified: BTreeSet<_> = notified.collect();
    expect(notified == due, &format!("{due:?} lost the lock, and {notified:?} were notified"))
}

impl Simulation {
    pub(super) fn steal(&mut self, who: usize) {
        let ttl = [200, 1_000, 4_000, 10_000][self.rng.usize(..4)];
        let lock = self.any_lock();
        let (name, process) = (self.locks[lock].name, &mut self.processes[who]);
        let (wait, mode) = (Wait::Steal, Mode::Exclusive);
        let op = process.world.acquire_named(name, ttl, wait, RENEWED, mode);
        process.ask(op, lock, OpKind::Lock);
        self.note(who, format_args!("steal {op:?} {ttl} ms"));
    }

    pub(super) fn force(&mut self, who: usize) {
        let foreign = self.rng.u32(..4) == 0;
        let lock = self.any_lock();
        let name = self.locks[lock].name.to_owned();
        // Half of them as of a person who has looked who holds it.
        let meant = if self.rng.bool() { self.owners_of(lock) } else { BTreeSet::new() };
        let owners: Vec<_> = meant.iter().map(Token::to_string).collect();
        let chosen = owners.len();
        let force = Command::Force { name, foreign, owners };
        let op = self.processes[who].world.command(force);
        self.processes[who].ask(op, lock, OpKind::Other);
        self.note(who, format_args!("force {op:?}, foreign: {foreign}, owners: {chosen}"));
    }

    /// Records a lock that is left to expire.
    pub(super) fn note_left_to_expire(&mut self, who: usize, lease: LeaseId) {
        let held = self.processes[who].world.machine.hold_of(lease);
        let Some(held) = held.filter(|held| held.leave_to_expire) else { return };
        let token = self.processes[who].world.machine.token_of(held);
        self.keep(&token);
        self.left_to_expire.insert(token.to_string());
    }

    /// Nobody may release this token, until its caller does. A value that is adopted once more stays as it was: the caller of
    /// an earlier hold may have released it, and that request may come late.
    pub(super) fn keep(&self, token: &Token) {
        if self.is_steady() && !self.adopted_again.contains(token) {
            self.server.note_left_to_expire(token.as_str());
        }
    }

    /// Records that a caller has left its lock.
    pub(super) fn note_left(&mut self, who: usize, lease: LeaseId) {
        let process = &mut self.processes[who];
        process.held.iter_mut().filter(|it| it.lease == lease).for_each(|it| it.leaves = true);
        let token = process.token_of(lease);
        self.left_to_expire.insert(token.to_string());
    }

    /// From now on the owner of this token may release it.
    pub(super) fn give_up(&mut self, token: &Token) {
        self.server.give_up(token.as_str());
        self.lengthened.remove(token.as_str());
    }

    /// Another process with the token of a lock that is left to expire extends it. A token whose lock was released, and
    /// handed off to a caller that does not leave it to expire, ends with that caller's manager all the same.
    pub(super) fn lengthen_elsewhere(&mut self, who: usize) {
        let process = &self.processes[who];
        let own = |held: &&Held| !held.shared && !held.adoptable;
        let mut tokens = process
            .held
            .iter()
            .filter(own)
            .filter_map(|held| Some((held, process.token(held.lease)?)));
        let Some((held, token)) = tokens.rfind(|(_, it)| self.left_to_expire.contains(it.as_str()))
        else {
            return;
        };
        let lease = process.world.machine.hold_of(held.lease);
        let lasts = held.leaves || lease.is_some_and(|it| it.leave_to_expire);
        let lock = held.lock;
        let (keys, ttl) = (self.locks[lock].keys.clone(), ms(self.rng.u64(60..8_000)));
        let call = Call::Extend { keys, token: token.clone(), ttl };
        if self.server.execute(self.now, &call) == Ok(Reply::Owner(true)) && lasts {
            let until = self.now + ttl.saturating_sub(drift(ttl));
            self.lengthened.insert(token.to_string(), until);
        }
        self.note(9, format_args!("another process lengthens {token} to {ttl:?}"));
    }

    /// Closes the manager; a new one replaces it when it has ended.
    pub(super) fn close(&mut self, who: usize) {
        let Process { world, held, .. } = &mut self.processes[who];
        let until = held.iter().filter(|held| !held.adoptable).filter_map(|held| {
            let lease = world.machine.hold_of(held.lease).filter(|lease| lease.leave_to_expire)?;
            Some((world.machine.token_of(lease), *world.deadlines.get(&held.lease)?))
        });
        let left_to_expire = until.collect();
        let machine = &world.machine;
        // A value may have several holds. The end of one that is not left to expire frees the value.
        let ends = |id: LeaseId| held.iter().any(|it| it.lease == id && !it.leaves);
        for lease in machine.leases.all() {
            let token = machine.token_of(lease);
            let again = self.adopted_again.contains(&token);
            if !self.left_to_expire.contains(token.as_str()) || (again && ends(lease.id)) {
                self.server.give_up(token.as_str());
            }
        }
        held.clear();
        let op = world.command(Command::Close);
        let (since, process) = (world.now, &mut self.processes[who]);
        process.ask(op, 0, OpKind::Other);
        process.closing = Some(Closing { since, left_to_expire });
        self.note(who, format_args!("closes"));
    }

    /// A closed manager has ended: its locks are free, except those that are left to expire.
    pub(super) fn closed(&mut self, who: usize) {
        self.note(who, format_args!("has ended; another takes its place"));
        // What it had written is delivered, as far as there is a connection.
        let last = self.processes[who].world.take_late();
        for (destination, call) in
            last.iter().filter(|_| self.processes[who].cut_off_until.is_none())
        {
            let _unheard = destination.execute(self.now, call);
        }
        self.check_closed(who);
        self.processes[who].world.leave();
        self.processes[who] = self.start();
    }

    fn check_closed(&self, who: usize) {
        let process = &self.processes[who];
        let Some(Closing { since, left_to_expire }) = &process.closing else { return };
        let (now, client) = (process.world.now, &process.world.machine.context.config.client);
        let owners: BTreeSet<_> =
            (0..self.locks.len()).flat_map(|lock| self.owners_of(lock)).collect();
        let lasts = |(token, until): &&(Token, Mono)| {
            let taken = self.is_victim(token) || self.is_taken_over(token);
            *until > now && !taken && self.is_steady()
        };
        let gone = left_to_expire.iter().filter(lasts).find(|(token, _)| !owners.contains(token));
        self.demand(gone.is_none(), || format!("{gone:?} was not left to expire: {owners:?}"));
        // Otherwise a reply is missing, or a request may arrive later.
        if now.since(*since) < COMMAND_TIMEOUT && process.tidy && self.is_steady() {
            let tokens = |lock: &Lock| self.server.snapshot(self.now, &lock.keys).tokens();
            let mut own =
                self.locks.iter().flat_map(tokens).filter(|token| token.number(client).is_some());
            let left = own.find(|token| {
                !self.left_to_expire.contains(token.as_str())
                    && !process.world.taking_over.contains(token)
            });
            self.demand(left.is_none(), || format!("{left:?} of a closed manager is left"));
        }
    }

    /// Checks that the owner of a lock that is left to expire, and was extended, still has it.
    pub(super) fn check_lengthened(&self) {
        let mut lengthened =
            self.lengthened.iter().filter(|(_, until)| **until > self.now).peekable();
        if lengthened.peek().is_none() {
            return;
        }
        let owners: BTreeSet<_> =
            (0..self.locks.len()).flat_map(|lock| self.owners_of(lock)).collect();
        for (token, _) in lengthened {
            let has = owners.iter().any(|owner| owner.as_str() == token);
            let token = Token::from_text(token);
            let right = has || self.is_victim(&token) || self.is_taken_over(&token);
            self.demand(right, || format!("{token} was lengthened, and the owners are {owners:?}"));
        }
    }

    /// Whether this token's lock was stolen.
    pub(super) fn is_victim(&self, token: &Token) -> bool {
        self.victim_until_ms(token).is_some()
    }

    /// Whether the stolen lease would still be valid.
    pub(super) fn is_recent_victim(&self, token: &Token) -> bool {
        self.victim_until_ms(token) >= Some(self.server.time(self.now).as_micros() / 1_000)
    }

    fn victim_until_ms(&self, token: &Token) -> Option<u64> {
        self.servers.iter().filter_map(|server| server.victim_until_ms(token.as_str())).max()
    }

    /// Checks that only victims get a loss by theft, and nobody one by a stall, since JavaScript always turns.
    pub(super) fn check_losses(&mut self, who: usize) {
        self.check_calls();
        let process = &mut self.processes[who];
        let first = std::mem::replace(&mut process.losses_seen, process.world.lost.len());
        let process = &self.processes[who];
        for (lease, reason) in &process.world.lost[first..] {
            let token = process.token_of(*lease);
            if self.chosen.contains_key(&token)
                && !is_chosen(&token)
                && !self.left_to_expire.contains(token.as_str())
            {
                // Its end gives it back.
                self.server.give_up(token.as_str());
            }
            let right = *reason != LossReason::Stolen || self.is_victim(&process.token_of(*lease));
            self.demand(right, || format!("{who}: {lease:?} was never stolen"));
            self.check_owners_loss(who, *lease, *reason);
            let denied = *reason == LossReason::Expired && !self.is_denied_rightly(who, *lease);
            self.demand(!denied, || format!("{who}: {lease:?} ended, and its server has it"));
            let stalled = *reason == LossReason::Stalled;
            self.demand(!stalled, || format!("{who}: {lease:?} ended by a stall that was none"));
        }
    }

    /// Whether a lease that its server has denied is over there, or was for a moment.
    fn is_denied_rightly(&self, who: usize, lease: LeaseId) -> bool {
        let process = &self.processes[who];
        let token = process.token_of(lease);
        // A request that was lost may have got it anew since.
        let is_over = process.world.ended.get(&lease).is_none_or(|end| *end <= process.world.now);
        let excused = || {
            !process.tidy
                || self.is_forgotten(&token)
                || self.is_victim(&token)
                || self.unproven.contains(token.as_str())
                || self.chosen.contains_key(&token)
                || self.may_be_of_other_data(who, lease)
        };
        // Of two masters, the one that it has asked: the other may have granted it the lock.
        let server = &process.world.server;
        let has = |lock: &Lock| server.owners(self.now, &lock.keys).contains(&token);
        is_over || excused() || !self.locks.iter().any(has)
    }

    /// Whether a slot has moved to a server that its manager first saw after the grant: there it proves nothing that a claim
    /// is answered with yes.
    fn may_be_of_other_data(&self, who: usize, lease: LeaseId) -> bool {
        let process = &self.processes[who];
        let held = process.held.iter().find(|held| held.lease == lease);
        self.kind == Kind::Cluster
            && process.world.unproven.contains(&lease)
            && held.is_some_and(|held| {
                let data = process.world.machine.servers.data_of(&self.locks[held.lock].keys);
                data.is_outdated(held.fence)
            })
    }
}

/// A manager that is being closed.
pub(super) struct Closing {
    /// By its own clock.
    since: Mono,
    /// The tokens that are left to expire, and their earliest end.
    left_to_expire: Vec<(Token, Mono)>,
}
