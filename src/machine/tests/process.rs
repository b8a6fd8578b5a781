//! One process of a simulation: a manager, its clock, and its callers' locks.

use super::theft_rules::Closing;
use super::world::World;
use crate::machine::queue_entry::Entry;
use crate::machine::{LeaseId, Machine, OpId, TokenId};
use crate::protocol::{Mono, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) struct Process {
    pub(super) world: World,
    /// The drift of its clock against the server's.
    pub(super) drift_ppm: i64,
    /// The time of its start, by both clocks.
    pub(super) began: Mono,
    /// It is stopped until then.
    pub(super) stopped_until: Option<Mono>,
    /// It is cut off from the network until then.
    pub(super) cut_off_until: Option<Mono>,
    pub(super) open: BTreeMap<OpId, Open>,
    /// Held locks that its callers have not released, including lost ones.
    pub(super) held: Vec<Held>,
    /// The released handles.
    pub(super) given_up: Vec<LeaseId>,
    /// It is being closed, and gets no more commands.
    pub(super) closing: Option<Closing>,
    /// None of its requests may arrive after the reply to it.
    pub(super) tidy: bool,
    /// The tokens from which its callers have adopted by tokens that they have named.
    pub(super) renamed: BTreeSet<Token>,
    /// The tokens that its callers have chosen.
    pub(super) chosen: BTreeMap<TokenId, Token>,
    /// It has met no fault since it began, and does not poll as old code does.
    pub(super) is_ordered: bool,
    /// The number of its losses that were checked.
    pub(super) losses_seen: usize,
    /// When each lock was first seen idle that the server has granted it, by its own clock.
    idle_since: BTreeMap<TokenId, Mono>,
}

pub(super) struct Held {
    /// The index of its lock in the schedule.
    pub(super) lock: usize,
    pub(super) lease: LeaseId,
    pub(super) fence: u64,
    /// Whether it is a share, or was downgraded to one.
    pub(super) shared: bool,
    /// Whether its token was exported: another process may have adopted it.
    pub(super) adoptable: bool,
    /// Its caller leaves it to expire.
    pub(super) leaves: bool,
}

/// An operation without an outcome.
#[derive(Clone, Debug)]
pub(super) struct Open {
    /// The index of its lock, or of the first of several.
    pub(super) lock: usize,
    pub(super) kind: OpKind,
    /// The position of its caller, if that waits for the whole lock.
    pub(super) waits: Option<Waits>,
    /// Its caller leaves to expire what it gets.
    pub(super) leaves: bool,
    /// The number of calls executed when its caller asked.
    pub(super) asked: usize,
}

/// A caller who waits for a whole lock.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    /// The requested lease.
    pub(super) ttl: Duration,
    /// Its number among all waiting callers.
    pub(super) number: usize,
    /// The earlier waiters, as far as the server knew of them.
    pub(super) behind: Vec<usize>,
    /// The number of later callers that got the lock before it.
    pub(super) overtaken: usize,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OpKind {
    Lock,
    Share,
    /// This number of consecutive locks.
    AcquireAll(usize),
    /// The lock of another caller, with this fence.
    Adopt {
        fence: u64,
        shared: bool,
    },
    /// Releases a lock that is held until then and was not exported.
    Release {
        lease: LeaseId,
        until: Mono,
    },
    /// The end of a lease that its caller leaves to expire.
    Leave(LeaseId),
    Other,
    /// Its caller has cancelled it.
    Cancelled,
    /// Its caller has already released the lock.
    Stale,
}

impl Process {
    pub(super) fn new(world: World, drift_ppm: i64, began: Mono) -> Self {
        let is_ordered = world.machine.context.config.polling.is_none();
        Self {
            world,
            is_ordered,
            drift_ppm,
            began,
            stopped_until: None,
            cut_off_until: None,
            open: BTreeMap::new(),
            held: Vec::new(),
            given_up: Vec::new(),
            closing: None,
            tidy: true,
            renamed: BTreeSet::new(),
            chosen: BTreeMap::new(),
            losses_seen: 0,
            idle_since: BTreeMap::new(),
        }
    }

