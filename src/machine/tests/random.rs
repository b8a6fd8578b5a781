//! Random schedules: several managers, one server, replies and requests lost at any point, requests
//! that arrive late, operations whose names are used again at once.

use super::world::{Server, World, ms};
use crate::machine::{Command, LeaseId, OpId, Outcome, Wait};
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// With a lease of so many ms.
    Acquire(usize, u64),
    /// The oldest acquire that has no outcome yet.
    Cancel(usize),
    Extend(usize),
    Release(usize),
    /// The oldest answer to this manager arrives, executed now if it was not before.
    Answer(usize),
    /// The server executes the oldest request of this manager; the answer comes later.
    Execute(usize),
    /// The oldest message to this manager arrives.
    Receive(usize),
    /// The messages to this manager that are on their way never arrive.
    LoseMessages(usize),
    /// The server executes all requests of this manager; the connection breaks before it answers.
    LoseReplies(usize),
    /// The connection breaks before anything is executed; what was sent may arrive later.
    LoseRequests(usize),
    Connect(usize),
    Pass(u64),
}

/// A lease that ends within a schedule, and one that outlives it: what is left behind of the latter
/// is found at the end.
const LEASES_MS: [u64; 2] = [500, 600_000];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0..3_usize;
    let ttl = prop::sample::select(&LEASES_MS[..]);
    let step = prop_oneof![
        4 => (who.clone(), ttl).prop_map(|(who, ttl)| Step::Acquire(who, ttl)),
        1 => who.clone().prop_map(Step::Cancel),
        2 => who.clone().prop_map(Step::Extend),
        3 => who.clone().prop_map(Step::Release),
        12 => who.clone().prop_map(Step::Answer),
        4 => who.clone().prop_map(Step::Execute),
        6 => who.clone().prop_map(Step::Receive),
        1 => who.clone().prop_map(Step::LoseMessages),
        1 => who.clone().prop_map(Step::LoseReplies),
        1 => who.clone().prop_map(Step::LoseRequests),
        3 => who.prop_map(Step::Connect),
        4 => (1..400_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..200)
}

/// Three managers that want the same lock.
struct Crowd {
    worlds: Vec<World>,
    server: Server,
    /// Operations without an outcome.
    open: BTreeSet<(usize, OpId)>,
    acquiring: BTreeSet<(usize, OpId)>,
    held: Vec<Vec<LeaseId>>,
    last_fence: u64,
}

impl Crowd {
    fn new() -> Self {
        let server = Server::new();
        let worlds = ["a", "b", "c"].map(|client| World::connected_to(&server, client));
        let mut crowd = Self {
            worlds: worlds.into(),
            server,
            open: BTreeSet::new(),
            acquiring: BTreeSet::new(),
            held: vec![Vec::new(); 3],
            last_fence: 0,
        };
        for world in &mut crowd.worlds {
            world.outcomes.clear();
        }
        crowd
    }

    fn begin(&mut self, who: usize, act: impl FnOnce(&mut World) -> OpId) -> OpId {
        let op = act(&mut self.worlds[who]);
        assert!(self.open.insert((who, op)), "the name of an open operation was used again");
        op
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Acquire(who, ttl) => {
                let op = self.begin(who, |world| world.acquire(ttl, Wait::UpTo(ms(1_000))));
                self.acquiring.insert((who, op));
            }
            Step::Cancel(who) => {
                let mine = self.acquiring.iter().find(|(owner, _)| *owner == who).copied();
                if let Some((_, op)) = mine {
                    self.worlds[who].cancel(op);
                }
            }
            Step::Extend(who) => {
                if let Some(&lease) = self.held[who].last() {
                    let extend = Command::Extend { lease, ttl: None };
                    self.begin(who, |world| world.command(extend));
                }
            }
            Step::Release(who) => {
                if let Some(lease) = self.held[who].pop() {
                    self.begin(who, |world| world.release(lease));
                }
            }
            Step::Answer(who) => {
                let world = &mut self.worlds[who];
                if !world.is_silent() {
                    world.answer_one();
                    world.arrive_late();
                }
            }
            Step::Execute(who) => self.worlds[who].execute_one(),
            Step::Receive(who) => {
                self.worlds[who].receive_one();
            }
            Step::LoseMessages(who) => self.worlds[who].lose_messages(),
            Step::LoseReplies(who) => self.worlds[who].execute_and_lose_replies(),
            Step::LoseRequests(who) => self.worlds[who].lose_requests(),
            Step::Connect(who) => {
                if self.worlds[who].connecting {
                    self.worlds[who].connect();
                }
            }
            Step::Pass(duration_ms) => {
                for world in &mut self.worlds {
                    world.pass(ms(duration_ms));
                }
            }
        }
        self.collect();
    }

    fn collect(&mut self) {
        for (who, op) in self.open.clone() {
            let Some(outcome) = self.worlds[who].take_outcome(op) else { continue };
            self.open.remove(&(who, op));
            let acquired = self.acquiring.remove(&(who, op));
            if let Outcome::Acquired { lease, fence, .. } = outcome {
                assert!(acquired, "a grant for what was no acquire");
                assert!(fence > self.last_fence, "fence {fence} after {}", self.last_fence);
                self.last_fence = fence;
                self.held[who].push(lease);
            }
        }
        let holders: usize = self.worlds.iter().map(|world| world.deadlines.len()).sum();
        assert!(holders <= 1, "{holders} believe that they hold the lock");
    }

    /// Everything heals and everybody lets go: what is unanswered must end, and nothing may be left.
    fn quiet(&mut self) {
        for _ in 0..400 {
            for who in 0..3 {
                self.step(Step::Release(who));
                self.step(Step::Connect(who));
                while !self.worlds[who].is_silent() {
                    self.step(Step::Answer(who));
                    self.step(Step::Receive(who));
                }
            }
            self.step(Step::Pass(100));
        }
        assert!(self.open.is_empty(), "an operation never ended: {:?}", self.open);
        let now = self.worlds[0].now;
        assert_eq!(self.server.leftovers(now), "", "something is left on the server");
        for world in &self.worlds {
            assert!(world.machine.is_idle(), "{:?}", world.machine);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn one_holder_rising_fences_nothing_left_behind(steps in steps()) {
        let mut crowd = Crowd::new();
        for step in steps {
            crowd.step(step);
        }
        crowd.quiet();
    }
}
