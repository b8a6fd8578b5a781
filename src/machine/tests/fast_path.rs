//! The fast path: locks that are taken by plain commands, and what happens between these.

use super::one_shots::{assert_idle, two};
use super::server::Server;
use super::snapshot::Snapshot;
use super::world::{ONE_LEASE, RENEWED, World, ms};
use crate::machine::{Command, Event, LeaseId, OpId, Outcome, Protocol, Wait};
use crate::protocol::keys::COUNTER;
use crate::protocol::{COUNTER_AHEAD_MAX, Call, Failure, LockKeys, Mode, Refusal, Token, TokenId};

/// Above the epoch of every manager here.
const READY: u64 = 1_700_000_900_000_000;

/// Two managers of a server whose counter is above their epochs.
fn ready() -> (World, World) {
    let (a, b) = two();
    a.server.set_fence(a.now, READY);
    (a, b)
}

fn next_call(world: &World) -> &Call {
    &world.wire.front().expect("a request").1
}

fn acquire(world: &mut World) -> OpId {
    world.acquire_held(10_000, Wait::Forever, RENEWED)
}

#[test]
fn a_free_lock_costs_one_round_trip_and_leaves_nothing() {
    let (mut world, _) = ready();
    let op = acquire(&mut world);
    assert!(matches!(next_call(&world), Call::Take { .. }), "plain commands take a free lock");
    world.settle();
    let (lease, fence) = world.lease(op);
    assert_eq!((fence, world.server.fence(world.now)), (READY + 1, Some(READY + 1)));
    world.release(lease);
    assert!(matches!(next_call(&world), Call::Delete { .. }), "its release is a mere deletion");
    world.settle();
    assert_eq!(world.machine.stats().requests, 2);
    assert_eq!(world.server.leftovers(world.now), "");
    assert!(world.machine.is_idle(), "nothing is left to do");
}

/// The right to the server's own command may be taken away, or another server stand behind a proxy.
#[test]
fn a_deletion_that_is_refused_is_left_to_the_script() {
    for mode in [Mode::Exclusive, Mode::SHARED] {
        let (mut world, _) = ready();
        let op = world.acquire_named("a", 10_000, Wait::Never, RENEWED, mode);
        world.settle();
        let op = world.release(world.lease(op).0);
        let (request, call) = world.wire.pop_front().expect("a request");
        assert!(matches!(call, Call::Delete { .. }), "{call:?}");
        let refusal = Refusal { code: "NOPERM".to_owned(), detail: "delex".to_owned() };
        world.reply(request, Err(Failure::Refused(refusal)));
        world.settle();
        assert_eq!(world.outcome(op), Some(&Outcome::Done));
        assert_eq!(world.server.leftovers(world.now), "");
        assert!(world.machine.is_idle(), "nothing is left to do");
    }
}

#[test]
fn to_try_a_held_lock_costs_one_round_trip() {
    let (mut a, mut b) = ready();
    acquire(&mut b);
    b.settle();
    for is_plain in [true, false] {
        let sent = a.machine.stats().requests;
        let op = a.acquire_held(10_000, Wait::Never, RENEWED);
        assert_eq!(matches!(next_call(&a), Call::Take { .. }), is_plain);
        a.settle();
        assert_eq!(a.outcome(op), Some(&Outcome::Held));
        assert_eq!(a.machine.stats().requests, sent + 1);
        assert_idle(&mut a);
    }
    // A timeout names the holder, which takes another request.
    b.acquire_named("b", 10_000, Wait::Never, RENEWED, Mode::Exclusive);
    b.settle();
    let op = a.acquire_named("b", 10_000, Wait::UpTo(ms(0)), RENEWED, Mode::Exclusive);
    a.settle();
    let Some(Outcome::TimedOut { holder, .. }) = a.outcome(op) else { panic!("no timeout") };
    assert!(!holder.is_empty(), "the timeout names the holder");
}

