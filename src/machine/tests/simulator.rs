//! A world from a seed: several processes, one server, a network and clocks, all of them unreliable.
//!
//! Everything follows from the seed, so a failing one replays exactly: `npm run simulate -- --from S
//! --seeds 1`. Time is virtual, and the scripts are those that are shipped.

use super::world::{RENEWED, Server, World, is_mutated, ms, mutate};
use crate::clock::Mono;
use crate::machine::{Command, Event, Hold, LeaseId, OpId, Outcome, Wait};
use crate::script::{Call, Script};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many schedules a test run makes of each kind.
const SEEDS: u64 = 500;
const STEPS: usize = 160;
const PROCESSES: usize = 3;
/// A clock runs so much faster or slower than the server's at most: less than the 1 % allowed for.
const DRIFT_PPM: i64 = 4_000;
/// What lay in a buffer arrives within this time: less than a release waits to be repeated.
const LATE_MS: u64 = 900;
/// Longer than any lease, liveness or key of a line.
const QUIET: Duration = Duration::from_secs(60);

/// What may go wrong in a schedule besides the network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// The server keeps its data.
    Steady,
    /// It restarts without, or shows an older state.
    Losing,
}

struct Process {
    world: World,
    /// Its clock gains or loses this much on the server's.
    drift_ppm: i64,
    /// When it began, by both clocks.
    began: Mono,
    /// It does not run until then.
    stopped_until: Option<Mono>,
    /// Nothing reaches it or leaves it until then.
    cut_off_until: Option<Mono>,
    open: BTreeSet<OpId>,
    held: Vec<Held>,
}

struct Held {
    lease: LeaseId,
    fence: u64,
}

impl Process {
    fn clock(&self, now: Mono) -> Mono {
        let elapsed = i64::try_from(now.since(self.began).as_micros()).unwrap();
        let local = elapsed + elapsed * self.drift_ppm / 1_000_000;
        self.began + Duration::from_micros(u64::try_from(local).unwrap())
    }

    /// Whether its caller believes to hold the lock, whoever runs now.
    fn believes(&self, now: Mono) -> bool {
        let clock = self.clock(now);
        self.world.deadlines.values().any(|until| *until > clock)
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
    rng: fastrand::Rng,
    kind: Kind,
    now: Mono,
    server: Server,
    processes: Vec<Process>,
    started: usize,
    /// Requests of connections that are gone, and when they arrive all the same.
    late: Vec<(Mono, Call)>,
    fences: BTreeMap<u64, usize>,
    last_fence: u64,
    store: FencedStore,
    trace: Vec<String>,
    pub(super) acquired: usize,
}

impl Simulation {
    pub(super) fn new(seed: u64, kind: Kind) -> Self {
        let mut simulation = Self {
            seed,
            rng: fastrand::Rng::with_seed(seed),
            kind,
            now: Mono::from_micros(1_000_000),
            server: Server::new(),
            processes: Vec::new(),
            started: 0,
            late: Vec::new(),
            fences: BTreeMap::new(),
            last_fence: 0,
            store: FencedStore::default(),
            trace: Vec::new(),
            acquired: 0,
        };
        simulation.server.set_clock(simulation.now);
        for _ in 0..PROCESSES {
            let process = simulation.start();
            simulation.processes.push(process);
        }
        simulation
    }

    /// Runs the whole schedule; panics with its seed and trace when a promise is broken.
    pub(super) fn run(&mut self) {
        for _ in 0..STEPS {
            self.step();
            self.check();
        }
        self.quiet();
    }

    fn start(&mut self) -> Process {
        self.started += 1;
        let mut world = World::joining(&self.server, &format!("p{}", self.started), self.now);
        world.outcomes.clear();
        Process {
            world,
            drift_ppm: self.rng.i64(-DRIFT_PPM..=DRIFT_PPM),
            began: self.now,
            stopped_until: None,
            cut_off_until: None,
            open: BTreeSet::new(),
            held: Vec::new(),
        }
    }

    fn step(&mut self) {
        let who = self.rng.usize(..PROCESSES);
        let action = self.rng.u32(..100);
        if self.processes[who].stopped_until.is_some() {
            // The world goes on without it.
            return self.pass_some();
        }
        match action {
            0..14 => self.acquire(who),
            14..17 => self.cancel(who),
            17..20 => self.extend(who),
            20..33 => self.release(who),
            33..37 => self.write(who),
            37..62 => self.network(who),
            62..70 => self.receive(who),
            70..73 => self.fault(who),
            _ => self.pass_some(),
        }
        self.collect(who);
    }

