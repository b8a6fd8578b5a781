//! Components of a machine, each by itself: their limits, pauses and records.

use super::context_at;
use super::world::{COMMAND_TIMEOUT, ms};
use crate::machine::connection::{self, Connection};
use crate::machine::contention::Contention;
use crate::machine::context::{self, Context};
use crate::machine::discovery::Discovery;
use crate::machine::handoff::{BLOCK_MAX, HandoffBudget, Reservation};
use crate::machine::idle_locks::{IdleLocks, IdleSnapshot};
use crate::machine::lifecycle::Lifecycle;
use crate::machine::shard_channels::{CHANNEL_KEPT, ShardChannels};
use crate::machine::timers::{Owner, Timer};
use crate::machine::tracked::{TRACKED_MAX, Tracked, Tracking};
use crate::machine::waiting_room::{Rank, WaitingRoom};
use crate::machine::{Effect, LeaseId, NodeId, OpId, Outcome, RequestId, TokenId};
use crate::protocol::query::Holding;
use crate::protocol::{Failure, LockKeys, Mode, Mono, Refusal};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const NODE: NodeId = NodeId(3);
const RECONNECT: Timer = Timer::Reconnect(NODE);

fn context() -> Context {
    context_at(Mono::from_micros(1_000_000))
}

/// The settings of a manager of a Cluster.
fn in_cluster() -> Context {
    let mut context = context();
    context.config.cluster = true;
    context
}

fn keys(name: &str) -> LockKeys {
    LockKeys::new("lock:", name)
}

fn lost() -> Failure {
    Failure::Lost("cut".to_owned())
}

fn refused(code: &str) -> Refusal {
    Refusal { code: code.to_owned(), detail: "because".to_owned() }
}

fn effects(context: &mut Context) -> Vec<Effect> {
    std::mem::take(&mut context.effects)
}

/// Until a timer, which is cleared.
fn take_pause(context: &mut Context, timer: Timer) -> Duration {
    let at = context.timers.at(timer).expect("a timer");
    context.timers.clear(timer);
    at.since(context.now)
}

/// Checks that pauses are spread over the range from half of `most` to `most`.
fn assert_spread(mut pauses: Vec<Duration>, least: Duration, most: Duration) {
    pauses.sort_unstable();
    let (shortest, longest) = (pauses[0], pauses[pauses.len() - 1]);
    let part = most.saturating_sub(least) / 5;
    assert!(least <= shortest && longest < most, "{shortest:?} to {longest:?} of {most:?}");
    let (near, far) = (least + part, most.saturating_sub(part));
    assert!(shortest < near && far < longest, "{shortest:?} to {longest:?} of {most:?}");
}

/// A connection that is up since now.
fn connected(context: &mut Context) -> Connection<&'static str> {
    let mut connection = Connection::new();
    assert!(connection.want(), "it was not wanted before");
    assert!(!connection.connected(context, NODE), "the first one is no reconnection");
    connection
}

#[test]
fn the_pauses_between_attempts_double_up_to_a_second() {
    let mut context = context();
    let mut pauses = vec![Vec::new(); 7];
    for _ in 0..60 {
        let mut connection = Connection::<()>::new();
        for of_try in &mut pauses {
            connection.back_off(&mut context, NODE, None);
            of_try.push(take_pause(&mut context, RECONNECT));
        }
    }
    for (of_try, most) in pauses.into_iter().zip([50, 100, 200, 400, 800, 1_000, 1_000]) {
        assert_spread(of_try, ms(most / 2), ms(most));
    }
    assert!(context.effects.is_empty(), "no attempt starts at once");
}

#[test]
fn an_attempt_is_followed_by_another_as_soon_as_a_lease_needs_it() {
    let mut context = context();
    for (within, least, most) in [
        (None, 500, 1_000),
        (Some(ms(2_000)), 500, 1_000),
        (Some(ms(100)), 50, 100),
        (Some(ms(18)), 10, 18),
        (Some(ms(0)), 10, 15),
    ] {
        let mut pauses = Vec::new();
        for _ in 0..60 {
            connection::attempt(&mut context, NODE, within);
            pauses.push(take_pause(&mut context, RECONNECT));
        }
        assert_spread(pauses, ms(least), ms(most));
        assert_eq!(effects(&mut context), vec![Effect::Connect { node: NODE }; 60]);
    }
}

