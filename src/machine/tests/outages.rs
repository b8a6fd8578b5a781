//! Outages that are shorter than a lease allows, from a seed: no lock may be lost.
//!
//! What a lease allows: it is renewed at a third of its length, so an outage that begins right before that leaves two
//! thirds. From these go the drift of the clocks, the longest pause before the attempt that meets the server again, its
//! handshake and the renewal.

use super::world::{RENEWED, World, ms};
use crate::machine::{Event, LeaseId, Wait};
use crate::protocol::{Failure, Mode, Mono, drift};
use std::time::Duration;

const SEEDS: u64 = 400;
/// How long the server takes to welcome a connection.
const HANDSHAKE: Duration = Duration::from_millis(4);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(1);

/// What is wrong with the reconnection of a schedule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Flaw {
    /// The pause between two attempts grows to a second, whatever the leases.
    PausesUnbounded,
    /// No attempt starts beside another one.
    OneAttempt,
    /// No connection is made beside one that does not answer.
    NeverDoubted,
}

/// How the server is away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Its connections break, and it refuses others.
    Refuses,
    /// It swallows everything, also what was on its way when it is back.
    Swallows,
}

struct Schedule {
    world: World,
    kind: Kind,
    flaw: Option<Flaw>,
    /// When the server is away.
    away: std::ops::Range<Mono>,
    /// Attempts that are welcomed at this time, and those that are swallowed, by their end.
    welcomes: Vec<Mono>,
    swallowed: Vec<Mono>,
    last_attempt: Mono,
}

/// The longest outage that a lease survives.
fn longest(ttl: Duration) -> Duration {
    let pause = (ttl / 112).max(ms(15));
    (ttl * 2 / 3).saturating_sub(drift(ttl) + pause + HANDSHAKE + STEP * 4)
}

impl Schedule {
    /// Locks of several lengths, one of which is the shortest.
    fn new(seed: u64, flaw: Option<Flaw>) -> (Self, Vec<LeaseId>, Duration) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let kind = if rng.bool() { Kind::Refuses } else { Kind::Swallows };
        let lengths_ms = [1_000, 3_000, 5_000, 10_000, 30_000];
        let shortest = rng.usize(..lengths_ms.len());
        let mut world = World::connected();
        let mut leases = Vec::new();
        for number in 0..rng.usize(1..4) {
            let length = if number == 0 { shortest } else { rng.usize(shortest..lengths_ms.len()) };
            let op = world.acquire_named(
                &format!("lock {number}"),
                lengths_ms[length],
                Wait::Never,
                RENEWED,
                Mode::Exclusive,
            );
            world.settle();
            leases.push(world.lease(op).0);
            for _ in 0..rng.u64(..lengths_ms[shortest] / 30) {
                world.pass(ms(10));
                world.settle();
            }
        }
        let ttl = ms(lengths_ms[shortest]);
        let begin = world.now + ms(rng.u64(..lengths_ms[shortest]));
        let away = begin..begin + longest(ttl);
        let (welcomes, swallowed) = (Vec::new(), Vec::new());
        let last_attempt = Mono::default();
        let schedule = Self { world, kind, flaw, away, welcomes, swallowed, last_attempt };
        (schedule, leases, ttl)
    }

    fn is_away(&self) -> bool {
        self.away.contains(&self.world.now)
    }

    fn step(&mut self) {
        let was_away = self.is_away();
        self.world.pass(STEP);
        if self.is_away() && !was_away && self.kind == Kind::Refuses && self.world.up {
            self.world.event(Event::Disconnected("cut".to_owned()));
        }
        if std::mem::take(&mut self.world.connecting) && self.may_attempt() {
            self.attempt();
        }
        let now = self.world.now;
        self.swallowed.retain(|end| *end > now);
        if !self.is_away() {
            if self.welcomes.iter().any(|at| *at <= now) {
                self.welcomes.clear();
                self.swallowed.clear();
                self.world.connecting = true;
                self.world.connect();
            }
            // What was sent into a hole is gone.
            let is_fresh = self.world.up && self.last_attempt >= self.away.end;
            if self.kind == Kind::Refuses || now < self.away.start || is_fresh {
                self.world.settle();
            }
        }
    }

    fn may_attempt(&self) -> bool {
        match self.flaw {
            None => true,
            Some(Flaw::PausesUnbounded) => {
                self.world.now.since(self.last_attempt) >= Duration::from_secs(1)
            }
            Some(Flaw::OneAttempt) => self.swallowed.is_empty() && self.welcomes.is_empty(),
            Some(Flaw::NeverDoubted) => !self.world.up,
        }
    }

    fn attempt(&mut self) {
        let now = self.world.now;
        self.last_attempt = now;
        match self.kind {
            _ if !self.is_away() => self.welcomes.push(now + HANDSHAKE),
            Kind::Swallows => self.swallowed.push(now + CONNECT_TIMEOUT),
            Kind::Refuses => {
                let failure = Failure::Lost("refused".to_owned());
                self.world.event(Event::ConnectFailed(failure));
            }
        }
    }
}

