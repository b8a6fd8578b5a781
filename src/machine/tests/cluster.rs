//! Locks that are spread over servers: routing, notification, and the cost of a failure.

use super::defects;
use super::world::{COMMAND_TIMEOUT, RENEWED, ms};
use crate::machine::{
    Command, Config, Denied, Effect, Event, LeaseId, Machine, NodeId, Notice, OpId, Outcome,
    Protocol, RequestId, Routes, SendMode, ServerProbe, Wait,
};
use crate::protocol::{
    Call, Failure, Grant, HeldBy, Intent, LockKeys, Message, Mode, Mono, QueuePosition, Refusal,
    Reply, SLOTS, ServerTime, Token, valid_until,
};
use std::sync::Arc;

const TIME: ServerTime = ServerTime::from_micros(1_700_000_000_000_000);
const ONE: NodeId = NodeId(0);
const TWO: NodeId = NodeId(1);
/// One name in the first half of the slots, one in the second.
const LOW: &str = "item:42";
const HIGH: &str = "item:2";

/// A manager on two servers. Its effects are in `out`.
struct Crew {
    machine: Machine,
    now: Mono,
    out: Vec<Effect>,
}

fn halves() -> Routes {
    Routes::new(&[(0, SLOTS / 2 - 1, ONE), (SLOTS / 2, SLOTS - 1, TWO)])
}

impl Crew {
    fn new() -> Self {
        let mut crew = Self::opening();
        crew.connect(ONE);
        crew.connect(TWO);
        crew.take();
        crew
    }

    /// Its first connections are being made.
    fn opening() -> Self {
        let slot = |name| LockKeys::new("lock:", name).slot();
        assert!(slot(LOW) < SLOTS / 2 && slot(HIGH) >= SLOTS / 2, "each half has one of the names");
        let config = Config {
            client: "c".to_owned(),
            started: Mono::NEVER,
            secret: "c".to_owned(),
            prefix: "lock:".to_owned(),
            command_timeout: COMMAND_TIMEOUT,
            open_patience: ms(0),
            cluster: true,
            confirm: false,
            quorum: false,
            polling: None,
            linger_max: 10_000,
        };
        let machine = Machine::new(config, 7);
        let mut crew = Self { machine, now: Mono::from_micros(1_000_000), out: Vec::new() };
        crew.command(OpId(1), Command::Open);
        assert_eq!(crew.take(), [Effect::Discover]);
        crew.event(ONE, Event::Discovered(Ok(halves())));
        assert_eq!(crew.take(), [Effect::Connect { node: ONE }, Effect::Connect { node: TWO }]);
        crew
    }

    /// The servers take no plain commands that would take a lock.
    fn by_scripts(mut self) -> Self {
        self.machine.servers.refuse_plain_commands();
        self
    }

    fn command(&mut self, op: OpId, command: Command) {
        self.machine.handle_command(self.now, op, command, &mut self.out);
    }

    fn event(&mut self, node: NodeId, event: Event) {
        self.machine.handle_event(self.now, node, event, &mut self.out);
    }

    fn connect(&mut self, node: NodeId) {
        let replication_id = Some(format!("of {node:?}"));
        let probe = ServerProbe {
            replication_id,
            time: ServerTime::from_micros(1_700_000_000_000_000),
            uptime: None,
        };
        let denied = Denied { tracking: true, ..Denied::default() };
        self.event(node, Event::Connected { probe, risks: Vec::new(), denied });
    }

    fn reply(&mut self, node: NodeId, request: RequestId, reply: Result<Reply, Failure>) {
        self.machine.handle_reply(self.now, node, request, reply, &mut self.out);
    }

    fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.out)
    }

    /// Advances the time, timers included.
    fn pass(&mut self, duration_ms: u64) {
        let end = self.now + ms(duration_ms);
        while let Some(at) = self.machine.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now, &mut self.out);
        }
        self.now = end;
    }

    fn acquire(&mut self, op: u32, name: &str) {
        self.acquire_within(op, name, Wait::Forever);
    }

    fn acquire_within(&mut self, op: u32, name: &str, wait: Wait) {
        let (name, ttl) = (name.to_owned(), ms(10_000));
        let label = Arc::default();
        self.command(
            OpId(op),
            Command::Acquire { name, ttl, wait, label, hold: RENEWED, mode: Mode::Exclusive },
        );
    }

    /// The single request that was sent, and its node.
    fn sent(&mut self) -> (NodeId, RequestId, Call, SendMode) {
        let sent = self.take().into_iter().filter_map(|effect| match effect {
            Effect::Send { node, request, call, send_mode } => {
                Some((node, request, call, send_mode))
            }
            _ => None,
        });
        let sent: Vec<_> = sent.collect();
        let [one] = <[_; 1]>::try_from(sent).unwrap();
        one
    }

    /// The next request that is sent.
    fn next_sent(&mut self) -> (NodeId, RequestId, Call, SendMode) {
        while !self.out.iter().any(|effect| matches!(effect, Effect::Send { .. })) {
            self.pass(10);
        }
        self.sent()
    }

    /// Waits for a lock that another client holds; returns the server's reply.
    fn enqueue(&mut self) -> HeldBy {
        self.acquire(2, LOW);
        let (node, request, ..) = self.sent();
        let queued = Some(QueuePosition { position: 1, seq: 5 });
        let (holder, remaining) = ("hf1.d.1".to_owned(), Some(ms(9_000)));
        let held = HeldBy { remaining, holder, queued, ..HeldBy::default() };
        self.reply(node, request, Ok(held.clone().into()));
        held
    }

    /// Holds a share for 3 s.
    fn share(&mut self) -> LeaseId {
        let (name, label, ttl) = (LOW.to_owned(), Arc::default(), ms(3_000));
        let (wait, mode) = (Wait::Never, Mode::SHARED);
        let command = Command::Acquire { name, ttl, wait, label, hold: RENEWED, mode };
        self.command(OpId(2), command);
        let (_, request, ..) = self.sent();
        self.reply(ONE, request, Ok(Reply::Granted { fence: 1_700_000_000_000_001 }));
        let acquired = self.take().into_iter().find_map(|effect| match effect {
            Effect::Complete { outcome: Outcome::Acquired { lease, .. }, .. } => Some(lease),
            _ => None,
        });
        acquired.unwrap()
    }

    fn hold(&mut self, op: u32, name: &str) -> LeaseId {
        self.acquire(op, name);
        let (node, request, ..) = self.sent();
        self.reply(node, request, Ok(Reply::Granted { fence: 1_700_000_000_000_001 }));
        let lease = self.take().into_iter().find_map(|effect| match effect {
            Effect::Complete { outcome: Outcome::Acquired { lease, .. }, .. } => Some(lease),
            _ => None,
        });
        lease.unwrap()
    }
}

fn refused(code: &str) -> Result<Reply, Failure> {
    Err(Failure::Refused(Refusal { code: code.to_owned(), detail: String::new() }))
}

