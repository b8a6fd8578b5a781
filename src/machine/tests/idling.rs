//! Idle locks: kept for the next caller of the manager that has released them.

use super::waiting::Crowd;
use super::world::{ONE_LEASE, RENEWED, World, ms};
use crate::machine::{Command, Event, HoldTerms, LeaseId, OpId, Outcome, Polling, Protocol, Wait};
use crate::protocol::{Call, Mode, Script};
use std::time::Duration;

const LINGERING: HoldTerms = HoldTerms { linger: ms(300), ..RENEWED };

fn acquire(crowd: &mut Crowd, who: usize) -> OpId {
    let op = crowd.worlds[who].acquire_held(10_000, Wait::Forever, LINGERING);
    crowd.settle();
    op
}

/// Manager 0 keeps an idle lock. The lease and the fence of its last hold.
fn idle(crowd: &mut Crowd) -> (LeaseId, u64) {
    let op = acquire(crowd, 0);
    let (lease, fence) = crowd.worlds[0].lease(op);
    let released = crowd.worlds[0].release(lease);
    assert_eq!(crowd.worlds[0].outcome(released), Some(&Outcome::Done));
    assert!(crowd.worlds[0].wire.is_empty(), "the server need not know");
    assert_eq!(idle_locks(crowd), 1);
    (lease, fence)
}

fn idle_locks(crowd: &Crowd) -> u64 {
    crowd.worlds[0].machine.stats().idle
}

fn is_free(crowd: &Crowd) -> bool {
    crowd.server.owner(crowd.worlds[0].now, &World::keys()).is_none()
}

#[test]
fn the_next_caller_gets_an_idle_lock_without_the_server() {
    let mut crowd = Crowd::new(1);
    let (lease, fence) = idle(&mut crowd);
    assert_eq!(crowd.worlds[0].machine.stats().held, 0);
    for wait in [Wait::Forever, Wait::Never, Wait::UpTo(ms(0)), Wait::Steal] {
        let op = crowd.worlds[0].acquire_held(10_000, wait, LINGERING);
        let (next, later) = crowd.worlds[0].lease(op);
        assert!(next > lease && later > fence, "{wait:?}");
        assert!(crowd.worlds[0].wire.is_empty(), "the idle lock costs no request");
        crowd.worlds[0].release(next);
    }
    assert_eq!(crowd.worlds[0].machine.stats().handed_off, 4);
    crowd.pass(ms(301));
    assert!(is_free(&crowd), "the idle lock is released after its time");
    crowd.assert_nothing_left();
}

#[test]
fn an_idle_lock_is_released_when_its_time_is_over() {
    let mut crowd = Crowd::new(2);
    idle(&mut crowd);
    let elsewhere = crowd.acquire(1, 10_000);
    crowd.pass(ms(298));
    assert!(!crowd.has(1, elsewhere), "the idle lock is kept until then");
    crowd.pass(ms(2));
    assert!(crowd.has(1, elsewhere), "after `linger` at most");
    assert_eq!(idle_locks(&crowd), 0);
}

/// 1. A's lock is idle; B waits.
/// 2. A's callers take it again and again. Sixteen fences are reserved: A asks for more, and learns of B.
/// 3. Its last caller's lock does not linger any more.
#[test]
pub(super) fn a_lock_that_is_waited_for_elsewhere_lingers_no_more() {
    let mut crowd = Crowd::new(2);
    idle(&mut crowd);
    let elsewhere = crowd.acquire(1, 10_000);
    let mut holds = 1;
    while !crowd.has(1, elsewhere) {
        let op = acquire(&mut crowd, 0);
        let lease = crowd.worlds[0].lease(op).0;
        crowd.release(0, lease);
        holds += 1;
    }
    assert!((2..=16).contains(&holds), "{holds}");
}

#[test]
fn while_nobody_else_waits_an_idle_lock_costs_few_requests() {
    let mut crowd = Crowd::new(1);
    idle(&mut crowd);
    let before = crowd.worlds[0].machine.stats().requests;
    let mut last = 0;
    for _ in 0..200 {
        let op = acquire(&mut crowd, 0);
        let (lease, fence) = crowd.worlds[0].lease(op);
        assert!(fence > last, "fences rise: {fence} after {last}");
        last = fence;
        crowd.release(0, lease);
    }
    let requests = crowd.worlds[0].machine.stats().requests - before;
    assert!(requests <= 200 / 7, "{requests}");
}

