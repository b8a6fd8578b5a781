//! The conditions for handing off a whole lock within the process.

use super::waiting::Crowd;
use super::world::{RENEWED, World, ms};
use crate::machine::{
    Command, Event, HoldTerms, LeaseId, LossReason, OpId, Outcome, Protocol, Wait,
};
use crate::protocol::{Call, Mode};

/// Manager 0 holds the lock with a block of fences, and `tasks` callers of it wait.
fn busy(crowd: &mut Crowd, tasks: usize) -> (LeaseId, Vec<OpId>) {
    let opener = crowd.held(0, 10_000);
    let waiting: Vec<_> = (0..=tasks).map(|_| crowd.acquire(0, 10_000)).collect();
    crowd.release(0, opener);
    let first = crowd.worlds[0].lease(waiting[0]).0;
    crowd.release(0, first);
    (crowd.worlds[0].lease(waiting[1]).0, waiting[2..].to_vec())
}

fn handed_off(world: &World) -> u64 {
    world.machine.stats().handed_off
}

/// 1. A is disconnected and knows it. The server restarts empty, and B acquires.
/// 2. A's callers release in turn: fourteen more owners would hold the lock beside B, with fences below B's.
#[test]
fn nothing_is_handed_off_without_a_connection() {
    let mut crowd = Crowd::new(2);
    let (lease, waiting) = busy(&mut crowd, 10);
    let before = handed_off(&crowd.worlds[0]);
    crowd.worlds[0].event(Event::Disconnected("cut".to_owned()));
    crowd.server.flush();
    crowd.server.set_replication_id("second");
    crowd.held(1, 10_000);
    crowd.worlds[0].release(lease);
    assert_eq!(handed_off(&crowd.worlds[0]), before);
    assert!(!crowd.has(0, waiting[0]), "the next caller gets nothing without a connection");
}

/// On a live connection, only replies show that the server has lost its data.
#[test]
fn nothing_is_handed_off_when_the_last_confirmation_is_old() {
    let mut crowd = Crowd::new(2);
    let (lease, waiting) = busy(&mut crowd, 10);
    crowd.pass(ms(626));
    crowd.worlds[0].release(lease);
    assert!(
        matches!(crowd.worlds[0].wire.front(), Some((_, Call::Release { .. }))),
        "the release goes to the server"
    );
    crowd.settle();
    assert!(crowd.has(0, waiting[0]), "the server passes it on");

    let mut crowd = Crowd::new(2);
    let (lease, waiting) = busy(&mut crowd, 10);
    crowd.pass(ms(600));
    crowd.worlds[0].release(lease);
    assert!(crowd.worlds[0].wire.is_empty() && crowd.has(0, waiting[0]), "a sixteenth of it");
}

/// The renewal's reply is the more recent evidence.
#[test]
fn a_renewal_that_was_answered_is_evidence() {
    let mut crowd = Crowd::new(1);
    let (lease, waiting) = busy(&mut crowd, 10);
    crowd.pass(ms(3_400));
    crowd.worlds[0].release(lease);
    assert!(crowd.worlds[0].wire.is_empty() && crowd.has(0, waiting[0]), "the handoff is allowed");
}

/// A returns from Y to X, whose epoch is below the fences that Y issued: they do not look outdated.
#[test]
fn a_lock_of_another_history_is_not_handed_off_after_the_return_to_a_known_one() {
    let mut crowd = Crowd::new(1);
    crowd.fail_over("Y");
    // A connection that dies at once is not replaced at once.
    crowd.pass(ms(300));
    let (lease, _) = busy(&mut crowd, 10);
    let before = handed_off(&crowd.worlds[0]);
    crowd.fail_over("first");
    crowd.worlds[0].release(lease);
    assert_eq!(handed_off(&crowd.worlds[0]), before);
}

/// 1. A returns from Y to X, and asks whether X has its lock. X, which has granted it to others, refuses to answer.
/// 2. A's caller releases, less than a second after Y has confirmed the lock.
#[test]
pub(super) fn a_lock_of_another_history_is_not_handed_off_while_the_server_refuses_to_answer() {
    let mut crowd = Crowd::new(1);
    crowd.fail_over("Y");
    crowd.pass(ms(300));
    let (lease, _) = busy(&mut crowd, 10);
    let before = handed_off(&crowd.worlds[0]);
    crowd.fail_over("first");
    let world = &mut crowd.worlds[0];
    world.server.set_loading(true);
    while !world.wire.is_empty() {
        world.answer_one();
    }
    world.release(lease);
    assert_eq!(handed_off(world), before);
}

