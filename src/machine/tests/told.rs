//! Holders, and those who wait for other code's locks, that the server tells of changed keys.

use super::world::{RENEWED, World, ms};
use crate::machine::tracked::{TOLD_MAX, TRACKED_MAX, Tracking};
use crate::machine::{Command, Event, LeaseId, LossReason, NodeId, OpId, Wait};
use crate::protocol::{Call, Failure, Message, Mode, Refusal};

/// A lock with a lease of 30 s, which is renewed every 10 s.
fn holding(world: &mut World) -> LeaseId {
    let op = world.acquire_held(30_000, Wait::Never, RENEWED);
    world.settle();
    world.lease(op).0
}

/// Lets time pass, with all that happens meanwhile.
fn pass(world: &mut World, seconds: u64) {
    for _ in 0..seconds * 10 {
        world.pass(ms(100));
        world.settle();
    }
}

fn delete(world: &World) {
    world.server.command(world.now, &["DEL", World::keys().lock()]);
}

fn requests(world: &World) -> u64 {
    world.machine.context.stats.requests
}

#[test]
pub(super) fn a_holder_is_told_of_its_deleted_lock_however_often_it_was_renewed() {
    for (seconds, by_script) in [(2, false), (11, true), (25, false), (61, true)] {
        let mut world = World::told();
        world.machine.servers.at(NodeId::default()).data.refuses_plain_renewals = by_script;
        let lease = holding(&mut world);
        pass(&mut world, seconds);
        assert!(world.lost.is_empty());
        delete(&world);
        world.settle();
        assert_eq!(world.lost, [(lease, LossReason::Expired)], "after {seconds} s");
    }
}

/// 1. A has held a lock for less than a second when its server restarts without it.
/// 2. A connects, and asks about the lock. The server refuses, since it loads its data.
/// 3. A asks again after a sixteenth of the rest. That step is not the one that was planned for the tracking alone.
#[test]
pub(super) fn a_young_hold_is_asked_about_again_if_the_question_was_refused() {
    let mut world = World::told();
    let lease = holding(&mut world);
    world.event(Event::Disconnected("restart".to_owned()));
    world.server.flush();
    world.server.set_replication_id("restarted");
    world.pass(ms(500));
    world.connect();
    let (request, call) = world.wire.pop_front().unwrap();
    assert!(matches!(call, Call::Renew { .. } | Call::Extend { .. }), "{call:?}");
    let refusal = Refusal { code: "LOADING".to_owned(), detail: String::new() };
    world.reply(request, Err(Failure::Refused(refusal)));
    for _ in 0..30 {
        world.pass(ms(100));
        // The server need not tell.
        world.tracks.clear();
        world.settle();
    }
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}

#[test]
fn without_messages_a_holder_learns_of_its_deleted_lock_with_its_renewal() {
    let mut world = World::connected();
    let lease = holding(&mut world);
    pass(&mut world, 2);
    delete(&world);
    world.settle();
    assert!(world.lost.is_empty());
    pass(&mut world, 9);
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}

#[test]
fn a_short_hold_is_not_tracked_and_a_longer_one_costs_no_request() {
    let [mut told, mut silent] = [World::told(), World::connected()];
    for (seconds, is_tracked) in [(0, false), (2, true), (5, true), (11, true), (21, true)] {
        let asked = [&mut told, &mut silent].map(|world| {
            let before = requests(world);
            let lease = holding(world);
            world.pass(ms(900));
            pass(world, seconds);
            assert_eq!(!world.machine.tracked_leases(None).is_empty(), world.tells && is_tracked);
            world.release(lease);
            world.settle();
            requests(world) - before
        });
        assert_eq!(asked[0], asked[1], "{seconds} s");
    }
    assert_eq!(told.machine.tracked_leases(None), []);
}

#[test]
pub(super) fn a_message_alone_ends_no_lease_and_one_is_not_the_last() {
    let mut world = World::told();
    let lease = holding(&mut world);
    pass(&mut world, 2);
    for message in [Message::Changed(World::keys()), Message::AllChanged] {
        let before = requests(&world);
        world.event(Event::Message(message));
        assert!(matches!(world.wire.front(), Some((_, Call::Extend { .. }))));
        world.settle();
        assert_eq!(requests(&world), before + 1);
        assert!(world.lost.is_empty() && world.machine.hold_of(lease).is_some());
    }
    delete(&world);
    world.settle();
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}