    fn note(&mut self, who: usize, what: std::fmt::Arguments<'_>) {
        let at = self.now.since(Mono::from_micros(1_000_000)).as_secs_f64() * 1000.0;
        self.trace.push(format!("{at:>9.3} ms  process {who}: {what}"));
    }

    fn acquire(&mut self, who: usize) {
        let ttl = [200, 1_000, 4_000, 10_000][self.rng.usize(..4)];
        let wait = match self.rng.u32(..6) {
            0 => Wait::Never,
            1 => Wait::UpTo(ms(0)),
            2 => Wait::UpTo(ms(300)),
            _ => Wait::UpTo(ms(8_000)),
        };
        let hold = Hold { renew: self.rng.u32(..4) > 0, ..RENEWED };
        let op = self.processes[who].world.acquire_held(ttl, wait, hold);
        self.processes[who].open.insert(op);
        self.note(who, format_args!("acquire {op:?} {ttl} ms, {wait:?}, renew {}", hold.renew));
    }

    fn cancel(&mut self, who: usize) {
        let open: Vec<_> = self.processes[who].open.iter().copied().collect();
        if !open.is_empty() {
            let op = open[self.rng.usize(..open.len())];
            self.processes[who].world.cancel(op);
            self.note(who, format_args!("cancel {op:?}"));
        }
    }

    fn extend(&mut self, who: usize) {
        if let Some(Held { lease, .. }) = self.processes[who].held.last() {
            let extend = Command::Extend { lease: *lease, ttl: None };
            let op = self.processes[who].world.command(extend);
            self.processes[who].open.insert(op);
            self.note(who, format_args!("extend {op:?}"));
        }
    }

    fn release(&mut self, who: usize) {
        if let Some(Held { lease, .. }) = self.processes[who].held.pop() {
            let exported = self.rng.u32(..8) == 0;
            let op = self.processes[who].world.command(Command::Release { lease, exported });
            self.processes[who].open.insert(op);
            self.note(who, format_args!("release {lease:?}"));
        }
    }

    /// Whoever got the lock once may write, also long after: that is what fences are for.
    fn write(&mut self, who: usize) {
        let Some(Held { lease, fence }) = self.processes[who].held.last() else { return };
        let (lease, fence) = (*lease, *fence);
        let accepted = fence >= self.store.highest;
        let believes = self.processes[who].world.deadlines.contains_key(&lease);
        self.note(who, format_args!("write with {fence}: {accepted}"));
        if !accepted {
            self.store.refused += 1;
            assert!(
                !believes || self.kind == Kind::Losing,
                "a write of the only holder was refused{}",
                self.story()
            );
        }
        self.store.highest = self.store.highest.max(fence);
    }

    fn reachable(&self, who: usize) -> bool {
        self.processes[who].cut_off_until.is_none()
    }

    fn network(&mut self, who: usize) {
        if self.processes[who].world.connecting {
            return self.connect(who);
        }
        if !self.reachable(who) {
            return;
        }
        if self.rng.u32(..3) == 0 {
            self.execute(who);
        } else {
            self.note(who, format_args!("gets an answer"));
            if !self.processes[who].world.has_answers() {
                self.execute(who);
            }
            self.processes[who].world.answer_one();
        }
    }

    /// The server executes the oldest request, now and then twice.
    fn execute(&mut self, who: usize) {
        let Some((_, call)) = self.processes[who].world.wire.front().cloned() else { return };
        self.note(who, format_args!("server executes {}", brief(&call)));
        self.processes[who].world.execute_one();
        if self.rng.u32(..12) == 0 {
            let before = self.server.dump(self.now);
            self.server.execute_again(self.now, &call);
            let after = self.server.dump(self.now);
            assert_eq!(before, after, "a repeat of {call:?} changed something{}", self.story());
        }
    }

    fn connect(&mut self, who: usize) {
        let process = &mut self.processes[who];
        if process.cut_off_until.is_some() {
            process.world.connecting = false;
            let failure = crate::error::Failure::Lost("unreachable".to_owned());
            process.world.event(Event::ConnectFailed(failure));
        } else {
            process.world.connect();
        }
        self.note(who, format_args!("connects"));
    }