#[test]
fn a_one_shot_survives_a_redirection_to_an_unknown_server() {
    let mut crew = Crew::new();
    let three = NodeId(2);
    crew.command(
        OpId(2),
        Command::Force { name: HIGH.to_owned(), foreign: false, owners: Vec::new() },
    );
    let (node, request, ..) = crew.sent();
    crew.reply(node, request, refused("TRYAGAIN"));
    let moved = Routes::new(&[(0, SLOTS / 2 - 1, ONE), (SLOTS / 2, SLOTS - 1, three)]);
    crew.event(ONE, Event::Discovered(Ok(moved)));
    assert!(crew.take().contains(&Effect::Connect { node: three }), "it connects to that server");
    crew.connect(three);
    let (node, request, ..) = crew.sent();
    assert_eq!(node, three);
    crew.reply(node, request, Ok(Reply::Owner(true)));
    let done = Effect::Complete { op: OpId(2), outcome: Outcome::Done };
    assert!(crew.take().contains(&done), "the one-shot is done by the unknown server");
}

#[test]
fn each_lock_is_requested_where_its_slot_is() {
    let mut crew = Crew::new();
    crew.acquire(2, LOW);
    assert_eq!(crew.sent().0, ONE);
    crew.acquire(3, HIGH);
    assert_eq!(crew.sent().0, TWO);
}

#[test]
fn a_lock_that_has_moved_is_requested_there_from_then_on() {
    let mut crew = Crew::new();
    crew.acquire(2, LOW);
    let (_, request, call, _) = crew.sent();
    crew.reply(ONE, request, Err(Failure::Moved(TWO)));
    let (node, _, again, send_mode) = crew.sent();
    assert_eq!((node, again, send_mode), (TWO, call, SendMode::Redirected));
    // Other slots may have moved as well.
    crew.now = crew.now + ms(200);
    crew.machine.handle_timeout(crew.now, &mut crew.out);
    assert_eq!(crew.take(), [Effect::Discover]);
}

/// If only routes that have changed resumed a request, it could wait for ever:
///
/// 1. The answer to A's request names C, which is not connected, so the request waits for C.
/// 2. The answer to another request names B.
/// 3. The routes that are read next name B too, so they change nothing.
#[test]
fn an_entry_that_waits_for_a_connection_is_sent_where_its_lock_turns_out_to_be() {
    let mut crew = Crew::new();
    crew.acquire(2, LOW);
    let (_, waits, ..) = crew.sent();
    crew.acquire_within(3, LOW, Wait::Never);
    let (_, tries, ..) = crew.sent();
    let three = NodeId(2);
    crew.reply(ONE, waits, Err(Failure::Moved(three)));
    assert!(crew.take().contains(&Effect::Connect { node: three }), "it connects to that server");
    crew.pass(60);
    crew.take();
    crew.reply(ONE, tries, Err(Failure::Moved(TWO)));
    let (_, tries, ..) = crew.sent();
    crew.reply(TWO, tries, Ok(HeldBy::default().into()));
    crew.pass(200);
    assert!(crew.take().contains(&Effect::Discover), "the redirections make it ask for the routes");
    // The routes are as they were believed to be.
    let (slot, half) = (LockKeys::new("lock:", LOW).slot(), SLOTS / 2);
    let low = [(0, slot - 1, ONE), (slot, slot, TWO), (slot + 1, half - 1, ONE)];
    let routes = Routes::new(&[&low[..], &[(half, SLOTS - 1, TWO)]].concat());
    crew.event(ONE, Event::Discovered(Ok(routes)));
    let (node, _, call, _) = crew.sent();
    assert!(
        node == TWO && matches!(call, Call::Acquire { intent: Intent::Join(_), .. }),
        "the entry is sent to node 2: {call:?}"
    );
}

/// 1. The window of the connection to server one is full, so a caller waits for room there. Its lock moves to server two,
///    whose window is full, too.
/// 2. The connection to server one breaks. A caller that still waited there would never ask, though server two answers.
#[test]
pub(super) fn who_waits_for_room_waits_where_its_lock_has_moved() {
    let mut crew = Crew::new().by_scripts();
    crew.machine.servers.limit_windows(1, 1);
    let mut names = (0..).map(|number| format!("item:{number}"));
    let is_low = |name: &String| name != LOW && LockKeys::new("lock:", name).slot() < SLOTS / 2;
    let waits = names.find(is_low).unwrap();
    crew.acquire_within(2, LOW, Wait::Never);
    crew.take();
    crew.acquire_within(3, HIGH, Wait::Never);
    let (_, high, ..) = crew.sent();
    crew.acquire_within(4, &waits, Wait::Never);
    assert_eq!(crew.take(), [], "there is no room");
    crew.event(ONE, Event::Discovered(Ok(Routes::new(&[(0, SLOTS - 1, TWO)]))));
    defects::spoil(&mut crew.machine);
    crew.event(ONE, Event::Disconnected("cut".to_owned()));
    crew.take();
    let (mut asked, mut next) = (0, Some(high));
    while let Some(request) = next {
        crew.reply(TWO, request, Ok(HeldBy::default().into()));
        next = crew.take().into_iter().find_map(|effect| {
            let Effect::Send { request, call, .. } = effect else { return None };
            asked += usize::from(call.keys() == &LockKeys::new("lock:", &waits));
            Some(request)
        });
    }
    assert_eq!(asked, 1);
}

/// 1. Server one grants a lock, and the grant waits for its replicas. The lock's slot moves to server two.
/// 2. The connection to server one breaks. That to server two was there before, so nothing resumes the request.
#[test]
pub(super) fn a_grant_that_waits_for_replicas_in_vain_is_asked_for_where_its_slot_has_moved() {
    let mut crew = Crew::new().by_scripts();
    crew.machine.context.config.confirm = true;
    crew.acquire(2, LOW);
    let (_, request, ..) = crew.sent();
    crew.reply(ONE, request, Ok(Reply::Granted { fence: 1_700_000_000_000_001 }));
    assert!(matches!(*crew.take(), [Effect::Confirm { node: ONE, .. }]), "replicas are waited for");
    crew.event(ONE, Event::Discovered(Ok(Routes::new(&[(0, SLOTS - 1, TWO)]))));
    crew.event(ONE, Event::Disconnected("died".to_owned()));
    crew.take();
    defects::spoil(&mut crew.machine);
    crew.pass(1_000);
    let (node, _, call, _) = crew.sent();
    assert!(
        node == TWO && matches!(call, Call::Acquire { intent: Intent::Join(_), .. }),
        "node 2 is asked: {call:?}"
    );
}

