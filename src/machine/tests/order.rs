//! First come, first served, by caller: also across managers, and in all modes.

use super::waiting::Crowd;
use super::world::{ONE_LEASE, RENEWED, World, ms};
use crate::machine::{Command, HoldTerms, OpId, Outcome, Protocol, Wait};
use crate::protocol::{Call, Mode};

const TWO: Mode = Mode::permits(1, 2);

/// Starts the acquires one after the other, with a pause between them.
struct Calls {
    crowd: Crowd,
    open: Vec<(usize, OpId)>,
}

impl Calls {
    /// Manager 2 holds the lock, and managers 0 and 1 wait for it.
    fn behind_a_holder() -> Self {
        let mut crowd = Crowd::new(3);
        crowd.held(2, 60_000);
        Self { crowd, open: Vec::new() }
    }

    fn call(&mut self, who: usize, mode: Mode) -> (usize, OpId) {
        self.call_for(who, mode, RENEWED)
    }

    fn call_for(&mut self, who: usize, mode: Mode, hold: HoldTerms) -> (usize, OpId) {
        self.call_with(who, 10_000, mode, hold)
    }

    fn call_with(&mut self, who: usize, ttl: u64, mode: Mode, hold: HoldTerms) -> (usize, OpId) {
        self.crowd.pass(ms(10));
        let op = self.crowd.worlds[who].acquire_as(ttl, Wait::Forever, hold, mode);
        self.crowd.settle();
        self.open.push((who, op));
        (who, op)
    }

    /// Every lock is released at once; returns the acquires in the order in which they were served.
    fn serve(mut self) -> Vec<(usize, OpId)> {
        let mut served = Vec::new();
        for _ in 0..10 * self.open.len() {
            let holders: Vec<_> = (0..self.crowd.worlds.len())
                .flat_map(|who| {
                    let leases = self.crowd.worlds[who].deadlines.keys();
                    leases.map(move |lease| (who, *lease)).collect::<Vec<_>>()
                })
                .collect();
            for (who, lease) in holders {
                self.crowd.pass(ms(1));
                self.crowd.release(who, lease);
                let has = |(who, op): &(usize, OpId)| self.crowd.has(*who, *op);
                let mut new: Vec<_> = self.open.iter().copied().filter(has).collect();
                new.retain(|call| !served.contains(call));
                served.extend(new);
            }
        }
        assert_eq!(served.len(), self.open.len(), "everybody is served");
        assert!(
            self.open.iter().all(|(who, op)| {
                matches!(self.crowd.worlds[*who].outcome(*op), Some(Outcome::Acquired { .. }))
            }),
            "everybody gets the lock"
        );
        self.crowd.assert_nothing_left();
        served
    }
}

/// 1. A's callers W1 and W2 wait, with one entry for W1. Then a caller of B waits.
/// 2. W1 is served, and A makes an entry for W2. Without the number of W2's call it would be behind B.
#[test]
fn all_waiters_of_a_manager_are_served_before_later_callers_elsewhere() {
    let mut calls = Calls::behind_a_holder();
    // Leases without renewal are not handed off within the process if each is of another length.
    let callers = [(0, 10), (0, 11), (1, 12), (0, 13), (1, 14), (1, 15), (0, 16)];
    let order = callers
        .map(|(who, seconds)| calls.call_with(who, 1_000 * seconds, Mode::Exclusive, ONE_LEASE));
    assert_eq!(calls.serve(), order);
}

/// Callers that ask for different kinds of lock get an entry only when they are first in their process. Without the
/// number of its call such a caller was overtaken by ten of ten later ones.
#[test]
fn no_caller_is_overtaken_because_of_other_requests_of_its_manager() {
    let mut calls = Calls::behind_a_holder();
    let mut order = vec![calls.call(0, Mode::Exclusive), calls.call(0, Mode::SHARED)];
    order.extend((0..10).map(|_| calls.call(1, Mode::Exclusive)));
    assert_eq!(calls.serve(), order);

    let mut calls = Calls::behind_a_holder();
    let modes = [Mode::SHARED, Mode::Exclusive, TWO, Mode::Exclusive, Mode::SHARED];
    let mut order: Vec<_> = modes.map(|mode| calls.call(0, mode)).into();
    order.extend((0..10).map(|_| calls.call(1, Mode::Exclusive)));
    assert_eq!(calls.serve(), order);
}

