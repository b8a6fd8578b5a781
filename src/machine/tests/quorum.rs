//! A quorum from a seed: several processes, servers, networks and clocks, all of them unreliable. Like
//! `simulator.rs`, for the layer that makes one server of many.

mod faults;

use super::quorum_defects::Flaw;
use super::quorum_process::{Asked, Connection, Process};
use super::quorum_server::Node;
use super::quorum_watch::Extensions;
use super::steps::{Run, Steps, text_of};
use super::world::{COMMAND_TIMEOUT, RENEWED, World, ms};
use crate::machine::{
    Command, Config, Denied, Event, HoldTerms, Outcome, Protocol, Quorum, Settings, Wait,
};
use crate::protocol::{Call, Failure, Message, Mode, Mono, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// The number of schedules per kind in a test run.
const SEEDS: u64 = 300;
const STEPS: usize = 260;
const PROCESSES: usize = 3;
const BEGIN: Mono = Mono::from_micros(100_000_000);
const DRIFT_PPM: i64 = 4_000;
const LATE_MS: u64 = 900;
/// The longest lease if servers lose data: they do not vote for this time.
pub(super) const LONGEST: Duration = Duration::from_secs(4);
/// The longest lease in some other schedules, so that remains stay for long.
pub(super) const LONG: Duration = Duration::from_secs(20);
/// After this quiet time no late request is in flight, and every pending withdrawal was sent twice.
const SETTLED: Duration = Duration::from_secs(3);
const QUIET: Duration = Duration::from_secs(100);
/// More requests per second of one process mean a retry loop without a pause.
const REQUESTS_MAX: u64 = 2_500;

/// Faults besides network and processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Servers keep their data over a restart.
    Steady,
    /// They lose all data, and do not vote until the longest lease has ended.
    Losing,
    /// Leases end at any moment, regardless of the clocks: only fences are ordered.
    Hasty,
}

impl Kind {
    /// Fences ahead of the clocks: only the counters order them.
    const FENCE: u64 = 1_710_000_000_000_000;
}

fn skewed(drift_ppm: i64, now: Mono) -> Mono {
    let elapsed = i64::try_from(now.since(BEGIN).as_micros()).unwrap();
    let local = elapsed + elapsed * drift_ppm / 1_000_000;
    BEGIN + Duration::from_micros(u64::try_from(local).unwrap())
}

pub(super) struct Simulation {
    seed: u64,
    kind: Kind,
    rng: fastrand::Rng,
    pub(super) now: Mono,
    pub(super) nodes: Vec<Node>,
    pub(super) processes: Vec<Process>,
    started: u64,
    /// Every granted fence, and when it was known.
    fences: BTreeMap<u64, Mono>,
    /// The highest fence that a store has accepted.
    highest_written: u64,
    /// The tokens whose lease ended early on a server.
    ended_early: BTreeSet<String>,
    acquired: usize,
    /// The longest requested lease.
    max_ttl: Duration,
    /// Small steps of time, so that much happens until a late request arrives.
    brisk: bool,
    steps: Steps,
    /// The log, if it is requested.
    trace: Option<Vec<String>>,
}

