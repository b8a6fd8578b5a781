//! One situation per test, in the order of a lock's life.

use super::server::Server;
use super::world::{COMMAND_TIMEOUT, ONE_LEASE, World, ms};
use crate::machine::{Command, Event, HoldTerms, LeaseId, OpId, Outcome, Protocol, Wait};
use crate::protocol::{Call, Failure, Mode, Mono, Refusal};
use std::sync::Arc;

fn refused(code: &str) -> Failure {
    Failure::Refused(Refusal { code: code.to_owned(), detail: "because".to_owned() })
}

#[test]
fn a_free_lock_is_acquired_and_released() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Never);
    world.settle();
    let (lease, fence) = world.lease(op);
    assert!(fence > 1_700_000_000_000_000, "the fence begins at the server's clock: {fence}");
    assert_eq!(world.deadlines[&lease].since(world.now), ms(10_000 - 102));

    let op = world.release(lease);
    assert!(world.deadlines.is_empty(), "not held from the moment of the call");
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Done));
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn validity_counts_from_the_send() {
    let mut world = World::connected().by_scripts();
    let op = world.acquire(1_000, Wait::Never);
    let sent = world.now;
    world.pass(ms(300));
    world.settle();
    let (lease, _) = world.lease(op);
    assert_eq!(world.deadlines[&lease].since(sent), ms(1_000 - 12));
}

#[test]
fn a_grant_that_comes_too_late_is_given_back() {
    let mut world = World::connected().by_scripts();
    let op = world.acquire(50, Wait::Never);
    let (request, call) = world.wire.pop_front().unwrap();
    let reply = world.server.execute(world.now, &call);
    world.pass(ms(60));
    world.reply(request, reply);
    assert!(
        matches!(world.outcome(op), Some(Outcome::Connection(_))),
        "the late grant gives no lock: {:?}",
        world.outcome(op)
    );
    assert_eq!(world.released, ["hf1.c.1"]);
}

#[test]
fn a_held_lock_is_null_for_try_and_a_timeout_for_acquire() {
    let mut world = World::connected();
    world.server.set_foreign(world.now, &World::keys(), "old code", ms(60_000));
    let attempt = world.acquire(1_000, Wait::Never);
    world.settle();
    assert_eq!(world.outcome(attempt), Some(&Outcome::Held));

    let waiter = world.acquire(1_000, Wait::UpTo(ms(5_000)));
    for _ in 0..600 {
        world.settle();
        world.pass(ms(10));
    }
    let Some(Outcome::TimedOut { waited, holder, .. }) = world.outcome(waiter) else {
        panic!("{:?}", world.outcome(waiter));
    };
    assert_eq!((*waited, holder.as_str()), (ms(5_000), "old code"));
    world.settle();
    assert_eq!(world.server.queue_len(world.now, &World::keys()), 0, "it has left the queue");
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn a_waiter_gets_the_lock_when_it_expires() {
    let mut world = World::connected();
    world.server.set_foreign(world.now, &World::keys(), "old code", ms(500));
    let op = world.acquire(1_000, Wait::Forever);
    for _ in 0..100 {
        world.settle();
        world.pass(ms(10));
    }
    world.lease(op);
}

#[test]
fn a_request_without_a_reply_is_repeated_with_the_same_token() {
    let mut world = World::connected().by_scripts();
    let op = world.acquire(10_000, Wait::UpTo(ms(5_000)));
    world.execute_and_lose_replies();
    assert_eq!(world.outcome(op), None);
    let issued = world.server.fence(world.now);
    world.connect();
    world.settle();
    let (lease, fence) = world.lease(op);
    assert_eq!(lease.token_id().0, 1, "the first token");
    assert_eq!(Some(fence - 1), issued, "and a later fence: that of the lost answer was not used");

    // The lost request may still arrive: the release is repeated.
    world.release(lease);
    world.settle();
    world.pass(ms(1_000));
    world.settle();
    assert_eq!(world.released, ["hf1.c.1", "hf1.c.1"]);
    let again = world.acquire(10_000, Wait::Never);
    world.settle();
    assert!(world.lease(again).1 > fence, "the next fence is above {fence}");
}

#[test]
fn an_unknown_acquire_fails_at_its_deadline_and_is_released_on_reconnect() {
    let mut world = World::connected();
    let op = world.acquire(60_000, Wait::Never);
    world.execute_and_lose_replies();
    assert_eq!(world.server.owner(world.now, &World::keys()).as_deref(), Some("hf1.c.1"));
    world.pass(COMMAND_TIMEOUT);
    assert!(
        matches!(world.outcome(op), Some(Outcome::Connection(_))),
        "the acquire is unanswered: {:?}",
        world.outcome(op)
    );
    world.connect();
    world.settle();
    assert_eq!(world.server.owner(world.now, &World::keys()), None);
    world.pass(ms(1_000));
    world.settle();
    assert_eq!(world.released, ["hf1.c.1", "hf1.c.1"], "once more for a request in a buffer");
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn a_script_that_the_server_forgot_is_sent_whole() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Never);
    let (request, _) = world.wire.pop_front().unwrap();
    world.reply(request, Err(Failure::NoScript));
    world.settle();
    world.lease(op);
}

