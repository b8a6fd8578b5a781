//! Downgrade, adopt, and several locks by one call: lost replies, repeats, late arrivals.

use super::server::Server;
use super::world::{COMMAND_TIMEOUT, ONE_LEASE, RENEWED, World, ms};
use crate::machine::{Command, HoldTerms, LeaseId, LossReason, OpId, Outcome, Protocol, Wait};
use crate::protocol::keys::COUNTER;
use crate::protocol::{Call, Failure, Label, LockKeys, Mode, Reply, TokenId};
use std::sync::Arc;

/// Two managers on one server.
pub(super) fn two() -> (World, World) {
    let server = Server::new();
    (World::connected_to(&server, "a"), World::connected_to(&server, "b"))
}

pub(super) fn take(world: &mut World, mode: Mode) -> (LeaseId, u64) {
    take_held(world, ONE_LEASE, mode)
}

pub(super) fn take_held(world: &mut World, hold: HoldTerms, mode: Mode) -> (LeaseId, u64) {
    let op = world.acquire_as(10_000, Wait::Never, hold, mode);
    world.settle();
    world.lease(op)
}

pub(super) fn adopt(world: &mut World, owner: &str, mode: Mode) -> OpId {
    let (name, owner, ttl) = ("a".to_owned(), owner.to_owned(), ms(10_000));
    world.command(Command::Adopt {
        name,
        owner,
        label: Label::Text(Arc::default()),
        ttl,
        hold: RENEWED,
        mode,
    })
}

fn together(world: &mut World) -> OpId {
    let names = vec!["a".to_owned(), "b".to_owned()];
    let (ttl, label) = (ms(10_000), Arc::default());
    world.command(Command::AcquireAll { names, ttl, label, hold: ONE_LEASE })
}

fn both() -> [LockKeys; 2] {
    ["a", "b"].map(|name| LockKeys::new("lock:", name))
}

fn owners(world: &World) -> [Option<String>; 2] {
    both().map(|keys| world.server.owner(world.now, &keys))
}

/// Executes the lost requests; their replies are dropped.
pub(super) fn arrive_late(world: &mut World) {
    for call in std::mem::take(&mut world.late) {
        let _unheard = world.server.execute(world.now, &call);
    }
}

pub(super) fn assert_idle(world: &mut World) {
    world.settle();
    world.pass(ms(1_000));
    world.settle();
    assert!(world.machine.is_idle(), "{:?}", world.machine);
}

#[test]
fn an_adopted_lock_has_a_larger_fence_and_its_former_owner_is_notified() {
    for mode in [Mode::Exclusive, Mode::SHARED] {
        let (mut a, mut b) = two();
        let (lease, fence) = take(&mut a, mode);
        let op = adopt(&mut b, "hf1.a.1", mode);
        b.settle();
        let (adopted, larger) = b.lease(op);
        assert!(larger > fence, "the adopted lock's fence is above {fence}");
        a.settle();
        assert_eq!(a.lost, [(lease, LossReason::Adopted)]);
        // A late repeat changes nothing.
        b.release(adopted);
        assert_idle(&mut b);
        assert_idle(&mut a);
        assert_eq!(b.server.owner(b.now, &World::keys()), None);
        assert!(take(&mut b, Mode::Exclusive).1 > larger, "the next fence is above {larger}");
    }
}

#[test]
fn an_adoption_whose_reply_was_lost_is_repeated() {
    for mode in [Mode::Exclusive, Mode::SHARED] {
        let (mut a, mut b) = two();
        let (_, fence) = take(&mut a, mode);
        let op = adopt(&mut b, "hf1.a.1", mode);
        b.execute_and_lose_replies();
        let issued = b.server.fence(b.now);
        b.connect();
        b.settle();
        assert!(b.lease(op).1 > fence, "the adopted lock's fence is above {fence}");
        // The fence of the lost answer was not used.
        assert!(Some(b.lease(op).1) >= issued, "no earlier fence is used: {issued:?}");
    }
}

