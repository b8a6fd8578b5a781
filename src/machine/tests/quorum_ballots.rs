//! What the servers of a quorum answer, vote by vote, and what becomes of it.

use super::world::{COMMAND_TIMEOUT, ONE_LEASE, ms};
use crate::machine::{
    Command, Config, Denied, Effect, Event, LeaseId, NodeId, Notice, OpId, Outcome, Protocol,
    Quorum, RequestId, SendMode, ServerProbe, Settings, UnderWay, Wait,
};
use crate::protocol::message::free_channel;
use crate::protocol::{
    COUNTER_AHEAD_MAX, Call, Failure, HeldBy, LockKeys, Message, Mode, Mono, Refusal, Reply,
    ServerTime,
};
use std::sync::Arc;
use std::time::Duration;

const TIME: ServerTime = ServerTime::from_micros(1_700_000_000_000_000);
const OPEN: OpId = OpId(1);

/// A request that was sent to a server.
struct Asked {
    node: usize,
    request: RequestId,
    call: Call,
    send_mode: SendMode,
}

/// A manager of a quorum, whose servers are told what to answer.
struct Council {
    quorum: Quorum,
    count: usize,
    now: Mono,
    asked: Vec<Asked>,
    outcomes: Vec<(OpId, Outcome)>,
    notices: Vec<Notice>,
    /// Every other effect but deadlines.
    effects: Vec<Effect>,
}

fn refused(code: &str) -> Result<Reply, Failure> {
    Err(Failure::Refused(Refusal { code: code.to_owned(), detail: "because".to_owned() }))
}

#[expect(clippy::unnecessary_wraps, reason = "what a server answers")]
fn held_by(holder: &str) -> Result<Reply, Failure> {
    let (remaining, holder) = (Some(ms(60_000)), holder.to_owned());
    Ok(HeldBy { remaining, holder, ..HeldBy::default() }.into())
}

#[expect(clippy::unnecessary_wraps, reason = "what a server answers")]
fn owner(is: bool) -> Result<Reply, Failure> {
    Ok(Reply::Owner(is))
}

impl Council {
    /// Its connections are being made.
    fn opening(count: usize, node_timeout: Duration, longest_lease: Option<Duration>) -> Self {
        let config = Config {
            client: "c".to_owned(),
            started: Mono::NEVER,
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
        let servers = ["one", "two", "three", "four", "five"].map(str::to_owned);
        let servers = servers[..count].to_vec();
        let settings = Settings { servers, node_timeout, longest_lease };
        let mut council = Self {
            quorum: Quorum::new(config, settings, 7),
            count,
            now: Mono::from_micros(100_000_000),
            asked: Vec::new(),
            outcomes: Vec::new(),
            notices: Vec::new(),
            effects: Vec::new(),
        };
        council.command(OPEN, Command::Open);
        assert_eq!(council.connecting(), (0..count).collect::<Vec<_>>());
        council
    }

    fn of(count: usize) -> Self {
        Self::patient(count, ms(100))
    }

    fn patient(count: usize, node_timeout: Duration) -> Self {
        let mut council = Self::opening(count, node_timeout, None);
        (0..count).for_each(|node| council.connect(node));
        assert_eq!(council.outcome(OPEN), Some(Outcome::Done));
        council
    }

    fn input(&mut self, give: impl FnOnce(&mut Quorum, Mono, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        give(&mut self.quorum, self.now, &mut out);
        for effect in out {
            match effect {
                Effect::Complete { op, outcome } => self.outcomes.push((op, outcome)),
                Effect::Send { node, request, call, send_mode } => {
                    self.asked.push(Asked { node: node.0.into(), request, call, send_mode });
                }
                Effect::Notify(notices) => self.notices.push(notices),
                Effect::SetDeadline { .. } => {}
                other => self.effects.push(other),
            }
        }
    }

    fn command(&mut self, op: OpId, command: Command) {
        self.input(|quorum, now, out| quorum.handle_command(now, op, command, out));
    }

    fn event(&mut self, node: usize, event: Event) {
        let node = NodeId(u16::try_from(node).unwrap());
        self.input(|quorum, now, out| quorum.handle_event(now, node, event, out));
    }

    fn connect_as(&mut self, node: usize, replication_id: Option<&str>, uptime: Option<Duration>) {
        let probe =
            ServerProbe { replication_id: replication_id.map(str::to_owned), time: TIME, uptime };
        self.event(node, Event::Connected { probe, risks: Vec::new(), denied: Denied::default() });
    }

    fn connect(&mut self, node: usize) {
        self.connect_as(node, None, None);
    }

    fn fail(&mut self, node: usize) {
        self.event(node, Event::ConnectFailed(Failure::Lost("away".to_owned())));
    }

    fn cut(&mut self, node: usize) {
        self.event(node, Event::Disconnected("cut".to_owned()));
    }

    /// Lets time pass, timers included.
    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(at) = self.quorum.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.input(Quorum::handle_timeout);
        }
        self.now = end;
    }