#[test]
fn what_could_not_be_done_together_is_sent_alone() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Never);
    let (request, _) = world.wire.pop_front().unwrap();
    world.reply(request, Err(Failure::Together));
    world.settle();
    world.lease(op);
}

#[test]
fn what_could_not_be_done_together_is_not_sent_once_it_was_given_up() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Never);
    let (request, _) = world.wire.pop_front().unwrap();
    let close = world.command(Command::Close);
    world.reply(request, Err(Failure::Together));
    assert_eq!(world.wire.len(), 1, "only the release");
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Closed));
    assert_eq!(world.outcome(close), Some(&Outcome::Done));
    assert_eq!(world.server.owner(world.now, &World::keys()), None);
}

#[test]
fn a_forgotten_script_does_not_bring_an_abandoned_acquire_back() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Never);
    let (request, _) = world.wire.pop_front().unwrap();
    let close = world.command(Command::Close);
    assert_eq!(world.outcome(op), Some(&Outcome::Closed));
    world.reply(request, Err(Failure::NoScript));
    assert_eq!(world.wire.len(), 1, "only the release");
    world.settle();
    assert_eq!(world.outcome(close), Some(&Outcome::Done));
    assert_eq!(world.server.owner(world.now, &World::keys()), None);
}

#[test]
fn a_transient_refusal_is_retried_within_the_wait() {
    for code in ["LOADING", "BUSY", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN"] {
        let mut world = World::connected();
        let op = world.acquire(10_000, Wait::UpTo(ms(5_000)));
        let (request, _) = world.wire.pop_front().unwrap();
        world.reply(request, Err(refused(code)));
        assert_eq!(world.connecting, code == "READONLY", "a replica is left for whoever leads now");
        if world.connecting {
            world.connect();
        }
        world.pass(ms(100));
        world.settle();
        world.lease(op);
    }
}

#[test]
fn a_lasting_refusal_ends_the_acquire_at_once() {
    for code in ["NOPERM", "OOM", "WRONGTYPE"] {
        let mut world = World::connected().by_scripts();
        let op = world.acquire(10_000, Wait::Forever);
        let (request, _) = world.wire.pop_front().unwrap();
        world.reply(request, Err(refused(code)));
        let Some(Outcome::Server { refusal, key }) = world.outcome(op) else {
            panic!("{:?}", world.outcome(op));
        };
        assert_eq!((refusal.code.as_str(), key.as_deref()), (code, Some("lock:a")));
    }
}

#[test]
fn a_grant_under_an_epoch_that_a_probe_has_overtaken_is_not_used() {
    let mut world = World::connected().by_scripts();
    world.pass(ms(3_600_000));
    world.server.set_fence(world.now, 1_700_000_002_000_000);
    let op = world.acquire(10_000, Wait::Never);
    assert_eq!(world.probes, 1, "an idle connection probes before it asks");
    let (request, call) = world.wire.pop_front().unwrap();
    let reply = world.server.execute(world.now, &call);
    // Promoted in place: the connection stays, the data has another replication id.
    world.server.set_replication_id("second");
    let probe = world.server.probe(world.now);
    let time = probe.time.as_micros();
    world.event(Event::Probed { probe, sent: world.now });
    world.reply(request, reply);
    assert_eq!(world.outcome(op), None);
    world.settle();
    let (lease, fence) = world.lease(op);
    assert_eq!(lease.token_id().0, 2, "a new token");
    assert!(fence >= time, "the fence is not below the new epoch, {time}");
    assert_eq!(world.released, ["hf1.c.1"]);
}

