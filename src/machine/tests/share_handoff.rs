//! Shares that one caller of a process hands off to the next.

use super::world::{RENEWED, World, ms};
use crate::machine::{Command, LeaseId, LossReason, OpId, Outcome, Protocol, Wait};
use crate::protocol::{Call, Failure, Mode, Refusal};

const ONE: Mode = Mode::permits(1, 1);
const TWO: Mode = Mode::permits(1, 2);

fn acquire(world: &mut World, mode: Mode) -> OpId {
    world.acquire_as(10_000, Wait::Forever, RENEWED, mode)
}

/// Two callers have a permit each, and `waiting` more wait.
fn busy(world: &mut World, waiting: usize) -> ([LeaseId; 2], Vec<OpId>) {
    let ops: Vec<_> = (0..2 + waiting).map(|_| acquire(world, TWO)).collect();
    world.settle();
    ([world.lease(ops[0]).0, world.lease(ops[1]).0], ops[2..].to_vec())
}

fn has(world: &World, op: OpId) -> bool {
    matches!(world.outcome(op), Some(Outcome::Acquired { .. }))
}

fn next_call(world: &World) -> Option<&Call> {
    world.wire.front().map(|(_, call)| call)
}

fn assert_nothing_left(world: &mut World) {
    for lease in world.deadlines.keys().copied().collect::<Vec<_>>() {
        world.release(lease);
    }
    for _ in 0..3 {
        world.pass(ms(1_000));
        world.settle();
    }
    assert_eq!(world.server.leftovers(world.now), "");
    assert!(world.machine.is_idle(), "{:?}", world.machine);
}

#[test]
fn a_manager_has_as_many_queue_entries_as_it_could_have_permits() {
    let mut world = World::connected();
    let (leases, waiting) = busy(&mut world, 50);
    assert_eq!(world.server.queue_len(world.now, &World::keys()), 2);
    for lease in leases {
        world.release(lease);
    }
    world.settle();
    assert!(
        has(&world, waiting[0]) && has(&world, waiting[1]) && !has(&world, waiting[2]),
        "two permits serve the first two waiters"
    );
    assert_eq!(world.server.queue_len(world.now, &World::keys()), 2);
    // The queue entries of callers that leave are removed.
    for op in &waiting[2..49] {
        world.cancel(*op);
    }
    world.settle();
    assert_eq!(world.server.queue_len(world.now, &World::keys()), 1);
    world.cancel(waiting[49]);
    assert_nothing_left(&mut world);
}

#[test]
fn a_permit_is_handed_off_by_one_call_with_a_fence_above_all() {
    let mut world = World::connected();
    let (leases, waiting) = busy(&mut world, 5);
    let sent = world.machine.stats().requests;
    let mut last = world.server.fence(world.now).unwrap();
    for (lease, op) in leases.into_iter().zip(&waiting) {
        let release = world.release(lease);
        assert!(world.outcome(release).is_none(), "nobody knows yet whether it had it still");
        world.settle();
        assert_eq!(world.take_outcome(release), Some(Outcome::Done));
        let (_, fence) = world.lease(*op);
        assert!(fence > last, "fences rise: {fence} after {last}");
        last = fence;
    }
    assert_eq!(world.machine.stats().requests, sent + 2);
    for op in &waiting[2..] {
        world.cancel(*op);
    }
    assert_nothing_left(&mut world);
}

#[test]
fn a_permit_is_handed_off_fifteen_times_and_then_granted_by_the_server() {
    let mut world = World::connected();
    let ([mut lease, _other], waiting) = busy(&mut world, 40);
    let mut elsewhere = World::connected_to(&world.server, "d");
    let op = acquire(&mut elsewhere, TWO);
    elsewhere.settle();
    let mut handed_off = 0;
    for next in waiting {
        world.release(lease);
        if !matches!(next_call(&world), Some(Call::HandoffShare { .. })) {
            break;
        }
        world.settle();
        lease = world.lease(next).0;
        handed_off += 1;
    }
    assert_eq!(handed_off, 15);
    // Two entries of this process are before the other's, and their permits may be handed off as well.
    for _ in 0..40 {
        world.settle();
        elsewhere.settle();
        let Some(lease) = world.deadlines.keys().last().copied() else { break };
        world.release(lease);
    }
    elsewhere.settle();
    assert!(has(&elsewhere, op), "the other process gets its turn");
}