/// 1. A's W1 hands the lock off to W2, and so on to W16. Meanwhile A's entry has the position of W2.
/// 2. B called before W17.
/// 3. A releases, and the server grants the lock to A's entry, ahead of B: it serves W17.
#[test]
fn an_entry_loses_the_position_of_a_caller_that_was_served_in_the_process() {
    let mut calls = Calls::behind_a_holder();
    let mut order: Vec<_> = (0..3).map(|_| calls.call(0, Mode::Exclusive)).collect();
    let overtaken = calls.call(1, Mode::Exclusive);
    order.push(overtaken);
    let later: Vec<_> = (0..60).map(|_| calls.call(0, Mode::Exclusive)).collect();
    let served = calls.serve();
    let at = served.iter().position(|call| *call == overtaken).unwrap();
    let ahead = served[..at].iter().filter(|call| later.contains(call)).count();
    assert!(ahead <= 15, "{ahead} later callers were served first");
    assert!(ahead > 0, "the lock is handed on in the process");
}

/// A process may use up all fences of a grant before the entry for its next callers is answered: that entry still has the
/// position of one that was served.
#[test]
fn an_entry_whose_answer_is_late_loses_that_position_too() {
    let mut calls = Calls::behind_a_holder();
    let earlier: Vec<_> = (0..3).map(|_| calls.call(0, Mode::Exclusive).1).collect();
    let (_, overtaken) = calls.call(1, Mode::Exclusive);
    let later: Vec<_> = (0..60).map(|_| calls.call(0, Mode::Exclusive).1).collect();
    let mut crowd = calls.crowd;
    let holder = *crowd.worlds[2].deadlines.keys().next().unwrap();
    crowd.release(2, holder);
    let lease = crowd.worlds[0].lease(earlier[0]).0;
    crowd.worlds[0].release(lease);
    crowd.worlds[0].answer_one();
    while crowd.worlds[0].receive_one() {}
    crowd.worlds[0].answer_one();
    assert!(
        matches!(crowd.worlds[0].wire.front(), Some((_, Call::Acquire { .. }))),
        "the next callers' entry is unanswered"
    );
    for op in earlier.iter().skip(1).chain(&later) {
        if !crowd.has(0, *op) {
            crowd.settle();
        }
        if crowd.has(1, overtaken) {
            break;
        }
        let lease = crowd.worlds[0].lease(*op).0;
        crowd.worlds[0].release(lease);
    }
    let ahead = later.iter().filter(|op| crowd.has(0, **op)).count();
    assert!((1..=15).contains(&ahead), "{ahead} later callers were served first");
}

/// 1. A's callers hand the lock on until their budget is spent. B called before most of them, so no more is reserved.
/// 2. A's entry has the position of a caller that was served, and has just asked whether it is its turn.
/// 3. A's caller releases. The entry can be moved back only after that answer, so the release waits for it.
#[test]
pub(super) fn a_release_waits_until_its_entry_can_be_moved_back() {
    let mut calls = Calls::behind_a_holder();
    let mut ops: Vec<_> = (0..3).map(|_| calls.call(0, Mode::Exclusive).1).collect();
    let (_, overtaken) = calls.call(1, Mode::Exclusive);
    ops.extend((0..60).map(|_| calls.call(0, Mode::Exclusive).1));
    let mut crowd = calls.crowd;
    let holder = *crowd.worlds[2].deadlines.keys().next().unwrap();
    crowd.release(2, holder);
    let mut served = 0;
    while !crowd.has(1, overtaken) {
        let lease = crowd.worlds[0].lease(ops[served]).0;
        let world = &mut crowd.worlds[0];
        let asks = |world: &World| matches!(world.wire.front(), Some((_, Call::Acquire { .. })));
        let held = world.machine.leases.get(lease.token_id()).unwrap();
        if held.budget.is_spent(world.now) {
            while !asks(world) {
                world.settle();
                world.pass(ms(10));
            }
        }
        world.release(lease);
        crowd.settle();
        served += 1;
        assert!(served <= 3 + 15, "{served} callers were served first");
    }
}

/// 1. A's callers W1 and W2 wait, with one entry for W1, and a caller of B behind them. A message grants the lock to W1.
/// 2. C takes the lock away by force before the message arrives. B's caller gets it, and a caller of C waits.
/// 3. A learns of both. Until then the server knew nothing of W2, whose entry has the position of its call all the same.
#[test]
pub(super) fn a_caller_behind_a_stolen_grant_has_the_position_of_its_call() {
    let mut calls = Calls::behind_a_holder();
    let [(_, stolen), (_, behind), (_, other)] =
        [0, 0, 1].map(|who| calls.call_for(who, Mode::Exclusive, ONE_LEASE));
    let mut crowd = calls.crowd;
    let holder = *crowd.worlds[2].deadlines.keys().next().unwrap();
    crowd.worlds[2].release(holder);
    crowd.worlds[2].settle();
    let (name, owners) = ("a".to_owned(), Vec::new());
    crowd.worlds[2].command(Command::Force { name, foreign: false, owners });
    crowd.worlds[2].settle();
    crowd.worlds[1].settle();
    assert!(crowd.has(1, other), "B's caller has the lock");
    let later = crowd.worlds[2].acquire(10_000, Wait::Forever);
    crowd.worlds[2].settle();
    assert!(!crowd.has(0, stolen), "its message is on its way");
    crowd.settle();
    assert!(!crowd.has(0, behind), "W2 waits behind B's caller");
    for (who, op) in [(1, other), (0, behind), (2, later)] {
        assert!(crowd.has(who, op), "{who} is served too late");
        let lease = crowd.worlds[who].lease(op).0;
        crowd.release(who, lease);
    }
    crowd.pass(ms(1_100));
    crowd.assert_nothing_left();
}

