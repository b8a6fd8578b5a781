//! Steal, force, and locks that are left to expire: victims, messages, lost replies, repeats, late arrivals.

use super::one_shots::{adopt, arrive_late, assert_idle, take, take_held, two};
use super::world::{ONE_LEASE, RENEWED, World, ms};
use crate::machine::{Command, Event, HoldTerms, LossReason, OpId, Outcome, Wait};
use crate::protocol::{Call, Intent, Message, Mode, Reply, ServerTime, Token};

fn force(world: &mut World) -> OpId {
    force_from(world, Vec::new())
}

fn force_from(world: &mut World, owners: Vec<String>) -> OpId {
    world.command(Command::Force { name: "a".to_owned(), foreign: false, owners })
}

#[test]
fn a_forced_lock_goes_to_the_first_waiter_and_its_owner_is_notified() {
    let (mut a, mut b) = two();
    let (lease, fence) = take_held(&mut a, RENEWED, Mode::Exclusive);
    let op = b.acquire(10_000, Wait::Forever);
    b.settle();
    let forced = force(&mut b);
    b.settle();
    a.settle();
    assert_eq!(b.outcome(forced), Some(&Outcome::Done));
    assert_eq!(a.lost, [(lease, LossReason::Stolen)]);
    assert!(b.lease(op).1 > fence, "the waiter's fence is above {fence}");
    assert_idle(&mut a);
}

#[test]
fn a_queue_too_long_for_one_purge_is_purged_on_without_force() {
    let (mut a, mut b) = two();
    take(&mut a, Mode::Exclusive);
    // The waiters died after their requests.
    for number in 0..200 {
        let (score, dead) = (number.to_string(), format!("hf1.dead.{number}"));
        b.server.command(b.now, &["ZADD", &World::keys().queue(), &score, &dead]);
    }
    let op = force(&mut b);
    b.answer_one();
    b.answer_one();
    assert_eq!(b.outcome(op), Some(&Outcome::Done));
    assert!(!b.wire.iter().any(|(_, call)| matches!(call, Call::Force { .. })), "{:?}", b.wire);
    assert_idle(&mut b);
    assert_eq!(b.server.queue_len(b.now, &World::keys()), 0);
}

#[test]
fn a_forced_release_whose_reply_is_lost_spares_the_next_owner() {
    let (mut a, mut b) = two();
    take(&mut a, Mode::Exclusive);
    let op = force(&mut b);
    b.answer_one();
    b.execute_and_lose_replies();
    assert!(matches!(b.outcome(op), Some(Outcome::Connection(_))), "{:?}", b.outcome(op));
    a.settle();
    let (next, _) = take_held(&mut a, RENEWED, Mode::Exclusive);
    b.connect();
    assert_idle(&mut b);
    a.settle();
    assert!(a.deadlines.contains_key(&next), "{:?}", a.lost);
}

#[test]
fn a_lock_is_freed_only_from_the_owners_that_are_meant() {
    for mode in [Mode::Exclusive, Mode::SHARED] {
        let (mut a, mut b) = two();
        let (lease, _) = take(&mut a, mode);
        let seen = vec![a.server.owners(a.now, &World::keys())[0].to_string()];
        a.release(lease);
        a.settle();
        let (next, _) = take_held(&mut a, RENEWED, mode);
        let other = mode.is_shared().then(|| take(&mut b, mode));
        let op = force_from(&mut b, seen.clone());
        b.settle();
        a.settle();
        assert_eq!((b.outcome(op), &a.lost[..]), (Some(&Outcome::Lost), &[][..]), "{mode:?}");
        let meant = a.server.owners(a.now, &World::keys());
        let meant = meant.iter().map(Token::to_string).chain(seen).collect();
        let op = force_from(&mut b, meant);
        b.settle();
        a.settle();
        assert_eq!(b.outcome(op), Some(&Outcome::Done), "{mode:?}");
        assert_eq!(a.lost, [(next, LossReason::Stolen)]);
        assert_eq!(b.lost.len(), usize::from(other.is_some()));
    }
}

#[test]
fn a_release_from_one_owner_whose_reply_is_lost_is_not_repeated() {
    let (mut a, mut b) = two();
    take(&mut a, Mode::Exclusive);
    let owner = a.server.owners(a.now, &World::keys())[0].to_string();
    let op = force_from(&mut b, vec![owner]);
    b.execute_and_lose_replies();
    assert!(matches!(b.outcome(op), Some(Outcome::Connection(_))), "{:?}", b.outcome(op));
}

