//! Schedules that were written for one defect each, since a random one meets it too rarely.

use super::defects::{self, Change, Defect, script};
use super::{
    cluster, corners, fast_path, foreign, handoff, idling, messages, one_shots, order, owners,
    renewal, thefts, told, values, waiting,
};
use crate::protocol::script::Script;

/// The beginning of the script that renews other code's lease.
pub(super) const KEEPS_FOREIGN: &str = "if redis.call('GET', lock_key) ~= value then\n  return 0";

/// Each defect, and the schedule that finds it.
const WRITTEN: &[(&str, Change, fn())] = &[
    (
        "a message that a key has changed ends the lease of its lock",
        Change::Machine(Defect::ChangeBelieved),
        told::a_message_alone_ends_no_lease_and_one_is_not_the_last,
    ),
    (
        "a share that a token has already is dated by the request that finds it",
        Change::Machine(Defect::KnownShareDatedAnew),
        order::a_later_caller_gets_no_share_that_an_earlier_request_has_taken,
    ),
    (
        "a lock that is left to expire is forgotten with its lease",
        Change::Machine(Defect::EndedLeftForgotten),
        thefts::a_message_about_a_lock_that_was_left_to_expire_gives_nothing_back_after_its_lease,
    ),
    (
        "a claim is forgotten once it is denied",
        Change::Machine(Defect::DeniedClaimForgotten),
        thefts::a_victim_that_was_enqueued_again_ahead_of_the_message_leaves_the_queue,
    ),
    (
        "only the first message that a key has changed is heard",
        Change::Machine(Defect::ChangeHeardOnce),
        told::a_message_alone_ends_no_lease_and_one_is_not_the_last,
    ),
    (
        "the server is to track a key once, and not again with each renewal",
        Change::Machine(Defect::TrackedOnce),
        told::a_holder_is_told_of_its_deleted_lock_however_often_it_was_renewed,
    ),
    (
        "the server is to track a key ahead of the renewal, whose write ends that",
        Change::Machine(Defect::TrackedAhead),
        told::a_holder_is_told_of_its_deleted_lock_however_often_it_was_renewed,
    ),
    (
        "the next question about a young hold is taken for a step of the tracking",
        Change::Machine(Defect::RetryTakenForTracking),
        told::a_young_hold_is_asked_about_again_if_the_question_was_refused,
    ),
    (
        "the queue entry of a waiter whose late plain commands took the lock stays",
        script(
            "  if lock.last_seq then\n    -- Plain commands",
            "  if false then\n    -- Plain commands",
        ),
        fast_path::a_waiter_whose_late_plain_commands_took_the_lock_leaves_the_queue,
    ),
    (
        "a script confirms a lock that was taken ahead of waiters, and sets no flag for them",
        script("redis.call('SET', lock_key, token .. MARK, 'KEEPTTL')", "do end"),
        fast_path::a_lock_that_a_script_confirms_ahead_of_waiters_is_handed_to_them,
    ),
    (
        "other code's lease is renewed after its value has changed",
        script(KEEPS_FOREIGN, "if redis.call('EXISTS', lock_key) == 0 then\n  return 0"),
        foreign::a_value_that_has_changed_is_renewed_no_more,
    ),
    (
        "the lock of other code is set when it is gone",
        script(
            KEEPS_FOREIGN,
            "redis.call('SET', lock_key, value, 'NX', 'PX', ttl_ms)\nif redis.call('GET', lock_key) ~= value then\n  return 0",
        ),
        foreign::a_lock_that_is_gone_is_not_taken,
    ),
    (
        "the lock of other code is released",
        Change::Machine(Defect::ForeignReleased),
        foreign::the_lock_of_other_code_is_never_released,
    ),
    (
        "a lock of other code without an end gets one",
        script("if left_ms >= 0 and left_ms < ttl_ms", "if left_ms < ttl_ms"),
        foreign::a_lock_without_an_end_keeps_having_none,
    ),
    (
        "a plain renewal that was lost is forgotten",
        Change::Machine(Defect::LostRenewalForgotten),
        renewal::a_plain_renewal_that_was_lost_ends_no_lease_that_its_holder_counts_on,
    ),
    (
        "a plain renewal follows an extension under way",
        Change::Machine(Defect::PlainRenewalShortens),
        renewal::a_lease_whose_caller_extends_it_is_renewed_by_the_script,
    ),
    (
        "a plain renewal that finds a mark ends the lease",
        Change::Machine(Defect::PlainRenewalDenies),
        renewal::a_plain_renewal_of_a_lock_that_others_wait_for_decides_nothing,
    ),
    (
        "a lock is handed off that another history has not confirmed",
        Change::Machine(Defect::HandoffInAnotherHistory),
        handoff::a_lock_of_another_history_is_not_handed_off_while_the_server_refuses_to_answer,
    ),
    (
        "what is left of a lease is handed off to a caller whose lease is not renewed",
        Change::Machine(Defect::RestUnrenewed),
        handoff::a_lease_that_is_not_renewed_is_handed_off_only_as_a_whole,
    ),
    (
        "an idle lock is handed off that another history has not confirmed",
        Change::Machine(Defect::IdleInAnotherHistory),
        idling::an_idle_lock_of_another_history_is_not_handed_off_while_the_server_refuses_to_answer,
    ),
    (
        "an answer to a question from before a lock was taken counts for its hold",
        Change::Machine(Defect::IdleTakenForgotten),
        idling::a_lock_that_was_taken_during_a_question_is_asked_about_once_more,
    ),
    (
        "each time that a lock becomes idle counts as the first",
        Change::Machine(Defect::IdleAgainAndAgain),
        idling::who_is_in_no_queue_waits_for_linger_and_one_hold_at_most,
    ),
    (
        "the budget of a lock that lingers is renewed while another manager waits",
        script("return { fence, waiting }", "return { fence, 0 }"),
        idling::a_lock_that_is_waited_for_elsewhere_lingers_no_more,
    ),
    (
        "a process that has sent a request since is taken for silent",
        script(
            "and silent_ms and last_heard_ms(lock, token) <= silent_ms then",
            "and silent_ms then",
        ),
        waiting::an_entry_that_was_heard_of_since_an_unclaimed_grant_stays,
    ),
    (
        "a manager whose claim is late counts as silent",
        script(
            "if redis.call('HGET', waiters_key, 'unclaimed') == token then",
            "if value and redis.call('HGET', waiters_key, 'unclaimed') == token then",
        ),
        waiting::a_manager_whose_claim_is_late_keeps_its_other_turns,
    ),
    (
        "a manager whose claim of a share is late counts as silent",
        script(
            "if ends_ms then\n    redis.call('ZREM'",
            "if ends_ms and ends_ms > now_ms then\n    redis.call('ZREM'",
        ),
        waiting::a_manager_whose_claim_is_late_keeps_its_other_turns,
    ),
    (
        "a manager whose handoff of a share is late counts as silent",
        script(
            "redis.pcall('ZREM', shared_key, '?' .. token)\n  return 0\nend\n-- Others may have",
            "return 0\nend\n-- Others may have",
        ),
        waiting::a_manager_whose_handoff_is_late_keeps_its_other_turns,
    ),
    (
        "a manager that may not hand its share off counts as silent",
        script("redis.call('ZREM', shared_key, '?' .. token)\n  return 2", "return 2"),
        waiting::a_manager_whose_handoff_is_late_keeps_its_other_turns,
    ),
    (
        "a release ends the record of an unclaimed grant, unless a script has found the lock free",
        script(
            "if not failure and is_open(lock) and serve_queue(lock)",
            "if value then\n  lock.unclaimed = nil\nend\nif not failure and is_open(lock) and serve_queue(lock)",
        ),
        waiting::what_plain_commands_have_taken_since_is_no_sign_of_life,
    ),
    (
        "what was adopted under a chosen value is given back",
        Change::Machine(Defect::ChosenGivenBack),
        one_shots::a_take_over_by_the_same_token_that_is_unanswered_frees_nothing,
    ),
    (
        "a release of a chosen value is sent after its caller was told that it is not",
        Change::Machine(Defect::ChosenReleasedAgain),
        values::a_release_of_a_chosen_value_is_not_sent_after_its_caller_was_told_so,
    ),
    (
        "a grant that waits for replicas in vain is not asked for again",
        Change::Machine(Defect::NoPoll),
        cluster::a_grant_that_waits_for_replicas_in_vain_is_asked_for_where_its_slot_has_moved,
    ),
    (
        "a release of a chosen value is repeated",
        Change::Machine(Defect::ChosenReleasedAgain),
        values::a_release_of_a_chosen_value_without_an_answer_is_not_repeated,
    ),
    (
        "a release of a chosen value is sent when its lease has ended",
        Change::Machine(Defect::ChosenReleasedAgain),
        values::a_chosen_value_is_not_released_when_its_lease_has_ended,
    ),
    (
        "an adoption counts though the lock has ended that it was for",
        Change::Machine(Defect::ChosenAdoptedLate),
        values::an_adoption_that_is_repeated_after_the_end_of_its_lock_starts_no_hold,
    ),
    (
        "a claim that is executed after the downgrade of its lock ends the lease",
        Change::Machine(Defect::LateClaimDenies),
        one_shots::a_claim_that_is_executed_after_a_downgrade_loses_nothing,
    ),
    (
        "a waiter that was stopped is waited for as long as the queue has its entry",
        script("LIVENESS_MS, KEYS_MS = 6000", "LIVENESS_MS, KEYS_MS = 15000"),
        corners::a_waiter_that_has_died_delays_those_behind_it_by_six_seconds_at_most,
    ),
    (
        "no answer tells for how long the first waiter is waited for",
        script("lock.awaited_ms or -1", "-1"),
        corners::a_waiter_that_has_died_delays_those_behind_it_by_six_seconds_at_most,
    ),
    (
        "a release compares the owner, and not its hold",
        script(
            "local is_owned = value == token or",
            "local is_owned = token:find('.@', 1, true) and value\n  and value:match('%.@[^+]*') == token:match('%.@.*') or value == token or",
        ),
        owners::a_late_release_spares_the_later_hold_of_its_owner,
    ),
    (
        "what was taken over from the same owner is given back",
        Change::Machine(Defect::OwnersHoldReleased),
        owners::what_its_owner_had_before_is_not_given_back,
    ),
    (
        "an entry leaves the queue before it has taken over a hold of its owner",
        Change::Machine(Defect::OwnersPlaceGivenUp),
        owners::entries_of_one_owner_do_not_chase_each_other,
    ),
    (
        "a grant that waits for replicas counts though its entry takes another hold over",
        Change::Machine(Defect::ConfirmationOutlives),
        owners::a_take_over_ends_the_confirmation_of_the_grant_before,
    ),
    (
        "a manager does not ask about its other holds under a chosen value that it has released",
        Change::Machine(Defect::ChosenReleaseUntold),
        values::the_other_holder_of_a_released_value_learns_at_once_that_it_is_gone,
    ),
    (
        "a release does not wait until its entry can be moved back",
        Change::Machine(Defect::ReleaseAheadOfEntry),
        order::a_release_waits_until_its_entry_can_be_moved_back,
    ),
    (
        "it is not noticed that the server's clock was set back",
        Change::Machine(Defect::SetBackUnseen),
        messages::a_grant_from_before_the_clock_was_set_back_starts_no_hold,
    ),
    (
        "the position of a caller is forgotten when the grant ahead of it is stolen",
        Change::Machine(Defect::PositionForgotten),
        order::a_caller_behind_a_stolen_grant_has_the_position_of_its_call,
    ),
    (
        "who waits for room stays where it first did, though its lock has moved",
        Change::Machine(Defect::WaitingElsewhere),
        cluster::who_waits_for_room_waits_where_its_lock_has_moved,
    ),
    (
        "the lock is granted to a waiter that has left",
        script("listens[channel] = answer[2] ~= 0", "listens[channel] = true"),
        corners::any_number_of_dead_waiters_costs_one_claim_and_a_poll,
    ),
];

#[test]
fn each_defect_is_found_by_the_schedule_that_was_written_for_it() {
    defects::silence_expected_panics();
    let whole = Script::ALL.map(Script::source).concat();
    for (defect, change, schedule) in WRITTEN {
        if let Change::Script { right, .. } = change {
            assert!(whole.contains(right), "{defect}: no script contains {right:?}");
        }
        schedule();
        defects::set(Some(*change));
        let found = std::panic::catch_unwind(schedule).is_err();
        defects::set(None);
        assert!(found, "{defect} is not found");
    }
}
