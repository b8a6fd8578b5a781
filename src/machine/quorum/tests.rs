//! Parts of a quorum, each by itself: how ballots are counted, and which servers have a vote.

use super::ballot::{Ballot, Ballots, Grantee, Question, Vote, majority};
use super::candidacy::{Candidacies, NodeRequest, Reach, without_attempt};
use super::servers::{Servers, node_id};
use super::withdrawal::Withdrawals;
use crate::machine::context::Context;
use crate::machine::interface::{Effect, Event, Notice};
use crate::machine::release::REPEAT_AFTER;
use crate::machine::tests::context_at;
use crate::machine::timers::Timer;
use crate::protocol::quorum::Settings;
use crate::protocol::{
    COUNTER_AHEAD_MAX, Call, Denied, FENCE_MAX, Failure, HeldBy, LockKeys, Mono, NodeId, Refusal,
    Reply, RequestId, ServerProbe, ServerTime, Token,
};
use std::time::Duration;

const NOW: Mono = Mono::from_micros(100_000_000);
const ID: RequestId = RequestId(5);
const YES: Vote = Vote::Yes;
const NO: Vote = Vote::No(None);
const OPEN: Vote = Vote::Awaited;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn failed() -> Vote {
    Vote::Failed("away".to_owned())
}

fn context() -> Context {
    let mut context = context_at(NOW);
    context.config.quorum = true;
    context.config.command_timeout = ms(1_000);
    context
}

fn servers(count: usize, longest_lease: Option<Duration>) -> Servers {
    let names = ["one", "two", "three", "four", "five"];
    let servers = names.iter().take(count).map(|name| (*name).to_owned()).collect();
    Servers::new(Settings { servers, node_timeout: ms(100), longest_lease })
}

fn connect_at(
    servers: &mut Servers,
    context: &mut Context,
    node: usize,
    time_us: u64,
    uptime: Option<Duration>,
) {
    let time = ServerTime::from_micros(time_us);
    let probe = ServerProbe { replication_id: None, time, uptime };
    servers.connected(context, node, probe, Vec::new(), &Denied::default());
}

fn connect(servers: &mut Servers, context: &mut Context, node: usize) {
    connect_at(servers, context, node, 1_000, None);
}

const fn extend() -> Question {
    Question::Extend { ttl: ms(1_000) }
}

fn lock() -> Question {
    let (proposed, refused) = ((0, 0), None);
    Question::Lock(Grantee { block: 1, waits: false, proposed, written: 0, least: 0, refused })
}

fn ballot(question: Question, votes: &[Vote]) -> Ballot {
    let (owner, keys) = (Token::new("c", 1, ""), LockKeys::new("lock:", "a"));
    let (votes, deadline) = (votes.to_vec(), NOW + ms(50));
    Ballot { request: ID, owner, keys, question, votes, deadline }
}

/// Whether a ballot is won; none if it is not decided.
fn outcome(question: &Question, votes: &[Vote]) -> Option<bool> {
    let (mut context, mut ballots) = (context(), Ballots::default());
    ballots.begin(&mut context, ballot(question.clone(), votes));
    assert_eq!(context.timers.at(Timer::Ballot(ID)), Some(NOW + ms(50)));
    let decided = ballots.decide(&mut context, ID).map(|(_, is_won)| is_won);
    assert_eq!(ballots.is_empty(), decided.is_some());
    assert_eq!(context.timers.is_empty(), decided.is_some());
    decided
}

#[test]
fn a_majority_is_more_than_half() {
    assert_eq!([1, 2, 3, 4, 5].map(majority), [1, 2, 2, 3, 3]);
}

