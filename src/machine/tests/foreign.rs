//! Other code's lease, which a manager renews and does nothing else to: the lock of a job, say.

use super::one_shots::{arrive_late, assert_idle};
use super::world::{World, ms};
use crate::machine::{Command, LeaseId, LossReason, Outcome, Protocol};
use crate::protocol::Call;
use std::time::Duration;

const VALUE: &str = "worker 1";
const TTL: Duration = ms(3_000);
/// What JavaScript may be silent for.
const STALL: Duration = ms(30_000);

/// Other code takes the lock, and a manager keeps it for that code.
fn kept() -> (World, LeaseId) {
    let mut world = World::connected();
    world.server.set_foreign(world.now, &World::keys(), VALUE, TTL);
    let lease = keep(&mut world, Duration::ZERO);
    (world, lease)
}

fn keep(world: &mut World, age: Duration) -> LeaseId {
    let (key, stall_timeout) = (World::keys().lock().to_owned(), STALL);
    let keep = Command::KeepForeign { key, value: VALUE.into(), ttl: TTL, age, stall_timeout };
    let op = world.command(keep);
    world.lease(op).0
}

/// Lets time pass in small steps, with a server that answers at once.
fn run(world: &mut World, duration_ms: u64) {
    for _ in 0..duration_ms / 10 {
        world.pass(ms(10));
        world.settle();
    }
}

fn value(world: &World) -> Option<String> {
    world.server.command(world.now, &["GET", World::keys().lock()])
}

fn left_ms(world: &World) -> i64 {
    world.server.ask(world.now, &["PTTL", World::keys().lock()])[0].parse().unwrap()
}

/// Whether nothing but the lock has a key: no fence was issued, and nobody was enqueued.
fn is_alone(world: &World) -> bool {
    world.server.ask(world.now, &["KEYS", "*"]) == [World::keys().lock()]
}

#[test]
fn a_lease_of_other_code_is_renewed_from_a_third_of_it_on_until_its_end_is_asked_for() {
    let (mut world, lease) = kept();
    world.pass(ms(970));
    assert!(world.wire.is_empty(), "a short job costs no request");
    world.pass(ms(30));
    assert!(matches!(world.wire.front(), Some((_, Call::KeepForeign { .. }))), "a renewal is due");
    for _ in 0..1_000 {
        world.settle();
        world.pass(ms(10));
        assert!(
            left_ms(&world) >= 1_500 && value(&world).as_deref() == Some(VALUE),
            "half of the lease is left, under its value"
        );
        assert!(
            ms(u64::try_from(left_ms(&world)).unwrap()) >= world.deadlines[&lease].since(world.now),
            "the server keeps no less than is promised"
        );
    }
    assert!(is_alone(&world), "the lock's key is the only one");
    let requests = world.machine.stats().requests;
    let op = world.release(lease);
    assert_eq!(world.outcome(op), Some(&Outcome::Done));
    run(&mut world, 2_000);
    let stats = world.machine.stats();
    assert_eq!((stats.requests, stats.acquired, stats.lost), (requests, 0, 0));
    assert_eq!(value(&world).as_deref(), Some(VALUE), "its code alone ends it");
    run(&mut world, 1_100);
    assert_eq!(value(&world), None);
    assert_idle(&mut world);
}

#[test]
fn a_lease_that_is_old_already_is_renewed_at_once() {
    for age in [1_000, 60_000] {
        let mut world = World::connected();
        world.server.set_foreign(world.now, &World::keys(), VALUE, ms(100));
        keep(&mut world, ms(age));
        run(&mut world, 10_000);
        assert_eq!(value(&world).as_deref(), Some(VALUE));
    }
}

