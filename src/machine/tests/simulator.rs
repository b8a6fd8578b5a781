//! A world from a seed: several processes, one server, a network and clocks, all of them unreliable.
//!
//! Everything follows from the seed, so a failing one replays exactly: `npm run simulate -- --from S --seeds
//! 1`. Time is virtual, and the scripts are the published ones.

use super::cluster_servers::Cluster;
use super::kept::Jobs;
use super::ledger::{Forgotten, Lock};
use super::member::Destination;
use super::process::{Held, OpKind, Open, Process};
use super::server::Server;
use super::steps::{Run, Steps, text_of};
use super::world::{World, ms};
use crate::machine::{LeaseId, Outcome, Polling, TokenId};
use crate::protocol::{Call, Mono, Token};
use crate::server::memory::Entries;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// The number of schedules per kind in a test run.
const SEEDS: u64 = 500;
const STEPS: usize = 160;
/// The number of steps until a server forgets its scripts again.
const FORGETS_EVERY: usize = 20;
const BEGIN: Mono = Mono::from_micros(1_000_000);
/// The age from which a clock comparison is not trusted, plus a margin for drift.
const CLOCKS_AGE: Duration = Duration::from_millis(10_100);
pub(super) const PROCESSES: usize = 3;
/// The most drift of a clock against the server's: less than the 1 % that the protocol allows for.
const DRIFT_PPM: i64 = 4_000;
/// The fault of a schedule, besides the network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// The server keeps its data.
    Steady,
    /// It restarts with no data, or with data of an earlier moment.
    Losing,
    /// It loses its data while connections live.
    Flushing,
    /// A replica takes over, and the old primary may go on.
    Split,
    /// Its clock is set.
    Stepping,
    /// The slot moves to another server.
    Moving,
    /// There are several, and a slot moves among them.
    Cluster,
    /// Nothing else goes wrong, not even in the network.
    Calm,
}

#[expect(clippy::struct_excessive_bools, reason = "facts that are independent")]
pub(super) struct Simulation {
    pub(super) seed: u64,
    pub(super) rng: fastrand::Rng,
    pub(super) kind: Kind,
    /// The range of the lock modes.
    pub(super) kinds: u32,
    /// The range of the kinds of steps: the last ones are thefts.
    actions: u32,
    /// The requested leases. A single one causes more handoffs.
    pub(super) ttls_ms: &'static [u64],
    /// Whether most callers are of one process and want the whole lock for equal times, so that it hands the lock off
    /// often.
    pub(super) busy: bool,
    /// Whether callers often take over the locks of others.
    adopting: bool,
    /// Whether most callers want shares.
    pub(super) sharing: bool,
    /// Whether the server tells of changed keys.
    pub(super) tells: bool,
    /// The factor by which more time passes than usual.
    pace: u32,
    pub(super) now: Mono,
    pub(super) server: Server,
    /// It, and a past or future primary.
    pub(super) servers: Vec<Server>,
    /// Where on several servers its keys are.
    pub(super) cluster: Option<Cluster>,
    pub(super) locks: Vec<Lock>,
    /// The locks of other code that processes keep.
    pub(super) jobs: Jobs,
    pub(super) processes: Vec<Process>,
    started: usize,
    /// Requests of connections that are gone, where they go, and when they arrive all the same.
    pub(super) late: Vec<(Mono, Destination, Call)>,
    /// An earlier state of the data.
    pub(super) saved: Entries,
    /// The tokens that were given back and are in the saved data again, and those of owners that wait there again.
    pub(super) returned: BTreeSet<String>,
    /// The losses of servers' data, by token.
    pub(super) forgotten: BTreeMap<String, Forgotten>,
    /// The number of executed calls at the promotion of each of the two servers.
    pub(super) promoted_at: [usize; 2],
    /// When the server's clock was last set.
    pub(super) clock_set: Option<Mono>,
    /// A key that a stranger has overwritten, and until when.
    pub(super) spoiled: Option<(Mono, String)>,
    /// Until when the server loads its data, and refuses all calls.
    pub(super) loading_until: Option<Mono>,
    /// The tokens of locks that are left to expire.
    pub(super) left_to_expire: BTreeSet<String>,
    /// The tokens that callers have chosen for locks that they adopt, and their managers.
    pub(super) chosen: BTreeMap<Token, String>,
    /// Those that were adopted by the same token since.
    pub(super) adopted_again: BTreeSet<Token>,
    /// The tokens whose claim had no answer when the server restarted: that of another history proves nothing.
    pub(super) unproven: BTreeSet<String>,
    /// The tokens that another process has extended, and their earliest end.
    pub(super) lengthened: BTreeMap<String, Mono>,
    steps: Steps,
    /// The log, if it is requested.
    trace: Option<Vec<String>>,
    pub(super) acquired: usize,
    /// The number of callers that have waited for a whole lock.
    pub(super) waited: usize,
}