/// If the token were released only once, a lock could stay taken without a caller until its lease ends:
///
/// 1. A asks node 1 for the lock. The routes change, A's caller gives up, and its release goes to node 2.
/// 2. The connection to node 1 breaks, and the slot moves back.
/// 3. The release finds nothing at node 1. Then the lost request takes the lock there.
///
/// So the release is repeated even if only the request was lost.
#[test]
fn a_release_that_went_to_another_server_than_the_lost_request_is_repeated() {
    let mut crew = Crew::new();
    crew.acquire_within(2, LOW, Wait::Never);
    let (node, ..) = crew.sent();
    assert_eq!(node, ONE);
    crew.event(ONE, Event::Discovered(Ok(Routes::new(&[(0, SLOTS - 1, TWO)]))));
    crew.take();
    crew.command(OpId(2), Command::Cancel);
    let (node, release, call, _) = crew.sent();
    assert!(node == TWO && matches!(call, Call::Release { .. }), "node 2 is to free it: {call:?}");
    crew.event(ONE, Event::Disconnected("died".to_owned()));
    crew.take();
    crew.reply(TWO, release, Ok(Reply::Owner(false)));
    crew.pass(1_000);
    let (node, release, again, _) = crew.sent();
    assert!(node == TWO && again == call, "the lost request may have been executed since");
    crew.reply(TWO, release, Ok(Reply::Owner(true)));
    assert!(crew.machine.releases.is_empty(), "the release that freed the lock is the last");
}

#[test]
fn a_lock_that_is_moving_is_requested_there_once() {
    let mut crew = Crew::new();
    let lease = crew.hold(2, LOW);
    crew.command(OpId(3), Command::Extend { lease, ttl: None });
    let (_, request, ..) = crew.sent();
    crew.reply(ONE, request, Err(Failure::Moving(TWO)));
    let (node, request, _, send_mode) = crew.sent();
    assert_eq!((node, send_mode), (TWO, SendMode::Asking(TWO)));
    crew.reply(TWO, request, Ok(Reply::Owner(true)));
    crew.take();
    crew.command(OpId(3), Command::Extend { lease, ttl: None });
    assert_eq!(crew.sent().0, ONE);
}

/// With the epoch of the first server the lock could not be taken while its slot moves:
///
/// 1. A manager meets the second server after the counter of a lock was created. The slot of the lock moves there.
/// 2. The manager sends an acquire there by ASK, with the epoch of the first server.
/// 3. The fence is below the epoch of the second server, so the grant is given back and asked for again without a
///    pause. The next one is no better.
#[test]
fn a_request_to_the_target_of_a_moving_slot_has_the_epoch_of_that_server() {
    let mut crew = Crew::new().by_scripts();
    crew.event(TWO, Event::Disconnected("died".to_owned()));
    let later = ServerTime::from_micros(TIME.as_micros() + 5_000_000);
    let probe =
        ServerProbe { replication_id: Some("another".to_owned()), time: later, uptime: None };
    let denied = Denied { tracking: true, ..Denied::default() };
    crew.event(TWO, Event::Connected { probe, risks: Vec::new(), denied });
    crew.take();
    crew.acquire(2, LOW);
    let (_, request, ..) = crew.sent();
    crew.reply(ONE, request, Err(Failure::Moving(TWO)));
    let (_, _, call, send_mode) = crew.sent();
    assert_eq!(send_mode, SendMode::Asking(TWO));
    assert!(
        matches!(call, Call::Acquire { epoch, .. } if epoch == later),
        "the epoch is that of node 2: {call:?}"
    );
}

/// By the keys of a share alone, a lease would end although it is renewed:
///
/// 1. A asks to downgrade, and the slot begins to move, for longer than the lease.
/// 2. `downgrade` is answered TRYAGAIN, and so is `extend_share`: the set of shares does not exist yet.
/// 3. The lease of A ends.
///
/// So the renewal continues by the lock's own key.
#[test]
fn a_lock_that_is_to_be_downgraded_is_kept_while_its_slot_moves() {
    let mut crew = Crew::new();
    let lease = crew.hold(2, LOW);
    crew.command(OpId(3), Command::Downgrade { lease });
    crew.command(OpId(4), Command::Extend { lease, ttl: None });
    let (end, mut extended) = (crew.now + ms(15_000), false);
    while crew.now < end {
        for effect in crew.take() {
            match effect {
                Effect::Send { node, request, call, .. } => {
                    let alone = matches!(call, Call::Extend { .. });
                    let reply = if alone { Ok(Reply::Owner(true)) } else { refused("TRYAGAIN") };
                    crew.reply(node, request, reply);
                }
                Effect::Complete { op: OpId(4), outcome } => extended = outcome == Outcome::Done,
                Effect::Lose { .. } => panic!("it is lost"),
                _ => {}
            }
        }
        crew.pass(10);
    }
    assert!(extended, "the extension is done while the slot moves");
    // The downgrade is executed between the two requests of a renewal: it is no whole lock any more, which is no loss.
    let (node, request, call, _) = crew.next_sent();
    assert!(matches!(call, Call::ExtendShare { .. }), "the renewal is that of a share: {call:?}");
    crew.reply(node, request, refused("TRYAGAIN"));
    let (node, request, call, _) = crew.next_sent();
    assert!(matches!(call, Call::Extend { .. }), "it goes on by the lock's own key: {call:?}");
    crew.reply(node, request, Ok(Reply::Owner(false)));
    let (_, _, call, _) = crew.next_sent();
    assert!(matches!(call, Call::KeepShare { .. }), "the lock is kept as a share: {call:?}");
    assert!(crew.machine.leases.get(lease.token_id()).is_some(), "the downgrade costs no lease");
}

/// The lock and the set of its shares are on two servers: a share is lengthened by one call for each, and counts from
/// the first that has lengthened it. The order is share, lock, share. Without the last call:
///
/// 1. A's share is lengthened in the set. Then the move is over.
/// 2. B steals the lock and releases it, and C and D share it.
/// 3. A's `keep_lock` finds it shared, and A believes that it still has its share.
///
/// With the lock first, A believes so after the end of the lock:
///
/// 1. A's `keep_lock` lengthens the lock to 10 s. Then the move is over.
/// 2. B releases its share, which cuts the lock back to the last share, A's of 2 s.
/// 3. A's `keep_share` lengthens the share to 10 s. The lock ends after 2 s, and C gets it.
#[test]
fn a_share_whose_keys_are_on_two_servers_is_lengthened_key_by_key() {
    let granted = || Ok(Reply::Granted { fence: 1_700_000_000_000_001 });
    // The replies to the calls, and whether the share is kept.
    for (replies, kept) in [
        (vec![granted(), Ok(Reply::Owner(true)), granted()], true),
        (vec![Ok(Reply::Owner(false))], false),
        // Other code has deleted the lock.
        (vec![granted(), Ok(Reply::Owner(false))], false),
        // It was stolen in between, and others share it.
        (vec![granted(), Ok(Reply::Owner(true)), Ok(Reply::Owner(false))], false),
    ] {
        let mut crew = Crew::new().by_scripts();
        let lease = crew.share();
        crew.pass(1_100);
        let (_, request, call, _) = crew.next_sent();
        assert!(matches!(call, Call::ExtendShare { .. }), "{call:?}");
        crew.reply(ONE, request, refused("TRYAGAIN"));
        let (_, request, call, _) = crew.next_sent();
        assert!(matches!(call, Call::Extend { .. }), "{call:?}");
        crew.reply(ONE, request, Ok(Reply::Owner(false)));
        let began = crew.now;
        for (number, reply) in replies.into_iter().enumerate() {
            let (node, request, call, _) = crew.next_sent();
            assert_eq!(matches!(call, Call::KeepShare { .. }), number != 1, "{call:?}");
            assert_eq!(matches!(call, Call::KeepLock { .. }), number == 1, "{call:?}");
            crew.pass(100);
            crew.reply(node, request, Err(Failure::Moving(TWO)));
            let (node, request, ..) = crew.next_sent();
            assert_eq!(node, TWO);
            crew.pass(100);
            crew.reply(node, request, reply);
        }
        let held = crew.machine.leases.get(lease.token_id());
        assert_eq!(held.is_some(), kept);
        if let Some(held) = held {
            // The first request to the server that has the key was sent after 100 ms.
            assert_eq!(held.until, valid_until(began + ms(100), ms(3_000)));
        }
    }
}