/// A network that takes longer than fifteen handoffs: once a release has had to wait, more fences are reserved at a time.
#[test]
fn a_release_that_waits_for_more_handoffs_keeps_the_lock() {
    let mut crowd = Crowd::new(1);
    idle(&mut crowd);
    let hold = |crowd: &mut Crowd| {
        let op = crowd.worlds[0].acquire_held(10_000, Wait::Forever, LINGERING);
        let lease = crowd.worlds[0].lease(op).0;
        let released = crowd.worlds[0].release(lease);
        crowd.worlds[0].outcome(released).is_some()
    };
    let at_once = |crowd: &mut Crowd| (0..1_000).take_while(|_| hold(crowd)).count();
    assert_eq!(at_once(&mut crowd), 14, "the sixteenth hold has no handoff after it");
    crowd.settle();
    assert_eq!(idle_locks(&crowd), 1, "it has got more");
    assert!(at_once(&mut crowd) >= 14, "the answer allows as many handoffs again");
    crowd.settle();
    assert!(at_once(&mut crowd) > 100, "the next answer allows more of them");
}

#[test]
fn what_no_handoff_serves_is_asked_for_behind_the_release_of_the_idle_lock() {
    for (ttl, hold, mode, wait) in [
        (12_000, ONE_LEASE, Mode::Exclusive, Wait::Never),
        (10_000, LINGERING, Mode::SHARED, Wait::Forever),
    ] {
        let mut crowd = Crowd::new(1);
        let (_, fence) = idle(&mut crowd);
        let op = crowd.worlds[0].acquire_as(ttl, wait, hold, mode);
        let first = crowd.worlds[0].wire.front().map(|(_, call)| call.script());
        assert!(matches!(first, Some(Some(Script::Delete | Script::Release))), "{first:?}");
        crowd.settle();
        assert!(crowd.worlds[0].lease(op).1 > fence, "{mode:?} {wait:?}");
    }
}

#[test]
fn closing_releases_idle_locks() {
    let mut crowd = Crowd::new(1);
    idle(&mut crowd);
    crowd.worlds[0].command(Command::Close);
    crowd.settle();
    assert!(is_free(&crowd), "closing releases the idle lock");
    crowd.assert_nothing_left();
}

#[test]
fn the_idle_lock_that_was_released_first_makes_room() {
    let mut world = World::connected();
    world.machine.context.config.linger_max = 2;
    let mut leases = Vec::new();
    for name in ["one", "two", "three"] {
        let op = world.acquire_named(name, 10_000, Wait::Forever, LINGERING, Mode::Exclusive);
        world.settle();
        leases.push(world.lease(op).0);
    }
    for lease in leases {
        world.pass(ms(1));
        world.release(lease);
        world.settle();
    }
    assert_eq!(world.machine.stats().idle, 2);
    let op = world.acquire_named("one", 10_000, Wait::Never, LINGERING, Mode::Exclusive);
    assert!(world.outcome(op).is_none(), "it was released at the server");
    let op = world.acquire_named("two", 10_000, Wait::Never, LINGERING, Mode::Exclusive);
    assert!(world.outcome(op).is_some(), "the later idle lock was kept");
}

#[test]
fn the_loss_of_an_idle_lock_is_nobodys() {
    let mut crowd = Crowd::new(2);
    idle(&mut crowd);
    crowd.worlds[1].acquire_held(10_000, Wait::Steal, RENEWED);
    crowd.settle();
    crowd.pass(ms(1));
    let stats = crowd.worlds[0].machine.stats();
    assert_eq!((stats.idle, stats.lost), (0, 0));
    assert!(crowd.worlds[0].lost.is_empty(), "nobody learns of it: {:?}", crowd.worlds[0].lost);
}

/// 1. A's lock is idle. The server restarts without its data, and B acquires.
/// 2. A's next caller would hold the lock beside B.
#[test]
fn an_idle_lock_is_not_handed_off_after_a_change_of_history() {
    let mut crowd = Crowd::new(2);
    idle(&mut crowd);
    crowd.worlds[0].event(Event::Disconnected("cut".to_owned()));
    crowd.server.flush();
    crowd.server.set_replication_id("second");
    let elsewhere = crowd.acquire(1, 10_000);
    assert!(crowd.has(1, elsewhere), "the empty server grants the lock to B");
    let early = acquire(&mut crowd, 0);
    crowd.worlds[0].connect();
    let late = acquire(&mut crowd, 0);
    assert!(!crowd.has(0, early) && !crowd.has(0, late), "A's callers get no lock beside B");
}