impl Simulation {
    pub(super) fn new(seed: u64, kind: Kind) -> Self {
        // What is spread over the seeds: some are about several locks, and in some more time passes.
        let count = match seed / 4 % 8 {
            0 => 2,
            1 => 3,
            _ => 1,
        };
        // In a Cluster they have one slot.
        let names =
            if kind == Kind::Cluster { &["{s}a", "{s}b", "{s}c"] } else { &["a", "b", "c"] };
        let server = Server::new();
        let mut simulation = Self {
            seed,
            rng: fastrand::Rng::with_seed(seed),
            kind,
            kinds: if seed.is_multiple_of(2) { 4 } else { 8 },
            busy: seed % 5 == 4,
            sharing: seed % 6 == 1,
            adopting: seed % 6 == 5,
            // On several servers, written schedules do so.
            tells: seed / 8 % 2 == 1 && kind != Kind::Cluster,
            actions: if seed & 2 == 0 { 105 } else { 102 },
            pace: if (seed / 16).is_multiple_of(4) { 5 } else { 1 },
            ttls_ms: if seed / 4 % 3 == 2 { &[10_000] } else { &[200, 1_000, 4_000, 10_000] },
            now: BEGIN,
            servers: vec![server.clone()],
            server,
            cluster: None,
            locks: names[..count].iter().map(|name| Lock::new(name)).collect(),
            jobs: Jobs::default(),
            processes: Vec::new(),
            started: 0,
            late: Vec::new(),
            saved: Entries::default(),
            returned: BTreeSet::new(),
            forgotten: BTreeMap::new(),
            promoted_at: [0; 2],
            clock_set: None,
            spoiled: None,
            loading_until: None,
            left_to_expire: BTreeSet::new(),
            chosen: BTreeMap::new(),
            adopted_again: BTreeSet::new(),
            unproven: BTreeSet::new(),
            lengthened: BTreeMap::new(),
            steps: Steps::default(),
            trace: None,
            acquired: 0,
            waited: 0,
        };
        let locks: Vec<_> = simulation.locks.iter().map(|lock| lock.keys.clone()).collect();
        simulation.server.set_clock(simulation.now);
        let has_one_place = !matches!(kind, Kind::Cluster | Kind::Moving);
        if has_one_place && simulation.rng.u32(..6) == 0 {
            simulation.server.deny_counter();
        }
        if kind == Kind::Split {
            simulation.servers.push(simulation.server.replica(BEGIN));
        }
        simulation.servers.iter().for_each(|server| server.watch(&locks));
        if kind == Kind::Cluster {
            let (server, rng) = (simulation.server.clone(), &mut simulation.rng);
            simulation.cluster = Some(Cluster::new(server, &locks[0], rng));
        }
        for _ in 0..PROCESSES {
            let process = simulation.start();
            simulation.processes.push(process);
        }
        simulation
    }

