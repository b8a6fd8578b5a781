//! Locks of owners that callers name: each hold has a token of its own, and takes over the one before.

use super::one_shots::{arrive_late, assert_idle};
use super::server::Server;
use super::world::{COMMAND_TIMEOUT, ONE_LEASE, World, ms};
use crate::machine::{Command, HoldTerms, LeaseId, LossReason, OpId, Outcome, Wait};
use crate::protocol::{Mode, Token};

/// Only the server ends a lock of an owner.
const OWNED: HoldTerms = HoldTerms { leave_to_expire: true, ..ONE_LEASE };
const OWNER: &str = "@order-7";

/// Three managers on one server.
fn three() -> (World, World, World) {
    let server = Server::new();
    let [a, b, c] = ["a", "b", "c"].map(|client| World::connected_to(&server, client));
    (a, b, c)
}

fn ask(world: &mut World, wait: Wait) -> OpId {
    let (name, label) = ("a".to_owned(), OWNER.into());
    let (ttl, mode) = (ms(10_000), Mode::Exclusive);
    world.command(Command::Acquire { name, ttl, wait, label, hold: OWNED, mode })
}

fn take(world: &mut World) -> (LeaseId, u64) {
    let op = ask(world, Wait::Never);
    world.settle();
    world.lease(op)
}

fn holder(world: &World) -> Option<String> {
    world.server.owner(world.now, &World::keys())
}

fn pass(worlds: [&mut World; 3], duration_ms: u64) {
    for world in worlds {
        world.pass(ms(duration_ms));
        world.settle();
    }
}

#[test]
fn an_owner_gets_its_lock_again_under_another_token_and_the_former_handle_learns_it() {
    let (mut a, mut b, mut c) = three();
    let (first, fence) = take(&mut a);
    let (second, later) = take(&mut b);
    assert!(later > fence, "fences rise: {later} after {fence}");
    a.settle();
    assert_eq!(a.lost, [(first, LossReason::Adopted)]);
    assert_eq!(holder(&b).as_deref(), Some("hf1.b.2.@order-7"));
    // Also in the same manager.
    let (third, last) = take(&mut b);
    assert!(last > later, "fences rise: {last} after {later}");
    assert_eq!(b.lost, [(second, LossReason::Adopted)]);
    let other = c.acquire(10_000, Wait::Never);
    c.settle();
    assert_eq!(c.outcome(other), Some(&Outcome::Held));
    b.release(third);
    b.settle();
    assert_eq!(holder(&b), None);
    [a, b, c].iter_mut().for_each(assert_idle);
}

/// 1. A releases what it has for the owner, and gets no answer. The request was executed, or will be later.
/// 2. B gets the lock for the same owner.
/// 3. A's release is executed once more. If it freed B's hold, a third process could get the lock beside B.
#[test]
pub(super) fn a_late_release_spares_the_later_hold_of_its_owner() {
    for executed in [true, false] {
        let (mut a, mut b, mut c) = three();
        let (lease, _) = take(&mut a);
        a.release(lease);
        if executed {
            a.execute_and_lose_replies();
        } else {
            a.lose_requests();
        }
        let (held, _) = take(&mut b);
        a.connect();
        a.settle();
        arrive_late(&mut a);
        a.pass(ms(1_000));
        a.settle();
        let owner = holder(&b).map(|token| Token::from_text(&token));
        assert_eq!(owner.as_ref().and_then(Token::client), Some("b"), "executed: {executed}");
        let other = c.acquire(10_000, Wait::Never);
        c.settle();
        assert_eq!(c.outcome(other), Some(&Outcome::Held));
        b.release(held);
        b.settle();
        assert_eq!(holder(&b), None);
        [a, b, c].iter_mut().for_each(assert_idle);
    }
}

/// 1. A has the lock for its owner. B takes it over for the same owner, and gets no answer until its patience ends.
/// 2. If B gave back what it may have got, the owner would lose a lock that it had.
#[test]
pub(super) fn what_its_owner_had_before_is_not_given_back() {
    for executed in [true, false] {
        let (mut a, mut b, _) = three();
        let (lease, _) = take(&mut a);
        let op = ask(&mut b, Wait::Never);
        while !b.wire.iter().any(|(_, call)| matches!(call, crate::protocol::Call::Adopt { .. })) {
            b.answer_one();
        }
        if executed {
            b.execute_and_lose_replies();
        } else {
            b.lose_requests();
        }
        b.pass(COMMAND_TIMEOUT);
        assert!(
            matches!(b.outcome(op), Some(Outcome::Connection(_))),
            "the take-over is unanswered: {:?}",
            b.outcome(op)
        );
        b.connect();
        b.settle();
        assert_idle(&mut b);
        let owner = holder(&b).map(|token| Token::from_text(&token));
        assert!(owner.as_ref().is_some_and(|token| token.is_of_owner(OWNER)), "{owner:?}");
        // A late request gives it to a token that nobody has. The owner gets it again all the same.
        arrive_late(&mut b);
        a.settle();
        assert_eq!(a.lost, [(lease, LossReason::Adopted)]);
        let (again, _) = take(&mut a);
        a.release(again);
        assert_idle(&mut a);
        assert_eq!(holder(&a), None);
    }
}

