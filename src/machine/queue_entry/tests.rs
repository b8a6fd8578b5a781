//! One entry by itself: its pauses, and what it makes of answers.

use super::{
    Again, Approach, Beneficiary, Entry, Pending, Position, QUEUE_SEEN_MAX, Step, TakeOver,
    is_foreign,
};
use crate::machine::context::Context;
use crate::machine::interface::Polling;
use crate::machine::server_data::ServerData;
use crate::machine::servers::Servers;
use crate::machine::tests::context_at;
use crate::machine::timers::{Owner, Timer};
use crate::protocol::{
    HeldBy, Intent, LockKeys, Mode, Mono, NodeId, QueuePosition, Refusal, ServerProbe, ServerTime,
    Take, Token, TokenId,
};
use std::time::Duration;

const ID: TokenId = TokenId(4);
const NOW: Mono = Mono::from_micros(1_000_000);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn context() -> Context {
    context_at(NOW)
}

fn in_quorum() -> Context {
    let mut context = context();
    context.config.quorum = true;
    context
}

fn labelled(intent: Intent, label: &str) -> Entry {
    let (keys, token) = (LockKeys::new("lock:", "a"), Token::new("c", 4, label));
    Entry::new(keys, token, ms(10_000), label.into(), Mode::Exclusive, Beneficiary::Queue, intent)
}

fn entry() -> Entry {
    labelled(Intent::Join(None), "")
}

fn held(holder: &str) -> HeldBy {
    HeldBy { holder: holder.to_owned(), owners: holder.into(), ..HeldBy::default() }
}

const fn queued(position: u32) -> QueuePosition {
    QueuePosition { position, seq: 70 }
}

fn refused(code: &str) -> Refusal {
    Refusal { code: code.to_owned(), detail: String::new() }
}

/// Checks that random pauses fill the range.
fn assert_between(mut pauses: Vec<Duration>, least_ms: u64, most_ms: u64) {
    pauses.sort_unstable();
    let (shortest, longest) = (pauses[0], pauses[pauses.len() - 1]);
    let part = ms(most_ms - least_ms) / 4;
    let is_filled = shortest <= ms(least_ms) + part && ms(most_ms) <= longest + part;
    let is_within = ms(least_ms) <= shortest && longest <= ms(most_ms);
    assert!(is_filled && is_within, "{shortest:?} to {longest:?} of {least_ms} to {most_ms}");
}

/// Checks the pauses of an entry that waits for a lock.
#[track_caller]
fn assert_polls(
    (context, entry): (&mut Context, &mut Entry),
    held: HeldBy,
    (denied, told): (bool, bool),
    (least_ms, most_ms): (u64, u64),
) {
    entry.pending = Pending::Held(Box::new(held));
    let pauses = (0..80).map(|_| entry.poll_pause(context, denied, told)).collect();
    assert_between(pauses, least_ms, most_ms);
}

#[test]
fn an_entry_polls_when_the_lock_may_be_free_and_to_stay_in_the_queue() {
    let (remaining, awaited) = (|left| Some(ms(left)), |left| Some(ms(left)));
    let behind = |position, held: HeldBy| HeldBy { queued: Some(queued(position)), ..held };
    let free_in = |left| HeldBy { remaining: remaining(left), ..held("hf1.b.1") };
    let given_up_in = |left| HeldBy { awaited: awaited(left), ..held("hf1.b.1") };
    for (ttl_ms, held, denied, range) in [
        (10_000, held("hf1.b.1"), false, (2_000, 3_000)),
        (1_000, held("hf1.b.1"), false, (1_000, 1_000)),
        (1_000, behind(2, held("hf1.b.1")), false, (1_000, 1_000)),
        (1_000, behind(3, held("hf1.b.1")), false, (2_000, 3_000)),
        (10_000, free_in(300), false, (305, 305)),
        (10_000, behind(1, free_in(300)), false, (305, 305)),
        (10_000, behind(2, free_in(300)), false, (350, 500)),
        (10_000, free_in(60_000), false, (2_000, 3_000)),
        (10_000, given_up_in(300), false, (305, 305)),
        (10_000, behind(3, given_up_in(300)), false, (350, 500)),
        (10_000, behind(3, held("hf1.b.1")), true, (100, 140)),
        (90, behind(9, held("hf1.b.1")), true, (30, 30)),
        (10_000, free_in(20), true, (25, 25)),
    ] {
        let (mut context, mut entry) = (context(), entry());
        entry.ttl = ms(ttl_ms);
        assert_polls((&mut context, &mut entry), held, (denied, false), range);
    }
}

