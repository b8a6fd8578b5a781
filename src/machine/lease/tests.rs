//! The plans of one lease, by its lengths and the time.

use super::{Lease, Leases, Origin, PendingRenewal, Plan, RenewedBy, SLICE};
use crate::machine::context::Context;
use crate::machine::handoff::{HandoffBudget, Reservation};
use crate::machine::interface::{Effect, HoldTerms, LossReason};
use crate::machine::tests::context_at;
use crate::machine::tracked::{TRACKED_AFTER, Tracking};
use crate::protocol::{
    LeaseId, LockKeys, Mode, Mono, Reply, Script, TokenId, drift, lease_until, valid_until,
};
use std::sync::Arc;
use std::time::Duration;

const BEGAN: Mono = Mono::from_micros(3_000_000);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// A lease that was requested and confirmed at [`BEGAN`], and is renewed.
fn lease(ttl: Duration) -> Lease {
    let (keys, label) = (LockKeys::new("", "a"), Arc::default());
    let until = valid_until(BEGAN, ttl);
    let mut held = Lease::new(TokenId(1), keys, label, Mode::Exclusive, ttl, 7, until);
    (held.confirmed, held.renew) = (BEGAN, true);
    held
}

fn at(after: Duration) -> Mono {
    BEGAN + after
}

fn leases(held: Lease) -> Leases {
    let mut leases = Leases::default();
    leases.by_token.insert(TokenId(1), held);
    leases
}

#[test]
fn a_lease_counts_as_confirmed_for_a_sixteenth_of_it_and_a_second_at_most() {
    for (ttl, within) in [(ms(8_000), ms(500)), (ms(16_000), ms(1_000)), (ms(32_000), ms(1_000))] {
        let mut held = lease(ttl);
        assert!(held.is_confirmed(at(within)), "{ttl:?}");
        assert!(!held.is_confirmed(at(within + us(1))), "{ttl:?}");
        assert!(held.may_stay_confirmed(within / 2), "{ttl:?}");
        assert!(!held.may_stay_confirmed(within / 2 + us(1)), "{ttl:?}");
        held.pending_renewal = Some(PendingRenewal::Extension);
        assert!(!held.is_confirmed(BEGAN), "a part of its grant is pending");
    }
}

/// One and a half round trips before the last answer is too old, and a quarter of that time at least.
#[test]
fn an_idle_lock_is_confirmed_in_time() {
    let held = lease(ms(8_000));
    for (round_trip, after) in [(0, 375), (80, 375), (100, 350), (200, 200), (400, 0)] {
        assert_eq!(held.next_confirmation(ms(round_trip)), at(ms(after)), "{round_trip} ms away");
    }
}

#[test]
fn the_rest_of_a_lease_suits_who_asks_for_at_most_twice_as_much() {
    let (mut held, ttl) = (lease(ms(8_000)), ms(1_000));
    let suits = |held: &Lease, left| held.rest_suits(at(ms(2_000)), left);
    held.until = at(ms(3_000));
    assert!(suits(&held, ttl) && suits(&held, 2 * ttl));
    assert!(!suits(&held, ttl.saturating_sub(us(1))), "it lasts too long");
    assert!(!suits(&held, 2 * ttl + us(2)), "it is too short");
}

#[test]
fn a_lease_is_whole_until_a_part_in_64_is_over() {
    let ttl = ms(6_400);
    let mut held = lease(ttl);
    assert!(held.is_whole(BEGAN, ttl) && held.is_whole(at(ms(100)), ttl));
    assert!(!held.is_whole(at(ms(100) + us(1)), ttl), "it is shorter");
    assert!(!held.is_whole(at(ms(50)), ttl.saturating_sub(ms(50))), "of another length");
    held.until = held.until + us(1);
    assert!(!held.is_whole(BEGAN, ttl), "it is longer");
}

#[test]
fn of_several_steps_that_are_due_the_end_of_the_hold_comes_first() {
    let mut held = lease(ms(1_000));
    let then = at(ms(100));
    (held.kept_until, held.until, held.renewal) = (then, then, then);
    assert_eq!(held.plan(), (then, Plan::KeepEnd));
    held.kept_until = then + us(1);
    assert_eq!(held.plan(), (then, Plan::LeaseEnd));
    held.until = then + us(1);
    assert_eq!(held.plan(), (then, Plan::Renewal));
    assert_eq!(held.held_until(), then + us(1));
    held.kept_until = at(ms(50));
    assert_eq!((held.plan(), held.held_until()), ((at(ms(50)), Plan::KeepEnd), at(ms(50))));
}