#[test]
fn an_attempt_that_is_planned_earlier_stays_planned() {
    let mut context = context();
    let mut connection = Connection::<()>::new();
    for (planned, kept) in [(ms(1), true), (ms(5_000), false)] {
        let at = context.now + planned;
        context.timers.set(RECONNECT, at);
        connection.back_off(&mut context, NODE, None);
        assert_eq!(context.timers.at(RECONNECT) == Some(at), kept, "{planned:?}");
    }
}

#[test]
fn a_connection_is_steady_once_it_answers_after_twenty_ms() {
    let mut context = context();
    let mut connection = Connection::<()>::new();
    connection.back_off(&mut context, NODE, None);
    connection.connected(&mut context, NODE);
    assert_eq!(context.timers.at(RECONNECT), None, "no other attempt is needed");
    context.now = context.now + Duration::from_micros(19_999);
    connection.answered(&mut context, NODE);
    assert!(connection.has_failed());
    context.now = context.now + Duration::from_micros(1);
    connection.answered(&mut context, NODE);
    assert!(!connection.has_failed());
    assert_eq!(effects(&mut context), [], "nothing else was under way");
}

#[test]
fn a_connection_is_what_has_happened_to_it() {
    let mut context = context();
    let mut connection = Connection::<()>::new();
    let is = |it: &Connection<()>| {
        let [up, wanted] = [it.is_up(), it.is_wanted()];
        [up, wanted, it.was_tried(), it.was_lost(), it.has_failed(), it.is_doubted()]
    };
    assert_eq!(is(&connection), [false; 6]);
    assert!(connection.want() && !connection.want(), "once");
    assert_eq!(connection.last_error, "not connected yet");
    assert_eq!(is(&connection), [false, true, false, false, false, false]);
    connection.failed(&mut context, NODE, &lost(), None);
    assert_eq!(connection.last_error, format!("not connected: {}", lost()));
    assert_eq!(is(&connection), [false, true, true, false, true, false]);
    assert!(!connection.connected(&mut context, NODE), "it was never lost");
    assert_eq!(is(&connection), [true, true, true, false, true, false]);
    connection.press(&mut context, NODE, ms(100));
    assert_eq!(is(&connection), [true, true, true, false, true, true]);
    connection.failed(&mut context, NODE, &Failure::Lost("no route".to_owned()), None);
    assert!(!connection.last_error.contains("no route"), "it is connected");
    assert!(connection.lost("cut").is_some());
    assert_eq!(connection.last_error, "cut");
    assert_eq!(is(&connection), [false, true, true, true, true, false]);
    assert!(connection.lost("again").is_none(), "there is none to lose");
    assert!(connection.connected(&mut context, NODE), "it was lost before");
    connection.end();
    assert!(!connection.is_wanted() && !connection.is_up());
}

#[test]
fn a_connection_that_leaves_a_lease_waiting_is_doubted_until_it_answers() {
    let mut context = context();
    let mut connection = connected(&mut context);
    connection.press(&mut context, NODE, ms(100));
    assert_eq!(effects(&mut context), [Effect::Connect { node: NODE }]);
    assert!(context.timers.at(RECONNECT).is_some());
    connection.press(&mut context, NODE, ms(100));
    assert_eq!(effects(&mut context), [], "another attempt is under way");
    connection.answered(&mut context, NODE);
    assert!(connection.is_up() && !connection.is_doubted());
    assert_eq!(effects(&mut context), [Effect::StopConnecting { node: NODE }]);
    assert_eq!(context.timers.at(RECONNECT), None);
}