    /// The servers that connections are made to.
    fn connecting(&mut self) -> Vec<usize> {
        let connects = self.effects.iter().filter_map(|effect| match effect {
            Effect::Connect { node } => Some(usize::from(node.0)),
            _ => None,
        });
        let connects = connects.collect();
        self.effects.retain(|effect| !matches!(effect, Effect::Connect { .. }));
        connects
    }

    fn outcome(&mut self, op: OpId) -> Option<Outcome> {
        let place = self.outcomes.iter().position(|(other, _)| *other == op)?;
        Some(self.outcomes.remove(place).1)
    }

    /// A server answers the oldest request that it has not answered.
    fn answer(&mut self, node: usize, reply: Result<Reply, Failure>) -> Call {
        let place = self.asked.iter().position(|asked| asked.node == node).unwrap();
        let Asked { request, call, .. } = self.asked.remove(place);
        let name = NodeId(u16::try_from(node).unwrap());
        self.input(|quorum, now, out| quorum.handle_reply(now, name, request, reply, out));
        call
    }

    /// The first servers answer like this.
    fn answer_each<const N: usize>(&mut self, replies: [Result<Reply, Failure>; N]) {
        for (node, reply) in replies.into_iter().enumerate() {
            self.answer(node, reply);
        }
    }

    fn acquire(&mut self, op: OpId, ttl_ms: u64, wait: Wait) {
        let (name, label) = ("a".to_owned(), Arc::default());
        let (ttl, hold, mode) = (ms(ttl_ms), ONE_LEASE, Mode::Exclusive);
        self.command(op, Command::Acquire { name, ttl, wait, label, hold, mode });
    }

    /// Nobody has the lock, and everybody votes; the fences that the servers were asked to accept.
    fn vote_and_write(&mut self) -> Vec<(u64, u64)> {
        let voted = || Ok(Reply::Voted { counter: 0, time: TIME, written: false });
        (0..self.count).for_each(|node| drop(self.answer(node, voted())));
        let writes = (0..self.count).map(|node| match self.answer(node, owner(true)) {
            Call::WriteFence { first, last, .. } => (first, last),
            call => panic!("{call:?}"),
        });
        writes.collect()
    }

    fn held(&mut self) -> LeaseId {
        self.acquire(OpId(2), 60_000, Wait::Never);
        self.vote_and_write();
        self.lease(OpId(2))
    }

    fn lease(&mut self, op: OpId) -> LeaseId {
        match self.outcome(op) {
            Some(Outcome::Acquired { lease, .. }) => lease,
            other => panic!("{other:?}"),
        }
    }

    /// A lock is held on so many servers, and is being released.
    fn releasing(count: usize) -> Self {
        let mut council = Self::of(count);
        let lease = council.held();
        council.command(OpId(3), Command::Release { lease, exported: false });
        council
    }

    /// A lock is held on so many servers, and is being extended.
    fn extending(count: usize) -> Self {
        let mut council = Self::of(count);
        let lease = council.held();
        council.command(OpId(3), Command::Extend { lease, ttl: None });
        council
    }

    /// What becomes of a try that the servers answer like this.
    fn tried<const N: usize>(replies: [Result<Reply, Failure>; N]) -> Option<Outcome> {
        let mut council = Self::of(N);
        council.acquire(OpId(2), 60_000, Wait::Never);
        council.answer_each(replies);
        council.outcome(OpId(2))
    }

    /// Everything that is asked until then is answered like this, withdrawals with yes; when votes were asked for.
    fn refuse_for(&mut self, duration_ms: u64, reply: &Result<Reply, Failure>) -> Vec<Mono> {
        let mut rounds = Vec::new();
        for _ in 0..duration_ms {
            while let Some(Asked { node, call, .. }) = self.asked.first() {
                let is_vote = matches!(call, Call::Vote { .. });
                if *node == 0 && is_vote {
                    rounds.push(self.now);
                }
                let node = *node;
                self.answer(node, if is_vote { reply.clone() } else { owner(true) });
            }
            self.pass(ms(1));
        }
        rounds
    }
}

#[test]
fn a_quorum_is_open_once_a_majority_is_connected_and_the_others_have_had_a_moment() {
    let mut council = Council::opening(3, ms(100), None);
    council.connect(0);
    assert_eq!(council.outcome(OPEN), None);
    council.connect(1);
    council.pass(ms(99));
    assert_eq!(council.outcome(OPEN), None);
    council.pass(ms(1));
    assert_eq!(council.outcome(OPEN), Some(Outcome::Done));

    let mut council = Council::opening(3, ms(100), None);
    council.connect(0);
    council.connect(1);
    council.fail(2);
    assert_eq!(council.outcome(OPEN), Some(Outcome::Done), "nobody else can come");
    council.pass(ms(1_000));
    assert!(council.connecting().contains(&2), "it is tried again");
}

