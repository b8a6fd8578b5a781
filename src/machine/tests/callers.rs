//! The callers' actions in the schedules of the simulator.

use super::owned::is_owned;
use super::process::{Held, OpKind, Process};
use super::simulator::{PROCESSES, Simulation};
use super::world::{RENEWED, ms};
use crate::machine::{Command, HoldTerms, LeaseId, Wait};
use crate::protocol::{Label, Mode, Token};
use std::sync::Arc;
use std::time::Duration;

/// The start of the name of a client in tokens that others may have.
const CHOSEN: &str = "chosen";

/// Whether it is a token that others may have: only its holder's release, or the end of its lease, frees its lock.
pub(super) fn is_chosen(token: &Token) -> bool {
    token.client().is_some_and(|client| client.starts_with(CHOSEN))
}

impl Simulation {
    pub(super) fn acquire(&mut self, who: usize) {
        let last = self.ttls_ms.len() - 1;
        let ttl = self.ttls_ms[if self.busy { last } else { self.rng.usize(..=last) }];
        let wait = match self.rng.u32(..6) {
            0 => Wait::Never,
            1 => Wait::UpTo(ms(0)),
            2 => Wait::UpTo(ms(300)),
            // The others wait for a moment.
            3.. if self.busy && who > 0 => Wait::UpTo(ms(20)),
            3 => Wait::Forever,
            _ if self.busy => Wait::Forever,
            _ => Wait::UpTo(ms(8_000)),
        };
        let renew = self.rng.u32(..4) > 0 || self.busy;
        let leave_to_expire = !renew && self.rng.bool();
        // What is not renewed needs no sign of life.
        let stall_timeout = if renew { RENEWED.stall_timeout } else { Duration::ZERO };
        let linger = ms(if self.rng.u32(..4) == 0 { self.rng.u64(1..=ttl / 3) } else { 0 });
        let hold = HoldTerms { renew, leave_to_expire, stall_timeout, linger, ..RENEWED };
        if self.locks.len() > 1 && self.rng.u32(..4) == 0 {
            return self.acquire_together(who, ttl, hold);
        }
        let (mode, lock) = (self.mode(), self.any_lock());
        let name = self.locks[lock].name;
        let op = self.processes[who].world.acquire_named(name, ttl, wait, hold, mode);
        let kind = if mode.is_shared() { OpKind::Share } else { OpKind::Lock };
        self.processes[who].ask_to_leave(op, lock, kind, leave_to_expire);
        if kind == OpKind::Lock && !matches!(wait, Wait::Never | Wait::UpTo(Duration::ZERO)) {
            self.wait_in_order(who, op, lock, ms(ttl));
        }
        let how = format_args!("renew {renew}, left to expire {leave_to_expire}");
        self.note(who, format_args!("acquire {name} {op:?} {ttl} ms, {wait:?}, {mode:?}, {how}"));
    }

    /// Acquires several locks at once, or none of them.
    fn acquire_together(&mut self, who: usize, ttl: u64, hold: HoldTerms) {
        let count = self.rng.usize(2..=self.locks.len());
        let first = self.rng.usize(..=self.locks.len() - count);
        let names = self.locks[first..first + count].iter().map(|lock| lock.name.to_owned());
        let (names, label) = (names.collect(), Arc::default());
        let leaves = hold.leave_to_expire;
        let together = Command::AcquireAll { names, ttl: ms(ttl), label, hold };
        let op = self.processes[who].world.command(together);
        self.processes[who].ask_to_leave(op, first, OpKind::AcquireAll(count), leaves);
        self.note(who, format_args!("acquire {count} locks from {first} {op:?} {ttl} ms"));
    }

    pub(super) fn any_lock(&mut self) -> usize {
        if self.locks.len() > 1 { self.rng.usize(..self.locks.len()) } else { 0 }
    }

    /// Some schedules use only exclusive locks, others all modes.
    fn mode(&mut self) -> Mode {
        match self.rng.u32(..self.kinds) {
            _ if self.busy => Mode::Exclusive,
            1..4 if self.sharing => Mode::SHARED,
            0..4 => Mode::Exclusive,
            4 | 5 => Mode::SHARED,
            _ => {
                let limit = self.rng.u64(1..4);
                Mode::permits(self.rng.u64(1..=limit), limit)
            }
        }
    }

    pub(super) fn cancel(&mut self, who: usize) {
        let open: Vec<_> = self.processes[who].open.keys().copied().collect();
        if !open.is_empty() {
            let op = open[self.rng.usize(..open.len())];
            if let Some(open) = self.processes[who].open.get_mut(&op)
                && matches!(open.kind, OpKind::Lock | OpKind::Share | OpKind::AcquireAll(_))
            {
                open.kind = OpKind::Cancelled;
            }
            self.processes[who].world.cancel(op);
            self.note(who, format_args!("cancel {op:?}"));
        }
    }