#[test]
fn a_try_whose_token_was_replaced_leaves_nothing_behind() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Never);
    let (request, call) = world.wire.pop_front().unwrap();
    let reply = world.server.execute(world.now, &call);
    // The server has lost what it granted, and somebody else has the lock.
    world.server.set_replication_id("second");
    let later = world.now + ms(3_600_000);
    let probe = world.server.probe(later);
    world.event(Event::Probed { probe, sent: world.now });
    world.server.flush();
    world.server.set_foreign(world.now, &World::keys(), "old code", ms(60_000));
    world.reply(request, reply);
    assert_eq!(world.outcome(op), None, "another token asks");
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Held));
    assert!(world.machine.is_idle(), "{:?}", world.machine);
}

#[test]
fn extending_never_shortens() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Never);
    world.settle();
    let (lease, _) = world.lease(op);
    let until = world.deadlines[&lease];
    let op = world.command(Command::Extend { lease, ttl: Some(ms(50)) });
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Done));
    assert_eq!(world.deadlines[&lease], until);
    let op = world.command(Command::Extend { lease, ttl: Some(ms(20_000)) });
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Done));
    assert_eq!(world.deadlines[&lease].since(world.now), ms(20_000 - 202));
}

#[test]
fn extending_after_another_took_over_is_lost() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Never);
    world.settle();
    let (lease, _) = world.lease(op);
    world.server.set_foreign(world.now, &World::keys(), "thief", ms(60_000));
    let op = world.command(Command::Extend { lease, ttl: None });
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Lost));
    assert!(world.deadlines.is_empty(), "the lock is held no more");
    assert_eq!(world.server.owner(world.now, &World::keys()).as_deref(), Some("thief"));
}

#[test]
fn an_extension_goes_on_over_a_reconnect() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Never);
    world.settle();
    let (lease, _) = world.lease(op);
    let op = world.command(Command::Extend { lease, ttl: Some(ms(20_000)) });
    world.execute_and_lose_replies();
    world.pass(ms(100));
    world.connect();
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Done));
    assert_eq!(world.deadlines[&lease].since(world.now), ms(20_000 - 202));
}

/// Refuses every request for a while.
fn refuse_for(world: &mut World, duration: std::time::Duration, failure: &Failure) {
    let end = world.now + duration;
    while world.now < end {
        while let Some((request, _)) = world.wire.pop_front() {
            world.reply(request, Err(failure.clone()));
        }
        if world.connecting {
            // The machine leaves a replica for the current primary.
            world.connect();
        }
        world.pass(ms(5).min(end.since(world.now)));
    }
}

/// A lock with this lease, and an extension of it to 20 s in flight.
fn extending(ttl_ms: u64) -> (World, LeaseId, OpId) {
    let mut world = World::connected();
    let op = world.acquire(ttl_ms, Wait::Never);
    world.settle();
    let (lease, _) = world.lease(op);
    let op = world.command(Command::Extend { lease, ttl: Some(ms(20_000)) });
    (world, lease, op)
}

