//! A state whose turns a test runs by itself: when the keeper is needed, and which events count.

use super::{LOOK_AFTER, LOOK_IDLE_AFTER, Peer, SLEEP_MAX, SOON, STAND_IN_AFTER, State, Thread};
use crate::core::inputs::{Input, Mail, Submission};
use crate::core::shared::Shared;
use crate::core::tests::{HANG, config, hold};
use crate::core::ticket::Caller;
use crate::core::watch::{ReadSocket, Readable, Reader, Watch};
use crate::keeper;
use crate::machine::{Command, LeaseId, LossReason, NodeId, Notice, OpId, Outcome, Wait};
use crate::protocol::{Mode, Mono};
use crate::server::scripted::Scripted;
use crate::server::{Incoming, Link, Socket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NODE: NodeId = NodeId(0);

/// Records what it is told.
#[derive(Default)]
struct Recorder {
    outcomes: Mutex<Vec<(OpId, Outcome)>>,
    notices: Mutex<Vec<Notice>>,
    watches: Mutex<usize>,
}

impl Caller for Recorder {
    fn complete(&self, op: OpId, outcome: Outcome) {
        self.outcomes.lock().unwrap().push((op, outcome));
    }
    fn lose(&self, _: LeaseId, _: LossReason) {}
    fn tell(&self, notice: Notice) {
        self.notices.lock().unwrap().push(notice);
    }
    fn ping(&self) {}
    fn last_turn(&self) -> Mono {
        Mono::now()
    }
    fn wake(&self) {}
    fn watch(&self, _: Watch) {
        *self.watches.lock().unwrap() += 1;
    }
}

/// Reads nothing: the test does.
struct NoReader;

impl ReadSocket for NoReader {
    fn read(&self, _: NodeId, _: &Arc<Socket>, _: bool) -> Readable {
        Readable { reported: false, over: true }
    }
    fn wake(&self) {}
}

struct Bench {
    state: State,
    caller: Arc<Recorder>,
    mail: Arc<Mail>,
    shared: Arc<Shared>,
    _reader: Arc<dyn ReadSocket>,
}

fn server() -> Scripted {
    keeper::runtime().unwrap().block_on(Scripted::with_locks())
}

impl Bench {
    fn new(server: &Scripted, reader: Reader, client: &str) -> Self {
        let (caller, mail) = (Arc::new(Recorder::default()), Arc::new(Mail::new()));
        let shared = Arc::new(Shared::default());
        let mut config = config(client.to_owned());
        (config.secret, config.prefix) = (format!("secret of {client}"), "lock:".to_owned());
        let endpoint = server.endpoint();
        let read_by = (reader, keeper::runtime().unwrap(), endpoint.address.clock());
        let socket_reader: Arc<dyn ReadSocket> = Arc::new(NoReader);
        let ends = (Arc::clone(&caller) as Arc<dyn Caller>, Arc::clone(&shared), Arc::clone(&mail));
        let state = State::new((config, endpoint), read_by, Arc::downgrade(&socket_reader), ends);
        Self { state, caller, mail, shared, _reader: socket_reader }
    }

    /// Connected, with nothing under way; its reader waits for the socket.
    fn open(server: &Scripted, reader: Reader, client: &str) -> Self {
        let mut bench = Self::new(server, reader, client);
        bench.begin(1, Command::Open);
        assert_eq!(bench.outcome(1), Outcome::Done);
        bench.wait_for_socket();
        bench.until(|bench| !bench.link().expects());
        bench
    }

    fn turn(&mut self, thread: Thread, run: impl FnOnce(&mut State, Mono)) -> (Mono, Option<Mono>) {
        let now = Mono::now();
        run(&mut self.state, now);
        (now, self.state.finish_turn(now, thread))
    }

    fn begin(&mut self, op: u32, command: Command) {
        let begin = vec![Submission::Begin(OpId(op), command)];
        self.turn(Thread::Caller, |state, now| state.begin(now, &mut { begin }));
    }

    fn until(&mut self, is_there: impl Fn(&mut Self) -> bool) {
        let began = Mono::now();
        while !is_there(self) {
            assert!(Mono::now().since(began) < HANG, "it does not happen");
            self.turn(Thread::Caller, State::read_all);
            std::thread::yield_now();
        }
    }

    fn take_outcome(&self, op: u32) -> Option<Outcome> {
        let mut outcomes = self.caller.outcomes.lock().unwrap();
        let index = outcomes.iter().position(|(ended, _)| *ended == OpId(op))?;
        Some(outcomes.remove(index).1)
    }

    fn outcome(&mut self, op: u32) -> Outcome {
        self.until(|bench| {
            bench.caller.outcomes.lock().unwrap().iter().any(|(ended, _)| *ended == OpId(op))
        });
        self.take_outcome(op).unwrap()
    }

    fn acquire(wait: Wait) -> Command {
        let (name, label, hold) = ("a".to_owned(), Arc::default(), hold(false));
        Command::Acquire { name, ttl: HANG, wait, label, hold, mode: Mode::Exclusive }
    }

    fn held(&mut self, op: u32) -> LeaseId {
        match self.outcome(op) {
            Outcome::Acquired { lease, .. } => lease,
            other => panic!("{other:?}"),
        }
    }

    fn link(&mut self) -> &mut Link {
        self.state.peers[0].link().expect("it is connected")
    }

    fn wait_for_socket(&mut self) {
        let socket = Arc::clone(self.link().socket());
        self.turn(Thread::Caller, |state, now| state.read(now, NODE, &socket, true));
    }

    fn notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.caller.notices.lock().unwrap())
    }
}

