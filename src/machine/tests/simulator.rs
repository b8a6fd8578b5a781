//! A world from a seed: several processes, one server, a network and clocks, all of them unreliable.
//!
//! Everything follows from the seed, so a failing one replays exactly: `npm run simulate -- --from S
//! --seeds 1`. Time is virtual, and the scripts are those that are shipped.

use super::server::Server;
use super::taking::Closing;
use super::world::{RENEWED, World, ms};
use crate::clock::Mono;
use crate::machine::{Command, Hold, LeaseId, OpId, Outcome, Wait};
use crate::script::{Call, Mode};
use crate::server::memory::Entries;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// How many schedules a test run makes of each kind.
const SEEDS: u64 = 500;
const STEPS: usize = 160;
const BEGIN: Mono = Mono::from_micros(1_000_000);
pub(super) const PROCESSES: usize = 3;
/// A clock runs so much faster or slower than the server's at most: less than the 1 % allowed for.
const DRIFT_PPM: i64 = 4_000;
/// What may go wrong in a schedule besides the network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// The server keeps its data.
    Steady,
    /// It restarts without, or with those of an earlier moment.
    Losing,
    /// Its clock is set.
    Stepping,
}

pub(super) struct Process {
    pub(super) world: World,
    /// Its clock gains or loses this much on the server's.
    drift_ppm: i64,
    /// When it began, by both clocks.
    began: Mono,
    /// It does not run until then.
    pub(super) stopped_until: Option<Mono>,
    /// Nothing reaches it or leaves it until then.
    pub(super) cut_off_until: Option<Mono>,
    pub(super) open: BTreeMap<OpId, Wish>,
    /// What its callers got and have not given up, also if it was lost since.
    pub(super) held: Vec<Held>,
    /// The handles of those who gave the lock up.
    given_up: Vec<LeaseId>,
    /// It is being closed, and nobody asks it for anything any more.
    pub(super) closing: Option<Closing>,
    /// Nothing that it has asked may arrive later than an answer to it.
    pub(super) tidy: bool,
    /// How many of its losses were looked at.
    pub(super) losses_seen: usize,
}

pub(super) struct Held {
    pub(super) lease: LeaseId,
    pub(super) fence: u64,
    /// Whether it is a share, or has been one since it was the whole lock.
    pub(super) shared: bool,
    /// Whether its token was passed on: another may have adopted it.
    pub(super) passed_on: bool,
}

/// What an operation is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wish {
    Lock,
    Share,
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
    pub(super) fn clock(&self, now: Mono) -> Mono {
        let elapsed = i64::try_from(now.since(self.began).as_micros()).unwrap();
        let local = elapsed + elapsed * self.drift_ppm / 1_000_000;
        self.began + Duration::from_micros(u64::try_from(local).unwrap())
    }
}

/// Accepts a write only with a fence at least as high as every one before.
#[derive(Default)]
struct FencedStore {
    highest: u64,
    refused: u64,
}

pub(super) struct Simulation {
    seed: u64,
    pub(super) rng: fastrand::Rng,
    pub(super) kind: Kind,
    /// Which kinds of locks are asked for.
    kinds: u32,
    /// How many kinds of steps there are: the last ones are thefts.
    actions: u32,
    pub(super) now: Mono,
    pub(super) server: Server,
    pub(super) processes: Vec<Process>,
    started: usize,
    /// Requests of connections that are gone, and when they arrive all the same.
    pub(super) late: Vec<(Mono, Call)>,
    /// An earlier state of the data.
    pub(super) saved: Entries,
    /// The tokens that were given back, and stood again in that.
    pub(super) returned: BTreeSet<String>,
    /// A key that a stranger has written to, and until when.
    pub(super) spoiled: Option<(Mono, String)>,
    pub(super) fences: BTreeMap<u64, usize>,
    pub(super) last_fence: u64,
    store: FencedStore,
    /// The tokens of the locks that are kept.
    pub(super) kept: BTreeSet<String>,
    /// Those that another process has lengthened, and until when at least.
    pub(super) lengthened: BTreeMap<String, Mono>,
    /// What happened, if anybody wants to know.
    trace: Option<Vec<String>>,
    pub(super) acquired: usize,
}

