//! Renewing a lock, losing it, and giving it up.

use super::one_shots::{take_held, two};
use super::world::{ONE_LEASE, RENEWED, World, ms};
use crate::machine::lease::Lease;
use crate::machine::wait_queue::AcquireRequest;
use crate::machine::{
    Command, Event, HoldTerms, LeaseId, LossReason, OpId, Outcome, Protocol, Wait,
};
use crate::protocol::{Call, Failure, Mode, Refusal, Reply};
use std::sync::Arc;

/// Advances the time in small steps, with a server that answers at once.
fn run(world: &mut World, duration_ms: u64) {
    for _ in 0..duration_ms / 10 {
        world.pass(ms(10));
        world.settle();
    }
}

fn held(world: &mut World, ttl_ms: u64, hold: HoldTerms) -> LeaseId {
    let op = world.acquire_held(ttl_ms, Wait::Never, hold);
    world.settle();
    world.lease(op).0
}

fn take_for(world: &mut World, ttl_ms: u64, hold: HoldTerms, mode: Mode) -> (LeaseId, u64) {
    let op = world.acquire_as(ttl_ms, Wait::Never, hold, mode);
    world.settle();
    world.lease(op)
}

#[test]
fn a_lease_is_renewed_at_a_third_of_its_length_until_release() {
    let mut world = World::connected();
    let lease = held(&mut world, 3_000, RENEWED);
    world.pass(ms(970));
    assert!(world.wire.is_empty(), "too early");
    world.pass(ms(30));
    assert!(matches!(world.wire.front(), Some((_, Call::Renew { .. }))), "the renewal is due");
    for _ in 0..2_000 {
        world.settle();
        world.pass(ms(10));
        let left = world.deadlines[&lease].since(world.now);
        assert!(left >= ms(1_500), "{left:?} left: below half the lease");
    }
    let op = world.release(lease);
    world.settle();
    assert_eq!(world.outcome(op), Some(&Outcome::Done));
    assert!(world.machine.is_idle(), "{:?}", world.machine);
    assert!(world.lost.is_empty(), "nobody learns of a loss: {:?}", world.lost);
}

/// How long the server keeps the lock.
fn server_ms(world: &World) -> u64 {
    world.server.ask(world.now, &["PTTL", World::keys().lock()])[0].parse().unwrap()
}

/// Whether the lock lasts at the server at least as long as its holder believes.
fn lasts(world: &World, lease: LeaseId) -> bool {
    ms(server_ms(world)) >= world.deadlines[&lease].since(world.now)
}

/// The renewal on the wire: whether it is by the plain command.
fn is_plain(world: &World) -> bool {
    match world.wire.back() {
        Some((_, Call::Renew { .. })) => true,
        Some((_, Call::Extend { .. })) => false,
        other => panic!("no renewal: {other:?}"),
    }
}

/// 1. A renews its lease of 10 s by `SET … IFEQ`. The connection is lost, and the command is on its way.
/// 2. On the next connection A extends its lease to 60 s.
/// 3. The command arrives, and ends the lease in 10 s. If A believed in the 60 s, it would hold the lock beside another.
#[test]
pub(super) fn a_plain_renewal_that_was_lost_ends_no_lease_that_its_holder_counts_on() {
    let mut world = World::connected();
    let lease = held(&mut world, 10_000, RENEWED);
    world.pass(ms(3_400));
    assert!(is_plain(&world), "the renewal is by the plain command");
    world.lose_requests();
    let late = world.late.pop().unwrap();
    world.connect();
    world.pass(ms(1_000));
    assert!(!is_plain(&world), "only the script shortens nothing");
    world.settle();
    let extension = world.command(Command::Extend { lease, ttl: Some(ms(60_000)) });
    world.settle();
    assert_eq!(world.outcome(extension), Some(&Outcome::Done));
    assert!(server_ms(&world) > 50_000, "the server has the longer lease");
    assert_eq!(world.server.execute(world.now, &late), Ok(Reply::Owner(true)));
    assert!(lasts(&world, lease), "the holder counts on more than the server keeps");
    run(&mut world, 30_000);
    assert!(world.lost.is_empty() && lasts(&world, lease), "the holder keeps its lease");
    // Its successor here might want a longer lease.
    let next = world.acquire_held(20_000, Wait::Forever, RENEWED);
    world.release(lease);
    world.settle();
    assert!(
        world.outcome(next).is_some() && world.machine.stats().handed_off == 0,
        "the successor is granted a lease of its own"
    );
}