#[test]
fn the_keeper_looks_after_what_the_event_loop_may_not_see() {
    let server = server();
    let mut bench = Bench::new(&server, Reader::EventLoop, "a");
    assert_eq!(bench.state.look_after(), None, "nothing is connected");
    bench.begin(1, Command::Open);
    assert_eq!(bench.outcome(1), Outcome::Done);
    assert_eq!(*bench.caller.watches.lock().unwrap(), 1);
    assert_eq!(bench.state.look_after(), Some(SOON), "nobody waits for the socket yet");
    bench.wait_for_socket();
    bench.until(|bench| !bench.link().expects());
    assert_eq!(bench.state.look_after(), None, "there is nothing to look after");
    bench.begin(2, Bench::acquire(Wait::Never));
    assert_eq!(bench.state.look_after(), Some(LOOK_AFTER), "an answer is on its way");
    let lease = bench.held(2);
    bench.until(|bench| !bench.link().expects());
    assert_eq!(bench.state.look_after(), Some(LOOK_IDLE_AFTER), "a lock is held");
    bench.state.stands_in = true;
    assert_eq!(bench.state.look_after(), Some(STAND_IN_AFTER));
    bench.turn(Thread::Keeper, State::read_all);
    assert!(bench.state.stands_in, "until the event loop turns");
    bench.turn(Thread::Caller, State::read_all);
    assert!(!bench.state.stands_in);

    let mut waiter = Bench::open(&server, Reader::EventLoop, "b");
    waiter.begin(3, Bench::acquire(Wait::Forever));
    waiter.until(|waiter| !waiter.link().expects());
    assert_eq!(waiter.shared.stats().held, 0);
    assert_eq!(waiter.state.look_after(), Some(LOOK_IDLE_AFTER), "a lock is waited for");

    let (released, exported) = (Outcome::Done, false);
    bench.begin(4, Command::Release { lease, exported });
    assert_eq!(bench.outcome(4), released);
    bench.until(|bench| !bench.link().expects());
    assert_eq!(bench.state.look_after(), None);
    let socket = Arc::clone(bench.link().socket());
    bench.turn(Thread::Caller, |state, now| state.read(now, NODE, &socket, false));
    assert_eq!(bench.state.look_after(), Some(SOON), "its reader waits no more");
}

#[test]
fn the_keeper_that_reads_by_itself_looks_after_nothing() {
    let server = server();
    let mut bench = Bench::open(&server, Reader::Keeper, "a");
    assert_eq!(*bench.caller.watches.lock().unwrap(), 0, "no event loop waits");
    assert_eq!(bench.state.look_after(), None);
    bench.begin(2, Bench::acquire(Wait::Never));
    assert_eq!(bench.state.look_after(), None);
    bench.held(2);
    assert_eq!(bench.state.look_after(), None);
}

#[test]
fn no_sleep_of_the_keeper_is_longer_than_half_a_second() {
    let server = server();
    for (reader, idle, busy) in
        [(Reader::Keeper, None, Some(SLEEP_MAX)), (Reader::EventLoop, None, Some(LOOK_IDLE_AFTER))]
    {
        let mut bench = Bench::open(&server, reader, &format!("{reader:?}"));
        for thread in [Thread::Keeper, Thread::Caller] {
            let (now, due) = bench.turn(thread, State::read_all);
            assert_eq!(due.map(|due| due.since(now)), idle, "{reader:?}");
        }
        bench.begin(2, Bench::acquire(Wait::Never));
        let lease = bench.held(2);
        bench.until(|bench| !bench.link().expects());
        for thread in [Thread::Keeper, Thread::Caller] {
            let (now, due) = bench.turn(thread, State::read_all);
            assert_eq!(due.map(|due| due.since(now)), busy, "{reader:?}");
        }
        bench.begin(3, Command::Release { lease, exported: false });
        assert_eq!(bench.outcome(3), Outcome::Done);
    }
}

