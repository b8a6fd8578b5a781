//! Giving up a lock that nobody waits for, and one that somebody waits for after all.

use super::server::Server;
use super::world::{RENEWED, World};
use crate::machine::{Event, LeaseId, Outcome, Wait};
use crate::script::Call;

fn hold(world: &mut World) -> LeaseId {
    let op = world.acquire_held(10_000, Wait::Forever, RENEWED);
    world.settle();
    world.lease(op).0
}

/// Whether what is sent next frees a lock that nobody waits for, and nothing else.
fn unlocks(world: &World) -> bool {
    matches!(world.wire.front(), Some((_, Call::Unlock { .. })))
}

#[test]
fn a_lock_that_was_free_is_given_up_by_its_own_key() {
    let mut world = World::connected();
    let lease = hold(&mut world);
    let release = world.release(lease);
    assert!(unlocks(&world));
    world.settle();
    assert_eq!(world.outcome(release), Some(&Outcome::Done));
    assert_eq!(world.machine.stats().requests, 2);
}

#[test]
fn a_lock_that_others_wait_for_by_now_is_passed_on() {
    let server = Server::new();
    let mut holder = World::connected_to(&server, "a");
    let mut waiter = World::connected_to(&server, "b");
    let lease = hold(&mut holder);
    let op = waiter.acquire_held(10_000, Wait::Forever, RENEWED);
    waiter.settle();
    let release = holder.release(lease);
    holder.settle();
    assert_eq!(holder.outcome(release), Some(&Outcome::Done));
    assert!(waiter.receive_one(), "what frees a lock that nobody waits for leaves this one alone");
    waiter.settle();
    // Who had to wait expects others behind it, and asks for everything at once.
    let (lease, _) = waiter.lease(op);
    waiter.release(lease);
    assert!(!unlocks(&waiter));
}

#[test]
fn a_lock_that_is_gone_is_known_as_lost_when_it_is_given_up() {
    let mut world = World::connected();
    let lease = hold(&mut world);
    world.server.flush();
    let release = world.release(lease);
    world.settle();
    assert_eq!(world.outcome(release), Some(&Outcome::Lost));
}

#[test]
fn whose_unlocking_was_lost_gives_up_its_place_in_line_too() {
    let mut world = World::connected();
    let lease = hold(&mut world);
    let release = world.release(lease);
    assert!(unlocks(&world));
    world.event(Event::Disconnected("cut".to_owned()));
    world.connect();
    assert!(matches!(world.wire.front(), Some((_, Call::Release { .. }))));
    world.settle();
    assert_eq!(world.outcome(release), Some(&Outcome::Done));
}
