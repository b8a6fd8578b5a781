//! The machine, fed with inputs in an order that no real server or caller would produce.

use super::bytes::Bytes;
use crate::machine::{
    Command, Config, Denied, Effect, Event, HoldTerms, LeaseId, Machine, NodeId, OpId, Outcome,
    Polling, Protocol, Quorum, RequestId, Risk, Routes, ServerProbe, Settings, TokenId, Wait,
};
use crate::protocol::message::{Grant, Message, Taken, inbox};
use crate::protocol::{
    Call, EXACT_MAX, Failure, HeldBy, Label, LockKeys, Mode, Mono, QueuePosition, Refusal, Reply,
    Script, ServerTime, Take, Token,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// More inputs find no additional defects.
const STEPS_MAX: usize = 256;
/// The most timeouts that may be due at one moment.
const TIMEOUTS_MAX: usize = 64;
/// The most effects of one input per operation and request so far; `EFFECTS_BESIDES` are added.
const EFFECTS_PER_THING: usize = 8;
const EFFECTS_BESIDES: usize = 64;
/// No manager lives for a thousand years. The numbers of tokens, which are µs since its start, have room for more.
const END_OF_TIME: Mono = Mono::from_micros(1_000 * 365 * 86_400 * 1_000_000);
/// The first operation.
const OPEN: OpId = OpId(1);
const CLIENT: &str = "c";
/// The size of a quorum here, and the most nodes of a Cluster.
const NODES: u8 = 3;

/// Feeds commands, replies, events and timeouts in any order to a machine for one server, a Cluster or a
/// quorum.
///
/// # Panics
/// If an operation ends twice or never, an input has too many effects, or timeouts never stop being due.
pub fn machine(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut scene = Scene::new(&mut bytes);
    for _ in 0..STEPS_MAX {
        // The core stops with the machine.
        if bytes.is_empty() || scene.stopped {
            break;
        }
        scene.step(&mut bytes);
    }
    scene.close();
}

#[expect(clippy::struct_excessive_bools, reason = "facts that are independent")]
struct Scene {
    protocol: Box<dyn Protocol>,
    quorum: bool,
    now: Mono,
    last_op: u32,
    /// Operations without an outcome.
    open: BTreeSet<OpId>,
    /// The number of names of each `AcquireAll`.
    together: BTreeMap<OpId, usize>,
    /// Leases that were granted.
    leases: Vec<LeaseId>,
    /// Requests without a reply.
    asked: BTreeMap<(NodeId, RequestId), Call>,
    cluster: bool,
    connecting: BTreeSet<NodeId>,
    up: BTreeSet<NodeId>,
    opened: bool,
    stopped: bool,
    out: Vec<Effect>,
}

impl Scene {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let kind = bytes.below(4);
        let config = Config {
            client: CLIENT.to_owned(),
            started: bytes.pick(&[Mono::default(), Mono::NEVER]),
            secret: CLIENT.to_owned(),
            prefix: "lock:".to_owned(),
            command_timeout: Duration::from_secs(2),
            open_patience: Duration::from_millis(bytes.pick(&[0, 5_000])),
            cluster: kind == 1,
            confirm: bytes.flag(),
            quorum: kind == 2,
            polling: bytes
                .flag()
                .then_some(Polling { least: Duration::ZERO, most: Duration::from_millis(300) }),
            linger_max: bytes.below(3),
        };
        let seed = bytes.byte().into();
        let quorum = config.quorum;
        let protocol: Box<dyn Protocol> = if quorum {
            let settings = Settings {
                servers: ["a:1", "b:1", "c:1"].map(str::to_owned).into(),
                node_timeout: Duration::from_millis(100),
                longest_lease: bytes.flag().then_some(Duration::from_secs(60)),
            };
            Box::new(Quorum::new(config, settings, seed))
        } else {
            Box::new(Machine::new(config, seed))
        };
        let mut scene = Self {
            protocol,
            quorum,
            now: Mono::from_micros(1_000_000_000),
            last_op: 0,
            open: BTreeSet::new(),
            together: BTreeMap::new(),
            leases: Vec::new(),
            asked: BTreeMap::new(),
            cluster: kind == 1,
            connecting: BTreeSet::new(),
            up: BTreeSet::new(),
            opened: false,
            stopped: false,
            out: Vec::new(),
        };
        scene.command(Command::Open);
        scene
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.below(8) {
            // No caller has a manager before it is open.
            0 | 1 if self.opened => {
                let mut command = any_command(bytes, &self.leases);
                if self.quorum {
                    command = of_quorum(command);
                }
                self.command(command);
            }
            2 => self.cancel(bytes),
            3 | 4 => self.answer(bytes),
            5 => self.event(bytes),
            6 => self.pass(Duration::from_millis(bytes.number() % 100_000)),
            _ if self.next_timeout().is_some_and(|at| at < END_OF_TIME) => self.pass_until_due(),
            _ => {}
        }
    }

    fn command(&mut self, command: Command) {
        self.last_op += 1;
        let op = OpId(self.last_op);
        self.open.insert(op);
        if let Command::AcquireAll { names, .. } = &command {
            self.together.insert(op, names.len());
        }
        let (now, out) = (self.now, &mut self.out);
        self.protocol.handle_command(now, op, command, out);
        self.judge();
    }

    /// Cancels an operation, which may have ended or never existed.
    fn cancel(&mut self, bytes: &mut Bytes<'_>) {
        let op = OpId(u32::from(bytes.byte()) % (self.last_op + 2));
        let (now, out) = (self.now, &mut self.out);
        self.protocol.handle_command(now, op, Command::Cancel, out);
        self.judge();
    }

    /// Answers a request, early or late, or one that was never sent.
    fn answer(&mut self, bytes: &mut Bytes<'_>) {
        let index = bytes.below(self.asked.len() + 1);
        let key = match self.asked.keys().nth(index) {
            Some(key) => *key,
            None => (node(bytes), RequestId(u64::MAX - u64::from(bytes.byte()))),
        };
        let script = self.asked.get(&key).map_or(Some(Script::Acquire), Call::script);
        if !self.up.contains(&key.0) {
            return;
        }
        // Sometimes the same reply arrives twice.
        if bytes.below(8) > 0 {
            self.asked.remove(&key);
        }
        let reply = any_reply(bytes, script);
        if matches!(reply, Err(Failure::Moved(_) | Failure::Moving(_))) && !self.cluster {
            return;
        }
        let (now, out) = (self.now, &mut self.out);
        let (node, request) = key;
        self.protocol.handle_reply(now, node, request, reply, out);
        self.judge();
    }

    fn event(&mut self, bytes: &mut Bytes<'_>) {
        let (event, node) = (any_event(bytes, self.now), node(bytes));
        if !self.may_happen(node, &event) {
            return;
        }
        let (now, out) = (self.now, &mut self.out);
        self.protocol.handle_event(now, node, event, out);
        self.judge();
    }

    /// The core's guarantees: an attempt to connect ends once, and only connected nodes send events.
    fn may_happen(&mut self, node: NodeId, event: &Event) -> bool {
        match event {
            Event::Heartbeat(_) => true,
            Event::Discovered(_) => self.cluster,
            Event::Connected { .. } => {
                let succeeds = self.connecting.remove(&node);
                // It replaces the connection before.
                if succeeds && !self.up.insert(node) {
                    self.asked.retain(|(other, _), _| *other != node);
                }
                succeeds
            }
            Event::ConnectFailed(_) => self.connecting.remove(&node),
            Event::Disconnected(_) => self.up.remove(&node),
            Event::Listening { .. } => self.cluster && self.up.contains(&node),
            _ => self.up.contains(&node),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.time_out();
    }

    fn pass_until_due(&mut self) {
        if let Some(at) = self.next_timeout() {
            self.now = self.now.max(at);
            self.time_out();
        }
    }

    fn next_timeout(&mut self) -> Option<Mono> {
        self.protocol.next_timeout()
    }

    /// Runs timeouts as the core does, until none is due.
    fn time_out(&mut self) {
        for _ in 0..TIMEOUTS_MAX {
            if self.stopped || self.next_timeout().is_none_or(|at| at > self.now) {
                return;
            }
            let (now, out) = (self.now, &mut self.out);
            self.protocol.handle_timeout(now, out);
            self.judge();
        }
        panic!("something is always due at {:?}", self.now);
    }

    fn judge(&mut self) {
        // Claims that are given back after their operation has ended count too.
        let things = self.last_op as usize + self.asked.len();
        let most = EFFECTS_BESIDES + EFFECTS_PER_THING * things;
        assert!(self.out.len() <= most, "{} effects, {things} things", self.out.len());
        for effect in std::mem::take(&mut self.out) {
            assert!(!self.stopped, "{effect:?} after the end");
            match effect {
                Effect::Complete { op, outcome } => {
                    assert!(op == OpId::NOBODY || self.open.remove(&op), "{op:?}: {outcome:?}");
                    self.opened |= op == OPEN && outcome == Outcome::Done;
                    self.judge_outcome(op, &outcome);
                }
                Effect::SetDeadline { lease, until } => {
                    self.leases.retain(|other| *other != lease);
                    self.leases.extend(until.is_some().then_some(lease));
                }
                Effect::Connect { node } => {
                    self.connecting.insert(node);
                }
                Effect::Send { node, request, call, .. } => {
                    self.asked.insert((node, request), call);
                }
                Effect::StopConnecting { node } => {
                    self.connecting.remove(&node);
                }
                Effect::Disconnect { node, .. } => {
                    self.asked.retain(|(other, _), _| *other != node);
                    self.up.remove(&node);
                }
                Effect::Stop => self.stopped = true,
                _ => {}
            }
        }
    }

    /// Checks that each lock of a successful acquire has a deadline.
    fn judge_outcome(&self, op: OpId, outcome: &Outcome) {
        let (lease, count) = match outcome {
            Outcome::Acquired { lease, .. } => (*lease, 1),
            Outcome::AcquiredAll { lease, fences } => {
                assert_eq!(Some(&fences.len()), self.together.get(&op), "{op:?}: {outcome:?}");
                (*lease, fences.len() as u64)
            }
            _ => return,
        };
        for number in 0..count {
            let attempt = TokenId(lease.token_id().0 + number);
            let held = self.leases.iter().any(|other| other.token_id() == attempt);
            assert!(held, "{outcome:?} of {op:?} holds nothing");
        }
    }

    /// Without any further reply, all open operations must still end.
    fn close(&mut self) {
        if !self.stopped {
            self.command(Command::Close);
        }
        for _ in 0..10 * STEPS_MAX {
            if self.stopped {
                break;
            }
            assert!(self.next_timeout().is_some(), "nothing would ever end {:?}", self.open);
            self.pass_until_due();
        }
        assert!(self.stopped, "it never ends");
        // Operations that begin after the end are completed by dropping their tickets.
        assert!(self.open.is_empty(), "{:?} never ended", self.open);
    }
}

fn node(bytes: &mut Bytes<'_>) -> NodeId {
    NodeId(u16::from(bytes.byte() % NODES))
}

fn lock(bytes: &mut Bytes<'_>) -> LockKeys {
    LockKeys::new("lock:", name(bytes))
}

fn name(bytes: &mut Bytes<'_>) -> &'static str {
    bytes.pick(&["a", "b", "{a}c"])
}

/// Durations as callers pass them: whole ms.
fn duration(bytes: &mut Bytes<'_>) -> Duration {
    Duration::from_millis(exact(bytes))
}

/// Numbers from outside are checked to be in this range.
fn exact(bytes: &mut Bytes<'_>) -> u64 {
    bytes.number() % (EXACT_MAX + 1)
}

fn ttl(bytes: &mut Bytes<'_>) -> Duration {
    Duration::from_millis(bytes.pick(&[50, 1_000, 10_000, 86_400_000]))
}

fn mode(bytes: &mut Bytes<'_>) -> Mode {
    match bytes.below(3) {
        0 => Mode::Exclusive,
        limit => Mode::permits(1, u64::from(limit == 2)),
    }
}

fn hold(bytes: &mut Bytes<'_>) -> HoldTerms {
    let renew = bytes.flag();
    HoldTerms {
        renew,
        leave_to_expire: !renew,
        max_hold: bytes.flag().then(|| duration(bytes)),
        stall_timeout: duration(bytes),
        linger: if bytes.flag() { duration(bytes) } else { Duration::ZERO },
    }
}

fn any_command(bytes: &mut Bytes<'_>, leases: &[LeaseId]) -> Command {
    let lease = match leases.get(bytes.below(leases.len() + 1)) {
        Some(lease) => *lease,
        None => LeaseId(bytes.number()),
    };
    match bytes.below(11) {
        10 => Command::KeepForeign {
            key: name(bytes).to_owned(),
            value: (*bytes.pick(&["old", "hf1.c.1"])).into(),
            ttl: ttl(bytes),
            age: duration(bytes),
            stall_timeout: duration(bytes),
        },
        0..3 => {
            let wait = match bytes.below(4) {
                0 => Wait::Forever,
                1 => Wait::Never,
                2 => Wait::Steal,
                _ => Wait::UpTo(duration(bytes)),
            };
            let (ttl, label) = (ttl(bytes), (*bytes.pick(&["", "label"])).into());
            let (hold, mode) = (hold(bytes), mode(bytes));
            Command::Acquire { name: name(bytes).to_owned(), ttl, wait, label, hold, mode }
        }
        3 => Command::Adopt {
            label: Label::Text(Arc::default()),
            name: name(bytes).to_owned(),
            owner: bytes.pick(&["hf1.x.1", "hf1.c.1", "hf1.c.2"]).to_owned(),
            ttl: ttl(bytes),
            hold: hold(bytes),
            mode: mode(bytes),
        },
        4 => Command::Downgrade { lease },
        5 => Command::Extend { lease, ttl: bytes.flag().then(|| ttl(bytes)) },
        6 => Command::Force {
            name: name(bytes).to_owned(),
            foreign: bytes.flag(),
            owners: bytes.flag().then(|| "hf1.c.1".to_owned()).into_iter().collect(),
        },
        7 => Command::AcquireAll {
            names: (0..=bytes.below(4)).map(|_| name(bytes).to_owned()).collect(),
            ttl: ttl(bytes),
            label: Arc::default(),
            hold: hold(bytes),
        },
        // Rare, so that other commands are tried as well.
        8 if bytes.below(16) == 15 => Command::Close,
        8 if bytes.flag() => Command::ExpireIn { lease, ttl: ttl(bytes) },
        _ => Command::Release { lease, exported: bytes.flag() },
    }
}

/// TypeScript refuses what a quorum cannot do.
fn of_quorum(command: Command) -> Command {
    match command {
        Command::Acquire { name, ttl, wait, label, hold, .. } => {
            let wait = if wait == Wait::Steal { Wait::Never } else { wait };
            Command::Acquire { name, ttl, wait, label, hold, mode: Mode::Exclusive }
        }
        Command::Adopt { .. }
        | Command::Downgrade { .. }
        | Command::Force { .. }
        | Command::KeepForeign { .. }
        | Command::ExpireIn { .. } => Command::Extend { lease: LeaseId(0), ttl: None },
        other => other,
    }
}

/// A reply that a hostile server can make the core accept for `script`.
fn any_reply(bytes: &mut Bytes<'_>, script: Option<Script>) -> Result<Reply, Failure> {
    if bytes.below(4) == 0 {
        return Err(any_failure(bytes));
    }
    let Some(script) = script else {
        let last = exact(bytes);
        let takes =
            [Take::Taken { last }, Take::Held, Take::Unseen, Take::Overtaken, Take::Unfenced];
        return Ok(Reply::Take(bytes.pick(&takes)));
    };
    Ok(match (script, bytes.below(4)) {
        (Script::Adopt | Script::Reserve, 0) | (Script::HandoffShare, 1) => Reply::Owner(false),
        (Script::HandoffShare | Script::Release | Script::Force, 0) => Reply::More,
        (Script::Acquire, 0) => Reply::from(HeldBy {
            remaining: bytes.flag().then(|| Duration::from_millis(exact(bytes))),
            holder: bytes.pick(&["", "somebody", "hf1.c.1", "hf1.x.1+"]).to_owned(),
            time: ServerTime::from_micros(exact(bytes)),
            queued: bytes
                .flag()
                .then(|| QueuePosition { position: u32::from(bytes.byte()), seq: exact(bytes) }),
            owners: bytes.pick(&["", "hf1.c.1"]).into(),
            queueing: bytes.flag(),
            sharer: bytes.pick(&["", "somebody", "hf1.c.1"]).to_owned(),
            sharers: bytes.byte().into(),
            awaited: bytes.flag().then(|| Duration::from_millis(exact(bytes))),
        }),
        (Script::Acquire, 1) => Reply::Joined { fence: exact(bytes) },
        (Script::Acquire | Script::Adopt, _) => Reply::Granted { fence: exact(bytes) },
        (Script::HandoffShare, _) => {
            Reply::HandedOff { fence: exact(bytes), waiting: bytes.byte().into() }
        }
        (Script::Reserve, _) => {
            Reply::Reserved { fence: exact(bytes), waiting: bytes.byte().into() }
        }
        (Script::AcquireAll, 0..3) => {
            Reply::All((0..bytes.below(5)).map(|_| exact(bytes)).collect())
        }
        (Script::Force, 1) => Reply::Seen { owners: bytes.pick(&["", "hf1.c.1"]).into() },
        (Script::Vote, 0..3) => {
            let time = ServerTime::from_micros(exact(bytes));
            Reply::Voted { counter: exact(bytes), time, written: bytes.flag() }
        }
        (Script::Vote, _) => Reply::from(HeldBy {
            remaining: bytes.flag().then(|| Duration::from_millis(exact(bytes))),
            holder: bytes.pick(&["somebody", "hf1.c.1.1", "hf1.x.1.2"]).to_owned(),
            ..HeldBy::default()
        }),
        _ => Reply::Owner(bytes.flag()),
    })
}

fn any_failure(bytes: &mut Bytes<'_>) -> Failure {
    match bytes.below(7) {
        0 => Failure::Lost("gone".to_owned()),
        1 => Failure::Halfway,
        2 => Failure::Moved(node(bytes)),
        3 => Failure::Moving(node(bytes)),
        4 => Failure::NoScript,
        _ => Failure::Refused(any_refusal(bytes)),
    }
}

fn any_refusal(bytes: &mut Bytes<'_>) -> Refusal {
    let codes =
        ["ERR", "READONLY", "OOM", "NOPERM", "WRONGTYPE", "TRYAGAIN", "WRONGPASS", "CROSSSLOT"];
    Refusal { code: bytes.pick(&codes).to_owned(), detail: "no".to_owned() }
}

fn any_probe(bytes: &mut Bytes<'_>) -> ServerProbe {
    ServerProbe {
        replication_id: bytes.flag().then(|| bytes.pick(&["one", "two"]).to_owned()),
        time: ServerTime::from_micros(exact(bytes)),
        uptime: bytes.flag().then(|| Duration::from_secs(exact(bytes))),
    }
}

fn any_event(bytes: &mut Bytes<'_>, now: Mono) -> Event {
    match bytes.below(12) {
        0 => Event::Confirmed {
            attempt: TokenId(bytes.number()),
            verdict: if bytes.flag() { Ok(()) } else { Err(any_refusal(bytes)) },
        },
        1..4 => Event::Connected {
            probe: any_probe(bytes),
            risks: bytes.flag().then(|| Risk::Replica("a:1".to_owned())).into_iter().collect(),
            denied: Denied {
                pubsub: bytes.flag().then(|| "NOPERM".to_owned()),
                plain_commands: bytes.flag().then(|| "NOPERM".to_owned()),
                tracking: bytes.flag(),
                ..Denied::default()
            },
        },
        4 => Event::ConnectFailed(any_failure(bytes)),
        5 => Event::PubsubDenied("NOPERM".to_owned()),
        6 if bytes.flag() => Event::TrackingDenied,
        6 => Event::Disconnected("gone".to_owned()),
        7 => Event::Discovered(if bytes.flag() {
            Ok(Routes::new(&[(0, 8_000, node(bytes)), (8_001, 16_383, node(bytes))]))
        } else {
            Err(any_failure(bytes))
        }),
        8 => Event::Listening {
            channel: format!("{}:{{{}}}", inbox(CLIENT), lock(bytes).tag()).into(),
            on: bytes.flag(),
        },
        9 => Event::Probed { probe: any_probe(bytes), sent: now },
        10 => Event::Message(any_message(bytes)),
        _ => Event::Heartbeat(now),
    }
}

fn any_message(bytes: &mut Bytes<'_>) -> Message {
    let token = Token::new(bytes.pick(&[CLIENT, "x"]), bytes.number(), "");
    match bytes.below(5) {
        3 => Message::Changed(lock(bytes)),
        4 => Message::AllChanged,
        0 => Message::Freed(lock(bytes)),
        1 => Message::Taken(Taken { keys: lock(bytes), token, adopted: bytes.flag() }),
        _ => Message::Granted(vec![Grant {
            token,
            fence: exact(bytes),
            claim: duration(bytes),
            time: ServerTime::from_micros(exact(bytes)),
            keys: lock(bytes),
        }]),
    }
}