    /// Runs the whole schedule; panics with its seed when a promise is broken.
    pub(super) fn run(&mut self) {
        // In some schedules the server forgets its scripts again and again.
        let forgets = self.seed % 11 == 9;
        for index in 0..STEPS {
            if forgets && index % FORGETS_EVERY == 0 {
                self.server.forget_scripts();
            }
            if self.steps.takes(index, &mut self.rng) {
                let executed = self.server.executed();
                self.step();
                self.act_for_owners(index);
                self.act_for_jobs(index);
                self.check();
                if self.server.executed() > executed {
                    self.check_tokens();
                }
            }
        }
        let phases = [Self::lull, Self::learn, Self::quiet];
        for (index, phase) in (STEPS..).zip(phases) {
            if self.steps.takes(index, &mut self.rng) {
                phase(self);
            }
        }
    }

    pub(super) fn start(&mut self) -> Process {
        self.started += 1;
        let client = format!("p{}", self.started);
        // Some may not ask for INFO. Without that the order across other histories depends on the clocks.
        let ordered = !matches!(self.kind, Kind::Cluster | Kind::Split | Kind::Stepping);
        let is_blind = ordered && self.rng.u32(..6) == 0;
        let mut world = match &self.cluster {
            Some(cluster) => World::joining_cluster(cluster, &client, self.now),
            None if is_blind => World::joining_without_info(&self.server, &client, self.now),
            None => World::joining(&self.server, &client, self.now),
        };
        if self.rng.u32(..3) == 0 || self.server.denies_counter() {
            world = world.by_scripts();
        }
        // In half of the schedules the server tells of changed keys.
        if self.tells {
            world.tells_from_now_on();
        }
        world.outcomes.clear();
        world.unanswered_probes = Some(VecDeque::new());
        world.machine.context.config.confirm = self.rng.u32(..4) == 0;
        // In some schedules most requests have to wait for room.
        world.window = (self.seed % 4 == 1).then_some((1, 2));
        // In some schedules a process waits beside old code. Those who poll have no order.
        if self.seed % 5 == 3 && self.started.is_multiple_of(2) && self.kind != Kind::Calm {
            world.machine.context.config.polling = Some(Polling { least: ms(20), most: ms(150) });
        }
        world.executed = self.trace.is_some().then(Vec::new);
        let drift_ppm = self.rng.i64(-DRIFT_PPM..=DRIFT_PPM);
        Process::new(world, drift_ppm, self.now)
    }

