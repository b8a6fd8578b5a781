//! Messages are hints: any client that may publish can forge them.

use super::one_shots::{arrive_late, assert_idle, take_held, two};
use super::waiting::Crowd;
use super::world::{ONE_LEASE, RENEWED, World, ms};
use crate::machine::{Command, Event, HoldTerms, LeaseId, LossReason, Outcome, Protocol, Wait};
use crate::protocol::{
    Call, EXACT_MAX, Grant, LockKeys, Message, Mode, Mono, ServerTime, Taken, Token, valid_until,
};
use std::time::Duration;

fn stolen(token: &str, keys: LockKeys) -> Event {
    Event::Message(Message::Taken(Taken { keys, token: Token::from_text(token), adopted: false }))
}

fn granted(token: &str, keys: LockKeys, fence: u64, time: ServerTime) -> Event {
    let token = Token::from_text(token);
    Event::Message(Message::Granted(vec![Grant { token, fence, claim: ms(3_000), time, keys }]))
}

/// A lock of each mode that is held, and its token.
fn held_of_each_kind() -> Vec<(World, LeaseId, &'static str)> {
    let kinds = [
        (RENEWED, Mode::Exclusive),
        (ONE_LEASE, Mode::Exclusive),
        (HoldTerms { renew: false, leave_to_expire: true, ..RENEWED }, Mode::Exclusive),
        (RENEWED, Mode::SHARED),
    ];
    let held = kinds.into_iter().map(|(hold, mode)| {
        let mut world = World::connected();
        let (lease, _) = take_held(&mut world, hold, mode);
        (world, lease, "hf1.c.1")
    });
    held.collect()
}

/// 1. A tenant publishes `stolen <token> <key>`.
/// 2. The owner gives the lock up without a question to the server.
/// 3. The lock blocks all clients for the rest of its lease.
#[test]
fn a_forged_theft_takes_nothing_away() {
    for (mut world, lease, token) in held_of_each_kind() {
        let until = world.deadlines[&lease];
        world.event(stolen(token, World::keys()));
        assert!(world.deadlines.contains_key(&lease), "not before the server has been asked");
        assert_eq!(world.wire.len(), 1, "it is asked at once");
        // Further messages cause no request while one is in flight.
        world.event(stolen(token, World::keys()));
        assert_eq!(world.wire.len(), 1);
        world.settle();
        assert_eq!(world.lost, []);
        assert_eq!(world.deadlines[&lease], until, "to ask is not to lengthen");
        world.release(lease);
        assert_idle(&mut world);
    }
}

#[test]
fn a_theft_is_believed_once_the_server_confirms_it() {
    for (mut world, lease, token) in held_of_each_kind() {
        let mut thief = World::connected_to(&world.server, "d");
        let op = thief.acquire(10_000, Wait::Steal);
        thief.settle();
        thief.lease(op);
        assert!(world.receive_one(), "the message of the theft arrives");
        assert!(world.deadlines.contains_key(&lease), "{token} is asked for first");
        world.settle();
        assert_eq!(world.lost, [(lease, LossReason::Stolen)]);
        assert_idle(&mut world);
    }
}

/// 1. Somebody frees a lock by force. The message to its owner is lost; that to the next caller of its process arrives.
/// 2. The owner releases the lock. The caller after that got it as well, without the server, with a smaller fence.
#[test]
fn what_was_granted_to_the_next_caller_here_is_not_handed_off() {
    let (mut a, mut b) = two();
    let (lease, _) = take_held(&mut a, RENEWED, Mode::Exclusive);
    let [next, last] = [(); 2].map(|()| a.acquire(10_000, Wait::Forever));
    a.settle();
    b.command(Command::Force { name: "a".to_owned(), foreign: false, owners: Vec::new() });
    b.settle();
    a.receive_only(|message| matches!(message, Message::Granted(_)));
    let (new, _) = a.lease(next);
    a.settle();
    a.release(lease);
    a.settle();
    assert_eq!(a.outcome(last), None, "the lock is that of the caller before");
    a.release(new);
    a.settle();
    let (newest, _) = a.lease(last);
    a.release(newest);
    assert_idle(&mut a);
}