#[test]
fn an_adoption_without_a_reply_is_given_back() {
    let (mut a, mut b) = two();
    take(&mut a, Mode::Exclusive);
    let op = adopt(&mut b, "hf1.a.1", Mode::Exclusive);
    b.execute_and_lose_replies();
    b.pass(COMMAND_TIMEOUT);
    assert!(
        matches!(b.outcome(op), Some(Outcome::Connection(_))),
        "the adoption is unanswered: {:?}",
        b.outcome(op)
    );
    b.connect();
    assert_idle(&mut b);
    assert_eq!(b.server.owner(b.now, &World::keys()), None);
}

#[test]
fn an_adoption_that_a_close_overtakes_is_given_back() {
    let (mut a, mut b) = two();
    take(&mut a, Mode::Exclusive);
    let op = adopt(&mut b, "hf1.a.1", Mode::Exclusive);
    b.command(Command::Close);
    assert_eq!(b.outcome(op), Some(&Outcome::Closed));
    b.settle();
    assert!(b.stopped && b.machine.is_idle(), "B closes with nothing left to do");
    assert_eq!(b.server.owner(b.now, &World::keys()), None);
}

const LEFT: HoldTerms = HoldTerms { leave_to_expire: true, ..ONE_LEASE };

/// Adopts under the token `value`, which other processes may have as well.
pub(super) fn adopt_as(world: &mut World, owner: &str, value: &str, hold: HoldTerms) -> OpId {
    adopt_by(world, owner, Label::Chosen(value.into()), hold)
}

/// Adopts under the token that `label` is.
fn adopt_by(world: &mut World, owner: &str, label: Label, hold: HoldTerms) -> OpId {
    let (name, owner, ttl, mode) = ("a".to_owned(), owner.to_owned(), ms(60_000), Mode::Exclusive);
    world.command(Command::Adopt { name, owner, label, ttl, hold, mode })
}

fn owner(world: &World) -> Option<String> {
    world.server.owner(world.now, &World::keys())
}

/// `runOnce` marks a slot that way:
///
/// 1. A gives its lock the value that marks the slot, and leaves it to expire. The server has done that, but A gets no
///    answer, or closes before it comes, or it comes after the end of the lease.
/// 2. If A released that value, the slot would run again.
#[test]
fn an_adoption_of_what_is_left_to_expire_is_never_given_back() {
    let unanswered = |a: &mut World| {
        a.execute_and_lose_replies();
        a.pass(COMMAND_TIMEOUT);
        a.connect();
    };
    let closed = |a: &mut World| {
        a.command(Command::Close);
    };
    let late = |a: &mut World| {
        let (request, call) = a.wire.pop_front().unwrap();
        let reply = a.server.execute(a.now, &call);
        a.machine.context.config.command_timeout = ms(90_000);
        a.now = a.now + ms(60_000);
        a.reply(request, reply);
    };
    for (interrupt, lasts) in
        [(&unanswered as &dyn Fn(&mut World), true), (&closed, true), (&late, false)]
    {
        let mut a = World::connected_as("a");
        take(&mut a, Mode::Exclusive);
        let op = adopt_by(&mut a, "hf1.a.1", Label::Made("hf1.a.1 done".into()), LEFT);
        interrupt(&mut a);
        assert!(
            matches!(a.outcome(op), Some(Outcome::Connection(_) | Outcome::Closed)),
            "the caller gets no lock"
        );
        a.settle();
        a.pass(ms(1_000));
        let released = |call: &Call| call.token().as_str() == "hf1.a.1 done";
        assert!(!a.wire.iter().any(|(_, call)| released(call)), "{:?}", a.wire);
        a.settle();
        assert_eq!(owner(&a).as_deref(), lasts.then_some("hf1.a.1 done"));
    }
}

/// Neither the end of its hold, nor a denial after which a lost request may take it anew, gives a lock back that is left
/// to expire.
#[test]
fn a_hold_that_is_left_to_expire_is_ended_by_the_server_alone() {
    let mut a = World::connected_as("a");
    let (lease, _) =
        take_held(&mut a, HoldTerms { max_hold: Some(ms(2_000)), ..LEFT }, Mode::Exclusive);
    a.pass(ms(2_000));
    a.settle();
    assert_eq!(a.lost, [(lease, LossReason::MaxHold)]);
    assert!(owner(&a).is_some(), "the server keeps the lock");

    let mut a = World::connected_as("a");
    let op = a.acquire_held(10_000, Wait::Never, LEFT);
    a.lose_requests();
    a.connect();
    a.settle();
    let (lease, _) = a.lease(op);
    a.server.flush();
    a.pass(ms(4_000));
    a.settle();
    assert_eq!(a.lost, [(lease, LossReason::Expired)]);
    assert!(a.wire.is_empty() && a.machine.releases.is_empty(), "nothing is given back");
}