    fn step(&mut self) {
        let mut who = self.rng.usize(..PROCESSES);
        if self.busy && self.rng.u32(..8) > 0 {
            who = 0;
        }
        let action = self.rng.u32(..self.actions);
        self.face_any_server(who);
        if self.processes[who].stopped_until.is_some() {
            // The process is stopped. Its written requests still reach the server.
            if self.reachable(who) && self.rng.bool() {
                self.execute(who);
            }
            return self.pass_some();
        }
        if self.processes[who].closing.is_some() {
            match action % 4 {
                0 => self.network(who),
                1 => self.receive(who),
                2 if self.kind != Kind::Calm => self.fault(who),
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
            20..33 => (0..if self.busy { 3 } else { 1 }).for_each(|_| self.release(who)),
            33..37 => self.write(who),
            56..60 if self.adopting => self.adopt(who),
            37..60 => (0..if self.busy { 8 } else { 1 }).for_each(|_| self.network(who)),
            60..68 => self.receive(who),
            68..69 => self.old_code(),
            69..72 => self.stale_release(who),
            72..76 if self.kind == Kind::Calm => self.network(who),
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

    fn tell_executed(&mut self, who: usize) {
        let executed = self.processes[who].world.executed.as_mut().map(std::mem::take);
        for call in executed.unwrap_or_default() {
            self.note(who, format_args!("{call}"));
        }
    }

    fn pass_some(&mut self) {
        let duration = match self.rng.u32(..10) {
            0..5 => Duration::from_micros(self.rng.u64(1..2_000)),
            5..9 => ms(self.rng.u64(1..150)),
            _ => ms(self.rng.u64(1..2_500)),
        };
        // A lock is handed off only as long as it is known to be held.
        self.pass(if self.busy { duration / 20 } else { duration * self.pace });
    }

    /// Advances the time of the server and of all running processes.
    pub(super) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            let step = end.since(self.now).min(ms(5).max(duration / 16));
            self.now = self.now + step;
            self.servers.iter().for_each(|server| server.set_clock(self.now));
            self.arrive_late();
            if self.server.is_moving() {
                self.server.move_key(self.now);
            }
            self.go_on_resharding();
            if self.loading_until.is_some_and(|until| until <= self.now) {
                self.end_loading();
            }
            if self.spoiled.as_ref().is_some_and(|(until, _)| *until <= self.now) {
                self.mend_key();
            }
            for who in 0..PROCESSES {
                self.run_process(who);
            }
            self.check();
        }
    }

    /// Skips a long time in which no process has anything to do.
    pub(super) fn skip(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.servers.iter().for_each(|server| server.set_clock(self.now));
    }

    fn run_process(&mut self, who: usize) {
        let now = self.now;
        let process = &mut self.processes[who];
        if process.cut_off_until.is_some_and(|until| until <= now) {
            process.cut_off_until = None;
        }
        if process.stopped_until.is_some_and(|until| until <= now) {
            process.stopped_until = None;
            // It handles arrived messages before its timers.
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

    /// The longest lease that a request may still take which is late or on its way.
    pub(super) fn late_lease(&self) -> Duration {
        let late = self.late.iter().map(|(_, _, call)| call);
        let sent = self.processes.iter().flat_map(|process| &process.world.wire);
        let asked = late.chain(sent.map(|(_, call)| call)).map(Call::ttl);
        asked.max().unwrap_or_default()
    }

    pub(super) fn collect(&mut self, who: usize) {
        self.tell_executed(who);
        for op in std::mem::take(&mut self.processes[who].world.completed) {
            let Some(outcome) = self.processes[who].world.take_outcome(op) else { continue };
            let Some(open) = self.processes[who].open.remove(&op) else { continue };
            self.note(who, format_args!("{op:?}: {outcome:?}"));
            self.check_outcome(who, open.kind, &outcome);
            match outcome {
                Outcome::Acquired { lease, fence, .. } => self.got(who, open, lease, fence),
                Outcome::Done => {
                    if let OpKind::Leave(lease) = open.kind {
                        self.note_left(who, lease);
                    }
                }
                Outcome::AcquiredAll { lease, fences } => {
                    for (fence, number) in fences.into_iter().zip(0..) {
                        let attempt = TokenId(lease.token_id().0 + number);
                        let lock = open.lock + usize::try_from(number).unwrap();
                        self.got(
                            who,
                            Open { lock, ..open.clone() },
                            LeaseId::first(attempt),
                            fence,
                        );
                    }
                }
                _ => {}
            }
        }
        self.date_messages(who);
        self.check_losses(who);
        if self.processes[who].world.stopped {
            self.closed(who);
        }
    }

    /// A caller has got the lock or a share of it.
    fn got(&mut self, who: usize, open: Open, lease: LeaseId, fence: u64) {
        let Open { lock, kind, waits, leaves, asked } = open;
        if let Some(waits) = waits {
            self.check_order(lock, &waits);
            self.check_length(who, lease, &waits);
        }
        self.acquired += 1;
        let world = &self.processes[who].world;
        let token = world.machine.hold_of(lease).map(|held| world.machine.token_of(held));
        // The hold may be over by now: another one under its value was released.
        let token = token.or_else(|| world.values.get(&lease.token_id().0).cloned());
        let chosen = token.filter(|token| self.chosen.contains_key(token));
        if let Some(token) = &chosen {
            self.processes[who].chosen.insert(lease.token_id(), token.clone());
        }
        if leaves {
            // Also what is lost again by now.
            self.note_left(who, lease);
        }
        self.note_left_to_expire(who, lease);
        let shared = kind == OpKind::Share || self.shares(who, lease);
        let shared = if let OpKind::Adopt { fence: own, shared } = kind {
            // Fences of two masters have no order.
            let ordered = self.kind != Kind::Split;
            self.demand(fence > own || !ordered, || format!("an adopter got {fence} after {own}"));
            shared
        } else {
            shared
        };
        self.check_fence(who, lock, lease, (fence, asked), shared);
        // Whoever else adopts from it by the same token may release it.
        let adoptable = chosen.is_some_and(|token| self.adopted_again.contains(&token));
        self.processes[who].held.push(Held { lock, lease, fence, shared, adoptable, leaves });
    }

    /// A recently set clock dates messages wrongly.
    fn date_messages(&mut self, who: usize) {
        let told = std::mem::take(&mut self.processes[who].world.told);
        let wrong = |set: Mono| self.now.since(set) <= CLOCKS_AGE;
        if self.clock_set.is_some_and(wrong) {
            for grant in told {
                self.misdated(grant.token.as_str(), grant.claim);
            }
        }
    }

    pub(super) fn is_steady(&self) -> bool {
        self.kind == Kind::Steady
    }

    fn shares(&self, who: usize, lease: LeaseId) -> bool {
        let leases = &self.processes[who].world.machine.leases;
        leases.get(lease.token_id()).is_some_and(|held| held.mode.is_shared())
    }

    pub(super) fn story(&self) -> String {
        let Self { seed, kind, trace, .. } = self;
        let trace = trace.as_ref().map_or(String::new(), |trace| trace.join("\n  "));
        format!("\n  seed {seed}, {kind:?}:\n  {trace}\n")
    }
}

pub(super) fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs one schedule.
pub(super) fn run(seed: u64, kind: Kind, steps: Steps, is_told: bool) -> Run {
    let mut simulation = Simulation::new(seed, kind);
    if is_told {
        simulation.trace = Some(Vec::new());
        simulation.processes.iter_mut().for_each(|it| it.world.executed = Some(Vec::new()));
    }
    simulation.steps = steps;
    let broken = std::panic::catch_unwind(AssertUnwindSafe(|| simulation.run()));
    let broken = broken.err().map(|panic| text_of(&*panic));
    (0..PROCESSES).for_each(|who| simulation.tell_executed(who));
    let story = simulation.story();
    Run { steps: simulation.steps, broken, story, acquired: simulation.acquired }
}

/// What goes wrong, or does not, in the three schedules of each seed. Of an odd number of kinds each gets odd and even
/// seeds, which differ in what is asked for.
const KINDS: [&[Kind]; 3] = [
    &[
        Kind::Steady,
        Kind::Cluster,
        Kind::Steady,
        Kind::Moving,
        Kind::Steady,
        Kind::Cluster,
        Kind::Calm,
    ],
    &[Kind::Losing, Kind::Flushing, Kind::Split],
    &[Kind::Stepping],
];

fn kind_of(seed: u64, kinds: &[Kind]) -> Kind {
    kinds[usize::try_from(seed).unwrap() % kinds.len()]
}

/// The kinds of the schedules of a seed.
pub(super) fn kinds_of(seed: u64) -> impl Iterator<Item = Kind> {
    KINDS.into_iter().map(move |kinds| kind_of(seed, kinds))
}

/// Runs the first seeds on two cores.
fn simulate(kinds: &[Kind]) {
    std::thread::scope(|scope| {
        scope.spawn(|| simulate_seeds(kinds, 0..SEEDS / 2));
        scope.spawn(|| simulate_seeds(kinds, SEEDS / 2..SEEDS));
    });
}

fn simulate_seeds(kinds: &[Kind], seeds: Range<u64>) {
    let (mut acquired, count) = (0, seeds.end - seeds.start);
    for seed in seeds {
        acquired += run(seed, kind_of(seed, kinds), Steps::default(), false).acquired();
    }
    assert!(acquired as u64 >= count, "the schedules do too little: {acquired} locks in {count}");
}

#[test]
fn one_holder_rising_fences_and_nothing_left_behind() {
    simulate(KINDS[0]);
}

#[test]
fn a_server_that_loses_data_never_repeats_a_fence() {
    simulate(KINDS[1]);
}

#[test]
fn a_clock_that_is_set_lowers_no_fence() {
    simulate(KINDS[2]);
}