/// Whether a schedule loses a lock.
fn loses(seed: u64, flaw: Option<Flaw>) -> Option<String> {
    let (mut schedule, leases, ttl) = Schedule::new(seed, flaw);
    let until = schedule.away.end + ttl / 2;
    while schedule.world.now < until {
        schedule.step();
    }
    let lost = &schedule.world.lost;
    let is_lost = leases.iter().any(|lease| lost.iter().any(|(other, _)| other == lease));
    is_lost.then(|| format!("seed {seed}, {:?}, ttl {ttl:?}: {lost:?}", schedule.kind))
}

#[test]
fn an_outage_that_is_shorter_than_a_lease_allows_loses_no_lock() {
    let lost: Vec<_> = (0..SEEDS).filter_map(|seed| loses(seed, None)).collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn the_defects_of_a_reconnection_are_found() {
    for flaw in [Flaw::PausesUnbounded, Flaw::OneAttempt, Flaw::NeverDoubted] {
        assert!((0..SEEDS).any(|seed| loses(seed, Some(flaw)).is_some()), "{flaw:?} is not found");
    }
}

/// A renewal of a second has no answer for long enough.
fn doubted() -> (World, LeaseId) {
    let mut world = World::connected();
    let op = world.acquire_held(1_000, Wait::Never, RENEWED);
    world.settle();
    let (lease, _) = world.lease(op);
    world.pass(ms(333));
    assert!(!world.connecting && !world.wire.is_empty(), "the renewal is not doubted yet");
    world.pass(ms(90));
    assert!(world.connecting, "another connection is made");
    assert!(world.up && world.notices.is_empty(), "beside this one");
    (world, lease)
}

#[test]
fn a_doubted_connection_that_answers_is_kept() {
    let (mut world, lease) = doubted();
    world.settle();
    assert!(!world.connecting && world.up && world.notices.is_empty(), "the answer ends the doubt");
    assert!(world.deadlines[&lease].since(world.now) > ms(850), "renewed, from when it was asked");
    world.pass(ms(50));
    assert!(!world.connecting, "no other connection is attempted");
}

#[test]
fn a_doubted_connection_is_given_up_for_one_that_answers() {
    let (mut world, lease) = doubted();
    // It asks for more, which is lost as well.
    let op = world.acquire_named("other", 10_000, Wait::Forever, RENEWED, Mode::Exclusive);
    assert_eq!(world.wire.len(), 2);
    world.connect();
    assert_eq!(world.notices.len(), 2, "lost, and made anew: {:?}", world.notices);
    assert_eq!(world.late.len(), 2, "what the first one was asked");
    world.settle();
    world.lease(op);
    assert!(world.deadlines[&lease].since(world.now) > ms(950), "renewed at once");
    // The server has the lost renewal and the lost acquire all the same.
    for (destination, call) in world.take_late() {
        drop(destination.execute(world.now, &call));
    }
    for _ in 0..200 {
        world.pass(ms(10));
        world.settle();
    }
    assert!(world.lost.is_empty(), "the lease outlives the connection: {:?}", world.lost);
}

#[test]
fn attempts_of_long_leases_are_a_second_apart_at_most() {
    let mut world = World::connected();
    world.acquire_held(60_000, Wait::Never, RENEWED);
    world.settle();
    world.event(Event::Disconnected("cut".to_owned()));
    let mut attempts = 0;
    for _ in 0..1_000 {
        // Each is swallowed.
        attempts += usize::from(std::mem::take(&mut world.connecting));
        world.pass(ms(10));
    }
    assert!((11..=21).contains(&attempts), "{attempts} attempts in ten seconds");
}