/// Its place in the queue is given up when it takes over what its owner got elsewhere.
#[test]
fn a_waiter_takes_over_what_its_owner_gets_and_leaves_the_queue() {
    let (mut a, mut b, mut c) = three();
    let plain = c.acquire(10_000, Wait::Never);
    c.settle();
    let (first, then) = (ask(&mut a, Wait::Forever), ask(&mut b, Wait::UpTo(ms(8_000))));
    a.settle();
    b.settle();
    let last = c.acquire(10_000, Wait::Forever);
    c.settle();
    c.release(c.lease(plain).0);
    pass([&mut c, &mut a, &mut b], 10);
    let (held, fence) = a.lease(first);
    assert_eq!(b.outcome(then), None);
    pass([&mut b, &mut a, &mut c], 700);
    let (joined, later) = b.lease(then);
    assert!(later > fence, "fences rise: {later} after {fence}");
    assert_eq!(a.lost, [(held, LossReason::Adopted)]);
    assert_eq!(c.outcome(last), None, "it waits for both");
    b.release(joined);
    pass([&mut b, &mut c, &mut a], 10);
    let (other, _) = c.lease(last);
    c.release(other);
    pass([&mut c, &mut b, &mut a], 10);
    assert_eq!(holder(&c), None);
    [a, b, c].iter_mut().for_each(assert_idle);
}

/// 1. A's entry waits for its owner, and asks. Ahead of that a message grants it the lock, and a replica is to confirm that.
/// 2. B takes this hold over for the same owner. The answer shows it, so A's entry takes it over in turn.
/// 3. The replica confirms the grant of A's former token. If that counted, A's caller would have the lock under a token that
///    no server has granted, with a fence below B's.
#[test]
pub(super) fn a_take_over_ends_the_confirmation_of_the_grant_before() {
    let (mut a, mut b, mut c) = three();
    a.machine.context.config.confirm = true;
    let plain = c.acquire(10_000, Wait::Never);
    c.settle();
    let op = ask(&mut a, Wait::Forever);
    a.settle();
    for world in [&mut a, &mut b, &mut c] {
        world.pass(ms(700));
    }
    assert_eq!(a.wire.len(), 1, "it polls");
    c.release(c.lease(plain).0);
    c.settle();
    assert!(a.receive_one() && a.confirms.len() == 1, "the grant by message waits for a replica");
    let (_, fence) = take(&mut b);
    a.answer_one();
    a.confirm(true);
    assert_eq!(a.outcome(op), None);
    a.settle();
    let (held, later) = a.lease(op);
    assert!(later > fence, "A's fence is above B's: {later} after {fence}");
    b.settle();
    assert_eq!(b.lost.len(), 1);
    a.release(held);
    pass([&mut a, &mut b, &mut c], 1_100);
    assert_eq!(holder(&a), None);
    [a, b, c].iter_mut().for_each(assert_idle);
}

/// A hold of an owner is neither handed off to another caller of its process, nor is any other given to the owner: the token
/// in the store must tell whose it is.
#[test]
fn no_other_caller_gets_the_token_of_an_owner() {
    let (mut a, _, _) = three();
    let (lease, _) = take(&mut a);
    let plain = a.acquire(10_000, Wait::Forever);
    a.settle();
    let owned = ask(&mut a, Wait::Never);
    a.settle();
    let (again, _) = a.lease(owned);
    assert_ne!(again.token_id(), lease.token_id());
    a.release(again);
    a.settle();
    let (held, _) = a.lease(plain);
    assert!(
        !holder(&a).is_some_and(|token| Token::from_text(&token).is_of_owner(OWNER)),
        "the plain caller has no token of the owner"
    );
    let waiting = ask(&mut a, Wait::Forever);
    a.settle();
    a.release(held);
    a.settle();
    a.lease(waiting);
    assert!(
        holder(&a).is_some_and(|token| Token::from_text(&token).is_of_owner(OWNER)),
        "the owner has a token of its own"
    );
}

/// 1. An entry waits behind a hold of its own owner and manager, which is released before the answer tells of it. The entry
///    gets the lock by that release.
/// 2. Two more ask meanwhile, and each is told of the hold of another entry. If they left the queue to take that over, each
///    would give up what it is granted next: all asked again and again without a pause, and none got the lock.
#[test]
pub(super) fn entries_of_one_owner_do_not_chase_each_other() {
    let (mut a, _, _) = three();
    let (lease, _) = take(&mut a);
    let first = ask(&mut a, Wait::Forever);
    a.answer_one();
    a.release(lease);
    let second = ask(&mut a, Wait::Forever);
    a.answer_one();
    let third = ask(&mut a, Wait::Forever);
    for _ in 0..50 {
        a.answer_one();
        a.receive_one();
    }
    assert!(a.wire.is_empty(), "still asking: {:?}", a.wire);
    let held = [first, second, third].map(|op| a.lease(op).0);
    for lease in
        held.into_iter().filter(|lease| a.machine.hold_of(*lease).is_some()).collect::<Vec<_>>()
    {
        a.release(lease);
    }
    a.settle();
    assert_idle(&mut a);
    assert_eq!(holder(&a), None);
}