#[test]
fn an_entry_without_an_answer_polls_to_stay_in_the_queue() {
    for context in [&mut context(), &mut in_quorum()] {
        let entry = entry();
        let pauses = (0..80).map(|_| entry.poll_pause(context, true, false)).collect();
        assert_between(pauses, 2_000, 3_000);
    }
}

#[test]
fn an_entry_for_a_lock_of_other_code_polls_often_unless_the_server_tells() {
    let left = |left_ms| HeldBy { remaining: Some(ms(left_ms)), ..held("theirs") };
    for (held, told, range) in [
        (held("theirs"), false, (100, 140)),
        (left(5), false, (100, 140)),
        (held("theirs"), true, (1_000, 1_400)),
        (left(300), true, (305, 305)),
        (left(60_000), true, (1_000, 1_400)),
    ] {
        let (mut context, mut entry) = (context(), entry());
        assert_polls((&mut context, &mut entry), held, (false, told), range);
    }
}

#[test]
fn an_entry_of_an_owner_polls_more_often() {
    let mut entry = labelled(Intent::Join(None), "@o");
    assert_polls((&mut context(), &mut entry), held("hf1.b.1"), (false, false), (400, 600));
    let soon = HeldBy { remaining: Some(ms(100)), ..held("hf1.b.1") };
    assert_polls((&mut context(), &mut entry), soon, (false, false), (105, 105));
}

#[test]
fn a_caller_that_polls_as_old_code_does_has_its_own_pause() {
    let mut context = context();
    context.config.polling = Some(Polling { least: ms(30), most: ms(90) });
    let mut polls = labelled(Intent::Try, "");
    assert_polls((&mut context, &mut polls), held("hf1.b.1"), (false, false), (30, 90));
    assert_polls((&mut context, &mut polls), held("theirs"), (false, true), (30, 90));
    assert_polls((&mut context, &mut entry()), held("hf1.b.1"), (false, false), (2_000, 3_000));
}

#[test]
fn a_quorum_is_asked_again_after_pauses_that_grow() {
    for (misses, holder, denied, range) in [
        (0, "hf1.b.1", false, (0, 10)),
        (0, "theirs", true, (0, 10)),
        (1, "hf1.b.1", false, (10, 40)),
        (2, "hf1.b.1", false, (20, 80)),
        (5, "hf1.b.1", false, (160, 640)),
        (6, "hf1.b.1", false, (160, 640)),
        (1, "theirs", false, (10, 40)),
        (2, "theirs", false, (20, 80)),
        (3, "theirs", false, (20, 80)),
        (3, "", false, (20, 80)),
        (3, "hf1.b.1", true, (20, 80)),
    ] {
        let (mut context, mut entry) = (in_quorum(), entry());
        entry.misses = misses;
        assert_polls((&mut context, &mut entry), held(holder), (denied, false), range);
    }
    let (mut context, mut entry) = (in_quorum(), entry());
    entry.misses = 9;
    let soon = HeldBy { remaining: Some(ms(20)), ..held("hf1.b.1") };
    assert_polls((&mut context, &mut entry), soon, (false, false), (20, 30));
}

