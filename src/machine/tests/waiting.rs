//! Several managers on one server: enqueueing, grants, handoffs.

use super::server::Server;
use super::world::{ONE_LEASE, RENEWED, World, ms};
use crate::machine::{
    Command, Denied, Event, HoldTerms, LeaseId, LossReason, Notice, OpId, Outcome, Protocol, Wait,
};
use crate::protocol::message::inbox;
use crate::protocol::{Call, Intent, Mode, Reply, ServerTime, Token};
use std::sync::Arc;
use std::time::Duration;

/// Managers on one server, with a common clock.
pub(super) struct Crowd {
    pub(super) server: Server,
    pub(super) worlds: Vec<World>,
}

impl Crowd {
    pub(super) fn new(count: usize) -> Self {
        let server = Server::new();
        let names = ["a", "b", "c", "d"];
        let worlds = names.iter().take(count).map(|name| World::connected_to(&server, name));
        let worlds = worlds.collect();
        Self { server, worlds }
    }

    /// Manager 0 connects anew, to a server with the data of this replication id.
    pub(super) fn fail_over(&mut self, replication_id: &str) {
        let world = &mut self.worlds[0];
        world.event(Event::Disconnected("failover".to_owned()));
        world.server.set_replication_id(replication_id);
        world.connect();
    }

    pub(super) fn acquire(&mut self, who: usize, ttl_ms: u64) -> OpId {
        let op = self.worlds[who].acquire_held(ttl_ms, Wait::Forever, RENEWED);
        self.settle();
        op
    }

    pub(super) fn held(&mut self, who: usize, ttl_ms: u64) -> LeaseId {
        let op = self.acquire(who, ttl_ms);
        self.worlds[who].lease(op).0
    }

    pub(super) fn release(&mut self, who: usize, lease: LeaseId) {
        self.worlds[who].release(lease);
        self.settle();
    }

    pub(super) fn settle(&mut self) {
        while self.worlds.iter().any(|world| !world.is_silent()) {
            for world in &mut self.worlds {
                world.settle();
            }
        }
    }

    /// Advances the time of `who`; the others stand still, like stopped processes.
    pub(super) fn pass_for(&mut self, who: &[usize], duration: Duration) {
        let end = self.worlds[who[0]].now + duration;
        while self.worlds[who[0]].now < end {
            let left = end.since(self.worlds[who[0]].now).min(ms(1));
            for &index in who {
                self.worlds[index].pass(left);
                self.worlds[index].settle();
            }
        }
    }

    pub(super) fn pass(&mut self, duration: Duration) {
        let all: Vec<usize> = (0..self.worlds.len()).collect();
        self.pass_for(&all, duration);
    }

    pub(super) fn has(&self, who: usize, op: OpId) -> bool {
        matches!(self.worlds[who].outcome(op), Some(Outcome::Acquired { .. }))
    }

    pub(super) fn queue_len(&self) -> usize {
        self.server.queue_len(self.worlds[0].now, &World::keys())
    }

    pub(super) fn assert_nothing_left(&mut self) {
        self.settle();
        let now = self.worlds[0].now;
        assert_eq!(self.server.leftovers(now), "");
        for world in &self.worlds {
            assert!(world.machine.is_idle(), "{:?}", world.machine);
        }
    }
}

#[test]
fn a_release_grants_the_lock_to_the_first_waiter_at_once() {
    let mut crowd = Crowd::new(4);
    let mut holder = (0, crowd.held(0, 10_000));
    let waiting: Vec<_> = [2, 1, 3].map(|who| (who, crowd.acquire(who, 10_000))).into();
    for (who, op) in waiting {
        assert!(!crowd.has(who, op), "each waits for its turn");
        crowd.release(holder.0, holder.1);
        assert!(crowd.has(who, op), "without a poll");
        holder = (who, crowd.worlds[who].lease(op).0);
    }
    crowd.release(holder.0, holder.1);
    crowd.assert_nothing_left();
}

#[test]
fn a_second_waiter_marks_the_holder_that_a_grant_made() {
    // Both wait already when the first gets the lock; its release must check the wait queue.
    let mut crowd = Crowd::new(3);
    let first = crowd.held(0, 10_000);
    let (b, c) = (crowd.acquire(1, 10_000), crowd.acquire(2, 10_000));
    crowd.release(0, first);
    let second = crowd.worlds[1].lease(b).0;
    crowd.release(1, second);
    assert!(crowd.has(2, c), "the release looks at the wait queue");
}

#[test]
fn a_lock_taken_after_its_expiry_is_granted_to_the_next_waiter() {
    let mut crowd = Crowd::new(3);
    crowd.held(0, 2_000);
    let (b, c) = (crowd.acquire(1, 10_000), crowd.acquire(2, 10_000));
    crowd.pass_for(&[1], ms(2_100));
    let lease = crowd.worlds[1].lease(b).0;
    crowd.worlds[2].now = crowd.worlds[1].now;
    crowd.release(1, lease);
    assert!(crowd.has(2, c), "without a poll");
}