/// A process whose caller holds the lock while three others wait here, and whose release is on the wire.
fn releasing() -> (Crowd, Vec<OpId>) {
    let mut crowd = Crowd::new(2);
    let opener = crowd.held(0, 10_000);
    let waiting = (0..3).map(|_| crowd.acquire(0, 10_000)).collect();
    crowd.worlds[0].release(opener);
    (crowd, waiting)
}

fn asks(world: &World) -> usize {
    world.wire.iter().filter(|(_, call)| matches!(call, Call::Acquire { .. })).count()
}

/// The answer to what is asked behind a release confirms the grant, so no claim delays the first handoff. A claim
/// that is sent ahead would not do, since its answer does not tell of which grant it is:
///
/// 1. B is granted the lock. The claim that was sent ahead finds it, and is answered.
/// 2. The lock is stolen. B enqueues again, and is granted it once more for 3 s.
/// 3. The second message overtakes the answer, and B takes that for the answer of a whole lease.
#[test]
fn the_next_caller_asks_right_behind_a_release() {
    let (mut crowd, waiting) = releasing();
    assert_eq!((crowd.worlds[0].wire.len(), asks(&crowd.worlds[0])), (2, 1));
    crowd.worlds[0].execute_one();
    assert!(crowd.worlds[0].receive_one(), "the message of the grant arrives");
    assert!(!crowd.has(0, waiting[0]), "the message says less than the answer");
    crowd.worlds[0].execute_one();
    crowd.worlds[0].answer_what_is_there();
    assert!(crowd.has(0, waiting[0]), "the answer gives the lock, without a claim");
    let claims = crowd.worlds[0].wire.iter().any(|(_, call)| matches!(call, Call::Claim { .. }));
    assert!(!claims && asks(&crowd.worlds[0]) == 1, "only the next entry asks");
    crowd.settle();
    let lease = crowd.worlds[0].lease(waiting[0]).0;
    crowd.release(0, lease);
    assert!(crowd.has(0, waiting[1]), "the next caller gets the lock");
    let (lease, first) = crowd.worlds[0].lease(waiting[1]);
    let release = crowd.worlds[0].release(lease);
    assert_eq!(crowd.worlds[0].outcome(release), Some(&Outcome::Done), "handed off at once");
    let (lease, second) = crowd.worlds[0].lease(waiting[2]);
    assert!(second > first, "fences rise: {second} after {first}");
    crowd.release(0, lease);
    crowd.assert_nothing_left();
}

#[test]
fn nobody_asks_behind_a_release_that_grants_the_lock_to_another_process() {
    let (mut crowd, waiting) = releasing();
    let other = crowd.worlds[1].acquire_held(10_000, Wait::Forever, RENEWED);
    crowd.worlds[1].settle();
    crowd.settle();
    let lease = crowd.worlds[0].lease(waiting[0]).0;
    crowd.worlds[0].release(lease);
    assert_eq!(asks(&crowd.worlds[0]), 0);
    crowd.settle();
    assert!(crowd.has(1, other) && !crowd.has(0, waiting[1]), "the other process has its turn");
}

#[test]
fn who_asks_behind_a_release_that_was_too_late_waits_on() {
    let (mut crowd, waiting) = releasing();
    let thief = crowd.worlds[1].acquire_held(10_000, Wait::Steal, RENEWED);
    crowd.worlds[1].settle();
    crowd.settle();
    assert!(crowd.has(1, thief) && !crowd.has(0, waiting[0]), "the thief has the lock");
    let lease = crowd.worlds[1].lease(thief).0;
    crowd.release(1, lease);
    assert!(crowd.has(0, waiting[0]), "it waits on, and gets the lock");
}

#[test]
fn who_asked_behind_a_release_asks_again_after_a_lost_connection() {
    for executed in 0..=2 {
        let (mut crowd, waiting) = releasing();
        for _ in 0..executed {
            crowd.worlds[0].execute_one();
        }
        crowd.worlds[0].lose_requests();
        crowd.worlds[0].connect();
        crowd.settle();
        crowd.pass(ms(100));
        assert!(crowd.has(0, waiting[0]), "after {executed} of the two requests");
        let mut lease = crowd.worlds[0].lease(waiting[0]).0;
        for next in &waiting[1..] {
            crowd.release(0, lease);
            lease = crowd.worlds[0].lease(*next).0;
        }
        crowd.release(0, lease);
        // What was lost may be executed late, so it is released twice.
        crowd.pass(ms(3_000));
        crowd.assert_nothing_left();
    }
}