#[test]
fn a_quorum_is_not_open_once_no_majority_can_be_connected() {
    for (count, failures) in [(3, 2), (4, 2), (5, 3)] {
        let mut council = Council::opening(count, ms(100), None);
        for node in 1..failures {
            council.fail(node);
            assert_eq!(council.outcome(OPEN), None, "{node} of {count}");
        }
        council.fail(0);
        let cause = |node: usize| if node < failures { "not connected: away" } else { "" };
        let causes = (0..count).map(|node| cause(node).to_owned()).collect();
        assert_eq!(council.outcome(OPEN), Some(Outcome::Quorum(causes)));
        assert!(council.effects.contains(&Effect::Stop), "the quorum that cannot open stops");
    }
}

#[test]
fn a_server_that_stays_away_is_tried_ever_more_seldom() {
    let mut council = Council::opening(3, ms(100), None);
    council.connect(0);
    council.connect(1);
    for attempt in 0..20 {
        council.fail(2);
        let began = council.now;
        while council.connecting().is_empty() {
            council.pass(ms(1));
        }
        let most_ms = (50 << attempt.min(5)).min(1_000);
        let pause = council.now.since(began);
        assert!((ms(most_ms / 2)..=ms(most_ms + 1)).contains(&pause), "{attempt}: {pause:?}");
    }
}

#[test]
fn a_connection_that_answers_and_dies_at_once_is_not_made_anew_at_once() {
    for (answers_after, at_once) in [(ms(20), true), (ms(19), false)] {
        let mut council = Council::of(3);
        council.cut(0);
        assert_eq!(council.connecting(), [0], "the first time");
        council.connect(0);
        council.acquire(OpId(2), 60_000, Wait::Never);
        council.pass(answers_after);
        council.answer(0, held_by("hf1.d.1.1"));
        council.cut(0);
        assert_eq!(!council.connecting().is_empty(), at_once);
    }
}

#[test]
fn two_names_of_one_server_are_reported() {
    let mut council = Council::opening(3, ms(100), None);
    council.connect_as(0, Some("same"), None);
    council.connect_as(1, Some("other"), None);
    assert_eq!(council.notices, []);
    council.connect_as(2, Some("same"), None);
    assert_eq!(council.notices, [Notice::SameServer("one and three".to_owned())]);
}

#[test]
fn a_server_that_is_gone_is_named() {
    let mut council = Council::of(3);
    council.cut(1);
    assert_eq!(council.notices, [Notice::Disconnected("two: cut".to_owned())]);
}

#[test]
fn a_quorum_warns_if_most_servers_deny_pubsub() {
    let mut council = Council::of(3);
    council.event(0, Event::PubsubDenied("NOPERM".to_owned()));
    assert_eq!(council.notices, []);
    council.event(2, Event::PubsubDenied("NOPERM".to_owned()));
    assert_eq!(council.notices, [Notice::PubsubDenied("NOPERM".to_owned())]);
}

#[test]
fn a_quorum_ends_once_its_last_withdrawals_are_answered_or_have_had_a_moment() {
    for answers in [true, false] {
        let mut council = Council::of(3);
        council.held();
        council.command(OpId(4), Command::Close);
        council.answer_each([owner(true), owner(true)]);
        council.pass(ms(99));
        assert_eq!(council.outcome(OpId(4)), None);
        assert_eq!(council.effects, []);
        if answers {
            council.answer(2, owner(true));
        } else {
            council.pass(ms(1));
        }
        assert_eq!(council.outcome(OpId(4)), Some(Outcome::Done));
        let goodbye = |node| Effect::Disconnect { node: NodeId(node), abort: false };
        assert_eq!(council.effects, [goodbye(0), goodbye(1), goodbye(2), Effect::Stop]);
    }
}

#[test]
fn a_refusal_of_most_servers_is_the_outcome_and_else_the_vote() {
    let (held, busy) = (|| held_by("hf1.d.1.1"), || refused("LOADING"));
    let yes = || Ok(Reply::Voted { counter: 0, time: TIME, written: false });
    let outcome = Council::tried([refused("NOPERM"), yes(), refused("NOPERM")]);
    assert!(matches!(outcome, Some(Outcome::Server { .. })), "{outcome:?}");
    assert_eq!(Council::tried([refused("NOPERM"), held(), held()]), Some(Outcome::Held));
    let Some(Outcome::Quorum(causes)) = Council::tried([busy(), yes(), busy()]) else {
        panic!("time mends that");
    };
    assert!(causes[0].contains("LOADING") && causes[1].is_empty(), "{causes:?}");
    assert_eq!(causes[0], causes[2]);
}