/// 1. A asks for a lease of 60 s. Before the answer, a renewal is due for 10 s.
/// 2. The server executes both. By the plain command, the second would undo what A learns of the first.
#[test]
pub(super) fn a_lease_whose_caller_extends_it_is_renewed_by_the_script() {
    let mut world = World::connected();
    let lease = held(&mut world, 10_000, RENEWED);
    world.pass(ms(3_000));
    world.command(Command::Extend { lease, ttl: Some(ms(60_000)) });
    world.pass(ms(400));
    assert_eq!(world.wire.len(), 2);
    world.settle();
    assert!(lasts(&world, lease) && server_ms(&world) > 50_000, "the renewal undoes no extension");
    run(&mut world, 100_000);
    assert!(world.lost.is_empty() && lasts(&world, lease), "the extended lease lasts");
}

/// The plain command knows a value as it was set: not with the mark of waiters.
#[test]
pub(super) fn a_plain_renewal_of_a_lock_that_others_wait_for_decides_nothing() {
    let (mut a, mut b) = two();
    let lease = held(&mut a, 10_000, RENEWED);
    b.acquire(10_000, Wait::Forever);
    b.settle();
    a.pass(ms(3_400));
    assert!(is_plain(&a), "the renewal is by the plain command");
    a.answer_one();
    assert!(!is_plain(&a), "the script decides at once");
    a.settle();
    assert!(a.lost.is_empty() && lasts(&a, lease), "the waiter costs A no lease");
    a.pass(ms(3_400));
    assert!(!is_plain(&a), "the mark stays");
    a.server.flush();
    a.settle();
    assert_eq!(a.lost, [(lease, LossReason::Expired)], "the script's denial is final");
}

/// A plain command may be refused where the script is not: for want of memory, or of the right to it.
#[test]
fn a_plain_renewal_that_is_refused_is_made_up_for_by_the_script() {
    for (code, for_good) in [("OOM", false), ("NOPERM", true), ("ERR", true)] {
        let mut world = World::connected();
        let leases = ["a", "b"].map(|name| {
            let op = world.acquire_named(name, 10_000, Wait::Never, RENEWED, Mode::Exclusive);
            world.settle();
            world.lease(op).0
        });
        world.pass(ms(3_400));
        assert!(world.wire.len() == 2 && is_plain(&world), "both are by the plain command");
        let (request, _) = world.wire.pop_front().unwrap();
        world.reply(
            request,
            Err(Failure::Refused(Refusal { code: code.to_owned(), detail: String::new() })),
        );
        assert!(!is_plain(&world), "{code}");
        world.settle();
        world.pass(ms(3_400));
        let plain = world.wire.iter().filter(|(_, call)| matches!(call, Call::Renew { .. }));
        assert_eq!((plain.count(), world.wire.len()), (usize::from(!for_good), 2), "{code}");
        world.settle();
        assert!(
            world.lost.is_empty() && leases.iter().all(|it| world.deadlines[it] > world.now),
            "both leases last"
        );
        // The next connection may have the right.
        world.lose_requests();
        world.connect();
        world.settle();
        let op = world.acquire_named("c", 10_000, Wait::Never, RENEWED, Mode::Exclusive);
        world.settle();
        world.lease(op);
        world.pass(ms(3_400));
        let plain = |(_, call): &(_, Call)| matches!(call, Call::Renew { .. });
        assert!(world.wire.iter().any(plain), "{code}");
    }
}

/// A process may hold a hundred thousand locks and have ten thousand waiters.
#[test]
fn locks_and_waiters_are_small() {
    let sizes = (size_of::<Lease>(), size_of::<AcquireRequest>());
    assert!(sizes.0 <= 152 && sizes.1 <= 184, "{sizes:?} bytes");
    let mut world = World::connected();
    let lease = held(&mut world, 3_000, HoldTerms { max_hold: Some(ms(5_000)), ..RENEWED });
    assert!(world.machine.plans_only(lease.token_id()), "whatever a lease plans");
}