#[test]
fn a_lease_hastens_the_next_attempt_of_a_connection_that_is_wanted() {
    let mut context = context();
    let mut connection = Connection::<()>::new();
    connection.press(&mut context, NODE, ms(20));
    assert_eq!(context.timers.at(RECONNECT), None, "nobody wants it");
    connection.want();
    connection.press(&mut context, NODE, ms(20));
    assert!(take_pause(&mut context, RECONNECT) < ms(20));
    connection.connected(&mut context, NODE);
    connection.lost("cut");
    connection.press(&mut context, NODE, ms(20));
    assert!(take_pause(&mut context, RECONNECT) < ms(20));
    assert_eq!(effects(&mut context), [], "the attempt follows");
}

#[test]
fn a_steady_connection_is_made_anew_at_once_and_another_after_a_pause() {
    let mut context = context();
    let mut connection = connected(&mut context);
    connection.lost("cut");
    connection.reconnect(&mut context, NODE, None);
    assert_eq!(effects(&mut context), [Effect::Connect { node: NODE }]);
    context.timers.clear(RECONNECT);
    connection.connected(&mut context, NODE);
    connection.lost("cut");
    connection.reconnect(&mut context, NODE, None);
    assert_eq!(effects(&mut context), []);
    let pause = take_pause(&mut context, RECONNECT);
    assert!((ms(50)..ms(100)).contains(&pause), "the second failure in a row: {pause:?}");
}

#[test]
fn a_refused_login_is_told_once_for_each_lost_connection() {
    let mut context = context();
    let mut connection = Connection::<()>::new();
    connection.want();
    let login = || Failure::Refused(refused("WRONGPASS"));
    assert_eq!(connection.failed(&mut context, NODE, &login(), None), None, "never connected");
    for _ in 0..2 {
        connection.connected(&mut context, NODE);
        connection.lost("cut");
        assert_eq!(connection.failed(&mut context, NODE, &lost(), None), None);
        let other = Failure::Refused(refused("LOADING"));
        assert_eq!(connection.failed(&mut context, NODE, &other, None), None);
        let told = connection.failed(&mut context, NODE, &login(), None);
        assert_eq!(told, Some(refused("WRONGPASS")));
        assert_eq!(connection.failed(&mut context, NODE, &login(), None), None, "again");
    }
}

#[test]
fn the_answers_of_requests_are_taken_in_any_order_and_once() {
    let mut context = context();
    let mut connection = connected(&mut context);
    let began = context.now;
    assert_eq!((connection.oldest(), connection.silent_since()), (None, None));
    for (id, name) in [(5, "a"), (6, "b"), (9, "c")] {
        connection.add(RequestId(id), began + ms(id), name);
    }
    assert_eq!(connection.silent_since(), Some(began + ms(5)));
    let mut take = |id, after| {
        let taken = connection.take(RequestId(id), began + ms(after));
        (
            taken.map(|taken| (taken.request, taken.sent)),
            connection.oldest(),
            connection.silent_since(),
        )
    };
    let at = |after| Some(began + ms(after));
    assert_eq!(take(6, 20), (Some(("b", began + ms(6))), at(5), at(20)));
    assert_eq!(take(6, 30), (None, at(5), at(20)), "it is taken");
    assert_eq!(take(5, 40), (Some(("a", began + ms(5))), at(9), at(40)));
    assert_eq!(take(7, 50), (None, at(9), at(40)), "an unknown one");
    assert_eq!(connection.round_trip(), ms(35), "that of the last answer");
    let unanswered = connection.lost("cut").unwrap();
    assert_eq!(unanswered.iter().map(|it| it.request).collect::<Vec<_>>(), ["c"]);
    assert_eq!(connection.oldest(), None);
}

#[test]
fn a_connection_that_ends_forgets_its_requests() {
    let mut context = context();
    let mut connection = connected(&mut context);
    connection.add(RequestId(1), context.now, "a");
    connection.end();
    assert_eq!(connection.oldest(), None);
}