impl Simulation {
    pub(super) fn new(seed: u64, kind: Kind) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let hasty = kind == Kind::Hasty;
        let count = if hasty { 3 } else { [3, 3, 4, 5][rng.usize(..4)] };
        let nodes = (0..count).map(|_| {
            // Skewed clocks: by less than the time in which a server without data does not vote.
            let step_us = rng.i64(-1_000_000..1_000_000);
            Node::new(BEGIN, LONG, step_us, rng.i64(-DRIFT_PPM..=DRIFT_PPM))
        });
        let mut simulation = Self {
            seed,
            kind,
            nodes: nodes.collect(),
            rng,
            now: BEGIN,
            processes: Vec::new(),
            started: 0,
            fences: BTreeMap::new(),
            highest_written: 0,
            ended_early: BTreeSet::new(),
            acquired: 0,
            brisk: seed.is_multiple_of(3),
            max_ttl: if kind == Kind::Steady && seed.is_multiple_of(2) { LONG } else { LONGEST },
            steps: Steps::default(),
            trace: None,
        };
        for _ in 0..PROCESSES {
            let process = simulation.start();
            simulation.processes.push(process);
        }
        (0..PROCESSES).for_each(|who| simulation.open(who));
        if hasty {
            for node in &simulation.nodes {
                node.server.set_own_fence(BEGIN, &World::keys(), Kind::FENCE);
            }
        }
        simulation
    }

    pub(super) fn run(&mut self) {
        for index in 0..STEPS {
            if self.steps.takes(index, &mut self.rng) {
                self.step();
                self.check();
            }
        }
        self.steps.takes(STEPS, &mut self.rng);
        self.quiet();
    }

    fn start(&mut self) -> Process {
        self.started += 1;
        let client = format!("p{}", self.started);
        let config = Config {
            client: client.clone(),
            started: Mono::default(),
            secret: String::new(),
            prefix: "lock:".to_owned(),
            command_timeout: COMMAND_TIMEOUT,
            open_patience: Duration::ZERO,
            cluster: false,
            confirm: false,
            quorum: true,
            polling: None,
            linger_max: 10_000,
        };
        let rule = self.kind == Kind::Losing && !Flaw::VotesAtOnce.is_on();
        let settings = Settings {
            servers: self.nodes.iter().map(|_| String::new()).collect(),
            node_timeout: ms(if self.kind == Kind::Hasty { 400 } else { 100 }),
            longest_lease: rule.then_some(LONGEST),
        };
        let drift_ppm = self.rng.i64(-DRIFT_PPM..=DRIFT_PPM);
        let mut process = Process {
            client,
            quorum: Quorum::new(config, settings, self.rng.u64(..)),
            servers: self.nodes.iter().map(|node| node.server.clone()).collect(),
            connections: self.nodes.iter().map(|_| Connection::default()).collect(),
            dropped: Vec::new(),
            drift_ppm,
            now: skewed(drift_ppm, self.now),
            stopped_until: None,
            next_op: 0,
            open: BTreeMap::new(),
            outcomes: Vec::new(),
            held: Vec::new(),
            deadlines: BTreeMap::new(),
            ended: None,
            extensions: Extensions::default(),
            broken: None,
        };
        process.command(self.now, Command::Open);
        process
    }

    /// Opens a manager with all servers up, because it needs a majority.
    fn open(&mut self, who: usize) {
        self.nodes.iter_mut().for_each(|node| node.down_until = None);
        (0..self.nodes.len()).for_each(|node| self.connect(who, node));
        self.collect(who);
    }

    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        let at = self.now.since(BEGIN).as_secs_f64() * 1000.0;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{at:>9.3} ms  {what}"));
        }
    }

    fn step(&mut self) {
        let who = self.rng.usize(..PROCESSES);
        let node = self.rng.usize(..self.nodes.len());
        if self.processes[who].stopped_until.is_some() {
            return self.pass_some();
        }
        match self.rng.u32(..100) {
            0..9 => self.acquire(who),
            9..17 => self.release(who),
            17..21 => self.write(who),
            21..25 => self.extend(who),
            25..70 => (0..2).for_each(|_| self.network(who)),
            70..75 => self.fault(who, node),
            75..88 if self.kind == Kind::Hasty => self.end_lease(node),
            _ => self.pass_some(),
        }
        self.collect(who);
    }

    fn acquire(&mut self, who: usize) {
        // Rounds last at most a tenth of it; if leases end at any moment, long rounds do the most harm.
        let shortest = if self.kind == Kind::Hasty { 2 } else { 0 };
        let ttl = match self.rng.u32(..8) {
            0 => self.max_ttl,
            _ => ms([200, 1_000, 4_000][self.rng.usize(shortest..3)]),
        };
        let wait = [Wait::Never, Wait::UpTo(ms(500)), Wait::UpTo(ms(8_000))][self.rng.usize(..3)];
        let hold = HoldTerms { renew: self.rng.u32(..3) > 0, ..RENEWED };
        let (name, label) = ("a".to_owned(), Arc::default());
        self.note(format_args!("{who}: acquire {ttl:?} {wait:?} renew {}", hold.renew));
        let began = self.now;
        let acquire = Command::Acquire { name, ttl, wait, label, hold, mode: Mode::Exclusive };
        self.processes[who].command(began, acquire);
    }

    fn release(&mut self, who: usize) {
        if let Some((lease, fence)) = self.processes[who].held.pop() {
            self.note(format_args!("{who}: release {fence}"));
            let release = Command::Release { lease, exported: false };
            self.processes[who].command(self.now, release);
        }
    }

    fn extend(&mut self, who: usize) {
        let held = |process: &Process| process.held.last().map(|(lease, _)| *lease);
        let who = self.processes.iter().position(|it| held(it).is_some()).unwrap_or(who);
        if let Some(lease) = held(&self.processes[who]) {
            let long = self.rng.bool();
            let ttl = if long { self.max_ttl } else { ms(self.rng.u64(200..3_000)) };
            self.note(format_args!("{who}: extend {ttl:?}"));
            self.processes[who].command(self.now, Command::Extend { lease, ttl: Some(ttl) });
        }
    }

    /// Writes as a caller that may have lost its lock long ago, which fences must catch.
    fn write(&mut self, who: usize) {
        let process = &self.processes[who];
        let Some((lease, fence)) = process.held.last().copied() else { return };
        let clock = skewed(process.drift_ppm, self.now);
        let believes = process.deadlines.get(&lease).is_some_and(|until| *until > clock)
            && !self.ended_early.contains(&process.token(lease));
        let accepted = fence >= self.highest_written;
        self.demand(accepted || !believes, "a write of the only holder was refused");
        self.highest_written = self.highest_written.max(fence);
    }

    fn network(&mut self, who: usize) {
        let one = self.rng.usize(..self.nodes.len());
        let nodes = if self.rng.u32(..4) == 0 { 0..self.nodes.len() } else { one..one + 1 };
        nodes.for_each(|node| self.exchange(who, node));
    }

    fn exchange(&mut self, who: usize, node: usize) {
        if self.processes[who].connections[node].connecting {
            return self.connect(who, node);
        }
        if self.is_cut_off(who, node) {
            return;
        }
        let slow = self.rng.u32(..4) < if self.kind == Kind::Hasty { 3 } else { 1 };
        while self.execute(who, node) && !slow {}
        if self.rng.u32(..3) > 0 {
            while self.answer(who, node) && !slow {}
        }
        self.wake(who, node);
    }

    fn is_cut_off(&self, who: usize, node: usize) -> bool {
        let cut_off = self.processes[who].connections[node].cut_off_until.is_some();
        cut_off || self.nodes[node].down_until.is_some()
    }

    pub(super) fn connect(&mut self, who: usize, node: usize) {
        let reachable = !self.is_cut_off(who, node);
        let mut probe = self.nodes[node].probe(self.now);
        if Flaw::UptimeIsExact.is_on() {
            probe.uptime = probe.uptime.map(|uptime| uptime + ms(1_000));
        }
        let subscriber = self.nodes[node].server.new_subscriber();
        let process = &mut self.processes[who];
        if reachable && process.connections[node].up {
            // The silent connection before.
            process.disconnect(node);
        }
        let connection = &mut process.connections[node];
        connection.connecting = false;
        if reachable {
            connection.up = true;
            connection.subscriber = subscriber;
            process.event(
                node,
                Event::Connected { probe, risks: Vec::new(), denied: Denied::default() },
            );
        } else if self.rng.bool() {
            // Or it is swallowed: another one follows all the same.
            let failure = Failure::Lost("unreachable".to_owned());
            process.event(node, Event::ConnectFailed(failure));
        }
    }

    pub(super) fn execute(&mut self, who: usize, node: usize) -> bool {
        let Some(asked) = self.processes[who].connections[node].wire.pop_front() else {
            return false;
        };
        let Asked { request, call, with_source } = asked;
        let reply = if self.nodes[node].knows(call.script().unwrap(), with_source) {
            self.execute_judged(node, &call)
        } else {
            Err(Failure::NoScript)
        };
        self.processes[who].connections[node].answers.push_back((request, reply));
        true
    }

    fn execute_judged(&mut self, node: usize, call: &Call) -> Result<Reply, Failure> {
        let votes = !matches!(call, Call::Vote { .. })
            || self.kind != Kind::Losing
            || self.nodes[node].uptime(self.now) >= LONGEST.mul_f64(0.99);
        self.demand(votes, "a server is asked that may have forgotten");
        let done = self.nodes[node].execute(self.now, call);
        self.note(format_args!("{node}: {:?} {} -> {:?}", call.script(), call.token(), done.reply));
        self.demand(done.broken.is_none(), &done.broken.unwrap_or_default());
        if done.must_tell {
            let server = &self.nodes[node].server;
            let mut connections =
                self.processes.iter_mut().map(|process| &mut process.connections[node]);
            let all = connections.all(|connection| {
                connection.told |= server.take_woken(connection.subscriber);
                connection.told || !connection.listens
            });
            self.demand(all, "somebody listens and was not told");
        }
        done.reply
    }

    pub(super) fn answer(&mut self, who: usize, node: usize) -> bool {
        let Some((request, reply)) = self.processes[who].connections[node].answers.pop_front()
        else {
            return false;
        };
        self.processes[who].reply(node, request, reply);
        true
    }

    fn wake(&mut self, who: usize, node: usize) {
        let connection = &mut self.processes[who].connections[node];
        let told = std::mem::take(&mut connection.told);
        if self.nodes[node].server.take_woken(connection.subscriber) || told {
            self.processes[who].event(node, Event::Message(Message::Freed(World::keys())));
        }
        let subscriber = self.processes[who].connections[node].subscriber;
        while let Some(message) = self.nodes[node].server.next_mail(subscriber) {
            self.processes[who].event(node, Event::Message(message));
        }
    }

    fn pass_some(&mut self) {
        let duration = match self.rng.u32(..if self.brisk { 9 } else { 10 }) {
            0..5 => Duration::from_micros(self.rng.u64(1..3_000)),
            5..8 => ms(self.rng.u64(1..30)),
            8 => ms(self.rng.u64(1..200)),
            _ => ms(self.rng.u64(1..1_500)),
        };
        self.pass(duration);
    }

    pub(super) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            let step = end.since(self.now).min(ms(5).max(duration / 16));
            self.now = self.now + step;
            let now = self.now;
            for node in 0..self.nodes.len() {
                for call in self.nodes[node].pass(now, skewed) {
                    // Nobody receives the reply.
                    let _unheard = self.execute_judged(node, &call);
                }
            }
            for who in 0..PROCESSES {
                let process = &mut self.processes[who];
                for connection in &mut process.connections {
                    connection.cut_off_until =
                        connection.cut_off_until.filter(|until| *until > now);
                }
                if process.stopped_until.is_some_and(|until| until <= now) {
                    self.wake_up(who);
                }
                let process = &mut self.processes[who];
                if process.stopped_until.is_none() {
                    process.pass(skewed(process.drift_ppm, now));
                }
                self.collect(who);
                self.scatter(who);
            }
            self.check();
        }
    }

    /// A stopped process resumes, and may handle arrived messages before its timers.
    pub(super) fn wake_up(&mut self, who: usize) {
        let process = &mut self.processes[who];
        process.stopped_until = None;
        process.now = process.now.max(skewed(process.drift_ppm, self.now));
        if self.rng.bool() {
            self.hear(who);
        }
    }

    pub(super) fn hear(&mut self, who: usize) {
        for node in 0..self.nodes.len() {
            while !self.is_cut_off(who, node) && self.answer(who, node) {}
        }
    }

    pub(super) fn collect(&mut self, who: usize) {
        let broken = self.processes[who].broken;
        self.demand(broken.is_none(), broken.unwrap_or_default());
        for (op, outcome) in std::mem::take(&mut self.processes[who].outcomes) {
            self.note(format_args!("{who}: {op:?} {outcome:?}"));
            let began = self.processes[who].open.remove(&op);
            self.demand(began.is_some(), "an operation ended twice");
            let Outcome::Acquired { lease, fence, .. } = outcome else { continue };
            self.acquired += 1;
            let began = began.unwrap_or_default();
            let before = self.fences.insert(fence, self.now);
            self.demand(before.is_none(), "a fence was given twice");
            // Handed off in its process, which does not know that its lease has ended.
            let unaware = Process::is_handed_off(lease)
                && self.ended_early.contains(&self.processes[who].token(lease));
            let mut above = self.fences.range(fence + 1..);
            let rises = above.all(|(_, known)| *known >= began);
            self.demand(rises || unaware, "a fence below an earlier one");
            self.processes[who].held.push((lease, fence));
        }
    }

    fn check(&self) {
        let clock = |process: &Process| skewed(process.drift_ppm, self.now);
        let leases = self.processes.iter().flat_map(|process| process.leases(clock(process)));
        let mut holders = BTreeSet::new();
        for (token, handed_off) in leases {
            // A process whose lease ended early cannot know it.
            let ended_early = self.ended_early.contains(&token);
            let carrying = self.nodes.iter().filter(|node| node.carries(self.now, &token)).count();
            let carried = carrying * 2 > self.nodes.len() || (ended_early && handed_off);
            self.demand(carried, "no majority carries what is held");
            if !ended_early {
                holders.insert(token);
            }
        }
        self.demand(holders.len() <= 1, "two believe to hold the lock");
    }

    /// All faults end and all callers release: waiters get the lock in time, and no key remains.
    fn quiet(&mut self) {
        let began = self.now;
        self.nodes.iter_mut().for_each(|node| node.down_until = None);
        for who in 0..PROCESSES {
            self.processes[who]
                .connections
                .iter_mut()
                .for_each(|connection| connection.cut_off_until = None);
            if self.processes[who].stopped_until.is_some() {
                self.wake_up(who);
            }
            let hold = HoldTerms { renew: false, ..RENEWED };
            let (name, label) = ("a".to_owned(), Arc::default());
            // Without a release it would remain for longer than this test runs.
            let (ttl, wait) = (self.max_ttl, Wait::Forever);
            let acquire = Command::Acquire { name, ttl, wait, label, hold, mode: Mode::Exclusive };
            self.processes[who].command(began, acquire);
        }
        // Remaining leases, leases of late requests, and the votes of restarted servers.
        let bound = began + self.max_ttl * 3 + ms(3_000);
        while self.waits() || self.now < began + SETTLED {
            self.talk();
            self.demand(!self.waits() || self.now < bound, "somebody still waits");
            self.pass(ms(5));
        }
        // Only locks of crashed processes may remain, and end with their leases.
        self.demand(!self.leaves_anything(), "a lock was left behind");
        let end = self.now + QUIET;
        while self.now < end {
            self.talk();
            self.pass(ms(2_000));
        }
        for process in &self.processes {
            self.demand(process.quorum.is_idle(), "a process still has something to do");
            let requests = process.quorum.stats().requests;
            let most = REQUESTS_MAX * self.now.since(BEGIN).as_secs();
            self.demand(requests < most, "somebody asks without a pause");
        }
        for node in &self.nodes {
            self.demand(node.server.leftovers(self.now).is_empty(), "a lock was left on a server");
        }
    }

    /// All processes handle all messages, and release their locks.
    fn talk(&mut self) {
        for who in 0..PROCESSES {
            for node in 0..self.nodes.len() {
                if self.processes[who].connections[node].connecting {
                    self.connect(who, node);
                }
                while self.execute(who, node) || self.answer(who, node) {}
                self.wake(who, node);
            }
            self.collect(who);
            self.release(who);
        }
    }

    fn waits(&self) -> bool {
        self.processes.iter().any(|process| !process.open.is_empty() || !process.held.is_empty())
    }

    /// Whether a server has a lock of a living process.
    fn leaves_anything(&self) -> bool {
        let owners = self.nodes.iter().map(|node| node.server.owner(self.now, &World::keys()));
        owners.flatten().any(|owner| {
            let client = owner.split('.').nth(1);
            self.processes.iter().any(|process| Some(process.client.as_str()) == client)
        })
    }

    fn demand(&self, right: bool, otherwise: &str) {
        assert!(right, "{otherwise}{}", self.story());
    }

    fn story(&self) -> String {
        let Self { seed, kind, trace, .. } = self;
        let trace = trace.as_ref().map_or(String::new(), |trace| trace.join("\n  "));
        format!("\n  seed {seed}, quorum, {kind:?}:\n  {trace}\n")
    }
}