#[test]
fn fences_rise_from_owner_to_owner() {
    let mut crowd = Crowd::new(2);
    let op = crowd.acquire(0, 10_000);
    let (lease, first) = crowd.worlds[0].lease(op);
    let op = crowd.acquire(1, 10_000);
    crowd.release(0, lease);
    assert!(crowd.worlds[1].lease(op).1 > first, "the next owner's fence is above {first}");
}

#[test]
fn a_grant_by_message_is_valid_for_a_claim_and_then_for_the_lease() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(0, 10_000);
    let op = crowd.acquire(1, 10_000);
    crowd.worlds[0].release(lease);
    crowd.worlds[0].settle();
    assert!(crowd.worlds[1].receive_one(), "the message of the grant arrives");
    let (lease, _) = crowd.worlds[1].lease(op);
    let now = crowd.worlds[1].now;
    assert_eq!(crowd.worlds[1].deadlines[&lease].since(now), ms(3_000 - 32));
    assert!(matches!(crowd.worlds[1].wire.front(), Some((_, Call::Claim { .. }))), "it is claimed");
    let server = crowd.worlds[1].server.clone();
    let record = || server.command(now, &["HGET", &World::keys().waiters(), "unclaimed"]);
    assert!(record().is_some(), "the grant counts as unclaimed until then");
    crowd.settle();
    assert_eq!(record(), None);
    assert_eq!(crowd.worlds[1].machine.stats().renewals, 0, "a claim is none");
    assert_eq!(crowd.worlds[1].deadlines[&lease].since(now), ms(10_000 - 102));
}

#[test]
fn a_grant_is_claimed_also_without_renewal() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(0, 10_000);
    let op = crowd.worlds[1].acquire_held(10_000, Wait::Forever, ONE_LEASE);
    crowd.settle();
    crowd.release(0, lease);
    let (lease, _) = crowd.worlds[1].lease(op);
    crowd.pass(ms(9_000));
    assert!(crowd.worlds[1].deadlines.contains_key(&lease), "the claim makes the grant a lease");
}

#[test]
fn the_validity_of_a_grant_counts_from_the_grant_not_from_its_arrival() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(0, 10_000);
    let op = crowd.acquire(1, 10_000);
    crowd.worlds[0].release(lease);
    crowd.worlds[0].settle();
    let granted = crowd.worlds[0].now;
    // The message takes two seconds; the claim ends three seconds after the grant.
    crowd.worlds[1].now = granted + ms(2_000);
    crowd.worlds[1].receive_one();
    let (lease, _) = crowd.worlds[1].lease(op);
    assert_eq!(crowd.worlds[1].deadlines[&lease].since(granted), ms(3_000 - 32));
}

#[test]
fn a_grant_that_cannot_be_dated_waits_for_its_claim() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(0, 60_000);
    let op = crowd.acquire(1, 10_000);
    crowd.worlds[0].release(lease);
    crowd.worlds[0].settle();
    // The last clock comparison is too old.
    let later = crowd.worlds[1].now + ms(11_000);
    crowd.worlds[1].now = later;
    crowd.worlds[1].receive_one();
    assert!(!crowd.has(1, op), "a grant without a date starts no hold");
    assert!(
        matches!(
            crowd.worlds[1].wire.front(),
            Some((_, Call::Acquire { intent: Intent::Poll, .. }))
        ),
        "the server is asked instead"
    );
}

#[test]
fn a_grant_that_cannot_be_dated_is_asked_about_once_and_again_if_the_answer_was_under_way() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(0, 60_000);
    crowd.acquire(1, 10_000);
    let waiter = &mut crowd.worlds[1];
    while waiter.wire.is_empty() {
        waiter.pass(ms(10));
    }
    waiter.execute_one();
    crowd.worlds[0].release(lease);
    crowd.worlds[0].settle();
    let waiter = &mut crowd.worlds[1];
    waiter.now = waiter.now + ms(11_000);
    assert!(waiter.receive_one() && waiter.wire.is_empty(), "a poll is under way");
    waiter.answer_one();
    assert_eq!(waiter.wire.len(), 1, "its answer is older than the grant");
}

#[test]
fn a_lost_message_is_replaced_by_a_poll_within_the_claim() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(0, 10_000);
    let op = crowd.acquire(1, 10_000);
    crowd.worlds[0].release(lease);
    crowd.worlds[0].settle();
    crowd.worlds[1].lose_messages();
    crowd.pass(ms(3_000));
    assert!(crowd.has(1, op), "the poll finds the grant");
}