#[test]
fn a_server_that_forgets_what_it_tracks_costs_a_few_questions_a_second() {
    let mut world = World::told();
    holding(&mut world);
    pass(&mut world, 2);
    let before = requests(&world);
    let mut told = 0;
    // It tells of each key as soon as it is to track it.
    while world.machine.leases.all().any(|held| held.tracking.is_on()) {
        world.event(Event::Message(Message::Changed(World::keys())));
        world.settle();
        told += 1;
    }
    assert_eq!((told, requests(&world) - before), (TOLD_MAX.into(), TOLD_MAX.into()));
    pass(&mut world, 2);
    assert!(world.machine.leases.all().all(|held| held.tracking == Tracking::On(0)));
}

#[test]
fn what_has_changed_during_a_question_is_asked_about_once_more() {
    let mut world = World::told();
    let lease = holding(&mut world);
    pass(&mut world, 2);
    world.event(Event::Message(Message::Changed(World::keys())));
    world.execute_one();
    delete(&world);
    assert!(world.receive_one(), "the server tells ahead of the answer");
    world.answer_one();
    assert!(world.lost.is_empty());
    world.settle();
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}

#[test]
fn a_thief_is_named_though_the_change_was_told_first() {
    let mut world = World::told();
    let lease = holding(&mut world);
    pass(&mut world, 2);
    let mut thief = World::joining(&world.server, "thief", world.now);
    thief.acquire(1_000, Wait::Steal);
    thief.settle();
    world.settle();
    assert_eq!(world.lost, [(lease, LossReason::Stolen)]);
}

#[test]
fn a_waiter_of_the_same_manager_ends_no_tracking() {
    let mut world = World::told();
    let lease = holding(&mut world);
    pass(&mut world, 2);
    world.acquire_held(30_000, Wait::Forever, RENEWED);
    world.settle();
    delete(&world);
    world.settle();
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}

#[test]
fn everything_is_asked_about_as_there_is_room() {
    const LOCKS: usize = 50;
    let mut world = World::told();
    for number in 0..LOCKS {
        world.acquire_named(&number.to_string(), 30_000, Wait::Never, RENEWED, Mode::Exclusive);
    }
    world.settle();
    pass(&mut world, 2);
    world.window = Some((4, 4));
    // Any effect limits the windows.
    world.acquire_named("other", 30_000, Wait::Never, RENEWED, Mode::Exclusive);
    world.settle();
    world.server.flush();
    assert!(world.receive_one());
    let mut most = 0;
    while !world.wire.is_empty() {
        most = most.max(world.wire.len());
        world.answer_one();
    }
    assert_eq!(most, 4);
    assert_eq!(world.lost.len(), LOCKS);
}

#[test]
fn a_new_connection_is_to_track_what_is_held_and_asks_what_has_changed() {
    let mut world = World::told();
    let lease = holding(&mut world);
    pass(&mut world, 11);
    for _ in 0..2 {
        world.event(Event::Disconnected("cut".to_owned()));
        world.connect();
        assert!(matches!(world.wire.front(), Some((_, Call::Extend { .. }))));
        // An answer so late shows that the connection is steady.
        world.pass(ms(50));
        world.settle();
        assert_eq!(
            world.machine.leases.all().next().map(|held| held.tracking),
            Some(Tracking::On(1))
        );
    }
    world.event(Event::Disconnected("cut".to_owned()));
    delete(&world);
    world.connect();
    world.settle();
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}

#[test]
fn a_new_connection_that_does_not_tell_is_not_asked_to() {
    let mut world = World::told();
    holding(&mut world);
    pass(&mut world, 2);
    world.event(Event::Disconnected("cut".to_owned()));
    world.tells = false;
    world.connect();
    assert!(world.wire.is_empty());
    pass(&mut world, 20);
    assert!(world.machine.leases.all().all(|held| held.tracking == Tracking::Off));
}