#[test]
fn force_notifies_all_sharers_and_leaves_other_code_alone() {
    let (mut a, mut b) = two();
    let (lease, _) = take(&mut a, Mode::SHARED);
    let (other, _) = take(&mut b, Mode::SHARED);
    let op = force(&mut b);
    b.settle();
    a.settle();
    assert_eq!(b.outcome(op), Some(&Outcome::Done));
    assert_eq!((a.lost[0], b.lost[0]), ((lease, LossReason::Stolen), (other, LossReason::Stolen)));
    assert_eq!(b.server.leftovers(b.now), "");
    b.server.set_foreign(b.now, &World::keys(), "other", ms(5_000));
    let op = force(&mut b);
    b.settle();
    assert_eq!(b.outcome(op), Some(&Outcome::Lost));
    assert_eq!(b.server.owner(b.now, &World::keys()).as_deref(), Some("other"));
}

#[test]
fn a_stolen_share_holds_the_lock() {
    let (mut a, mut b) = two();
    let (lease, fence) = take(&mut a, Mode::Exclusive);
    let op = b.acquire_as(10_000, Wait::Steal, ONE_LEASE, Mode::SHARED);
    b.settle();
    a.settle();
    assert!(b.lease(op).1 > fence, "the stolen share's fence is above {fence}");
    assert_eq!(a.lost, [(lease, LossReason::Stolen)]);
    assert!(b.server.is_shared(b.now, &World::keys()), "the lock is held by a share");
    let ttl = b.server.command(b.now, &["PTTL", &World::keys().shared()]);
    assert!(ttl.is_some_and(|ttl| ttl.parse::<i64>().unwrap() > 0), "it has an end");
}

#[test]
fn a_lock_that_is_stolen_while_replicas_confirm_it_is_requested_again() {
    let (mut a, mut b) = two();
    a.machine.context.config.confirm = true;
    let op = a.acquire(10_000, Wait::Forever);
    a.settle();
    assert_eq!(a.confirms.len(), 1);
    let stolen = b.acquire(10_000, Wait::Steal);
    b.settle();
    b.lease(stolen);
    a.settle();
    a.confirm(true);
    assert_eq!(a.outcome(op), None);
    let (lease, _) = b.lease(stolen);
    b.release(lease);
    b.settle();
    a.settle();
    a.confirm(true);
    a.lease(op);
}

#[test]
fn a_victim_of_a_theft_before_its_claim_does_not_count_as_dead() {
    for steal in [true, false] {
        let (mut a, mut b) = two();
        let (lease, _) = take(&mut b, Mode::Exclusive);
        a.acquire(10_000, Wait::Forever);
        a.settle();
        b.release(lease);
        b.settle();
        let waiters = World::keys();
        let unclaimed =
            |b: &World| b.server.command(b.now, &["HGET", &waiters.waiters(), "unclaimed"]);
        assert!(unclaimed(&b).is_some(), "the grant counts as unclaimed");
        if steal {
            b.acquire(10_000, Wait::Steal);
        } else {
            adopt(&mut b, "hf1.a.1", Mode::Exclusive);
        }
        b.settle();
        assert_eq!(unclaimed(&b), None);
    }
}