#[test]
fn a_first_connection_is_tried_again_while_its_patience_lasts() {
    let mut context = context();
    context.config.open_patience = ms(500);
    let until = context.now + ms(500);
    let mut lifecycle = Lifecycle::default();
    assert!(!lifecycle.may_open_later(&mut context, &lost()), "nobody waits for it");
    lifecycle.begin(&context, OpId(1));
    assert!(lifecycle.is_opening());
    let denied = Failure::Refused(refused("NOPERM"));
    assert!(!lifecycle.may_open_later(&mut context, &denied), "that would not help");
    assert_eq!(context.timers.at(Timer::OpenDeadline), None);
    for failure in [lost(), Failure::Refused(refused("LOADING"))] {
        assert!(lifecycle.may_open_later(&mut context, &failure));
        assert_eq!(context.timers.at(Timer::OpenDeadline), Some(until));
    }
    context.now = until;
    assert!(!lifecycle.may_open_later(&mut context, &lost()), "it is over");
    context.timers.set(RECONNECT, until);
    lifecycle.open_deadline(&mut context);
    let outcome = Outcome::Server { refusal: refused("LOADING"), key: None };
    let ended = [Effect::Complete { op: OpId(1), outcome }, Effect::Stop];
    assert_eq!(effects(&mut context), ended, "the last failure counts");
    assert!(context.timers.is_empty() && !lifecycle.is_opening());
    lifecycle.open_deadline(&mut context);
    assert_eq!(effects(&mut context), []);
}

#[test]
fn without_a_failure_the_end_of_the_patience_ends_nothing() {
    let mut context = context();
    let mut lifecycle = Lifecycle::default();
    lifecycle.begin(&context, OpId(1));
    lifecycle.open_deadline(&mut context);
    assert!(lifecycle.is_opening());
    context.timers.set(Timer::OpenDeadline, Mono::NEVER);
    context.timers.set(RECONNECT, Mono::NEVER);
    lifecycle.opened(&mut context, Ok(()));
    assert_eq!(effects(&mut context), [Effect::Complete { op: OpId(1), outcome: Outcome::Done }]);
    assert_eq!(context.timers.at(Timer::OpenDeadline), None);
    assert!(context.timers.at(RECONNECT).is_some(), "the manager goes on");
    lifecycle.opened(&mut context, Err(lost()));
    assert_eq!(effects(&mut context), [], "it is open");
}

#[test]
fn closing_ends_the_opening_and_ends_once() {
    let mut context = context();
    let mut lifecycle = Lifecycle::default();
    lifecycle.begin(&context, OpId(1));
    assert_eq!((lifecycle.closing(), lifecycle.end()), (None, None));
    lifecycle.begin_close(&mut context, OpId(2));
    assert_eq!(effects(&mut context), [Effect::Complete { op: OpId(1), outcome: Outcome::Closed }]);
    assert_eq!(take_pause(&mut context, Timer::CloseDeadline), COMMAND_TIMEOUT);
    assert_eq!(lifecycle.closing(), Some(OpId(2)));
    assert_eq!((lifecycle.end(), lifecycle.end()), (Some(OpId(2)), None));
}

#[test]
fn one_query_of_the_routes_is_open_at_a_time() {
    let mut context = in_cluster();
    let mut discovery = Discovery::default();
    discovery.ask(&mut context);
    discovery.ask(&mut context);
    assert_eq!(effects(&mut context), [Effect::Discover]);
    discovery.answered(true);
    discovery.ask(&mut context);
    assert_eq!(effects(&mut context), [Effect::Discover]);
}

#[test]
fn the_routes_are_queried_a_tenth_of_a_second_apart_and_less_often_without_an_answer() {
    let mut context = in_cluster();
    let mut discovery = Discovery::default();
    let pause = |discovery: &Discovery, context: &mut Context| {
        discovery.ask_soon(context);
        take_pause(context, Timer::Discover)
    };
    assert_eq!(pause(&discovery, &mut context), ms(0), "they were never queried");
    discovery.ask(&mut context);
    assert_eq!(pause(&discovery, &mut context), ms(100));
    context.now = context.now + ms(60);
    assert_eq!(pause(&discovery, &mut context), ms(40), "it counts from the last query");
    context.now = context.now + ms(60);
    assert_eq!(pause(&discovery, &mut context), ms(0));
    discovery.ask(&mut context);
    for most in [200, 400, 800, 1_000, 1_000] {
        discovery.answered(false);
        discovery.ask(&mut context);
        let pauses = (0..60).map(|_| pause(&discovery, &mut context)).collect();
        assert_spread(pauses, ms(most / 2), ms(most));
    }
    discovery.answered(true);
    assert_eq!(pause(&discovery, &mut context), ms(100));
}

