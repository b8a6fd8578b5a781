//! Bursts on a slow server: a judge of what it is asked, in which order, and how soon it answers.

use super::defects::{self, Change, Defect};
use super::world::{COMMAND_TIMEOUT, ONE_LEASE, RENEWED, World, ms};
use crate::machine::{Event, Notice, OpId, Outcome, RequestId, Wait};
use crate::protocol::{Call, Mode, Mono};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The number of schedules in a test run; each defect must be found in as many.
const SEEDS: u64 = 60;
/// The window of a schedule.
const WINDOW: (usize, usize) = (3, 8);
/// Renewals, and requests that follow an answer, are not bounded.
const BESIDES: usize = 3;
/// Long enough for all of a schedule.
const PATIENCE_MS: u64 = 60_000;

/// A caller of the burst, which wants a lock that nobody else wants.
struct Caller {
    op: OpId,
    cancelled: bool,
}

/// A process, and a server that takes its time for each request.
struct Burst {
    rng: fastrand::Rng,
    world: World,
    /// The time of the server for one request.
    service: Duration,
    callers: Vec<Caller>,
    /// The callers whose locks the server was asked for.
    asked: BTreeSet<usize>,
    /// Those on this connection, and the last of them to be asked for first.
    order: (BTreeSet<usize>, usize),
    /// When each request on the wire was sent.
    sent: BTreeMap<RequestId, Mono>,
    last_seen: RequestId,
    /// How often a lock was asked for.
    asks: usize,
    reconnections: usize,
}