#[test]
fn a_candidate_that_cannot_win_asks_for_no_votes() {
    for (count, away, votes) in [(3, 1, 2), (3, 2, 0), (4, 2, 0), (5, 2, 3), (5, 3, 0)] {
        let mut council = Council::of(count);
        (0..away).for_each(|node| council.cut(node));
        council.acquire(OpId(2), 60_000, Wait::Never);
        assert_eq!(council.asked.len(), votes, "{away} of {count} are away");
        let causes = (0..count).map(|node| if node < away { "cut" } else { "" }.to_owned());
        let causes = (votes == 0).then(|| Outcome::Quorum(causes.collect()));
        assert_eq!(council.outcome(OpId(2)), causes);
    }
}

#[test]
fn the_patience_with_a_server_is_bounded_by_lease_and_command_timeout() {
    for (node_timeout_ms, ttl_ms, patience_ms) in
        [(100, 60_000, 100), (100, 500, 50), (2_000, 60_000, 500)]
    {
        let ended = |mut council: Council| {
            council.pass(ms(patience_ms - 1));
            assert_eq!(council.outcome(OpId(2)), None);
            council.pass(ms(1));
            council.outcome(OpId(2))
        };
        let standing = || {
            let mut council = Council::patient(3, ms(node_timeout_ms));
            council.acquire(OpId(2), ttl_ms, Wait::Never);
            council
        };
        let why = |ms| format!("no answer within {ms} ms");
        let silent = Some(Outcome::Quorum(vec![why(node_timeout_ms); 3]));
        assert_eq!(ended(standing()), silent);
        if ttl_ms > 500 {
            let mut council = standing();
            let yes = || Ok(Reply::Voted { counter: 0, time: TIME, written: false });
            council.answer_each([yes(), yes(), yes()]);
            assert_eq!(ended(council), silent, "the second round has as long");
        }
    }
}

#[test]
fn a_grant_for_one_reserves_one_fence_and_only_who_waits_marks_the_holder() {
    for (wait, marks) in [(Wait::Never, false), (Wait::Forever, true)] {
        let mut council = Council::of(3);
        council.acquire(OpId(2), 60_000, wait);
        let mark = |asked: &Asked| matches!(asked.call, Call::Vote { mark, .. } if mark == marks);
        assert!(council.asked.iter().all(mark), "only who waits marks the holder");
        let fence = TIME.as_micros();
        assert_eq!(council.vote_and_write(), [(fence, fence); 3]);
    }
}

#[test]
fn the_requests_to_each_server_count() {
    let mut council = Council::of(3);
    let before = council.quorum.stats().requests;
    council.held();
    let stats = council.quorum.stats();
    assert_eq!((stats.requests - before, stats.held, stats.acquired), (6, 1, 1));
}

#[test]
fn an_acquire_is_under_way_until_its_ballot_is_decided() {
    let mut council = Council::of(3);
    council.acquire(OpId(2), 60_000, Wait::Never);
    let asks = UnderWay::Acquire(OpId(2));
    assert_eq!(council.quorum.under_way(), [asks]);
    assert!(council.quorum.is_under_way(asks), "nobody has answered");
    council.vote_and_write();
    assert!(!council.quorum.is_under_way(asks), "it has the lock");
}

#[test]
fn a_release_is_decided_by_those_who_answer_once_there_are_enough() {
    let outcome = |council: &mut Council| council.outcome(OpId(3));
    // Who says no may never have got a copy: that the others freed it counts.
    let mut council = Council::releasing(3);
    council.answer_each([owner(true), owner(false)]);
    council.pass(ms(99));
    assert_eq!(outcome(&mut council), None, "the third may answer yet");
    council.pass(ms(1));
    assert_eq!(outcome(&mut council), Some(Outcome::Done));

    let mut council = Council::releasing(3);
    council.answer_each([owner(true), owner(false), refused("LOADING")]);
    assert_eq!(outcome(&mut council), Some(Outcome::Done));

    let mut council = Council::releasing(3);
    council.answer(0, owner(true));
    council.pass(ms(100));
    assert_eq!(outcome(&mut council), None, "one is too few");
    council.answer(1, owner(true));
    assert_eq!(outcome(&mut council), Some(Outcome::Done));
}