#[test]
fn while_nobody_else_waits_permits_are_handed_off_by_one_request_each() {
    let mut world = World::connected();
    let ([other, mut lease], waiting) = busy(&mut world, 100);
    let mut waiting = waiting.into_iter();
    // The answer tells that nobody else waits, so the handoffs of the other permit do not count from the first on.
    world.release(other);
    world.settle();
    world.lease(waiting.next().unwrap());
    let mut hand_off = |world: &mut World| {
        let sent = world.machine.stats().requests;
        world.release(lease);
        let is_handoff = matches!(next_call(world), Some(Call::HandoffShare { .. }));
        world.settle();
        if is_handoff {
            lease = world.lease(waiting.next().unwrap()).0;
        }
        (is_handoff, world.machine.stats().requests - sent)
    };
    for _ in 0..40 {
        assert_eq!(hand_off(&mut world), (true, 1));
    }
    let mut elsewhere = World::connected_to(&world.server, "d");
    let op = acquire(&mut elsewhere, TWO);
    elsewhere.settle();
    // All of these count, also the first, which finds out.
    let handed_off =
        std::iter::repeat_with(|| hand_off(&mut world)).take_while(|(is, _)| *is).count();
    assert_eq!(handed_off, 15, "handoffs while another manager waited");
    for _ in 0..100 {
        elsewhere.settle();
        if has(&elsewhere, op) {
            return;
        }
        // Callers that come later, here, are served later.
        acquire(&mut world, TWO);
        world.release(*world.deadlines.keys().next().unwrap());
        world.settle();
    }
    panic!("the other manager was overtaken all the time");
}

#[test]
fn a_process_overtakes_a_waiter_fifteen_times_for_each_of_its_permits() {
    for limit in [1, 2, 10] {
        let mode = Mode::permits(1, limit);
        let permits = usize::try_from(limit).unwrap();
        let mut world = World::connected();
        // Enough callers that come before the other manager, and after it.
        let calls = |world: &mut World, count: usize| {
            let ops: Vec<_> = (0..count).map(|_| acquire(world, mode)).collect();
            world.settle();
            ops
        };
        calls(&mut world, permits + 40);
        let release_all = |world: &mut World| {
            for lease in world.deadlines.keys().copied().collect::<Vec<_>>() {
                world.release(lease);
            }
        };
        // All permits are handed off, and while these handoffs are under way the other manager comes.
        release_all(&mut world);
        world.settle();
        release_all(&mut world);
        let mut elsewhere = World::connected_to(&world.server, "d");
        // As in time: whoever comes has a place of its own in the order.
        elsewhere.pass(ms(10));
        let op = acquire(&mut elsewhere, mode);
        elsewhere.settle();
        world.settle();
        world.pass(ms(20));
        let later = calls(&mut world, 40 * permits);
        while !has(&elsewhere, op) {
            release_all(&mut world);
            world.settle();
            elsewhere.settle();
            world.pass(ms(1));
            elsewhere.pass(ms(1));
        }
        let overtaking = later.iter().filter(|later| has(&world, **later)).count();
        assert!(overtaking <= 15 * permits, "{overtaking} with {permits} permits");
    }
}

#[test]
fn a_permit_is_not_handed_off_past_half_of_its_lease_or_if_it_was_exported() {
    let mut world = World::connected();
    let ([first, second], _) = busy(&mut world, 5);
    world.command(Command::Release { lease: first, exported: true });
    assert!(matches!(next_call(&world), Some(Call::Release { .. })), "an exported permit is freed");
    world.settle();
    for _ in 0..5 {
        world.pass(ms(1_000));
        world.settle();
    }
    world.release(second);
    assert!(matches!(next_call(&world), Some(Call::Release { .. })), "the server is to release it");
}

#[test]
fn a_share_without_a_limit_goes_to_a_waiter_for_the_whole_lock() {
    let mut world = World::connected();
    let reader = acquire(&mut world, Mode::SHARED);
    world.settle();
    let mut elsewhere = World::connected_to(&world.server, "d");
    let writer = acquire(&mut elsewhere, Mode::Exclusive);
    elsewhere.settle();
    let late = acquire(&mut world, Mode::SHARED);
    world.settle();
    assert!(!has(&world, late), "nobody overtakes");
    world.release(world.lease(reader).0);
    world.settle();
    elsewhere.settle();
    assert!(has(&elsewhere, writer) && !has(&world, late), "the writer gets the whole lock");
}