#[test]
fn the_keeper_stands_in_for_an_event_loop_that_is_silent_once_there_was_something_to_read() {
    let server = server();
    for reader in [Reader::EventLoop, Reader::Keeper] {
        let mut bench = Bench::open(&server, reader, &format!("{reader:?}"));
        bench.turn(Thread::Keeper, |state, now| state.keep(now, true));
        assert!(!bench.state.stands_in, "there was nothing to read");
        bench.begin(2, Bench::acquire(Wait::Never));
        let began = Mono::now();
        let lease = loop {
            assert!(Mono::now().since(began) < HANG, "the keeper reads the answer");
            bench.turn(Thread::Keeper, |state, now| state.keep(now, true));
            if let Some(Outcome::Acquired { lease, .. }) = bench.take_outcome(2) {
                break lease;
            }
        };
        let stands_in = reader == Reader::EventLoop;
        for silent in [true, false] {
            bench.turn(Thread::Keeper, |state, now| state.keep(now, silent));
            assert_eq!(bench.state.stands_in, stands_in, "{reader:?}, {silent}");
        }
        bench.begin(3, Command::Release { lease, exported: false });
        assert!(!bench.state.stands_in);
        assert_eq!(bench.outcome(3), Outcome::Done);
    }
}

#[test]
fn only_events_of_the_present_connection_count() {
    let server = server();
    let mut bench = Bench::open(&server, Reader::EventLoop, "a");
    let generation = bench.state.peers[0].generation;
    let told = |bench: &mut Bench, generation| {
        let denied = || Incoming::LoginNotRenewed("because".to_owned());
        bench.mail.put(Input::Incoming(NODE, generation, denied()));
        bench.turn(Thread::Caller, State::read_all);
        bench.notices().len()
    };
    assert_eq!([generation - 1, generation + 1].map(|it| told(&mut bench, it)), [0, 0]);
    assert_eq!(told(&mut bench, generation), 1);
    assert!(bench.state.take_reported() && !bench.state.take_reported(), "once");
    assert_eq!(bench.shared.servers().len(), 1);
    bench.state.disconnect(NODE, true);
    assert_eq!(bench.shared.servers().len(), 0);
    assert_eq!(told(&mut bench, generation), 0, "it has ended");
    assert!(bench.state.peers[0].batch.is_empty() && bench.state.peers[0].connection.is_none());
}

#[test]
fn a_socket_is_read_for_the_connection_that_has_it() {
    let server = server();
    let mut bench = Bench::open(&server, Reader::EventLoop, "a");
    let own = Arc::clone(bench.link().socket());
    let mut other = Bench::open(&server, Reader::EventLoop, "b");
    let others = Arc::clone(other.link().socket());
    for (socket, waits, watched) in
        [(&others, false, true), (&own, false, false), (&own, true, true)]
    {
        bench.turn(Thread::Caller, |state, now| state.read(now, NODE, socket, waits));
        assert_eq!(bench.state.peers[0].watched, watched);
    }
}

#[test]
fn each_generation_of_a_peer_is_new_and_peers_are_there_when_they_are_named() {
    let mut peer = Peer::default();
    assert_eq!([(); 3].map(|()| peer.next_generation()), [1, 2, 3]);
    let mut bench = Bench::new(&server(), Reader::EventLoop, "a");
    assert_eq!(bench.state.peers.len(), 0);
    bench.state.peer(NodeId(2)).watched = true;
    assert_eq!(bench.state.peers.len(), 3);
    assert!(bench.state.peer(NodeId(2)).watched && !bench.state.peer(NodeId(1)).watched);
    assert_eq!(bench.state.peers.len(), 3);
    assert!(bench.state.peer(NodeId(1)).link().is_none());
}

#[test]
fn a_state_stops_once_it_is_closed() {
    let server = server();
    let mut bench = Bench::open(&server, Reader::EventLoop, "a");
    assert!(!bench.state.has_stopped());
    bench.turn(Thread::Caller, State::close);
    bench.until(|bench| bench.state.has_stopped());
    let (_, due) = bench.turn(Thread::Keeper, |_, _| ());
    assert!(due.is_none_or(|due| due.since(Mono::now()) <= Duration::from_millis(500)));
}