#[test]
fn an_election_is_decided_once_its_majority_is_certain_or_out_of_reach() {
    let grantee = || match lock() {
        Question::Lock(grantee) => grantee,
        other => panic!("{other:?}"),
    };
    for question in [lock(), Question::WriteFence { grantee: grantee(), first: 7, last: 7 }] {
        for (votes, decided) in [
            (&[OPEN, OPEN, OPEN][..], None),
            (&[YES, OPEN, OPEN], None),
            (&[YES, YES, OPEN], Some(true)),
            (&[NO, YES, OPEN], None),
            (&[NO, failed(), OPEN], Some(false)),
            (&[NO, NO, OPEN], Some(false)),
            (&[YES, YES, NO, OPEN], None),
            (&[YES, YES, NO, NO], Some(false)),
            (&[YES, OPEN, NO, NO], Some(false)),
        ] {
            assert_eq!(outcome(&question, votes), decided, "{votes:?}");
        }
    }
}

#[test]
fn an_extension_waits_for_the_votes_that_may_deny_it() {
    for (votes, decided) in [
        (&[YES, YES, OPEN][..], Some(true)),
        (&[NO, NO, OPEN], Some(false)),
        (&[NO, failed(), OPEN], None),
        (&[failed(), failed(), OPEN], Some(false)),
        (&[NO, YES, OPEN], None),
        (&[NO, YES, failed()], Some(false)),
        (&[YES, YES, NO, NO], Some(false)),
        (&[YES, failed(), failed(), OPEN, OPEN], None),
    ] {
        assert_eq!(outcome(&extend(), votes), decided, "{votes:?}");
    }
}

#[test]
fn a_release_is_decided_by_a_majority_of_answers() {
    for (votes, in_time, late) in [
        (&[YES, YES, OPEN][..], Some(true), Some(true)),
        (&[YES, NO, OPEN], None, Some(true)),
        (&[YES, OPEN, OPEN], None, None),
        (&[NO, NO, OPEN], Some(false), Some(false)),
        (&[YES, NO, failed()], Some(true), Some(true)),
        (&[YES, failed(), failed()], Some(false), Some(false)),
        (&[failed(), failed(), failed()], Some(false), Some(false)),
        (&[YES, failed(), OPEN], None, None),
        (&[YES, YES, NO, NO], Some(false), Some(false)),
    ] {
        let release = |overdue| Question::Withdraw { overdue };
        let decided = [false, true].map(|overdue| outcome(&release(overdue), votes));
        assert_eq!(decided, [in_time, late], "{votes:?}");
    }
}

#[test]
fn a_ballot_is_denied_or_out_of_reach_once_no_majority_is_left() {
    let of = |votes: &[Vote]| {
        let ballot = ballot(lock(), votes);
        (ballot.is_denied(), ballot.is_out_of_reach())
    };
    assert_eq!(of(&[NO, OPEN, failed()]), (false, false));
    assert_eq!(of(&[NO, NO, OPEN]), (true, false));
    assert_eq!(of(&[failed(), failed(), OPEN]), (false, true));
    assert_eq!(of(&[NO, NO, failed(), failed()]), (true, true), "two of four");
    assert_eq!(of(&[NO, failed(), OPEN, OPEN]), (false, false));
}

#[test]
fn the_causes_are_those_of_the_servers_that_failed() {
    let ballot = ballot(lock(), &[failed(), NO, Vote::Failed("late".to_owned())]);
    let causes = ["away", "", "late"].map(str::to_owned).to_vec();
    assert_eq!(ballot.failure(), Failure::NoQuorum(causes));
    assert_eq!(ballot.nodes(|vote| matches!(vote, Vote::Failed(_))), [0, 2]);
    assert_eq!(ballot.nodes(|vote| *vote == YES), [0; 0]);
}