#[test]
fn renewals_that_are_due_together_leave_together() {
    let mut world = World::connected();
    for i in 0..100 {
        let name = format!("lock {i}");
        let (ttl, wait, label) = (ms(3_000), Wait::Never, Arc::default());
        world.command(Command::Acquire {
            name,
            ttl,
            wait,
            label,
            hold: RENEWED,
            mode: Mode::Exclusive,
        });
        world.settle();
        world.now = world.now + std::time::Duration::from_micros(100);
    }
    world.pass(ms(980));
    let at_once = world.wire.len();
    assert!(at_once == 0 || at_once >= 50, "{at_once} of 100 in the first pipeline");
    let mut pipelines = 0;
    while world.wire.len() < 100 {
        let due = world.machine.next_timeout().unwrap();
        world.pass(due.since(world.now));
        pipelines += 1;
    }
    assert!(pipelines <= 2, "{pipelines} for those of ten ms");
}

#[test]
fn a_renewal_goes_on_after_a_reconnect() {
    let mut world = World::connected();
    let lease = held(&mut world, 3_000, RENEWED);
    world.pass(ms(1_000));
    world.execute_and_lose_replies();
    world.pass(ms(800));
    world.connect();
    world.settle();
    assert!(world.deadlines[&lease].since(world.now) > ms(2_900), "the renewal comes in time");
    assert!(world.lost.is_empty(), "no lease is lost: {:?}", world.lost);
}

#[test]
fn a_share_is_kept_by_a_server_that_takes_over_with_it_and_lost_by_one_without() {
    for keeps in [true, false] {
        let mut world = World::connected();
        let op = world.acquire_as(3_000, Wait::Never, RENEWED, Mode::SHARED);
        world.settle();
        let (lease, _) = world.lease(op);
        world.event(Event::Disconnected("failover".to_owned()));
        if !keeps {
            world.server.flush();
        }
        world.server.set_replication_id("promoted");
        world.pass(ms(500));
        world.connect();
        run(&mut world, 3_000);
        assert_eq!(world.deadlines.contains_key(&lease), keeps);
        assert_eq!(world.lost.is_empty(), keeps, "{:?}", world.lost);
    }
}

#[test]
fn only_not_the_owner_is_final() {
    for code in ["BUSY", "LOADING", "OOM", "NOPERM", "READONLY"] {
        let mut world = World::connected();
        let lease = held(&mut world, 3_000, RENEWED);
        world.pass(ms(1_000));
        let (request, _) = world.wire.pop_front().unwrap();
        let refusal = Refusal { code: code.to_owned(), detail: String::new() };
        world.reply(request, Err(Failure::Refused(refusal)));
        if world.connecting {
            // The machine leaves a replica for the current primary.
            world.connect();
        }
        run(&mut world, 500);
        assert!(world.deadlines[&lease].since(world.now) > ms(2_000), "{code}");
    }
}

#[test]
fn a_server_that_stays_away_costs_the_lock_when_the_lease_ends() {
    let mut world = World::connected();
    let lease = held(&mut world, 3_000, RENEWED);
    world.event(Event::Disconnected("gone".to_owned()));
    world.pass(ms(2_960));
    assert!(world.lost.is_empty(), "the lease is not over yet");
    world.pass(ms(20));
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
    assert!(world.server.owner(world.now, &World::keys()).is_some(), "before another can be in");
    assert!(world.deadlines.is_empty(), "the lock is held no more");
}

#[test]
fn a_lock_with_another_owner_is_lost_at_the_next_renewal() {
    let mut world = World::connected();
    let lease = held(&mut world, 3_000, RENEWED);
    world.server.set_foreign(world.now, &World::keys(), "thief", ms(60_000));
    run(&mut world, 1_100);
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
    assert_eq!(world.server.owner(world.now, &World::keys()).as_deref(), Some("thief"));
    assert!(world.machine.is_idle(), "a lost lock leaves nothing to do");
}

