//! Connections that come and go, and the data behind them.

use super::world::{COMMAND_TIMEOUT, World, ms};
use crate::machine::{Command, Config, Event, Machine, Notice, OpId, Outcome, Protocol, Wait};
use crate::protocol::{Failure, Refusal, Reply};

fn refused(code: &str) -> Failure {
    Failure::Refused(Refusal { code: code.to_owned(), detail: "because".to_owned() })
}

#[test]
fn a_silent_connection_is_given_up() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::UpTo(ms(10_000)));
    world.pass(COMMAND_TIMEOUT);
    assert!(world.connecting, "the silent connection is replaced");
    assert!(world.wire.is_empty(), "no request is left on it");
    world.connect();
    world.settle();
    world.lease(op);
}

#[test]
fn a_late_reply_of_a_connection_that_was_given_up_is_ignored() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Forever);
    let (request, _) = world.wire.pop_front().unwrap();
    world.event(Event::Disconnected("cut".to_owned()));
    world.reply(request, Ok(Reply::Granted { fence: 1 }));
    assert_eq!(world.outcome(op), None);
}

#[test]
fn a_connection_that_shows_new_data_raises_the_epoch() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Never);
    world.settle();
    let (lease, fence) = world.lease(op);
    world.release(lease);
    world.settle();

    // A failover to a server that lost the last grants, with a correct clock.
    world.event(Event::Disconnected("failover".to_owned()));
    world.server.set_replication_id("second");
    world.server.set_fence(world.now, fence - 5);
    world.pass(ms(10));
    world.connect();
    let op = world.acquire(10_000, Wait::Never);
    world.settle();
    assert!(world.lease(op).1 > fence, "the new epoch lifts the fence above {fence}");
}

#[test]
fn a_return_to_known_data_keeps_its_epoch() {
    let mut world = World::connected();
    let mut fences = Vec::new();
    for replication_id in ["first", "second", "first", "second"] {
        world.event(Event::Disconnected("failover".to_owned()));
        world.server.set_replication_id(replication_id);
        world.pass(ms(1_000));
        world.connect();
        let op = world.acquire(10_000, Wait::Never);
        world.settle();
        let (lease, fence) = world.lease(op);
        fences.push(fence);
        world.release(lease);
        world.settle();
    }
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    assert_eq!(fences[3], fences[2] + 1, "no lift on return");
}

#[test]
fn a_connection_that_died_behind_its_handshake_is_replaced() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Forever);
    let (request, _) = world.wire.pop_front().unwrap();
    world.reply(request, Err(Failure::Lost("broken pipe".to_owned())));
    world.connect();
    world.settle();
    world.lease(op);
}

#[test]
fn a_peer_that_hangs_up_on_every_request_is_not_stormed() {
    let mut world = World::connected();
    world.acquire(10_000, Wait::Forever);
    let mut connections = 0;
    for _ in 0..300 {
        if world.connecting {
            world.connect();
            connections += 1;
            world.event(Event::Disconnected("hung up".to_owned()));
        }
        world.execute_and_lose_replies();
        world.pass(ms(10));
    }
    assert!(connections <= 12, "{connections} connections in 3 s");
}

#[test]
fn a_peer_that_hangs_up_after_an_answer_is_not_stormed() {
    let mut world = World::connected();
    world.acquire(10_000, Wait::Forever);
    let mut connections = 0;
    for _ in 0..300 {
        if world.connecting {
            world.connect();
            connections += 1;
            if let Some((request, _)) = world.wire.pop_front() {
                world.reply(request, Err(refused("LOADING")));
            }
            world.event(Event::Disconnected("hung up".to_owned()));
        } else if connections == 0 {
            world.event(Event::Disconnected("hung up".to_owned()));
        }
        world.pass(ms(10));
    }
    assert!((3..=12).contains(&connections), "{connections} connections in 3 s");
}

