//! Owners in the random schedules: each asks from several processes, takes over what it has elsewhere, and releases it by its
//! handles and by name.
//!
//! What they do is drawn from numbers of their own, so the other steps of a schedule are what they are without them.

use super::process::OpKind;
use super::simulator::{PROCESSES, Simulation};
use super::world::{RENEWED, ms};
use crate::machine::{Command, HoldTerms, LeaseId, LossReason, OpId, Wait};
use crate::protocol::{Mode, Token};

/// The labels of the owners.
const OWNERS: [&str; 2] = ["@x", "@y"];
/// How long an owner waits at most for what it has elsewhere: the longest pause of its entry, and more.
const JOINED_WITHIN_MS: u64 = 1_000;

/// Whether a token is of an owner.
pub(super) fn is_owned(token: &Token) -> bool {
    OWNERS.iter().any(|owner| token.is_of_owner(owner))
}

impl Simulation {
    /// In some schedules owners ask and release beside the other callers.
    pub(super) fn act_for_owners(&mut self, index: usize) {
        let mut dice = fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000) + index as u64);
        if !matches!(self.seed % 11, 0 | 3) || dice.u32(..4) > 0 {
            return;
        }
        let who = dice.usize(..PROCESSES);
        let process = &self.processes[who];
        if process.stopped_until.is_some() || process.closing.is_some() {
            return;
        }
        let (lock, owner) = (dice.usize(..self.locks.len()), OWNERS[dice.usize(..OWNERS.len())]);
        match dice.u32(..8) {
            0..4 => {
                let wait = match dice.u32(..4) {
                    0 => Wait::Never,
                    1 => Wait::UpTo(ms(300)),
                    2 => Wait::UpTo(ms(8_000)),
                    _ => Wait::Forever,
                };
                let ttl = self.ttls_ms[dice.usize(..self.ttls_ms.len())];
                self.ask_for_owner(who, lock, owner, (ttl, wait, dice.u32(..4) > 0));
            }
            4..6 => self.release_handle(who, &mut dice),
            _ => self.release_for_owner(who, lock, owner),
        }
        self.collect(who);
    }

    fn ask_for_owner(
        &mut self,
        who: usize,
        lock: usize,
        owner: &str,
        (ttl, wait, renew): (u64, Wait, bool),
    ) -> OpId {
        // Only the server ends the lock of an owner.
        let hold = HoldTerms { renew, leave_to_expire: true, ..RENEWED };
        let (name, label, mode) = (self.locks[lock].name.to_owned(), owner.into(), Mode::Exclusive);
        let acquire = Command::Acquire { name, ttl: ms(ttl), wait, label, hold, mode };
        let op = self.processes[who].world.command(acquire);
        self.processes[who].ask_to_leave(op, lock, OpKind::Lock, true);
        self.note(
            who,
            format_args!("acquire for {owner} {op:?} {ttl} ms, {wait:?}, renew {renew}"),
        );
        op
    }

    /// A caller releases what it has, or had, for an owner: also once the owner has it elsewhere.
    fn release_handle(&mut self, who: usize, dice: &mut fastrand::Rng) {
        let process = &self.processes[who];
        let owned = |lease: LeaseId| is_owned(&process.token_of(lease));
        let held: Vec<_> =
            (0..process.held.len()).filter(|place| owned(process.held[*place].lease)).collect();
        if held.is_empty() {
            return;
        }
        // `release` takes the last one.
        let place = held[dice.usize(..held.len())];
        let last = self.processes[who].held.len() - 1;
        self.processes[who].held.swap(place, last);
        let state = self.rng.get_seed();
        self.release(who);
        self.rng = fastrand::Rng::with_seed(state);
    }

    /// The owner releases what it has, by name: it reads the token, and forces that one alone.
    fn release_for_owner(&mut self, who: usize, lock: usize, owner: &str) {
        let Some(token) = self.owners_of(lock).into_iter().find(|it| it.is_of_owner(owner)) else {
            return;
        };
        self.give_up(&token);
        let (name, owners) = (self.locks[lock].name.to_owned(), vec![token.to_string()]);
        let op = self.processes[who].world.command(Command::Force { name, foreign: false, owners });
        self.processes[who].ask(op, lock, OpKind::Other);
        self.note(who, format_args!("release for {owner} {op:?}"));
    }

    /// Whether an owner has taken over what it had under this token. Its handle learns it by a message, or when it is next
    /// renewed or asked about.
    pub(super) fn is_taken_over(&self, token: &Token) -> bool {
        is_owned(token) && self.servers.iter().any(|server| server.was_adopted(token.as_str()))
    }

    /// Whether an owner may keep what it has under this token without a handle: so it is if a take-over had no answer.
    pub(super) fn stays_of_owner(&self, token: &Token) -> bool {
        self.processes.iter().any(|process| process.world.taking_over.contains(token))
    }

    /// Whether an owner may keep a lock so.
    pub(super) fn is_left_to_owner(&self) -> bool {
        let mut holders = (0..self.locks.len()).flat_map(|lock| self.owners_of(lock));
        holders.any(|token| self.stays_of_owner(&token))
    }

    /// Checks that a hold that was taken over ends as adopted, if a message has said so before its lease was over. After a
    /// fault it may end with the history of the data. A caller of its own manager that has named a token for it loses
    /// nothing.
    pub(super) fn check_owners_loss(&self, who: usize, lease: LeaseId, reason: LossReason) {
        let process = &self.processes[who];
        let token = process.token_of(lease);
        let is_over = process.world.ended.get(&lease).is_none_or(|end| *end <= process.world.now);
        let told = process.is_ordered && process.world.told_adopted.contains(&lease) && !is_over;
        let told = told && is_owned(&token);
        let renamed = reason == LossReason::Ended && process.renamed.contains(&token);
        let right = !told || renamed || matches!(reason, LossReason::Adopted | LossReason::Stolen);
        self.demand(right, || format!("{who}: {token} was taken over, and ends as {reason:?}"));
    }

    /// Checks that each owner gets what it has, for a caller in any process, as soon as its entry asks again, whoever waits.
    pub(super) fn join_owners(&mut self) {
        for lock in 0..self.locks.len() {
            let Some(owner) = OWNERS.into_iter().find(|owner| self.has_for(lock, owner)) else {
                continue;
            };
            let who = usize::try_from(self.seed).unwrap() % PROCESSES;
            if self.processes[who].closing.is_some() {
                continue;
            }
            let due = self.now + ms(JOINED_WITHIN_MS);
            let op = self.ask_for_owner(who, lock, owner, (10_000, Wait::UpTo(ms(8_000)), true));
            self.deliver_all();
            // Its lease may end meanwhile.
            while self.processes[who].open.contains_key(&op) && self.has_for(lock, owner) {
                self.demand(self.now < due, || format!("{owner} does not get its own lock"));
                self.pass(ms(20));
                self.deliver_all();
            }
        }
    }

    fn has_for(&self, lock: usize, owner: &str) -> bool {
        self.owners_of(lock).iter().any(|token| token.is_of_owner(owner))
    }
}