/// An answer does not tell which of two leases it grants:
///
/// 1. B asks behind a release for 200 ms, and its caller gives up.
/// 2. The next caller asks for 10 s.
/// 3. The late answer for 200 ms is taken for that of 10 s.
#[test]
fn who_asks_behind_a_release_asks_for_nothing_else_until_that_is_answered() {
    let mut crowd = Crowd::new(1);
    let opener = crowd.held(0, 10_000);
    let [first, short, long] = [10_000, 200, 10_000].map(|ttl_ms| crowd.acquire(0, ttl_ms));
    crowd.worlds[0].release(opener);
    while !crowd.has(0, first) {
        crowd.worlds[0].answer_one();
    }
    let lease = crowd.worlds[0].lease(first).0;
    crowd.worlds[0].release(lease);
    assert_eq!((crowd.worlds[0].wire.len(), asks(&crowd.worlds[0])), (3, 2), "enqueues, and asks");
    for _ in 0..3 {
        crowd.worlds[0].execute_one();
    }
    crowd.worlds[0].answer_one();
    crowd.worlds[0].cancel(short);
    crowd.worlds[0].pass(ms(1_500));
    assert!(crowd.worlds[0].wire.is_empty(), "nothing else is asked before the answer");
    crowd.worlds[0].answer_what_is_there();
    assert!(!crowd.has(0, long), "what was granted has ended");
    crowd.settle();
    crowd.pass(ms(100));
    assert!(crowd.has(0, long), "the long lease is granted after that");
}

#[test]
fn a_release_waits_for_the_answer_to_a_claim() {
    let mut crowd = Crowd::new(2);
    let opener = crowd.held(0, 10_000);
    let other = crowd.acquire(1, 10_000);
    let waiting: Vec<_> = (0..4).map(|_| crowd.acquire(0, 10_000)).collect();
    crowd.release(0, opener);
    let lease = crowd.worlds[1].lease(other).0;
    crowd.worlds[1].release(lease);
    crowd.worlds[1].settle();
    assert!(crowd.worlds[0].receive_one(), "the message of the grant arrives");
    crowd.worlds[0].answer_one();
    let lease = crowd.worlds[0].lease(waiting[0]).0;
    // No answer has told yet that the next one here is the next at the server, too.
    crowd.worlds[0].release(lease);
    for _ in 0..2 {
        crowd.worlds[0].answer_one();
    }
    while crowd.worlds[0].receive_one() {}
    let lease = crowd.worlds[0].lease(waiting[1]).0;
    let claim = crowd.worlds[0].wire.len();
    let release = crowd.worlds[0].release(lease);
    assert_eq!(crowd.worlds[0].wire.len(), claim, "nothing is sent");
    assert!(
        crowd.worlds[0].outcome(release).is_none() && !crowd.has(0, waiting[2]),
        "the release waits for the claim's answer"
    );
    crowd.worlds[0].settle();
    assert_eq!(crowd.worlds[0].outcome(release), Some(&Outcome::Done));
    assert!(crowd.has(0, waiting[2]), "handed on when the claim was answered");
    assert_eq!(handed_off(&crowd.worlds[0]), 1);
}

/// The reply that a release waits for may never arrive.
#[test]
fn a_release_that_waits_for_an_answer_ends_with_the_lease_the_connection_and_the_manager() {
    let waiting = || {
        let mut crowd = Crowd::new(1);
        let (lease, waiting) = busy(&mut crowd, 10);
        crowd.pass(ms(3_000));
        assert!(crowd.worlds[0].wire.is_empty(), "no renewal yet");
        crowd.worlds[0].pass(ms(400));
        assert!(
            matches!(crowd.worlds[0].wire.front(), Some((_, Call::Renew { .. }))),
            "the renewal is under way"
        );
        let release = crowd.worlds[0].release(lease);
        assert!(crowd.worlds[0].outcome(release).is_none(), "it waits for the renewal's answer");
        assert_eq!(crowd.worlds[0].wire.len(), 1, "nothing but the renewal");
        (crowd, release, waiting)
    };
    let (mut crowd, release, next) = waiting();
    crowd.worlds[0].lose_requests();
    assert!(crowd.worlds[0].outcome(release).is_none(), "not known");
    crowd.worlds[0].connect();
    crowd.settle();
    assert_eq!(crowd.worlds[0].outcome(release), Some(&Outcome::Done));
    assert!(crowd.has(0, next[0]), "the next caller gets the lock");

    let (mut crowd, release, _) = waiting();
    crowd.server.flush();
    crowd.settle();
    assert_eq!(crowd.worlds[0].outcome(release), Some(&Outcome::Lost));

    let (mut crowd, release, _) = waiting();
    crowd.worlds[0].command(Command::Close);
    crowd.settle();
    assert_eq!(crowd.worlds[0].outcome(release), Some(&Outcome::Done));
    assert_eq!(crowd.server.leftovers(crowd.worlds[0].now), "");
}