#[test]
fn a_permit_goes_to_a_waiter_with_the_same_limit() {
    let (three, both) = (Mode::permits(1, 3), Mode::permits(2, 2));
    for other in [Mode::Exclusive, Mode::SHARED, three, both] {
        let mut world = World::connected();
        let ([lease, _], _) = busy(&mut world, 0);
        acquire(&mut world, other);
        world.settle();
        world.release(lease);
        assert!(!matches!(next_call(&world), Some(Call::HandoffShare { .. })), "{other:?}");
    }
}

#[test]
fn several_permits_are_handed_off_to_who_wants_as_many_and_granted_to_others_by_the_queue() {
    let mut world = World::connected();
    let [three, two] = [3, 2].map(|permits| Mode::permits(permits, 4));
    let first = acquire(&mut world, three);
    world.settle();
    let [same, fewer, most] = [three, two, two].map(|mode| acquire(&mut world, mode));
    world.settle();
    assert_eq!(world.server.queue_len(world.now, &World::keys()), 1, "the head of the queue");
    let lease = world.lease(first).0;
    world.release(lease);
    let Some(Call::HandoffShare { successor, .. }) = next_call(&world) else {
        panic!("three permits are not handed off")
    };
    assert_eq!(successor.share(), three);
    world.settle();
    assert!(has(&world, same) && !has(&world, fewer), "who wants as many permits is the successor");
    let lease = world.lease(same).0;
    world.release(lease);
    assert!(!matches!(next_call(&world), Some(Call::HandoffShare { .. })), "others want fewer");
    world.settle();
    assert!(has(&world, fewer) && has(&world, most), "the queue grants the others their permits");
    assert_nothing_left(&mut world);
}

#[test]
fn a_lost_permit_is_not_handed_off() {
    let mut world = World::connected();
    let ([lease, _], waiting) = busy(&mut world, 1);
    world.server.command(world.now, &["DEL", &World::keys().shared()]);
    let release = world.release(lease);
    world.settle();
    assert_eq!(world.outcome(release), Some(&Outcome::Lost));
    assert!(!has(&world, waiting[0]), "a lost permit is not handed off");
    // Its queue entry polls.
    for _ in 0..6 {
        world.pass(ms(1_000));
        world.settle();
    }
    assert!(has(&world, waiting[0]), "the waiter gets the permit by the queue");
}

#[test]
fn a_permit_that_has_ended_is_not_handed_off() {
    let mut world = World::connected();
    let (leases, waiting) = busy(&mut world, 1);
    let held = world.machine.hold_of(leases[0]).unwrap();
    let token = world.machine.token_of(held).to_string();
    let past = (world.server.time(world.now).as_micros() / 1_000).to_string();
    world.server.command(world.now, &["ZADD", &World::keys().shared(), &past, &token]);
    let release = world.release(leases[0]);
    world.settle();
    assert_eq!(world.outcome(release), Some(&Outcome::Lost));
    assert!(!has(&world, waiting[0]), "its permit may be another's");
    world.cancel(waiting[0]);
    assert_nothing_left(&mut world);
}

/// 1. A has one of two permits, and its successor wants one of two.
/// 2. B and C get shares without a limit beside A.
/// 3. After a handoff of A's permit the successor would be the third holder of a lock with a limit of two.
#[test]
fn a_permit_is_not_handed_off_beyond_the_limit_of_its_successor() {
    let mut world = World::connected();
    let mut other = World::connected_to(&world.server, "d");
    // The others share without a limit.
    let first = acquire(&mut world, TWO);
    world.settle();
    for _ in 0..2 {
        acquire(&mut other, Mode::SHARED);
        other.settle();
    }
    let next = acquire(&mut world, TWO);
    world.settle();
    assert!(!has(&world, next), "too many share the lock for the next");
    let release = world.release(world.lease(first).0);
    assert!(matches!(next_call(&world), Some(Call::HandoffShare { .. })), "the handoff is tried");
    world.settle();
    assert_eq!(world.outcome(release), Some(&Outcome::Done));
    assert!(!has(&world, next), "two others share the lock still");
    let lease = *other.deadlines.keys().next().unwrap();
    other.release(lease);
    other.settle();
    world.settle();
    assert!(has(&world, next), "as many as it said");
}