#[test]
fn a_release_that_a_majority_denies_came_too_late() {
    let mut council = Council::releasing(3);
    council.answer_each([owner(false), owner(false)]);
    assert_eq!(council.outcome(OpId(3)), Some(Outcome::Lost));

    let mut council = Council::releasing(5);
    council.answer_each([owner(false), owner(false)]);
    assert_eq!(council.outcome(OpId(3)), None, "two of five are none");
    (2..5).for_each(|node| drop(council.answer(node, owner(true))));
    assert_eq!(council.outcome(OpId(3)), Some(Outcome::Done));
}

#[test]
fn an_extension_is_lost_if_a_majority_denies_it_and_not_before() {
    let mut council = Council::extending(3);
    council.answer_each([owner(false), owner(false)]);
    assert_eq!(council.outcome(OpId(3)), Some(Outcome::Lost));

    let mut council = Council::extending(5);
    let busy = || refused("LOADING");
    council.answer_each([owner(false), owner(false), busy(), busy(), busy()]);
    assert_eq!(council.outcome(OpId(3)), None, "it is asked again");
}

/// 1. The servers have lost the lock. One denies an extension, and the connection to another breaks.
/// 2. If the ballot were over now, the next would begin at once, press for new connections, lose its votes with the old
///    ones, and so on for as long as the lease lasts.
/// 3. The third server denies it, too: the lease ends.
#[test]
fn an_extension_waits_for_the_vote_that_may_deny_it() {
    let mut council = Council::extending(3);
    council.cut(1);
    council.answer(0, owner(false));
    council.pass(ms(20));
    let is_asked = |node| council.asked.iter().any(|asked| asked.node == node);
    assert!(!is_asked(0) && is_asked(2), "no other ballot begins");
    council.answer(2, owner(false));
    assert_eq!(council.outcome(OpId(3)), Some(Outcome::Lost));
}

#[test]
fn the_holder_on_most_servers_is_reported_without_its_attempt() {
    // Of five servers three make it certain.
    let told = |holders: [&str; 3]| {
        let mut council = Council::of(5);
        council.acquire(OpId(2), 60_000, Wait::UpTo(ms(50)));
        council.answer_each(holders.map(held_by));
        council.pass(ms(50));
        match council.outcome(OpId(2)) {
            Some(Outcome::TimedOut { holder, .. }) => holder,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(["hf1.d.1.7", "hf1.e.1.9", "hf1.e.1.9"]), "hf1.e.1");
    assert_eq!(told(["hf1.e.1.9", "hf1.e.1.9", "hf1.d.1.7"]), "hf1.e.1");
    // What is no token of an attempt is told as it is.
    for holder in ["old.12", "hf1.d.x", "hf1.d."] {
        assert_eq!(told([holder; 3]), holder);
    }
}

#[test]
fn a_waiter_asks_ever_more_seldom_while_messages_would_tell_it_that_the_lock_is_free() {
    let pauses = |holder: &str| {
        let mut council = Council::of(3);
        council.acquire(OpId(2), 60_000, Wait::Forever);
        let rounds = council.refuse_for(20_000, &held_by(holder));
        let pauses = rounds.windows(2).map(|pair| pair[1].since(pair[0]));
        pauses.collect::<Vec<_>>()
    };
    let told = pauses("hf1.d.1.7");
    for (round, pause) in told.iter().enumerate() {
        let doubled = 1 << round.min(4);
        assert!((ms(10 * doubled)..=ms(40 * doubled + 1)).contains(pause), "{round}: {pause:?}");
    }
    assert!(told.len() > 30, "the waiter asks on, with {} pauses", told.len());
    let untold = pauses("old code");
    assert!(untold[1..].iter().all(|pause| (ms(20)..=ms(81)).contains(pause)), "{untold:?}");
}

#[test]
fn a_waiter_asks_again_when_the_lease_of_the_holder_ends() {
    let mut council = Council::of(3);
    council.acquire(OpId(2), 60_000, Wait::Forever);
    council.refuse_for(5_000, &held_by("hf1.d.1.7"));
    let (remaining, holder) = (Some(ms(100)), "hf1.d.1.7".to_owned());
    let soon = Ok(HeldBy { remaining, holder, ..HeldBy::default() }.into());
    let rounds = council.refuse_for(5_000, &soon);
    let mut pauses = rounds.windows(2).map(|pair| pair[1].since(pair[0]));
    assert!(pauses.all(|pause| (ms(100)..=ms(111)).contains(&pause)), "each ends with the lease");
    assert!(rounds.len() > 30, "the waiter asks on");
}

#[test]
fn a_waiter_asks_at_once_when_the_lock_may_be_free() {
    let mut council = Council::of(3);
    council.acquire(OpId(2), 60_000, Wait::Forever);
    let keys = LockKeys::new("lock:", "a");
    let freed = Event::Message(Message::Freed(keys.clone()));
    // While nobody listened a message may have been missed.
    let listening = Event::Listening { channel: free_channel(&keys), on: true };
    for event in [freed, listening].into_iter().cycle().take(10) {
        council.refuse_for(3_000, &held_by("hf1.d.1.7"));
        council.event(1, event);
        let rounds = council.refuse_for(12, &held_by("hf1.d.1.7"));
        assert!(!rounds.is_empty(), "it asks before its pause is over");
    }
}

/// Takes the requests that were sent to each server, in their order.
fn asked_of_each(council: &mut Council) -> Vec<Vec<&'static str>> {
    let asked = std::mem::take(&mut council.asked);
    let of = |node: usize| {
        let of_node = asked.iter().filter(move |asked| asked.node == node);
        of_node.map(|asked| match asked.call {
            Call::Vote { .. } => "vote",
            Call::Withdraw { .. } => "withdraw",
            _ => "other",
        })
    };
    (0..council.count).map(|node| of(node).collect()).collect()
}