/// 1. B takes over what it calls X, for A holds it under that token, and gets no answer.
/// 2. If B released X, A would lose its lock, and a third process could get it beside A.
#[test]
pub(super) fn a_take_over_by_the_same_token_that_is_unanswered_frees_nothing() {
    for executed in [false, true] {
        let (mut a, mut b) = two();
        take_held(&mut a, RENEWED, Mode::Exclusive);
        let op = adopt_as(&mut a, "hf1.a.1", "hf1.x.x", RENEWED);
        a.settle();
        a.lease(op);
        let op = adopt_as(&mut b, "hf1.x.x", "hf1.x.x", RENEWED);
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
        arrive_late(&mut b);
        assert_idle(&mut b);
        assert_eq!(owner(&b).as_deref(), Some("hf1.x.x"));
        // It may be repeated.
        let op = adopt_as(&mut b, "hf1.x.x", "hf1.x.x", RENEWED);
        b.settle();
        b.lease(op);
    }
}

/// 1. A takes its lock over as X. Its request is lost once, so it is sent twice.
/// 2. A releases X, and B gets the lock under that token.
/// 3. A second release of X would free it from B.
#[test]
fn a_chosen_token_that_was_adopted_twice_is_released_once() {
    let (mut a, mut b) = two();
    take(&mut a, Mode::Exclusive);
    let op = adopt_as(&mut a, "hf1.a.1", "hf1.x.x", RENEWED);
    a.execute_and_lose_replies();
    a.connect();
    a.settle();
    a.release(a.lease(op).0);
    a.settle();
    take(&mut b, Mode::Exclusive);
    adopt_as(&mut b, "hf1.b.1", "hf1.x.x", RENEWED);
    b.settle();
    assert_idle(&mut a);
    assert_eq!(owner(&a).as_deref(), Some("hf1.x.x"));
}

#[test]
fn a_share_that_is_older_than_its_adopter_is_kept() {
    let server = Server::new();
    let mut a = World::connected_to(&server, "a");
    let (_, fence) = take(&mut a, Mode::SHARED);
    a.pass(ms(1_000));
    let mut b = World::joining(&server, "b", a.now);
    let op = adopt(&mut b, "hf1.a.1", Mode::SHARED);
    b.settle();
    assert!(b.lease(op).1 > fence, "the adopted share's fence is above {fence}");
    for _ in 0..30 {
        b.pass(ms(1_000));
        b.settle();
    }
    assert_eq!(b.lost, []);
}

#[test]
fn a_downgraded_lock_is_not_adopted_as_exclusive() {
    let (mut a, mut b) = two();
    let (lease, _) = take(&mut a, Mode::Exclusive);
    a.command(Command::Downgrade { lease });
    a.settle();
    let op = adopt(&mut b, "hf1.a.1", Mode::Exclusive);
    b.settle();
    assert_eq!(b.outcome(op), Some(&Outcome::Lost));
    let op = adopt(&mut b, "hf1.a.1", Mode::SHARED);
    b.settle();
    b.lease(op);
}

#[test]
fn a_manager_that_adopts_its_own_lock_has_it_once() {
    let mut world = World::connected();
    let (lease, _) = take(&mut world, Mode::Exclusive);
    world.pubsub_denied = true;
    let op = adopt(&mut world, "hf1.c.1", Mode::Exclusive);
    world.answer_one();
    world.lose_messages();
    let adopted = world.lease(op).0;
    assert_eq!(world.deadlines.keys().collect::<Vec<_>>(), [&adopted]);
    assert_eq!(world.lost, [(lease, LossReason::Adopted)]);
}