#[test]
fn an_extension_of_a_share_that_was_released_meanwhile_is_asked_key_by_key() {
    let mut crew = Crew::new().by_scripts();
    let lease = crew.share();
    crew.command(OpId(3), Command::Extend { lease, ttl: None });
    let (_, extension, ..) = crew.sent();
    crew.command(OpId(4), Command::Release { lease, exported: false });
    crew.sent();
    crew.reply(ONE, extension, refused("CLUSTERDOWN"));
    let (_, extension, call, _) = crew.next_sent();
    assert!(matches!(call, Call::ExtendShare { .. }), "{call:?}");
    crew.reply(ONE, extension, refused("TRYAGAIN"));
    let (_, _, call, _) = crew.sent();
    assert!(matches!(call, Call::Extend { .. }), "{call:?}");
}

/// What an interrupted reshard may leave behind, until somebody mends it.
type Strife = fn(NodeId, SendMode) -> Failure;

const STRIFE: [Strife; 3] = [
    |node, _| Failure::Moved(other(node)),
    // The slot leaves the first server, and the second does not know that it gets it.
    |node, _| if node == ONE { Failure::Moving(TWO) } else { Failure::Moved(ONE) },
    |node, send_mode| match send_mode {
        SendMode::Asking(_) => Failure::Moving(other(node)),
        _ => Failure::Moved(other(node)),
    },
];

const fn other(node: NodeId) -> NodeId {
    NodeId(1 - node.0)
}

impl Crew {
    /// For `duration_ms` two servers redirect requests to each other, and either may be asked for the routes.
    /// Returns the number of requests, and the outcomes.
    fn suffer(&mut self, strife: Strife, duration_ms: u64) -> (usize, Vec<Outcome>) {
        let end = self.now + ms(duration_ms);
        let (mut requests, mut ended, mut turn) = (0, Vec::new(), 0);
        while self.now < end {
            for effect in self.take() {
                match effect {
                    Effect::Send { node, request, send_mode, .. } => {
                        requests += 1;
                        assert!(requests < 100_000, "without end");
                        self.reply(node, request, Err(strife(node, send_mode)));
                    }
                    Effect::Discover => {
                        turn += 1;
                        let low = if turn % 2 == 0 { ONE } else { TWO };
                        let ranges = [(0, SLOTS / 2 - 1, low), (SLOTS / 2, SLOTS - 1, TWO)];
                        self.event(ONE, Event::Discovered(Ok(Routes::new(&ranges))));
                    }
                    Effect::Complete { outcome, .. } => ended.push(outcome),
                    _ => {}
                }
            }
            if self.out.is_empty() {
                let next = self.machine.next_timeout().unwrap_or(end);
                self.pass(u64::try_from(next.min(end).since(self.now).as_millis()).unwrap() + 1);
            }
        }
        (requests, ended)
    }
}

/// An interrupted reshard leaves two servers that each name the other one for the slot, until an operator repairs
/// that. A request that followed every redirection would go to and fro without a pause.
#[test]
fn servers_that_send_each_other_a_request_are_asked_again_after_a_pause() {
    let kinds: [fn(&mut Crew, LeaseId); 5] = [
        |crew, lease| crew.command(OpId(3), Command::Extend { lease, ttl: None }),
        |crew, lease| crew.command(OpId(3), Command::Release { lease, exported: false }),
        |crew, _| {
            crew.command(
                OpId(3),
                Command::Force { name: LOW.to_owned(), foreign: false, owners: Vec::new() },
            );
        },
        |crew, _| crew.acquire_within(3, "{lock:item:42}", Wait::UpTo(COMMAND_TIMEOUT)),
        |_, _| (),
    ];
    for (number, ask) in kinds.into_iter().enumerate() {
        for strife in STRIFE {
            let mut crew = Crew::new();
            let lease = crew.hold(2, LOW);
            ask(&mut crew, lease);
            let (requests, ended) = crew.suffer(strife, 5_000);
            assert!((2..1_000).contains(&requests), "request {number}: {requests}");
            for outcome in ended {
                let Outcome::Server { refusal, .. } = outcome else { panic!("{outcome:?}") };
                assert_eq!(refusal.code, "REDIRECTED", "request {number}");
            }
        }
    }
}

#[test]
fn a_release_outlasts_servers_that_contradict_each_other_for_a_while() {
    let mut crew = Crew::new();
    let lease = crew.hold(2, LOW);
    crew.command(OpId(3), Command::Release { lease, exported: false });
    for strife in STRIFE {
        crew.suffer(strife, 9_000);
        assert!(crew.machine.releases.contains_key(&lease.token_id()), "it may be mended yet");
    }
    crew.suffer(STRIFE[0], 9_000);
    assert!(crew.machine.releases.is_empty(), "the release is given up in the end");
    assert_eq!(crew.suffer(STRIFE[0], 60_000).0, 0, "nobody wants anything any more");
}

/// No other event causes a retry: no connection to the slot's current server is lost or made.
#[test]
fn a_request_lost_at_the_target_of_a_moving_slot_is_repeated() {
    let kinds: [fn(&mut Crew, LeaseId); 4] = [
        |crew, lease| crew.command(OpId(3), Command::Extend { lease, ttl: None }),
        |crew, lease| crew.command(OpId(3), Command::Release { lease, exported: false }),
        |crew, _| crew.acquire(3, "{lock:item:42}"),
        |crew, _| crew.pass(3_400),
    ];
    for (number, ask) in kinds.into_iter().enumerate() {
        let mut crew = Crew::new().by_scripts();
        let lease = crew.hold(2, LOW);
        ask(&mut crew, lease);
        let (_, request, call, _) = crew.sent();
        crew.reply(ONE, request, Err(Failure::Moving(TWO)));
        assert_eq!(crew.sent().0, TWO);
        crew.event(TWO, Event::Disconnected("died".to_owned()));
        crew.take();
        crew.pass(700);
        let again = crew.take().into_iter().any(
            |effect| matches!(effect, Effect::Send { node: ONE, call: again, .. } if again == call),
        );
        assert!(again, "request {number}");
    }
}