/// No lock and no share can be at such a key, so that is as sure as another owner.
#[test]
fn a_lock_whose_key_other_code_has_written_over_is_lost_at_the_next_renewal() {
    for mode in [Mode::Exclusive, Mode::SHARED, Mode::permits(1, 3)] {
        let mut world = World::connected();
        let (lease, _) = take_for(&mut world, 3_000, RENEWED, mode);
        let keys = World::keys();
        world.server.command(world.now, &["DEL", keys.lock()]);
        world.server.command(world.now, &["ZADD", keys.lock(), "1", "other"]);
        run(&mut world, 1_100);
        assert_eq!(world.lost, [(lease, LossReason::Expired)], "{mode:?}");
    }
}

#[test]
fn a_stalled_process_does_not_hold_for_ever() {
    let mut world = World::connected();
    world.alive = false;
    let lease = held(&mut world, 3_000, HoldTerms { stall_timeout: ms(10_000), ..RENEWED });
    run(&mut world, 10_000);
    assert!(world.lost.is_empty(), "too early");
    run(&mut world, 6_000);
    assert_eq!(world.lost, [(lease, LossReason::Stalled)]);
    assert_eq!(world.server.owner(world.now, &World::keys()), None);
}

#[test]
fn a_process_that_comes_back_before_its_lease_ends_keeps_the_lock() {
    let mut world = World::connected();
    world.alive = false;
    held(&mut world, 3_000, HoldTerms { stall_timeout: ms(2_000), ..RENEWED });
    run(&mut world, 4_000);
    world.alive = true;
    world.event(Event::Heartbeat(world.now));
    run(&mut world, 20_000);
    assert!(world.lost.is_empty(), "the hold outlasts the stall: {:?}", world.lost);
}

/// Or the process was stopped, just when it had asked JavaScript for a sign of life.
#[test]
fn a_suspended_machine_is_no_stalled_process() {
    let mut world = World::connected();
    world.alive = false;
    held(&mut world, 60_000, HoldTerms { stall_timeout: ms(30_000), ..RENEWED });
    run(&mut world, 20_100);
    let until = *world.deadlines.values().next().unwrap();
    // All timers are late at once.
    world.now = world.now + until.since(world.now).saturating_sub(ms(1_000));
    world.pass(ms(0));
    world.settle();
    world.alive = true;
    world.event(Event::Heartbeat(world.now));
    run(&mut world, 60_000);
    assert_eq!(world.lost, []);
}