    pub(super) fn extend(&mut self, who: usize) {
        if let Some(held) = self.processes[who].held.last() {
            let (lock, lease) = (held.lock, held.lease);
            if self.rng.u32(..3) == 0 {
                if is_owned(&self.processes[who].token_of(lease)) {
                    // JavaScript refuses to share the lock of an owner.
                    return;
                }
                self.processes[who].held.last_mut().unwrap().shared = true;
                let op = self.processes[who].world.command(Command::Downgrade { lease });
                self.processes[who].ask(op, lock, OpKind::Other);
                return self.note(who, format_args!("downgrade {op:?}"));
            }
            let ttl = self.rng.bool().then(|| ms(self.rng.u64(60..3_000)));
            let command = match ttl {
                Some(ttl) if self.rng.u32(..4) == 0 => Command::ExpireIn { lease, ttl },
                _ => Command::Extend { lease, ttl },
            };
            let leaves = matches!(command, Command::ExpireIn { .. });
            let (what, kind) =
                if leaves { ("leave", OpKind::Leave(lease)) } else { ("extend", OpKind::Other) };
            let op = self.processes[who].world.command(command);
            self.processes[who].ask(op, lock, kind);
            self.note(who, format_args!("{what} {op:?}"));
        }
    }

    /// Adopts the lock of any process, possibly its own: by a token of its own, by one that is made for it, by one that
    /// others may have, or by that one which it has.
    pub(super) fn adopt(&mut self, who: usize) {
        let from = &mut self.processes[self.rng.usize(..PROCESSES)];
        let Some(has) = from.held.last_mut() else { return };
        let lease = from.world.machine.leases.get(has.lease.token_id());
        let Some(lease) = lease.filter(|lease| lease.id == has.lease) else { return };
        has.adoptable = true;
        let (token, mode) = (from.world.machine.token_of(lease), lease.mode);
        let (lock, fence, shared) = (has.lock, has.fence, has.shared);
        let (name, ttl) = (self.locks[lock].name.to_owned(), ms(self.rng.u64(60..8_000)));
        let renew = self.rng.u32(..4) > 1;
        let hold = HoldTerms { renew, leave_to_expire: !renew && self.rng.bool(), ..RENEWED };
        let again = is_chosen(&token)
            && self.chosen.contains_key(&token)
            && !mode.is_shared()
            && self.rng.bool();
        if !again {
            self.give_up(&token);
        }
        let label = match self.rng.u32(..3) {
            _ if again => Label::Chosen(token.as_str().into()),
            0 => Label::Made(format!("hf1.x{}.1", self.chosen.len()).into()),
            1 => Label::Chosen(format!("hf1.{CHOSEN}{}.1", self.chosen.len()).into()),
            _ => Label::Text(Arc::default()),
        };
        let owner = token.to_string();
        self.note(who, format_args!("adopts {owner} as {label:?}, {mode:?}, {hold:?}"));
        let adopt = Command::Adopt { name, owner, label: label.clone(), ttl, hold, mode };
        let op = self.processes[who].world.command(adopt);
        let kind = OpKind::Adopt { fence, shared };
        self.processes[who].ask_to_leave(op, lock, kind, hold.leave_to_expire);
        let shot = self.processes[who].world.machine.one_shots.get(&op);
        let Some(new) = shot.map(|shot| shot.call.token().clone()) else { return };
        if label.is_token() {
            self.processes[who].renamed.insert(token);
        }
        if label.is_token() && !again {
            let client = self.processes[who].world.machine.context.config.client.clone();
            self.chosen.insert(new.clone(), client);
        }
        if again {
            self.adopted_again.insert(new.clone());
        }
        // Only its caller, once it has the lock, or the end of its lease may free it: also if there is no answer.
        if is_chosen(&new) || hold.leave_to_expire {
            self.keep(&new);
        }
        if hold.leave_to_expire {
            self.left_to_expire.insert(new.to_string());
        }
    }

    pub(super) fn release(&mut self, who: usize) {
        if let Some(Held { lock, lease, adoptable, .. }) = self.processes[who].held.pop() {
            // Its lease may have ended, and a late request may get the lock for the token anew.
            let token = self.processes[who].token_of(lease);
            self.give_up(&token);
            let exported = self.rng.u32(..8) == 0 || adoptable;
            let until = self.processes[who].world.deadlines.get(&lease).copied();
            let op = self.processes[who].world.command(Command::Release { lease, exported });
            let kind = match until {
                Some(until) if !adoptable => OpKind::Release { lease, until },
                _ => OpKind::Other,
            };
            self.processes[who].ask(op, lock, kind);
            self.processes[who].given_up.push(lease);
            self.note(who, format_args!("release {lease:?}"));
            let handed_off =
                self.processes[who].world.machine.leases.get(lease.token_id()).is_some();
            if handed_off && self.rng.u32(..3) == 0 {
                self.stale_release(who);
            }
        }
    }

    /// A caller uses a handle that it has already released.
    pub(super) fn stale_release(&mut self, who: usize) {
        let Process { world, given_up, .. } = &self.processes[who];
        // Prefers a handle whose lock was handed off, because it could do harm.
        let handed_off = |lease: &&LeaseId| world.machine.leases.get(lease.token_id()).is_some();
        let lease = given_up.iter().find(handed_off).or_else(|| given_up.last());
        let Some(lease) = lease.copied() else { return };
        let op = self.processes[who].world.command(Command::Release { lease, exported: false });
        self.processes[who].ask(op, 0, OpKind::Stale);
        self.note(who, format_args!("release {lease:?} again"));
    }
}