#[test]
fn an_extension_asks_again_where_its_lock_was_while_the_next_server_is_away() {
    let mut crew = Crew::new();
    let lease = crew.hold(2, LOW);
    crew.event(TWO, Event::Disconnected("died".to_owned()));
    crew.take();
    crew.command(OpId(3), Command::Extend { lease, ttl: None });
    let (_, request, ..) = crew.sent();
    crew.reply(ONE, request, Err(Failure::Moving(TWO)));
    crew.take();
    crew.pass(60);
    let (node, request, ..) = crew.sent();
    assert_eq!(node, ONE);
    crew.reply(ONE, request, Ok(Reply::Owner(true)));
    assert_eq!(crew.take().last(), Some(&Effect::Complete { op: OpId(3), outcome: Outcome::Done }));
}

#[test]
fn a_release_while_the_keys_are_in_two_places_frees_the_lock_alone() {
    let mut crew = Crew::new().by_scripts();
    let lease = crew.hold(2, LOW);
    crew.command(OpId(3), Command::Release { lease, exported: false });
    let (_, request, ..) = crew.sent();
    crew.reply(ONE, request, refused("TRYAGAIN"));
    let (node, request, call, _) = crew.sent();
    assert!(node == ONE && matches!(call, Call::Free { .. }), "it frees the lock alone: {call:?}");
    crew.reply(ONE, request, Err(Failure::Moving(TWO)));
    let (node, request, call, send_mode) = crew.sent();
    assert!(
        node == TWO && matches!(call, Call::Free { .. }) && send_mode == SendMode::Asking(TWO),
        "it does so at the slot's target, too: {call:?}"
    );
    crew.reply(TWO, request, Ok(Reply::Owner(true)));
    assert_eq!(crew.take(), [Effect::Complete { op: OpId(3), outcome: Outcome::Done }]);
    assert!(crew.machine.next_timeout().is_none(), "nothing of the release is left to do");
}

#[test]
fn a_queue_entry_subscribes_and_asks_again_once_it_is_subscribed() {
    let mut crew = Crew::new();
    let held = crew.enqueue();
    let channel: Arc<str> = "holdfast:inbox:c:{lock:item:42}".into();
    assert_eq!(crew.take(), [Effect::Listen { node: ONE, channel: Arc::clone(&channel) }]);
    // A release in the meantime may have granted it the lock, and nobody heard.
    crew.event(ONE, Event::Listening { channel: Arc::clone(&channel), on: true });
    let (_, request, call, _) = crew.sent();
    assert!(
        matches!(&call, Call::Acquire { intent: Intent::Poll, inbox, .. } if *inbox == channel),
        "the entry polls with its inbox: {call:?}"
    );
    crew.reply(ONE, request, Err(Failure::Moved(TWO)));
    let (node, request, ..) = crew.sent();
    assert_eq!(node, TWO);
    crew.reply(TWO, request, Ok(held.into()));
    let moved = [
        Effect::Unlisten { node: ONE, channel: Arc::clone(&channel) },
        Effect::Listen { node: TWO, channel },
    ];
    assert_eq!(crew.take(), moved);
}

#[test]
fn a_server_that_fails_costs_the_others_nothing() {
    let mut crew = Crew::new();
    let (low, high) = (crew.hold(2, LOW), crew.hold(3, HIGH));
    crew.event(ONE, Event::Disconnected("died".to_owned()));
    crew.take();
    crew.command(OpId(4), Command::Extend { lease: high, ttl: None });
    let (node, request, ..) = crew.sent();
    assert_eq!(node, TWO);
    crew.reply(TWO, request, Ok(Reply::Owner(true)));
    assert_eq!(crew.take().last(), Some(&Effect::Complete { op: OpId(4), outcome: Outcome::Done }));
    // Its replica takes over, and gets the requests that waited for it.
    crew.command(OpId(5), Command::Extend { lease: low, ttl: None });
    let three = NodeId(2);
    let ranges = [(0, SLOTS / 2 - 1, three), (SLOTS / 2, SLOTS - 1, TWO)];
    crew.event(ONE, Event::Discovered(Ok(Routes::new(&ranges))));
    assert_eq!(crew.take(), [Effect::Connect { node: three }]);
    crew.connect(three);
    let asked = crew.take().into_iter().filter(
        |effect| matches!(effect, Effect::Send { node, call: Call::Extend { .. }, .. } if *node == three),
    );
    assert!(asked.count() >= 1, "node 3 is asked for the extension");
    assert!(crew.machine.leases.get(low.token_id()).is_some(), "the failover costs no lease");
}

/// How often a connection was reported as lost, and how often as made again.
fn reports(effects: &[Effect]) -> [usize; 2] {
    let lost = |effect: &&Effect| matches!(effect, Effect::Notify(Notice::Disconnected(_)));
    let made = |effect: &&Effect| matches!(effect, Effect::Notify(Notice::Reconnected));
    [effects.iter().filter(lost).count(), effects.iter().filter(made).count()]
}

#[test]
fn each_lost_connection_is_reported_as_made_again_also_if_another_server_replaces_its_own() {
    let mut crew = Crew::new();
    crew.event(ONE, Event::Disconnected("died".to_owned()));
    crew.event(ONE, Event::ConnectFailed(Failure::Lost("it is dead".to_owned())));
    assert_eq!(reports(&crew.take()), [1, 0]);
    let three = NodeId(2);
    let ranges = [(0, SLOTS / 2 - 1, three), (SLOTS / 2, SLOTS - 1, TWO)];
    crew.event(ONE, Event::Discovered(Ok(Routes::new(&ranges))));
    crew.pass(2_000);
    // The leases of its locks are not renewed yet.
    assert_eq!(reports(&crew.take()), [0, 0]);
    crew.connect(three);
    assert_eq!(reports(&crew.take()), [0, 1]);
    // It comes back as a replica, and is promoted.
    crew.event(ONE, Event::Discovered(Ok(halves())));
    crew.connect(ONE);
    assert_eq!(reports(&crew.take()), [0, 0]);
    // A server without slots is lost while all others are connected.
    crew.event(three, Event::Disconnected("died, too".to_owned()));
    crew.pass(2_000);
    assert_eq!(reports(&crew.take()), [1, 1]);
}