#[test]
fn the_holder_is_who_has_the_lock_on_most_servers_and_for_longest() {
    let held = |holder: &str, left: u64| {
        let (holder, remaining) = (holder.to_owned(), Some(ms(left)));
        Vote::No(Some(HeldBy { remaining, holder, ..HeldBy::default() }))
    };
    let holder = |votes: &[Vote]| {
        let held = ballot(lock(), votes).holder();
        (held.holder, held.remaining)
    };
    let is = |name: &str, left| (name.to_owned(), Some(ms(left)));
    assert_eq!(holder(&[held("a", 9), held("b", 5), held("b", 7)]), is("b", 7));
    assert_eq!(holder(&[held("a", 9), held("b", 5), YES]), is("a", 9));
    assert_eq!(holder(&[YES, NO, failed()]), (String::new(), None));
}

#[test]
fn at_the_deadline_missing_votes_have_failed_except_for_a_release() {
    let (mut context, mut ballots) = (context(), Ballots::default());
    ballots.begin(&mut context, ballot(lock(), &[YES, OPEN, NO]));
    ballots.deadline(ID, ms(70));
    let votes = ballots.get_mut(Some(ID)).unwrap().votes.clone();
    assert_eq!(votes, [YES, Vote::Failed("no answer within 70 ms".to_owned()), NO]);
    assert!(ballots.get_mut(None).is_none() && ballots.get_mut(Some(RequestId(6))).is_none());

    let release = Question::Withdraw { overdue: false };
    ballots.begin(&mut context, ballot(release, &[YES, OPEN, NO]));
    ballots.deadline(ID, ms(70));
    let ballot = ballots.get_mut(Some(ID)).unwrap();
    assert!(matches!(ballot.question, Question::Withdraw { overdue: true }));
    assert_eq!(ballot.votes[1], OPEN, "its answer still counts");
    assert!(ballots.end(&mut context, ID).is_some() && ballots.end(&mut context, ID).is_none());
}

#[test]
fn permanent_refusals_are_counted_and_the_last_is_kept() {
    let mut ballot = ballot(lock(), &[OPEN, OPEN, OPEN]);
    let refuse = |ballot: &mut Ballot, code: &str| {
        ballot.note_refusal(&Refusal { code: code.to_owned(), detail: String::new() });
        let Question::Lock(grantee) = &ballot.question else { panic!("another") };
        grantee.refused.as_ref().map(|(count, refusal)| (*count, refusal.code.clone()))
    };
    assert_eq!(refuse(&mut ballot, "LOADING"), None);
    assert_eq!(refuse(&mut ballot, "NOPERM"), Some((1, "NOPERM".to_owned())));
    assert_eq!(refuse(&mut ballot, "OOM"), Some((2, "OOM".to_owned())));
    assert_eq!(refuse(&mut ballot, "BUSY"), Some((2, "OOM".to_owned())));
}

#[test]
fn the_attempt_is_taken_off_a_token_and_nothing_else() {
    for (value, without) in [
        ("hf1.c.7.3", "hf1.c.7"),
        ("hf1.c.7.label.12", "hf1.c.7.label"),
        ("hf1.c.7.label", "hf1.c.7.label"),
        ("hf1.c.7.", "hf1.c.7."),
        ("hf1.c.7.3a", "hf1.c.7.3a"),
        ("theirs.3", "theirs.3"),
        ("", ""),
    ] {
        assert_eq!(without_attempt(value), without, "{value}");
    }
}

#[test]
fn an_attempt_is_what_the_servers_that_are_asked_may_have() {
    let mut candidacies = Candidacies::default();
    let ballot = ballot(lock(), &[OPEN, failed(), OPEN]);
    let (candidacy, attempt) = candidacies.begin(&ballot);
    assert_eq!((attempt, candidacy.attempt, candidacy.election), (1, 1, ID));
    assert_eq!(candidacy.reached, [Reach::Asked, Reach::Not, Reach::Asked]);
    assert_eq!((candidacy.last_fence, candidacy.carried), (None, None));
    let extend = |keys, token| Call::Extend { keys, token, ttl: ms(9) };
    let asked = candidacy.request(Some(ID), extend);
    assert_eq!((asked.call.token().as_str(), asked.attempt), ("hf1.c.1.1", 1));
    assert_eq!((&asked.owner, asked.ballot), (&ballot.owner, Some(ID)));
    assert!(candidacies.of(&asked).is_some());
    assert_eq!(candidacies.begin(&ballot).1, 2);
    assert!(candidacies.of(&asked).is_none(), "that attempt was given up");
    assert!(candidacies.remove(&ballot.owner).is_some() && candidacies.is_empty());
}

