//! The changes on their way to a server, for which a query waits.

use super::world::{ONE_LEASE, World, ms};
use crate::machine::{Command, Event, Protocol, UnderWay, Wait};
use crate::protocol::Mode;

#[test]
fn a_change_is_under_way_until_it_is_answered() {
    let mut world = World::connected();
    let op = world.acquire(60_000, Wait::Never);
    assert_eq!(world.machine.under_way(), [UnderWay::Acquire(op)]);
    world.settle();
    assert!(world.machine.under_way().is_empty(), "{:?}", world.machine.under_way());

    let (lease, _) = world.lease(op);
    let op = world.command(Command::Extend { lease, ttl: None });
    assert_eq!(world.machine.under_way(), [UnderWay::OneShot(op)]);
    world.settle();
    assert!(world.machine.under_way().is_empty(), "{:?}", world.machine.under_way());

    world.release(lease);
    assert_eq!(world.machine.under_way(), [UnderWay::Release(lease.token_id())]);
    world.settle();
    assert!(world.machine.under_way().is_empty(), "{:?}", world.machine.under_way());
}

#[test]
fn a_waiter_is_under_way_until_the_server_has_its_entry() {
    let mut world = World::connected();
    world.server.set_foreign(world.now, &World::keys(), "old code", ms(60_000));
    let op = world.acquire(10_000, Wait::Forever);
    let asks = UnderWay::Acquire(op);
    assert_eq!(world.machine.under_way(), [asks]);
    world.settle();
    assert!(world.outcome(op).is_none(), "it waits");
    assert!(!world.machine.is_under_way(asks), "the server knows of it");
}

#[test]
fn what_waits_for_room_is_under_way() {
    let mut world = World::connected();
    world.window = Some((1, 1));
    let mut acquire =
        |name| world.acquire_named(name, 60_000, Wait::Never, ONE_LEASE, Mode::Exclusive);
    let asked = ["a", "b"].map(|name| UnderWay::Acquire(acquire(name)));
    assert_eq!(world.wire.len(), 1, "the second has no room");
    assert_eq!(world.machine.under_way(), asked);
}

#[test]
fn nothing_is_under_way_without_a_connection() {
    let mut world = World::connected();
    let op = world.acquire(60_000, Wait::UpTo(ms(60_000)));
    world.event(Event::Disconnected("cut".to_owned()));
    assert!(world.outcome(op).is_none(), "it waits for a connection");
    assert!(world.machine.under_way().is_empty(), "{:?}", world.machine.under_way());
}