#[test]
fn discovery_of_unknown_routes_backs_off() {
    let mut crew = Crew::new();
    crew.event(ONE, Event::Disconnected("died".to_owned()));
    let mut asked = Vec::new();
    while asked.len() < 12 {
        crew.take();
        crew.pass(1);
        if crew.take().contains(&Effect::Discover) {
            asked.push(crew.now);
            crew.event(ONE, Event::Discovered(Err(Failure::Lost("refused".to_owned()))));
        }
    }
    let pauses: Vec<_> = asked.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(pauses[0] <= ms(201), "{pauses:?}");
    assert!(pauses[5..].iter().all(|pause| (ms(500)..=ms(1_001)).contains(pause)), "{pauses:?}");
    // Once the routes are known, the next request for them need not wait.
    crew.pass(2_000);
    crew.event(ONE, Event::Discovered(Ok(halves())));
    crew.event(TWO, Event::Disconnected("died".to_owned()));
    crew.take();
    crew.pass(101);
    assert!(crew.take().contains(&Effect::Discover), "the pauses begin anew with known routes");
}

#[test]
fn a_server_that_denies_pubsub_is_polled() {
    let mut crew = Crew::new();
    let held = crew.enqueue();
    crew.take();
    crew.event(ONE, Event::PubsubDenied("ERR unknown command".to_owned()));
    let (_, request, call, _) = crew.sent();
    assert!(
        matches!(&call, Call::Acquire { inbox, .. } if inbox.is_empty()),
        "the entry names no inbox: {call:?}"
    );
    crew.reply(ONE, request, Ok(held.into()));
    assert!(crew.take().is_empty(), "nobody asks for messages again");
    let pause = crew.machine.next_timeout().unwrap().since(crew.now);
    assert!(pause <= ms(140), "{pause:?}");
}

/// 1. A slot that moves stops a `force` after its first write: it has freed the lock.
/// 2. C gets the lock.
/// 3. A repeat of the `force` would take it from C.
#[test]
fn a_force_that_was_stopped_halfway_spares_later_owners() {
    let mut crew = Crew::new();
    crew.command(
        OpId(2),
        Command::Force { name: LOW.to_owned(), foreign: false, owners: Vec::new() },
    );
    let (node, peek, ..) = crew.sent();
    crew.reply(node, peek, Ok(Reply::Seen { owners: "hf1.x.1".into() }));
    let (node, frees, ..) = crew.sent();
    // The lock is free, and its next owner is a later one.
    crew.reply(node, frees, Err(Failure::Halfway));
    crew.pass(1_000);
    let effects = crew.take();
    let ended = |effect: &Effect| {
        matches!(effect, Effect::Complete { op: OpId(2), outcome: Outcome::Connection(detail) }
            if detail.contains("may have been freed"))
    };
    assert!(effects.iter().any(ended), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Send { .. })), "{effects:?}");
}

/// Two servers have a part of the keys each: both refuse commands that name missing keys.
#[test]
fn a_share_whose_slot_moves_is_renewed_claimed_and_released_by_the_keys_that_exist() {
    let mut crew = Crew::new().by_scripts();
    let lease = crew.share();
    crew.pass(1_100);
    let (_, request, call, _) = crew.sent();
    assert!(matches!(call, Call::ExtendShare { .. }), "{call:?}");
    crew.reply(ONE, request, Err(Failure::Moving(TWO)));
    let (node, request, call, send_mode) = crew.sent();
    assert!(node == TWO && matches!(call, Call::ExtendShare { .. }), "node 2 renews it: {call:?}");
    assert_eq!(send_mode, SendMode::Asking(TWO));
    crew.reply(TWO, request, Ok(Reply::Granted { fence: 1_700_000_000_000_001 }));
    crew.take();
    crew.command(OpId(3), Command::Release { lease, exported: false });
    let (_, request, ..) = crew.sent();
    crew.reply(ONE, request, refused("TRYAGAIN"));
    let (node, request, call, _) = crew.sent();
    assert!(node == ONE && matches!(call, Call::FreeShare { .. }), "{call:?}");
    crew.reply(ONE, request, Ok(Reply::Owner(true)));
    assert_eq!(crew.take(), [Effect::Complete { op: OpId(3), outcome: Outcome::Done }]);
    assert!(crew.machine.next_timeout().is_none(), "nothing of the release is left to do");
}

/// By the keys of a share alone, the lock would stay held after its release:
///
/// 1. A asks to downgrade, the slot begins to move, and `downgrade` is answered TRYAGAIN.
/// 2. A releases. `release` and `free_share` are answered TRYAGAIN too, since the set of shares does not exist yet.
/// 3. The lock is held until the move is over, or its lease.
///
/// So the release continues by the lock's own key.
#[test]
fn a_lock_that_is_to_be_downgraded_is_released_while_its_slot_moves() {
    for is_whole in [true, false] {
        let mut crew = Crew::new();
        let lease = crew.hold(2, LOW);
        crew.command(OpId(3), Command::Downgrade { lease });
        let (_, request, ..) = crew.sent();
        crew.reply(ONE, request, refused("TRYAGAIN"));
        crew.take();
        crew.command(OpId(4), Command::Release { lease, exported: false });
        let (_, request, call, _) = crew.next_sent();
        assert!(matches!(call, Call::Release { .. }), "{call:?}");
        crew.reply(ONE, request, refused("TRYAGAIN"));
        let (_, request, call, _) = crew.next_sent();
        assert!(matches!(call, Call::FreeShare { .. }), "{call:?}");
        crew.reply(ONE, request, Err(Failure::Moving(TWO)));
        let (node, request, ..) = crew.next_sent();
        crew.reply(node, request, refused("TRYAGAIN"));
        let (node, request, call, _) = crew.next_sent();
        assert!(node == ONE && matches!(call, Call::Free { .. }), "{call:?}");
        crew.reply(ONE, request, Ok(Reply::Owner(is_whole)));
        if !is_whole {
            // The downgrade was executed in between: there may be a share, which this call does not know of.
            let (_, request, call, _) = crew.next_sent();
            assert!(matches!(call, Call::Downgrade { .. }), "{call:?}");
            crew.reply(ONE, request, Ok(Reply::Owner(true)));
            let (_, request, call, _) = crew.next_sent();
            assert!(matches!(call, Call::Release { .. }), "{call:?}");
            crew.reply(ONE, request, Ok(Reply::Owner(true)));
        }
        let done = Effect::Complete { op: OpId(4), outcome: Outcome::Done };
        assert!(crew.take().contains(&done), "the release is done");
        assert!(crew.machine.releases.is_empty(), "nothing is left to release");
    }
}

