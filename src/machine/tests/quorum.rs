//! A quorum from a seed: several processes, several servers, networks and clocks, all of them
//! unreliable. As `simulator.rs`, for the layer that makes one server of many.

use super::defects::Defect;
use super::quorum_process::{Link, Process};
use super::server::Server;
use super::world::{COMMAND_TIMEOUT, RENEWED, World, ms};
use crate::clock::Mono;
use crate::error::Failure;
use crate::machine::{Command, Config, Event, Hold, Look, Outcome, Quorum, Settings, Wait};
use crate::message::Message;
use crate::script::{Call, Mode, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// How many schedules a test run makes of each kind, unless told otherwise.
const SEEDS: u64 = 300;
const STEPS: usize = 260;
const PROCESSES: usize = 3;
const BEGIN: Mono = Mono::from_micros(100_000_000);
const DRIFT_PPM: i64 = 4_000;
const LATE_MS: u64 = 900;
const LONGEST: Duration = Duration::from_secs(4);
const QUIET: Duration = Duration::from_secs(100);
/// More requests than that in a schedule, and somebody asks in a loop without a pause.
const REQUESTS_MAX: u64 = 20_000;

/// What may go wrong besides network and processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Servers keep their data over a restart.
    Steady,
    /// They lose all, and have no vote until the longest lease has ended.
    Losing,
    /// Leases end at any moment, whatever the clocks say: then only fences are in order.
    Hasty,
}

impl Kind {
    /// Fences that have outrun the clocks: only the counters order them.
    const FENCE: u64 = 1_900_000_000_000_000;
}

struct Node {
    server: Server,
    drift_ppm: i64,
    started: Mono,
    down_until: Option<Mono>,
    /// Requests of connections that are gone, and when they arrive all the same.
    late: Vec<(Mono, Call)>,
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
    now: Mono,
    nodes: Vec<Node>,
    processes: Vec<Process>,
    started: u64,
    /// Every fence that was granted, and when that was known.
    fences: BTreeMap<u64, Mono>,
    /// What a store that checks fences has seen last.
    highest_written: u64,
    acquired: usize,
    trace: Option<Vec<String>>,
}

impl Simulation {
    pub(super) fn new(seed: u64, kind: Kind) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let hasty = kind == Kind::Hasty;
        let count = if hasty { 3 } else { [3, 3, 4, 5][rng.usize(..4)] };
        let nodes = (0..count).map(|_| {
            let server = Server::new();
            // Clocks that people set: apart by less than a server without its data has no vote.
            server.step_clock(rng.i64(-1_000_000..1_000_000));
            let drift_ppm = rng.i64(-DRIFT_PPM..=DRIFT_PPM);
            let started = Mono::from_micros(0);
            Node { server, drift_ppm, started, down_until: None, late: Vec::new() }
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
            acquired: 0,
            trace: None,
        };
        for _ in 0..PROCESSES {
            let process = simulation.start();
            simulation.processes.push(process);
        }
        (0..PROCESSES).for_each(|who| simulation.open(who));
        if hasty {
            for node in &simulation.nodes {
                node.server.set_fence(BEGIN, &World::keys(), Kind::FENCE);
            }
        }
        simulation
    }

    pub(super) fn run(&mut self) {
        for _ in 0..STEPS {
            self.step();
            self.check();
        }
        self.quiet();
    }

    fn start(&mut self) -> Process {
        self.started += 1;
        let config = Config {
            client: format!("p{}", self.started),
            secret: String::new(),
            prefix: "lock:".to_owned(),
            command_timeout: COMMAND_TIMEOUT,
            open_patience: Duration::ZERO,
            cluster: false,
            confirm: false,
            quorum: true,
        };
        let rule = self.kind == Kind::Losing && !Defect::VotesAtOnce.is_on();
        let settings = Settings {
            servers: self.nodes.iter().map(|_| String::new()).collect(),
            node_timeout: ms(if self.kind == Kind::Hasty { 400 } else { 100 }),
            longest_lease: rule.then_some(LONGEST),
        };
        let drift_ppm = self.rng.i64(-DRIFT_PPM..=DRIFT_PPM);
        let mut process = Process {
            quorum: Quorum::new(config, settings, self.rng.u64(..)),
            servers: self.nodes.iter().map(|node| node.server.clone()).collect(),
            links: self.nodes.iter().map(|_| Link::default()).collect(),
            dropped: Vec::new(),
            drift_ppm,
            now: skewed(drift_ppm, self.now),
            stopped_until: None,
            next_op: 0,
            open: BTreeMap::new(),
            outcomes: Vec::new(),
            held: Vec::new(),
            deadlines: BTreeMap::new(),
        };
        process.command(self.now, Command::Open);
        process
    }