#[test]
fn an_extension_outlasts_transient_refusals() {
    let codes = ["BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "NOREPLICAS", "READONLY"];
    let mut failures = codes.map(refused).to_vec();
    failures.push(Failure::NoQuorum(vec!["down".to_owned()]));
    failures.push(Failure::Halfway);
    for failure in failures {
        let (mut world, lease, op) = extending(10_000);
        refuse_for(&mut world, ms(1_000), &failure);
        assert_eq!(world.outcome(op), None, "{failure}");
        for _ in 0..90 {
            world.settle();
            world.pass(ms(10));
            if world.connecting {
                world.connect();
            }
        }
        assert_eq!(world.outcome(op), Some(&Outcome::Done), "{failure}");
        assert!(world.deadlines[&lease].since(world.now) > ms(18_000), "the extension lasts");
        world.release(lease);
        world.settle();
        assert!(world.machine.is_idle(), "{failure}");
    }
}

#[test]
fn an_extension_that_is_refused_until_its_deadline_reports_the_reason() {
    let (mut world, _, op) = extending(10_000);
    refuse_for(&mut world, COMMAND_TIMEOUT, &refused("LOADING"));
    let Some(Outcome::Server { refusal, key }) = world.outcome(op) else {
        panic!("{:?}", world.outcome(op));
    };
    assert_eq!((refusal.code.as_str(), key.as_deref()), ("LOADING", Some(World::keys().lock())));

    let (mut world, _, op) = extending(10_000);
    let causes = vec!["down".to_owned(), String::new(), "hung".to_owned()];
    refuse_for(&mut world, COMMAND_TIMEOUT, &Failure::NoQuorum(causes.clone()));
    assert_eq!(world.outcome(op), Some(&Outcome::Quorum(causes)));
}

#[test]
fn an_extension_that_is_refused_for_good_fails_at_once() {
    let (mut world, _, op) = extending(10_000);
    let (request, _) = world.wire.pop_front().unwrap();
    world.reply(request, Err(refused("NOPERM")));
    assert!(matches!(world.outcome(op), Some(Outcome::Server { .. })));
}

#[test]
fn an_extension_finds_out_that_other_code_has_written_another_type() {
    let (mut world, lease, op) = extending(10_000);
    let (request, _) = world.wire.pop_front().unwrap();
    world.reply(request, Err(refused("WRONGTYPE")));
    assert_eq!(world.outcome(op), Some(&Outcome::Lost));
    assert!(!world.deadlines.contains_key(&lease), "the lease is lost");
}

#[test]
fn an_extension_that_is_refused_ends_with_the_lease() {
    let (mut world, _, op) = extending(500);
    refuse_for(&mut world, ms(500), &refused("LOADING"));
    assert_eq!(world.outcome(op), Some(&Outcome::Lost));
}

/// The answer is read ahead of the timer of that moment.
#[test]
fn an_extension_that_is_answered_as_the_lease_ends_comes_too_late() {
    let (mut world, lease, op) = extending(500);
    world.now = world.deadlines[&lease];
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Lost));
    assert!(world.deadlines.is_empty(), "the lease is over");
}

#[test]
fn a_lease_that_runs_out_is_over_and_given_back() {
    let mut world = World::connected();
    let op = world.acquire(1_000, Wait::Never);
    world.settle();
    let (lease, _) = world.lease(op);
    world.pass(ms(1_000 - 12));
    assert!(world.deadlines.is_empty(), "the lease is over here");
    assert!(world.server.owner(world.now, &World::keys()).is_some(), "the server's is longer");
    let op = world.release(lease);
    assert_eq!(world.outcome(op), Some(&Outcome::Lost));
    world.settle();
    assert_eq!(world.server.owner(world.now, &World::keys()), None);
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn a_repeated_release_that_finds_nothing_was_the_one_that_freed() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Never);
    world.settle();
    let (lease, _) = world.lease(op);
    let op = world.release(lease);
    world.execute_and_lose_replies();
    world.connect();
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Done));
}

#[test]
fn a_first_release_that_finds_nothing_was_too_late() {
    let mut world = World::connected();
    // A lost reply to its acquire must not count as one to a release.
    let op = world.acquire(10_000, Wait::Forever);
    world.execute_and_lose_replies();
    world.connect();
    world.settle();
    let (lease, _) = world.lease(op);
    world.server.set_foreign(world.now, &World::keys(), "thief", ms(60_000));
    let op = world.release(lease);
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Lost));
    assert_eq!(world.server.owner(world.now, &World::keys()).as_deref(), Some("thief"));
}

#[test]
fn a_release_without_an_answer_fails_in_time_and_goes_on() {
    let mut world = World::connected();
    let op = world.acquire(60_000, Wait::Never);
    world.settle();
    let (lease, _) = world.lease(op);
    let op = world.release(lease);
    world.pass(COMMAND_TIMEOUT);
    assert!(
        matches!(world.outcome(op), Some(Outcome::Connection(_))),
        "the release is unanswered: {:?}",
        world.outcome(op)
    );
    world.connect();
    world.settle();
    assert_eq!(world.server.owner(world.now, &World::keys()), None);
}