#[test]
fn a_connection_that_breaks_after_a_while_is_made_anew_at_once() {
    let mut world = World::connected();
    for _ in 0..5 {
        world.pass(ms(1_000));
        let op = world.acquire(10_000, Wait::Never);
        world.settle();
        let (lease, _) = world.lease(op);
        world.release(lease);
        world.settle();
        world.event(Event::Disconnected("cut".to_owned()));
        assert!(world.connecting, "it connects again without a pause");
        world.connect();
    }
}

#[test]
fn a_promotion_in_place_raises_the_epoch_before_the_first_grant() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Forever);
    let (request, _) = world.wire.pop_front().unwrap();
    world.reply(request, Err(refused("READONLY")));
    let probes = world.probes;
    world.connect();
    assert_eq!(
        world.probes,
        probes + 1,
        "a look goes ahead of the retry, however new the connection"
    );
    world.server.set_replication_id("promoted");
    let probe = world.server.probe(world.now);
    let time = probe.time.as_micros();
    world.event(Event::Probed { probe, sent: world.now });
    world.settle();
    assert!(world.lease(op).1 >= time, "the fence is not below the new epoch, {time}");
}

#[test]
fn a_replica_that_stays_one_is_not_stormed() {
    let mut world = World::connected();
    world.acquire(10_000, Wait::Forever);
    let mut connects = 0;
    for _ in 0..1_000 {
        if let Some((request, _)) = world.wire.pop_front() {
            world.reply(request, Err(refused("READONLY")));
        }
        if world.connecting {
            connects += 1;
            world.connect();
        }
        world.pass(ms(10));
    }
    assert!((5..40).contains(&connects), "{connects} connections in ten seconds");
}