    /// Nobody begins without a majority.
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
            21..23 => self.extend(who),
            23..70 => (0..2).for_each(|_| self.network(who)),
            70..75 => self.fault(who, node),
            75..88 if self.kind == Kind::Hasty => self.end_lease(node),
            _ => self.pass_some(),
        }
        self.collect(who);
    }

    fn acquire(&mut self, who: usize) {
        // Rounds last a tenth of it at most; where leases end at any moment long rounds do the harm.
        let shortest = if self.kind == Kind::Hasty { 2 } else { 0 };
        let ttl = ms([200, 1_000, 4_000][self.rng.usize(shortest..3)]);
        let wait = [Wait::Never, Wait::UpTo(ms(500)), Wait::UpTo(ms(8_000))][self.rng.usize(..3)];
        let hold = Hold { renew: self.rng.u32(..3) > 0, ..RENEWED };
        let (name, label) = ("a".to_owned(), String::new());
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
        if let Some((lease, _)) = self.processes[who].held.last().copied() {
            let ttl = Some(ms(self.rng.u64(200..3_000)));
            self.processes[who].command(self.now, Command::Extend { lease, ttl });
        }
    }

    /// Whoever got the lock once may write, also long after: that is what fences are for.
    fn write(&mut self, who: usize) {
        let process = &self.processes[who];
        let Some((lease, fence)) = process.held.last().copied() else { return };
        let clock = skewed(process.drift_ppm, self.now);
        let believes = process.deadlines.get(&lease).is_some_and(|until| *until > clock);
        let accepted = fence >= self.highest_written || self.kind == Kind::Hasty;
        self.demand(accepted || !believes, "a write of the only holder was refused");
        self.highest_written = self.highest_written.max(fence);
    }

    fn network(&mut self, who: usize) {
        let node = self.rng.usize(..self.nodes.len());
        if self.processes[who].links[node].connecting {
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
        let cut_off = self.processes[who].links[node].cut_off_until.is_some();
        cut_off || self.nodes[node].down_until.is_some()
    }

    fn connect(&mut self, who: usize, node: usize) {
        let reachable = !self.is_cut_off(who, node);
        let Node { server, started, .. } = &self.nodes[node];
        let up = self.now.since(*started);
        let uptime = Some(Duration::from_secs(up.as_secs()));
        let look = Look { uptime, history: None, ..server.look(self.now) };
        let subscriber = server.new_subscriber();
        let process = &mut self.processes[who];
        let link = &mut process.links[node];
        link.connecting = false;
        if reachable {
            link.up = true;
            link.subscriber = subscriber;
            process.event(node, Event::Connected { look, risks: Vec::new(), deaf: None });
        } else {
            let failure = Failure::Lost("unreachable".to_owned());
            process.event(node, Event::ConnectFailed(failure));
        }
    }

    fn execute(&mut self, who: usize, node: usize) -> bool {
        let Some((request, call)) = self.processes[who].links[node].wire.pop_front() else {
            return false;
        };
        let reply = self.execute_judged(node, &call);
        self.note(format_args!("{node}: {:?} {} -> {reply:?}", call.script(), call.token()));
        self.processes[who].links[node].answers.push_back((request, reply));
        true
    }

    /// Nobody but its owner changes whose lock it is, and an owner is one attempt.
    fn execute_judged(&self, node: usize, call: &Call) -> Result<Reply, Failure> {
        let server = &self.nodes[node].server;
        let before = server.owner(self.now, &World::keys());
        let reply = server.execute(self.now, call);
        if let Some(before) = before {
            let after = server.owner(self.now, &World::keys());
            let base = |value: &str| value.rsplit_once('.').map(|(base, _)| base.to_owned());
            let own = match call {
                Call::Vote { token, .. } => base(&before).as_deref() == Some(token.as_str()),
                call => before == call.token().as_str(),
            };
            self.demand(own || after.as_ref() == Some(&before), "a lock was changed by another");
        }
        reply
    }

    fn answer(&mut self, who: usize, node: usize) -> bool {
        let Some((request, reply)) = self.processes[who].links[node].answers.pop_front() else {
            return false;
        };
        self.processes[who].reply(node, request, reply);
        true
    }

    fn wake(&mut self, who: usize, node: usize) {
        let subscriber = self.processes[who].links[node].subscriber;
        if self.nodes[node].server.take_woken(subscriber) {
            self.processes[who].event(node, Event::Told(Message::Freed(World::keys())));
        }
    }

    fn fault(&mut self, who: usize, node: usize) {
        let until = self.now + ms(self.rng.u64(1..4_000));
        match self.rng.u32(..10) {
            0..3 => {
                self.note(format_args!("{who}: loses its connection to {node}"));
                self.cut(who, node);
            }
            3..5 => {
                self.note(format_args!("{who}: is cut off from {node}"));
                self.processes[who].links[node].cut_off_until = Some(until);
            }
            5..7 => {
                self.note(format_args!("{who}: is stopped until {until:?}"));
                self.processes[who].stopped_until = Some(until);
            }
            7 => {
                self.note(format_args!("{who}: crashes; another takes its place"));
                (0..self.nodes.len()).for_each(|node| self.cut(who, node));
                self.processes[who] = self.start();
                self.open(who);
            }
            _ => self.restart(node),
        }
    }

    /// A connection breaks; what was on its way is executed later, if at all.
    fn cut(&mut self, who: usize, node: usize) {
        if self.processes[who].links[node].up {
            self.processes[who].event(node, Event::Disconnected("cut".to_owned()));
        }
        self.scatter(who);
    }

    fn scatter(&mut self, who: usize) {
        for (node, call) in std::mem::take(&mut self.processes[who].dropped) {
            if self.rng.u32(..4) > 0 {
                let at = self.now + ms(self.rng.u64(..LATE_MS));
                self.nodes[node].late.push((at, call));
            }
        }
    }

    fn end_lease(&mut self, node: usize) {
        self.note(format_args!("the lease on server {node} ends"));
        self.nodes[node].server.command(self.now, &["DEL", World::keys().lock()]);
    }

    fn restart(&mut self, node: usize) {
        let loses = self.kind == Kind::Losing;
        self.note(format_args!("server {node} restarts, and loses its data: {loses}"));
        (0..PROCESSES).for_each(|who| self.cut(who, node));
        let down = ms(self.rng.u64(1..300));
        let now = self.now;
        let node = &mut self.nodes[node];
        node.late.clear();
        node.started = now + down;
        node.down_until = Some(now + down);
        if loses {
            node.server.flush();
        }
    }

    fn pass_some(&mut self) {
        let duration = match self.rng.u32(..10) {
            0..5 => Duration::from_micros(self.rng.u64(1..3_000)),
            5..8 => ms(self.rng.u64(1..30)),
            8 => ms(self.rng.u64(1..200)),
            _ => ms(self.rng.u64(1..1_500)),
        };
        self.pass(duration);
    }

    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            let step = end.since(self.now).min(ms(5).max(duration / 16));
            self.now = self.now + step;
            let now = self.now;
            let mut arrived = Vec::new();
            for (index, node) in self.nodes.iter_mut().enumerate() {
                node.server.set_clock(skewed(node.drift_ppm, now));
                node.down_until = node.down_until.filter(|until| *until > now);
                let (due, rest): (Vec<_>, Vec<_>) =
                    std::mem::take(&mut node.late).into_iter().partition(|(at, _)| *at <= now);
                node.late = rest;
                arrived.extend(due.into_iter().map(|(_, call)| (index, call)));
            }
            for (node, call) in arrived {
                // Nobody is there to hear the answer.
                let _unheard = self.execute_judged(node, &call);
            }
            for who in 0..PROCESSES {
                let process = &mut self.processes[who];
                for link in &mut process.links {
                    link.cut_off_until = link.cut_off_until.filter(|until| *until > now);
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

    /// A process that was stopped runs again, and may find what has arrived before it looks at its timers.
    fn wake_up(&mut self, who: usize) {
        let process = &mut self.processes[who];
        process.stopped_until = None;
        process.now = process.now.max(skewed(process.drift_ppm, self.now));
        if self.rng.bool() {
            self.hear(who);
        }
    }

    fn hear(&mut self, who: usize) {
        for node in 0..self.nodes.len() {
            while !self.is_cut_off(who, node) && self.answer(who, node) {}
        }
    }

    fn collect(&mut self, who: usize) {
        for (op, outcome) in std::mem::take(&mut self.processes[who].outcomes) {
            self.note(format_args!("{who}: {op:?} {outcome:?}"));
            let began = self.processes[who].open.remove(&op);
            self.demand(began.is_some(), "an operation ended twice");
            let Outcome::Acquired { lease, fence, .. } = outcome else { continue };
            self.acquired += 1;
            let began = began.unwrap_or_default();
            let before = self.fences.insert(fence, self.now);
            self.demand(before.is_none(), "a fence was given twice");
            let mut above = self.fences.range(fence + 1..);
            self.demand(above.all(|(_, known)| *known >= began), "a fence below an earlier one");
            self.processes[who].held.push((lease, fence));
        }
    }

    fn check(&self) {
        let believes = |process: &Process| {
            let clock = skewed(process.drift_ppm, self.now);
            let valid = process.deadlines.iter().filter(|(_, until)| **until > clock);
            valid.map(|(lease, _)| lease.attempt()).collect::<BTreeSet<_>>().len()
        };
        if self.kind == Kind::Hasty {
            return;
        }
        let holders: usize = self.processes.iter().map(believes).sum();
        self.demand(holders <= 1, "two believe to hold the lock");
    }

    /// Everything heals and everybody lets go: whoever waits gets the lock in time, and nothing is left.
    fn quiet(&mut self) {
        let began = self.now;
        for process in &mut self.processes {
            process.stopped_until = process.stopped_until.map(|_| began);
            process.links.iter_mut().for_each(|link| link.cut_off_until = None);
        }
        self.nodes.iter_mut().for_each(|node| node.down_until = None);
        for who in 0..PROCESSES {
            let hold = Hold { renew: false, ..RENEWED };
            let (name, label) = ("a".to_owned(), String::new());
            let (ttl, wait) = (ms(1_000), Wait::Forever);
            let acquire = Command::Acquire { name, ttl, wait, label, hold, mode: Mode::Exclusive };
            self.processes[who].command(began, acquire);
        }
        // A lease that is left, or that late requests take, and the votes of servers that restarted.
        let bound = self.now + LONGEST * 3 + ms(3_000);
        while self.now < began + QUIET {
            for who in 0..PROCESSES {
                for node in 0..self.nodes.len() {
                    if self.processes[who].links[node].connecting {
                        self.connect(who, node);
                    }
                    while self.execute(who, node) || self.answer(who, node) {}
                    self.wake(who, node);
                }
                self.collect(who);
                self.release(who);
            }
            let waits = self.processes.iter().any(|process| !process.open.is_empty());
            self.demand(!waits || self.now < bound, "somebody still waits");
            self.pass(if waits { ms(5) } else { ms(500) });
        }
        for process in &self.processes {
            self.demand(process.quorum.is_idle(), "a process still has something to do");
            let requests = process.quorum.stats().requests;
            self.demand(requests < REQUESTS_MAX, "somebody asks without a pause");
        }
        for node in &self.nodes {
            self.demand(node.server.leftovers(self.now).is_empty(), "a lock was left on a server");
        }
    }

    fn demand(&self, right: bool, otherwise: &str) {
        let Self { seed, kind, trace, .. } = self;
        let story = || trace.as_ref().map_or(String::new(), |trace| trace.join("\n  "));
        assert!(right, "{otherwise}\n  seed {seed}, {kind:?}:\n  {}\n", story());
    }
}

fn simulate(kind: Kind) {
    let number = |variable: &str, default: u64| {
        std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (from, seeds) = (number("HOLDFAST_FROM", 0), number("HOLDFAST_QUORUM_SEEDS", SEEDS));
    let mut acquired = 0;
    for seed in from..from + seeds {
        let mut simulation = Simulation::new(seed, kind);
        if std::panic::catch_unwind(AssertUnwindSafe(|| simulation.run())).is_err() {
            // The same again, and this time with its story.
            let mut again = Simulation::new(seed, kind);
            again.trace = Some(Vec::new());
            again.run();
        }
        acquired += simulation.acquired;
    }
    assert!(acquired as u64 >= seeds, "the schedules do too little: {acquired} locks");
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

#[test]
fn a_quorum_that_was_stopped_during_an_election_keeps_its_connections() {
    let mut simulation = Simulation::new(0, Kind::Steady);
    let (name, label, ttl) = ("a".to_owned(), String::new(), ms(30_000));
    let (wait, hold, mode) = (Wait::Forever, RENEWED, Mode::Exclusive);
    let acquire = Command::Acquire { name, ttl, wait, label, hold, mode };
    simulation.processes[0].command(BEGIN, acquire);
    let nodes = 0..simulation.nodes.len();
    for node in nodes.clone() {
        assert!(simulation.execute(0, node), "each is asked for its vote");
    }
    simulation.processes[0].stopped_until = Some(BEGIN + ms(60_000));
    simulation.pass(COMMAND_TIMEOUT + ms(1_000));
    simulation.wake_up(0);
    simulation.hear(0);
    simulation.processes[0].input(Quorum::handle_timeout);
    // Everybody has answered: it goes on at once, with the second round.
    assert!(simulation.processes[0].links.iter().all(|link| link.up && !link.connecting));
    for node in nodes {
        while simulation.execute(0, node) || simulation.answer(0, node) {}
    }
    simulation.collect(0);
    assert_eq!(simulation.processes[0].held.len(), 1);
}