#[test]
fn a_waiter_that_connects_again_is_not_overtaken() {
    let mut crowd = Crowd::new(3);
    let lease = crowd.held(0, 60_000);
    let (b, c) = (crowd.acquire(1, 10_000), crowd.acquire(2, 10_000));
    crowd.worlds[1].event(Event::Disconnected("cut".to_owned()));
    crowd.release(0, lease);
    crowd.pass_for(&[2, 0], ms(2_500));
    assert!(!crowd.has(2, c), "the first may be connecting again");
    crowd.worlds[1].now = crowd.worlds[2].now;
    crowd.worlds[1].connect();
    crowd.settle();
    let lease = crowd.worlds[1].lease(b).0;
    crowd.release(1, lease);
    assert!(crowd.has(2, c), "the next waiter gets its turn");
}

/// 1. H has a share. W waits for the whole lock, and behind it R for a share.
/// 2. A failover ends all connections. R is the first to be back, and polls.
/// 3. W has no subscriber. If the script passed it over, R would get its share beside H, and so would each reader
///    that comes back before W.
///
/// The order was broken in 9 of 24 failovers of Clusters and Sentinels.
#[test]
fn readers_do_not_overtake_a_writer_that_connects_again() {
    let mut crowd = Crowd::new(3);
    let share = |crowd: &mut Crowd, who: usize| {
        let op = crowd.worlds[who].acquire_as(60_000, Wait::Forever, RENEWED, Mode::SHARED);
        crowd.settle();
        op
    };
    let reader = share(&mut crowd, 0);
    let writer = crowd.acquire(1, 60_000);
    let later = share(&mut crowd, 2);
    for who in [1, 2] {
        crowd.worlds[who].event(Event::Disconnected("cut".to_owned()));
    }
    // The later one is the first to connect, and polls.
    crowd.worlds[2].connect();
    crowd.settle();
    assert!(!crowd.has(2, later), "the reader does not overtake the writer");
    crowd.pass_for(&[2, 0], ms(2_500));
    assert!(!crowd.has(2, later), "the writer may be connecting again");
    crowd.worlds[1].now = crowd.worlds[2].now;
    crowd.worlds[1].connect();
    crowd.settle();
    let lease = crowd.worlds[0].lease(reader).0;
    crowd.release(0, lease);
    let lease = crowd.worlds[1].lease(writer).0;
    assert!(!crowd.has(2, later), "the writer has the lock alone");
    crowd.release(1, lease);
    assert!(crowd.has(2, later), "the reader gets its turn");
}

#[test]
fn a_waiter_that_stays_away_costs_a_claim_and_keeps_its_position() {
    let mut crowd = Crowd::new(3);
    let lease = crowd.held(0, 60_000);
    let (b, c) = (crowd.acquire(1, 10_000), crowd.acquire(2, 10_000));
    crowd.worlds[1].event(Event::Disconnected("cut".to_owned()));
    crowd.release(0, lease);
    let freed = crowd.worlds[0].now;
    while !crowd.has(2, c) {
        crowd.pass_for(&[2, 0], ms(1));
        assert!(crowd.worlds[2].now.since(freed) < ms(3_400), "more than a claim");
    }
    crowd.worlds[1].now = crowd.worlds[2].now;
    crowd.worlds[1].connect();
    crowd.settle();
    let again = crowd.acquire(0, 10_000);
    let lease = crowd.worlds[2].lease(c).0;
    crowd.release(2, lease);
    assert!(crowd.has(1, b) && !crowd.has(0, again), "ahead of who came later");
}

#[test]
fn a_holder_that_dies_costs_its_lease_and_no_more() {
    let mut crowd = Crowd::new(2);
    crowd.held(0, 2_000);
    let died = crowd.worlds[0].now;
    let op = crowd.acquire(1, 2_000);
    let mut now = died;
    while !crowd.has(1, op) {
        crowd.pass_for(&[1], ms(1));
        now = crowd.worlds[1].now;
        assert!(now.since(died) < ms(5_000), "the death costs no more than the lease");
    }
    assert!(now.since(died) <= ms(2_010), "{:?}", now.since(died));
}

#[test]
fn a_process_that_stopped_while_it_waited_costs_one_claim() {
    let mut crowd = Crowd::new(3);
    let lease = crowd.held(0, 10_000);
    // Several callers of the stopped process wait.
    crowd.acquire(1, 10_000);
    crowd.acquire(1, 10_000);
    let op = crowd.acquire(2, 10_000);
    crowd.worlds[0].release(lease);
    crowd.worlds[0].settle();
    let freed = crowd.worlds[0].now;
    while !crowd.has(2, op) {
        crowd.pass_for(&[2], ms(1));
        assert!(crowd.worlds[2].now.since(freed) < ms(3_400), "more than a claim");
    }
    assert_eq!(crowd.queue_len(), 0, "the queue has no entry of the silent one");
}