#[test]
fn permits_are_granted_in_the_order_of_the_calls_except_handoffs() {
    let mut calls = Calls::behind_a_holder();
    for _ in 0..3 {
        calls.call(0, TWO);
    }
    let overtaken = calls.call(1, TWO);
    let later: Vec<_> = (0..60).map(|_| calls.call(0, TWO)).collect();
    let served = calls.serve();
    let at = served.iter().position(|call| *call == overtaken).unwrap();
    let ahead = served[..at].iter().filter(|call| later.contains(call)).count();
    assert!(ahead <= 30, "{ahead} later callers were served first, by two permits");
}

/// Without a reading of the server's clock the time of a call is unknown: it is enqueued at the end.
#[test]
fn an_unknown_position_is_the_last_one() {
    let mut world = World::connected();
    let ops: Vec<_> = (0..3).map(|_| world.acquire(10_000, Wait::Forever)).collect();
    world.settle();
    for op in ops {
        let (lease, _) = world.lease(op);
        world.release(lease);
        world.settle();
    }
    assert!(world.machine.is_idle(), "{:?}", world.machine);
}

/// 1. A caller of A waits for a share, and so does one of C.
/// 2. B releases the whole lock: A gets the fence 3, and C 4. C's caller begins and ends.
/// 3. Only then another caller of A asks, and A's first one leaves.
/// 4. The message about the fence 3 arrives: the later caller would have a smaller fence than C's.
///
/// With a whole lock no other client can have had it in between.
#[test]
fn a_later_caller_gets_no_share_that_was_granted_before_it_asked() {
    let mut crowd = Crowd::new(3);
    let holder = crowd.held(1, 10_000);
    let share = |crowd: &mut Crowd, who: usize| {
        crowd.worlds[who].acquire_as(10_000, Wait::Forever, RENEWED, Mode::SHARED)
    };
    let leaves = share(&mut crowd, 0);
    crowd.settle();
    let other = share(&mut crowd, 2);
    crowd.settle();
    crowd.worlds[1].release(holder);
    crowd.worlds[1].settle();
    crowd.worlds[2].settle();
    let (lease, before) = crowd.worlds[2].lease(other);
    crowd.worlds[2].release(lease);
    crowd.worlds[2].settle();
    crowd.worlds[0].pass(ms(1));
    let later = share(&mut crowd, 0);
    crowd.worlds[0].cancel(leaves);
    crowd.settle();
    let (lease, fence) = crowd.worlds[0].lease(later);
    assert!(fence > before, "{fence} after {before}");
    crowd.release(0, lease);
    crowd.pass(ms(3_000));
    crowd.assert_nothing_left();
}

/// 1. A caller of A takes a lone share by plain commands, and the counter is below A's epoch, so a script is to complete it.
/// 2. B's request collects the share, and B's caller begins with a greater fence.
/// 3. Only then another caller of A asks, and A's first one leaves.
/// 4. The script finds the share that the token has already: the later caller would have a smaller fence than B's.
#[test]
pub(super) fn a_later_caller_gets_no_share_that_an_earlier_request_has_taken() {
    let mut crowd = Crowd::new(2);
    let share = |crowd: &mut Crowd, who: usize| {
        crowd.worlds[who].acquire_as(10_000, Wait::Forever, RENEWED, Mode::SHARED)
    };
    // An exclusive hold shows A that there is a counter.
    let holder = crowd.held(0, 10_000);
    crowd.release(0, holder);
    crowd.server.set_fence(crowd.worlds[0].now, 1);
    let leaves = share(&mut crowd, 0);
    assert!(matches!(crowd.worlds[0].wire.front(), Some((_, Call::Take { .. }))));
    while !crowd.worlds[0].wire.is_empty() {
        crowd.worlds[0].execute_one();
    }
    let other = share(&mut crowd, 1);
    crowd.worlds[1].settle();
    let (held_by_b, before) = crowd.worlds[1].lease(other);
    crowd.worlds[0].pass(ms(1));
    let later = share(&mut crowd, 0);
    crowd.worlds[0].cancel(leaves);
    crowd.worlds[0].answer_one();
    crowd.settle();
    let (held_by_a, fence) = crowd.worlds[0].lease(later);
    assert!(fence > before, "{fence} after {before}");
    crowd.release(1, held_by_b);
    crowd.release(0, held_by_a);
    crowd.pass(ms(3_000));
    crowd.assert_nothing_left();
}