impl Simulation {
    pub(super) fn new(seed: u64, kind: Kind) -> Self {
        let mut simulation = Self {
            seed,
            rng: fastrand::Rng::with_seed(seed),
            kind,
            kinds: if seed.is_multiple_of(2) { 4 } else { 8 },
            actions: if seed & 2 == 0 { 105 } else { 102 },
            now: BEGIN,
            server: Server::new(),
            processes: Vec::new(),
            started: 0,
            late: Vec::new(),
            saved: Entries::default(),
            returned: BTreeSet::new(),
            spoiled: None,
            fences: BTreeMap::new(),
            last_fence: 0,
            store: FencedStore::default(),
            kept: BTreeSet::new(),
            lengthened: BTreeMap::new(),
            trace: None,
            acquired: 0,
        };
        simulation.server.watch();
        simulation.server.set_clock(simulation.now);
        for _ in 0..PROCESSES {
            let process = simulation.start();
            simulation.processes.push(process);
        }
        simulation
    }

    /// Remembers what happens.
    fn traced(mut self) -> Self {
        self.trace = Some(Vec::new());
        self
    }

    /// Runs the whole schedule; panics with its seed when a promise is broken.
    pub(super) fn run(&mut self) {
        for _ in 0..STEPS {
            let executed = self.server.executed();
            self.step();
            self.check();
            if self.server.executed() > executed {
                self.check_tokens();
            }
        }
        self.quiet();
    }