#[test]
fn close_ends_everything_and_leaves_nothing() {
    let mut world = World::connected();
    let held = world.acquire(60_000, Wait::Never);
    world.settle();
    let (lease, _) = world.lease(held);
    let extending = world.command(Command::Extend { lease, ttl: None });
    let waiting = world.acquire(60_000, Wait::Forever);
    let close = world.command(Command::Close);
    assert_eq!(world.outcome(extending), Some(&Outcome::Closed));
    assert_eq!(world.outcome(waiting), Some(&Outcome::Closed));
    assert_eq!(world.outcome(close), None);
    world.settle();
    assert_eq!(world.outcome(close), Some(&Outcome::Done));
    assert!(world.stopped && world.machine.is_idle(), "closing leaves nothing to do");
    assert_eq!(world.server.owner(world.now, &World::keys()), None);
}

#[test]
fn a_manager_that_is_closed_refuses_all_but_to_be_closed() {
    let mut world = World::connected();
    let held = world.acquire(60_000, Wait::Never);
    world.settle();
    world.lease(held);
    let close = world.command(Command::Close);
    let late = world.acquire(60_000, Wait::Never);
    assert_eq!(world.outcome(late), Some(&Outcome::Closed));
    let again = world.command(Command::Close);
    assert_eq!(world.outcome(again), Some(&Outcome::Done));
    world.cancel(close);
    assert_eq!(world.outcome(close), None, "to close is not cancelled");
    world.settle();
    assert_eq!(world.outcome(close), Some(&Outcome::Done));
}