/// 1. A acquires. The answer is lost, so its request might be executed later, and A would release the token once more.
/// 2. A adopts the lock under the token that it has, as a caller does that takes its own lock over.
/// 3. If the end of the former lease released the token, the lock would be free while A holds it.
#[test]
fn a_manager_that_adopts_its_own_token_after_a_lost_answer_keeps_the_lock() {
    let mut world = World::connected();
    let op = world.acquire_as(10_000, Wait::Never, RENEWED, Mode::Exclusive);
    world.execute_and_lose_replies();
    world.connect();
    world.settle();
    world.lease(op);
    let op = adopt_as(&mut world, "hf1.c.1", "hf1.c.1", RENEWED);
    world.settle();
    world.pass(ms(1_500));
    world.settle();
    let (lease, _) = world.lease(op);
    assert_eq!(owner(&world).as_deref(), Some("hf1.c.1"));
    world.release(lease);
    assert_idle(&mut world);
    assert_eq!(owner(&world), None);
}

#[test]
fn a_renewal_that_crosses_a_downgrade_loses_nothing() {
    let mut world = World::connected();
    let (lease, fence) = take_held(&mut world, RENEWED, Mode::Exclusive);
    let before = world.command(Command::Extend { lease, ttl: None });
    let op = world.command(Command::Downgrade { lease });
    let behind = world.command(Command::Extend { lease, ttl: None });
    world.execute_and_lose_replies();
    world.connect();
    world.settle();
    for op in [before, op, behind] {
        assert_eq!(world.outcome(op), Some(&Outcome::Done));
    }
    for _ in 0..30 {
        world.pass(ms(1_000));
        world.settle();
    }
    assert_eq!(world.lost, []);
    // The share keeps the fence of the whole lock, and the next whole lock gets a higher one.
    world.release(lease);
    assert_idle(&mut world);
    assert_eq!(world.server.leftovers(world.now), "");
    assert!(take(&mut world, Mode::Exclusive).1 > fence, "the next fence is above {fence}");
}

/// 1. A extends the whole lock, and asks to downgrade it.
/// 2. The server does not know the script of the extension yet, so that is sent once more, and executed after the
///    downgrade.
/// 3. It finds no whole lock. Without a repeat by the keys of the share, A would give up a share that it holds.
#[test]
fn an_extension_that_is_executed_after_a_downgrade_loses_nothing() {
    let mut world = World::connected();
    let (lease, _) = take_held(&mut world, RENEWED, Mode::Exclusive);
    let extension = world.command(Command::Extend { lease, ttl: Some(ms(20_000)) });
    let downgrade = world.command(Command::Downgrade { lease });
    world.wire.rotate_left(1);
    world.settle();
    assert_eq!(world.lost, []);
    for op in [extension, downgrade] {
        assert_eq!(world.outcome(op), Some(&Outcome::Done));
    }
    assert!(world.deadlines[&lease].since(world.now) > ms(15_000), "the share is extended");
    world.release(lease);
    assert_idle(&mut world);
    assert_eq!(world.server.leftovers(world.now), "");
}

/// 1. B gets the lock by message, claims it and asks to downgrade it. Perhaps it extends its lease before that.
/// 2. The server does not know the script of the claim yet, so that is sent once more, and executed after the downgrade.
/// 3. It finds no whole lock. Without a repeat by the keys of the share, B would lose a share that it holds.
#[test]
pub(super) fn a_claim_that_is_executed_after_a_downgrade_loses_nothing() {
    for extends in [false, true] {
        let (mut a, mut b) = two();
        let (lease, _) = take(&mut a, Mode::Exclusive);
        let waiting = b.acquire_held(20_000, Wait::Forever, RENEWED);
        b.settle();
        a.release(lease);
        a.settle();
        b.receive_one();
        let (lease, _) = b.lease(waiting);
        let extend = Command::Extend { lease, ttl: Some(ms(20_000)) };
        let extension = extends.then(|| b.command(extend));
        let downgrade = b.command(Command::Downgrade { lease });
        for _ in 0..b.wire.len() - 1 {
            let (request, call) = b.wire.pop_front().unwrap();
            assert!(matches!(call, Call::Claim { .. }), "{call:?}");
            b.reply(request, Err(Failure::NoScript));
        }
        b.settle();
        assert_eq!(b.lost, [], "extends: {extends}");
        for op in [Some(downgrade), extension].into_iter().flatten() {
            assert_eq!(b.outcome(op), Some(&Outcome::Done));
        }
        // The lease of its grant lasts until its claim, which is repeated soon.
        b.pass(ms(300));
        b.settle();
        assert!(b.deadlines[&lease].since(b.now) > ms(15_000), "the share is claimed");
        b.release(lease);
        b.settle();
        assert_idle(&mut a);
        assert_idle(&mut b);
        assert_eq!(b.server.leftovers(b.now), "");
    }
}