#[test]
fn a_lock_is_given_up_after_max_hold() {
    let mut world = World::connected();
    let lease = held(&mut world, 3_000, HoldTerms { max_hold: Some(ms(5_000)), ..RENEWED });
    assert!(world.deadlines[&lease].since(world.now) <= ms(3_000), "it is no longer than asked");
    run(&mut world, 4_000);
    assert!(
        world.deadlines[&lease].since(world.now) <= ms(1_000),
        "not beyond the end of the hold"
    );
    run(&mut world, 940);
    assert!(world.lost.is_empty(), "the hold is not over yet");
    run(&mut world, 20);
    assert_eq!(world.lost, [(lease, LossReason::MaxHold)]);
    assert_eq!(world.server.owner(world.now, &World::keys()), None, "released at once");
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn a_release_at_the_end_of_max_hold_finds_the_lock_lost() {
    let mut world = World::connected();
    let lease = held(&mut world, 3_000, HoldTerms { max_hold: Some(ms(1_000)), ..RENEWED });
    // Its holder reads the clock sooner than the machine.
    world.now = world.deadlines[&lease];
    let op = world.command(Command::Release { lease, exported: false });
    assert_eq!(world.outcome(op), Some(&Outcome::Lost));
    run(&mut world, 20);
    assert_eq!(world.lost, [(lease, LossReason::MaxHold)]);
    assert_eq!(world.server.owner(world.now, &World::keys()), None, "released at once");
}

#[test]
fn without_renewal_a_lock_is_lost_when_its_lease_ends() {
    let mut world = World::connected();
    let lease = held(&mut world, 1_000, ONE_LEASE);
    run(&mut world, 1_000);
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}

#[test]
fn an_extension_lasts_as_long_as_it_promises_and_later_renewals_have_the_ttl() {
    for mode in [Mode::Exclusive, Mode::SHARED, PERMIT] {
        let mut world = World::connected();
        let (lease, _) = take_for(&mut world, 300, RENEWED, mode);
        let before = world.machine.stats().requests;
        world.command(Command::Extend { lease, ttl: Some(ms(20_000)) });
        world.settle();
        let promised = world.deadlines[&lease];
        // As after a failover to a server that has missed the extension.
        world.server.command(world.now, &["PEXPIRE", World::keys().lock(), "8000"]);
        while world.now + ms(300) < promised {
            assert_eq!(world.deadlines[&lease], promised, "{mode:?}: neither less nor more");
            run(&mut world, 100);
            assert!(world.server.owner(world.now, &World::keys()).is_some(), "the server keeps it");
        }
        let asked = world.machine.stats().requests - before;
        assert!((5..20).contains(&asked), "{asked} requests in 20 s: {mode:?}");
        run(&mut world, 5_000);
        let left = world.deadlines[&lease].since(world.now);
        assert!((ms(150)..ms(300)).contains(&left), "{left:?} left: {mode:?}");
        let crashed = world.now + ms(300);
        assert_eq!(world.server.owner(crashed, &World::keys()), None, "{mode:?}");
    }
}

#[test]
fn a_short_extension_makes_later_renewals_no_shorter() {
    let mut world = World::connected();
    let lease = held(&mut world, 3_000, RENEWED);
    world.command(Command::Extend { lease, ttl: Some(ms(50)) });
    world.settle();
    run(&mut world, 10_000);
    assert!(world.deadlines[&lease].since(world.now) > ms(1_500), "renewals keep their length");
}

/// Whoever waits while its holder crashes gets the lock when `max_hold` is over, at the latest.
#[test]
fn no_request_asks_for_a_lease_beyond_the_hold() {
    let steps = [1, 1_200, 2_500, 4_000, 4_700, 4_900];
    for (mode, at) in [Mode::Exclusive, PERMIT].into_iter().flat_map(|it| steps.map(|at| (it, at)))
    {
        let mut world = World::connected();
        let hold = HoldTerms { max_hold: Some(ms(5_000)), ..RENEWED };
        let (lease, _) = take_for(&mut world, 3_000, hold, mode);
        let (end, before) = (world.now + ms(5_000), world.machine.stats().requests);
        run(&mut world, at);
        let op = world.command(Command::Extend { lease, ttl: Some(ms(60_000)) });
        world.settle();
        assert_eq!(world.outcome(op), Some(&Outcome::Done));
        run(&mut world, 30);
        let held_until = world.deadlines[&lease];
        assert!(held_until <= end && held_until + ms(60) > end, "{:?}", end.since(held_until));
        let after = end + ms(1);
        assert_eq!(world.server.owner(after, &World::keys()), None, "{mode:?} at {at}");
        let asked = world.machine.stats().requests - before;
        assert!(asked < 12, "{asked} requests: {mode:?} at {at}");
    }
}

/// What `leave` promises begins when the hold ends.
#[test]
fn a_last_lease_may_end_after_the_hold() {
    let mut world = World::connected();
    let lease = held(&mut world, 3_000, HoldTerms { max_hold: Some(ms(5_000)), ..RENEWED });
    world.command(Command::ExpireIn { lease, ttl: ms(60_000) });
    world.settle();
    run(&mut world, 10_000);
    assert!(world.server.owner(world.now, &World::keys()).is_some(), "the lease outlasts the hold");
}

#[test]
fn close_is_no_loss() {
    let mut world = World::connected();
    held(&mut world, 3_000, RENEWED);
    world.command(Command::Close);
    world.settle();
    assert!(world.lost.is_empty(), "closing is no loss: {:?}", world.lost);
    assert!(world.stopped && world.machine.is_idle(), "closing leaves nothing to do");
}

#[test]
fn a_cancelled_acquire_leaves_no_lock_behind() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Forever);
    world.cancel(op);
    assert_eq!(world.outcome(op), Some(&Outcome::Cancelled));
    world.settle();
    assert_eq!(world.server.owner(world.now, &World::keys()), None);
    assert!(world.machine.is_idle(), "nothing is left to do");
}

