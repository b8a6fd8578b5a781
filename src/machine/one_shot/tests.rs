//! One one-shot by itself: which call it makes, and what it makes of answers.

use super::{ACQUIRE_ALL_MAX, OneShot, Purpose, acquire_all};
use crate::machine::context::Context;
use crate::machine::interface::{Effect, HoldTerms, Outcome};
use crate::machine::request::{CallError, Finished};
use crate::machine::servers::Servers;
use crate::machine::tests::context_at;
use crate::machine::timers::Owner;
use crate::protocol::{
    Call, Label, LeaseId, LockKeys, Mode, Mono, NodeId, OpId, Refusal, Reply, ServerTime, Take,
    Token, TokenId,
};
use std::time::Duration;

const OP: OpId = OpId(5);
const TTL: Duration = Duration::from_secs(9);

fn context() -> Context {
    let mut context = context_at(Mono::from_micros(1_000_000));
    context.config.command_timeout = Duration::from_secs(1);
    context
}

/// The one server is connected.
fn servers(context: &mut Context) -> Servers {
    let mut servers = Servers::new("inbox".into());
    let connection = &mut servers.at(NodeId(0)).connection;
    connection.want();
    connection.connected(context, NodeId(0));
    context.effects.clear();
    servers
}

fn keys(name: &str) -> LockKeys {
    LockKeys::new("lock:", name)
}

fn token(n: u64) -> Token {
    Token::new("c", n, "")
}

const fn hold(leave_to_expire: bool) -> HoldTerms {
    HoldTerms {
        renew: false,
        leave_to_expire,
        max_hold: None,
        stall_timeout: TTL,
        linger: Duration::ZERO,
    }
}

fn all() -> Purpose {
    Purpose::AcquireAll { label: "".into(), hold: hold(false) }
}

fn two() -> ((LockKeys, Token), Vec<(LockKeys, Token)>) {
    ((keys("a"), token(1)), vec![(keys("b"), token(2))])
}

fn take_all() -> OneShot {
    let (first, others) = two();
    OneShot::new(Call::TakeAll { first, others, ttl: TTL }, all())
}

fn all_by_script() -> OneShot {
    let ((first, others), epoch) = (two(), ServerTime::default());
    OneShot::new(Call::AcquireAll { first, others, ttl: TTL, epoch }, all())
}

fn force(seen: Option<&str>, owners: &[Token]) -> OneShot {
    let (keys, token, epoch) = (keys("a"), token(1), ServerTime::default());
    let (seen, owners) = (seen.map(Into::into), owners.into());
    OneShot::new(Call::Force { keys, token, epoch, foreign: false, seen, owners }, Purpose::Force)
}

fn extend() -> OneShot {
    let call = Call::Extend { keys: keys("a"), token: token(1), ttl: TTL };
    OneShot::new(call, Purpose::Extend(LeaseId(256)))
}

fn adopt(label: Label, leave_to_expire: bool) -> OneShot {
    let (keys, token, epoch, owner) = (keys("a"), token(1), ServerTime::default(), token(9));
    let mode = Mode::Exclusive;
    let call = Call::Adopt { keys, token, epoch, owner, ttl: TTL, mode };
    OneShot::new(call, Purpose::Adopt { id: TokenId(1), label, hold: hold(leave_to_expire) })
}

fn refused(code: &str) -> CallError {
    CallError::Refused(Refusal { code: code.to_owned(), detail: "lock:b is not a lock".to_owned() })
}

/// What an answer ends it with, and how many requests it has sent then.
fn answer(
    shot: &mut OneShot,
    reply: Result<Reply, CallError>,
) -> (Option<Result<Reply, Outcome>>, usize) {
    let mut context = context();
    let mut servers = servers(&mut context);
    let finished = Finished {
        owner: Owner::OneShot(OP),
        awaited: true,
        script: shot.call.script(),
        renews: false,
        ttl: TTL,
        node: NodeId(0),
        sent: context.now,
        reply,
    };
    let end = shot.answered(&mut context, &mut servers, OP, finished);
    let sent = context.effects.iter().filter(|it| matches!(it, Effect::Send { .. })).count();
    (end, sent)
}