/// The lock is held by the first of two callers.
fn queue_of_two() -> (Council, LeaseId) {
    let mut council = Council::of(3);
    for op in [2, 3] {
        council.acquire(OpId(op), 60_000, Wait::Forever);
    }
    council.vote_and_write();
    let lease = council.lease(OpId(2));
    (council, lease)
}

#[test]
fn the_next_caller_of_a_process_asks_right_behind_a_release() {
    let (mut council, lease) = queue_of_two();
    council.pass(ms(9));
    assert_eq!(asked_of_each(&mut council), [[""; 0]; 3], "the lock is held here");
    council.command(OpId(5), Command::Release { lease, exported: false });
    assert_eq!(asked_of_each(&mut council), [["withdraw", "vote"]; 3]);
}

#[test]
fn a_process_asks_as_others_do_at_the_end_of_its_turn_until_its_next_grant() {
    let (mut council, lease) = queue_of_two();
    council.refuse_for(50, &held_by("hf1.c.1"));
    council.command(OpId(5), Command::Release { lease, exported: false });
    assert_eq!(asked_of_each(&mut council), [["withdraw"]; 3]);
    council.pass(ms(10));
    assert!(council.asked.iter().all(|asked| matches!(asked.call, Call::Vote { .. })));
    council.acquire(OpId(4), 60_000, Wait::Forever);
    council.vote_and_write();
    let lease = council.lease(OpId(3));
    council.command(OpId(6), Command::Release { lease, exported: false });
    assert_eq!(asked_of_each(&mut council), [["withdraw", "vote"]; 3]);
}

#[test]
fn the_next_caller_asks_again_if_its_question_is_open_at_the_release() {
    let (mut council, lease) = queue_of_two();
    council.pass(ms(40));
    assert_eq!(council.asked.len(), 3, "the lock may have been lost");
    council.command(OpId(5), Command::Release { lease, exported: false });
    council.answer_each([held_by("hf1.c.1"), held_by("hf1.c.1"), held_by("hf1.c.1")]);
    council.asked.clear();
    council.pass(ms(10));
    assert_eq!(asked_of_each(&mut council), [["vote"]; 3]);
}

#[test]
fn a_channel_is_listened_to_until_nobody_has_waited_for_half_a_minute() {
    let mut council = Council::of(3);
    let listens = |council: &mut Council| {
        let effects = std::mem::take(&mut council.effects);
        let count = |is: fn(&Effect) -> bool| effects.iter().filter(|effect| is(effect)).count();
        let on = count(|effect| matches!(effect, Effect::Listen { .. }));
        (on, count(|effect| matches!(effect, Effect::Unlisten { .. })))
    };
    council.acquire(OpId(2), 60_000, Wait::Forever);
    council.refuse_for(40_000, &held_by("hf1.d.1.7"));
    assert_eq!(listens(&mut council), (3, 0));
    council.cut(2);
    council.effects.clear();
    council.connect(2);
    assert_eq!(listens(&mut council), (1, 0), "a new connection listens as well");
    council.command(OpId(2), Command::Cancel);
    // It is looked at every half a minute, and found unused first.
    council.refuse_for(49_000, &held_by("hf1.d.1.7"));
    assert_eq!(listens(&mut council), (0, 0));
    council.refuse_for(2_000, &held_by("hf1.d.1.7"));
    assert_eq!(listens(&mut council), (0, 3));
    assert!(council.quorum.is_idle(), "nobody listens any more");
}

#[test]
fn a_server_that_is_silent_is_not_asked_for_its_vote() {
    for (silent_ms, votes) in [(100, 3), (101, 2)] {
        let mut council = Council::of(3);
        let lease = council.held();
        council.command(OpId(3), Command::Extend { lease, ttl: None });
        (1..3).for_each(|node| drop(council.answer(node, owner(true))));
        council.pass(ms(silent_ms));
        council.asked.clear();
        let (name, label) = ("b".to_owned(), Arc::default());
        let (ttl, wait, mode) = (ms(60_000), Wait::Never, Mode::Exclusive);
        let hold = ONE_LEASE;
        council.command(OpId(4), Command::Acquire { name, ttl, wait, label, hold, mode });
        assert_eq!(council.asked.len(), votes, "after {silent_ms} ms");
    }
}