#[test]
fn a_claim_that_a_moving_slot_refuses_goes_by_the_lock_alone() {
    let mut crew = Crew::new();
    let held = crew.enqueue();
    crew.take();
    let keys = LockKeys::new("lock:", LOW);
    let channel = crew.machine.servers.shard_channel(&keys);
    crew.event(ONE, Event::Listening { channel, on: true });
    let (_, request, ..) = crew.sent();
    crew.reply(ONE, request, Ok(HeldBy { time: TIME, ..held }.into()));
    crew.take();
    let grant = Grant {
        token: Token::from_text("hf1.c.1"),
        fence: TIME.as_micros(),
        claim: ms(3_000),
        time: TIME,
        keys,
    };
    crew.event(ONE, Event::Message(Message::Granted(vec![grant])));
    let (_, request, call, _) = crew.sent();
    assert!(matches!(call, Call::Claim { .. }), "{call:?}");
    crew.reply(ONE, request, refused("TRYAGAIN"));
    let (_, request, call, _) = crew.sent();
    assert!(matches!(call, Call::Extend { .. }), "{call:?}");
    crew.reply(ONE, request, Ok(Reply::Owner(true)));
    assert!(
        !crew.take().iter().any(|effect| matches!(effect, Effect::Lose { .. })),
        "the refused claim costs no lease"
    );
}

#[test]
fn a_queue_entry_is_kept_while_its_slot_moves() {
    let mut crew = Crew::new();
    let held = crew.enqueue();
    crew.take();
    for _ in 0..3 {
        let (node, request, call, _) = crew.next_sent();
        assert!(node == ONE && matches!(call, Call::Acquire { .. }), "{call:?}");
        crew.reply(ONE, request, refused("TRYAGAIN"));
        let (_, request, call, _) = crew.sent();
        assert!(matches!(call, Call::KeepEntry { .. }), "{call:?}");
        crew.reply(ONE, request, Err(Failure::Moving(TWO)));
        let (node, request, ..) = crew.sent();
        assert_eq!(node, TWO);
        crew.reply(TWO, request, Ok(Reply::Owner(true)));
        let pause = crew.machine.next_timeout().unwrap().since(crew.now);
        assert!(pause >= ms(100) && pause <= ms(140), "{pause:?}");
    }
    let (_, request, ..) = crew.next_sent();
    crew.reply(ONE, request, Ok(held.into()));
}

#[test]
fn several_locks_of_different_slots_are_not_taken_by_one_call() {
    let mut crew = Crew::new();
    let (names, ttl, label) = (vec![LOW.to_owned(), HIGH.to_owned()], ms(10_000), Arc::default());
    crew.command(OpId(2), Command::AcquireAll { names, ttl, label, hold: RENEWED });
    assert_eq!(crew.take(), [Effect::Complete { op: OpId(2), outcome: Outcome::OneByOne }]);
}

/// The outcome of the first connections, after these results; none if it is still open.
fn opened(results: [(NodeId, Option<Failure>); 2]) -> [Option<Outcome>; 2] {
    let mut crew = Crew::opening();
    results.map(|(node, failure)| {
        match failure {
            None => crew.connect(node),
            Some(failure) => crew.event(node, Event::ConnectFailed(failure)),
        }
        crew.take().into_iter().find_map(|effect| match effect {
            Effect::Complete { op: OpId(1), outcome } => Some(outcome),
            _ => None,
        })
    })
}

#[test]
fn a_manager_is_open_once_every_server_is_connected_or_has_failed_unless_all_have() {
    let lost = || Some(Failure::Lost("away".to_owned()));
    for (one, two) in [(ONE, TWO), (TWO, ONE)] {
        let done = [None, Some(Outcome::Done)];
        assert_eq!(opened([(one, None), (two, None)]), done);
        assert_eq!(opened([(one, None), (two, lost())]), done);
        assert_eq!(opened([(one, lost()), (two, None)]), done);
        let failed = Outcome::Connection("away".to_owned());
        assert_eq!(opened([(one, lost()), (two, lost())]), [None, Some(failed)]);
        // To be refused by one is to be refused by all.
        let refused = Refusal { code: "WRONGPASS".to_owned(), detail: String::new() };
        let refused_first = opened([(one, Some(refused.into())), (two, None)]);
        assert!(matches!(refused_first, [Some(Outcome::Server { .. }), _]), "{refused_first:?}");
    }
}

#[test]
fn the_second_server_is_given_up_as_well_if_it_is_silent() {
    let mut crew = Crew::new();
    crew.acquire(2, HIGH);
    assert_eq!(crew.sent().0, TWO);
    crew.pass(2_000);
    assert!(crew.take().contains(&Effect::Disconnect { node: TWO, abort: true }), "it is given up");
}

/// The error of the call time that an acquire names, in µs, after two readings of the server's clock, half a second
/// apart, each with the given delay.
fn call_time_error_us(delays_us: [u64; 2]) -> u64 {
    let mut crew = Crew::new();
    let began = crew.now;
    let time = |at: Mono| TIME.as_micros() + u64::try_from(at.since(began).as_micros()).unwrap();
    crew.acquire(2, LOW);
    let (_, request, ..) = crew.sent();
    for delay_us in delays_us {
        let time = ServerTime::from_micros(time(crew.now) + delay_us);
        let probe = ServerProbe { replication_id: Some(format!("of {ONE:?}")), time, uptime: None };
        crew.event(ONE, Event::Probed { probe, sent: crew.now });
        crew.pass(500);
    }
    crew.acquire(3, LOW);
    let came = time(crew.now);
    crew.pass(1);
    crew.take();
    crew.reply(ONE, request, Ok(Reply::Granted { fence: TIME.as_micros() + 1 }));
    let (.., call, _) = crew.sent();
    let Call::Acquire { intent: Intent::Join(Some(called)), .. } = call else { panic!("{call:?}") };
    called - came
}

#[test]
fn the_call_time_follows_the_clock_reading_with_the_least_delay() {
    assert_eq!(call_time_error_us([5_000, 1_000]), 1_000);
    // In half a second clocks run apart by 500 µs: the newer reading is preferred if it is as good but for that.
    assert_eq!(call_time_error_us([1_000, 1_500]), 1_500);
    assert_eq!(call_time_error_us([1_000, 1_501]), 1_000);
}

#[test]
fn a_release_moves_no_entry_that_waits_for_its_own_caller() {
    let mut crew = Crew::new();
    let lease = crew.hold(2, LOW);
    crew.acquire(3, LOW);
    let (_, request, ..) = crew.sent();
    let queued = Some(QueuePosition { position: 2, seq: 5 });
    let (holder, remaining) = ("hf1.c.1".to_owned(), Some(ms(9_000)));
    let held = HeldBy { remaining, holder, queued, time: TIME, ..HeldBy::default() };
    crew.reply(ONE, request, Ok(held.into()));
    crew.take();
    crew.command(OpId(4), Command::Release { lease, exported: true });
    let (.., call, _) = crew.sent();
    assert!(matches!(call, Call::Release { .. }), "and nothing else");
}

#[test]
fn a_manager_that_nobody_tells_the_routes_is_not_open() {
    let config = Crew::opening().machine.context.config.clone();
    let machine = Machine::new(config, 7);
    let mut crew = Crew { machine, now: Mono::from_micros(1_000_000), out: Vec::new() };
    crew.command(OpId(1), Command::Open);
    crew.take();
    crew.event(ONE, Event::Discovered(Err(Failure::Lost("away".to_owned()))));
    let outcome = Outcome::Connection("away".to_owned());
    assert_eq!(crew.take(), [Effect::Complete { op: OpId(1), outcome }, Effect::Stop]);
}