#[test]
fn several_locks_are_acquired_together_where_one_call_can() {
    let call = |change: fn(&mut Context, &mut Servers), names: &[&str]| {
        let mut context = context();
        let mut servers = servers(&mut context);
        change(&mut context, &mut servers);
        let names = names.iter().map(|name| keys(name)).collect();
        acquire_all(&mut context, &servers, names, "x", TTL)
    };
    let Some(Call::TakeAll { first, others, ttl }) = call(|_, _| {}, &["a", "b"]) else {
        panic!("by plain commands")
    };
    assert_eq!((first, ttl), ((keys("a"), Token::new("c", 1, "x")), TTL));
    assert_eq!(others, [(keys("b"), Token::new("c", 2, "x"))]);
    let scripted = call(|_, servers| servers.at(NodeId(0)).data.refuses_several = true, &["a"]);
    assert!(matches!(scripted, Some(Call::AcquireAll { .. })));
    assert_eq!(call(|_, _| {}, &[]), None);
    assert_eq!(call(|context, _| context.config.quorum = true, &["a", "b"]), None);
    assert_eq!(call(|context, _| context.config.confirm = true, &["a", "b"]), None);
    for (names, together) in [(["a", "b"], false), (["{a}1", "{a}2"], true)] {
        let call = call(|context, _| context.config.cluster = true, &names);
        assert_eq!(call.is_some(), together, "{names:?}");
    }
    let many = |count: usize| call(|_, _| {}, &vec!["a"; count]).map(|call| call.locks());
    assert_eq!(many(ACQUIRE_ALL_MAX), Some(ACQUIRE_ALL_MAX));
    assert_eq!(many(ACQUIRE_ALL_MAX + 1), None);
}

#[test]
fn what_a_caller_does_not_learn_of_is_given_back_where_no_other_may_have_it() {
    let text = || Label::Text("x".into());
    for (shot, is_given_back) in [
        (adopt(text(), false), true),
        (adopt(text(), true), false),
        (adopt(Label::Made("x".into()), false), true),
        (adopt(Label::Chosen("x".into()), false), false),
        (all_by_script(), true),
        (force(None, &[]), false),
        (extend(), false),
    ] {
        assert_eq!(shot.is_given_back(), is_given_back, "{shot:?}");
    }
    let lease = LeaseId(256);
    let of = |purpose| OneShot::new(extend().call, purpose).extends();
    assert_eq!([of(Purpose::Extend(lease)), of(Purpose::ExpireIn(lease))], [Some(lease); 2]);
    assert_eq!([of(Purpose::Downgrade(lease)), of(Purpose::Force)], [None; 2]);
}

#[test]
fn plain_commands_that_decide_nothing_are_followed_by_the_script() {
    for (reply, end, sent, uncertain) in [
        (Ok(Take::Taken { last: 8 }), Some(Ok(Reply::All(vec![7, 8]))), 0, false),
        (Ok(Take::Held), Some(Ok(Reply::Owner(false))), 0, false),
        (Ok(Take::Overtaken), Some(Ok(Reply::Owner(false))), 0, true),
        (Ok(Take::Unseen), None, 1, false),
        (Ok(Take::Unfenced), None, 1, true),
        (Err(CallError::Lost("cut".to_owned())), Some(Err(Outcome::OneByOne)), 0, true),
        (Err(CallError::Halfway("cut".to_owned())), Some(Err(Outcome::OneByOne)), 0, true),
        (Err(CallError::Unsent), None, 0, false),
        (Err(refused("LOADING")), None, 0, true),
    ] {
        let mut shot = take_all();
        let said = format!("{reply:?}");
        let answered = answer(&mut shot, reply.map(Reply::Take));
        assert_eq!(answered, (end.clone(), sent), "{said}");
        assert_eq!(shot.uncertain, uncertain, "{said}");
        let is_script = matches!(shot.call, Call::AcquireAll { .. });
        assert_eq!(is_script, end.is_none(), "{said}");
    }
}