    fn receive(&mut self, who: usize) {
        if self.reachable(who) && self.processes[who].world.receive_one() {
            self.note(who, format_args!("gets a message"));
        }
    }

    fn fault(&mut self, who: usize) {
        match self.rng.u32(..12) {
            0..3 => {
                self.note(who, format_args!("loses its connection and what it asked"));
                self.lose_requests(who);
            }
            3..6 => {
                self.note(who, format_args!("loses its connection and the answers"));
                self.processes[who].world.execute_and_lose_replies();
            }
            6 => {
                self.note(who, format_args!("loses messages"));
                self.processes[who].world.lose_messages();
            }
            7 => {
                let until = self.now + ms(self.rng.u64(1..6_000));
                self.note(who, format_args!("is cut off until {until:?}"));
                self.processes[who].cut_off_until = Some(until);
            }
            8 | 9 => {
                let until = self.now + ms(self.rng.u64(1..12_000));
                self.note(who, format_args!("is stopped until {until:?}"));
                self.processes[who].stopped_until = Some(until);
            }
            10 => self.crash(who),
            _ => self.restart_server(),
        }
    }

    fn lose_requests(&mut self, who: usize) {
        self.processes[who].world.lose_requests();
        for call in std::mem::take(&mut self.processes[who].world.late) {
            if self.rng.bool() {
                let at = self.now + ms(self.rng.u64(..LATE_MS));
                self.late.push((at, call));
            }
        }
    }

    fn crash(&mut self, who: usize) {
        self.note(who, format_args!("crashes; another takes its place"));
        self.lose_requests(who);
        self.processes[who].world.leave();
        self.processes[who] = self.start();
    }