#[test]
fn a_manager_is_idle_once_nothing_is_left_to_do() {
    let mut world = World::connected();
    assert!(world.machine.is_idle(), "a new manager has nothing to do");
    let op = world.acquire(10_000, Wait::Forever);
    assert!(world.machine.next_timeout().is_some() && !world.machine.is_idle(), "it waits");
    world.settle();
    assert!(!world.machine.is_idle(), "it holds a lock");
    world.release(world.lease(op).0);
    assert!(!world.machine.is_idle(), "it gives the lock back");
    world.settle();
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn the_statistics_count_holds_waiters_and_timeouts() {
    let mut world = World::connected();
    let held = world.acquire(10_000, Wait::Never);
    world.settle();
    world.lease(held);
    world.acquire(10_000, Wait::UpTo(ms(100)));
    world.acquire(10_000, Wait::Forever);
    world.settle();
    let stats = world.machine.stats();
    assert_eq!((stats.held, stats.waiting, stats.timed_out), (1, 2, 0));
    world.pass(ms(100));
    let stats = world.machine.stats();
    assert_eq!((stats.held, stats.waiting, stats.timed_out), (1, 1, 1));
}

fn acquire_labelled(world: &mut World, label: &str) -> OpId {
    let (name, label) = ("a".to_owned(), label.into());
    let (ttl, wait, hold, mode) = (ms(10_000), Wait::Forever, ONE_LEASE, Mode::Exclusive);
    world.command(Command::Acquire { name, ttl, wait, label, hold, mode })
}

#[test]
fn a_label_stands_in_the_token_from_the_acquire_to_the_release() {
    let mut world = World::connected();
    let op = acquire_labelled(&mut world, "cron");
    world.settle();
    let (lease, _) = world.lease(op);
    assert!(
        matches!(world.outcome(op), Some(Outcome::Acquired { label: None, .. })),
        "the caller knows its own label: {:?}",
        world.outcome(op)
    );
    let owner = world.server.owner(world.now, &World::keys());
    assert_eq!(owner.as_deref(), Some("hf1.c.1.cron"));
    let extend = world.command(Command::Extend { lease, ttl: None });
    world.settle();
    assert_eq!(world.outcome(extend), Some(&Outcome::Done));
    let release = world.release(lease);
    world.settle();
    assert_eq!(world.outcome(release), Some(&Outcome::Done));
    assert_eq!(world.server.owner(world.now, &World::keys()), None);
}

#[test]
fn a_grant_by_the_token_of_another_caller_comes_with_its_label() {
    let mut world = World::connected();
    world.server.set_foreign(world.now, &World::keys(), "old code", ms(600_000));
    let first = acquire_labelled(&mut world, "first");
    world.settle();
    let second = acquire_labelled(&mut world, "second");
    world.cancel(first);
    world.server.command(world.now, &["DEL", World::keys().lock()]);
    world.pass(ms(141));
    world.settle();
    let outcome = world.outcome(second);
    let label = Some("first".to_owned());
    assert!(
        matches!(outcome, Some(Outcome::Acquired { label: told, .. }) if *told == label),
        "the grant tells the token's label: {outcome:?}"
    );
}

#[test]
fn close_leaves_a_lease_to_expire() {
    let mut world = World::connected();
    let op =
        world.acquire_held(60_000, Wait::Never, HoldTerms { leave_to_expire: true, ..ONE_LEASE });
    world.settle();
    world.lease(op);
    let owner = world.server.owner(world.now, &World::keys());
    assert!(owner.is_some(), "the server has granted the lease");
    let close = world.command(Command::Close);
    world.settle();
    assert_eq!(world.outcome(close), Some(&Outcome::Done));
    assert!(world.stopped && world.machine.is_idle(), "closing leaves nothing to do");
    assert_eq!(world.server.owner(world.now, &World::keys()), owner);
}

#[test]
fn a_lease_that_is_left_to_expire_is_not_released_at_its_end() {
    let mut world = World::connected();
    let op =
        world.acquire_held(10_000, Wait::Never, HoldTerms { leave_to_expire: true, ..ONE_LEASE });
    world.settle();
    let (lease, _) = world.lease(op);
    let owner = world.server.owner(world.now, &World::keys());
    world.pass(ms(9_950));
    world.settle();
    assert!(!world.lost.is_empty() && !world.deadlines.contains_key(&lease), "the lease is over");
    assert_eq!(world.server.owner(world.now, &World::keys()), owner);
}

#[test]
fn close_does_not_wait_for_a_dead_server_for_ever() {
    let mut world = World::connected();
    let held = world.acquire(60_000, Wait::Never);
    world.settle();
    world.lease(held);
    world.event(Event::Disconnected("gone".to_owned()));
    let close = world.command(Command::Close);
    world.pass(COMMAND_TIMEOUT);
    assert_eq!(world.outcome(close), Some(&Outcome::Done));
    assert!(world.stopped, "closing gives the server up in time");
}

#[test]
fn a_reply_is_never_credited_to_a_later_operation_of_the_same_name() {
    let mut world = World::connected();
    let mut out = Vec::new();
    let op = world.acquire(10_000, Wait::UpTo(ms(0)));
    let (request, call) = world.wire.pop_front().unwrap();
    world.pass(ms(1_000));
    world.cancel(op);
    // The caller's next acquire, of another lock, gets the same slot.
    world.outcomes.remove(&op);
    let (ttl, wait, label) = (ms(10_000), Wait::Never, Arc::default());
    let next = Command::Acquire {
        name: "b".to_owned(),
        ttl,
        wait,
        label,
        hold: ONE_LEASE,
        mode: Mode::Exclusive,
    };
    world.machine.handle_command(world.now, op, next, &mut out);
    let reply = world.server.execute(world.now, &call);
    world.reply(request, reply);
    assert_eq!(world.outcome(op), None);
    assert!(world.deadlines.is_empty(), "the late reply starts no hold");
}

#[test]
fn a_release_that_is_refused_for_long_still_ends() {
    let mut world = World::connected_with(ms(60_000));
    let op = world.acquire(600_000, Wait::Never);
    world.settle();
    let (lease, _) = world.lease(op);
    let op = world.release(lease);
    for _ in 0..70 {
        if let Some((request, _)) = world.wire.pop_front() {
            world.reply(request, Err(refused("BUSY")));
        }
        world.pass(ms(1_000));
    }
    assert!(
        matches!(world.outcome(op), Some(Outcome::Server { .. })),
        "the refusal ends the release: {:?}",
        world.outcome(op)
    );
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn a_release_that_is_refused_for_good_says_so_at_once() {
    for (code, is_said) in [("NOPERM", true), ("LOADING", false)] {
        let mut world = World::connected().by_scripts();
        let op = world.acquire(60_000, Wait::Never);
        world.settle();
        let (lease, _) = world.lease(op);
        let op = world.release(lease);
        let (request, _) = world.wire.pop_front().unwrap();
        world.reply(request, Err(refused(code)));
        let outcome = world.outcome(op);
        assert_eq!(matches!(outcome, Some(Outcome::Server { .. })), is_said, "{code}: {outcome:?}");

        world.pass(ms(1_000));
        world.settle();
        assert_eq!(world.outcome(op) == Some(&Outcome::Done), !is_said, "{code}");
        assert_eq!(world.server.owner(world.now, &World::keys()), None, "{code}: it is repeated");
        assert!(world.machine.is_idle(), "nothing is left to do");
    }
}

#[test]
fn an_abandoned_acquire_on_a_lost_connection_is_released_twice() {
    let mut world = World::connected();
    let op = world.acquire(60_000, Wait::Forever);
    world.cancel(op);
    world.event(Event::Disconnected("cut".to_owned()));
    world.connect();
    world.settle();
    world.pass(ms(1_000));
    world.settle();
    assert_eq!(world.released, ["hf1.c.1", "hf1.c.1", "hf1.c.1"]);
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn a_lost_lock_whose_acquire_may_still_arrive_is_released_twice() {
    let mut world = World::connected();
    let op = world.acquire(60_000, Wait::Forever);
    world.event(Event::Disconnected("cut".to_owned()));
    world.connect();
    world.settle();
    let (lease, _) = world.lease(op);
    world.server.set_foreign(world.now, &World::keys(), "thief", ms(60_000));
    world.command(Command::Extend { lease, ttl: None });
    world.settle();
    world.pass(ms(1_000));
    world.settle();
    assert_eq!(world.released, ["hf1.c.1", "hf1.c.1"]);
}

#[test]
fn an_extension_of_a_lock_that_was_released_meanwhile_is_lost() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Never);
    world.settle();
    let (lease, _) = world.lease(op);
    let extending = world.command(Command::Extend { lease, ttl: None });
    world.release(lease);
    let (request, _) = world.wire.pop_front().unwrap();
    world.reply(request, Err(Failure::NoScript));
    world.settle();
    assert_eq!(world.outcome(extending), Some(&Outcome::Lost));
}

#[test]
fn a_lost_lock_stays_lost() {
    let mut world = World::connected();
    let op = world.acquire(1_000, Wait::Never);
    world.settle();
    let (lease, _) = world.lease(op);
    world.pass(ms(900));
    let extending = world.command(Command::Extend { lease, ttl: Some(ms(10_000)) });
    let (request, call) = world.wire.pop_front().unwrap();
    let reply = world.server.execute(world.now, &call);
    // The reply is handled before the timer that ends the lease.
    world.now = world.now + ms(90);
    world.reply(request, reply);
    assert_eq!(world.outcome(extending), Some(&Outcome::Lost));
    assert!(world.deadlines.is_empty(), "the late answer brings no lease back");
    world.settle();
    assert_eq!(world.server.owner(world.now, &World::keys()), None);
}

#[test]
fn a_release_is_sent_after_the_acquire_that_it_undoes() {
    let mut world = World::connected().by_scripts();
    world.acquire(10_000, Wait::Forever);
    world.command(Command::Close);
    let calls: Vec<&Call> = world.wire.iter().map(|(_, call)| call).collect();
    assert!(
        matches!(calls.as_slice(), [Call::Acquire { .. }, Call::Release { .. }]),
        "the release follows its acquire: {calls:?}"
    );
}

#[test]
fn a_token_tells_when_its_lock_was_asked_for() {
    let mut world = World::joining(&Server::new(), "c", Mono::from_micros(5_000_000));
    world.pass(ms(40));
    let first = world.acquire(10_000, Wait::Never);
    let second = world.acquire(10_000, Wait::Forever);
    world.settle();
    assert_eq!(world.server.owner(world.now, &World::keys()).as_deref(), Some("hf1.c.10000"));
    world.pass(ms(2_000));
    let (lease, _) = world.lease(first);
    world.release(lease);
    world.settle();
    let (lease, _) = world.lease(second);
    assert_eq!(lease.token_id().0, 10_001, "asked for in the same tick, after the first");
}