#[test]
fn a_lone_permit_is_released_for_a_caller_that_the_server_does_not_know_yet() {
    let mut world = World::connected();
    // The counter of fences begins by a script.
    let ready = acquire(&mut world, ONE);
    world.settle();
    world.release(world.lease(ready).0);
    world.settle();
    let first = acquire(&mut world, ONE);
    assert!(matches!(next_call(&world), Some(Call::Take { .. })), "plain commands take a permit");
    world.settle();
    let next = acquire(&mut world, ONE);
    // The plain commands of the next find the permit taken, and tell the server of nobody who waits.
    assert!(matches!(next_call(&world), Some(Call::Take { .. })), "the next tries plain commands");
    let release = world.release(world.lease(first).0);
    assert!(matches!(world.wire.back(), Some((_, Call::HandoffShare { .. }))), "it is handed off");
    world.settle();
    assert_eq!(world.outcome(release), Some(&Outcome::Done));
    assert!(has(&world, next), "the next caller gets the permit");
    assert_nothing_left(&mut world);
}

#[test]
fn a_handoff_whose_reply_was_lost_is_found_or_given_back() {
    for executed in [true, false] {
        let mut world = World::connected();
        let ([lease, _], waiting) = busy(&mut world, 3);
        let release = world.release(lease);
        assert!(matches!(next_call(&world), Some(Call::HandoffShare { .. })), "it is handed off");
        if executed {
            world.execute_and_lose_replies();
        } else {
            world.lose_requests();
        }
        world.connect();
        world.settle();
        assert_eq!(world.outcome(release), Some(&Outcome::Done));
        assert!(has(&world, waiting[0]) && !has(&world, waiting[1]), "{executed}");
        // The lost call arrives, at the worst moment.
        for call in std::mem::take(&mut world.late) {
            let _answered = world.server.execute(world.now, &call);
        }
        for op in &waiting[1..] {
            world.cancel(*op);
        }
        assert_nothing_left(&mut world);
    }
}

/// 1. A handoff is lost, so both tokens are released on a new connection.
/// 2. The successor's release is executed, then the lost handoff, and then the release of its giver.
/// 3. The successor's token has a permit without a caller. Its second release, a second later, frees it.
#[test]
fn a_lost_handoff_that_arrives_before_the_release_leaves_no_permit_for_long() {
    let mut world = World::connected();
    let ([lease, _], waiting) = busy(&mut world, 1);
    world.release(lease);
    let Some(Call::HandoffShare { successor, .. }) = next_call(&world).cloned() else {
        panic!("not passed on")
    };
    world.lose_requests();
    world.connect();
    // The release of the successor's permit arrives before the handoff, and the release of its giver after.
    let (successors, givers): (Vec<_>, Vec<_>) = std::mem::take(&mut world.wire)
        .into_iter()
        .partition(|(_, call)| *call.token() == successor);
    assert!(!successors.is_empty() && !givers.is_empty(), "both tokens are released");
    world.wire.extend(successors);
    world.settle();
    for call in std::mem::take(&mut world.late) {
        let _answered = world.server.execute(world.now, &call);
    }
    world.wire.extend(givers);
    world.settle();
    world.cancel(waiting[0]);
    assert_nothing_left(&mut world);
}

#[test]
fn a_permit_without_a_waiter_is_given_back() {
    let mut world = World::connected();
    let ([lease, _], waiting) = busy(&mut world, 1);
    let release = world.release(lease);
    world.execute_one();
    world.cancel(waiting[0]);
    world.settle();
    while world.has_answers() {
        world.answer_one();
    }
    world.settle();
    assert_eq!(world.outcome(release), Some(&Outcome::Done));
    assert_nothing_left(&mut world);
}

#[test]
fn a_permit_is_not_handed_off_to_a_waiter_for_the_whole_lock() {
    let mut world = World::connected();
    let ([lease, _], waiting) = busy(&mut world, 1);
    let whole = acquire(&mut world, Mode::Exclusive);
    world.release(lease);
    world.execute_one();
    world.cancel(waiting[0]);
    while world.has_answers() {
        world.answer_one();
    }
    world.settle();
    assert!(!has(&world, whole), "the other permit is out still");
}

#[test]
fn a_permit_whose_handoff_is_refused_is_freed() {
    let mut world = World::connected();
    let ([lease, _], waiting) = busy(&mut world, 1);
    let release = world.release(lease);
    let (request, _) = world.wire.pop_front().unwrap();
    let refusal = Refusal { code: "OOM".to_owned(), detail: "command not allowed".to_owned() };
    world.reply(request, Err(Failure::Refused(refusal)));
    assert!(matches!(next_call(&world), Some(Call::Release { .. })), "a release replaces it");
    world.settle();
    assert_eq!(world.outcome(release), Some(&Outcome::Done));
    assert!(has(&world, waiting[0]), "the waiter gets the freed permit");
}