#[test]
fn a_server_has_no_vote_until_its_longest_lease_is_over() {
    let (lease, margin) = (ms(5_000), ms(1_000));
    for (uptime, after, has_vote) in [
        (ms(6_000), ms(0), false),
        (ms(6_000), Duration::from_micros(1), true),
        (ms(6_001), ms(0), true),
        (ms(0), lease + margin, false),
        (ms(0), lease + margin + ms(1), true),
    ] {
        let (mut context, mut servers) = (context(), servers(3, Some(lease)));
        connect_at(&mut servers, &mut context, 0, 1_000, Some(uptime));
        context.now = context.now + after;
        let vote = servers.vote_in_election(&context, 0, ms(100));
        assert_eq!(vote == OPEN, has_vote, "{uptime:?}, {after:?}");
        let since = uptime + after;
        let why = format!(
            "it started {} ms ago and has no vote within 6000 ms of that",
            since.as_millis()
        );
        assert!(has_vote || vote == Vote::Failed(why));
    }
}

#[test]
fn a_longer_lease_that_is_taken_counts_from_then_on() {
    let mut context = context();
    for (longest, votes) in [(Some(ms(5_000)), [true, true, false, false]), (None, [true; 4])] {
        let mut servers = servers(3, longest);
        connect_at(&mut servers, &mut context, 0, 1_000, Some(ms(8_000)));
        for (ttl, has_vote) in [1_000, 6_999, 7_000, 1_000].into_iter().zip(votes) {
            servers.note_lease(ms(ttl));
            let vote = servers.vote_in_election(&context, 0, ms(100));
            assert_eq!((vote == OPEN, servers.vote_of(0)), (has_vote, OPEN), "{longest:?}, {ttl}");
        }
    }
}

#[test]
fn a_server_without_a_vote_tells_why() {
    let (mut context, mut servers) = (context(), servers(3, Some(ms(5_000))));
    let vote = |servers: &Servers, context: &Context, patience| {
        servers.vote_in_election(context, 0, ms(patience))
    };
    servers.connect_all(&mut context);
    assert_eq!(vote(&servers, &context, 100), Vote::Failed("not connected yet".to_owned()));
    connect(&mut servers, &mut context, 0);
    let unknown = "its uptime is not known: INFO is needed, or longestLease: 0";
    assert_eq!(vote(&servers, &context, 100), Vote::Failed(unknown.to_owned()));
    connect_at(&mut servers, &mut context, 0, 1_000, Some(ms(60_000)));
    assert_eq!(vote(&servers, &context, 0), OPEN, "nothing is asked");
    assert!(servers.send(&mut context, 0, request()));
    context.now = context.now + ms(30);
    assert_eq!(vote(&servers, &context, 30), OPEN);
    assert_eq!(vote(&servers, &context, 29), Vote::Failed("no answer for 30 ms".to_owned()));
    assert_eq!(servers.silence(&context, 0), ms(30));
    assert_eq!(servers.silence(&context, 1), ms(0));
}

fn request() -> NodeRequest {
    let (keys, token) = (LockKeys::new("lock:", "a"), Token::new("c", 1, ""));
    let call = Call::Extend { keys, token: token.clone(), ttl: ms(9) };
    NodeRequest { call, owner: token, attempt: 3, ballot: Some(ID) }
}