/// 1. A waits for a share, and a message grants it. A poll of A is on its way at that time.
/// 2. B steals the lock. The poll finds neither share nor entry, so A enqueues the same token again.
/// 3. The server's clock was set back in between, so the message seems to be later than that answer, and A starts.
/// 4. A's claim is denied, or so is the downgrade that its caller has asked for meanwhile. Without a release the entry would
///    stay without a caller, and its next grant would block others until A gives it back.
#[test]
pub(super) fn a_victim_that_was_enqueued_again_ahead_of_the_message_leaves_the_queue() {
    for (mode, downgrades) in
        [(Mode::Exclusive, false), (Mode::Exclusive, true), (Mode::SHARED, false)]
    {
        let (mut a, mut b) = two();
        let (lease, _) = take(&mut b, Mode::Exclusive);
        let op = a.acquire_as(10_000, Wait::Forever, RENEWED, mode);
        a.settle();
        let (queue, inbox) = (World::keys().queue(), "holdfast:inbox:a".into());
        let queued = |b: &World| b.server.command(b.now, &["ZRANGE", &queue, "0", "-1"]);
        let token = Token::from_text(&queued(&b).unwrap());
        b.release(lease);
        b.settle();
        take_away(&mut b);
        let (keys, ttl, epoch) = (World::keys(), ms(10_000), ServerTime::default());
        let (intent, block) = (Intent::Join(Some(1)), 1);
        let again = Call::Acquire { keys, token, ttl, epoch, block, inbox, intent, mode };
        assert!(matches!(b.server.execute(b.now, &again), Ok(Reply::Held(_))), "it waits again");
        assert!(a.receive_one(), "the message of the grant");
        let (lease, _) = a.lease(op);
        if downgrades {
            a.command(Command::Downgrade { lease });
        }
        a.settle();
        assert_eq!(a.lost.len(), 1, "{:?}", a.lost);
        assert_eq!(a.lost[0].0, lease);
        assert_eq!(queued(&b), None, "an entry for nobody");
    }
}

fn take_away(thief: &mut World) {
    let op = thief.acquire(10_000, Wait::Steal);
    thief.settle();
    thief.lease(op);
}

#[test]
fn a_repeated_theft_spares_the_next_owner() {
    let (mut a, mut b) = two();
    take(&mut a, Mode::Exclusive);
    let op = b.acquire(10_000, Wait::Steal);
    b.answer_one();
    b.execute_and_lose_replies();
    let issued = b.server.fence(b.now);
    b.connect();
    b.settle();
    assert!(Some(b.lease(op).1) > issued, "the fence of the lost answer was not used");
}

/// 1. A steals B's lock for 200 ms, and the answer is lost.
/// 2. The lease ends, and C gets the lock.
/// 3. A asks again. Without the owners that it has seen, it would take the lock from C.
#[test]
fn a_theft_whose_reply_was_lost_spares_later_owners() {
    let (mut a, mut b) = two();
    take(&mut a, Mode::Exclusive);
    let op = b.acquire(200, Wait::Steal);
    b.answer_one();
    b.execute_and_lose_replies();
    a.settle();
    // The stolen lock has ended, and has another owner.
    a.pass(ms(300));
    b.pass(ms(300));
    let (next, _) = take_held(&mut a, RENEWED, Mode::Exclusive);
    b.connect();
    b.settle();
    assert!(matches!(b.outcome(op), Some(Outcome::Connection(_))), "{:?}", b.outcome(op));
    assert_idle(&mut b);
    a.settle();
    assert!(a.deadlines.contains_key(&next), "{:?}", a.lost);
}

/// 1. A `force` is in a buffer of a stopped server, and its caller gives up.
/// 2. B releases, and C acquires.
/// 3. The `force` is executed. Without the owners that it has seen, it would take the lock from C.
#[test]
fn a_late_theft_or_force_spares_later_owners() {
    for steal in [true, false] {
        let (mut a, mut b) = two();
        let (lease, _) = take(&mut a, Mode::Exclusive);
        if steal {
            b.acquire(10_000, Wait::Steal)
        } else {
            force(&mut b)
        };
        b.answer_one();
        b.lose_requests();
        a.release(lease);
        a.settle();
        let (next, _) = take_held(&mut a, RENEWED, Mode::Exclusive);
        arrive_late(&mut b);
        a.settle();
        assert!(a.deadlines.contains_key(&next), "{:?}", a.lost);
        b.connect();
        assert_idle(&mut b);
        assert!(a.deadlines.contains_key(&next), "{:?}", a.lost);
    }
}

#[test]
fn a_thief_that_has_only_read_the_fence_reads_it_again() {
    for steal in [true, false] {
        let (mut a, mut b) = two();
        let (lease, _) = take(&mut a, Mode::Exclusive);
        let op = if steal { b.acquire(10_000, Wait::Steal) } else { force(&mut b) };
        b.execute_and_lose_replies();
        b.connect();
        b.pass(ms(100));
        b.settle();
        a.settle();
        assert_eq!(a.lost, [(lease, LossReason::Stolen)]);
        assert!(
            matches!(b.outcome(op), Some(Outcome::Acquired { .. } | Outcome::Done)),
            "the theft is done: {:?}",
            b.outcome(op)
        );
    }
}