#[test]
fn a_lease_gets_longer_until_its_hold_ends_with_it() {
    let mut held = lease(ms(1_000));
    assert!(held.gets_longer());
    held.kept_until = held.until + us(1);
    assert!(held.gets_longer());
    held.kept_until = held.until;
    assert!(!held.gets_longer(), "the hold ends first");
    (held.kept_until, held.renew) = (Mono::NEVER, false);
    assert!(!held.gets_longer(), "it is not renewed");
}

#[test]
fn a_lease_is_renewed_when_two_thirds_are_left_and_asked_about_after_each_third_of_the_rest() {
    let ttl = ms(3_000);
    // How much is left by the server's clock; the pause if it is renewed, and if not.
    for (left, renewed, asked) in [
        (ttl, ms(1_000), ms(1_000)),
        (ms(2_500), ms(500), ms(1_000)),
        (ms(2_000), ms(0), ms(1_000)),
        (ms(500), ms(0), ms(1_000)),
        (ms(3_300), ms(1_100), ms(1_100)),
        (ms(9_000), ms(3_000), ms(3_000)),
    ] {
        let mut held = lease(ttl);
        held.until = at(left.saturating_sub(drift(ttl)));
        assert_eq!(held.until_renewal(BEGAN), renewed, "{left:?}");
        held.renew = false;
        assert_eq!(held.until_renewal(BEGAN), asked, "{left:?}");
    }
}

#[test]
fn a_young_lease_has_a_step_for_its_tracking_first() {
    for (tracking, ttl, after) in [
        (Tracking::Young, ms(9_000), TRACKED_AFTER),
        (Tracking::Young, ms(1_500), ms(500)),
        (Tracking::Later, ms(9_000), ms(3_000)),
    ] {
        let mut held = lease(ttl);
        held.tracking = tracking;
        held.plan_next_renewal(BEGAN);
        assert_eq!(held.renewal, at(after), "{tracking:?}, {ttl:?}");
    }
}

/// Renewals that are due in one slice leave together, but none before now.
#[test]
fn a_renewal_is_planned_for_the_begin_of_a_slice() {
    for (ttl, after, begins) in [
        (ms(1_000), ms(59), ms(40)),
        (ms(1_000), ms(40), ms(40)),
        (ms(80), us(9_999), ms(5)),
        (ms(80), ms(10), ms(10)),
        (us(3), us(7), us(7)),
    ] {
        let mut held = lease(ttl);
        held.plan_renewal(BEGAN, at(after));
        assert_eq!(held.renewal, at(begins), "{ttl:?}, {after:?}");
    }
    let mut held = lease(ms(1_000));
    held.plan_renewal(at(ms(50)), at(ms(55)));
    assert_eq!(held.renewal, at(ms(50)));
}

#[test]
fn a_renewal_is_retried_after_a_sixteenth_of_the_rest_and_a_slice_at_least() {
    let mut held = lease(ms(16_000));
    held.until = at(ms(3_200));
    held.plan_retry(BEGAN);
    assert_eq!(held.renewal, at(ms(200)));
    held.until = at(ms(160));
    held.plan_retry(BEGAN);
    assert_eq!(held.renewal, at(SLICE));
    let mut held = lease(ms(160));
    held.until = at(ms(16));
    held.plan_retry(BEGAN);
    assert_eq!(held.renewal, at(ms(10)), "a sixteenth of a short lease");
}

#[test]
fn a_retry_takes_the_place_of_the_step_for_the_tracking() {
    for (tracking, then) in [
        (Tracking::Young, Tracking::Later),
        (Tracking::On(2), Tracking::On(2)),
        (Tracking::Off, Tracking::Off),
    ] {
        let mut held = lease(ms(1_000));
        held.tracking = tracking;
        held.plan_retry(BEGAN);
        assert_eq!(held.tracking, then);
    }
}

#[test]
fn a_question_asks_for_no_more_than_is_left() {
    let ttl = ms(1_000);
    let mut held = lease(ttl);
    held.until = at(us(300_900));
    assert_eq!(held.renewal_ttl(BEGAN), ttl);
    held.renew = false;
    assert_eq!(held.renewal_ttl(BEGAN), ms(300), "in whole ms");
    assert_eq!(held.renewal_ttl(at(us(300_900))), ms(1), "and one at least");
    held.pending_renewal = Some(PendingRenewal::Claim);
    assert_eq!(held.renewal_ttl(BEGAN), ttl);
    held.until = at(ms(5_000));
    assert_eq!(held.renewal_ttl(BEGAN), ms(5_000), "its caller has extended it");
}

