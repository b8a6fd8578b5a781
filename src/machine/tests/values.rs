//! Locks under values that callers choose: other processes may have the same value, at the same time or later. Such a value
//! names no hold, so that its release is sent once, while the lease is valid.

use super::one_shots::{adopt_as, arrive_late, assert_idle, take_held};
use super::server::Server;
use super::world::{COMMAND_TIMEOUT, ONE_LEASE, RENEWED, World, ms};
use crate::machine::{Command, HoldTerms, LeaseId, LossReason, OpId, Outcome, Wait};
use crate::protocol::Mode;

const VALUE: &str = "hf1.job-7.1";

/// Three managers on one server.
fn three() -> [World; 3] {
    let server = Server::new();
    ["a", "b", "c"].map(|client| World::connected_to(&server, client))
}

fn holder(world: &World) -> Option<String> {
    world.server.owner(world.now, &World::keys())
}

/// Acquires as the packages for other libraries do: by a token, which the chosen value then replaces. The lease is 60 s.
fn take(world: &mut World, hold: HoldTerms) -> LeaseId {
    take_held(world, hold, Mode::Exclusive);
    let owner = holder(world).unwrap();
    let op = adopt_as(world, &owner, VALUE, hold);
    world.settle();
    world.lease(op).0
}

fn pass(worlds: &mut [World], time_ms: u64) {
    for world in worlds {
        world.pass(ms(time_ms));
        world.settle();
    }
}

fn ask_to_release(world: &mut World, lease: LeaseId) -> OpId {
    world.command(Command::Release { lease, exported: false })
}

fn is_held(world: &mut World) -> bool {
    let op = world.acquire(10_000, Wait::Never);
    world.settle();
    world.outcome(op) == Some(&Outcome::Held)
}

/// 1. A releases the value, and gets no answer. The request was executed.
/// 2. B gets the lock under the same value.
/// 3. A repeat of the release would free the lock from B, and C could get it beside B.
#[test]
pub(super) fn a_release_of_a_chosen_value_without_an_answer_is_not_repeated() {
    let [mut a, mut b, mut c] = three();
    let lease = take(&mut a, RENEWED);
    let op = ask_to_release(&mut a, lease);
    a.execute_and_lose_replies();
    let told = a.outcome(op).cloned();
    assert!(
        matches!(&told, Some(Outcome::Connection(why)) if why.contains("may still be held until its lease ends, in about 59398 ms")),
        "{told:?}"
    );
    let held = take(&mut b, RENEWED);
    a.connect();
    assert_idle(&mut a);
    assert_eq!(holder(&b).as_deref(), Some(VALUE));
    assert!(is_held(&mut c), "B holds the lock still");
    b.release(held);
    b.settle();
    assert_eq!(holder(&b), None);
    [b, c].iter_mut().for_each(assert_idle);
}

/// Two callers of A have the lock under the same value, and one of them releases it.
#[test]
pub(super) fn the_other_holder_of_a_released_value_learns_at_once_that_it_is_gone() {
    let [mut a, mut b, _] = three();
    let first = take(&mut a, RENEWED);
    let op = adopt_as(&mut a, VALUE, VALUE, RENEWED);
    a.settle();
    let (second, _) = a.lease(op);
    let released = ask_to_release(&mut a, first);
    a.settle();
    assert_eq!(a.outcome(released), Some(&Outcome::Done));
    assert_eq!(a.lost.last(), Some(&(second, LossReason::Expired)));
    assert!(!is_held(&mut b), "the lock is free for B");
    assert_idle(&mut a);
}

/// 1. A has left the lock `b`, whose request was lost, so it is released twice.
/// 2. A closes: the second of these releases, and that of its value, which is not repeated, are lost with one connection.
/// 3. The first of the two ends A. Nothing follows the end.
#[test]
fn a_manager_that_is_closed_ends_once_though_several_releases_are_lost() {
    let [mut a, ..] = three();
    take(&mut a, RENEWED);
    let left = a.acquire_named("b", 10_000, Wait::Forever, RENEWED, Mode::Exclusive);
    a.lose_requests();
    a.cancel(left);
    a.connect();
    a.settle();
    let close = a.command(Command::Close);
    assert_eq!(a.wire.len(), 2);
    a.lose_requests();
    assert!(a.stopped, "the manager ends though releases are lost");
    assert_eq!(a.outcome(close), Some(&Outcome::Done));
}