/// 1. B and C have the two permits, and two callers of A wait. B releases: A's first entry gets its permit, and the message
///    and A's question about it are lost.
/// 2. A asks for its second entry after that, so A is not silent, though the first grant ends unclaimed.
/// 3. C releases right after that end. The second entry is still there, and gets the permit.
#[test]
pub(super) fn an_entry_that_was_heard_of_since_an_unclaimed_grant_stays() {
    let mut crowd = Crowd::new(3);
    let two = Mode::permits(1, 2);
    let permit = |crowd: &mut Crowd, who: usize| {
        crowd.worlds[who].acquire_as(10_000, Wait::Forever, RENEWED, two)
    };
    let [first, second] = [1, 2].map(|who| {
        let op = permit(&mut crowd, who);
        crowd.settle();
        crowd.worlds[who].lease(op).0
    });
    (0..2).for_each(|_| {
        permit(&mut crowd, 0);
    });
    crowd.settle();
    let line = crowd.server.snapshot(crowd.worlds[0].now, &World::keys()).line;
    let [lost, heard] = [0, 1].map(|place| line[place].token.clone());
    // Its next question comes within a claim.
    crowd.pass(ms(100));
    crowd.worlds[1].release(first);
    crowd.worlds[1].settle();
    crowd.worlds[0].lose_messages();
    // It asks again 5 ms after that end.
    for _ in 0..3_002 {
        for world in &mut crowd.worlds {
            world.pass(ms(1));
        }
        let world = &mut crowd.worlds[0];
        world.wire.retain(|(_, call)| call.token().as_str() != lost);
        world.settle();
        crowd.worlds[2].settle();
    }
    crowd.worlds[2].release(second);
    crowd.worlds[2].settle();
    let owners = crowd.server.owners(crowd.worlds[0].now, &World::keys());
    assert_eq!(owners.iter().map(Token::as_str).collect::<Vec<_>>(), [&*heard]);
}

/// 1. A and C have the two permits, or A the whole lock. B has two entries, and a caller of C comes behind them.
/// 2. A releases. B's first entry gets its part for a short lease, and B's claim is executed when that is over.
/// 3. The lock is free again. B is late and not silent, so its second entry keeps its turn.
#[test]
pub(super) fn a_manager_whose_claim_is_late_keeps_its_other_turns() {
    for mode in [Mode::permits(1, 2), Mode::Exclusive] {
        let mut late = LateClaim::new(mode);
        late.crowd.worlds.iter_mut().for_each(|world| world.pass(ms(201)));
        late.crowd.worlds[1].execute_one();
        late.free();
        assert_eq!(late.owners(), [late.second], "{mode:?}");
    }
}

/// 1. As before, but B has asked to hand its short share off, while it lasts and others have more permits than its
///    successor's limit, or when it is over.
/// 2. B's other requests are lost. B was heard of, so its second entry keeps its turn.
#[test]
pub(super) fn a_manager_whose_handoff_is_late_keeps_its_other_turns() {
    let mode = Mode::permits(1, 2);
    for (before_end, after_end) in [(100, 101), (201, 0)] {
        let mut late = LateClaim::new(mode);
        let crowd = &mut late.crowd;
        let Some((_, Call::ExtendShare { keys, token, ttl, .. })) =
            crowd.worlds[1].wire.pop_front()
        else {
            panic!("no claim of a share")
        };
        crowd.worlds.iter_mut().for_each(|world| world.pass(ms(before_end)));
        let (epoch, successor) = (ServerTime::from_micros(0), Token::new("p1", 1_000, ""));
        let mode_of_one = Mode::permits(1, 1);
        let handoff = Call::HandoffShare { keys, token, epoch, successor, ttl, mode: mode_of_one };
        let reply = crowd.server.execute(crowd.worlds[1].now, &handoff);
        assert!(!matches!(reply, Ok(Reply::HandedOff { .. }) | Err(_)), "{reply:?}");
        crowd.worlds.iter_mut().for_each(|world| world.pass(ms(after_end)));
        late.free();
        assert_eq!(late.owners(), [late.second], "{before_end}");
    }
}

/// A caller of B has got its part by a message, for a short lease, and B has not claimed it.
struct LateClaim {
    crowd: Crowd,
    /// The permit of C.
    other: Option<OpId>,
    /// The second entry of B.
    second: String,
}