fn acquire_both(world: &mut World) -> OpId {
    let names = vec!["a".to_owned(), "b".to_owned()];
    world.command(Command::AcquireAll { names, ttl: ms(10_000), label: "".into(), hold: RENEWED })
}

#[test]
fn several_free_locks_cost_one_round_trip() {
    let (mut world, _) = ready();
    let op = acquire_both(&mut world);
    assert!(matches!(next_call(&world), Call::TakeAll { .. }), "plain commands take them");
    world.settle();
    let Some(Outcome::AcquiredAll { lease, fences }) = world.outcome(op).cloned() else {
        panic!("{:?}", world.outcome(op));
    };
    assert_eq!((fences, world.machine.stats().requests), (vec![READY + 1, READY + 2], 1));
    world.release(lease);
    world.release(LeaseId::first(TokenId(lease.token_id().0 + 1)));
    let deletes = |(_, call): &(_, Call)| matches!(call, Call::Delete { .. });
    assert!(world.wire.iter().all(deletes), "each release is a mere deletion");
    world.settle();
    assert_eq!(world.server.leftovers(world.now), "");
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn several_locks_of_which_another_has_one_are_refused_at_once() {
    let (mut a, mut b) = ready();
    let held = b.acquire_named("b", 10_000, Wait::Never, RENEWED, Mode::Exclusive);
    b.settle();
    let op = acquire_both(&mut a);
    a.settle();
    assert_eq!((a.outcome(op), a.machine.stats().requests), (Some(&Outcome::Held), 1));
    b.release(b.lease(held).0);
    b.settle();
    assert_eq!(a.server.leftovers(a.now), "");
}

/// 1. B waits for `a`, whose lease ends.
/// 2. MSETEX takes both locks without a look at the queue.
/// 3. MGET shows the queue: both are given back, and `release` grants `a` to B.
#[test]
fn several_locks_do_not_overtake_those_who_wait_for_one() {
    let (mut a, mut b) = ready();
    a.acquire_held(10_000, Wait::Never, ONE_LEASE);
    a.settle();
    let waits = acquire(&mut b);
    b.settle();
    let mut third = World::connected_to(&a.server, "c");
    a.server.command(a.now, &["DEL", World::keys().lock()]);
    let op = acquire_both(&mut third);
    third.settle();
    assert_eq!(third.outcome(op), Some(&Outcome::Held));
    b.settle();
    b.lease(waits);
    let other = LockKeys::new("lock:", "b");
    assert_eq!(a.server.owner(a.now, &other), None);
}

/// 1. A's plain commands are lost with its connection, and reach the server late: they take both locks ahead of B, who waits.
/// 2. A script with the same tokens would complete that. So the locks are taken one by one, and the late ones given back.
#[test]
fn several_locks_whose_answer_is_lost_are_taken_one_by_one() {
    let (mut a, mut b) = ready();
    let held = b.acquire_named("a", 10_000, Wait::Never, RENEWED, Mode::Exclusive);
    b.settle();
    let op = acquire_both(&mut a);
    let late: Vec<_> = a.wire.iter().map(|(_, call)| call.clone()).collect();
    a.lose_requests();
    a.connect();
    a.settle();
    assert_eq!(a.outcome(op), Some(&Outcome::OneByOne));
    b.release(b.lease(held).0);
    b.settle();
    for call in &late {
        drop(a.server.execute(a.now, call));
    }
    let owns = |a: &World| a.server.owner(a.now, &LockKeys::new("lock:", "b"));
    assert!(owns(&a).is_some(), "they were executed for nobody");
    a.pass(ms(1_500));
    a.settle();
    assert_eq!((owns(&a), a.server.leftovers(a.now).as_str()), (None, ""));
}

#[test]
fn several_locks_without_fences_are_completed_by_the_script_or_given_back() {
    for (fence, refused) in [(1, false), (8_900_000_000_000_000, true)] {
        let (mut world, _) = ready();
        world.server.set_fence(world.now, fence);
        let op = acquire_both(&mut world);
        assert!(matches!(next_call(&world), Call::TakeAll { .. }), "plain commands come first");
        world.settle();
        match world.outcome(op).cloned() {
            Some(Outcome::AcquiredAll { fences, .. }) if !refused => {
                let time = world.server.time(world.now).as_micros();
                assert!(fences[0] >= time, "{fences:?} begin at the clock, {time}");
            }
            Some(Outcome::Server { refusal, .. }) if refused => {
                assert_eq!(&*refusal.code, "FENCE");
                assert_eq!(world.server.leftovers(world.now), "");
            }
            other => panic!("{fence}: {other:?}"),
        }
    }
}

#[test]
fn several_locks_are_taken_by_the_script_where_the_server_knows_no_other_way() {
    let (mut world, _) = ready();
    world.machine.servers.refuse_several();
    let op = acquire_both(&mut world);
    assert!(matches!(next_call(&world), Call::AcquireAll { .. }), "the script takes them");
    world.settle();
    assert!(matches!(world.outcome(op), Some(Outcome::AcquiredAll { .. })), "both are held");
}

#[test]
fn a_counter_that_other_code_has_raised_issues_no_fence() {
    let (mut a, _) = ready();
    let year_us = u64::try_from(COUNTER_AHEAD_MAX.as_micros()).unwrap();
    // The clock goes on until the counter is read.
    let least = a.server.time(a.now).as_micros() + year_us + 1_000_000;
    for raised in [least, 8_900_000_000_000_000] {
        for mode in [Mode::Exclusive, Mode::SHARED] {
            a.server.set_fence(a.now, raised);
            let op = a.acquire_named("a", 10_000, Wait::Forever, RENEWED, mode);
            assert!(matches!(next_call(&a), Call::Take { .. }), "plain commands ask for the lock");
            a.settle();
            let Some(Outcome::Server { refusal, key }) = a.outcome(op) else {
                panic!("no refusal")
            };
            assert_eq!((&*refusal.code, key.as_deref()), ("FENCE", Some(COUNTER)));
            assert_eq!(a.server.leftovers(a.now), "");
        }
    }
    // As far ahead as a fence may be.
    a.server.set_fence(a.now, least - 2_000_000);
    let op = acquire(&mut a);
    a.settle();
    assert_eq!(a.lease(op).1, least - 2_000_000 + 1);
}

#[test]
fn a_new_counter_is_lifted_by_the_script() {
    let mut world = World::connected();
    let op = acquire(&mut world);
    world.settle();
    let (lease, fence) = world.lease(op);
    assert_eq!(Some(fence), world.server.fence(world.now));
    assert!(fence >= world.server.time(world.now).as_micros(), "it begins at the clock: {fence}");
    assert_eq!(world.machine.stats().requests, 2);
    world.release(lease);
    world.settle();
    // Nothing may still arrive, so it is given back once.
    assert!(world.machine.is_idle(), "one release is enough");
}

#[test]
fn a_lock_that_was_held_is_asked_for_by_the_script_until_it_is_free() {
    let (mut a, mut b) = ready();
    let held = acquire(&mut a);
    a.settle();
    let waits = acquire(&mut b);
    assert!(matches!(next_call(&b), Call::Take { .. }), "the first request is by plain commands");
    b.settle();
    a.release(a.lease(held).0);
    a.settle();
    b.settle();
    let (lease, _) = b.lease(waits);
    b.release(lease);
    assert!(matches!(next_call(&b), Call::Release { .. }), "the script releases a lock in use");
    b.settle();
    for is_free in [false, true] {
        let op = acquire(&mut b);
        assert_eq!(matches!(next_call(&b), Call::Take { .. }), is_free);
        b.settle();
        b.release(b.lease(op).0);
        b.settle();
    }
}

/// A waiter whose lock is gone, and a caller whose plain commands are on their way.
fn ahead_of_a_waiter() -> (World, World, OpId, World, OpId) {
    let (mut a, mut b) = ready();
    a.acquire_held(10_000, Wait::Never, ONE_LEASE);
    a.settle();
    let waits = acquire(&mut b);
    b.settle();
    let mut third = World::connected_to(&a.server, "c");
    a.server.command(a.now, &["DEL", World::keys().lock()]);
    let op = acquire(&mut third);
    assert!(matches!(next_call(&third), Call::Take { .. }));
    (a, b, waits, third, op)
}

/// The caller gives way to the waiter, and gets the lock after it.
fn gives_way(third: &mut World, op: OpId, b: &mut World, waits: OpId) {
    third.settle();
    assert_eq!(third.outcome(op), None);
    b.settle();
    let (lease, fence) = b.lease(waits);
    b.release(lease);
    b.settle();
    third.settle();
    assert!(third.lease(op).1 > fence, "who gave way gets a fence above {fence}");
}

#[test]
pub(super) fn a_lock_that_a_script_confirms_ahead_of_waiters_is_handed_to_them() {
    let (_, mut b, waits, mut third, op) = ahead_of_a_waiter();
    third.execute_and_lose_replies();
    third.connect();
    third.settle();
    let (lease, fence) = third.lease(op);
    let value = third.server.snapshot(third.now, &World::keys()).value;
    assert!(value.is_some_and(|value| value.ends_with('+')), "a mere deletion would not free it");
    third.release(lease);
    third.settle();
    b.settle();
    assert!(b.lease(waits).1 > fence, "its fence is above {fence}");
}

#[test]
fn waiters_are_not_overtaken_while_the_counter_is_refused() {
    let (a, mut b, waits, mut third, op) = ahead_of_a_waiter();
    a.server.command(a.now, &["SET", COUNTER, "other code's"]);
    while !third.wire.is_empty() {
        third.execute_one();
    }
    a.server.set_fence(a.now, READY + 1_000);
    third.answer_one();
    gives_way(&mut third, op, &mut b, waits);
}

/// 1. A's lease ends, and B waits.
/// 2. SET takes the free lock for C without a look at the queue.
/// 3. MGET shows the queue: C gives the lock back, and `release` grants it to B.
#[test]
fn waiters_are_not_overtaken_when_a_lease_has_ended() {
    let (_, mut b, waits, mut third, op) = ahead_of_a_waiter();
    gives_way(&mut third, op, &mut b, waits);
}

/// 1. A's SET takes the lock. Its lease ends before INCRBY, since the server was stopped, or the lock is stolen.
/// 2. B takes the lock with a fence below the one that A's INCRBY reserves next, and may hold it still.
/// 3. MGET does not show A's token, so A has no lock. The same holds if the data are lost in between.
#[test]
fn a_lock_that_was_lost_between_the_commands_is_not_granted() {
    for thief in [true, false] {
        let (mut a, mut b) = ready();
        let op = acquire(&mut a);
        // SET alone.
        a.execute_one();
        if !thief {
            a.server.command(a.now, &["DEL", World::keys().lock()]);
        }
        let wait = if thief { Wait::Steal } else { Wait::Never };
        let other = b.acquire(10_000, wait);
        b.settle();
        let (lease, fence) = b.lease(other);
        a.settle();
        assert_eq!(a.outcome(op), None);
        b.release(lease);
        b.settle();
        a.settle();
        assert!(a.lease(op).1 > fence, "A's fence is above B's, {fence}");
    }
}

#[test]
fn a_lock_without_a_fence_is_given_back() {
    let (mut world, _) = ready();
    world.server.command(world.now, &["SET", COUNTER, "other code's"]);
    let op = acquire(&mut world);
    world.settle();
    let Some(Outcome::Server { refusal, key }) = world.outcome(op) else {
        panic!("{:?}", world.outcome(op));
    };
    assert_eq!((refusal.code.as_str(), key.as_deref()), ("WRONGTYPE", Some(COUNTER)));
    world.server.command(world.now, &["DEL", COUNTER]);
    for _ in 0..20 {
        world.pass(ms(100));
        world.settle();
    }
    assert_idle(&mut world);
}

#[test]
fn a_lost_answer_is_made_up_for_by_the_script() {
    let (mut world, _) = ready();
    let op = acquire(&mut world);
    for commands in 1..=2 {
        // The connection breaks after SET, and once more after all commands.
        for _ in 0..commands {
            world.execute_one();
        }
        world.event(Event::Disconnected("cut".to_owned()));
        while !world.connecting {
            world.pass(ms(10));
        }
        world.connect();
    }
    world.settle();
    let (lease, fence) = world.lease(op);
    assert!(fence > READY, "the fence is above the counter's start: {fence}");
    world.release(lease);
    world.pass(ms(1_100));
    world.settle();
    assert_eq!(world.server.owner(world.now, &World::keys()), None);
}

fn share(world: &mut World) -> OpId {
    world.acquire_as(10_000, Wait::Forever, RENEWED, Mode::SHARED)
}

#[test]
fn a_lone_share_costs_as_little_as_the_whole_lock() {
    let (mut world, _) = ready();
    let op = share(&mut world);
    assert!(matches!(next_call(&world), Call::Take { .. }), "plain commands take a lone share");
    world.settle();
    let (lease, fence) = world.lease(op);
    assert_eq!(Some(fence), world.server.fence(world.now));
    world.release(lease);
    assert!(matches!(next_call(&world), Call::Delete { .. }), "its release is a mere deletion");
    world.settle();
    assert_eq!(world.server.leftovers(world.now), "");
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn a_share_is_asked_for_by_the_script_while_another_is_being_asked_for() {
    let (mut world, _) = ready();
    let ops: Vec<_> = (0..3).map(|_| share(&mut world)).collect();
    let is_take = |(_, call): &(_, Call)| matches!(call, Call::Take { .. });
    assert_eq!(world.wire.iter().filter(|each| is_take(each)).count(), 1);
    world.settle();
    // One round trip for all: nobody who asks for another lock behind them gets it ahead of them.
    let fences: Vec<_> = ops.iter().map(|op| world.lease(*op).1).collect();
    assert!(fences.is_sorted(), "{fences:?}");
    assert!(world.server.is_shared(world.now, &World::keys()), "the lock is held by shares");
}

#[test]
fn others_join_a_lone_share_and_know_that_they_are_not_alone() {
    let (mut a, mut b) = ready();
    let first = share(&mut a);
    a.settle();
    let second = share(&mut b);
    b.settle();
    let ((first, earlier), (second, later)) = (a.lease(first), b.lease(second));
    assert!(earlier < later, "fences rise: {later} after {earlier}");
    assert!(a.server.is_shared(a.now, &World::keys()), "the lock is held by shares");
    // Renewals find it where it is now.
    a.pass(ms(4_000));
    a.settle();
    a.release(first);
    a.settle();
    b.release(second);
    // The lock was in use, so it may be again.
    assert!(matches!(next_call(&b), Call::Release { .. }), "the script releases a lock in use");
    share(&mut b);
    assert!(
        b.wire.iter().any(|(_, call)| matches!(call, Call::Acquire { .. })),
        "the next share is asked for by the script"
    );
    b.settle();
}

/// 1. A sends SET for a share, and its connection breaks. On a new one its token enters the queue.
/// 2. The owner's lease ends, and the SET of the old connection arrives: A's token has a lone share of 10 s, and an
///    entry.
/// 3. B's request collects the share and serves the queue. It would grant A's entry a share until its claim, in 3 s,
///    in place of the 10 s.
///
/// So a collected share leaves the queue, and A finds it when it asks again.
#[test]
fn a_share_that_was_taken_late_for_a_waiter_is_not_granted_to_it_once_more() {
    let (mut a, mut b) = ready();
    let held = a.acquire_held(10_000, Wait::Never, ONE_LEASE);
    a.settle();
    a.lease(held);
    let op = share(&mut b);
    b.settle();
    let keys = World::keys();
    let waiter = a.server.snapshot(a.now, &keys).line[0].token.clone();
    // Commands that were sent for the waiter before, and the lease has just ended.
    let value = Token::from_text(&waiter).lone_share();
    a.server.command(a.now, &["SET", keys.lock(), value.as_str(), "PX", "9000"]);
    // Whoever asks next serves the queue.
    share(&mut a);
    a.settle();
    let Snapshot { line, shares, .. } = a.server.snapshot(a.now, &keys);
    assert!(line.is_empty(), "{line:?}");
    let kept = shares.iter().find(|share| share.token == waiter).expect("its share");
    assert_eq!(kept.remaining_ms, 9_000);
    for _ in 0..60 {
        b.pass(ms(100));
        b.settle();
    }
    b.lease(op);
}

/// 1. A's lock ends while B waits. Plain commands that were sent for B's entry take the free lock, late.
/// 2. B finds that when it asks again, and its entry must leave the queue: after B's release a script would grant the lock
///    to it once more.
#[test]
pub(super) fn a_waiter_whose_late_plain_commands_took_the_lock_leaves_the_queue() {
    let (mut a, mut b) = ready();
    let held = a.acquire_held(10_000, Wait::Never, ONE_LEASE);
    a.settle();
    a.lease(held);
    let op = acquire(&mut b);
    b.settle();
    let keys = World::keys();
    let waiter = a.server.snapshot(a.now, &keys).line[0].token.clone();
    a.server.command(a.now, &["SET", keys.lock(), &waiter, "PX", "9000"]);
    while b.outcome(op).is_none() {
        b.pass(ms(100));
        b.settle();
    }
    b.lease(op);
    let Snapshot { line, value, .. } = b.server.snapshot(b.now, &keys);
    assert_eq!((line, value), (Vec::new(), Some(waiter)));
}

/// 1. A has a lone share. B joins it, which gives A's share another fence in the set.
/// 2. The server restarts with its data, and A compares the fence of its share with its own.
///
/// A difference would mean a later grant by message to the same token. A's token never waited, so A accepts the
/// fence; otherwise a restart would cost every share that others have joined.
#[test]
fn a_lone_share_outlives_a_restart_that_others_have_joined_before() {
    let (mut a, mut b) = two();
    // The counter begins at the clock.
    let op = acquire(&mut a);
    a.settle();
    a.release(a.lease(op).0);
    a.settle();
    let first = share(&mut a);
    assert!(matches!(next_call(&a), Call::Take { .. }), "plain commands take the lone share");
    a.settle();
    share(&mut b);
    b.settle();
    let (lease, fence) = a.lease(first);
    a.pass(ms(100));
    a.server.set_replication_id("restarted");
    a.event(Event::Disconnected("restart".to_owned()));
    while !a.connecting {
        a.pass(ms(10));
    }
    a.connect();
    a.settle();
    assert!(
        a.machine.servers.data_of(&World::keys()).is_outdated(fence),
        "the share's fence is from before the restart"
    );
    assert!(a.machine.leases.hold_of(lease).is_some(), "the renewal denies a fence that it knows");
    a.release(lease);
    a.settle();
    assert_eq!(a.server.owners(a.now, &World::keys()).len(), 1);
}

#[test]
fn a_server_in_use_by_others_needs_no_script_either() {
    let server = Server::new();
    let mut first = World::connected_to(&server, "a");
    let op = acquire(&mut first);
    first.settle();
    first.release(first.lease(op).0);
    first.settle();
    // Another name: the counter is the server's.
    let before = first.machine.stats().requests;
    first.acquire_named("other", 10_000, Wait::Forever, RENEWED, Mode::Exclusive);
    first.settle();
    assert_eq!(first.machine.stats().requests, before + 1);
}