#[test]
fn a_release_that_crosses_a_downgrade_frees_the_lock() {
    let mut world = World::connected();
    let (lease, _) = take(&mut world, Mode::Exclusive);
    let op = world.command(Command::Downgrade { lease });
    world.release(lease);
    world.lose_requests();
    world.connect();
    world.settle();
    arrive_late(&mut world);
    assert!(world.outcome(op).is_some(), "the downgrade has an outcome");
    assert_idle(&mut world);
    assert!(world.server.owners(world.now, &World::keys()).is_empty(), "the lock is free");
}

#[test]
fn a_one_shot_is_repeated_under_the_current_epoch() {
    let mut world = World::connected();
    let (lease, _) = take(&mut world, Mode::Exclusive);
    world.command(Command::Downgrade { lease });
    world.lose_requests();
    world.server.set_replication_id("second");
    world.pass(ms(500));
    let time = world.server.time(world.now);
    world.connect();
    let epoch = world.wire.iter().find_map(|(_, call)| match call {
        Call::Downgrade { epoch, .. } => Some(*epoch),
        _ => None,
    });
    assert_eq!(epoch, Some(time));
}

#[test]
fn several_locks_are_taken_and_given_back() {
    let mut world = World::connected().by_scripts();
    let op = together(&mut world);
    world.execute_and_lose_replies();
    let issued = world.server.fence(world.now).unwrap();
    world.connect();
    world.settle();
    let Some(Outcome::AcquiredAll { lease, fences }) = world.outcome(op).cloned() else {
        panic!("{:?}", world.outcome(op));
    };
    // Those of the lost answer are unknown.
    assert_eq!(fences, [issued + 1, issued + 2]);
    world.release(lease);
    world.release(LeaseId::first(TokenId(lease.token_id().0 + 1)));
    assert_idle(&mut world);
    assert_eq!(owners(&world), [None, None]);
}

#[test]
fn a_server_that_leaves_a_fence_out_is_asked_again() {
    let mut world = World::connected().by_scripts();
    let op = together(&mut world);
    let (request, _) = world.wire.pop_front().unwrap();
    world.reply(request, Ok(Reply::All(vec![1])));
    assert_eq!(world.outcome(op), None, "one of the two would be held by nobody");
    world.pass(ms(1_000));
    world.settle();
    assert!(
        matches!(world.outcome(op), Some(Outcome::AcquiredAll { fences, .. }) if fences.len() == 2),
        "each of the two has a fence: {:?}",
        world.outcome(op)
    );
}

#[test]
fn several_locks_that_were_requested_twice_are_released_twice() {
    let mut world = World::connected().by_scripts();
    let op = together(&mut world);
    world.lose_requests();
    world.connect();
    world.settle();
    let Some(Outcome::AcquiredAll { lease, .. }) = world.outcome(op).cloned() else {
        panic!("{:?}", world.outcome(op));
    };
    world.release(lease);
    world.release(LeaseId::first(TokenId(lease.token_id().0 + 1)));
    world.settle();
    arrive_late(&mut world);
    assert!(owners(&world).iter().all(Option::is_some), "taken for nobody");
    world.pass(ms(1_000));
    world.settle();
    assert_eq!(owners(&world), [None, None]);
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn several_locks_that_come_after_their_caller_gave_up_are_given_back() {
    let mut world = World::connected().by_scripts();
    let op = together(&mut world);
    world.lose_requests();
    world.pass(COMMAND_TIMEOUT);
    assert!(
        matches!(world.outcome(op), Some(Outcome::Connection(_))),
        "the caller gives up: {:?}",
        world.outcome(op)
    );
    world.connect();
    world.settle();
    arrive_late(&mut world);
    world.pass(ms(1_000));
    world.settle();
    assert_eq!(owners(&world), [None, None]);
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn several_locks_whose_caller_leaves_during_the_request_are_given_back() {
    let mut world = World::connected();
    let op = together(&mut world);
    world.cancel(op);
    assert_eq!(world.outcome(op), Some(&Outcome::Cancelled));
    world.settle();
    assert_eq!(owners(&world), [None, None]);
    assert_idle(&mut world);
}

#[test]
fn of_several_locks_all_or_none_are_taken() {
    let mut world = World::connected();
    let [a, b] = both();
    world.server.set_foreign(world.now, &b, "other", ms(5_000));
    let op = together(&mut world);
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Held));
    assert_eq!(world.server.owner(world.now, &a), None);
    assert_idle(&mut world);
}