#[test]
fn no_more_is_asked_for_than_the_rest_of_the_hold() {
    let mut held = lease(ms(1_000));
    assert_eq!(held.within_hold(BEGAN, ms(700)), ms(700));
    held.kept_until = at(ms(500));
    assert_eq!(held.within_hold(BEGAN, ms(700)), lease_until(BEGAN, at(ms(500))));
    assert_eq!(held.within_hold(BEGAN, ms(100)), ms(100));
}

#[test]
fn a_lease_needs_its_server_when_its_renewal_is_due_or_a_part_of_its_grant_pending() {
    let ttl = ms(3_000);
    let mut held = lease(ttl);
    // Renewals are planned for the begin of a slice.
    let due = ms(1_000).saturating_sub(SLICE);
    assert!(!held.needs_server(at(due.saturating_sub(us(1)))) && held.needs_server(at(due)));
    held.renew = false;
    assert!(!held.needs_server(at(ms(2_000))), "it gets no longer");
    held.pending_renewal = Some(PendingRenewal::Extension);
    assert!(held.needs_server(BEGAN));
}

#[test]
fn the_nearer_its_end_the_more_often_a_lease_needs_an_attempt_to_connect() {
    let mut held = lease(ms(12_800));
    held.until = at(ms(8_000));
    assert_eq!(held.pressure(BEGAN), ms(1_000));
    assert_eq!(held.pressure(at(ms(7_000))), ms(125));
    assert_eq!(held.pressure(at(ms(7_900))), ms(100), "a part in 128 of it");
}

#[test]
fn the_plain_command_renews_only_where_it_can_do_no_harm() {
    let ttl = ms(1_000);
    let plainly = |change: fn(&mut Lease), asked: Duration| {
        let mut held = lease(ttl);
        change(&mut held);
        held.renews_plainly(BEGAN, asked)
    };
    assert!(plainly(|_| {}, ttl));
    for other in [ms(999), ms(1_001)] {
        assert!(!plainly(|_| {}, other), "of another length");
    }
    assert!(!plainly(|held| held.until = held.until + us(1), ttl), "it would be shortened");
    assert!(!plainly(|held| held.renewed_by = RenewedBy::Script, ttl));
    assert!(!plainly(|held| held.renewed_by = RenewedBy::ScriptAfterLoss, ttl));
    assert!(!plainly(|held| held.origin = Origin::MadeToken, ttl), "others may know its value");
    assert!(!plainly(|held| held.mode = Mode::SHARED, ttl));
    assert!(!plainly(|held| held.pending_renewal = Some(PendingRenewal::Extension), ttl));
}

#[test]
fn an_extension_ends_the_plain_renewals() {
    for (before, after) in [
        (RenewedBy::Command, RenewedBy::Script),
        (RenewedBy::Script, RenewedBy::Script),
        (RenewedBy::ScriptAfterLoss, RenewedBy::ScriptAfterLoss),
    ] {
        let mut held = lease(ms(1_000));
        held.renewed_by = before;
        held.extended();
        assert_eq!(held.renewed_by, after);
    }
}

#[test]
fn an_answer_is_of_this_grant_by_its_fence_or_because_no_message_can_have_granted_it() {
    let mut held = lease(ms(1_000));
    let granted = |fence| Reply::Granted { fence };
    assert!(held.is_of_this_grant(None, &granted(7)) && !held.is_of_this_grant(None, &granted(8)));
    let owner = Reply::Owner(true);
    assert!(held.is_of_this_grant(Some(Script::Extend), &owner));
    assert!(!held.is_of_this_grant(Some(Script::Claim), &owner));
    assert!(held.is_of_this_grant(Some(Script::Claim), &Reply::Owner(false)), "it denies any");
    held.origin = Origin::LoneShare;
    assert!(held.is_of_this_grant(None, &granted(8)), "the set has a later fence");
}

#[test]
fn a_hold_has_the_terms_of_its_caller() {
    let mut held = lease(ms(1_000));
    let terms = HoldTerms {
        renew: false,
        leave_to_expire: true,
        max_hold: Some(ms(500)),
        stall_timeout: ms(70),
        linger: Duration::ZERO,
    };
    held.begin_hold(BEGAN, terms);
    assert_eq!((held.renew, held.leave_to_expire, held.stall_timeout_ms), (false, true, 70));
    assert_eq!(held.kept_until, valid_until(BEGAN, ms(500)));
    let endless = HoldTerms { max_hold: None, stall_timeout: Duration::MAX, ..terms };
    held.begin_hold(BEGAN, endless);
    assert_eq!((held.kept_until, held.stall_timeout_ms), (Mono::NEVER, u32::MAX));
}