#[test]
fn a_cancel_that_comes_after_the_grant_changes_nothing() {
    let mut world = World::connected();
    let op = world.acquire(10_000, Wait::Forever);
    world.settle();
    world.cancel(op);
    world.lease(op);
    assert!(world.server.owner(world.now, &World::keys()).is_some(), "the lock stays");
}

/// Four callers of one process, whose first has released before it knew that the second is the next in the queue: that
/// was granted the lock by a message, with reserved fences for the others, and its claim is in flight.
fn claiming() -> (World, LeaseId, OpId) {
    let mut world = World::connected();
    let ops: Vec<_> = (0..4).map(|_| world.acquire_held(10_000, Wait::Forever, RENEWED)).collect();
    while world.outcome(ops[0]).is_none() {
        world.answer_one();
    }
    world.command(Command::Release { lease: world.lease(ops[0]).0, exported: true });
    for _ in 0..2 {
        world.execute_one();
    }
    world.answer_what_is_there();
    let (lease, _) = world.lease(ops[1]);
    let claim = world.wire.front().map(|(_, call)| call);
    assert!(matches!(claim, Some(Call::Claim { .. })), "{claim:?}");
    (world, lease, ops[2])
}

/// The server is promoted in place, with all its data.
fn promote(world: &mut World) {
    world.pass(ms(50));
    world.server.set_replication_id("second");
    let (probe, sent) = (world.server.probe(world.now), world.now);
    world.event(Event::Probed { probe, sent });
}

/// Its answer does not tell whether it is of this grant, or of a later one to the same token.
#[test]
fn a_claim_during_a_promotion_loses_the_lock_and_gives_it_back() {
    let (mut world, lease, _) = claiming();
    promote(&mut world);
    world.settle();
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
    run(&mut world, 2_000);
    let owner = world.server.owner(world.now, &World::keys());
    assert!(owner.is_some_and(|owner| owner != "hf1.c.2"), "the next waiter has it");
}

#[test]
fn a_lock_that_becomes_a_share_during_a_promotion_stays() {
    let mut world = World::connected();
    let op = world.acquire_held(10_000, Wait::Forever, RENEWED);
    world.settle();
    let (lease, _) = world.lease(op);
    let downgrade = world.command(Command::Downgrade { lease });
    promote(&mut world);
    world.settle();
    assert_eq!(world.outcome(downgrade), Some(&Outcome::Done));
    run(&mut world, 5_000);
    assert_eq!(world.lost, []);
    assert!(world.deadlines.contains_key(&lease), "the share stays");
}

/// 1. A server without A's lock takes over. A asks for the whole lock, and its caller downgrades it meanwhile.
/// 2. That there is no whole lock says nothing about a share. A asks for that at once, as after any promotion.
#[test]
fn a_lock_that_becomes_a_share_while_it_is_asked_about_is_asked_about_again_at_once() {
    let mut world = World::connected();
    let op = world.acquire_held(10_000, Wait::Forever, RENEWED);
    world.settle();
    let (lease, _) = world.lease(op);
    // From then on it is renewed by script.
    world.command(Command::Extend { lease, ttl: None });
    world.settle();
    world.server.flush();
    promote(&mut world);
    world.command(Command::Downgrade { lease });
    let (request, call) = world.wire.pop_front().unwrap();
    assert!(matches!(call, Call::Extend { .. }), "{call:?}");
    let reply = world.server.execute(world.now, &call);
    world.reply(request, reply);
    assert_eq!(world.lost, []);
    let (_, last) = world.wire.back().unwrap();
    assert!(matches!(last, Call::ExtendShare { .. }), "{last:?}");
    world.settle();
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}

#[test]
fn a_grant_that_was_lost_by_a_failover_leaves_no_queue_entry() {
    for (hold, mode) in [(RENEWED, Mode::Exclusive), (ONE_LEASE, Mode::SHARED)] {
        let (mut a, mut b) = two();
        let (lease, _) = take_held(&mut a, RENEWED, Mode::Exclusive);
        let op = b.acquire_as(10_000, Wait::Forever, hold, mode);
        b.settle();
        let saved = b.server.save();
        a.release(lease);
        a.settle();
        b.settle();
        let (lost, _) = b.lease(op);
        b.pass(ms(10));
        // A successor takes over, with the first's lock and the second's queue entry.
        b.server.restore(b.now, saved);
        b.server.set_replication_id("second");
        b.event(Event::Disconnected("failover".to_owned()));
        b.connect();
        b.command(Command::Extend { lease: lost, ttl: None });
        b.settle();
        assert_eq!(b.lost, [(lost, LossReason::Expired)]);
        assert_eq!(b.server.queue_len(b.now, &World::keys()), 0, "nobody waits any more");
    }
}

