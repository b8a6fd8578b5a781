//! A server in a few lines, and a manager beside it, in virtual time.

use crate::clock::{Mono, ServerTime};
use crate::error::Failure;
use crate::keys::LockKeys;
use crate::machine::{
    Command, Config, Effect, Event, Hold, LeaseId, Look, LossReason, Machine, OpId, Outcome,
    RequestId, Wait,
};
use crate::script::{Call, Reply};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

/// Not renewed: most schedules are about one lease.
pub(super) const ONE_LEASE: Hold =
    Hold { renew: false, max_hold: None, stall_timeout: Duration::from_secs(30) };

pub(super) const RENEWED: Hold = Hold { renew: true, ..ONE_LEASE };

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What the scripts do, as a model: one value and lease per lock, one counter per fence.
#[derive(Debug)]
pub(super) struct Server {
    locks: BTreeMap<String, (String, Mono)>,
    fences: BTreeMap<String, u64>,
    pub(super) history: String,
    /// Added to the monotonic clock to make wall-clock time.
    pub(super) clock_us: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            locks: BTreeMap::new(),
            fences: BTreeMap::new(),
            history: "first".to_owned(),
            clock_us: 1_700_000_000_000_000,
        }
    }
}

impl Server {
    pub(super) fn look(&self, now: Mono) -> Look {
        Look { history: Some(self.history.clone()), time: self.time(now) }
    }

    fn time(&self, now: Mono) -> ServerTime {
        ServerTime::from_micros(self.clock_us + now.as_micros())
    }

    pub(super) fn owner(&self, now: Mono, keys: &LockKeys) -> Option<&str> {
        let (token, end) = self.locks.get(keys.lock())?;
        (now < *end).then_some(token.as_str())
    }

    pub(super) fn set_foreign(&mut self, keys: &LockKeys, value: &str, end: Mono) {
        self.locks.insert(keys.lock().to_owned(), (value.to_owned(), end));
    }

    pub(super) fn set_fence(&mut self, keys: &LockKeys, fence: u64) {
        self.fences.insert(keys.fence(), fence);
    }

    pub(super) fn fence(&self, keys: &LockKeys) -> Option<u64> {
        self.fences.get(&keys.fence()).copied()
    }

    pub(super) fn execute(&mut self, now: Mono, call: &Call) -> Reply {
        match call {
            Call::Acquire { keys, token, ttl, epoch } => {
                let owner = self.owner(now, keys).map(str::to_owned);
                match owner {
                    None => {
                        let value = (token.as_str().to_owned(), now + *ttl);
                        self.locks.insert(keys.lock().to_owned(), value);
                        let time = self.time(now).as_micros().max(epoch.as_micros());
                        let fence = self.fences.get(&keys.fence()).map_or(time, |last| last + 1);
                        let fence = fence.max(epoch.as_micros());
                        self.fences.insert(keys.fence(), fence);
                        Reply::Granted { fence }
                    }
                    Some(owner) if owner == token.as_str() => {
                        self.lengthen(keys, now + *ttl);
                        Reply::Granted { fence: self.fences[&keys.fence()] }
                    }
                    Some(holder) => {
                        let (_, end) = self.locks[keys.lock()];
                        Reply::Held { remaining: Some(end.since(now)), holder }
                    }
                }
            }
            Call::Extend { keys, token, ttl } => {
                let owned = self.owner(now, keys) == Some(token.as_str());
                if owned {
                    self.lengthen(keys, now + *ttl);
                }
                Reply::Owner(owned)
            }
            Call::Release { keys, token } => {
                let owned = self.owner(now, keys) == Some(token.as_str());
                if owned {
                    self.locks.remove(keys.lock());
                }
                Reply::Owner(owned)
            }
        }
    }

    fn lengthen(&mut self, keys: &LockKeys, end: Mono) {
        if let Some((_, lease)) = self.locks.get_mut(keys.lock()) {
            *lease = end.max(*lease);
        }
    }
}