/// A crashed owner blocks the lock only for its own lease. Otherwise the crash of a caller that asked for 1 s would
/// block others for the 58 s that an earlier caller had asked for.
#[test]
fn a_successor_does_not_inherit_a_longer_lease() {
    let mut crowd = Crowd::new(2);
    let opener = crowd.held(0, 60_000);
    let tasks: Vec<_> =
        [60_000, 60_000, 1_000, 60_000].map(|ttl| crowd.acquire(0, ttl)).into_iter().collect();
    crowd.release(0, opener);
    for op in &tasks[..2] {
        let lease = crowd.worlds[0].lease(*op).0;
        crowd.release(0, lease);
    }
    let (lease, _) = crowd.worlds[0].lease(tasks[2]);
    let now = crowd.worlds[0].now;
    let left = crowd.server.command(now, &["PTTL", World::keys().lock()]).unwrap();
    assert!(left.parse::<u64>().unwrap() <= 1_000, "{left} ms are left on the server");
    crowd.release(0, lease);
    assert!(crowd.has(0, tasks[3]), "the next caller gets the lock");
}

const UNRENEWED: HoldTerms = HoldTerms { renew: false, ..RENEWED };

/// Manager 0 holds the lock with a block of fences for 10 s, and a caller waits for an unrenewed lease of `ttl`.
fn awaited_without_renewal(ttl: u64) -> (Crowd, LeaseId, OpId) {
    let mut crowd = Crowd::new(1);
    let opener = crowd.held(0, 10_000);
    let tasks: Vec<_> = (0..2).map(|_| crowd.acquire(0, 10_000)).collect();
    let next = crowd.worlds[0].acquire_held(ttl, Wait::Forever, UNRENEWED);
    let _behind = crowd.acquire(0, 10_000);
    crowd.release(0, opener);
    let first = crowd.worlds[0].lease(tasks[0]).0;
    crowd.release(0, first);
    let lease = crowd.worlds[0].lease(tasks[1]).0;
    (crowd, lease, next)
}

/// 1. A's lease of 10 s was requested a while ago, and B here waits for one of 10 s that is not renewed.
/// 2. A releases. By a handoff B would have the rest of A's lease, and nothing lengthens it.
#[test]
pub(super) fn a_lease_that_is_not_renewed_is_handed_off_only_as_a_whole() {
    for (over, ttl, is_handed_off) in [
        (0, 10_000, true),
        (150, 10_000, true),
        (200, 10_000, false),
        (0, 9_950, false),
        (0, 12_000, false),
    ] {
        let (mut crowd, lease, next) = awaited_without_renewal(ttl);
        let before = handed_off(&crowd.worlds[0]);
        crowd.pass(ms(over));
        crowd.worlds[0].release(lease);
        let is_one = handed_off(&crowd.worlds[0]) > before;
        assert_eq!(is_one, is_handed_off, "{over} ms of {ttl}");
        crowd.settle();
        let world = &crowd.worlds[0];
        let (got, now) = (world.lease(next).0, world.now);
        let left = world.deadlines[&got].since(now);
        assert!(left <= ms(ttl) && left + ms(ttl / 100 + 2) >= ms(ttl - ttl / 64), "{left:?}");
        let stored = crowd.server.command(now, &["PTTL", World::keys().lock()]).unwrap();
        assert!(stored.parse::<u64>().unwrap() <= ttl, "{stored} ms are left on the server");
    }
}