/// 1. A is granted the lock by message, and its claim is under way. Another server takes over, which lacks that
///    grant.
/// 2. The entry is there, so the same token may be granted the lock once more. The claim finds that later grant, and
///    its answer is no evidence of the first.
#[test]
fn a_claim_that_another_grant_answers_after_a_promotion_is_lost() {
    for downgrades in [false, true] {
        let (mut world, lease, _) = claiming();
        if downgrades {
            world.command(Command::Downgrade { lease });
        }
        promote(&mut world);
        let (request, _) = world.wire.pop_front().unwrap();
        world.reply(request, Ok(Reply::Owner(true)));
        assert_eq!(world.lost, [(lease, LossReason::Expired)], "downgrades: {downgrades}");
    }
}

#[test]
fn the_statistics_count_renewals_and_losses_but_no_regular_ends() {
    let mut world = World::connected();
    held(&mut world, 3_000, RENEWED);
    run(&mut world, 2_100);
    let stats = world.machine.stats();
    assert_eq!((stats.renewals, stats.lost), (2, 0));
    world.server.flush();
    run(&mut world, 1_000);
    assert_eq!(world.machine.stats().lost, 1);
    held(&mut world, 1_000, HoldTerms { leave_to_expire: true, ..ONE_LEASE });
    run(&mut world, 1_000);
    assert_eq!(world.lost.len(), 2);
    assert_eq!(world.machine.stats().lost, 1);
}

/// The terms of what is not renewed. JavaScript answers no ping, which means nothing for them.
fn unrenewed() -> [HoldTerms; 2] {
    [false, true].map(|leave_to_expire| HoldTerms {
        leave_to_expire,
        stall_timeout: ms(1),
        ..ONE_LEASE
    })
}

const PERMIT: Mode = Mode::permits(1, 1);

#[test]
fn a_lease_that_is_not_renewed_is_asked_about_at_each_third_and_gets_no_longer() {
    for (hold, mode) in
        unrenewed().into_iter().flat_map(|hold| [(hold, Mode::Exclusive), (hold, PERMIT)])
    {
        let mut world = World::connected();
        world.alive = false;
        let (lease, _) = take_held(&mut world, hold, mode);
        let until = world.deadlines[&lease];
        for round in 1..=2 {
            world.pass(ms(3_200));
            assert!(world.wire.is_empty(), "too early, in round {round}");
            world.pass(ms(140));
            let left = until.since(world.now);
            let asked = world.wire.front().map(|(_, call)| call.ttl());
            assert!(asked.is_some_and(|ttl| ttl <= left + ms(140)), "{asked:?}, {left:?} are left");
            world.settle();
            assert_eq!(world.deadlines[&lease], until);
        }
        run(&mut world, 4_000);
        let reason = if hold.leave_to_expire { LossReason::Ended } else { LossReason::Expired };
        assert_eq!(world.lost, [(lease, reason)]);
        assert_eq!(world.machine.stats().renewals, 0, "nothing was renewed");
    }
}

/// A caller may ask by an extension that lengthens nothing.
#[test]
fn a_short_extension_of_a_long_lease_that_is_not_renewed_causes_few_questions() {
    let mut world = World::connected();
    let lease = held(&mut world, 600_000, ONE_LEASE);
    world.command(Command::Extend { lease, ttl: Some(ms(50)) });
    world.settle();
    let before = world.machine.stats().requests;
    run(&mut world, 610_000);
    assert_eq!(world.lost.len(), 1);
    let asked = world.machine.stats().requests - before;
    assert!(asked < 40, "{asked} requests");
}