/// One manager, its server and the wire between them.
pub(super) struct World {
    pub(super) now: Mono,
    pub(super) machine: Machine,
    pub(super) server: Server,
    /// Sent, not executed yet.
    pub(super) wire: VecDeque<(RequestId, Call)>,
    /// Executed, not answered yet.
    answers: VecDeque<(RequestId, Reply)>,
    pub(super) outcomes: BTreeMap<OpId, Outcome>,
    pub(super) deadlines: BTreeMap<LeaseId, Mono>,
    pub(super) connecting: bool,
    /// Every release that was sent, in order.
    pub(super) released: Vec<String>,
    pub(super) lost: Vec<(LeaseId, LossReason)>,
    /// Whether JavaScript answers pings.
    pub(super) alive: bool,
    pub(super) looks: usize,
    pub(super) stopped: bool,
    next_op: u32,
    /// Operations whose names may be used again, the latest first, as JavaScript does.
    free_ops: Vec<OpId>,
    /// Requests that were lost, and may still arrive.
    pub(super) late: Vec<Call>,
}

impl World {
    /// A manager that is connected.
    pub(super) fn connected() -> Self {
        Self::connected_as("c")
    }

    /// Like `connected`, but with another limit for answers.
    pub(super) fn connected_with(command_timeout: Duration) -> Self {
        let mut world = Self::new("c");
        world.machine = Machine::new(Config { command_timeout, ..world.machine.config.clone() }, 7);
        world.command(Command::Open);
        world.connect();
        world
    }

    pub(super) fn connected_as(client: &str) -> Self {
        let mut world = Self::new(client);
        world.command(Command::Open);
        world.connect();
        world
    }

    pub(super) fn new(client: &str) -> Self {
        let config = Config {
            client: client.to_owned(),
            prefix: "lock:".to_owned(),
            command_timeout: COMMAND_TIMEOUT,
        };
        Self {
            now: Mono::from_micros(1_000_000),
            machine: Machine::new(config, 7),
            server: Server::default(),
            wire: VecDeque::new(),
            answers: VecDeque::new(),
            outcomes: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            connecting: false,
            released: Vec::new(),
            lost: Vec::new(),
            alive: true,
            looks: 0,
            stopped: false,
            next_op: 0,
            free_ops: Vec::new(),
            late: Vec::new(),
        }
    }

    pub(super) fn keys() -> LockKeys {
        LockKeys::new("lock:", "a")
    }

    pub(super) fn acquire(&mut self, ttl_ms: u64, wait: Wait) -> OpId {
        self.acquire_held(ttl_ms, wait, ONE_LEASE)
    }

    pub(super) fn acquire_held(&mut self, ttl_ms: u64, wait: Wait, hold: Hold) -> OpId {
        let (name, label) = ("a".to_owned(), String::new());
        self.command(Command::Acquire { name, ttl: ms(ttl_ms), wait, label, hold })
    }

    pub(super) fn cancel(&mut self, op: OpId) {
        let mut out = Vec::new();
        self.machine.handle_command(self.now, op, Command::Cancel, &mut out);
        self.perform(out);
    }

    pub(super) fn command(&mut self, command: Command) -> OpId {
        let op = self.free_ops.pop().unwrap_or_else(|| {
            self.next_op += 1;
            OpId(self.next_op)
        });
        let mut out = Vec::new();
        self.machine.handle_command(self.now, op, command, &mut out);
        self.perform(out);
        op
    }

    pub(super) fn event(&mut self, event: Event) {
        let mut out = Vec::new();
        self.machine.handle_event(self.now, event, &mut out);
        self.perform(out);
    }

    pub(super) fn reply(&mut self, request: RequestId, reply: Result<Reply, Failure>) {
        let mut out = Vec::new();
        self.machine.handle_reply(self.now, request, reply, &mut out);
        self.perform(out);
    }

    pub(super) fn connect(&mut self) {
        assert!(std::mem::take(&mut self.connecting), "nobody wants to connect");
        let look = self.server.look(self.now);
        self.event(Event::Connected(look));
    }