#[test]
fn the_end_of_a_lease_has_its_reason() {
    let reason = |change: fn(&mut Lease)| {
        let mut held = lease(ms(1_000));
        change(&mut held);
        leases(held).end(TokenId(1)).map(|loss| loss.reason)
    };
    assert_eq!(reason(|_| {}), Some(LossReason::Expired));
    assert_eq!(reason(|held| held.stalled = true), Some(LossReason::Stalled));
    let left = |held: &mut Lease| (held.leave_to_expire, held.renew) = (true, false);
    assert_eq!(reason(left), Some(LossReason::Ended));
    assert_eq!(reason(|held| held.leave_to_expire = true), Some(LossReason::Expired), "renewed");
    assert_eq!(reason(|held| held.renew = false), Some(LossReason::Expired), "not left");
    let pending = |held: &mut Lease| {
        (held.leave_to_expire, held.renew) = (true, false);
        held.pending_renewal = Some(PendingRenewal::Claim);
    };
    assert_eq!(reason(pending), Some(LossReason::Expired), "it was too short");
    assert!(leases(lease(ms(1))).end(TokenId(2)).is_none());
}

#[test]
fn a_denial_has_the_reason_that_a_message_told() {
    let reason = |change: fn(&mut Lease)| {
        let mut held = lease(ms(1_000));
        change(&mut held);
        leases(held).denied(TokenId(1)).map(|loss| loss.reason)
    };
    assert_eq!(reason(|_| {}), Some(LossReason::Expired));
    let stolen = |held: &mut Lease| held.notice = Some(LossReason::Stolen);
    assert_eq!(reason(stolen), Some(LossReason::Stolen));
    assert_eq!(reason(|held| held.origin = Origin::Foreign), Some(LossReason::Ended));
}

#[test]
fn only_a_sign_of_life_since_the_ping_answers_it() {
    let mut leases = leases(lease(ms(1_000)));
    leases.pinged = Some(at(ms(10)));
    leases.felt_heartbeat(at(us(9_999)));
    assert_eq!(leases.pinged, Some(at(ms(10))));
    leases.felt_heartbeat(at(ms(10)));
    assert_eq!(leases.pinged, None);
}

#[test]
fn the_lease_that_is_nearest_its_end_of_those_that_need_the_server_decides_how_soon() {
    let (mut soon, mut idle, mut late) = (lease(ms(8_000)), lease(ms(8_000)), lease(ms(8_000)));
    soon.until = at(ms(2_000));
    (idle.until, idle.renew) = (at(ms(800)), false);
    late.until = at(ms(4_000));
    let mut leases = leases(late);
    assert_eq!(leases.pressure(BEGAN), Some(ms(500)));
    leases.by_token.insert(TokenId(2), idle);
    assert_eq!(leases.pressure(BEGAN), Some(ms(500)), "the other one gets no longer");
    leases.by_token.insert(TokenId(3), soon);
    assert_eq!(leases.pressure(BEGAN), Some(ms(250)));
    assert_eq!(leases.pressure_of(BEGAN, TokenId(1)), Some(ms(500)));
    assert_eq!(leases.pressure_of(BEGAN, TokenId(9)), None);
}

#[test]
fn a_hold_is_valid_until_the_first_of_its_ends_and_only_for_its_caller() {
    let mut held = lease(ms(1_000));
    held.kept_until = at(ms(400));
    let (first, leases) = (LeaseId::first(TokenId(1)), leases(held));
    assert!(leases.hold_of(first).is_some());
    assert!(leases.hold_of(first.next()).is_none(), "that is a later caller's");
}

/// Its slice is a sixteenth of it.
#[test]
fn a_short_lease_needs_its_server_a_sixteenth_ahead() {
    let held = lease(ms(150));
    assert!(!held.needs_server(at(us(40_624))) && held.needs_server(at(us(40_625))));
}

fn context() -> Context {
    let mut context = context_at(BEGAN);
    context.config.linger_max = 9;
    context
}

#[test]
fn a_hold_is_valid_until_it_ends() {
    let mut held = lease(ms(1_000));
    held.kept_until = at(ms(400));
    let (first, leases, mut context) = (LeaseId::first(TokenId(1)), leases(held), context());
    for (after, is_valid) in [(us(399_999), true), (us(400_000), false)] {
        context.now = at(after);
        assert_eq!(leases.valid(&context, first).is_some(), is_valid, "{after:?}");
    }
    context.now = BEGAN;
    assert!(leases.valid(&context, first.next()).is_none(), "that is a later caller's");
}