#[test]
fn a_query_of_the_routes_that_is_planned_stays_and_one_server_has_none() {
    let mut context = in_cluster();
    let (discovery, at) = (Discovery::default(), Mono::from_micros(7_000_000));
    context.timers.set(Timer::Discover, at);
    discovery.ask_soon(&mut context);
    assert_eq!(context.timers.at(Timer::Discover), Some(at));
    let mut context = self::context();
    discovery.ask_soon(&mut context);
    assert_eq!(context.timers.at(Timer::Discover), None);
}

#[test]
fn no_more_locks_are_tracked_than_there_is_room_for() {
    let mut tracked = Tracked::default();
    let max = TRACKED_MAX as u64;
    for id in 1..=max {
        assert!(tracked.has_room(), "{id}");
        assert!(tracked.add(&keys(&id.to_string()), TokenId(id)));
    }
    assert!(!tracked.has_room());
    assert!(!tracked.add(&keys("more"), TokenId(max + 1)));
    assert!(tracked.add(&keys("5"), TokenId(5)), "it is tracked already");
    tracked.remove(&keys("5"));
    assert_eq!(tracked.of(&keys("5")), None);
    assert!(tracked.has_room() && tracked.add(&keys("more"), TokenId(max + 1)));
}

#[test]
fn of_two_holds_of_one_key_the_first_is_tracked() {
    let mut tracked = Tracked::default();
    assert!(tracked.add(&keys("a"), TokenId(1)));
    assert!(!tracked.add(&keys("a"), TokenId(2)));
    assert_eq!(tracked.of(&keys("a")), Some(TokenId(1)));
    assert_eq!(tracked.all().collect::<Vec<_>>(), [(&keys("a"), TokenId(1))]);
}

#[test]
fn a_lock_that_is_told_of_four_times_is_tracked_later() {
    let mut tracking = Tracking::On(0);
    for told in 1..4 {
        tracking = tracking.told();
        assert_eq!(tracking, Tracking::On(told));
    }
    assert_eq!(tracking.told(), Tracking::Young);
    for other in [Tracking::Off, Tracking::Young, Tracking::Later] {
        assert_eq!((other.told(), other.is_on()), (other, false));
    }
    assert_eq!([true, false].map(Tracking::of_new), [Tracking::Young, Tracking::Later]);
}

#[test]
fn who_has_something_at_the_server_gets_room_first() {
    let mut room = WaitingRoom::default();
    let owners = [1, 2, 3, 4].map(|id| Owner::Entry(TokenId(id)));
    for (owner, rank) in owners.iter().zip([Rank::New, Rank::Known, Rank::New, Rank::Known]) {
        room.add(*owner, rank);
    }
    let order: Vec<_> = std::iter::from_fn(|| room.next()).collect();
    assert_eq!(order, [owners[1], owners[3], owners[0], owners[2]]);
}

#[test]
fn the_locks_that_were_held_are_forgotten_when_there_are_too_many() {
    let mut contention = Contention::default();
    let name = |number: usize| keys(&number.to_string());
    for number in 0..4_096 {
        contention.was_held(&name(number));
    }
    assert!(contention.is_likely(&name(0)) && contention.is_likely(&name(4_095)));
    contention.was_free(&name(1));
    assert!(!contention.is_likely(&name(1)) && contention.is_likely(&name(2)));
    contention.was_held(&name(1));
    contention.was_held(&name(4_096));
    assert!(!contention.is_likely(&name(2)) && contention.is_likely(&name(4_096)));
}