/// The first of `count` callers of manager 0 that want unrenewed leases of 10 s has got one.
fn served_without_renewal(count: usize) -> (Crowd, Vec<OpId>) {
    let mut crowd = Crowd::new(1);
    let opener = crowd.held(0, 10_000);
    let world = &mut crowd.worlds[0];
    let want = |_| world.acquire_held(10_000, Wait::Forever, UNRENEWED);
    let tasks = (0..count).map(want).collect();
    crowd.settle();
    crowd.release(0, opener);
    (crowd, tasks)
}

/// A question has confirmed the lock, and has not lengthened its lease.
#[test]
fn the_rest_of_a_confirmed_lease_is_not_handed_off_without_renewal() {
    let (mut crowd, tasks) = served_without_renewal(3);
    crowd.release(0, crowd.worlds[0].lease(tasks[0]).0);
    let (lease, _) = crowd.worlds[0].lease(tasks[1]);
    let before = handed_off(&crowd.worlds[0]);
    crowd.pass(ms(3_400));
    crowd.worlds[0].release(lease);
    assert_eq!(handed_off(&crowd.worlds[0]), before);
    crowd.settle();
    let (got, now) = (crowd.worlds[0].lease(tasks[2]).0, crowd.worlds[0].now);
    assert!(crowd.worlds[0].deadlines[&got].since(now) >= ms(9_800), "the new lease is whole");
}

/// As many callers as a process has, with leases that end by themselves, cost the server a few requests.
#[test]
fn a_crowd_without_renewal_is_served_by_handoffs_with_whole_leases() {
    let (mut crowd, tasks) = served_without_renewal(100);
    for op in tasks {
        let (lease, _) = crowd.worlds[0].lease(op);
        let left = crowd.worlds[0].deadlines[&lease].since(crowd.worlds[0].now);
        assert!(left >= ms(9_730) && left <= ms(10_000), "{left:?}");
        crowd.pass(ms(5));
        crowd.release(0, lease);
    }
    assert!(handed_off(&crowd.worlds[0]) > 90, "most of the crowd is served by handoffs");
    crowd.assert_nothing_left();
}

/// The longer lease was requested by a caller who has left since.
#[test]
fn a_grant_that_another_caller_requested_is_not_longer_than_the_caller_wants() {
    let mut crowd = Crowd::new(1);
    let world = &mut crowd.worlds[0];
    let leaves = world.acquire_held(60_000, Wait::Forever, RENEWED);
    let stays = world.acquire_held(1_000, Wait::Forever, RENEWED);
    world.cancel(leaves);
    crowd.settle();
    assert!(crowd.has(0, stays), "who stays gets the lock");
    let now = crowd.worlds[0].now;
    let left = crowd.server.command(now, &["PTTL", World::keys().lock()]).unwrap();
    assert!(left.parse::<u64>().unwrap() <= 1_000, "{left} ms are left on the server");
}

/// After a restart without data, the manager that has seen the new replication id confirms all its older leases.
#[test]
fn a_lease_from_before_is_confirmed_at_once_also_without_renewal() {
    for keep in [false, true] {
        let mut crowd = Crowd::new(2);
        let hold = HoldTerms { renew: false, leave_to_expire: keep, ..RENEWED };
        let op = crowd.worlds[0].acquire_held(60_000, Wait::Never, hold);
        crowd.settle();
        let (lease, _) = crowd.worlds[0].lease(op);
        crowd.worlds[0].event(Event::Disconnected("restart".to_owned()));
        crowd.server.flush();
        crowd.server.set_replication_id("second");
        crowd.worlds[0].connect();
        crowd.settle();
        assert_eq!(crowd.worlds[0].lost, [(lease, LossReason::Expired)], "keep: {keep}");
    }
}

/// The same where the replication id changes under a live connection, and where the server hides it.
#[test]
fn a_new_history_is_noticed_by_a_probe_or_if_hidden_by_a_new_connection() {
    let hold = HoldTerms { renew: false, ..RENEWED };
    let mut crowd = Crowd::new(1);
    let op = crowd.worlds[0].acquire_held(60_000, Wait::Never, hold);
    crowd.settle();
    let (lease, _) = crowd.worlds[0].lease(op);
    crowd.server.flush();
    crowd.server.set_replication_id("second");
    let (now, sent) = (crowd.worlds[0].now, crowd.worlds[0].now);
    let probe = crowd.server.probe(now);
    crowd.worlds[0].event(Event::Probed { probe, sent });
    crowd.settle();
    assert_eq!(crowd.worlds[0].lost, [(lease, LossReason::Expired)]);

    let mut crowd = Crowd::new(1);
    crowd.worlds[0].blind = true;
    let op = crowd.worlds[0].acquire_held(60_000, Wait::Never, hold);
    crowd.settle();
    let (lease, _) = crowd.worlds[0].lease(op);
    crowd.worlds[0].event(Event::Disconnected("restart".to_owned()));
    crowd.server.flush();
    crowd.worlds[0].connect();
    crowd.settle();
    assert_eq!(crowd.worlds[0].lost, [(lease, LossReason::Expired)]);
}