/// Runs one schedule.
pub(super) fn run(seed: u64, kind: Kind, steps: Steps, is_told: bool) -> Run {
    let mut simulation = Simulation::new(seed, kind);
    simulation.trace = is_told.then(Vec::new);
    simulation.steps = steps;
    let broken = std::panic::catch_unwind(AssertUnwindSafe(|| simulation.run()));
    let broken = broken.err().map(|panic| text_of(&*panic));
    let story = simulation.story();
    Run { steps: simulation.steps, broken, story, acquired: simulation.acquired }
}

/// The kinds of the schedules of a seed.
pub(super) const KINDS: [Kind; 3] = [Kind::Steady, Kind::Hasty, Kind::Losing];

fn simulate(kind: Kind) {
    let mut acquired = 0;
    for seed in 0..SEEDS {
        acquired += run(seed, kind, Steps::default(), false).acquired();
    }
    assert!(acquired as u64 >= SEEDS, "the schedules do too little: {acquired} locks");
}

#[test]
fn quorum_one_holder_rising_fences_and_nothing_left_behind() {
    simulate(Kind::Steady);
}

#[test]
fn quorum_fences_rise_whenever_leases_end() {
    simulate(Kind::Hasty);
}

#[test]
fn quorum_servers_that_forget_have_no_vote() {
    simulate(Kind::Losing);
}