#[test]
fn a_reply_without_all_fences_is_asked_for_again() {
    for (fences, is_whole) in [(vec![7], false), (vec![7, 8], true), (vec![7, 8, 9], false)] {
        let mut shot = all_by_script();
        let end = answer(&mut shot, Ok(Reply::All(fences.clone()))).0;
        assert_eq!(end, is_whole.then_some(Ok(Reply::All(fences))));
        assert_eq!(shot.uncertain, !is_whole);
    }
}

#[test]
fn a_forced_release_is_asked_for_with_the_owners_that_were_seen_and_not_repeated_then() {
    let seen = || Ok(Reply::Seen { owners: "o".into() });
    let mut shot = force(None, &[]);
    assert_eq!(answer(&mut shot, Err(CallError::Lost("cut".to_owned()))), (None, 0));
    assert!(shot.uncertain);
    assert_eq!(answer(&mut shot, seen()), (None, 1));
    assert!(matches!(&shot.call, Call::Force { seen: Some(seen), .. } if &**seen == "o"));
    let freed = Some(Err(Outcome::Connection("cut; it may have been freed".to_owned())));
    for mut shot in [shot, force(None, &[token(3)])] {
        for lost in [CallError::Lost, CallError::Halfway] {
            assert_eq!(answer(&mut shot, Err(lost("cut".to_owned()))), (freed.clone(), 0));
        }
    }
    let other = answer(&mut force(None, &[token(3)]), seen());
    assert_eq!(other, (Some(Ok(Reply::Owner(false))), 0), "others have it");
}

#[test]
fn a_refusal_ends_what_it_would_meet_again() {
    let is_retried =
        |mut shot: OneShot, code: &str| answer(&mut shot, Err(refused(code))).0.is_none();
    assert!(is_retried(extend(), "LOADING") && is_retried(extend(), "OOM"));
    assert!(!is_retried(extend(), "NOPERM"));
    let text = || Label::Text("x".into());
    assert!(is_retried(adopt(text(), false), "LOADING"));
    assert!(!is_retried(adopt(text(), false), "OOM"));
    let gone = answer(&mut extend(), Err(refused("WRONGTYPE")));
    assert_eq!(gone, (Some(Ok(Reply::Owner(false))), 0), "no lock can be there");
    let other = answer(&mut adopt(text(), false), Err(refused("WRONGTYPE"))).0;
    assert!(matches!(other, Some(Err(Outcome::Server { .. }))));
    let named = answer(&mut all_by_script(), Err(refused("WRONGTYPE"))).0;
    let is_named =
        |it: &Outcome| matches!(it, Outcome::Server { key: Some(key), .. } if key == "lock:b");
    assert!(matches!(named, Some(Err(outcome)) if is_named(&outcome)));
}

#[test]
fn without_an_answer_in_time_the_last_error_is_the_outcome() {
    let mut context = context();
    let servers = servers(&mut context);
    let overdue = |shot: &OneShot| shot.overdue(&context, &servers, OP);
    let mut shot = extend();
    let silent = Outcome::Connection("no answer within 1000 ms".to_owned());
    assert_eq!(overdue(&shot), silent);
    answer(&mut shot, Err(CallError::Unsent));
    assert_eq!(overdue(&shot), silent);
    let causes = vec!["away".to_owned()];
    answer(&mut shot, Err(CallError::NoQuorum(causes.clone())));
    assert_eq!(overdue(&shot), Outcome::Quorum(causes));
    answer(&mut shot, Err(refused("OOM")));
    assert!(matches!(overdue(&shot), Outcome::Server { refusal, .. } if refusal.code == "OOM"));
}