/// The reply to a request from before the message proves nothing about later events.
#[test]
fn a_renewal_under_way_does_not_refute_a_theft() {
    let mut world = World::connected();
    let (lease, _) = take_held(&mut world, RENEWED, Mode::Exclusive);
    world.pass(ms(3_400));
    assert!(matches!(world.wire.front(), Some((_, Call::Renew { .. }))), "a renewal is under way");
    world.execute_one();
    let mut thief = World::connected_to(&world.server, "d");
    thief.now = world.now;
    thief.acquire(10_000, Wait::Steal);
    thief.settle();
    assert!(world.receive_one(), "the message of the theft arrives");
    world.answer_what_is_there();
    assert_eq!(world.lost, [], "the answer is older than the message");
    world.settle();
    assert_eq!(world.lost, [(lease, LossReason::Stolen)]);
}

/// A check that could not be sent is sent on the next connection.
#[test]
fn a_theft_that_could_not_be_checked_is_checked_later() {
    let mut world = World::connected();
    let hold = HoldTerms { renew: false, ..RENEWED };
    let (lease, _) = take_held(&mut world, hold, Mode::Exclusive);
    world.event(stolen("hf1.c.1", World::keys()));
    world.server.command(world.now, &["DEL", World::keys().lock()]);
    world.lose_requests();
    world.connect();
    world.settle();
    assert_eq!(world.lost, [(lease, LossReason::Stolen)]);
}

#[test]
fn a_message_that_does_not_fit_causes_no_check() {
    let other = || LockKeys::new("lock:", "b");
    let mut world = World::connected();
    take_held(&mut world, RENEWED, Mode::Exclusive);
    world.event(stolen("hf1.c.1", other()));
    world.event(stolen("hf1.c.1.label", World::keys()));
    world.event(stolen("hf1.c.2", World::keys()));
    world.event(stolen("hf1.d.1", World::keys()));
    assert!(world.wire.is_empty(), "no hold is checked");

    let mut world = World::connected();
    world.machine.context.config.confirm = true;
    world.acquire(10_000, Wait::Forever);
    world.settle();
    assert_eq!(world.confirms.len(), 1, "it waits for replicas");
    world.event(stolen("hf1.c.1", other()));
    world.event(stolen("hf1.c.1.label", World::keys()));
    assert!(world.wire.is_empty(), "no grant is checked");

    let mut crowd = Crowd::new(2);
    let lease = crowd.held(1, 10_000);
    let op = crowd.acquire(0, 10_000);
    let now = crowd.worlds[0].now;
    let (fence, time) = (crowd.server.time(now).as_micros(), crowd.server.time(now));
    let sent = crowd.worlds[0].machine.stats().requests;
    crowd.worlds[0].event(granted("hf1.a.1", other(), fence, time));
    crowd.worlds[0].event(granted("hf1.a.1.label", World::keys(), fence, time));
    assert_eq!(crowd.worlds[0].machine.stats().requests, sent);
    assert!(!crowd.has(0, op), "a message that does not fit grants nothing");
    crowd.release(1, lease);
    assert!(crowd.has(0, op), "the release grants the lock");
}

/// 1. A tenant with the rights of another prefix publishes a grant with the fence 9007199254740991.
/// 2. A second holder starts.
/// 3. The resource accepts no later owner, since no later fence is greater.
#[test]
fn a_fence_from_the_future_starts_no_hold() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(1, 10_000);
    let op = crowd.acquire(0, 10_000);
    let now = crowd.worlds[0].now;
    let time = crowd.server.time(now);
    let later = time.as_micros() + 1_000_000;
    for fence in [EXACT_MAX, later] {
        crowd.worlds[0].event(granted("hf1.a.1", World::keys(), fence, time));
        assert!(!crowd.has(0, op), "the server is asked first");
        crowd.settle();
        assert!(!crowd.has(0, op), "it says no");
    }
    crowd.release(1, lease);
    let (_, fence) = crowd.worlds[0].lease(op);
    assert!(fence < later, "the fence is the counter's: {fence}");
}