#[test]
fn a_server_that_may_have_forgotten_votes_once_the_longest_lease_is_over() {
    let mut council = Council::opening(3, ms(100), Some(ms(4_000)));
    (0..3).for_each(|node| council.connect_as(node, None, Some(ms(4_500))));
    council.pass(ms(500));
    council.acquire(OpId(2), 1_000, Wait::Never);
    assert!(matches!(council.outcome(OpId(2)), Some(Outcome::Quorum(_))), "a lease may last still");
    council.pass(ms(1));
    council.acquire(OpId(3), 1_000, Wait::Never);
    assert_eq!(council.asked.len(), 3, "a second more than the lease has passed");
}

#[test]
fn a_script_that_a_server_does_not_know_is_sent_unless_its_attempt_was_given_up() {
    let mut council = Council::of(3);
    council.acquire(OpId(2), 60_000, Wait::Forever);
    council.answer(0, Err(Failure::NoScript));
    let again = council.asked.pop().unwrap();
    assert!(again.node == 0 && again.send_mode == SendMode::WithSource, "the script is sent whole");
    assert!(matches!(again.call, Call::Vote { .. }), "the vote is asked for: {:?}", again.call);

    let mut council = Council::of(3);
    council.acquire(OpId(2), 60_000, Wait::Never);
    council.answer(1, held_by("hf1.d.1.7"));
    council.answer(2, held_by("hf1.d.1.7"));
    assert_eq!(council.outcome(OpId(2)), Some(Outcome::Held));
    council.answer(0, Err(Failure::NoScript));
    let votes = council.asked.iter().filter(|asked| matches!(asked.call, Call::Vote { .. }));
    assert_eq!(votes.count(), 0, "its withdrawal went ahead");
}

#[test]
fn a_server_that_votes_during_the_second_round_is_asked_to_accept_the_fence_as_well() {
    let mut council = Council::of(3);
    council.acquire(OpId(2), 60_000, Wait::Never);
    let yes = || Ok(Reply::Voted { counter: 0, time: TIME, written: false });
    council.answer_each([yes(), yes(), yes()]);
    council.answer_each([owner(false), owner(true), owner(true)]);
    assert!(
        matches!(council.outcome(OpId(2)), Some(Outcome::Acquired { .. })),
        "the late acceptance completes the majority"
    );
}

#[test]
fn a_server_that_denies_an_extension_after_the_majority_gets_the_lock_back() {
    for late in [false, true] {
        let mut council = Council::extending(3);
        let mut replies = [owner(false), owner(true), owner(true)];
        replies.rotate_left(usize::from(late));
        let nodes = if late { [1, 2, 0] } else { [0, 1, 2] };
        for (node, reply) in nodes.into_iter().zip(replies) {
            council.answer(node, reply);
        }
        assert_eq!(council.outcome(OpId(3)), Some(Outcome::Done));
        let copies =
            council.asked.iter().filter(|asked| matches!(asked.call, Call::CopyLock { .. }));
        assert_eq!(copies.map(|asked| asked.node).collect::<Vec<_>>(), [0]);
    }
}

#[test]
fn a_withdrawal_is_owed_to_a_server_that_is_away_and_repeated_once() {
    let mut council = Council::of(3);
    let lease = council.held();
    council.cut(0);
    council.command(OpId(3), Command::Release { lease, exported: false });
    (1..3).for_each(|node| drop(council.answer(node, owner(true))));
    assert_eq!(council.outcome(OpId(3)), Some(Outcome::Done));
    assert!(!council.quorum.is_idle(), "it owes a withdrawal");
    council.connect(0);
    for pause in [ms(0), ms(1_000)] {
        council.pass(pause);
        assert!(
            matches!(council.answer(0, owner(false)), Call::Withdraw { .. }),
            "the server gets its withdrawal"
        );
    }
    assert!(council.quorum.is_idle(), "no withdrawal is owed any more");
}

#[test]
fn each_attempt_of_a_token_has_a_number_above_those_before() {
    let mut council = Council::of(3);
    council.acquire(OpId(2), 60_000, Wait::Forever);
    let mut attempts = Vec::new();
    for _ in 0..500 {
        while let Some(Asked { node, call, .. }) = council.asked.first() {
            let (node, is_vote) = (*node, matches!(call, Call::Vote { .. }));
            let reply = if is_vote { held_by("hf1.d.1.7") } else { owner(true) };
            let call = council.answer(node, reply);
            if let (0, Call::Vote { attempt, .. }) = (node, call) {
                attempts.push(attempt);
            }
        }
        council.pass(ms(1));
    }
    assert!(attempts.len() > 3 && attempts.is_sorted_by(|a, b| a < b), "{attempts:?}");
}