#[test]
fn a_lock_with_a_new_owner_before_a_theft_is_stolen_all_the_same() {
    let (mut a, mut b) = two();
    let (lease, _) = take(&mut a, Mode::Exclusive);
    let op = b.acquire(10_000, Wait::Steal);
    b.answer_one();
    a.release(lease);
    a.settle();
    let (next, fence) = take(&mut a, Mode::Exclusive);
    b.settle();
    a.settle();
    assert!(b.lease(op).1 > fence, "the thief's fence is above {fence}");
    assert_eq!(a.lost, [(next, LossReason::Stolen)]);
}

/// Two clients that both want to steal would otherwise steal from each other for ever.
#[test]
fn a_thief_that_is_stolen_from_while_replicas_confirm_does_not_steal_back() {
    let (mut a, mut b) = two();
    a.machine.context.config.confirm = true;
    let op = a.acquire(10_000, Wait::Steal);
    a.settle();
    assert_eq!(a.confirms.len(), 1);
    let stolen = b.acquire(10_000, Wait::Steal);
    b.settle();
    let (lease, _) = b.lease(stolen);
    a.settle();
    a.confirm(true);
    assert!(matches!(a.outcome(op), Some(Outcome::Connection(_))), "{:?}", a.outcome(op));
    assert_idle(&mut a);
    b.settle();
    assert!(b.deadlines.contains_key(&lease), "{:?}", b.lost);
}

/// 1. A acquires with `leaveToExpire`, the answer is lost, and the repeat says that the lock is A's.
/// 2. B lengthens the lease of A's token, which it has as a value.
/// 3. A's own lease ends. If A released its token twice, as after any lost acquire, C would get in beside B.
///
/// What remains is one lease at most: the lost acquire may take the lock once more.
#[test]
fn a_lock_left_to_expire_that_was_requested_twice_is_not_given_back_at_its_end() {
    let mut world = World::connected();
    let hold = HoldTerms { leave_to_expire: true, ..ONE_LEASE };
    let op = world.acquire_held(1_000, Wait::Never, hold);
    world.lose_requests();
    world.connect();
    world.settle();
    world.lease(op);
    // Another process has its token, and extends it.
    let token = Token::from_text("hf1.c.1");
    let extend = Call::Extend { keys: World::keys(), token, ttl: ms(10_000) };
    assert_eq!(world.server.execute(world.now, &extend), Ok(Reply::Owner(true)));
    world.pass(ms(2_500));
    world.settle();
    assert_eq!(world.server.owner(world.now, &World::keys()).as_deref(), Some("hf1.c.1"));
    assert_eq!(world.released, [] as [String; 0]);
}

#[test]
fn a_lock_left_to_expire_lasts_no_longer_than_its_caller_requested() {
    let (mut a, mut b) = two();
    let (lease, _) = take_held(&mut a, RENEWED, Mode::Exclusive);
    let patient = b.acquire(10_000, Wait::Forever);
    let brief =
        b.acquire_held(200, Wait::Forever, HoldTerms { leave_to_expire: true, ..ONE_LEASE });
    b.settle();
    b.cancel(patient);
    a.release(lease);
    a.settle();
    b.settle();
    b.lease(brief);
    let left = b.server.command(b.now, &["PTTL", World::keys().lock()]).unwrap();
    assert!((1..=200).contains(&left.parse::<i64>().unwrap()), "{left} ms");
    // Its lease ends without a release.
    let sent = b.released.len();
    for _ in 0..30 {
        b.pass(ms(10));
        b.settle();
    }
    assert_eq!(b.released.len(), sent);
    assert_idle(&mut b);
}

#[test]
fn a_caller_that_leaves_a_shorter_lease_to_expire_discards_the_grant_once() {
    let (mut a, mut b) = two();
    let server = a.server.clone();
    let (lease, _) = take_held(&mut a, RENEWED, Mode::Exclusive);
    let patient = b.acquire(10_000, Wait::Forever);
    let brief =
        b.acquire_held(200, Wait::Forever, HoldTerms { leave_to_expire: true, ..ONE_LEASE });
    b.settle();
    let [mut second, mut third] = ["c", "d"].map(|client| World::connected_to(&server, client));
    let [next, last] = [&mut second, &mut third].map(|world| {
        let op = world.acquire(10_000, Wait::Forever);
        world.settle();
        op
    });
    b.cancel(patient);
    a.release(lease);
    a.settle();
    // Its lease was too long: a new token takes over the position, and is first after the next.
    b.settle();
    second.settle();
    second.release(second.lease(next).0);
    second.settle();
    b.settle();
    third.settle();
    b.lease(brief);
    assert_eq!(third.outcome(last), None);
}