#[test]
fn a_fence_is_believed_as_far_ahead_as_clocks_may_have_run_apart() {
    for (too_far_us, believed) in [(0, true), (1, false)] {
        let mut crowd = Crowd::new(2);
        crowd.held(1, 10_000);
        let op = crowd.acquire(0, 10_000);
        let read = crowd.server.time(crowd.worlds[0].now).as_micros();
        crowd.worlds[0].pass(ms(1_500));
        // One percent of the time since, and a ms for a counter that is new.
        let fence = read + 1_500_000 + 15_000 + 1_000 + too_far_us;
        let time = crowd.server.time(crowd.worlds[0].now);
        crowd.worlds[0].event(granted("hf1.a.1", World::keys(), fence, time));
        assert_eq!(crowd.has(0, op), believed);
    }
}

/// A clock that was set back leaves counters that are ahead of it: the answer to the claim tells the fence then.
#[test]
fn a_lock_whose_counter_is_ahead_of_the_clock_is_granted_by_the_reply() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(1, 10_000);
    let op = crowd.acquire(0, 10_000);
    let now = crowd.worlds[0].now;
    let ahead = crowd.server.time(now).as_micros() + 3_600_000_000;
    crowd.server.set_fence(now, ahead);
    crowd.release(1, lease);
    assert!(crowd.worlds[0].lease(op).1 > ahead, "the fence is above the counter's, {ahead}");
}

/// Replicas would confirm a lost hold; the same token is sent again.
#[test]
fn a_theft_of_a_grant_that_waits_for_replicas_is_checked() {
    for forged in [true, false] {
        let (mut a, mut b) = two();
        a = a.by_scripts();
        a.machine.context.config.confirm = true;
        let op = a.acquire(10_000, Wait::Forever);
        a.answer_one();
        assert_eq!(a.confirms.len(), 1);
        if forged {
            a.event(stolen("hf1.a.1", World::keys()));
        } else {
            b.acquire(10_000, Wait::Steal);
            b.settle();
            assert!(a.receive_one(), "the message of the theft arrives");
        }
        a.settle();
        // The confirmation of the first grant is void now.
        assert!(a.outcome(op).is_none(), "the first confirmation counts no more");
        if forged {
            a.confirms.pop_front();
            a.confirm(true);
            assert!(
                matches!(a.outcome(op), Some(Outcome::Acquired { .. })),
                "the later confirmation counts: {:?}",
                a.outcome(op)
            );
        } else {
            let waits = a.server.queue_len(a.now, &World::keys());
            assert_eq!(waits, 1, "it is enqueued behind the thief");
        }
        arrive_late(&mut a);
    }
}

/// A process that hangs must not hold forever, whatever messages cause checks; nor may checks prevent its
/// renewal.
#[test]
fn forged_thefts_neither_renew_a_lease_nor_keep_it_from_being_renewed() {
    for alive in [false, true] {
        let mut world = World::connected();
        world.alive = alive;
        let hold = HoldTerms { stall_timeout: ms(500), ..RENEWED };
        let op = world.acquire_held(1_000, Wait::Never, hold);
        world.settle();
        let (lease, _) = world.lease(op);
        for _ in 0..500 {
            world.pass(ms(10));
            world.event(stolen("hf1.c.1", World::keys()));
            // Another message arrives while the check of the first is in flight.
            world.execute_one();
            world.event(stolen("hf1.c.1", World::keys()));
            world.answer_what_is_there();
            world.settle();
        }
        let lost = if alive { Vec::new() } else { vec![(lease, LossReason::Stalled)] };
        assert_eq!(world.lost, lost, "alive: {alive}");
    }
}

/// 1. B releases, and a message grants the lock to A. FLUSHALL follows, and B takes the lock anew.
/// 2. A's poll is executed after that, and its answer overtakes the message.
/// 3. The message arrives: A would start beside B.
#[test]
fn a_grant_counts_no_more_when_a_later_answer_denies_it() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(1, 10_000);
    let op = crowd.acquire(0, 10_000);
    while crowd.worlds[0].wire.is_empty() {
        crowd.worlds[0].pass(ms(1));
        crowd.worlds[1].pass(ms(1));
        crowd.worlds[1].settle();
    }
    crowd.worlds[1].release(lease);
    crowd.worlds[1].settle();
    crowd.server.flush();
    let other = crowd.worlds[1].acquire_held(10_000, Wait::Forever, RENEWED);
    crowd.worlds[1].settle();
    let (other, _) = crowd.worlds[1].lease(other);
    // The poll is executed after the grant.
    crowd.worlds[0].pass(ms(1));
    crowd.worlds[0].answer_one();
    assert!(crowd.worlds[0].receive_one(), "the message of the grant");
    assert!(!crowd.has(0, op), "the server has been asked since");
    crowd.settle();
    crowd.release(1, other);
    assert!(crowd.has(0, op), "the waiter gets its turn");
}