#[test]
fn a_server_that_stays_silent_is_given_up() {
    let mut council = Council::extending(3);
    (1..3).for_each(|node| drop(council.answer(node, owner(true))));
    let given_up = Effect::Disconnect { node: NodeId(0), abort: true };
    council.pass(COMMAND_TIMEOUT.mul_f64(0.99));
    assert!(!council.effects.contains(&given_up), "the silent server has its time");
    council.pass(COMMAND_TIMEOUT.mul_f64(0.01));
    assert!(council.effects.contains(&given_up), "the silent server is given up");
}

#[test]
fn fences_that_a_majority_accepts_with_its_votes_need_no_second_round() {
    for accepts in [true, false] {
        let mut council = Council::of(3);
        council.acquire(OpId(2), 60_000, Wait::Never);
        let Call::Vote { fences: (first, last), .. } = council.asked[0].call else { panic!() };
        assert!(first > TIME.as_micros() && last >= first, "fences follow the clock: {first}");
        let voted = |written: bool| {
            let counter = if written { last } else { 0 };
            Ok(Reply::Voted { counter, time: TIME, written })
        };
        council.answer_each([voted(true), voted(true)]);
        let outcome = council.outcome(OpId(2));
        assert!(
            matches!(outcome, Some(Outcome::Acquired { fence, .. }) if fence == first),
            "the first of the accepted fences is used: {outcome:?}"
        );
        council.answer(2, voted(accepts));
        let writes = council.asked.iter().map(|asked| &asked.call);
        let writes =
            writes.filter(|call| matches!(call, Call::WriteFence { first, .. } if *first == last));
        assert_eq!(writes.count(), usize::from(!accepts), "who votes late gets the fence");
    }
}

#[test]
fn fences_that_a_minority_accepts_are_not_used() {
    let mut council = Council::of(3);
    council.acquire(OpId(2), 60_000, Wait::Never);
    let Call::Vote { fences: (_, last), .. } = council.asked[0].call else { panic!() };
    let voted = |counter, written| Ok(Reply::Voted { counter, time: TIME, written });
    council.answer_each([voted(last, true), voted(last + 7, false)]);
    assert_eq!(council.outcome(OpId(2)), None);
    let asked = council.asked.iter().filter(|asked| asked.node != 2).map(|asked| &asked.call);
    for call in asked {
        assert!(matches!(call, Call::WriteFence { first, .. } if *first == last + 8), "{call:?}");
    }
}

#[test]
fn a_server_whose_clock_is_a_year_ahead_of_the_others_has_no_vote_until_it_is_set() {
    let mut council = Council::of(3);
    let vote = |time_us| {
        let time = ServerTime::from_micros(time_us);
        Ok(Reply::Voted { counter: 0, time, written: false })
    };
    let right_us = TIME.as_micros();
    let ahead_us = right_us + u64::try_from(COUNTER_AHEAD_MAX.as_micros()).unwrap() + 1;
    council.acquire(OpId(2), 60_000, Wait::Never);
    council.answer_each([vote(ahead_us), vote(right_us), vote(right_us)]);
    for node in [1, 2] {
        let Call::WriteFence { first, .. } = council.answer(node, owner(true)) else {
            panic!("no fence is written")
        };
        assert_eq!(first, right_us, "the fence follows the clocks of most");
    }
    let Some(Outcome::Acquired { lease, .. }) = council.outcome(OpId(2)) else { panic!("no lock") };
    council.command(OpId(3), Command::Release { lease, exported: false });
    let withdrawn = |asked: &Asked| matches!(asked.call, Call::Withdraw { .. });
    assert_eq!(council.asked.iter().filter(|asked| withdrawn(asked)).count(), 3);
    council.answer_each([owner(true), owner(true), owner(true)]);

    council.acquire(OpId(4), 60_000, Wait::Never);
    let Some(Asked { call: Call::Vote { fences: (first, _), .. }, .. }) = council.asked.first()
    else {
        panic!("no vote")
    };
    assert!((right_us..ahead_us).contains(first), "so does the proposal");
    council.answer_each([vote(right_us), vote(right_us)]);
    for node in [0, 1] {
        assert!(
            matches!(council.answer(node, owner(true)), Call::WriteFence { .. }),
            "the fence is written"
        );
    }
    assert!(
        matches!(council.outcome(OpId(4)), Some(Outcome::Acquired { .. })),
        "the server votes again once its clock is set"
    );
}