impl Burst {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = World::connected();
        if rng.bool() {
            world = world.by_scripts();
        }
        world.window = Some(WINDOW);
        let service = ms(rng.u64(15..50));
        Self {
            rng,
            world,
            service,
            callers: Vec::new(),
            asked: BTreeSet::new(),
            order: (BTreeSet::new(), 0),
            sent: BTreeMap::new(),
            last_seen: RequestId(0),
            asks: 0,
            reconnections: 0,
        }
    }

    fn acquire(&mut self) {
        let name = format!("n{}", self.callers.len());
        let wait = if self.rng.bool() { Wait::Forever } else { Wait::UpTo(ms(PATIENCE_MS)) };
        let op = self.world.acquire_named(&name, PATIENCE_MS, wait, ONE_LEASE, Mode::Exclusive);
        self.callers.push(Caller { op, cancelled: false });
        self.look();
    }

    /// One that was not asked for leaves without a trace.
    fn cancel(&mut self) {
        let who = self.rng.usize(..self.callers.len());
        if self.world.outcome(self.callers[who].op).is_none() {
            self.world.cancel(self.callers[who].op);
            self.callers[who].cancelled = true;
            self.look();
        }
    }

    /// Judges what was sent since.
    fn look(&mut self) {
        let new = self.world.wire.iter().filter(|(request, _)| *request > self.last_seen);
        for (request, call) in new.cloned().collect::<Vec<_>>() {
            self.last_seen = request;
            self.sent.insert(request, self.world.now);
            let Some(who) = call.keys().lock().split_once(":n").map(|(_, n)| n.parse().unwrap())
            else {
                continue;
            };
            let takes = matches!(call, Call::Take { .. } | Call::Acquire { .. });
            self.asks += usize::from(takes);
            if self.asked.insert(who) {
                assert!(takes, "{call:?} of a lock that was never asked for");
                assert!(!self.callers[who].cancelled, "a lock is asked for that nobody wants");
            }
            let (order, last) = &mut self.order;
            if takes && order.insert(who) {
                let before = std::mem::replace(last, who);
                assert!(before <= who, "{who} goes ahead of {before}");
            }
        }
        let (_, most) = WINDOW;
        assert!(self.world.wire.len() <= most + BESIDES, "{} in flight", self.world.wire.len());
    }

    /// The server answers one request.
    fn serve(&mut self) {
        self.world.pass(self.service);
        self.look();
        let Some((request, _)) = self.world.wire.front().cloned() else { return };
        while self.world.wire.front().is_some_and(|(front, _)| *front == request) {
            self.world.execute_one();
        }
        self.world.answer_one();
        let took = self.world.now.since(self.sent[&request]);
        let (_, most) = WINDOW;
        let most = u32::try_from(most + 2 * BESIDES).unwrap();
        assert!(took <= self.service * most, "an answer took {took:?}");
        assert!(!self.world.connecting, "a server that answers is given up");
        self.look();
    }

    fn cut(&mut self) {
        self.reconnections += 1;
        self.world.execute_and_lose_replies();
        self.world.event(Event::Disconnected("cut".to_owned()));
        self.reconnect();
    }

    fn reconnect(&mut self) {
        while !self.world.connecting {
            self.world.pass(ms(5));
        }
        // The lost requests are sent again, in the order of their callers.
        self.sent.clear();
        self.order = (BTreeSet::new(), 0);
        self.world.connect();
        self.look();
    }

    fn run(mut self, seed: u64) {
        // Its lease depends on renewals that do not wait behind the burst.
        let (wait, mode) = (Wait::Forever, Mode::Exclusive);
        let kept = self.world.acquire_named("kept", 2_000, wait, RENEWED, mode);
        self.world.settle();
        self.world.lease(kept);
        let count = self.rng.usize(150..250);
        let cuts = seed.is_multiple_of(3);
        for _ in 0..count {
            self.acquire();
            match self.rng.u32(..40) {
                0 => self.cancel(),
                1..4 => self.serve(),
                _ => {}
            }
        }
        // Those who leave at once.
        (0..self.rng.usize(..20)).for_each(|_| self.cancel());
        assert!(
            self.service * u32::try_from(count).unwrap() > COMMAND_TIMEOUT,
            "the burst takes longer to serve than a command may"
        );
        while !self.world.wire.is_empty() {
            self.serve();
            match self.rng.u32(..200) {
                0..5 => self.cancel(),
                5 if cuts => self.cut(),
                _ => {}
            }
        }
        self.judge(count);
        self.hang();
    }

    fn judge(&self, count: usize) {
        assert_eq!(self.world.lost, [], "a lock is lost behind a burst");
        let mut granted = BTreeSet::new();
        for (who, caller) in self.callers.iter().enumerate() {
            match self.world.outcome(caller.op) {
                Some(Outcome::Acquired { .. }) => granted.insert(who),
                Some(Outcome::Cancelled) if caller.cancelled => false,
                other => panic!("{who}: {other:?}"),
            };
        }
        let (_, most) = WINDOW;
        let repeated = self.reconnections * (most + BESIDES);
        // The first script is not known to the server, and plain commands may have to be completed.
        assert!(self.asks <= count + count / 20 + 2 + repeated, "{} asks for {count}", self.asks);
    }

    /// A server that stops to answer is still noticed.
    fn hang(mut self) {
        (0..20).for_each(|_| self.acquire());
        (0..3).for_each(|_| self.serve());
        assert!(!self.world.wire.is_empty(), "requests are under way when the server hangs");
        self.world.pass(COMMAND_TIMEOUT.saturating_sub(ms(1)));
        let lost = |world: &World| {
            world.notices.iter().filter(|it| matches!(it, Notice::Disconnected(_))).count()
        };
        let before = lost(&self.world);
        assert_eq!(before, self.reconnections, "given up earlier than its last answer allows");
        self.world.pass(ms(1));
        assert_eq!(lost(&self.world), before + 1, "a hung server is not given up");
    }
}

#[test]
fn a_burst_on_a_slow_server_is_served_in_turn() {
    (0..SEEDS).for_each(|seed| Burst::new(seed).run(seed));
}

#[test]
fn every_defect_of_bursts_is_found() {
    defects::silence_expected_panics();
    for defect in [
        Defect::BurstUnbounded,
        Defect::SilentFromOldest,
        Defect::UnsentGivenBack,
        Defect::WaitingReversed,
    ] {
        defects::set(Some(Change::Machine(defect)));
        let goes_wrong =
            |seed: &u64| std::panic::catch_unwind(|| Burst::new(*seed).run(*seed)).is_err();
        let found = (0..SEEDS).find(goes_wrong);
        defects::set(None);
        assert!(found.is_some(), "{defect:?} is not found in {SEEDS} seeds");
    }
}