#[test]
fn only_a_value_without_our_prefix_is_other_codes() {
    for (value, foreign) in
        [("", false), ("hf1.", false), ("hf1", true), ("x", true), ("a1.", true)]
    {
        assert_eq!(is_foreign(value), foreign, "{value}");
    }
}

/// What an entry does next, after so much was held.
fn next(entry: &mut Entry, held: HeldBy, quorum: bool) -> Step {
    entry.held(Box::new(held), quorum)
}

#[test]
fn an_entry_knows_its_position_by_each_answer() {
    let mut entry = entry();
    let poll = |step| matches!(step, Step::Known(Again::Poll));
    assert!(poll(next(&mut entry, held("hf1.b.1"), false)), "it has asked for none");
    assert!(matches!(entry.position, Position::Unknown) && !entry.is_queued());
    let placed = HeldBy { queued: Some(queued(3)), ..held("hf1.b.1") };
    assert!(poll(next(&mut entry, placed, false)));
    assert!(matches!(entry.position, Position::Queued(70)) && entry.is_queued());
    let step = next(&mut entry, held("hf1.b.1"), false);
    assert!(matches!(step, Step::Known(Again::Now)), "the server has lost it");
    assert!(matches!(entry.position, Position::Lost(70)) && !entry.is_queued());
    entry.move_back(NOW, 90);
    assert!(matches!(entry.position, Position::MovingBack(90)) && entry.is_queued());
    let step = next(&mut entry, held("hf1.b.1"), false);
    assert!(matches!((step, entry.position), (Step::Known(Again::Now), Position::Lost(90))));
}

#[test]
fn an_answer_that_came_after_a_hint_is_asked_for_again() {
    for (hinted, quorum, now) in
        [(true, false, true), (false, false, false), (true, true, false), (false, true, false)]
    {
        let mut entry = entry();
        (entry.hinted, entry.misses) = (hinted, 4);
        let step = next(&mut entry, held("hf1.b.1"), quorum);
        assert_eq!(matches!(step, Step::Known(Again::Now)), now, "{hinted}, {quorum}");
        assert_eq!(entry.misses, if hinted { 0 } else { 5 });
    }
}

#[test]
fn a_caller_that_polls_joins_the_queue_once_others_use_it_three_times_in_a_row() {
    let mut entry = labelled(Intent::Try, "");
    let busy = || HeldBy { queueing: true, ..held("hf1.b.1") };
    for _ in 1..QUEUE_SEEN_MAX {
        next(&mut entry, busy(), false);
        assert!(!entry.should_join());
    }
    next(&mut entry, held("hf1.b.1"), false);
    for seen in 1..=QUEUE_SEEN_MAX {
        next(&mut entry, busy(), false);
        assert_eq!(entry.should_join(), seen == QUEUE_SEEN_MAX);
    }
    for _ in 0..300 {
        next(&mut entry, busy(), false);
    }
    assert!(entry.should_join(), "however often");
}

#[test]
fn a_thief_asks_who_owns_the_lock_and_steals_from_these_once() {
    let mut thief = labelled(Intent::Poll, "");
    assert!(thief.steals() && !entry().steals() && !labelled(Intent::Try, "").steals());
    assert!(matches!(next(&mut thief, held("hf1.b.1"), false), Step::Send));
    assert_eq!(thief.intent, Intent::Steal("hf1.b.1".into()));
    let again = next(&mut thief, held("hf1.b.1"), false);
    assert!(matches!(again, Step::Known(_)), "they have not changed");
    assert!(matches!(next(&mut thief, held("hf1.d.1"), false), Step::Send));
    assert_eq!(thief.intent, Intent::Steal("hf1.d.1".into()));
    thief.uncertain = true;
    assert!(matches!(next(&mut thief, held("hf1.e.1"), false), Step::Known(_)));
    assert_eq!(thief.intent, Intent::Steal("hf1.d.1".into()), "it may have had the lock");
    assert!(thief.steals());
}