#[test]
fn reconnecting_backs_off() {
    let mut world = World::connected();
    world.event(Event::Disconnected("gone".to_owned()));
    let mut pauses = Vec::new();
    for _ in 0..8 {
        assert!(std::mem::take(&mut world.connecting), "each pause ends with an attempt");
        world.event(Event::ConnectFailed(Failure::Lost("refused".to_owned())));
        let at = world.machine.next_timeout().unwrap();
        pauses.push(at.since(world.now));
        world.pass(at.since(world.now));
    }
    assert!(pauses[0] <= ms(100), "the first pause is short: {pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= ms(1_000)), "no pause exceeds 1 s: {pauses:?}");
    assert!(pauses[7] >= ms(500), "{pauses:?}");
}

#[test]
fn a_login_that_is_refused_later_ends_who_waits_and_no_lease() {
    for code in ["WRONGPASS", "NOAUTH", "NOPERM"] {
        let mut world = World::connected();
        let held = world.acquire(60_000, Wait::Never);
        world.settle();
        let (lease, _) = world.lease(held);
        let waiting = world.acquire(10_000, Wait::Forever);
        world.settle();
        world.event(Event::Disconnected("gone".to_owned()));
        let extending = world.command(Command::Extend { lease, ttl: None });
        let Failure::Refused(refusal) = refused(code) else { panic!() };
        world.notices.clear();
        for _ in 0..2 {
            world.event(Event::ConnectFailed(refused(code)));
        }
        let outcome = Outcome::Server { refusal: refusal.clone(), key: None };
        assert_eq!(world.outcome(waiting), Some(&outcome));
        assert_eq!(world.outcome(extending), Some(&outcome));
        assert_eq!(world.notices, [Notice::LoginRefused(String::new(), refusal)]);
        world.connect();
        world.settle();
        assert!(world.lost.is_empty(), "{:?}", world.lost);
    }
}

#[test]
fn a_refusal_that_passes_lets_who_waits_wait() {
    let mut world = World::connected();
    world.event(Event::Disconnected("gone".to_owned()));
    let waiting = world.acquire(10_000, Wait::Forever);
    world.event(Event::ConnectFailed(refused("LOADING")));
    assert_eq!(world.outcome(waiting), None);
}

/// A manager that connects for the first time, with a patience of three seconds.
fn patient() -> (World, OpId) {
    let mut world = World::new("c");
    let config = Config { open_patience: ms(3_000), ..world.machine.context.config.clone() };
    world.machine = Machine::new(config, 7);
    let op = world.command(Command::Open);
    (world, op)
}

#[test]
fn a_first_connection_is_tried_again_during_a_failover() {
    for failure in [Failure::Lost("a replica".to_owned()), refused("LOADING")] {
        let (mut world, op) = patient();
        for _ in 0..4 {
            assert!(std::mem::take(&mut world.connecting), "it tries again after {failure}");
            world.event(Event::ConnectFailed(failure.clone()));
            assert_eq!(world.outcome(op), None);
            world.pass(ms(500));
        }
        world.connect();
        assert_eq!(world.outcome(op), Some(&Outcome::Done));
        assert!(world.machine.is_idle() && world.notices.is_empty(), "the failures leave nothing");
    }
}

#[test]
fn close_ends_a_first_connection_that_is_still_awaited() {
    let (mut world, open) = patient();
    let close = world.command(Command::Close);
    assert_eq!(world.outcome(open), Some(&Outcome::Closed));
    assert_eq!(world.outcome(close), Some(&Outcome::Done));
}

#[test]
fn a_first_connection_that_fails_for_long_reports_the_reason() {
    let (mut world, op) = patient();
    assert!(std::mem::take(&mut world.connecting), "the first attempt is made");
    world.event(Event::ConnectFailed(Failure::Lost("first".to_owned())));
    world.pass(ms(1_000));
    assert!(std::mem::take(&mut world.connecting), "the second attempt is made");
    world.event(Event::ConnectFailed(Failure::Lost("second".to_owned())));
    world.pass(ms(1_990));
    assert_eq!(world.outcome(op), None);
    world.pass(ms(10));
    assert_eq!(world.outcome(op), Some(&Outcome::Connection("second".to_owned())));
    assert!(world.stopped, "the machine ends without a connection");
}

#[test]
fn a_first_connection_that_is_refused_for_good_is_not_tried_again() {
    let (mut world, op) = patient();
    world.event(Event::ConnectFailed(refused("WRONGPASS")));
    assert!(
        matches!(world.outcome(op), Some(Outcome::Server { .. })),
        "the refusal is told at once: {:?}",
        world.outcome(op)
    );
    assert!(world.stopped, "a refusal for good ends the machine");
}

#[test]
fn a_first_connection_that_fails_ends_the_machine() {
    let mut world = World::new("c");
    let op = world.command(Command::Open);
    world.event(Event::ConnectFailed(Failure::Lost("refused".to_owned())));
    assert_eq!(world.outcome(op), Some(&Outcome::Connection("refused".to_owned())));
    assert!(world.stopped, "the machine ends without a connection");
}

#[test]
fn a_peer_that_hangs_up_on_every_request_after_a_while_is_not_stormed() {
    let mut world = World::connected();
    world.acquire(10_000, Wait::Forever);
    let mut connections = 0;
    for _ in 0..300 {
        if world.connecting {
            world.connect();
            connections += 1;
        }
        if let Some((request, _)) = world.wire.pop_front() {
            world.pass(ms(25));
            world.reply(request, Err(Failure::Lost("hung up".to_owned())));
        }
        world.pass(ms(10));
    }
    assert!(connections <= 12, "{connections} connections in 3 s");
}

#[test]
fn a_history_that_is_remembered_among_many_keeps_its_epoch() {
    let mut world = World::connected();
    let fence_of = |world: &mut World, replication_id: &str| {
        world.event(Event::Disconnected("failover".to_owned()));
        world.server.set_replication_id(replication_id);
        world.pass(ms(1_000));
        world.connect();
        let op = world.acquire(10_000, Wait::Never);
        world.settle();
        let (lease, fence) = world.lease(op);
        world.release(lease);
        world.settle();
        fence
    };
    // With the first of all there are 64.
    let last = (1..64).map(|number| fence_of(&mut world, &number.to_string())).last().unwrap();
    assert_eq!(fence_of(&mut world, "1"), last + 1, "no lift on return");
}