#[test]
fn a_request_that_waits_for_a_connection_goes_where_its_slot_is_now() {
    let mut crew = Crew::new();
    crew.event(ONE, Event::Disconnected("died".to_owned()));
    crew.acquire(2, LOW);
    crew.take();
    crew.event(ONE, Event::Discovered(Ok(Routes::new(&[(0, SLOTS - 1, TWO)]))));
    assert_eq!(crew.sent().0, TWO);
}

/// The channels that are listened to from now on, and those that are not any more.
fn listens(effects: &[Effect]) -> (usize, usize) {
    let count = |is: fn(&Effect) -> bool| effects.iter().filter(|effect| is(effect)).count();
    let on = count(|effect| matches!(effect, Effect::Listen { .. }));
    (on, count(|effect| matches!(effect, Effect::Unlisten { .. })))
}

#[test]
fn a_channel_is_listened_to_until_nobody_has_waited_for_half_a_minute() {
    let mut crew = Crew::new();
    let held = crew.enqueue();
    assert_eq!(listens(&crew.take()), (1, 0));
    let wait = |crew: &mut Crew, duration_ms: u64| {
        for _ in 0..duration_ms / 100 {
            let sent = std::mem::take(&mut crew.out);
            for effect in sent {
                match effect {
                    Effect::Send { node, request, call: Call::Acquire { .. }, .. } => {
                        crew.reply(node, request, Ok(held.clone().into()));
                    }
                    Effect::Send { node, request, .. } => {
                        crew.reply(node, request, Ok(Reply::Owner(false)));
                    }
                    other => crew.out.push(other),
                }
            }
            crew.pass(100);
        }
        let effects: Vec<_> = std::mem::take(&mut crew.out);
        let (sent, others): (Vec<_>, Vec<_>) =
            effects.into_iter().partition(|it| matches!(it, Effect::Send { .. }));
        crew.out = sent;
        listens(&others)
    };
    assert_eq!(wait(&mut crew, 40_000), (0, 0), "somebody waits");
    crew.command(OpId(2), Command::Cancel);
    // It is looked at every half a minute, and found unused first.
    assert_eq!(wait(&mut crew, 49_000), (0, 0));
    assert!(!crew.machine.is_idle(), "it listens");
    assert_eq!(wait(&mut crew, 2_000), (0, 1));
    assert!(crew.machine.is_idle(), "the unused channel is given up");
}

#[test]
fn the_channels_of_a_connection_that_is_gone_are_listened_to_anew() {
    let mut crew = Crew::new();
    let held = crew.enqueue();
    crew.acquire(3, HIGH);
    let (_, request, ..) = crew.sent();
    crew.reply(TWO, request, Ok(held.clone().into()));
    assert_eq!(listens(&crew.take()), (1, 0));
    crew.event(ONE, Event::Disconnected("cut".to_owned()));
    crew.take();
    crew.connect(ONE);
    let (node, request, ..) = crew.sent();
    crew.reply(node, request, Ok(held.into()));
    assert_eq!(listens(&crew.take()), (1, 0), "that of the first server");
}

/// 1. A holds, B waits, and the slot begins to move. All keys are still on the old server.
/// 2. A's release deletes the lock and takes B out of the queue. The deleted key counts as moved, so the script may
///    not write it again: it ends with an error.
/// 3. The lock is free, and B has no entry.
///
/// So the error counts as an unknown outcome that may have freed the lock. B learns from its next poll that it has no
/// entry, and enqueues again with its old number.
#[test]
fn a_release_that_was_stopped_halfway_is_finished_by_the_lock_alone_and_is_done() {
    let mut crew = Crew::new();
    let lease = crew.hold(2, LOW);
    crew.command(OpId(3), Command::Release { lease, exported: false });
    let (_, request, ..) = crew.sent();
    crew.reply(ONE, request, Err(Failure::Halfway));
    let (_, request, call, _) = crew.next_sent();
    assert!(matches!(call, Call::Free { .. }), "the release frees the lock alone: {call:?}");
    crew.reply(ONE, request, Ok(Reply::Owner(false)));
    assert_eq!(crew.take(), [Effect::Complete { op: OpId(3), outcome: Outcome::Done }]);
}

#[test]
fn a_queue_entry_is_given_up_once_all_keys_are_in_one_place_again() {
    let mut crew = Crew::new();
    crew.enqueue();
    crew.take();
    crew.command(OpId(2), Command::Cancel);
    let (_, request, call, _) = crew.sent();
    assert!(matches!(call, Call::Release { .. }), "the entry is given up by a release: {call:?}");
    crew.reply(ONE, request, refused("TRYAGAIN"));
    let (_, request, call, _) = crew.sent();
    assert!(matches!(call, Call::Free { .. }), "the lock alone is freed: {call:?}");
    // It is not asked again at once.
    crew.reply(ONE, request, refused("TRYAGAIN"));
    assert!(
        !crew.take().iter().any(|effect| matches!(effect, Effect::Send { .. })),
        "it is not asked again at once"
    );
    let (_, request, ..) = crew.next_sent();
    crew.reply(ONE, request, refused("TRYAGAIN"));
    let (_, request, call, _) = crew.sent();
    assert!(matches!(call, Call::Free { .. }), "the lock alone is freed once more: {call:?}");
    crew.reply(ONE, request, Ok(Reply::Owner(false)));
    let (_, _, call, _) = crew.next_sent();
    assert!(matches!(call, Call::Release { .. }), "it may be queued still");
}

#[test]
fn a_release_that_is_refused_tells_so_at_once_unless_time_mends_it() {
    for (code, at_once) in [("NOPERM", true), ("LOADING", false)] {
        let mut crew = Crew::new().by_scripts();
        let lease = crew.hold(2, LOW);
        crew.command(OpId(3), Command::Release { lease, exported: false });
        let (_, request, ..) = crew.sent();
        crew.reply(ONE, request, refused(code));
        let told = crew.take().iter().any(|effect| matches!(effect, Effect::Complete { .. }));
        assert_eq!(told, at_once, "{code}");
        let (_, _, call, _) = crew.next_sent();
        assert!(matches!(call, Call::Release { .. }), "and goes on");
    }
}

#[test]
fn a_renewal_that_a_moving_slot_refuses_is_asked_for_again_after_a_pause() {
    let mut crew = Crew::new();
    crew.hold(2, LOW);
    let (_, request, call, _) = crew.next_sent();
    assert!(matches!(call, Call::Renew { .. }), "the lease is renewed: {call:?}");
    crew.reply(ONE, request, refused("TRYAGAIN"));
    assert!(
        !crew.take().iter().any(|effect| matches!(effect, Effect::Send { .. })),
        "the renewal is not repeated at once"
    );
}