/// The answer to a poll overtakes the message about a grant, which arrives later.
fn overtake_message(world: &mut World) -> Message {
    let message = world.server.next_mail(world.subscriber).unwrap();
    world.event(Event::Disconnected("cut".to_owned()));
    world.connect();
    world.answer_one();
    message
}

/// 1. A waits with `leaveToExpire`, learns of its grant by a poll, and closes, which leaves the lock to expire.
/// 2. The message of the grant arrives, as it may where messages have a connection of their own.
/// 3. If A no longer knew the token, it would release a lock that another process may rely on.
#[test]
fn a_message_about_a_lock_that_a_close_has_left_to_expire_gives_nothing_back() {
    let (mut a, mut b) = two();
    let (lease, _) = take(&mut a, Mode::Exclusive);
    let other = b.acquire_named("other", 10_000, Wait::Never, ONE_LEASE, Mode::Exclusive);
    let op =
        b.acquire_held(10_000, Wait::Forever, HoldTerms { leave_to_expire: true, ..ONE_LEASE });
    b.settle();
    b.lease(other);
    a.release(lease);
    a.settle();
    let message = overtake_message(&mut b);
    b.lease(op);
    b.command(Command::Close);
    let released = b.released.len();
    b.event(Event::Message(message));
    assert_eq!(b.released.len(), released);
}

/// 1. A waits with `leaveToExpire`, learns of its grant by a poll, and leaves the lock. B lengthens its lease.
/// 2. The message of the grant arrives, late.
/// 3. If A had forgotten that token, it would release what B has lengthened.
#[test]
fn a_message_about_a_lock_that_its_caller_has_left_gives_nothing_back_until_its_lease_ends() {
    let (mut a, mut b) = two();
    let (lease, _) = take(&mut a, Mode::Exclusive);
    let op = b.acquire_held(10_000, Wait::Forever, ONE_LEASE);
    b.settle();
    a.release(lease);
    a.settle();
    let message = overtake_message(&mut b);
    let (lease, _) = b.lease(op);
    let left = b.command(Command::ExpireIn { lease, ttl: ms(20_000) });
    b.settle();
    assert_eq!(b.outcome(left), Some(&Outcome::Done));
    let released = b.released.len();
    b.event(Event::Message(message));
    b.settle();
    assert_eq!(b.released.len(), released);
    assert_eq!(b.machine.left_to_expire.len(), 1);
    b.pass(ms(21_000));
    assert!(b.machine.left_to_expire.is_empty(), "it does not accumulate");
}

/// 1. B waits with `leaveToExpire`, and polls. A frees the lock, which grants it to B; then the poll is executed.
/// 2. B's lease counts from when it asked, so it ends before the server's does. Another process lengthens that.
/// 3. The message of the grant arrives, late. If B had forgotten that token, it would release what is lengthened.
#[test]
pub(super) fn a_message_about_a_lock_that_was_left_to_expire_gives_nothing_back_after_its_lease() {
    let (mut a, mut b) = two();
    let (lease, _) = take(&mut a, Mode::Exclusive);
    let left = HoldTerms { leave_to_expire: true, ..ONE_LEASE };
    let op = b.acquire_held(200, Wait::Forever, left);
    b.settle();
    b.event(Event::Disconnected("cut".to_owned()));
    b.connect();
    a.pass(ms(100));
    b.pass(ms(100));
    a.release(lease);
    a.settle();
    let message = b.server.next_mail(b.subscriber).unwrap();
    b.answer_one();
    let (lease, _) = b.lease(op);
    b.pass(ms(99));
    assert_eq!(b.lost, [(lease, LossReason::Ended)]);
    let released = b.released.len();
    b.event(Event::Message(message));
    b.settle();
    assert_eq!(b.released.len(), released);
    assert_eq!(b.machine.left_to_expire.len(), 1);
    b.pass(ms(201));
    assert!(b.machine.left_to_expire.is_empty(), "it does not accumulate");
}
