//! A whole core with its keeper, connected to a server that a test ends and starts again.

use super::{HANG, config, hold};
use crate::core::{Caller, Handle, Reader, Submission, Ticket, Watch};
use crate::keeper;
use crate::machine::{Command, Config, LeaseId, LossReason, Notice, OpId, Outcome, Wait};
use crate::protocol::query::Question;
use crate::protocol::{Mode, Mono};
use crate::server::scripted::Scripted;
use std::sync::{Arc, Mutex, mpsc};

/// Records what it is told. Its event loop never turns, so the keeper reads in its place.
struct Recorder {
    outcomes: Mutex<mpsc::Sender<(OpId, Outcome)>>,
    notices: Mutex<mpsc::Sender<Notice>>,
}

impl Caller for Recorder {
    fn complete(&self, op: OpId, outcome: Outcome) {
        // A test that has ended does not listen.
        drop(self.outcomes.lock().unwrap().send((op, outcome)));
    }
    fn lose(&self, lease: LeaseId, reason: LossReason) {
        panic!("{lease:?} is lost: {reason:?}");
    }
    fn tell(&self, notice: Notice) {
        drop(self.notices.lock().unwrap().send(notice));
    }
    fn ping(&self) {}
    fn last_turn(&self) -> Mono {
        Mono::now()
    }
    fn wake(&self) {}
    fn watch(&self, _: Watch) {}
}

struct Talk {
    server: Scripted,
    handle: Handle,
    caller: Arc<dyn Caller>,
    outcomes: mpsc::Receiver<(OpId, Outcome)>,
    notices: mpsc::Receiver<Notice>,
}

impl Talk {
    fn start(reader: Reader) -> Self {
        let server = keeper::runtime().unwrap().block_on(Scripted::with_locks());
        let (tell_outcome, outcomes) = mpsc::channel();
        let (tell_notice, notices) = mpsc::channel();
        let caller: Arc<dyn Caller> = Arc::new(Recorder {
            outcomes: Mutex::new(tell_outcome),
            notices: Mutex::new(tell_notice),
        });
        let config = Config {
            secret: "secret".to_owned(),
            prefix: "lock:".to_owned(),
            ..config("client".to_owned())
        };
        let handle = Handle::start(config, server.endpoint(), Arc::clone(&caller), reader).unwrap();
        Self { server, handle, caller, outcomes, notices }
    }

    fn ask(&self, op: u32, command: Command) -> Outcome {
        let _reported = self.handle.submit(&mut vec![Submission::Begin(OpId(op), command)]);
        self.outcome(op)
    }

    fn outcome(&self, op: u32) -> Outcome {
        let (ended, outcome) = self.outcomes.recv_timeout(HANG).unwrap();
        assert_eq!(ended, OpId(op));
        outcome
    }

    fn acquire(&self, op: u32) -> LeaseId {
        let (name, label, hold) = ("a".to_owned(), Arc::default(), hold(false));
        let (ttl, wait, mode) = (HANG, Wait::Never, Mode::Exclusive);
        match self.ask(op, Command::Acquire { name, ttl, wait, label, hold, mode }) {
            Outcome::Acquired { lease, .. } => lease,
            other => panic!("{other:?}"),
        }
    }

    /// The keys of the locks that are held.
    fn held(&self, op: u32) -> Vec<String> {
        let ticket = Ticket::new(OpId(op), Arc::clone(&self.caller));
        let starts_with = "lock:".to_owned();
        let question = Question { starts_with, count: 100, ..Question::default() };
        let _reported = self.handle.submit(&mut vec![Submission::Query(ticket, question)]);
        match self.outcome(op) {
            Outcome::Page(page) => page.held.into_iter().map(|holding| holding.key).collect(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_lock_survives_the_connection_whoever_reads() {
    for reader in [Reader::Keeper, Reader::EventLoop] {
        let talk = Talk::start(reader);
        assert_eq!(talk.ask(1, Command::Open), Outcome::Done);
        let connected = talk.handle.shared().servers();
        assert_eq!(connected.len(), 1, "{connected:?}");
        let lease = talk.acquire(2);
        assert_eq!(talk.held(3), ["lock:a"]);
        talk.server.hang_up();
        let lost = talk.notices.recv_timeout(HANG).unwrap();
        assert!(matches!(lost, Notice::Disconnected(_)), "{lost:?}");
        assert_eq!(talk.notices.recv_timeout(HANG), Ok(Notice::Reconnected));
        assert!(!talk.handle.shared().remaining(lease, Mono::now()).is_zero(), "it is held on");
        assert_eq!(talk.ask(4, Command::Release { lease, exported: false }), Outcome::Done);
        assert!(talk.held(5).is_empty(), "it is free");
        assert_eq!(talk.ask(6, Command::Close), Outcome::Done);
    }
}

#[test]
fn what_a_manager_holds_is_released_when_its_handle_is_dropped() {
    let talk = Talk::start(Reader::Keeper);
    assert_eq!(talk.ask(1, Command::Open), Outcome::Done);
    let _lease = talk.acquire(2);
    let Talk { server, handle, .. } = talk;
    drop(handle);
    let began = Mono::now();
    while !server.asked("EVAL").iter().any(|command| command.contains("lock:a")) {
        assert!(Mono::now().since(began) < HANG, "the release is sent");
        std::thread::yield_now();
    }
}