#[test]
fn of_several_locks_the_key_that_is_wrong_is_named() {
    let [_, b] = both();
    for wrong in [b.lock(), COUNTER] {
        let mut world = World::connected();
        world.server.command(world.now, &["ZADD", wrong, "1", "x"]);
        let op = together(&mut world);
        world.settle();
        let Some(Outcome::Server { refusal, key }) = world.outcome(op) else {
            panic!("{:?}", world.outcome(op));
        };
        assert_eq!((refusal.code.as_str(), key.as_deref()), ("WRONGTYPE", Some(wrong)));
        let [a, _] = both();
        assert_eq!(world.server.owner(world.now, &a), None);
    }
}

#[test]
fn more_locks_than_one_script_may_take_are_taken_one_by_one() {
    for (count, calls, outcome) in [(256, 1, None), (257, 0, Some(Outcome::OneByOne))] {
        let mut world = World::connected();
        let (ttl, label) = (ms(10_000), Arc::default());
        let names = (0..count).map(|number| number.to_string()).collect();
        let op = world.command(Command::AcquireAll { names, ttl, label, hold: ONE_LEASE });
        assert_eq!((world.outcome(op), world.wire.len()), (outcome.as_ref(), calls));
    }
}

#[test]
fn several_locks_of_a_lost_history_are_not_used() {
    let mut world = World::connected().by_scripts();
    world.server.set_fence(world.now, 1_700_000_001_000_000);
    let op = together(&mut world);
    let (request, call) = world.wire.pop_front().unwrap();
    let reply = world.server.execute(world.now, &call);
    world.pass(ms(1_500));
    world.server.set_replication_id("second");
    let probe = world.server.probe(world.now);
    world.event(crate::machine::Event::Probed { probe, sent: world.now });
    world.reply(request, reply);
    assert_eq!(world.outcome(op), Some(&Outcome::Held), "to be asked for one by one");
    assert_idle(&mut world);
    assert_eq!(owners(&world), [None, None]);
}

/// With the owner's own fence:
///
/// 1. A gets the lock with the fence 1, sends its token elsewhere, and releases. B gets the lock with 2, and
///    releases.
/// 2. A's acquire, sent twice, arrives again, and takes the lock with 3 for a released token.
/// 3. C adopts that token. With the fence 1 it would write below B.
#[test]
fn a_lock_that_came_back_by_a_late_acquire_is_adopted_with_a_fence_above_all_between() {
    let (mut a, mut b) = two();
    let op = a.acquire(10_000, Wait::Never);
    let (_, late) = a.wire.front().cloned().unwrap();
    a.settle();
    let (lease, _) = a.lease(op);
    a.release(lease);
    a.settle();
    let (next, between) = take(&mut b, Mode::Exclusive);
    b.release(next);
    b.settle();
    // A duplicate of the acquire arrives late.
    let _unheard = a.server.execute(a.now, &late);
    let op = adopt(&mut b, "hf1.a.1", Mode::Exclusive);
    b.settle();
    assert!(b.lease(op).1 > between, "{} after {between}", b.lease(op).1);
}