#[test]
fn a_script_that_the_server_does_not_know_is_sent() {
    let mut world = World::connected();
    let ([lease, _], waiting) = busy(&mut world, 1);
    world.release(lease);
    let (request, _) = world.wire.pop_front().unwrap();
    world.reply(request, Err(Failure::NoScript));
    assert!(matches!(next_call(&world), Some(Call::HandoffShare { .. })), "the handoff is resent");
    world.settle();
    assert!(has(&world, waiting[0]), "the successor gets the permit");
}

#[test]
fn a_stolen_permit_of_a_successor_is_lost() {
    let mut world = World::connected();
    let ([lease, _], waiting) = busy(&mut world, 1);
    world.release(lease);
    world.settle();
    let (successors, _) = world.lease(waiting[0]);
    world.acquire_as(10_000, Wait::Steal, RENEWED, Mode::Exclusive);
    world.settle();
    assert!(
        world.lost.contains(&(successors, LossReason::Stolen)),
        "the successor learns of the theft: {:?}",
        world.lost
    );
}

/// Replicas have confirmed two permits, and one of them is handed off to the third caller.
fn handed_off_with_replicas() -> (World, OpId) {
    let mut world = World::connected();
    world.machine.context.config.confirm = true;
    let ops: Vec<_> = (0..3).map(|_| acquire(&mut world, TWO)).collect();
    world.settle();
    world.confirm(true);
    world.confirm(true);
    world.settle();
    world.release(world.lease(ops[0]).0);
    world.settle();
    (world, ops[2])
}

#[test]
fn replicas_must_confirm_a_handoff() {
    let (mut world, successor) = handed_off_with_replicas();
    assert!(!has(&world, successor), "nobody has confirmed it");
    world.confirm(true);
    assert!(has(&world, successor), "the confirmed handoff counts");
    assert_nothing_left(&mut world);
}

#[test]
fn an_unconfirmed_handoff_is_not_counted() {
    let (mut world, _) = handed_off_with_replicas();
    world.confirm(false);
    assert_eq!(world.machine.stats().handed_off, 0);
    assert_nothing_left(&mut world);
}

#[test]
fn two_permits_that_are_given_up_at_once_are_for_two_callers() {
    let mut world = World::connected();
    let (leases, _) = busy(&mut world, 0);
    let waiting =
        [20_000, 30_000].map(|ttl_ms| world.acquire_as(ttl_ms, Wait::Forever, RENEWED, TWO));
    world.settle();
    for lease in leases {
        world.release(lease);
    }
    let ttls = world.wire.iter().filter_map(|(_, call)| match call {
        Call::HandoffShare { ttl, .. } => Some(*ttl),
        _ => None,
    });
    let ttls: Vec<_> = ttls.collect();
    assert_eq!(ttls, [ms(20_000), ms(30_000)]);
    world.settle();
    assert!(waiting.iter().all(|op| has(&world, *op)), "each of the two callers gets a permit");
    assert_eq!(world.machine.stats().handed_off, 2);
    assert_nothing_left(&mut world);
}

#[test]
fn a_position_counts_waiters_here_without_an_entry_at_the_server() {
    let mut world = World::connected();
    let (_, waiting) = busy(&mut world, 2);
    let waits = [1, 2].map(|extra| {
        let op = world.acquire_as(10_000, Wait::UpTo(ms(1_000 + extra)), RENEWED, TWO);
        world.settle();
        op
    });
    world.cancel(waiting[0]);
    world.settle();
    world.pass(ms(1_100));
    let positions = waits.map(|op| match world.outcome(op) {
        Some(Outcome::TimedOut { position, .. }) => *position,
        other => panic!("{other:?}"),
    });
    assert_eq!(positions, [Some(2), Some(2)]);
}

#[test]
fn a_handoff_for_a_lease_that_has_ended_is_given_back() {
    let mut world = World::connected();
    let (leases, _) = busy(&mut world, 0);
    let brief = world.acquire_as(1_000, Wait::Forever, RENEWED, TWO);
    world.settle();
    world.release(leases[0]);
    assert!(matches!(next_call(&world), Some(Call::HandoffShare { .. })), "it is handed off");
    world.execute_one();
    world.pass(ms(1_000));
    world.answer_one();
    assert!(!has(&world, brief), "the lease has ended before the answer");
    world.settle();
    assert!(has(&world, brief), "the permit given back is granted anew");
    assert_nothing_left(&mut world);
}