#[test]
fn the_replacement_of_an_entry_has_its_place_and_steals_no_more() {
    let (mut old, token) = (labelled(Intent::Try, "x"), Token::new("c", 5, "x"));
    (old.block, old.position, old.ttl) = (9, Position::Queued(7), ms(70));
    let new = old.replacement(token.clone());
    assert_eq!((new.block, new.ttl, &*new.label, &new.token), (9, ms(70), "x", &token));
    assert_eq!((&new.intent, new.mode, new.beneficiary), (&old.intent, old.mode, old.beneficiary));
    assert!(matches!(new.position, Position::Lost(7)) && !new.uncertain);
    assert!(labelled(Intent::Poll, "").replacement(token).uncertain);
}

#[test]
fn an_entry_is_ahead_of_later_callers() {
    let (mut entry, later) = (entry(), NOW + ms(1));
    assert!(!entry.came_before(NOW), "nobody's position");
    entry.take_position(NOW, None);
    assert!(matches!(entry.position, Position::Unknown));
    assert!(entry.came_before(later) && !entry.came_before(NOW));
    assert!(!entry.is_ahead_of(later, 71), "it is in no queue");
    entry.take_position(NOW, Some(8));
    assert!(matches!(entry.position, Position::Lost(8)));
    entry.position = Position::Queued(70);
    assert!(entry.is_ahead_of(later, 71));
    assert!(!entry.is_ahead_of(later, 70) && !entry.is_ahead_of(NOW, 71));
    entry.position = Position::MovingBack(70);
    assert!(!entry.is_ahead_of(later, 71), "it moves");
}

#[test]
fn the_next_request_of_an_entry_keeps_or_takes_its_place() {
    let (context, mut servers) = (context(), Servers::new("inbox".into()));
    let mut entry = entry();
    let intent = |entry: &Entry, servers: &Servers| entry.next_intent(&context, servers);
    for (position, next) in [
        (Position::Unknown, Intent::Join(None)),
        (Position::Queued(7), Intent::Poll),
        (Position::MovingBack(7), Intent::Join(Some(7))),
        (Position::Lost(7), Intent::Join(Some(7))),
    ] {
        entry.position = position;
        assert_eq!(intent(&entry, &servers), next);
        assert_eq!(
            intent(&Entry { intent: Intent::Try, ..labelled(Intent::Try, "") }, &servers),
            Intent::Try
        );
    }
    let (now, time) = (context.now, ServerTime::from_micros(9_000_000));
    servers.at(NodeId(0)).data.compare_clocks(now, now, time);
    (entry.position, entry.was_delayed) = (Position::Unknown, true);
    entry.since = context.now;
    assert_eq!(intent(&entry, &servers), Intent::Join(None), "it has just come");
    entry.since = Mono::from_micros(context.now.as_micros() - 5);
    assert_eq!(intent(&entry, &servers), Intent::Join(Some(8_999_995)), "where it would be");
    entry.was_delayed = false;
    assert_eq!(intent(&entry, &servers), Intent::Join(None));
}

#[test]
fn an_entry_is_refused_for_good_unless_the_server_may_change_its_mind() {
    for (code, is_queued, soon) in [
        ("LOADING", false, true),
        ("OOM", false, false),
        ("OOM", true, true),
        ("NOPERM", false, false),
        ("NOPERM", true, false),
    ] {
        let mut entry = entry();
        entry.position = if is_queued { Position::Queued(7) } else { Position::Lost(7) };
        let step = entry.refused(refused(code));
        assert_eq!(matches!(step, Step::Known(Again::Soon)), soon, "{code}");
        assert_eq!(matches!(step, Step::Refused), !soon, "{code}");
        assert!(matches!(entry.pending, Pending::Refused(refusal) if refusal.code == code));
    }
}

#[test]
fn a_grant_that_has_ended_may_be_given_back() {
    let mut entry = entry();
    assert!(matches!(entry.too_late(), Step::Known(Again::Soon)));
    assert!(entry.uncertain && matches!(entry.pending, Pending::Late));
}