/// 1. A returns from Y to X, and asks whether X has its idle lock. X, which has granted it to others, refuses to answer.
/// 2. A's next caller comes, less than a second after Y has confirmed the lock.
#[test]
pub(super) fn an_idle_lock_of_another_history_is_not_handed_off_while_the_server_refuses_to_answer()
{
    let mut crowd = Crowd::new(1);
    crowd.fail_over("Y");
    crowd.pass(ms(100));
    idle(&mut crowd);
    crowd.fail_over("first");
    let world = &mut crowd.worlds[0];
    world.server.set_loading(true);
    while !world.wire.is_empty() {
        world.answer_one();
    }
    let op = world.acquire_held(10_000, Wait::Never, LINGERING);
    assert!(world.outcome(op).is_none(), "an unconfirmed lock is not handed off");
}

/// On a live connection, only replies show that the server has lost its data.
#[test]
fn an_idle_lock_is_confirmed_before_it_is_handed_off_late() {
    let mut crowd = Crowd::new(2);
    let hold = HoldTerms { linger: ms(3_000), ..RENEWED };
    let op = crowd.worlds[0].acquire_held(10_000, Wait::Forever, hold);
    crowd.settle();
    let lease = crowd.worlds[0].lease(op).0;
    crowd.worlds[0].release(lease);
    crowd.pass(ms(2_500));
    let op = crowd.worlds[0].acquire_held(10_000, Wait::Forever, hold);
    let next = crowd.worlds[0].lease(op).0;
    assert!(next > lease, "the confirmed lock is handed off");
    crowd.worlds[0].release(next);
    crowd.server.flush();
    crowd.pass(ms(500));
    assert_eq!(idle_locks(&crowd), 0, "the server denies it");
}

#[test]
fn an_earlier_owner_cannot_touch_an_idle_lock() {
    let mut crowd = Crowd::new(1);
    let (lease, _) = idle(&mut crowd);
    for command in [
        Command::Release { lease, exported: false },
        Command::Extend { lease, ttl: Some(ms(60_000)) },
        Command::Downgrade { lease },
        Command::StopRenewing { lease },
    ] {
        let op = crowd.worlds[0].command(command);
        assert_eq!(crowd.worlds[0].outcome(op), Some(&Outcome::Lost));
    }
    assert!(crowd.worlds[0].wire.is_empty(), "an earlier owner causes no request");
    assert_eq!(idle_locks(&crowd), 1);
}

#[test]
fn what_must_not_be_handed_off_does_not_linger() {
    let mut crowd = Crowd::new(1);
    let op = acquire(&mut crowd, 0);
    let lease = crowd.worlds[0].lease(op).0;
    crowd.worlds[0].command(Command::Release { lease, exported: true });
    crowd.settle();
    assert!(is_free(&crowd), "an exported lock is released at once");
    for (hold, mode) in
        [(HoldTerms { renew: false, ..LINGERING }, Mode::Exclusive), (LINGERING, Mode::SHARED)]
    {
        let op = crowd.worlds[0].acquire_as(10_000, Wait::Forever, hold, mode);
        crowd.settle();
        let lease = crowd.worlds[0].lease(op).0;
        crowd.release(0, lease);
        assert_eq!(idle_locks(&crowd), 0);
        crowd.assert_nothing_left();
    }
}

#[test]
fn several_locks_at_once_release_the_idle_ones_first() {
    let mut crowd = Crowd::new(1);
    idle(&mut crowd);
    let names = vec!["a".to_owned(), "b".to_owned(), "c".to_owned()];
    let (ttl, label) = (ms(10_000), "".into());
    let op = crowd.worlds[0].command(Command::AcquireAll { names, ttl, label, hold: RENEWED });
    crowd.settle();
    assert!(
        matches!(crowd.worlds[0].outcome(op), Some(Outcome::AcquiredAll { .. })),
        "the idle lock makes room: {:?}",
        crowd.worlds[0].outcome(op)
    );
}

/// 1. A has the lock. The server loses it, and grants it to another caller of A, which has not heard of that.
/// 2. Both are released. If both were kept, the older one would be found by nobody again.
#[test]
fn of_two_idle_locks_with_one_name_the_older_one_is_released() {
    let mut crowd = Crowd::new(1);
    let op = acquire(&mut crowd, 0);
    let (first, _) = crowd.worlds[0].lease(op);
    crowd.server.flush();
    let op = crowd.worlds[0].acquire_held(10_000, Wait::Never, LINGERING);
    crowd.settle();
    let (second, _) = crowd.worlds[0].lease(op);
    assert_ne!(first.token_id(), second.token_id());
    for lease in [first, second] {
        crowd.release(0, lease);
        assert_eq!(idle_locks(&crowd), 1);
    }
    crowd.pass(ms(301));
    assert_eq!((idle_locks(&crowd), is_free(&crowd)), (0, true));
    crowd.assert_nothing_left();
}