#[test]
fn a_lease_has_its_own_token_or_the_one_that_its_caller_gave() {
    for (origin, token) in [
        (Origin::Plain, "hf1.c.1.x"),
        (Origin::LoneShare, "hf1.c.1.x"),
        (Origin::ChosenToken, "x"),
        (Origin::MadeToken, "x"),
        (Origin::Foreign, "x"),
    ] {
        let mut held = lease(ms(1_000));
        (held.label, held.origin) = ("x".into(), origin);
        assert_eq!(Leases::token_of(&context(), &held).as_str(), token, "{origin:?}");
    }
}

#[test]
fn a_lease_is_made_longer_by_the_call_for_its_kind() {
    let script = |change: fn(&mut Lease)| {
        let mut held = lease(ms(1_000));
        change(&mut held);
        let call = Leases::extension(&context(), &held, ms(70));
        assert_eq!(call.ttl(), ms(70));
        call.script()
    };
    assert_eq!(script(|_| {}), Some(Script::Extend));
    assert_eq!(script(|held| held.mode = Mode::SHARED), Some(Script::ExtendShare));
    assert_eq!(script(|held| held.origin = Origin::Foreign), Some(Script::KeepForeign));
    let pending = |held: &mut Lease| held.pending_renewal = Some(PendingRenewal::Extension);
    assert_eq!(script(pending), Some(Script::Extend));
    let claim = |held: &mut Lease| held.pending_renewal = Some(PendingRenewal::Claim);
    assert_eq!(script(claim), Some(Script::Claim));
}

#[test]
fn a_hold_that_is_over_has_no_deadline_and_the_next_one_a_number() {
    let (mut leases, mut context) = (leases(lease(ms(1_000))), context());
    let first = LeaseId::first(TokenId(1));
    leases.end_hold(&mut context, TokenId(1));
    assert_eq!(context.effects, [Effect::SetDeadline { lease: first, until: None }]);
    assert!(leases.hold_of(first).is_none() && leases.hold_of(first.next()).is_some());
    leases.end_hold(&mut context, TokenId(2));
    assert_eq!(context.effects.len(), 1, "there is none");
}

#[test]
fn a_lock_idles_as_long_as_its_last_caller_wants_and_its_budget_lasts() {
    for (linger, ends) in [(ms(300), ms(300)), (ms(900), ms(500))] {
        let mut held = lease(ms(1_000));
        held.budget = HandoffBudget::new(BEGAN, ms(1_000), Mode::Exclusive, 16);
        let (mut leases, mut context) = (leases(held), context());
        leases.begin_idling(&mut context, TokenId(1), Some(ms(1)));
        assert!(!leases.is_idle(TokenId(1)), "its caller wants none");
        leases.idle.set(TokenId(1), linger);
        leases.begin_idling(&mut context, TokenId(1), Some(ms(1)));
        assert!(leases.is_idle(TokenId(1)) && !leases.is_idle(TokenId(2)));
        assert_eq!(leases.get(TokenId(1)).unwrap().kept_until, at(ends));
    }
}

#[test]
fn a_lock_is_handed_off_with_the_next_fence_or_the_first_of_a_new_block() {
    let terms = HoldTerms {
        renew: true,
        leave_to_expire: false,
        max_hold: None,
        stall_timeout: ms(70),
        linger: Duration::ZERO,
    };
    for (reserved, fence) in [(None, 8), (Some(90), 90)] {
        let mut held = lease(ms(1_000));
        held.budget = HandoffBudget::new(BEGAN, ms(1_000), Mode::Exclusive, 16);
        let (mut leases, mut context) = (leases(held), context());
        if let Some(first) = reserved {
            let mut reservation = Reservation::new(LeaseId::first(TokenId(1)), 16);
            reservation.renew(LeaseId::first(TokenId(1)), BEGAN, ms(1_000), first, None);
            leases.reservations.insert(TokenId(1), reservation);
        }
        let handed = leases.hand_off(&mut context, TokenId(1), ms(700), terms).unwrap();
        assert_eq!((handed.fence, handed.budget.left, handed.ttl()), (fence, 14, ms(700)));
        let until = Some(handed.held_until());
        let told = Effect::SetDeadline { lease: handed.id, until };
        assert!(context.effects.contains(&told));
        assert!(leases.hand_off(&mut context, TokenId(2), ms(700), terms).is_none());
    }
}

#[test]
fn without_a_budget_nothing_is_handed_off() {
    let none = HandoffBudget::none();
    assert_eq!((none.left, none.until()), (0, Mono::default()));
    assert!(none.is_spent(Mono::default()));
}