/// With the last fence that was issued:
///
/// 1. A holds with the fence 1, and has reserved 2 and 3.
/// 2. C learns A's token from `query` and adopts it.
/// 3. A, which has no notice of it yet, hands the lock off in its process with the fences 2 and 3, so C's 3 would not
///    be greater. A new fence gives C 4.
#[test]
fn an_adopter_has_a_fence_above_those_that_the_owner_had_reserved() {
    let (mut a, mut b) = two();
    let (opener, _) = take_held(&mut a, RENEWED, Mode::Exclusive);
    let ops: Vec<_> = (0..4).map(|_| a.acquire_held(10_000, Wait::Forever, RENEWED)).collect();
    a.settle();
    a.release(opener);
    a.settle();
    a.release(a.lease(ops[0]).0);
    a.settle();
    let (lease, fence) = a.lease(ops[1]);
    let owner = a.server.owner(a.now, &World::keys()).unwrap();
    let op = adopt(&mut b, &owner, Mode::Exclusive);
    b.settle();
    a.release(lease);
    let (_, handed_off) = a.lease(ops[2]);
    assert!(handed_off > fence, "A has not heard of it yet");
    assert!(b.lease(op).1 > handed_off, "{} after {handed_off}", b.lease(op).1);
}

#[test]
fn several_locks_have_the_label_in_their_tokens_until_they_are_released() {
    let mut world = World::connected();
    let names = vec!["a".to_owned(), "b".to_owned()];
    let (ttl, label) = (ms(10_000), "cron".into());
    let op = world.command(Command::AcquireAll { names, ttl, label, hold: ONE_LEASE });
    world.settle();
    let Some(Outcome::AcquiredAll { lease, .. }) = world.outcome(op) else {
        panic!("{:?}", world.outcome(op));
    };
    let (lease, label) = (*lease, Some("hf1.c.1.cron".to_owned()));
    assert_eq!(owners(&world)[0], label);
    world.release(lease);
    world.settle();
    assert_eq!(owners(&world)[0], None);
}

#[test]
fn several_locks_are_not_taken_by_one_call_where_replicas_must_have_them() {
    let mut world = World::connected();
    world.machine.context.config.confirm = true;
    let op = together(&mut world);
    assert_eq!(world.outcome(op), Some(&Outcome::OneByOne));
    assert!(world.wire.is_empty(), "the server is not asked");
}

#[test]
fn a_downgrade_that_finds_the_lock_gone_loses_it_at_once() {
    let mut world = World::connected();
    let (lease, _) = take_held(&mut world, RENEWED, Mode::Exclusive);
    world.server.flush();
    let op = world.command(Command::Downgrade { lease });
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Lost));
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}

#[test]
fn a_lock_that_is_left_is_over_here_and_lasts_there() {
    let (mut a, mut b) = two();
    let (lease, _) = take_held(&mut a, RENEWED, Mode::Exclusive);
    let op = a.command(Command::ExpireIn { lease, ttl: ms(60_000) });
    a.execute_and_lose_replies();
    a.connect();
    a.settle();
    assert_eq!(a.outcome(op), Some(&Outcome::Done));
    assert_eq!(a.lost, [(lease, LossReason::Ended)]);
    assert_eq!(a.machine.stats().lost, 0);
    let close = a.command(Command::Close);
    a.settle();
    assert_eq!(a.outcome(close), Some(&Outcome::Done));
    b.pass(ms(50_000));
    assert!(b.server.owner(b.now, &World::keys()).is_some(), "the lock outlasts its manager");
    b.pass(ms(11_000));
    assert_eq!(b.server.owner(b.now, &World::keys()), None);
}

#[test]
fn a_lock_that_was_taken_away_is_not_left() {
    let (mut a, mut b) = two();
    let (lease, _) = take_held(&mut a, RENEWED, Mode::Exclusive);
    let adopted = adopt(&mut b, "hf1.a.1", Mode::Exclusive);
    b.settle();
    let op = a.command(Command::ExpireIn { lease, ttl: ms(60_000) });
    a.settle();
    assert_eq!(a.outcome(op), Some(&Outcome::Lost));
    let (lease, _) = b.lease(adopted);
    b.release(lease);
    b.settle();
    assert_eq!(b.server.owner(b.now, &World::keys()), None);
}