#[test]
fn a_request_is_sent_to_a_server_that_is_connected_and_its_answer_taken_once() {
    let (mut context, mut servers) = (context(), servers(3, None));
    assert!(!servers.send(&mut context, 1, request()));
    connect(&mut servers, &mut context, 1);
    context.effects.clear();
    assert!(servers.send(&mut context, 1, request()) && servers.send(&mut context, 1, request()));
    let sent = |effect: &Effect| match effect {
        Effect::Send { node, request, .. } => (*node, *request),
        other => panic!("{other:?}"),
    };
    let sent: Vec<_> = context.effects.iter().map(sent).collect();
    assert_eq!(sent, [(NodeId(1), RequestId(1)), (NodeId(1), RequestId(2))]);
    assert_eq!(context.stats.requests, 2);
    let yes = Ok(Reply::Owner(true));
    assert!(servers.take(&mut context, 1, RequestId(1), &yes).is_some());
    assert!(servers.take(&mut context, 1, RequestId(1), &yes).is_none());
    assert!(servers.take(&mut context, 0, RequestId(2), &yes).is_none());
}

#[test]
fn a_silent_server_is_known_after_the_patience_of_the_manager() {
    let (mut context, mut servers) = (context(), servers(3, None));
    (0..3).for_each(|node| connect(&mut servers, &mut context, node));
    context.timers.clear_all();
    assert_eq!((servers.silent_since(), servers.next_timeout(&mut context)), (None, None));
    servers.send(&mut context, 2, request());
    context.now = NOW + ms(10);
    servers.send(&mut context, 1, request());
    assert_eq!(servers.silent_since(), Some(NOW));
    assert_eq!(servers.next_timeout(&mut context), Some(NOW + ms(1_000)));
    context.timers.set(Timer::OpenDeadline, NOW + ms(999));
    assert_eq!(servers.next_timeout(&mut context), Some(NOW + ms(999)));
    let mut silent = |after_us| {
        context.now = NOW + Duration::from_micros(after_us);
        servers.silent(&context)
    };
    assert_eq!(silent(999_999).0, [0; 0]);
    assert_eq!(silent(1_000_000), (vec![2], "no answer within 1000 ms".to_owned()));
    assert_eq!(silent(1_010_000).0, [1, 2]);
}

#[test]
fn a_round_takes_a_little_of_the_lease_and_of_the_timeout_of_commands() {
    let (mut context, servers) = (context(), servers(3, None));
    assert_eq!(servers.patience(&context, ms(10_000)), ms(100));
    assert_eq!(servers.patience(&context, ms(900)), ms(90));
    context.config.command_timeout = ms(200);
    assert_eq!((servers.round_patience(&context), servers.node_timeout()), (ms(50), ms(100)));
}

/// The servers with these clocks, in µs.
fn with_clocks(context: &mut Context, clocks: &[Option<u64>]) -> Servers {
    let mut servers = servers(clocks.len(), None);
    for (node, clock) in clocks.iter().enumerate() {
        if let Some(clock) = clock {
            connect_at(&mut servers, context, node, *clock, None);
        }
    }
    servers
}

#[test]
fn a_fence_is_proposed_a_little_ahead_of_all_clocks_that_are_sound() {
    let year_us = u64::try_from(COUNTER_AHEAD_MAX.as_micros()).unwrap();
    let most = FENCE_MAX - 50_000;
    for (clocks, proposed) in [
        (&[None, None, None][..], None),
        (&[Some(5_000), None, None], Some(55_000)),
        (&[Some(5_000), Some(9_000), Some(7_000)], Some(59_000)),
        (&[Some(year_us), Some(0), Some(0)], Some(year_us + 50_000)),
        (&[Some(year_us + 5), Some(0), Some(4)], Some(50_004)),
        (&[Some(most), Some(most), Some(most)], Some(FENCE_MAX)),
        (&[Some(most + 1), Some(most), Some(most)], None),
    ] {
        let mut context = context();
        let servers = with_clocks(&mut context, clocks);
        assert_eq!(servers.proposal(&context), proposed, "{clocks:?}");
    }
    let mut context = context();
    let mut servers = with_clocks(&mut context, &[Some(5_000), None, None]);
    context.now = NOW + ms(3);
    assert_eq!(servers.proposal(&context), Some(58_000), "its clock runs");
    servers.note_clock(0, NOW + ms(2), ServerTime::from_micros(1_000));
    assert_eq!(servers.proposal(&context), Some(52_000), "it was read again");
}