    pub(super) fn start(&mut self) -> Process {
        self.started += 1;
        let mut world = World::joining(&self.server, &format!("p{}", self.started), self.now);
        world.outcomes.clear();
        world.unanswered_looks = Some(VecDeque::new());
        world.machine.config.confirm = self.rng.u32(..4) == 0;
        Process {
            world,
            drift_ppm: self.rng.i64(-DRIFT_PPM..=DRIFT_PPM),
            began: self.now,
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

    fn step(&mut self) {
        let who = self.rng.usize(..PROCESSES);
        let action = self.rng.u32(..self.actions);
        if self.processes[who].stopped_until.is_some() {
            // The world goes on without it.
            return self.pass_some();
        }
        if self.processes[who].closing.is_some() {
            match action % 4 {
                0 => self.network(who),
                1 => self.receive(who),
                2 => self.fault(who),
                _ => self.pass_some(),
            }
            return self.collect(who);
        }
        match action {
            0..11 => self.acquire(who),
            11..14 => (0..4).for_each(|_| self.acquire(who)),
            14..16 => self.cancel(who),
            16 => self.adopt(who),
            17..20 => self.extend(who),
            20..33 => self.release(who),
            33..37 => self.write(who),
            37..60 => self.network(who),
            60..68 => self.receive(who),
            68..69 => self.old_code(),
            69..72 => self.stale_release(who),
            72..76 => self.fault(who),
            76..100 => self.pass_some(),
            100 => self.close(who),
            101 => self.lengthen_elsewhere(who),
            102..104 => self.steal(who),
            _ => self.force(who),
        }
        self.collect(who);
    }

    pub(super) fn note(&mut self, who: usize, what: std::fmt::Arguments<'_>) {
        let Some(trace) = &mut self.trace else { return };
        let at = self.now.since(BEGIN).as_secs_f64() * 1000.0;
        trace.push(format!("{at:>9.3} ms  process {who}: {what}"));
    }

    fn acquire(&mut self, who: usize) {
        let ttl = [200, 1_000, 4_000, 10_000][self.rng.usize(..4)];
        let wait = match self.rng.u32(..6) {
            0 => Wait::Never,
            1 => Wait::UpTo(ms(0)),
            2 => Wait::UpTo(ms(300)),
            3 => Wait::Forever,
            _ => Wait::UpTo(ms(8_000)),
        };
        let renew = self.rng.u32(..4) > 0;
        let hold = Hold { renew, keep: !renew && self.rng.bool(), ..RENEWED };
        let mode = self.mode();
        let op = self.processes[who].world.acquire_as(ttl, wait, hold, mode);
        let wish = if mode.is_shared() { Wish::Share } else { Wish::Lock };
        self.processes[who].open.insert(op, wish);
        let keep = hold.keep;
        let how = format_args!("renew {renew}, keep {keep}");
        self.note(who, format_args!("acquire {op:?} {ttl} ms, {wait:?}, {mode:?}, {how}"));
    }

    /// Some schedules are about whole locks alone, others about every kind.
    fn mode(&mut self) -> Mode {
        match self.rng.u32(..self.kinds) {
            0..4 => Mode::Exclusive,
            4 | 5 => Mode::SHARED,
            _ => Mode::Shared { limit: NonZeroU32::new(self.rng.u32(1..4)) },
        }
    }

    pub(super) fn cancel(&mut self, who: usize) {
        let open: Vec<_> = self.processes[who].open.keys().copied().collect();
        if !open.is_empty() {
            let op = open[self.rng.usize(..open.len())];
            if let Some(wish @ (Wish::Lock | Wish::Share)) = self.processes[who].open.get_mut(&op) {
                *wish = Wish::Cancelled;
            }
            self.processes[who].world.cancel(op);
            self.note(who, format_args!("cancel {op:?}"));
        }
    }

    fn extend(&mut self, who: usize) {
        if let Some(held) = self.processes[who].held.last_mut() {
            if self.rng.u32(..3) == 0 {
                held.shared = true;
                let downgrade = Command::Downgrade { lease: held.lease };
                let op = self.processes[who].world.command(downgrade);
                self.processes[who].open.insert(op, Wish::Other);
                return self.note(who, format_args!("downgrade {op:?}"));
            }
            let lease = held.lease;
            let ttl = self.rng.bool().then(|| ms(self.rng.u64(60..3_000)));
            let extend = Command::Extend { lease, ttl };
            let op = self.processes[who].world.command(extend);
            self.processes[who].open.insert(op, Wish::Other);
            self.note(who, format_args!("extend {op:?}"));
        }
    }

    /// Takes over what another process has, or also the same one.
    fn adopt(&mut self, who: usize) {
        let from = &mut self.processes[self.rng.usize(..PROCESSES)];
        let Some(has) = from.held.last_mut() else { return };
        let lease = from.world.machine.leases.get(&has.lease.attempt());
        let Some(lease) = lease.filter(|lease| lease.id == has.lease) else { return };
        has.passed_on = true;
        let (token, mode) = (from.world.machine.token_of(lease), lease.mode);
        let (fence, shared) = (has.fence, has.shared);
        let (name, ttl) = ("a".to_owned(), ms(self.rng.u64(60..8_000)));
        let hold = Hold { renew: self.rng.u32(..4) > 0, ..RENEWED };
        self.give_up(&token);
        let owner = token.to_string();
        self.note(who, format_args!("adopts {owner}, {mode:?}"));
        let adopt = Command::Adopt { name, owner, ttl, hold, mode };
        let op = self.processes[who].world.command(adopt);
        self.processes[who].open.insert(op, Wish::Adopt { fence, shared });
    }

    pub(super) fn release(&mut self, who: usize) {
        if let Some(Held { lease, passed_on, .. }) = self.processes[who].held.pop() {
            if let Some(token) = self.processes[who].token(lease) {
                self.give_up(&token);
            }
            let exported = self.rng.u32(..8) == 0 || passed_on;
            let until = self.processes[who].world.deadlines.get(&lease).copied();
            let op = self.processes[who].world.command(Command::Release { lease, exported });
            let wish = match until {
                Some(until) if !passed_on => Wish::Release { lease, until },
                _ => Wish::Other,
            };
            self.processes[who].open.insert(op, wish);
            self.processes[who].given_up.push(lease);
            self.note(who, format_args!("release {lease:?}"));
        }
    }

    /// Somebody uses a handle that was given up before.
    fn stale_release(&mut self, who: usize) {
        let Process { world, given_up, .. } = &self.processes[who];
        // Rather one whose lock was handed on: it could do harm.
        let handed_on = |lease: &&LeaseId| world.machine.leases.contains_key(&lease.attempt());
        let lease = given_up.iter().find(handed_on).or_else(|| given_up.last());
        let Some(lease) = lease.copied() else { return };
        let op = self.processes[who].world.command(Command::Release { lease, exported: false });
        self.processes[who].open.insert(op, Wish::Stale);
        self.note(who, format_args!("release {lease:?} again"));
    }

    /// Whoever got the lock once may write, also long after: that is what fences are for.
    fn write(&mut self, who: usize) {
        let Some(Held { lease, fence, shared: false, passed_on }) = self.processes[who].held.last()
        else {
            // Those who share a lock only read.
            return;
        };
        let (lease, fence, passed_on) = (*lease, *fence, *passed_on);
        let accepted = fence >= self.store.highest;
        let believes = self.processes[who].world.deadlines.contains_key(&lease);
        self.note(who, format_args!("write with {fence}: {accepted}"));
        if !accepted {
            self.store.refused += 1;
            let robbed = self.is_robbed(&self.processes[who].token_of(lease));
            assert!(
                !believes || passed_on || robbed || self.kind != Kind::Steady,
                "a write of the only holder was refused{}",
                self.story()
            );
        }
        self.store.highest = self.store.highest.max(fence);
    }

    fn pass_some(&mut self) {
        let duration = match self.rng.u32(..10) {
            0..5 => Duration::from_micros(self.rng.u64(1..2_000)),
            5..9 => ms(self.rng.u64(1..150)),
            _ => ms(self.rng.u64(1..2_500)),
        };
        self.pass(duration);
    }

    /// Time passes for the server and for all who run.
    pub(super) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            let step = end.since(self.now).min(ms(5).max(duration / 16));
            self.now = self.now + step;
            self.server.set_clock(self.now);
            self.arrive_late();
            if self.spoiled.as_ref().is_some_and(|(until, _)| *until <= self.now) {
                self.mend_key();
            }
            for who in 0..PROCESSES {
                self.run_process(who);
            }
            self.check();
        }
    }