#[test]
fn a_grant_counts_from_its_request_for_as_long_as_its_lease() {
    let (mut entry, data, sent) = (entry(), ServerData::default(), Mono::from_micros(5));
    (entry.ttl, entry.unowned) = (ms(1_000), Mono::from_micros(3));
    let end = sent + ms(988);
    let before = Mono::from_micros(end.as_micros() - 1);
    for fast_path in [false, true] {
        let Step::Granted(granted) = entry.granted(before, &data, sent, 7, fast_path) else {
            panic!("not granted")
        };
        assert_eq!((granted.fence, granted.until, granted.since), (7, end, sent));
        assert_eq!((granted.issued_after, granted.fast_path), (entry.unowned, fast_path));
        assert!(granted.pending_renewal.is_none());
    }
    assert!(matches!(entry.granted(end, &data, sent, 7, false), Step::Known(Again::Soon)));
}

#[test]
fn a_fence_of_an_earlier_history_is_given_back_or_asked_for_again() {
    let (mut entry, mut data) = (entry(), ServerData::default());
    let (replication_id, time) = (Some("one".to_owned()), ServerTime::from_micros(80));
    data.learn(ServerProbe { replication_id, time, uptime: None });
    let grant = |entry: &mut Entry, fence| entry.granted(NOW, &data, NOW, fence, false);
    assert!(matches!(grant(&mut entry, 80), Step::Granted(_)));
    assert!(matches!(grant(&mut entry, 79), Step::Discard));
    let (former, token) = (Token::new("d", 1, ""), Token::new("c", 9, ""));
    entry.takes_over = Some(Box::new(TakeOver { former, id: ID, token, uncertain: false }));
    assert!(matches!(grant(&mut entry, 79), Step::Send), "what it takes over stays");
}

#[test]
fn the_answer_of_plain_commands_is_completed_by_the_script() {
    let mut data = ServerData::default();
    data.epoch = ServerTime::from_micros(100);
    let answer = |take| {
        let mut entry = entry();
        (entry.block, entry.approach) = (4, Approach::FastPath);
        (entry.take_answered(NOW, &data, NOW, take), entry.approach)
    };
    let (step, approach) = answer(Take::Taken { last: 104 });
    assert!(matches!(step, Step::Granted(granted) if granted.fence == 101 && granted.fast_path));
    assert_eq!(approach, Approach::FastPath);
    for (take, then) in [
        (Take::Taken { last: 103 }, Approach::Completion),
        (Take::Unfenced, Approach::Completion),
        (Take::Held, Approach::FastPath),
        (Take::Unseen, Approach::FastPath),
    ] {
        let (step, approach) = answer(take);
        assert!(matches!(step, Step::Send), "{take:?}");
        assert_eq!(approach, then, "{take:?}");
    }
    assert!(matches!(answer(Take::Overtaken).0, Step::Discard));
}

#[test]
fn a_holder_of_the_same_owner_is_known_by_its_label() {
    let owned = labelled(Intent::Join(None), "@o");
    assert_eq!(owned.hold_of_owner(&held("hf1.d.3.@o")), Some(Token::from_text("hf1.d.3.@o")));
    for holder in ["hf1.d.3.@p", "hf1.d.3", "", "@o"] {
        assert_eq!(owned.hold_of_owner(&held(holder)), None, "{holder}");
    }
    let labelled = labelled(Intent::Join(None), "o");
    assert_eq!(labelled.hold_of_owner(&held("hf1.d.3.o")), None, "a label is no owner");
}