/// A confirmation is no renewal: the lease still ends when its caller wanted it to.
#[test]
fn confirming_a_lease_without_renewal_does_not_extend_it() {
    let mut crowd = Crowd::new(1);
    let hold = HoldTerms { renew: false, ..RENEWED };
    let op = crowd.worlds[0].acquire_held(10_000, Wait::Never, hold);
    crowd.settle();
    let (lease, _) = crowd.worlds[0].lease(op);
    let until = crowd.worlds[0].deadlines[&lease];
    crowd.pass(ms(4_000));
    crowd.worlds[0].event(Event::Disconnected("failover".to_owned()));
    crowd.server.set_replication_id("second");
    crowd.worlds[0].connect();
    crowd.settle();
    assert_eq!(crowd.worlds[0].deadlines[&lease], until);
    let now = crowd.worlds[0].now;
    let left = crowd.server.command(now, &["PTTL", World::keys().lock()]).unwrap();
    assert!(left.parse::<u64>().unwrap() <= 6_000, "{left} ms are left on the server");
}

/// The reply to an extension whose caller has left may be "not the owner".
#[test]
fn a_release_waits_for_the_answer_to_an_extension() {
    for forgets in [false, true] {
        let mut crowd = Crowd::new(1);
        let (lease, waiting) = busy(&mut crowd, 10);
        let before = handed_off(&crowd.worlds[0]);
        if forgets {
            crowd.server.flush();
        }
        crowd.worlds[0].command(Command::Extend { lease, ttl: None });
        let release = crowd.worlds[0].release(lease);
        assert_eq!(crowd.worlds[0].wire.len(), 1, "nothing but the extension");
        crowd.worlds[0].answer_one();
        let outcome = if forgets { Outcome::Lost } else { Outcome::Done };
        assert_eq!(crowd.worlds[0].outcome(release), Some(&outcome));
        assert_eq!(handed_off(&crowd.worlds[0]) > before, !forgets);
        assert_eq!(crowd.has(0, waiting[0]), !forgets);
    }
}

#[test]
fn a_handoff_comes_with_the_label_of_another_caller() {
    let mut crowd = Crowd::new(1);
    let opener = crowd.held(0, 10_000);
    let ops = ["one", "two", "two", "three"].map(|label| {
        let (name, label) = ("a".to_owned(), label.into());
        let (ttl, wait, hold, mode) = (ms(10_000), Wait::Forever, RENEWED, Mode::Exclusive);
        let op = crowd.worlds[0].command(Command::Acquire { name, ttl, wait, label, hold, mode });
        crowd.settle();
        op
    });
    crowd.release(0, opener);
    let acquired = crowd.worlds[0].machine.stats().acquired;
    let labels = ops.map(|op| {
        let Some(Outcome::Acquired { lease, label, .. }) = crowd.worlds[0].outcome(op).cloned()
        else {
            panic!("{:?}", crowd.worlds[0].outcome(op));
        };
        crowd.release(0, lease);
        label
    });
    assert_eq!(labels, [None, None, None, Some("two".to_owned())]);
    assert_eq!(crowd.worlds[0].machine.stats().acquired, acquired + 3);
    assert_eq!(handed_off(&crowd.worlds[0]), 2);
}

/// A message that got lost is made up for by a poll, whose answer is as good as that to a claim.
#[test]
fn a_grant_that_was_answered_is_evidence() {
    let mut crowd = Crowd::new(1);
    let opener = crowd.held(0, 10_000);
    let waiting: Vec<_> = (0..4).map(|_| crowd.acquire(0, 10_000)).collect();
    crowd.release(0, opener);
    let world = &mut crowd.worlds[0];
    world.release(world.lease(waiting[0]).0);
    world.answer_one();
    world.lose_messages();
    while world.wire.is_empty() {
        world.pass(ms(10));
    }
    world.settle();
    world.release(world.lease(waiting[1]).0);
    assert!(world.wire.is_empty(), "the handoff costs no request");
    assert!(crowd.has(0, waiting[2]), "the answered poll allows the handoff");
}