/// As before, but the server has not executed the release: it is held until its lease ends, or the request arrives late.
#[test]
fn a_chosen_value_whose_release_was_lost_is_held_until_its_lease_ends() {
    for arrives in [true, false] {
        let mut worlds = three();
        let [a, b, _] = &mut worlds;
        let lease = take(a, ONE_LEASE);
        ask_to_release(a, lease);
        a.lose_requests();
        a.connect();
        a.settle();
        assert!(is_held(b), "the lock is held until its lease ends");
        if arrives {
            arrive_late(a);
            assert!(!is_held(b), "the late release frees the lock");
        } else {
            pass(&mut worlds, 60_001);
            assert!(!is_held(&mut worlds[1]), "the end of the lease frees the lock");
        }
    }
}

/// 1. A's connection breaks. A's lease ends, or A asks to release it first, or closes: it cannot send that.
/// 2. B gets the lock under the same value when the lease has ended.
/// 3. A is connected again. A release would free the lock from B.
#[test]
pub(super) fn a_chosen_value_is_not_released_when_its_lease_has_ended() {
    for asks in [false, true] {
        let mut worlds = three();
        let lease = take(&mut worlds[0], ONE_LEASE);
        worlds[0].lose_requests();
        let op = asks.then(|| ask_to_release(&mut worlds[0], lease));
        pass(&mut worlds, 60_001);
        let [a, b, c] = &mut worlds;
        match op.map(|op| a.outcome(op)) {
            Some(outcome) => assert!(
                matches!(outcome, Some(Outcome::Connection(_))),
                "the release is unanswered: {outcome:?}"
            ),
            None => assert_eq!(a.lost.last(), Some(&(lease, LossReason::Expired))),
        }
        take(b, RENEWED);
        a.connect();
        assert_idle(a);
        assert_eq!(holder(b).as_deref(), Some(VALUE));
        assert!(is_held(c), "B holds the lock still");
    }
}

/// 1. A's release of the value waits for a connection, or for room, until its caller's patience is over. The caller is told that
///    the value is not released again.
/// 2. B takes the lock over under the same value. A release that A sent later would free it.
#[test]
pub(super) fn a_release_of_a_chosen_value_is_not_sent_after_its_caller_was_told_so() {
    for waits_for_room in [false, true] {
        let [mut a, mut b, mut c] = three();
        let lease = take(&mut a, RENEWED);
        if waits_for_room {
            a.window = Some((1, 1));
            a.acquire_named("b", 10_000, Wait::Forever, RENEWED, Mode::Exclusive);
            assert_eq!(a.wire.len(), 1);
        } else {
            a.lose_requests();
        }
        let op = ask_to_release(&mut a, lease);
        assert_eq!(a.wire.len(), usize::from(waits_for_room), "the release is not sent");
        a.pass(COMMAND_TIMEOUT);
        let told = a.outcome(op);
        assert!(
            matches!(told, Some(Outcome::Connection(why)) if why.contains("not released again")),
            "{told:?}"
        );
        let op = adopt_as(&mut b, VALUE, VALUE, RENEWED);
        b.settle();
        b.lease(op);
        a.connect();
        a.settle();
        assert!(is_held(&mut c), "B holds the lock still");
    }
}

/// The end of a manager releases the value once, as long as its lease is valid.
#[test]
fn closing_releases_a_chosen_value_once() {
    for executed in [true, false] {
        let [mut a, mut b, _] = three();
        take(&mut a, RENEWED);
        a.command(Command::Close);
        if executed {
            a.execute_and_lose_replies();
            take(&mut b, RENEWED);
        } else {
            a.lose_requests();
        }
        if a.connecting {
            a.connect();
        }
        a.settle();
        a.pass(ms(2_000));
        a.settle();
        assert!(a.stopped, "the manager has closed");
        assert_eq!(holder(&b).as_deref(), Some(VALUE), "executed: {executed}");
    }
}