#[test]
fn a_shared_lock_is_not_tracked() {
    let mut world = World::told();
    let op = world.acquire_as(30_000, Wait::Never, RENEWED, Mode::SHARED);
    world.settle();
    world.lease(op);
    pass(&mut world, 25);
    assert_eq!(world.machine.tracked_leases(None), []);
    // Nor one that was a whole lock.
    let mut world = World::told();
    let lease = holding(&mut world);
    pass(&mut world, 2);
    world.command(Command::Downgrade { lease });
    world.settle();
    pass(&mut world, 25);
    assert!(world.lost.is_empty());
    assert!(world.machine.leases.all().all(|held| held.tracking == Tracking::Off));
}

#[test]
fn a_message_to_a_manager_that_tracks_nothing_costs_nothing() {
    let mut world = World::connected();
    let lease = holding(&mut world);
    pass(&mut world, 25);
    assert!(world.lost.is_empty() && world.machine.hold_of(lease).is_some());
    for message in [Message::Changed(World::keys()), Message::AllChanged] {
        world.event(Event::Message(message));
        assert!(world.wire.is_empty());
    }
}

#[test]
fn a_lock_that_other_code_overwrites_is_lost_at_once() {
    let mut world = World::told();
    let lease = holding(&mut world);
    pass(&mut world, 2);
    world.server.set_foreign(world.now, &World::keys(), "other code", ms(5_000));
    world.settle();
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}

#[test]
pub(super) fn no_more_locks_are_tracked_than_there_is_room_for() {
    let mut world = World::told();
    let acquire = |world: &mut World, name: usize| {
        let op =
            world.acquire_named(&name.to_string(), 30_000, Wait::Never, RENEWED, Mode::Exclusive);
        world.settle();
        world.lease(op).0
    };
    let first = acquire(&mut world, 0);
    for name in 1..TRACKED_MAX + 2 {
        acquire(&mut world, name);
    }
    pass(&mut world, 11);
    assert_eq!(world.machine.tracked_leases(None).len(), TRACKED_MAX);
    world.release(first);
    world.settle();
    assert_eq!(world.machine.tracked_leases(None).len(), TRACKED_MAX - 1);
    pass(&mut world, 11);
    assert_eq!(world.machine.tracked_leases(None).len(), TRACKED_MAX);
    // Those that are not tracked learn of it with their renewals.
    world.server.flush();
    world.settle();
    assert_eq!(world.lost.len(), TRACKED_MAX);
    pass(&mut world, 11);
    assert_eq!(world.lost.len(), TRACKED_MAX + 1);
}

#[test]
fn a_caller_that_extends_its_lock_ends_no_tracking() {
    let mut world = World::told();
    let lease = holding(&mut world);
    pass(&mut world, 2);
    world.command(Command::Extend { lease, ttl: Some(ms(60_000)) });
    world.settle();
    delete(&world);
    world.settle();
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}

/// A caller that waits for a lock of other code, which ends after `lease_ms`.
fn waiting(mut world: World, lease_ms: u64) -> (World, OpId) {
    world.server.set_foreign(world.now, &World::keys(), "other code", ms(lease_ms));
    let op = world.acquire(30_000, Wait::Forever);
    world.settle();
    assert_eq!(world.outcome(op), None);
    (world, op)
}

#[test]
pub(super) fn a_waiter_is_told_that_other_code_has_freed_the_lock() {
    let (mut world, op) = waiting(World::told(), 600_000);
    pass(&mut world, 5);
    delete(&world);
    world.settle();
    world.lease(op);
}

#[test]
fn a_waiter_that_is_told_polls_a_tenth_as_often() {
    let [told, silent] = [World::told(), World::connected()].map(|world| {
        let (mut world, _) = waiting(world, 600_000);
        let before = requests(&world);
        pass(&mut world, 60);
        requests(&world) - before
    });
    assert!((40..=60).contains(&told) && silent >= 5 * told, "{told} and {silent}");
}

#[test]
fn the_end_of_other_codes_lease_is_found_though_nobody_tells() {
    let (mut world, op) = waiting(World::told(), 700);
    world.pass(ms(710));
    while let Some((request, call)) = world.wire.pop_front() {
        let reply = world.reach_server(request, &call);
        world.reply(request, reply);
    }
    world.lease(op);
}

#[test]
fn what_happened_between_a_poll_and_the_tracking_is_told_at_once() {
    let mut world = World::told();
    world.server.set_foreign(world.now, &World::keys(), "other code", ms(600_000));
    let op = world.acquire(30_000, Wait::Forever);
    while !world.wire.is_empty() {
        world.answer_one();
    }
    delete(&world);
    world.settle();
    world.lease(op);
}