impl LateClaim {
    fn new(mode: Mode) -> Self {
        let mut crowd = Crowd::new(3);
        // Callers of owners have an entry each.
        let ask = |crowd: &mut Crowd, who: usize, ttl: Duration| {
            let owner = format!("@{}", crowd.server.executed());
            let label = if mode.is_shared() { Arc::default() } else { owner.as_str().into() };
            let (name, wait) = ("a".to_owned(), Wait::Forever);
            let hold = HoldTerms { leave_to_expire: true, ..ONE_LEASE };
            let acquire = Command::Acquire { name, ttl, wait, label, hold, mode };
            let op = crowd.worlds[who].command(acquire);
            crowd.settle();
            op
        };
        let first = ask(&mut crowd, 0, ms(60_000));
        let other = mode.is_shared().then(|| ask(&mut crowd, 2, ms(60_000)));
        ask(&mut crowd, 1, ms(200));
        ask(&mut crowd, 1, ms(10_000));
        let line = crowd.server.snapshot(crowd.worlds[0].now, &World::keys()).line;
        let second = line.last().unwrap().token.clone();
        assert_eq!(line.len(), 2);
        // What is heard of a manager within the ms of a grant is not later.
        crowd.worlds.iter_mut().for_each(|world| world.pass(ms(2)));
        let lease = crowd.worlds[0].lease(first).0;
        crowd.worlds[0].release(lease);
        crowd.worlds[0].settle();
        while crowd.worlds[1].receive_one() {}
        let claim = crowd.worlds[1].wire.front();
        assert!(
            matches!(claim, Some((_, Call::Claim { .. } | Call::ExtendShare { .. }))),
            "the claim is on its way: {claim:?}"
        );
        Self { crowd, other, second }
    }

    /// Has C free its permit, or ask for the whole lock.
    fn free(&mut self) {
        let world = &mut self.crowd.worlds[2];
        match self.other {
            Some(other) => world.release(world.lease(other).0),
            None => world.acquire(10_000, Wait::Forever),
        };
        world.settle();
    }

    fn owners(&self) -> Vec<String> {
        let owners = self.crowd.server.owners(self.crowd.worlds[2].now, &World::keys());
        owners.iter().map(|owner| owner.as_str().to_owned()).collect()
    }
}

/// 1. B has two entries, and one of C that wants a share is between them. B's first gets the lock by a message, for a short
///    lease, and is silent.
/// 2. Plain commands of A take a share of the free lock. They know nothing of the record of B's grant. C shares it.
/// 3. A gives its share back, since others wait, and C releases. Only now does a script find the lock free, and B has been
///    silent since: its second entry costs no claim.
#[test]
pub(super) fn what_plain_commands_have_taken_since_is_no_sign_of_life() {
    let mut crowd = Crowd::new(3);
    crowd.server.watch(&[World::keys()]);
    let first = crowd.held(0, 60_000);
    let ask = |crowd: &mut Crowd, owner: &str, ttl_ms: u64| {
        let (name, ttl, label) = ("a".to_owned(), ms(ttl_ms), owner.into());
        let hold = HoldTerms { leave_to_expire: true, ..ONE_LEASE };
        let (wait, mode) = (Wait::Forever, Mode::Exclusive);
        crowd.worlds[1].command(Command::Acquire { name, ttl, wait, label, hold, mode });
        crowd.settle();
    };
    let share =
        |world: &mut World, wait: Wait| world.acquire_as(10_000, wait, ONE_LEASE, Mode::SHARED);
    ask(&mut crowd, "@first", 200);
    let shared = share(&mut crowd.worlds[2], Wait::Forever);
    crowd.settle();
    ask(&mut crowd, "@second", 10_000);
    crowd.worlds[0].release(first);
    crowd.worlds[0].settle();
    for who in [0, 2] {
        crowd.worlds[who].pass(ms(201));
    }
    let given_back = share(&mut crowd.worlds[0], Wait::Never);
    assert!(
        matches!(crowd.worlds[0].wire.front(), Some((_, Call::Take { .. }))),
        "the share is asked for by plain commands"
    );
    crowd.worlds[0].execute_one();
    share(&mut crowd.worlds[2], Wait::Never);
    crowd.worlds[2].settle();
    crowd.worlds[0].settle();
    assert_eq!(crowd.worlds[0].outcome(given_back), Some(&Outcome::Held));
    let lease = crowd.worlds[2].lease(shared).0;
    crowd.worlds[2].release(lease);
    crowd.worlds[2].settle();
    assert_eq!(crowd.server.violation(), None);
    let left = crowd.server.snapshot(crowd.worlds[2].now, &World::keys());
    assert_eq!((left.value, left.line), (None, Vec::new()));
}

#[test]
fn the_queue_is_not_bypassed_when_the_key_is_gone() {
    for wait in [Wait::Never, Wait::Forever] {
        let mut crowd = Crowd::new(3);
        crowd.held(0, 10_000);
        let first = crowd.acquire(1, 10_000);
        let now = crowd.worlds[0].now;
        crowd.server.command(now, &["DEL", World::keys().lock()]);
        let second = crowd.worlds[2].acquire(10_000, wait);
        crowd.settle();
        assert!(crowd.has(1, first), "whoever finds it free passes it on");
        assert!(!crowd.has(2, second), "nobody bypasses the queue");
    }
}