#[test]
fn a_grant_may_be_handed_off_once_for_each_further_fence_within_half_of_its_lease() {
    let now = Mono::from_micros(500);
    let new = |mode, block| HandoffBudget::new(now, ms(2_000), mode, block);
    let budget = new(Mode::Exclusive, BLOCK_MAX);
    assert_eq!((budget.left, budget.until()), (15, now + ms(1_000)));
    assert_eq!(new(Mode::Exclusive, 1).left, 0);
    assert_eq!((new(Mode::permits(1, 9), 1).left, new(Mode::SHARED, 16).left), (15, 0));
    assert!(!budget.is_spent(now) && budget.is_spent(now + ms(1_000)));
    assert!(new(Mode::Exclusive, 1).is_spent(now), "no handoffs are left");
    let (next, again) = (budget.next(true), budget.next(true).restored());
    assert_eq!((next.left, next.until(), again.left), (14, budget.until(), 15));
    let large = new(Mode::Exclusive, 200);
    assert_eq!((large.next(true).left, large.next(false).left), (14, 198));
}

/// A hold of a grant after so many handoffs.
fn hold_after(handoffs: u64) -> LeaseId {
    LeaseId(LeaseId::first(TokenId(4)).0 + handoffs)
}

#[test]
fn more_handoffs_are_asked_for_when_few_are_left() {
    let first = hold_after(0);
    let is_due = |last: Option<&Reservation>, left| Reservation::is_due(last, first, left);
    assert!(is_due(None, 7) && !is_due(None, 8));
    // Half of the last block.
    let large = Reservation::new(first, 101);
    assert!(is_due(Some(&large), 50) && !is_due(Some(&large), 51));
    let mut late = Reservation::new(first, BLOCK_MAX);
    assert!(is_due(Some(&late), 7) && !is_due(Some(&late), 8));
    late.delay();
    assert!(is_due(Some(&late), 15) && !is_due(Some(&late), 16));
    late.end();
    assert!(late.is_over() && !is_due(Some(&late), 0), "others wait");
    // No grant has more holds than its numbers tell apart.
    let near_the_last = |left| Reservation::is_due(None, hold_after(253), left);
    assert!(near_the_last(1) && !near_the_last(2));
}

#[test]
fn a_lock_that_lingers_asks_for_many_fences_once_a_caller_had_to_wait() {
    let mut last = Reservation::new(hold_after(0), BLOCK_MAX);
    assert_eq!(Reservation::idle_block(None), BLOCK_MAX);
    assert_eq!(Reservation::idle_block(Some(&last)), BLOCK_MAX);
    last.delay();
    assert_eq!(Reservation::idle_block(Some(&last)), u8::MAX);
    let large = Reservation::new(hold_after(0), BLOCK_MAX + 1);
    assert_eq!(Reservation::idle_block(Some(&large)), u8::MAX, "it goes on so");
}

#[test]
fn reserved_fences_are_for_the_handoffs_that_are_left() {
    let (sent, ttl) = (Mono::from_micros(700), ms(400));
    let renew = |block, held, linger| {
        let mut reservation = Reservation::new(hold_after(2), block);
        let budget = reservation.renew(held, sent, ttl, 77, linger);
        assert_eq!((reservation.take_first(), reservation.take_first()), (Some(77), None));
        assert_eq!(budget.until(), sent + ms(200));
        (budget.left, reservation.counts(sent), reservation.counts(sent + ms(100)))
    };
    assert_eq!(renew(16, hold_after(2), None), (15, true, true));
    assert_eq!(renew(16, hold_after(6), None), (11, true, true), "four were done meanwhile");
    assert_eq!(renew(9, hold_after(2), None), (9, true, true));
    assert_eq!(renew(200, hold_after(6), Some(ms(100))), (200, false, true));
    assert_eq!(renew(200, hold_after(250), Some(ms(100))), (5, false, true));
}