#[test]
fn a_clock_is_ahead_that_half_of_the_known_ones_are_a_year_behind() {
    let year_us = u64::try_from(COUNTER_AHEAD_MAX.as_micros()).unwrap();
    let far = year_us + 11;
    for (clocks, ahead) in [
        (&[Some(far), Some(10), Some(10)][..], true),
        (&[Some(far), Some(11), Some(11)], false),
        (&[Some(far), Some(far), Some(10)], false),
        (&[Some(far), Some(10), None], true),
        (&[Some(far), Some(far), Some(10), Some(10)], true),
        (&[Some(far), Some(far), Some(far), Some(10), Some(10)], false),
        (&[None, Some(10), Some(10)], false),
        (&[Some(far), None, None], false),
    ] {
        let mut context = context();
        let servers = with_clocks(&mut context, clocks);
        assert_eq!(servers.is_clock_ahead(&context, 0), ahead, "{clocks:?}");
        assert!(!servers.is_clock_ahead(&context, clocks.len() - 1) || clocks[2] == Some(far));
    }
}

#[test]
fn most_servers_or_all_must_deny_a_right() {
    let mut context = context();
    let mut servers = with_clocks(&mut context, &[Some(1), Some(1), Some(1)]);
    assert!(!servers.pubsub_denied(0) && !servers.pubsub_denied(0), "one server");
    assert!(servers.pubsub_denied(2));
    assert_eq!([0, 1, 2].map(|node| servers.tracking_denied(node)), [false, false, true]);
}

#[test]
fn an_effect_is_for_the_servers_that_are_connected_or_tell() {
    let (mut context, mut servers) = (context(), servers(3, None));
    (0..2).for_each(|node| connect(&mut servers, &mut context, node));
    servers.tracking_denied(0);
    let mut nodes = |tell: bool| {
        context.effects.clear();
        let effect = |node| Effect::StopConnecting { node };
        if tell {
            servers.push_to_all_that_tell(&mut context, effect);
        } else {
            servers.push_to_all_up(&mut context, effect);
        }
        std::mem::take(&mut context.effects)
    };
    let stop = |node| Effect::StopConnecting { node: NodeId(node) };
    assert_eq!(nodes(false), [stop(0), stop(1)]);
    assert_eq!(nodes(true), [stop(1)]);
    let goodbyes: Vec<_> = servers.goodbyes().collect();
    let goodbye = |node| Effect::Disconnect { node: NodeId(node), abort: false };
    assert_eq!(goodbyes, [0, 1, 2].map(goodbye));
    assert_eq!((node_id(3), node_id(1 << 20)), (NodeId(3), NodeId(u16::MAX)));
}

#[test]
fn a_quorum_opens_with_all_servers_or_a_majority_after_a_moment() {
    let (mut context, mut servers) = (context(), servers(3, None));
    assert!(servers.opened(&mut context).is_none(), "nobody opens it");
    servers.connect_all(&mut context);
    connect(&mut servers, &mut context, 0);
    assert!(servers.opened(&mut context).is_none() && !servers.has_majority());
    assert_eq!(context.timers.at(Timer::OpenDeadline), None);
    connect(&mut servers, &mut context, 1);
    assert!(servers.opened(&mut context).is_none() && servers.has_majority());
    let deadline = Some(NOW + ms(100));
    assert_eq!(context.timers.at(Timer::OpenDeadline), deadline);
    context.now = NOW + ms(50);
    assert!(servers.opened(&mut context).is_none());
    assert_eq!(context.timers.at(Timer::OpenDeadline), deadline, "it stays");
    let lost = Failure::Lost("away".to_owned());
    servers.connect_failed(&mut context, 2, &lost, None);
    let opened = servers.opened(&mut context);
    assert!(matches!(opened, Some(Event::Connected { denied, .. }) if !denied.tracking));
    assert_eq!(context.timers.at(Timer::OpenDeadline), None);
    assert!(servers.opened(&mut context).is_none(), "once");
}