#[test]
fn a_message_in_vain_costs_a_waiter_one_poll_and_its_next_poll_is_soon() {
    let (mut world, op) = waiting(World::told(), 600_000);
    let before = requests(&world);
    // Other code renews its lease.
    world.server.set_foreign(world.now, &World::keys(), "other code", ms(500_000));
    world.settle();
    assert_eq!(requests(&world), before + 1);
    world.server.set_foreign(world.now, &World::keys(), "other code", ms(400_000));
    world.settle();
    assert_eq!(requests(&world), before + 1, "it is not told between two polls again");
    delete(&world);
    world.pass(ms(140));
    world.settle();
    world.lease(op);
}

#[test]
fn a_waiter_asks_again_after_a_flush_and_on_a_new_connection() {
    let (mut world, op) = waiting(World::told(), 600_000);
    world.server.flush();
    world.settle();
    world.lease(op);
    let (mut world, op) = waiting(World::told(), 600_000);
    world.event(Event::Disconnected("cut".to_owned()));
    delete(&world);
    world.connect();
    world.settle();
    world.lease(op);
}

#[test]
fn a_holder_is_told_although_the_marks_of_waiters_have_changed_its_key() {
    for changes in 1..9 {
        let mut world = World::told();
        let lease = holding(&mut world);
        pass(&mut world, 2);
        for _ in 0..changes {
            // Two of these are the begin and the end of one waiter elsewhere.
            world.event(Event::Message(Message::Changed(World::keys())));
            world.settle();
        }
        pass(&mut world, 2);
        delete(&world);
        world.settle();
        assert_eq!(world.lost, [(lease, LossReason::Expired)], "after {changes} changes");
    }
}

#[test]
fn a_holder_whose_key_holds_another_type_is_told() {
    let mut world = World::told();
    let lease = holding(&mut world);
    pass(&mut world, 2);
    delete(&world);
    world.server.command(world.now, &["HSET", World::keys().lock(), "other", "lock"]);
    world.settle();
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}

/// A request for more handoffs writes the key as well.
#[test]
fn a_hold_after_many_handoffs_is_told() {
    for callers in [2, 40, 100] {
        let mut world = World::told();
        let ops: Vec<_> =
            (0..callers).map(|_| world.acquire_held(30_000, Wait::Forever, RENEWED)).collect();
        world.settle();
        let (last, others) = ops.split_last().expect("some callers");
        for op in others {
            let (lease, _) = world.lease(*op);
            world.release(lease);
            world.settle();
        }
        let (lease, _) = world.lease(*last);
        pass(&mut world, 2);
        delete(&world);
        world.settle();
        assert_eq!(world.lost, [(lease, LossReason::Expired)], "after {callers} callers");
    }
}

/// The server grants a lock only when it is free, so a hold of the same manager has ended there.
#[test]
fn a_holder_is_asked_about_when_the_server_grants_its_lock_to_another_caller_here() {
    for shared in [false, true] {
        let mut world = World::connected();
        let mode = if shared { Mode::SHARED } else { Mode::Exclusive };
        let first = world.acquire_named("a", 60_000, Wait::Never, RENEWED, mode);
        world.settle();
        let (lost, _) = world.lease(first);
        let next = world.acquire(60_000, Wait::Forever);
        world.settle();
        assert_eq!(world.outcome(next), None);
        let keys = World::keys();
        world.server.command(world.now, &["DEL", keys.lock()]);
        while world.outcome(next).is_none() {
            world.pass(ms(100));
            world.settle();
        }
        world.settle();
        assert!(!world.deadlines.contains_key(&lost), "{mode:?}: it is lost");
    }
}

/// The right may be taken away while connected.
#[test]
fn a_server_that_refuses_to_tell_is_not_relied_on() {
    let mut world = World::told();
    let lease = holding(&mut world);
    world.pass(ms(1_500));
    world.settle();
    assert_eq!(world.machine.tracked_leases(None), [lease.token_id()]);
    world.tells = false;
    world.event(Event::TrackingDenied);
    world.settle();
    assert_eq!(world.machine.tracked_leases(None), []);
    world.pass(ms(1_500));
    world.settle();
    assert_eq!(world.machine.tracked_leases(None), []);
}