#[test]
fn a_channel_is_kept_for_later_waiters_for_half_a_minute() {
    let mut context = in_cluster();
    let (mut channels, channel) = (ShardChannels::default(), Arc::<str>::from("inbox:{a}"));
    let listen = |channels: &mut ShardChannels, context: &mut Context, node| {
        channels.listen(context, node, Arc::clone(&channel), &keys("a"));
        effects(context)
    };
    let begins = |node| Effect::Listen { node, channel: Arc::clone(&channel) };
    let ends = |node| Effect::Unlisten { node, channel: Arc::clone(&channel) };
    assert_eq!(listen(&mut channels, &mut context, NODE), [begins(NODE)]);
    assert_eq!(take_pause(&mut context, Timer::ForgetChannels), CHANNEL_KEPT);
    assert_eq!(listen(&mut channels, &mut context, NODE), [], "it is subscribed");
    assert_eq!(context.timers.at(Timer::ForgetChannels), None);
    let moved = NodeId(4);
    assert_eq!(listen(&mut channels, &mut context, moved), [ends(NODE), begins(moved)]);
    assert_eq!(channels.listening(NODE, &channel, true), None, "not there");
    assert_eq!(channels.listening(moved, &channel, true), Some(keys("a")));

    channels.forget_unused(&mut context, |_| true);
    assert_eq!(take_pause(&mut context, Timer::ForgetChannels), CHANNEL_KEPT);
    channels.forget_unused(&mut context, |_| false);
    context.now = context.now + CHANNEL_KEPT.saturating_sub(Duration::from_micros(1));
    channels.forget_unused(&mut context, |_| false);
    assert_eq!(effects(&mut context), []);
    context.timers.clear(Timer::ForgetChannels);
    context.now = context.now + Duration::from_micros(1);
    channels.forget_unused(&mut context, |_| false);
    assert_eq!(effects(&mut context), [ends(moved)]);
    assert_eq!(context.timers.at(Timer::ForgetChannels), None, "there is none");
    assert_eq!(channels.listening(moved, &channel, true), None);
}

#[test]
fn a_channel_that_somebody_waits_on_again_is_unused_from_the_next_time_on() {
    let mut context = in_cluster();
    let (mut channels, channel) = (ShardChannels::default(), Arc::<str>::from("inbox:{a}"));
    channels.listen(&mut context, NODE, Arc::clone(&channel), &keys("a"));
    for used_again in [false, true] {
        channels.forget_unused(&mut context, |_| false);
        context.now = context.now + CHANNEL_KEPT / 2;
        if used_again {
            channels.forget_unused(&mut context, |_| true);
        } else {
            channels.listen(&mut context, NODE, Arc::clone(&channel), &keys("a"));
        }
        channels.forget_unused(&mut context, |_| false);
        context.now = context.now + CHANNEL_KEPT / 2;
        channels.forget_unused(&mut context, |_| false);
        assert_eq!(channels.listening(NODE, &channel, true), Some(keys("a")));
        channels.forget_unused(&mut context, |_| true);
    }
}

#[test]
fn the_channels_of_a_lost_connection_are_forgotten() {
    let mut context = in_cluster();
    let mut channels = ShardChannels::default();
    for (name, node) in [("a", NODE), ("b", NodeId(4))] {
        channels.listen(&mut context, node, name.into(), &keys(name));
    }
    channels.forget_node(&mut context, NODE);
    assert_eq!(channels.listening(NODE, "a", true), None);
    assert_eq!(channels.listening(NodeId(4), "b", true), Some(keys("b")));
    assert!(context.timers.at(Timer::ForgetChannels).is_some());
    assert_eq!(channels.listening(NodeId(4), "b", false), Some(keys("b")), "it has ended");
    assert_eq!(channels.listening(NodeId(4), "b", false), None);
    channels.forget_node(&mut context, NodeId(4));
    assert_eq!(context.timers.at(Timer::ForgetChannels), None);
}