/// Hands the lock off in process 0 from `lease` on, as long as nothing must be sent for that but requests for more handoffs.
/// Returns the served callers, and the fences of their locks.
fn hand_off_all(crowd: &mut Crowd, mut lease: LeaseId, waiting: &[OpId]) -> Vec<u64> {
    let mut fences = Vec::new();
    for next in waiting {
        crowd.worlds[0].release(lease);
        if !crowd.has(0, *next) {
            break;
        }
        let fence;
        (lease, fence) = crowd.worlds[0].lease(*next);
        fences.push(fence);
    }
    fences
}

fn reserves(world: &World) -> usize {
    world.wire.iter().filter(|(_, call)| matches!(call, Call::Reserve { .. })).count()
}

/// A lock that has just been handed off for the eighth time since its grant, and asks for more handoffs.
fn reserving() -> (Crowd, LeaseId, Vec<OpId>) {
    let mut crowd = Crowd::new(2);
    let (mut lease, waiting) = busy(&mut crowd, 300);
    let mut served = 0;
    while reserves(&crowd.worlds[0]) == 0 {
        crowd.worlds[0].release(lease);
        lease = crowd.worlds[0].lease(waiting[served]).0;
        served += 1;
    }
    (crowd, lease, waiting[served..].to_vec())
}

#[test]
fn handoffs_go_on_without_a_release_while_no_other_manager_waits() {
    let (mut crowd, mut lease, waiting) = reserving();
    let (mut last, mut served) = (0, 0);
    for next in &waiting {
        let release = crowd.worlds[0].release(lease);
        let sent =
            crowd.worlds[0].wire.iter().any(|(_, call)| matches!(call, Call::Release { .. }));
        if sent {
            break;
        }
        assert_eq!(crowd.worlds[0].outcome(release), Some(&Outcome::Done));
        let fence;
        (lease, fence) = crowd.worlds[0].lease(*next);
        assert!(fence > last, "{fence} after {last}");
        (last, served) = (fence, served + 1);
        crowd.settle();
    }
    // The first holds of the grant, and all that the numbers of its holds allow.
    assert!((240..256).contains(&served), "{served} handoffs");
}

/// Whether the server has granted the lock to a caller, which then is its first holder by that token.
fn has_from_the_server(crowd: &Crowd, op: OpId) -> bool {
    let lease = crowd.worlds[0].lease(op).0;
    lease == LeaseId::first(lease.token_id())
}

#[test]
fn a_manager_that_comes_is_overtaken_by_no_more_than_one_budget() {
    for answered in [false, true] {
        let (mut crowd, lease, waiting) = reserving();
        if answered {
            crowd.settle();
        }
        crowd.worlds[1].acquire_held(10_000, Wait::Forever, RENEWED);
        crowd.worlds[1].settle();
        let served = hand_off_all(&mut crowd, lease, &waiting).len();
        // The rest of the grant's budget, or that which the answer allows since the request.
        assert_eq!(served, if answered { 15 } else { 7 }, "answered: {answered}");
        crowd.settle();
        assert!(has_from_the_server(&crowd, waiting[served]), "answered: {answered}");
    }
}

/// 1. A asks for more handoffs, and hands off seven times meanwhile.
/// 2. B enqueues just after the count.
/// 3. If the answer allowed 15 more, 22 callers of A would overtake B.
#[test]
fn handoffs_since_the_request_count() {
    let (mut crowd, mut lease, waiting) = reserving();
    for next in &waiting[..4] {
        crowd.worlds[0].release(lease);
        lease = crowd.worlds[0].lease(*next).0;
    }
    crowd.worlds[0].settle();
    crowd.acquire(1, 10_000);
    assert_eq!(hand_off_all(&mut crowd, lease, &waiting[4..]).len(), 11);
    crowd.settle();
    assert!(has_from_the_server(&crowd, waiting[15]), "the sixteenth is served by the server");
}

#[test]
fn a_release_waits_for_more_handoffs_and_then_asks_for_them_at_once() {
    let (mut crowd, mut lease, waiting) = reserving();
    let served = hand_off_all(&mut crowd, lease, &waiting).len();
    assert_eq!(served, 7);
    assert_eq!((crowd.worlds[0].wire.len(), reserves(&crowd.worlds[0])), (1, 1), "no release");
    crowd.worlds[0].answer_one();
    assert!(crowd.has(0, waiting[served]), "the release that waited has handed it off");
    assert_eq!(reserves(&crowd.worlds[0]), 1, "at once, since somebody had to wait");
    lease = crowd.worlds[0].lease(waiting[served]).0;
    crowd.worlds[0].settle();
    crowd.worlds[0].release(lease);
    assert_eq!(reserves(&crowd.worlds[0]), 0, "nobody had to wait for that answer");
}