/// Manager 0 takes the lock for 10 ms, again and again, with a pause. The time after its first release at which manager 1
/// gets the lock, which asks for it from time to time, and is in no queue.
fn time_until_a_poller_gets_it(crowd: &mut Crowd, hold: HoldTerms) -> Duration {
    let began = crowd.worlds[0].now;
    loop {
        let op = crowd.worlds[0].acquire_held(10_000, Wait::UpTo(ms(100)), hold);
        crowd.settle();
        if crowd.has(0, op) {
            let lease = crowd.worlds[0].lease(op).0;
            crowd.pass(ms(10));
            crowd.release(0, lease);
        }
        for _ in 0..40 {
            let tried = crowd.worlds[1].acquire(10_000, Wait::Never);
            crowd.settle();
            if crowd.has(1, tried) {
                return crowd.worlds[0].now.since(began + ms(10));
            }
            crowd.pass(ms(1));
        }
    }
}

/// 1. A's callers take an idle lock again and again. No server knows of B, which tries again and again.
/// 2. The lock has been idle for `linger` in all, or it would have been: the next release is one at the server.
#[test]
pub(super) fn who_is_in_no_queue_waits_for_linger_and_one_hold_at_most() {
    let mut crowd = Crowd::new(2);
    let waited = time_until_a_poller_gets_it(&mut crowd, LINGERING);
    assert!((ms(200)..=ms(310)).contains(&waited), "{waited:?}");
    let mut crowd = Crowd::new(2);
    assert_eq!(time_until_a_poller_gets_it(&mut crowd, RENEWED), ms(0));
}

#[test]
fn each_caller_keeps_a_lock_for_its_linger_from_the_first_time_on_that_it_was_idle() {
    for (next, longest) in [(ms(3_000), 3_000), (ms(100), 100), (ms(0), 50)] {
        let mut crowd = Crowd::new(1);
        idle(&mut crowd);
        crowd.pass(ms(50));
        let op = crowd.worlds[0].acquire_held(
            10_000,
            Wait::Never,
            HoldTerms { linger: next, ..RENEWED },
        );
        let lease = crowd.worlds[0].lease(op).0;
        crowd.release(0, lease);
        assert_eq!(is_free(&crowd), next.is_zero(), "{next:?}");
        crowd.pass(ms(longest - 50));
        crowd.pass(ms(1));
        assert!(is_free(&crowd), "{next:?}");
    }
}

/// 1. A's first caller holds the lock; its second one polls, as old code does.
/// 2. The first caller comes again and again. If the lock were idle meanwhile, the second one would find it held.
#[test]
fn a_lock_for_which_a_caller_here_polls_is_released_at_the_server() {
    let mut crowd = Crowd::new(1);
    crowd.worlds[0].machine.context.config.polling = Some(Polling { least: ms(50), most: ms(75) });
    let op = acquire(&mut crowd, 0);
    let lease = crowd.worlds[0].lease(op).0;
    let second = acquire(&mut crowd, 0);
    crowd.release(0, lease);
    assert_eq!(idle_locks(&crowd), 0);
    crowd.pass(ms(80));
    assert!(crowd.has(0, second), "the caller that polls gets the lock");
}

/// One round trip to the server later.
fn answer_after(world: &mut World, round_trip: Duration) {
    world.pass(round_trip);
    world.settle();
}

/// Manager 0 has a lock of a server that takes `round_trip` to answer, and has just released it.
fn idle_far_away(ttl: u64, round_trip: Duration) -> Crowd {
    let mut crowd = Crowd::new(1);
    // The first fence of a server needs a request more.
    let first = crowd.held(0, ttl);
    crowd.release(0, first);
    let world = &mut crowd.worlds[0];
    let hold = HoldTerms { linger: ms(ttl / 3), ..RENEWED };
    let op = world.acquire_held(ttl, Wait::Forever, hold);
    answer_after(world, round_trip);
    let lease = world.lease(op).0;
    world.release(lease);
    crowd
}

