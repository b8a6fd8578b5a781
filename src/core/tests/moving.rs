//! Managers of a store in this process, whose clock a test moves.

use super::{HANG, config, hold};
use crate::core::{Caller, Handle, Reader, Submission, Watch};
use crate::machine::{Command, HoldTerms, LeaseId, LossReason, Notice, OpId, Outcome, Wait};
use crate::protocol::{Mode, Mono};
use crate::server::{Address, Endpoint, LoginSource, MemoryStore};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const HOUR: Duration = Duration::from_secs(3_600);

/// Records what it is told.
#[derive(Default)]
struct Recorder {
    outcomes: Mutex<Vec<(OpId, Outcome)>>,
    losses: Mutex<Vec<(LeaseId, LossReason)>>,
    pings: Mutex<usize>,
}

impl Recorder {
    fn has_lost(&self) -> bool {
        !self.losses.lock().unwrap().is_empty()
    }

    fn take(&self, op: u32) -> Option<Outcome> {
        let mut outcomes = self.outcomes.lock().unwrap();
        let index = outcomes.iter().position(|(ended, _)| *ended == OpId(op))?;
        Some(outcomes.swap_remove(index).1)
    }

    fn has_ended(&self, op: u32) -> bool {
        self.outcomes.lock().unwrap().iter().any(|(ended, _)| *ended == OpId(op))
    }
}

impl Caller for Recorder {
    fn complete(&self, op: OpId, outcome: Outcome) {
        self.outcomes.lock().unwrap().push((op, outcome));
    }
    fn lose(&self, lease: LeaseId, reason: LossReason) {
        self.losses.lock().unwrap().push((lease, reason));
    }
    fn tell(&self, _: Notice) {}
    fn ping(&self) {
        *self.pings.lock().unwrap() += 1;
    }
    fn last_turn(&self) -> Mono {
        Mono::default()
    }
    fn wake(&self) {}
    fn watch(&self, _: Watch) {}
}

struct Manager {
    handle: Handle,
    caller: Arc<Recorder>,
}

impl Manager {
    /// A manager of a store, whose clock stands.
    fn of(store: &str, client: &str) -> Self {
        let manager = Self::running(store, client);
        assert!(!manager.handle.advance(Mono::default(), || false), "that is over");
        manager
    }

    fn running(store: &str, client: &str) -> Self {
        let endpoint = Endpoint {
            address: Address::Memory(MemoryStore::open(store.to_owned())),
            tls: None,
            login_source: LoginSource::fixed(None, None),
            db: 0,
            client_name: String::new(),
            channels: vec![format!("holdfast:inbox:{client}").into()],
            connect_timeout: HANG,
            replicas: None,
        };
        let mut config = config(client.to_owned());
        config.secret = client.to_owned();
        let caller = Arc::new(Recorder::default());
        let told = Arc::clone(&caller) as Arc<dyn Caller>;
        let handle = Handle::start(config, endpoint, told, Reader::Keeper).unwrap();
        let manager = Self { handle, caller };
        assert_eq!(manager.ask(1, Command::Open), Some(Outcome::Done));
        manager
    }

    fn ask(&self, op: u32, command: Command) -> Option<Outcome> {
        let _reported = self.handle.submit(&mut vec![Submission::Begin(OpId(op), command)]);
        self.caller.take(op)
    }

    fn acquire(&self, op: u32, ttl: Duration, wait: Wait, hold: HoldTerms) -> Option<Outcome> {
        let (name, label) = ("a".to_owned(), Arc::default());
        self.ask(op, Command::Acquire { name, ttl, wait, label, hold, mode: Mode::Exclusive })
    }

    fn hold(&self, ttl: Duration, renew: bool) -> LeaseId {
        match self.acquire(2, ttl, Wait::Never, hold(renew)) {
            Some(Outcome::Acquired { lease, .. }) => lease,
            other => panic!("{other:?}"),
        }
    }

    fn left(&self, lease: LeaseId) -> Duration {
        self.handle.shared().remaining(lease, self.handle.now())
    }
}

#[test]
fn a_clock_is_moved_and_never_back() {
    let Manager { handle, .. } = &Manager::of("moving: alone", "a");
    let until = handle.now() + HOUR;
    assert!(handle.advance(until, || true), "something is to be read first");
    assert!(handle.now() < until);
    assert!(!handle.advance(until, || false));
    assert_eq!(handle.now(), until, "it stands there");
    assert!(!handle.advance(Mono::default(), || false));
    assert_eq!(handle.now(), until);
}

#[test]
fn a_lease_that_is_not_renewed_ends_at_its_moment_on_the_way() {
    let manager = Manager::of("moving: end", "a");
    let lease = manager.hold(ms(1_000), false);
    let end = manager.handle.now() + ms(988);
    assert_eq!(manager.left(lease), ms(988));
    assert!(!manager.handle.advance(manager.handle.now() + ms(987), || manager.caller.has_lost()));
    assert_eq!(manager.left(lease), ms(1));
    assert!(manager.handle.advance(end + HOUR, || manager.caller.has_lost()));
    assert_eq!(manager.handle.now(), end, "it stops there");
    assert_eq!(*manager.caller.losses.lock().unwrap(), [(lease, LossReason::Expired)]);
}

#[test]
fn a_lease_is_renewed_on_the_way_without_a_sign_of_life() {
    let manager = Manager::of("moving: renewed", "a");
    let lease = manager.hold(ms(3_000), true);
    let until = manager.handle.now() + ms(100_000);
    assert!(!manager.handle.advance(until, || manager.caller.has_lost()));
    assert_eq!(manager.handle.now(), until);
    assert!(manager.left(lease) > ms(1_900), "{:?}", manager.left(lease));
    assert_eq!(*manager.caller.pings.lock().unwrap(), 0, "the test is awake");
}

#[test]
fn all_managers_of_a_store_do_what_is_due_at_each_moment() {
    let [holder, waiter] = ["a", "b"].map(|client| Manager::of("moving: two", client));
    let _lease = holder.hold(ms(1_000), false);
    let began = holder.handle.now();
    assert_eq!(waiter.acquire(3, HANG, Wait::Forever, hold(false)), None);
    assert!(holder.handle.advance(began + HOUR, || waiter.caller.has_ended(3)));
    assert!(matches!(waiter.caller.take(3), Some(Outcome::Acquired { .. })));
    assert_eq!(waiter.handle.now().since(began), ms(988), "the lock is given back");
    assert!(holder.caller.has_lost());
}

#[test]
fn the_clock_of_another_store_runs_on() {
    let (moved, other) = (Manager::of("moving: this", "a"), Manager::running("moving: that", "b"));
    let _lease = other.hold(ms(300_000), false);
    let until = moved.handle.now() + HOUR;
    assert!(!moved.handle.advance(until, || false));
    assert!(other.handle.now() < until && !other.caller.has_lost());
    let before = other.handle.now();
    while other.handle.now() == before {
        std::thread::yield_now();
    }
}

#[test]
fn after_a_thousand_moments_something_else_may_be_done() {
    let manager = Manager::of("moving: long", "a");
    let _lease = manager.hold(ms(30), true);
    let (began, until) = (manager.handle.now(), manager.handle.now() + HOUR);
    assert!(manager.handle.advance(until, || false), "it must be called again");
    let after = manager.handle.now().since(began);
    assert!((ms(1_000)..ms(100_000)).contains(&after), "{after:?}");
}