    /// Lets time pass, timers included.
    pub(super) fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(at) = self.machine.next_timeout()
            && at <= end
        {
            self.now = self.now.max(at);
            let mut out = Vec::new();
            self.machine.handle_timeout(self.now, &mut out);
            self.perform(out);
        }
        self.now = end;
    }

    /// The server executes and answers everything on the wire, at once.
    pub(super) fn settle(&mut self) {
        while let Some((request, call)) = self.wire.pop_front() {
            let reply = self.server.execute(self.now, &call);
            self.reply(request, Ok(reply));
        }
    }

    /// The server executes the oldest request; its answer is on the way.
    pub(super) fn execute_one(&mut self) {
        if let Some((request, call)) = self.wire.pop_front() {
            let reply = self.server.execute(self.now, &call);
            self.answers.push_back((request, reply));
        }
    }

    /// The oldest answer arrives, executed now if there is none yet.
    pub(super) fn answer_one(&mut self) {
        if self.answers.is_empty() {
            self.execute_one();
        }
        if let Some((request, reply)) = self.answers.pop_front() {
            self.reply(request, Ok(reply));
        }
    }

    /// Whether nothing is on its way.
    pub(super) fn is_silent(&self) -> bool {
        self.wire.is_empty() && self.answers.is_empty()
    }

    /// The server executes everything on the wire, and the connection breaks before it answers.
    pub(super) fn execute_and_lose_replies(&mut self) {
        for (_, call) in std::mem::take(&mut self.wire) {
            self.server.execute(self.now, &call);
        }
        self.event(Event::Disconnected("cut".to_owned()));
    }

    /// The outcome of `op`, after which its name may be used again.
    pub(super) fn take_outcome(&mut self, op: OpId) -> Option<Outcome> {
        let outcome = self.outcomes.remove(&op)?;
        self.free_ops.push(op);
        Some(outcome)
    }

    /// The connection breaks; what was on its way is executed later, if at all.
    pub(super) fn lose_requests(&mut self) {
        self.late.extend(self.wire.drain(..).map(|(_, call)| call));
        self.event(Event::Disconnected("cut".to_owned()));
    }

    /// The server works off what an old connection had left in its buffers.
    pub(super) fn arrive_late(&mut self) {
        for call in std::mem::take(&mut self.late) {
            self.server.execute(self.now, &call);
        }
    }

    pub(super) fn outcome(&self, op: OpId) -> Option<&Outcome> {
        self.outcomes.get(&op)
    }

    pub(super) fn lease(&self, op: OpId) -> (LeaseId, u64) {
        match self.outcome(op) {
            Some(Outcome::Acquired { lease, fence }) => (*lease, *fence),
            other => panic!("not acquired: {other:?}"),
        }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            assert!(!self.stopped, "an effect after the end: {effect:?}");
            match effect {
                Effect::Complete { op, outcome } => {
                    let before = self.outcomes.insert(op, outcome);
                    assert_eq!(before, None, "{op:?} completed twice");
                }
                Effect::Connect => {
                    assert!(!self.connecting, "two attempts to connect at once");
                    self.connecting = true;
                }
                Effect::Disconnect { .. } => {
                    self.wire.clear();
                    self.answers.clear();
                }
                Effect::Look => self.looks += 1,
                Effect::Lose { lease, reason } => {
                    assert!(self.lost.iter().all(|(lost, _)| *lost != lease), "lost twice");
                    self.lost.push((lease, reason));
                }
                Effect::Ping if self.alive => self.event(Event::Turned(self.now)),
                Effect::Ping => {}
                Effect::Send { request, call, .. } => {
                    if let Call::Release { token, .. } = &call {
                        self.released.push(token.to_string());
                    }
                    self.wire.push_back((request, call));
                }
                Effect::SetDeadline { lease, until: Some(until) } => {
                    self.deadlines.insert(lease, until);
                }
                Effect::SetDeadline { lease, until: None } => {
                    self.deadlines.remove(&lease);
                }
                Effect::Stop => self.stopped = true,
            }
        }
    }
}