/// 1. A waits behind B, whose release grants the lock to A by a message, which is delayed. The claim ends.
/// 2. B takes the lock, with a greater fence. Then the server's clock is set back, and A is enqueued once more.
/// 3. B releases: A has the lock again. The first message arrives, and seems new: A would start with the smaller fence.
#[test]
pub(super) fn a_grant_from_before_the_clock_was_set_back_starts_no_hold() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(1, 30_000);
    let op = crowd.acquire(0, 30_000);
    crowd.pass(ms(6_000));
    crowd.worlds[1].release(lease);
    crowd.worlds[1].settle();
    crowd.worlds[1].pass(ms(3_100));
    let other = crowd.worlds[1].acquire_held(30_000, Wait::Forever, RENEWED);
    crowd.worlds[1].settle();
    let (other, later) = crowd.worlds[1].lease(other);
    crowd.server.step_clock(-8_000_000);
    // The polls, and the request to be enqueued again.
    for _ in 0..3_100 {
        crowd.worlds[0].pass(ms(1));
        while !crowd.worlds[0].wire.is_empty() {
            crowd.worlds[0].answer_one();
        }
    }
    assert_eq!(crowd.queue_len(), 1);
    crowd.worlds[1].release(other);
    crowd.worlds[1].settle();
    assert!(crowd.worlds[0].receive_one(), "the first message");
    assert!(!crowd.has(0, op), "the server is asked first");
    crowd.settle();
    assert!(crowd.worlds[0].lease(op).1 > later, "the fence is above B's, {later}");
}

#[test]
fn a_theft_is_asked_about_without_a_renewal_that_is_not_due() {
    let mut world = World::connected();
    let (lease, _) = take_held(&mut world, RENEWED, Mode::Exclusive);
    world.pass(ms(1_000));
    world.event(stolen("hf1.c.1", World::keys()));
    let left = world.deadlines[&lease].since(world.now);
    let asked = world.wire.front().map(|(_, call)| call);
    assert!(matches!(asked, Some(Call::Extend { ttl, .. }) if *ttl == left), "{asked:?}");
}

#[test]
fn a_grant_for_nobody_is_given_back_unless_its_claim_is_over() {
    let over = valid_until(Mono::default(), ms(3_000)).since(Mono::default());
    let moment = Duration::from_micros(1);
    for (age, given_back) in [(ms(0), true), (over.saturating_sub(moment), true), (over, false)] {
        let mut world = World::connected();
        let (probe, sent) = (world.server.probe(world.now), world.now);
        let time = probe.time;
        world.event(Event::Probed { probe, sent });
        world.pass(age);
        world.event(granted("hf1.c.7", World::keys(), time.as_micros() + 1, time));
        assert_eq!(!world.wire.is_empty(), given_back, "{age:?} old");
    }
}

/// The poll may yet take the lock by the old token, if the connection breaks ahead of the release.
#[test]
fn a_token_that_is_replaced_while_it_asks_is_given_back_twice() {
    let mut crowd = Crowd::new(2);
    crowd.held(1, 60_000);
    let op = crowd.acquire(0, 10_000);
    let world = &mut crowd.worlds[0];
    while world.wire.is_empty() {
        world.pass(ms(10));
    }
    let fence = world.server.time(world.now).as_micros();
    world.server.set_replication_id("second");
    let (mut probe, sent) = (world.server.probe(world.now), world.now);
    let time = probe.time;
    probe.time = ServerTime::from_micros(fence + 1);
    world.event(Event::Probed { probe, sent });
    world.event(granted("hf1.a.1", World::keys(), fence, time));
    world.settle();
    assert_eq!(world.released, ["hf1.a.1"]);
    world.pass(ms(1_000));
    world.settle();
    assert_eq!(world.released, ["hf1.a.1"; 2]);
    world.cancel(op);
    world.settle();
    assert!(world.machine.is_idle(), "{:?}", world.machine);
}