/// 1. A's lock gets the value, but A gets no answer until its patience ends, or until the lease of its first token has ended.
/// 2. If A gave back the value, that could free the lock from B, which may have got it under this value meanwhile.
#[test]
fn an_adoption_under_a_chosen_value_without_an_answer_is_not_given_back() {
    for closes in [false, true] {
        let [mut a, mut b, _] = three();
        take_held(&mut a, ONE_LEASE, Mode::Exclusive);
        let op = adopt_as(&mut a, "hf1.a.1", VALUE, RENEWED);
        a.execute_and_lose_replies();
        if closes {
            a.connect();
            a.lose_requests();
            a.command(Command::Close);
        }
        a.pass(COMMAND_TIMEOUT);
        assert!(
            matches!(a.outcome(op), Some(Outcome::Connection(_) | Outcome::Closed)),
            "the adoption is unanswered: {:?}",
            a.outcome(op)
        );
        if a.connecting {
            a.connect();
        }
        a.settle();
        arrive_late(&mut a);
        a.pass(ms(1_000));
        a.settle();
        assert_eq!(holder(&b).as_deref(), Some(VALUE));
        assert!(is_held(&mut b), "nobody has given the value back");
    }
}

/// 1. A's lock gets the value, but A gets no answer. The lease of its first token ends.
/// 2. C takes the value over, as one that knows it, and releases it. B gets the lock under the same value.
/// 3. A's request is repeated, and finds the lock under the value. If A counted that as its own, both would hold it.
#[test]
pub(super) fn an_adoption_that_is_repeated_after_the_end_of_its_lock_starts_no_hold() {
    let mut worlds = three();
    let [a, _, c] = &mut worlds;
    let op = a.acquire_held(1_000, Wait::Never, ONE_LEASE);
    a.settle();
    a.lease(op);
    let op = adopt_as(a, "hf1.a.1", VALUE, RENEWED);
    a.execute_and_lose_replies();
    let taken = adopt_as(c, VALUE, VALUE, RENEWED);
    c.settle();
    c.release(c.lease(taken).0);
    c.settle();
    for world in &mut worlds {
        world.pass(ms(1_100));
    }
    let [a, b, c] = &mut worlds;
    let held = take(b, RENEWED);
    a.connect();
    a.settle();
    assert!(matches!(a.outcome(op), Some(Outcome::Connection(_))), "{:?}", a.outcome(op));
    assert_idle(a);
    assert!(is_held(c), "B holds the lock still");
    b.release(held);
    b.settle();
    assert_eq!(holder(b), None);
}

/// Others who have the value may release it, so no other caller of the process gets the lock under it.
#[test]
fn a_chosen_value_serves_no_other_caller() {
    let [mut a, mut b, _] = three();
    let lease = take(&mut a, RENEWED);
    let waiting = a.acquire_held(10_000, Wait::Forever, RENEWED);
    a.settle();
    a.release(lease);
    a.settle();
    a.lease(waiting);
    assert!(holder(&a).is_some_and(|token| token.starts_with("hf1.a.")), "the token is A's own");
    let op = adopt_as(&mut b, VALUE, VALUE, RENEWED);
    b.settle();
    assert_eq!(b.outcome(op), Some(&Outcome::Lost));
}

/// A late renewal under the value lengthens the lease of whoever has the lock under it, and shortens none.
#[test]
fn a_late_renewal_of_a_chosen_value_shortens_no_lease() {
    let [mut a, mut b, _] = three();
    let lease = take(&mut a, RENEWED);
    a.command(Command::Extend { lease, ttl: Some(ms(5_000)) });
    a.lose_requests();
    let taken = adopt_as(&mut b, VALUE, VALUE, RENEWED);
    b.settle();
    b.release(b.lease(taken).0);
    b.settle();
    take(&mut b, RENEWED);
    let left = |world: &World| world.server.snapshot(world.now, &World::keys()).held_ms(VALUE);
    let before = left(&b);
    arrive_late(&mut a);
    assert_eq!(left(&b), before);
    assert!(before > Some(59_000), "B's lease is whole: {before:?}");
}