    fn run_process(&mut self, who: usize) {
        let now = self.now;
        let process = &mut self.processes[who];
        if process.cut_off_until.is_some_and(|until| until <= now) {
            process.cut_off_until = None;
        }
        if process.stopped_until.is_some_and(|until| until <= now) {
            process.stopped_until = None;
            // It finds what had arrived meanwhile before it looks at its timers.
            process.world.now = process.clock(now);
            if process.cut_off_until.is_none() && self.rng.bool() {
                self.processes[who].world.answer_what_is_there();
            }
        }
        let process = &mut self.processes[who];
        if process.stopped_until.is_none() {
            let clock = process.clock(now);
            process.world.pass(clock.since(process.world.now));
        }
        self.collect(who);
    }

    /// The longest lease that may yet be taken by a request that is late.
    pub(super) fn late_lease(&self) -> Duration {
        let asked = self.late.iter().map(|(_, call)| match call {
            Call::Acquire { ttl, .. } | Call::Adopt { ttl, .. } | Call::Extend { ttl, .. } => *ttl,
            _ => Duration::ZERO,
        });
        asked.max().unwrap_or_default()
    }

    pub(super) fn collect(&mut self, who: usize) {
        for op in std::mem::take(&mut self.processes[who].world.completed) {
            let Some(outcome) = self.processes[who].world.take_outcome(op) else { continue };
            let Some(wish) = self.processes[who].open.remove(&op) else { continue };
            self.note(who, format_args!("{op:?}: {outcome:?}"));
            self.check_outcome(who, wish, &outcome);
            if let Outcome::Acquired { lease, fence, .. } = outcome {
                self.acquired += 1;
                self.keep(who, lease);
                let shared = wish == Wish::Share || self.shares(who, lease);
                let shared = if let Wish::Adopt { fence: own, shared } = wish {
                    assert!(fence > own, "an adopter got {fence} after {own}{}", self.story());
                    shared
                } else {
                    self.check_fence(who, lease, fence, shared);
                    shared
                };
                self.processes[who].held.push(Held { lease, fence, shared, passed_on: false });
            }
        }
        self.check_losses(who);
        if self.processes[who].world.stopped {
            self.closed(who);
        }
    }

    pub(super) fn is_steady(&self) -> bool {
        self.kind == Kind::Steady
    }

    fn shares(&self, who: usize, lease: LeaseId) -> bool {
        let leases = &self.processes[who].world.machine.leases;
        leases.get(&lease.attempt()).is_some_and(|held| held.mode.is_shared())
    }

    pub(super) fn story(&self) -> String {
        let Self { seed, kind, trace, .. } = self;
        let trace = trace.as_ref().map_or(String::new(), |trace| trace.join("\n  "));
        format!("\n  seed {seed}, {kind:?}:\n  {trace}\n")
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs the seeds of one kind, on two cores.
fn simulate(kind: Kind) {
    let (from, seeds) = (number("HOLDFAST_FROM", 0), number("HOLDFAST_SEEDS", SEEDS));
    let half = from + seeds / 2;
    std::thread::scope(|scope| {
        scope.spawn(|| simulate_seeds(kind, from..half));
        scope.spawn(|| simulate_seeds(kind, half..from + seeds));
    });
}

fn simulate_seeds(kind: Kind, seeds: Range<u64>) {
    let (mut acquired, count) = (0, seeds.end - seeds.start);
    for seed in seeds {
        let mut simulation = Simulation::new(seed, kind);
        if std::panic::catch_unwind(AssertUnwindSafe(|| simulation.run())).is_err() {
            // The same again, and this time with its story.
            Simulation::new(seed, kind).traced().run();
        }
        acquired += simulation.acquired;
    }
    assert!(acquired as u64 >= count, "the schedules do too little: {acquired} locks in {count}");
}

#[test]
fn one_holder_rising_fences_and_nothing_left_behind() {
    simulate(Kind::Steady);
}

#[test]
fn a_server_that_loses_data_never_repeats_a_fence() {
    simulate(Kind::Losing);
}

#[test]
fn a_clock_that_is_set_lowers_no_fence() {
    simulate(Kind::Stepping);
}