#[test]
fn a_try_acquires_a_lock_whose_waiters_are_dead() {
    let mut crowd = Crowd::new(3);
    let lease = crowd.held(0, 60_000);
    crowd.acquire(1, 10_000);
    crowd.worlds[1].event(Event::Disconnected("died".to_owned()));
    crowd.worlds[1].connecting = false;
    crowd.release(0, lease);
    let early = crowd.worlds[2].acquire(10_000, Wait::Never);
    crowd.settle();
    assert!(!crowd.has(2, early), "the waiter may be connecting again");
    crowd.pass_for(&[2, 0], ms(3_001));
    let op = crowd.worlds[2].acquire(10_000, Wait::Never);
    crowd.settle();
    assert!(crowd.has(2, op), "the dead waiter is passed over");
}

#[test]
fn a_waiter_that_gives_up_is_removed_from_the_queue() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(0, 10_000);
    let cancelled = crowd.acquire(1, 10_000);
    assert_eq!(crowd.queue_len(), 1);
    crowd.worlds[1].cancel(cancelled);
    crowd.settle();
    assert_eq!(crowd.queue_len(), 0);
    let timed_out = crowd.worlds[1].acquire(10_000, Wait::UpTo(ms(500)));
    crowd.settle();
    crowd.pass(ms(500));
    let Some(Outcome::TimedOut { position, waited, .. }) = crowd.worlds[1].outcome(timed_out)
    else {
        panic!("{:?}", crowd.worlds[1].outcome(timed_out));
    };
    assert_eq!((*position, *waited), (Some(1), ms(500)));
    crowd.release(0, lease);
    crowd.assert_nothing_left();
}

#[test]
fn a_cancel_that_crosses_the_grant_gives_it_back() {
    let mut crowd = Crowd::new(3);
    let lease = crowd.held(0, 10_000);
    let (b, c) = (crowd.acquire(1, 10_000), crowd.acquire(2, 10_000));
    crowd.worlds[0].release(lease);
    crowd.worlds[0].settle();
    crowd.worlds[1].cancel(b);
    crowd.settle();
    assert_eq!(crowd.worlds[1].outcome(b), Some(&Outcome::Cancelled));
    assert!(crowd.has(2, c), "and passes it on");
}

#[test]
fn a_grant_without_a_waiter_is_given_back_at_once() {
    let mut crowd = Crowd::new(1);
    let now = crowd.worlds[0].now;
    crowd.server.set_foreign(now, &World::keys(), "hf1.a.77", ms(60_000));
    let message = "hf1.a.77,1700000000000001,3000 1700000000000000 lock:a";
    let message = crate::protocol::message::Message::parse(&inbox("a"), message).unwrap();
    crowd.worlds[0].event(Event::Message(message));
    crowd.assert_nothing_left();
}

#[test]
fn a_lock_of_old_code_is_polled_every_tenth_of_a_second() {
    let mut crowd = Crowd::new(1);
    let now = crowd.worlds[0].now;
    crowd.server.set_foreign(now, &World::keys(), "old code", ms(600_000));
    let op = crowd.acquire(0, 10_000);
    crowd.pass(ms(5_000));
    let now = crowd.worlds[0].now;
    crowd.server.command(now, &["DEL", World::keys().lock()]);
    crowd.pass(ms(141));
    assert!(crowd.has(0, op), "a poll finds the lock free in time");
}

#[test]
fn a_waiter_without_messages_polls() {
    let mut crowd = Crowd::new(2);
    let probe = crowd.server.probe(crowd.worlds[1].now);
    crowd.worlds[1].event(Event::Disconnected("cut".to_owned()));
    crowd.worlds[1].connecting = false;
    let denied = Denied { pubsub: Some("NOPERM".to_owned()), ..Denied::default() };
    crowd.worlds[1].event(Event::Connected { probe, risks: Vec::new(), denied });
    assert_eq!(crowd.worlds[1].notices.last(), Some(&Notice::PubsubDenied("NOPERM".to_owned())));
    let lease = crowd.held(0, 10_000);
    let op = crowd.acquire(1, 10_000);
    crowd.release(0, lease);
    crowd.pass(ms(141));
    assert!(crowd.has(1, op), "a poll finds the lock in time");
}

#[test]
fn a_server_that_lost_its_data_gets_the_queue_back_in_order() {
    let mut crowd = Crowd::new(3);
    crowd.held(0, 60_000);
    let first = crowd.acquire(1, 60_000);
    let second = crowd.acquire(2, 60_000);
    crowd.server.flush();
    let now = crowd.worlds[0].now;
    crowd.server.set_foreign(now, &World::keys(), "hf1.x.1", ms(30_000));
    // The later one reconnects first.
    let cut = |crowd: &mut Crowd, who: usize| {
        crowd.worlds[who].event(Event::Disconnected("restart".to_owned()));
        crowd.worlds[who].connect();
        crowd.settle();
    };
    cut(&mut crowd, 2);
    cut(&mut crowd, 1);
    assert_eq!(crowd.queue_len(), 2);
    let now = crowd.worlds[0].now;
    crowd.server.command(now, &["DEL", World::keys().lock()]);
    let third = crowd.worlds[0].acquire(10_000, Wait::Never);
    crowd.settle();
    assert!(
        crowd.has(1, first) && !crowd.has(2, second) && !crowd.has(0, third),
        "the first waiter alone gets the lock"
    );
}

