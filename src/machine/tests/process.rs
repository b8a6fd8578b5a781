//! One process of a simulation: a manager, its clock, and what its callers have.

use super::taking::Closing;
use super::world::World;
use crate::machine::{LeaseId, Machine, OpId, TokenId};
use crate::protocol::clock::Mono;
use crate::protocol::token::Token;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) struct Process {
    pub(super) world: World,
    /// Its clock gains or loses this much on the server's.
    pub(super) drift_ppm: i64,
    /// When it began, by both clocks.
    pub(super) began: Mono,
    /// It does not run until then.
    pub(super) stopped_until: Option<Mono>,
    /// Nothing reaches it or leaves it until then.
    pub(super) cut_off_until: Option<Mono>,
    pub(super) open: BTreeMap<OpId, Open>,
    /// What its callers got and have not given up, also if it was lost since.
    pub(super) held: Vec<Held>,
    /// The handles of those who gave the lock up.
    pub(super) given_up: Vec<LeaseId>,
    /// It is being closed, and nobody asks it for anything any more.
    pub(super) closing: Option<Closing>,
    /// Nothing that it has asked may arrive later than an answer to it.
    pub(super) tidy: bool,
    /// How many of its losses were looked at.
    pub(super) losses_seen: usize,
}

pub(super) struct Held {
    /// The place of its lock among those of the schedule.
    pub(super) lock: usize,
    pub(super) lease: LeaseId,
    pub(super) fence: u64,
    /// Whether it is a share, or has been one since it was the whole lock.
    pub(super) shared: bool,
    /// Whether its token was passed on: another may have adopted it.
    pub(super) passed_on: bool,
}

/// An operation without an outcome.
#[derive(Clone, Debug)]
pub(super) struct Open {
    /// The place of its lock, or of the first of several.
    pub(super) lock: usize,
    pub(super) wish: Wish,
    /// What is known of its caller's place, if that waits for the whole lock.
    pub(super) waits: Option<Waits>,
}

/// A caller who waits for a whole lock.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    /// The lease that it wants.
    pub(super) ttl: Duration,
    /// Its number among all who do.
    pub(super) number: usize,
    /// Those who waited already when it called, as far as the server knew of them.
    pub(super) behind: Vec<usize>,
    /// How many who called later had the lock before.
    pub(super) overtaken: usize,
}

/// What an operation is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wish {
    Lock,
    Share,
    /// So many locks, one behind the other.
    AcquireAll(usize),
    /// What somebody else has, with this fence.
    Adopt {
        fence: u64,
        shared: bool,
    },
    /// To give up what its caller holds until then, and nobody else has had to do with.
    Release {
        lease: LeaseId,
        until: Mono,
    },
    Other,
    /// Its caller has asked to end it.
    Cancelled,
    /// Its caller has given the lock up before.
    Stale,
}

impl Process {
    pub(super) fn new(world: World, drift_ppm: i64, began: Mono) -> Self {
        Self {
            world,
            drift_ppm,
            began,
            stopped_until: None,
            cut_off_until: None,
            open: BTreeMap::new(),
            held: Vec::new(),
            given_up: Vec::new(),
            closing: None,
            tidy: true,
            losses_seen: 0,
        }
    }

    pub(super) fn clock(&self, now: Mono) -> Mono {
        let elapsed = i64::try_from(now.since(self.began).as_micros()).unwrap();
        let local = elapsed + elapsed * self.drift_ppm / 1_000_000;
        self.began + Duration::from_micros(u64::try_from(local).unwrap())
    }

    pub(super) fn ask(&mut self, op: OpId, lock: usize, wish: Wish) {
        self.open.insert(op, Open { lock, wish, waits: None });
    }

    /// The leases by which its callers believe to hold locks, and for how long by its own clock, whoever runs now.
    pub(super) fn believed(&self, now: Mono) -> impl Iterator<Item = (LeaseId, Duration)> {
        let clock = self.clock(now);
        let valid = self.world.deadlines.iter().filter(move |(_, until)| **until > clock);
        valid.map(move |(lease, until)| (*lease, until.since(clock)))
    }

    /// The token of a lease that has none but its attempt's number.
    pub(super) fn token_of(&self, lease: LeaseId) -> Token {
        Token::new(&self.world.machine.rq.cx.config.client, lease.token_id().0, "")
    }

    /// The token of a lease that has not ended.
    pub(super) fn token(&self, lease: LeaseId) -> Option<Token> {
        let machine = &self.world.machine;
        machine.hold_of(lease).map(|lease| machine.token_of(lease))
    }
}

/// Whether a machine still has to do with an attempt.
pub(super) fn knows(machine: &Machine, id: TokenId) -> bool {
    let client = &machine.rq.cx.config.client;
    machine.entries.get(id).is_some()
        || machine.leases.get(id).is_some()
        || machine.releases.get(id).is_some()
        || machine.releases.names_successor(id)
        || machine.one_shots.all().any(|shot| {
            let mut locks = shot.call.clone().into_locks();
            locks.any(|(_, token)| token.number(client) == Some(id.0))
        })
}