/// 1. A holds with `renew: false`, and the server forgets (FLUSHALL, a restart, a failover).
/// 2. B gets the lock. Without a question to the server A believes for the rest of its lease that it is alone.
#[test]
fn what_a_server_has_lost_is_lost_whether_or_not_it_is_renewed() {
    for hold in [RENEWED].into_iter().chain(unrenewed()) {
        for mode in [Mode::Exclusive, Mode::SHARED, PERMIT] {
            for connected in [true, false] {
                let mut world = World::connected();
                let (lease, _) = take_held(&mut world, hold, mode);
                world.server.flush();
                if !connected {
                    world.server.set_replication_id("restarted");
                    world.event(Event::Disconnected("gone".to_owned()));
                    world.connect();
                    world.settle();
                    assert_eq!(world.lost, [(lease, LossReason::Expired)], "as soon as it knows");
                }
                run(&mut world, 3_500);
                assert_eq!(world.lost, [(lease, LossReason::Expired)], "{hold:?}, {mode:?}");
                assert_eq!(world.machine.stats().lost, 1);
            }
        }
    }
}

/// 1. A waits with `renew: false`, and is granted the lock by message, for the 3 s of a claim. Its connection breaks
///    before the claim is answered.
/// 2. Without another claim B gets the lock after 3 of the 10 s that A asked for.
#[test]
fn a_claim_is_sent_again_whether_or_not_its_lock_is_renewed() {
    for hold in [RENEWED].into_iter().chain(unrenewed()) {
        for mode in [Mode::Exclusive, PERMIT] {
            let (mut a, mut b) = two();
            let (lease, _) = take_held(&mut a, RENEWED, Mode::Exclusive);
            // Dated by this connection.
            let op = b.acquire_as(10_000, Wait::Forever, hold, mode);
            b.settle();
            a.release(lease);
            a.settle();
            assert!(b.receive_one(), "the message of the grant");
            let (lease, _) = b.lease(op);
            b.alive = hold.renew;
            b.lose_requests();
            b.connect();
            b.settle();
            run(&mut b, 700);
            let left = b.deadlines[&lease].since(b.now);
            assert!(left > ms(9_000), "{left:?} are left of {hold:?}, {mode:?}");
            assert_eq!(b.lost, []);
        }
    }
}

/// It was to last longer, so its caller does not expect this end.
#[test]
fn a_lock_that_is_left_to_expire_and_could_not_be_claimed_is_lost() {
    for hold in unrenewed() {
        let (mut a, mut b) = two();
        let (lease, _) = take_held(&mut a, RENEWED, Mode::Exclusive);
        let op = b.acquire_held(10_000, Wait::Forever, hold);
        b.settle();
        a.release(lease);
        a.settle();
        assert!(b.receive_one(), "the message of the grant");
        let (lease, _) = b.lease(op);
        b.lose_requests();
        b.pass(ms(3_000));
        assert_eq!(b.lost, [(lease, LossReason::Expired)]);
        assert_eq!(b.machine.stats().lost, 1);
    }
}

/// A lock under its owner's name is renewed, and yet only the server ends it: the owner may have it elsewhere, too.
#[test]
fn a_renewed_lock_that_is_left_to_expire_is_lost_at_the_end_of_its_lease_and_not_given_back() {
    let mut world = World::connected();
    let lease = held(&mut world, 3_000, HoldTerms { leave_to_expire: true, ..RENEWED });
    world.event(Event::Disconnected("gone".to_owned()));
    world.pass(ms(3_000));
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
    world.connect();
    world.settle();
    assert!(world.wire.is_empty() && world.machine.releases.is_empty(), "only the server ends it");
}

#[test]
fn a_lock_that_is_let_expire_is_asked_about_from_then_on() {
    let mut world = World::connected();
    let lease = held(&mut world, 3_000, RENEWED);
    run(&mut world, 500);
    let op = world.command(Command::StopRenewing { lease });
    assert_eq!(world.outcome(op), Some(&Outcome::Done));
    let until = world.deadlines[&lease];
    run(&mut world, 1_000);
    assert_eq!(world.deadlines[&lease], until, "it is not renewed");
    world.server.flush();
    run(&mut world, 1_100);
    assert_eq!(world.lost, [(lease, LossReason::Expired)]);
}