#[test]
fn waiters_of_one_process_share_one_queue_entry() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(0, 10_000);
    for _ in 0..50 {
        crowd.acquire(1, 10_000);
    }
    assert_eq!(crowd.queue_len(), 1);
    crowd.release(0, lease);
}

/// `tasks` callers of manager 0, of which the first holds the lock with a whole block of fences.
fn busy(crowd: &mut Crowd, tasks: usize) -> (LeaseId, Vec<OpId>) {
    let opener = crowd.held(0, 10_000);
    let waiting: Vec<_> = (0..tasks).map(|_| crowd.acquire(0, 10_000)).collect();
    // The first entry was alone when it was enqueued, so its grant is for one caller; the entry after it is
    // for all the others.
    crowd.release(0, opener);
    let (first, _) = crowd.worlds[0].lease(waiting[0]);
    crowd.release(0, first);
    let (second, _) = crowd.worlds[0].lease(waiting[1]);
    (second, waiting[2..].to_vec())
}

#[test]
fn a_lock_is_handed_off_fifteen_times_and_then_granted_by_the_server() {
    let mut crowd = Crowd::new(2);
    let (mut lease, waiting) = busy(&mut crowd, 40);
    let elsewhere = crowd.acquire(1, 10_000);
    let mut handed_off = 0;
    let mut last_fence = 0;
    for op in waiting {
        crowd.worlds[0].release(lease);
        if !crowd.has(0, op) {
            break;
        }
        handed_off += 1;
        let (next, fence) = crowd.worlds[0].lease(op);
        assert!(next > lease && fence > last_fence, "both rise: {fence} after {last_fence}");
        (lease, last_fence) = (next, fence);
    }
    assert_eq!(handed_off, 15);
    crowd.settle();
    // The entry from the time of the hold is before the other's; the next one is not.
    for _ in 0..16 {
        let Some(lease) = crowd.worlds[0].deadlines.keys().next().copied() else { break };
        crowd.release(0, lease);
    }
    assert!(crowd.has(1, elsewhere), "the other process gets its turn");
}

#[test]
fn a_fence_of_a_handoff_is_reserved() {
    let mut crowd = Crowd::new(1);
    let (mut lease, waiting) = busy(&mut crowd, 20);
    let mut last = 0;
    for op in waiting {
        crowd.release(0, lease);
        let (next, fence) = crowd.worlds[0].lease(op);
        let now = crowd.worlds[0].now;
        assert!(fence > last, "fences rise: {fence} after {last}");
        assert!(crowd.server.fence(now).unwrap() >= fence, "issued by the server");
        (lease, last) = (next, fence);
    }
}

#[test]
fn an_earlier_owner_cannot_touch_the_hold_of_the_next() {
    let mut crowd = Crowd::new(1);
    let (lease, waiting) = busy(&mut crowd, 5);
    crowd.worlds[0].release(lease);
    let (next, _) = crowd.worlds[0].lease(waiting[0]);
    assert!(crowd.worlds[0].wire.is_empty(), "handed on");
    for command in [
        Command::Release { lease, exported: false },
        Command::Extend { lease, ttl: Some(ms(60_000)) },
    ] {
        let op = crowd.worlds[0].command(command);
        assert_eq!(crowd.worlds[0].outcome(op), Some(&Outcome::Lost));
        assert!(crowd.worlds[0].wire.is_empty(), "nothing is sent");
    }
    assert!(crowd.worlds[0].deadlines.contains_key(&next), "the next owner's hold is untouched");
}

#[test]
fn an_exported_token_is_not_handed_off() {
    let mut crowd = Crowd::new(1);
    let (lease, waiting) = busy(&mut crowd, 5);
    crowd.worlds[0].command(Command::Release { lease, exported: true });
    assert!(
        matches!(crowd.worlds[0].wire.front(), Some((_, Call::Release { .. }))),
        "an exported token is released at the server"
    );
    crowd.settle();
    assert!(crowd.has(0, waiting[0]), "the server grants the lock to the next");
}

#[test]
fn a_lock_is_not_handed_off_past_half_of_its_lease() {
    let mut crowd = Crowd::new(1);
    let (lease, _) = busy(&mut crowd, 5);
    crowd.pass(ms(5_000));
    crowd.worlds[0].release(lease);
    assert!(
        matches!(crowd.worlds[0].wire.front(), Some((_, Call::Release { .. }))),
        "the release goes to the server"
    );
}

