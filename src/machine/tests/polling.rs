//! Callers that wait beside old code: they poll as it does, and leave the lock free for it.

use super::waiting::Crowd;
use super::world::{COMMAND_TIMEOUT, ONE_LEASE, RENEWED, World, ms};
use crate::machine::{Outcome, Polling, Protocol, Wait};
use crate::protocol::{Call, Mode, Mono};

const POLLING: Polling = Polling { least: ms(100), most: ms(300) };

fn polls(world: &mut World) {
    world.machine.context.config.polling = Some(POLLING);
}

/// Managers of which the first few poll.
fn crowd(count: usize, polling: usize) -> Crowd {
    let mut crowd = Crowd::new(count);
    crowd.worlds.iter_mut().take(polling).for_each(polls);
    crowd
}

fn held_by_old_code() -> World {
    let mut world = World::connected();
    polls(&mut world);
    world.server.set_foreign(world.now, &World::keys(), "old code", ms(60_000));
    world
}

#[test]
fn a_waiter_asks_again_at_the_interval_and_is_in_no_queue() {
    let mut world = held_by_old_code();
    let op = world.acquire(1_000, Wait::Forever);
    world.settle();
    let mut asked: Vec<Mono> = Vec::new();
    while asked.len() < 20 {
        world.pass(ms(1));
        if world.wire.iter().any(|(_, call)| matches!(call, Call::Acquire { .. })) {
            asked.push(world.now);
        }
        world.settle();
        assert_eq!(world.server.queue_len(world.now, &World::keys()), 0);
    }
    let pauses: Vec<_> = asked.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
    assert!(*least >= ms(100) && *most <= ms(302), "{pauses:?}");
    assert!(*most > *least + ms(50), "they are spread: {pauses:?}");

    world.server.command(world.now, &["DEL", "lock:a"]);
    world.pass(ms(302));
    world.settle();
    world.lease(op);
}

#[test]
fn its_patience_ends_as_in_the_queue() {
    let mut world = held_by_old_code();
    let op = world.acquire(1_000, Wait::UpTo(ms(1_000)));
    let attempt = world.acquire(1_000, Wait::Never);
    let cancelled = world.acquire(1_000, Wait::Forever);
    world.settle();
    assert_eq!(world.outcome(attempt), Some(&Outcome::Held));
    world.cancel(cancelled);
    for _ in 0..100 {
        world.pass(ms(10));
        world.settle();
    }
    let Some(Outcome::TimedOut { waited, holder, position, .. }) = world.outcome(op) else {
        panic!("{:?}", world.outcome(op));
    };
    assert_eq!((*waited, holder.as_str(), *position), (ms(1_000), "old code", None));
    assert_eq!(world.outcome(cancelled), Some(&Outcome::Cancelled));
    assert_eq!(world.machine.stats().timed_out, 1);
    assert!(world.machine.is_idle(), "nobody is left waiting");
}

#[test]
fn a_release_leaves_the_lock_free_for_old_code() {
    let mut crowd = crowd(2, 2);
    let lease = crowd.held(0, 10_000);
    let next = crowd.acquire(0, 10_000);
    let other = crowd.acquire(1, 10_000);
    crowd.release(0, lease);
    let now = crowd.worlds[0].now;
    assert_eq!(crowd.server.owner(now, &World::keys()), None, "nobody was handed the lock");
    assert!(!crowd.has(0, next) && !crowd.has(1, other), "both wait for their next poll");
    assert_eq!(crowd.worlds[0].machine.stats().handed_off, 0);
    crowd.pass(ms(302));
    assert!(crowd.has(0, next) != crowd.has(1, other), "one of them has asked again");
}

#[test]
fn a_lost_answer_costs_no_lock() {
    let mut world = World::connected();
    polls(&mut world);
    let op = world.acquire(10_000, Wait::UpTo(ms(5_000)));
    world.execute_and_lose_replies();
    world.connect();
    world.settle();
    let (lease, _) = world.lease(op);
    world.release(lease);
    world.settle();
    world.pass(COMMAND_TIMEOUT);
    world.settle();
    assert_eq!(world.server.owner(world.now, &World::keys()), None);
}

#[test]
fn a_waiter_joins_a_queue_that_others_keep_up() {
    let mut crowd = crowd(3, 1);
    let mut lease = crowd.held(1, 10_000);
    let polls = crowd.acquire(0, 10_000);
    let mut next = (2, crowd.acquire(2, 10_000));
    // The others, who do not poll, pass the lock to each other.
    for _ in 0..10 {
        crowd.pass(ms(100));
        if crowd.has(0, polls) {
            break;
        }
        let (who, op) = next;
        let from = 3 - who;
        let again = crowd.acquire(from, 10_000);
        crowd.release(from, lease);
        if crowd.has(0, polls) {
            break;
        }
        assert!(crowd.has(who, op), "the queue is served");
        lease = crowd.worlds[who].lease(op).0;
        next = (from, again);
    }
    assert!(crowd.has(0, polls), "it waited in vain");
}

#[test]
fn a_waiter_joins_the_queue_behind_shares() {
    let mut crowd = crowd(2, 1);
    let shared = |crowd: &mut Crowd| {
        let op = crowd.worlds[1].acquire_as(10_000, Wait::Forever, RENEWED, Mode::SHARED);
        crowd.settle();
        op
    };
    let first = shared(&mut crowd);
    let waits = crowd.acquire(0, 10_000);
    crowd.pass(ms(1_000));
    let late = shared(&mut crowd);
    assert!(!crowd.has(1, late), "it waits behind the whole lock");
    let (lease, _) = crowd.worlds[1].lease(first);
    crowd.release(1, lease);
    assert!(crowd.has(0, waits), "the whole lock is next in the queue");
}

#[test]
fn a_share_waits_in_the_queue() {
    let mut crowd = crowd(2, 2);
    let lease = crowd.held(0, 10_000);
    let share = crowd.worlds[1].acquire_as(10_000, Wait::Forever, ONE_LEASE, Mode::SHARED);
    crowd.settle();
    crowd.release(0, lease);
    assert!(crowd.has(1, share), "the share gets its turn");
}