#[test]
fn a_quorum_does_not_open_once_too_many_servers_have_failed() {
    let (mut context, mut servers) = (context(), servers(3, None));
    servers.connect_all(&mut context);
    let lost = Failure::Lost("away".to_owned());
    servers.connect_failed(&mut context, 0, &lost, None);
    assert!(servers.opened(&mut context).is_none());
    servers.connect_failed(&mut context, 2, &lost, None);
    let causes = ["not connected: away", "", "not connected: away"].map(str::to_owned).to_vec();
    let failed = Some(Event::ConnectFailed(Failure::NoQuorum(causes)));
    assert_eq!(format!("{:?}", servers.opened(&mut context)), format!("{failed:?}"));
    assert!(context.timers.is_empty());
}

#[test]
fn a_lost_connection_is_told_by_the_name_of_its_server() {
    let (mut context, mut servers) = (context(), servers(3, None));
    assert!(servers.disconnected(&mut context, 1, "cut", None).is_none(), "it is not connected");
    connect(&mut servers, &mut context, 1);
    servers.send(&mut context, 1, request());
    context.effects.clear();
    let in_flight = servers.disconnected(&mut context, 1, "cut", None).unwrap();
    assert_eq!(in_flight.len(), 1);
    let told = Effect::Notify(Notice::Disconnected("two: cut".to_owned()));
    let aborted = Effect::Disconnect { node: NodeId(1), abort: true };
    assert_eq!(context.effects[..2], [told, aborted]);
    context.effects.clear();
    connect(&mut servers, &mut context, 1);
    assert!(context.effects.contains(&Effect::Notify(Notice::Reconnected)));
}

#[test]
fn a_withdrawal_is_repeated_once_it_was_confirmed() {
    let (mut context, mut withdrawals) = (context(), Withdrawals::default());
    let timer = Timer::Withdrawal(NodeId(1), 3);
    withdrawals.add(1, request(), NOW + ms(9));
    assert_eq!(withdrawals.request(1, 3).unwrap().ballot, None, "no ballot counts it");
    assert!(withdrawals.request(0, 3).is_none() && withdrawals.request(1, 4).is_none());
    withdrawals.connected(&mut context, 0);
    assert!(context.timers.is_empty(), "another server");
    withdrawals.connected(&mut context, 1);
    assert_eq!(context.timers.at(timer), Some(NOW + ms(9)));
    context.now = NOW + ms(20);
    withdrawals.connected(&mut context, 1);
    assert_eq!(context.timers.at(timer), Some(context.now), "it is due");
    let now = context.now;
    withdrawals.answered(&mut context, 1, 3, now);
    let due = now + REPEAT_AFTER;
    assert_eq!((context.timers.at(timer), withdrawals.is_empty()), (Some(due), false));
    context.now = due;
    let early = Mono::from_micros(due.as_micros() - 1);
    withdrawals.answered(&mut context, 1, 3, early);
    assert_eq!((context.timers.at(timer), withdrawals.is_empty()), (Some(due), false));
    withdrawals.answered(&mut context, 1, 3, due);
    assert!(withdrawals.is_empty() && context.timers.is_empty());
    withdrawals.failed(&mut context, 1, &request());
    assert_eq!(context.timers.at(timer), Some(due + REPEAT_AFTER));
}