#[test]
fn a_lock_lingers_as_long_as_its_last_caller_wants_from_the_first_time_on() {
    let (mut idle, id, at) = (IdleLocks::default(), TokenId(1), Mono::from_micros);
    idle.set(TokenId(2), ms(0));
    assert_eq!((idle.linger_of(TokenId(2)), idle.end_of(at(5), TokenId(2))), (None, None));
    idle.set(id, ms(2));
    assert_eq!((idle.linger_of(id), idle.end_of(at(5), id)), (Some(ms(2)), Some(at(2_005))));
    idle.begin(at(5), keys("a"), id);
    assert_eq!((idle.len(), idle.with(&keys("a")), idle.first()), (1, Some(id), Some(id)));
    assert!(idle.take(at(7), &keys("a"), id) && !idle.take(at(8), &keys("a"), id), "once");
    assert_eq!((idle.len(), idle.with(&keys("a")), idle.first()), (0, None, None));
    assert!(idle.is_taken_unconfirmed(id, at(7)) && !idle.is_taken_unconfirmed(id, at(8)));
    assert_eq!(idle.end_of(at(2_004), id), Some(at(2_005)), "it counts from the first time");
    assert_eq!(idle.end_of(at(2_005), id), None);
    idle.set(id, ms(0));
    assert_eq!((idle.linger_of(id), idle.end_of(at(5), id)), (None, None), "its caller wants none");
    idle.forget(id);
    assert!(!idle.is_taken_unconfirmed(id, at(7)));
}

#[test]
fn the_idle_lock_that_was_released_first_is_known() {
    let (mut idle, at) = (IdleLocks::default(), Mono::from_micros);
    for (id, us) in [(1, 9), (2, 5), (3, 7)] {
        idle.begin(at(us), keys(&id.to_string()), TokenId(id));
    }
    assert_eq!(idle.first(), Some(TokenId(2)));
    assert!(!idle.end(&keys("2"), TokenId(3)), "another one has this name");
    assert!(idle.end(&keys("2"), TokenId(2)));
    assert_eq!((idle.first(), idle.len()), (Some(TokenId(3)), 2));
}

#[test]
fn a_page_tells_which_of_its_locks_are_idle_here() {
    let (mut idle, at) = (IdleLocks::default(), Mono::from_micros);
    idle.begin(at(1_000), keys("a"), TokenId(4));
    let snapshot = IdleSnapshot::new("c", at(6_000), &idle);
    let holding = |name: &str, shared, token: &str| Holding {
        key: keys(name).lock().to_owned(),
        shared,
        token: token.to_owned(),
        fence: None,
        remaining_ms: 9,
        idle_ms: None,
    };
    let mut page = [
        holding("a", true, "hf1.c.4"),
        holding("a", false, "hf1.c.5"),
        holding("a", false, "hf1.d.4"),
        holding("b", false, "hf1.c.4"),
        holding("a", false, "hf1.c.4"),
    ];
    snapshot.mark(&mut page);
    assert_eq!(page.map(|it| it.idle_ms), [None, None, None, None, Some(5)]);
}

#[test]
fn tokens_are_numbered_by_the_time_since_the_manager_began() {
    let mut context = context();
    context.config.started = context.now;
    let mut numbers = BTreeSet::new();
    let (first, second) = (context.next_token_id().0, context.next_token_id().0);
    assert_eq!((first, second), (1, 2), "in one tick they follow each other");
    context.now = context.now + ms(1_000);
    for _ in 0..3 {
        numbers.insert(context.next_token_id().0);
    }
    let ticks = 1_000_000 / crate::protocol::TICK_US;
    assert_eq!(numbers.into_iter().collect::<Vec<_>>(), [ticks, ticks + 1, ticks + 2]);
}

#[test]
fn a_pause_between_two_polls_is_random_between_its_bounds() {
    let mut context = context();
    let between = (0..60).map(|_| context.between(ms(30), ms(90))).collect();
    assert_spread(between, ms(30), ms(90));
    assert_eq!(context.between(ms(30), ms(30)), ms(30));
}

#[test]
fn a_label_is_told_that_is_not_the_one_that_was_asked_for() {
    let label = |text: &str| -> Arc<str> { text.into() };
    let one = label("a");
    assert_eq!(context::other_label(&one, &Arc::clone(&one)), None);
    assert_eq!(context::other_label(&one, &label("a")), None);
    assert_eq!(context::other_label(&one, &label("b")), Some("a".to_owned()));
}