    pub(super) fn clock(&self, now: Mono) -> Mono {
        let elapsed = i64::try_from(now.since(self.began).as_micros()).unwrap();
        let local = elapsed + elapsed * self.drift_ppm / 1_000_000;
        self.began + Duration::from_micros(u64::try_from(local).unwrap())
    }

    pub(super) fn ask_to_leave(&mut self, op: OpId, lock: usize, kind: OpKind, leaves: bool) {
        let asked = self.world.server.executed();
        self.open.insert(op, Open { lock, kind, waits: None, leaves, asked });
    }

    pub(super) fn ask(&mut self, op: OpId, lock: usize, kind: OpKind) {
        self.ask_to_leave(op, lock, kind, false);
    }

    /// The leases that its callers believe in, and their remaining time by its own clock.
    pub(super) fn believed(&self, now: Mono) -> impl Iterator<Item = (LeaseId, Duration)> {
        let clock = self.clock(now);
        let valid = self.world.deadlines.iter().filter(move |(_, until)| **until > clock);
        valid.map(move |(lease, until)| (*lease, until.since(clock)))
    }

    pub(super) fn see_idle_locks(&mut self) {
        let Self { world, idle_since, .. } = self;
        for id in world.machine.leases.idle.ids() {
            idle_since.entry(id).or_insert(world.now);
        }
    }

    /// An idle lock that callers in no queue elsewhere, of whom no server knows, have found held for too long: each of the
    /// callers here has kept it for its `linger` from the first time on that it was idle, at most.
    pub(super) fn overdue_idle_lock(&self) -> Option<TokenId> {
        let idle = &self.world.machine.leases.idle;
        let is_overdue = |id: &TokenId| {
            let (since, linger) = (self.idle_since.get(id), idle.linger_of(*id));
            since.zip(linger).is_none_or(|(since, linger)| *since + linger < self.world.now)
        };
        idle.ids().into_iter().find(is_overdue)
    }

    /// The token of a lease, without a label.
    pub(super) fn token_of(&self, lease: LeaseId) -> Token {
        let id = lease.token_id();
        let known = self.chosen.get(&id).or_else(|| self.world.tokens.get(&id.0)).cloned();
        let client = &self.world.machine.context.config.client;
        known.unwrap_or_else(|| Token::new(client, id.0, ""))
    }

    /// The token of a lease that has not ended.
    pub(super) fn token(&self, lease: LeaseId) -> Option<Token> {
        let machine = &self.world.machine;
        machine.hold_of(lease).map(|lease| machine.token_of(lease))
    }
}

/// Whether a machine still knows a token that a caller has chosen.
pub(super) fn knows_chosen(machine: &Machine, token: &Token) -> bool {
    machine.leases.all().any(|held| machine.token_of(held) == *token)
        || machine.releases.values().any(|release| release.is_of(token))
        || machine.one_shots.values().any(|shot| shot.call.token() == token)
}

/// Whether a machine still knows a token.
pub(super) fn knows(machine: &Machine, id: TokenId) -> bool {
    let client = &machine.context.config.client;
    let takes_over = |entry: &Entry| entry.takes_over.as_ref().is_some_and(|it| it.id == id);
    machine.entries.get(&id).is_some()
        || machine.entries.iter().any(|(_, entry)| takes_over(entry))
        || machine.leases.get(id).is_some()
        || machine.releases.contains_key(&id)
        || machine.releases.values().filter_map(|it| it.successor.as_ref()).any(|it| it.0 == id)
        || machine.one_shots.values().any(|shot| {
            let mut locks = shot.call.clone().into_locks();
            // An extension of what is released meanwhile gets nothing.
            let lasts = shot.extends().is_none_or(|lease| machine.hold_of(lease).is_some());
            lasts && locks.any(|(_, token)| token.number(client) == Some(id.0))
        })
}