#[test]
fn what_a_release_waits_for_may_be_lost_or_denied() {
    let (mut crowd, lease, waiting) = reserving();
    let served = hand_off_all(&mut crowd, lease, &waiting).len();
    crowd.worlds[0].lose_requests();
    crowd.worlds[0].connect();
    crowd.settle();
    crowd.pass(ms(100));
    assert!(crowd.has(0, waiting[served]), "released at the server");

    let (mut crowd, lease, waiting) = reserving();
    hand_off_all(&mut crowd, lease, &waiting);
    let thief = crowd.worlds[1].acquire_held(10_000, Wait::Steal, RENEWED);
    crowd.worlds[1].settle();
    crowd.worlds[0].settle();
    assert!(crowd.has(1, thief), "the thief has the lock");
    assert_eq!(crowd.worlds[0].lost.len(), 1, "{:?}", crowd.worlds[0].lost);

    let (mut crowd, lease, waiting) = reserving();
    let served = hand_off_all(&mut crowd, lease, &waiting).len();
    crowd.pass(ms(7_000));
    assert!(crowd.has(0, waiting[served]), "the next caller is served in the end");
}

/// 1. A asks for more handoffs, and the request is redirected.
/// 2. A's caller downgrades the lock.
/// 3. `reserve` finds no whole lock. The share is held all the same, so that answer is no loss.
#[test]
fn a_downgrade_ahead_of_a_request_for_more_handoffs_keeps_the_lock() {
    let (mut crowd, lease, _) = reserving();
    // As if the request for more handoffs had been redirected: it is executed last.
    let request = crowd.worlds[0].wire.pop_front();
    crowd.worlds[0].command(Command::Downgrade { lease });
    crowd.worlds[0].wire.extend(request);
    crowd.settle();
    assert!(crowd.worlds[0].lost.is_empty(), "{:?}", crowd.worlds[0].lost);
}

#[test]
fn nothing_is_asked_for_callers_who_have_handoffs_enough() {
    let mut crowd = Crowd::new(1);
    let (mut lease, waiting) = busy(&mut crowd, 12);
    for next in &waiting {
        crowd.worlds[0].release(lease);
        lease = crowd.worlds[0].lease(*next).0;
        assert_eq!(reserves(&crowd.worlds[0]), 0);
    }
}

/// Releases a lock, and returns the most fences that a request reserves which follows from that.
fn largest_block(world: &mut World, lease: LeaseId) -> u8 {
    let mut largest = 0;
    world.release(lease);
    while !world.is_silent() {
        for (_, call) in &world.wire {
            if let Call::Acquire { block, .. } | Call::Reserve { block, .. } = call {
                largest = largest.max(*block);
            }
        }
        world.answer_one();
        world.receive_one();
    }
    largest
}

/// Sixteen fences for each grant may raise a counter by more than one per µs. If it was lost then, by FLUSHALL or a failover,
/// it would begin again at the clock: below fences that it has issued.
#[test]
fn fences_are_reserved_one_by_one_while_the_counter_is_ahead_of_the_clock() {
    for (ahead_us, is_ahead) in [(99_000, false), (1_000_000, true)] {
        let mut crowd = Crowd::new(1);
        let world = &crowd.worlds[0];
        world.server.set_fence(world.now, world.server.time(world.now).as_micros() + ahead_us);
        let (mut lease, waiting) = busy(&mut crowd, 80);
        let mut serve = |crowd: &mut Crowd, ops: &[OpId]| {
            let blocks = ops.iter().map(|op| {
                let block = largest_block(&mut crowd.worlds[0], lease);
                lease = crowd.worlds[0].lease(*op).0;
                block
            });
            blocks.max()
        };
        let largest = serve(&mut crowd, &waiting[..40]);
        assert_eq!(largest, Some(if is_ahead { 1 } else { 16 }));
        // The clock overtakes it.
        crowd.pass(ms(1_500));
        assert_eq!(serve(&mut crowd, &waiting[40..]), Some(16));
    }
}