#[test]
fn max_hold_counts_for_each_owner() {
    let mut crowd = Crowd::new(1);
    let hold = HoldTerms { max_hold: Some(ms(3_000)), ..RENEWED };
    let first = crowd.held(0, 60_000);
    let ops: Vec<_> =
        (0..5).map(|_| crowd.worlds[0].acquire_held(60_000, Wait::Forever, hold)).collect();
    crowd.settle();
    crowd.release(0, first);
    let lease = crowd.worlds[0].lease(ops[0]).0;
    crowd.release(0, lease);
    for op in &ops[1..4] {
        crowd.pass(ms(2_000));
        let (lease, _) = crowd.worlds[0].lease(*op);
        crowd.release(0, lease);
    }
    assert!(crowd.worlds[0].lost.is_empty(), "each held for two of three seconds");
    let (lease, _) = crowd.worlds[0].lease(ops[4]);
    crowd.pass(ms(3_001));
    assert_eq!(crowd.worlds[0].lost, [(lease, LossReason::MaxHold)]);
}

#[test]
fn the_lock_goes_to_others_when_the_waiters_here_are_served() {
    let mut crowd = Crowd::new(2);
    let (mut lease, waiting) = busy(&mut crowd, 4);
    let elsewhere = crowd.acquire(1, 10_000);
    for op in waiting {
        crowd.release(0, lease);
        lease = crowd.worlds[0].lease(op).0;
    }
    crowd.release(0, lease);
    assert!(crowd.has(1, elsewhere), "the other process gets its turn");
    let lease = crowd.worlds[1].lease(elsewhere).0;
    crowd.release(1, lease);
    crowd.assert_nothing_left();
}

#[test]
fn a_request_whose_reply_outlives_its_lease_is_repeated_with_the_same_token() {
    let mut world = World::connected().by_scripts();
    let op = world.acquire(50, Wait::Forever);
    let (request, call) = world.wire.pop_front().unwrap();
    let reply = world.server.execute(world.now, &call);
    world.now = world.now + ms(60);
    world.reply(request, reply);
    assert_eq!(world.outcome(op), None, "still a waiter");
    world.pass(ms(60));
    world.settle();
    assert_eq!(world.lease(op).0.token_id().0, 1);
}

#[test]
fn a_request_that_a_grant_by_message_overtook_may_still_arrive() {
    let mut crowd = Crowd::new(2);
    let lease = crowd.held(0, 60_000);
    let (probe, sent) = (crowd.server.probe(crowd.worlds[1].now), crowd.worlds[1].now);
    crowd.worlds[1].event(Event::Probed { probe, sent });
    crowd.worlds[1].machine.servers.refuse_plain_commands();
    let op = crowd.worlds[1].acquire(60_000, Wait::Forever);
    crowd.worlds[1].execute_one();
    crowd.worlds[0].release(lease);
    crowd.worlds[0].settle();
    assert!(crowd.worlds[1].receive_one(), "the message of the grant arrives");
    let (lease, _) = crowd.worlds[1].lease(op);
    // The reply to the request itself never arrives.
    crowd.worlds[1].event(Event::Disconnected("cut".to_owned()));
    crowd.worlds[1].connect();
    crowd.release(1, lease);
    crowd.pass(ms(1_000));
    assert_eq!(crowd.worlds[1].released.len(), 2, "once more, for what may lie in a buffer");
}

#[test]
fn a_reconnect_sends_all_requests_in_the_order_of_the_calls() {
    let mut world = World::connected();
    let names = ["x", "b", "m", "a"];
    for name in names {
        let (ttl, label, wait) = (ms(10_000), Arc::default(), Wait::Forever);
        let name = name.to_owned();
        world.command(Command::Acquire {
            name,
            ttl,
            wait,
            label,
            hold: RENEWED,
            mode: Mode::Exclusive,
        });
    }
    world.lose_requests();
    world.connect();
    let asked: Vec<_> = world
        .wire
        .iter()
        .filter_map(|(_, call)| match call {
            Call::Acquire { keys, .. } => Some(keys.lock().to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(asked, ["lock:x", "lock:b", "lock:m", "lock:a"]);
}

/// What the server may have given for an earlier caller is longer than this one wants, but for a claim.
#[test]
fn a_grant_is_used_that_is_no_longer_than_the_caller_wants() {
    for by_message in [true, false] {
        let mut crowd = Crowd::new(2);
        let lease = crowd.held(0, 60_000);
        let long = crowd.acquire(1, 60_000);
        let brief = crowd.acquire(1, 10_000);
        crowd.worlds[1].cancel(long);
        crowd.worlds[0].release(lease);
        crowd.worlds[0].settle();
        let waiter = &mut crowd.worlds[1];
        if !by_message {
            waiter.lose_messages();
            while waiter.wire.is_empty() {
                waiter.pass(ms(10));
            }
        }
        waiter.settle();
        let (lease, _) = waiter.lease(brief);
        assert_eq!(lease.token_id().0 == 1, by_message, "{lease:?}");
    }
}