/// 1. A manager keeps the lock of a job, and its request is under way when the connection is lost.
/// 2. The job ends, and another worker takes the lock for 500 ms, under another value.
/// 3. The request arrives late, and so does one of the new connection. Neither is about that value.
#[test]
pub(super) fn a_value_that_has_changed_is_renewed_no_more() {
    let (mut world, lease) = kept();
    world.pass(ms(1_000));
    world.lose_requests();
    world.connect();
    world.server.set_foreign(world.now, &World::keys(), "worker 2", ms(500));
    arrive_late(&mut world);
    run(&mut world, 100);
    assert_eq!(value(&world).as_deref(), Some("worker 2"));
    assert!(left_ms(&world) <= 400, "another's lease was lengthened");
    assert_eq!(world.lost, [(lease, LossReason::Ended)]);
    run(&mut world, 10_000);
    assert_eq!((value(&world), world.machine.stats().lost), (None, 0));
    assert_idle(&mut world);
}

/// The value of other code has no mark, and a mark makes it another one.
#[test]
fn a_value_with_a_mark_is_another_one() {
    let (mut world, _) = kept();
    for other in ["worker 1+", "hf1.shared.worker 1"] {
        world.server.set_foreign(world.now, &World::keys(), other, ms(1_100));
        keep(&mut world, Duration::ZERO);
        run(&mut world, 2_000);
        assert_eq!(value(&world), None, "{other}");
    }
}

/// 1. A manager keeps the lock of a job.
/// 2. The job ends, and its lock is deleted. No request takes the lock again, also none that was sent before.
#[test]
pub(super) fn a_lock_that_is_gone_is_not_taken() {
    let (mut world, _) = kept();
    world.pass(ms(1_000));
    world.lose_requests();
    world.connect();
    world.server.command(world.now, &["DEL", World::keys().lock()]);
    arrive_late(&mut world);
    run(&mut world, 100);
    assert_eq!(value(&world), None);
    assert_idle(&mut world);
}

/// Neither the end of the renewal, nor that of the manager, nor a loss gives back what is another's.
#[test]
pub(super) fn the_lock_of_other_code_is_never_released() {
    let (mut world, lease) = kept();
    run(&mut world, 5_000);
    world.release(lease);
    world.settle();
    assert_eq!(value(&world).as_deref(), Some(VALUE));

    let (mut world, _) = kept();
    run(&mut world, 5_000);
    world.command(Command::Close);
    world.settle();
    assert!(world.stopped, "the manager has closed");
    assert_eq!(value(&world).as_deref(), Some(VALUE));

    // The manager reaches the server again when its lease is over by its own clock, but the code has renewed it.
    let (mut world, _) = kept();
    world.lose_requests();
    world.pass(ms(2_900));
    world.server.set_foreign(world.now, &World::keys(), VALUE, TTL);
    world.pass(ms(200));
    world.connect();
    world.settle();
    assert_eq!(value(&world).as_deref(), Some(VALUE));
}

#[test]
fn a_lease_of_other_code_ends_when_javascript_is_silent_for_too_long() {
    let (mut world, lease) = kept();
    world.alive = false;
    run(&mut world, 29_000);
    assert_eq!(value(&world).as_deref(), Some(VALUE));
    run(&mut world, 6_000);
    assert_eq!((value(&world), &*world.lost), (None, &[(lease, LossReason::Stalled)][..]));
    assert_idle(&mut world);
}

#[test]
pub(super) fn a_lock_without_an_end_keeps_having_none() {
    let (mut world, _) = kept();
    world.server.command(world.now, &["SET", World::keys().lock(), VALUE]);
    run(&mut world, 10_000);
    assert_eq!(left_ms(&world), -1);
}

/// The first request about a lease of other code has no answer. Its renewal goes on with the next connection.
#[test]
fn a_question_without_an_answer_ends_no_lease_of_other_code() {
    for executed in [false, true] {
        let mut world = World::connected_with(ms(1_000));
        world.server.set_foreign(world.now, &World::keys(), VALUE, TTL);
        let lease = keep(&mut world, Duration::ZERO);
        let op = world.command(Command::Extend { lease, ttl: None });
        if executed {
            world.execute_one();
        }
        world.pass(ms(1_100));
        assert!(
            matches!(world.outcome(op), Some(Outcome::Connection(_))),
            "the extension is unanswered: {:?}",
            world.outcome(op)
        );
        world.connect();
        run(&mut world, 10_000);
        assert_eq!((value(&world).as_deref(), &*world.lost), (Some(VALUE), &[][..]));
    }
}