    fn restart_server(&mut self) {
        let keeps = self.kind == Kind::Steady || self.rng.bool();
        self.note(0, format_args!("the server restarts, its data is kept: {keeps}"));
        for who in 0..PROCESSES {
            if !self.processes[who].world.connecting {
                self.lose_requests(who);
            }
        }
        if !keeps {
            self.server.flush();
        }
        self.server.set_history(&format!("run {}", self.rng.u64(..)));
        // No server is back within the same microsecond.
        let pause = ms(self.rng.u64(1..40));
        self.pass(pause);
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
    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            let step = end.since(self.now).min(ms(5).max(duration / 16));
            self.now = self.now + step;
            self.server.set_clock(self.now);
            self.arrive_late();
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

    fn arrive_late(&mut self) {
        let (now, late) = (self.now, std::mem::take(&mut self.late));
        let (due, rest): (Vec<_>, Vec<_>) = late.into_iter().partition(|(at, _)| *at <= now);
        self.late = rest;
        for (_, call) in due {
            self.note(9, format_args!("late: server executes {}", brief(&call)));
            self.server.execute(now, &call);
        }
    }

    fn collect(&mut self, who: usize) {
        for op in self.processes[who].open.clone() {
            let Some(outcome) = self.processes[who].world.take_outcome(op) else { continue };
            self.processes[who].open.remove(&op);
            self.note(who, format_args!("{op:?}: {outcome:?}"));
            if let Outcome::Acquired { lease, fence, .. } = outcome {
                self.acquired += 1;
                self.check_fence(who, fence);
                self.processes[who].held.push(Held { lease, fence });
            }
        }
    }

    fn check_fence(&mut self, who: usize, fence: u64) {
        let before = self.fences.insert(fence, who);
        assert_eq!(before, None, "fence {fence} was issued twice{}", self.story());
        if self.kind == Kind::Steady {
            let last = self.last_fence;
            assert!(fence > last, "fence {fence} after {last}{}", self.story());
        }
        self.last_fence = fence;
    }

    fn check(&self) {
        let holders = self.processes.iter().filter(|process| process.believes(self.now)).count();
        assert!(
            holders <= 1 || self.kind == Kind::Losing,
            "{holders} believe to hold the lock{}",
            self.story()
        );
    }

    /// Everything heals and everybody lets go: what is open must end, and nothing may be left.
    fn quiet(&mut self) {
        let end = self.now + QUIET;
        for process in &mut self.processes {
            process.stopped_until = process.stopped_until.map(|_| self.now);
            process.cut_off_until = None;
        }
        while self.now < end {
            for who in 0..PROCESSES {
                self.release(who);
                if self.processes[who].world.connecting {
                    self.connect(who);
                }
                while self.processes[who].stopped_until.is_none()
                    && !self.processes[who].world.is_silent()
                {
                    self.processes[who].world.answer_one();
                    self.processes[who].world.receive_one();
                }
                self.collect(who);
            }
            let busy = self.processes.iter().any(|process| !process.open.is_empty());
            self.pass(if busy { ms(20) } else { ms(1_000) });
        }
        for (who, process) in self.processes.iter().enumerate() {
            assert!(process.open.is_empty(), "{who}: {:?} never end{}", process.open, self.story());
            assert!(process.world.machine.is_idle(), "{:?}{}", process.world.machine, self.story());
        }
        assert_eq!(self.server.leftovers(self.now), "", "left on the server{}", self.story());
    }

    fn story(&self) -> String {
        let Self { seed, kind, trace, .. } = self;
        format!("\n  seed {seed}, {kind:?}:\n  {}\n", trace.join("\n  "))
    }
}

/// A call in a few words.
fn brief(call: &Call) -> String {
    match call {
        Call::Acquire { token, intent, .. } => format!("acquire {token} {intent:?}"),
        Call::Extend { token, .. } => format!("extend {token}"),
        Call::Release { token, .. } => format!("release {token}"),
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn simulate(kind: Kind) {
    let (from, seeds) = (number("HOLDFAST_FROM", 0), number("HOLDFAST_SEEDS", SEEDS));
    let mut acquired = 0;
    for seed in from..from + seeds {
        let mut simulation = Simulation::new(seed, kind);
        simulation.run();
        acquired += simulation.acquired;
    }
    assert!(acquired as u64 > seeds, "the schedules do too little: {acquired} locks in {seeds}");
}

/// How many seeds may pass until a defect is found.
const MUTATION_SEEDS: u64 = 500;

/// Defects of the scripts that the simulator must find: without them it would prove nothing.
const MUTATIONS: [(&str, Kind, &str, &str); 9] = [
    (
        "a release frees another's lock",
        Kind::Steady,
        "if holder == token then\n  redis.call('DEL'",
        "if holder then\n  redis.call('DEL'",
    ),
    (
        "a lock is taken while it is held",
        Kind::Steady,
        "token, 'NX', 'PX', ttl_ms)",
        "token, 'PX', ttl_ms)",
    ),
    ("a fence is not above the last", Kind::Steady, "counter and counter + 1 or", "counter or"),
    (
        "a fence of the fast path is the last again",
        Kind::Steady,
        "return before + 1",
        "return before",
    ),
    ("a block of fences is not reserved", Kind::Steady, "first + reserved - 1", "first"),
    ("a release leaves the place in line", Kind::Steady, "else\n  leave_line(token)\nend", "end"),
    (
        "a grant by message is longer than its message says",
        Kind::Steady,
        "PUBLISH', channel, string.format('%s %.0f %d",
        "PUBLISH', channel, string.format('%s %.0f 9%d",
    ),
    (
        "a grant is dated too late",
        Kind::Steady,
        "lease_ms, now_us, lock_key))",
        "lease_ms, now_us + 2000000, lock_key))",
    ),
    (
        "the line is kept without an end",
        Kind::Steady,
        "redis.call('PEXPIRE', waiters_key, KEYS_MS)",
        "",
    ),
];

#[test]
fn every_defect_is_found() {
    silence_expected_panics();
    let mut missed = Vec::new();
    for (defect, kind, from, to) in MUTATIONS {
        let whole = Script::ALL.map(Script::source).concat();
        assert!(whole.contains(from), "{defect}: no script contains {from:?}");
        mutate(Some((from, to)));
        let found = (0..MUTATION_SEEDS)
            .find(|seed| std::panic::catch_unwind(|| Simulation::new(*seed, kind).run()).is_err());
        mutate(None);
        if found.is_none() {
            missed.push(defect);
        }
    }
    assert!(missed.is_empty(), "not found in {MUTATION_SEEDS} seeds: {missed:?}");
}

/// What is caught here is no news; the panics of other tests are.
fn silence_expected_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !is_mutated() {
            report(panic);
        }
    }));
}

#[test]
fn one_holder_rising_fences_and_nothing_left_behind() {
    simulate(Kind::Steady);
}

#[test]
fn a_server_that_loses_its_data_never_repeats_a_fence() {
    simulate(Kind::Losing);
}