#[test]
fn an_entry_knows_the_hold_of_its_process_that_it_waits_for() {
    let shared = |sharer: &str| HeldBy { sharer: sharer.to_owned(), ..held("hf1.shared") };
    let behind = |intent, mode, held: Option<HeldBy>| {
        let mut entry = Entry { mode, ..labelled(intent, "") };
        if let Some(held) = held {
            entry.pending = Pending::Held(Box::new(held));
        }
        entry.behind("c")
    };
    let (join, whole, share) = (|| Intent::Join(None), Mode::Exclusive, Mode::SHARED);
    let own = Some(TokenId(9));
    assert_eq!(behind(join(), whole, None), None);
    assert_eq!(behind(join(), whole, Some(held("hf1.c.9"))), own);
    assert_eq!(behind(join(), share, Some(held("hf1.c.9"))), own);
    assert_eq!(behind(join(), whole, Some(held("hf1.d.9"))), None);
    assert_eq!(behind(join(), whole, Some(shared("hf1.c.9"))), own);
    assert_eq!(behind(join(), share, Some(shared("hf1.c.9"))), None, "beside that");
    assert_eq!(behind(Intent::Poll, whole, Some(held("hf1.c.9"))), None, "a message tells");
}

#[test]
fn who_waits_in_the_queue_for_other_code_can_be_told() {
    let waits = |context: &Context, intent, holder| {
        let mut entry = labelled(intent, "");
        entry.pending = Pending::Held(Box::new(held(holder)));
        entry.waits_for_other_code(context)
    };
    let (alone, quorum) = (context(), in_quorum());
    assert!(waits(&alone, Intent::Join(None), "theirs"));
    assert!(!waits(&quorum, Intent::Join(None), "theirs"));
    assert!(!waits(&alone, Intent::Try, "theirs") && !waits(&alone, Intent::Join(None), "hf1.b.1"));
    assert!(!waits(&alone, Intent::Join(None), "") && !entry().waits_for_other_code(&alone));
}

#[test]
fn a_lock_that_may_be_free_is_asked_for_soon_and_not_later_than_planned() {
    let (mut context, servers) = (in_quorum(), Servers::new("inbox".into()));
    let timer = Timer::retry(Owner::Entry(ID));
    for (planned, is_kept) in [(None, false), (Some(ms(0)), true), (Some(ms(50)), false)] {
        let mut entry = entry();
        entry.misses = 3;
        context.timers.clear_all();
        if let Some(planned) = planned {
            context.timers.set(timer, NOW + planned);
        }
        entry.ask_soon(&mut context, &servers, ID);
        let at = context.timers.at(timer).unwrap();
        assert_eq!(planned.map(|planned| NOW + planned) == Some(at), is_kept);
        assert!(at < NOW + ms(10) && entry.misses == 0 && !entry.hinted);
    }
}

#[test]
fn an_entry_that_waits_for_a_release_of_its_process_polls_as_after_one_miss() {
    let (mut context, servers) = (in_quorum(), Servers::new("inbox".into()));
    let mut entry = entry();
    entry.misses = 5;
    entry.pending = Pending::Held(Box::new(held("hf1.b.1")));
    entry.wait_for_release(&mut context, &servers, ID);
    let at = context.timers.at(Timer::retry(Owner::Entry(ID))).unwrap();
    assert!(entry.misses == 1 && (ms(10)..ms(40)).contains(&at.since(NOW)), "{at:?}");
}

#[test]
fn an_entry_without_room_waits_at_its_rank_and_remembers_that_it_was_late() {
    let (mut context, mut servers) = (context(), Servers::new("inbox".into()));
    let mut entry = entry();
    servers.at(NodeId(0)).connection.limit(0, 0);
    assert!(!entry.waits(&mut servers, ID), "it is asked once it is connected");
    assert!(!entry.was_delayed);
    servers.at(NodeId(0)).connection.connected(&mut context, NodeId(0));
    servers.at(NodeId(0)).connection.limit(0, 0);
    for position in [Position::Queued(7), Position::Lost(7)] {
        entry.position = position;
        assert!(entry.waits(&mut servers, ID) && !entry.was_delayed);
    }
    entry.position = Position::Unknown;
    assert!(entry.waits(&mut servers, ID) && entry.was_delayed);
}