/// 1. The server is asked about an idle lock, so that the last answer is never too old.
/// 2. The next caller comes while that question is under way.
#[test]
fn a_question_under_way_keeps_nobody_from_an_idle_lock() {
    let mut crowd = idle_far_away(10_000, ms(200));
    assert_eq!(idle_locks(&crowd), 1);
    let world = &mut crowd.worlds[0];
    let mut asked = 0;
    for _ in 0..18 {
        world.pass(ms(100));
        let hold = HoldTerms { linger: ms(3_333), ..RENEWED };
        let op = world.acquire_held(10_000, Wait::Never, hold);
        let lease = world.lease(op).0;
        world.release(lease);
        if !world.wire.is_empty() {
            // Others ask for further fences.
            let is_question = |call: &Call| call.script() == Some(Script::Extend);
            asked += world.wire.iter().filter(|(_, call)| is_question(call)).count();
            assert!(
                world.wire.iter().all(|(_, call)| call.script() != Some(Script::Delete)),
                "the idle lock is not released"
            );
            answer_after(world, ms(100));
        }
    }
    assert!((3..=8).contains(&asked), "{asked}");
}

/// Its next caller would seldom get it, and the questions would cost more than it saves.
#[test]
fn a_lock_whose_server_takes_too_long_to_answer_does_not_linger() {
    for (ttl, round_trip, lingers) in
        [(10_000, 312, 1), (10_000, 313, 0), (1_000, 31, 1), (1_000, 32, 0), (60_000, 501, 0)]
    {
        let mut crowd = idle_far_away(ttl, ms(round_trip));
        assert_eq!(idle_locks(&crowd), lingers, "{ttl} {round_trip}");
        crowd.settle();
        crowd.pass(ms(ttl / 3 + 1));
        assert!(is_free(&crowd), "the lock is released in the end");
    }
}

/// 1. A's lock is idle. B takes it by force, and no message tells A.
/// 2. A's next caller gets it, with a smaller fence than B has, since the last answer is not old.
/// 3. A asks as soon as it would have for an idle lock, not at a third of the lease.
#[test]
fn what_happened_to_an_idle_lock_is_known_soon_after_it_was_taken() {
    let mut crowd = Crowd::new(2);
    let hold = HoldTerms { linger: ms(3_000), ..RENEWED };
    let op = crowd.worlds[0].acquire_held(10_000, Wait::Forever, hold);
    crowd.settle();
    let (lease, _) = crowd.worlds[0].lease(op);
    crowd.worlds[0].release(lease);
    crowd.pass(ms(1_500));
    crowd.worlds[1].acquire_held(10_000, Wait::Steal, RENEWED);
    crowd.worlds[0].lose_messages();
    crowd.worlds[1].settle();
    crowd.worlds[0].lose_messages();
    let op = crowd.worlds[0].acquire_held(10_000, Wait::Never, hold);
    let (lease, _) = crowd.worlds[0].lease(op);
    crowd.pass(ms(10_000 / 16));
    assert!(
        crowd.worlds[0].lost.iter().any(|(lost, _)| *lost == lease),
        "within a sixteenth of the lease"
    );
}

/// 1. A's idle lock is asked about; then B takes it by force, and no message tells A.
/// 2. A's next caller gets it before that answer, which says that it was A's.
#[test]
pub(super) fn a_lock_that_was_taken_during_a_question_is_asked_about_once_more() {
    let mut crowd = Crowd::new(2);
    let hold = HoldTerms { linger: ms(3_000), ..RENEWED };
    let op = crowd.worlds[0].acquire_held(10_000, Wait::Forever, hold);
    crowd.settle();
    let (lease, _) = crowd.worlds[0].lease(op);
    crowd.worlds[0].release(lease);
    while crowd.worlds[0].wire.is_empty() {
        crowd.worlds[0].pass(ms(1));
    }
    crowd.worlds[0].execute_one();
    let now = crowd.worlds[0].now;
    crowd.worlds[1].now = now;
    crowd.worlds[1].acquire_held(10_000, Wait::Steal, RENEWED);
    crowd.worlds[1].settle();
    crowd.worlds[0].lose_messages();
    let op = crowd.worlds[0].acquire_held(10_000, Wait::Never, hold);
    let (lease, _) = crowd.worlds[0].lease(op);
    crowd.worlds[0].answer_one();
    crowd.pass(ms(10_000 / 16));
    assert!(
        crowd.worlds[0].lost.iter().any(|(lost, _)| *lost == lease),
        "the caller learns of the theft: {:?}",
        crowd.worlds[0].lost
    );
}
