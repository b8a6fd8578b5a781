//! Single calls of the scripts that take a lock, show it or free it for others: what each answers and leaves in the keys.

use super::script_effects::{A, B, Bench, NOW_US, SHARED, at, keys, token};
use super::world::ms;
use crate::protocol::keys::COUNTER;
use crate::protocol::{
    COUNTER_AHEAD_MAX, Call, Intent, LockKeys, Mode, Mono, Reply, Script, ServerTime, Token,
};
use std::sync::Arc;

const C: &str = "hf1.c.1";

impl Bench {
    /// The answer of `inspect.lua`, in one list.
    fn inspect(&self, most: u64, scope: &str) -> Vec<String> {
        let keys = keys();
        let names = [keys.lock().to_owned(), keys.queue(), keys.waiters(), keys.shared()];
        let names = names.each_ref().map(String::as_str);
        self.0.eval(Mono::default(), Script::Inspect, &names, &[&most.to_string(), scope])
    }

    /// The answer of `acquire_unqueued.lua` to a request for three fences and 600 ms.
    fn take_unqueued(&self, epoch_us: u64, intent: &str) -> Vec<String> {
        let (keys, epoch_us) = (keys(), epoch_us.to_string());
        let (names, args) = ([keys.lock(), COUNTER], [A, "600", &epoch_us, intent, "3"]);
        self.0.eval(Mono::default(), Script::AcquireUnqueued, &names, &args)
    }

    fn force(&self, foreign: bool, seen: Option<&str>, owners: &[&str]) -> Reply {
        let owners: Arc<[Token]> = owners.iter().map(|text| token(text)).collect();
        let (keys, token, epoch) = (keys(), token("hf1.x.1"), ServerTime::from_micros(NOW_US));
        self.run(&Call::Force { keys, token, epoch, foreign, seen: seen.map(Arc::from), owners })
    }
}

#[test]
fn a_free_lock_shows_nothing_and_that_of_other_code_what_is_asked_for() {
    let bench = Bench::new();
    assert!(bench.inspect(9, "").is_empty() && bench.inspect(9, "foreign").is_empty());
    for value in ["theirs", "hf1", "xhf1.a.1", "hf1+"] {
        let bench = Bench::with(value);
        assert!(bench.inspect(9, "").is_empty(), "{value}");
        assert_eq!(bench.inspect(9, "foreign"), [value, "500"]);
    }
    assert_eq!(Bench::with(A).inspect(9, ""), [A, "500"]);
    assert_eq!(Bench::with("hf1.a.1+").inspect(9, ""), ["hf1.a.1+", "500"]);
    let bench = Bench::new();
    bench.ask(&["SET", keys().lock(), A]);
    assert_eq!(bench.inspect(9, ""), [A, "-1"], "it never ends");
}

#[test]
fn a_long_value_of_other_code_is_shown_without_its_end_and_no_letter_is_cut() {
    let shown = |value: &str| Bench::with(value).inspect(9, "foreign").swap_remove(0);
    let [most, less] = [512, 511].map(|length| "x".repeat(length));
    assert_eq!(shown(&most), most);
    assert_eq!(shown(&format!("{most}y")), most);
    assert_eq!(shown(&format!("{less}é")), less);
    assert_eq!(shown(&format!("{}é", &less[1..])), format!("{}é", &less[1..]));
    let long = format!("hf1.a.1.{most}");
    assert_eq!(shown(&long), long, "a token");
}

#[test]
fn each_share_that_lasts_is_shown_with_the_fence_that_its_owner_knows() {
    let lone = Bench::with("hf1.shared.hf1.a.1");
    assert_eq!(lone.inspect(9, ""), [SHARED, "500", A, "500", "0"]);
    let shared = || Bench::shared(&[(A, 300, "77"), (B, 1, "78.5"), (C, 0, "79")]);
    let bench = shared();
    assert_eq!(bench.inspect(9, ""), [SHARED, "500", B, "1", "0", A, "300", "77"]);
    assert_eq!(bench.inspect(1, ""), [SHARED, "500", B, "1", "0"]);
    bench.set("hf1.shared+", 500);
    assert_eq!(bench.inspect(9, "").len(), 8);
    bench.ask(&["ZREM", &keys().shared(), "#hf1.a.1"]);
    assert_eq!(bench.inspect(9, "")[5..], [A, "300", "0"], "its fence is missing");
    bench.set(A, 500);
    assert_eq!(bench.inspect(9, ""), [A, "500"], "what is left of shares does not count");
}

#[test]
fn each_waiter_is_shown_with_what_it_wants_and_for_how_long_it_has_waited() {
    let bench = Bench::with("hf1.a.1+");
    for (who, came_us, entry) in [
        (B, NOW_US - 2_500_000, "5 1000 1 0 3 inbox"),
        (C, NOW_US - 900, "5 1000 1 0 - "),
        ("hf1.d.1", NOW_US + 9_000, "nonsense"),
    ] {
        bench.enqueue(who, entry);
        bench.ask(&["ZADD", &keys().queue(), &came_us.to_string(), who]);
    }
    let (first, second) = ([B, "3", "2500"], [C, "-", "1"]);
    let all = [&["hf1.a.1+", "500"][..], &first, &second, &["hf1.d.1", "-", "0"]].concat();
    assert_eq!(bench.inspect(9, ""), all);
    assert_eq!(bench.inspect(2, ""), all[..8]);
}

#[test]
fn without_a_clock_a_free_lock_is_taken_with_fences_from_the_epoch_on() {
    let bench = Bench::new();
    assert_eq!(bench.take_unqueued(NOW_US, "poll"), ["0", ""]);
    assert_eq!((bench.lock().1, bench.0.fence(Mono::default())), (-2, None), "it only asks");
    assert_eq!(bench.take_unqueued(NOW_US, "try"), [NOW_US.to_string()]);
    assert_eq!(bench.lock(), (A.to_owned(), 600));
    assert_eq!(bench.0.fence(Mono::default()), Some(NOW_US + 2));
    assert_eq!(bench.take_unqueued(NOW_US, "try"), [(NOW_US + 3).to_string()], "later ones");
}

#[test]
fn without_a_clock_an_owner_is_confirmed_and_its_lease_never_shortened() {
    for (value, left, then) in [(A, 500, 600), (A, 700, 700), ("hf1.a.1+", 500, 600)] {
        let bench = Bench::new();
        bench.set(value, left);
        assert_eq!(bench.take_unqueued(NOW_US, "poll"), [NOW_US.to_string()], "{value}");
        assert_eq!(bench.lock(), (value.to_owned(), then));
    }
}

#[test]
fn without_a_clock_a_held_lock_shows_its_holder() {
    for (value, holder) in [
        (B, B),
        ("hf1.b.1+", B),
        ("theirs+", "theirs+"),
        ("hf1+", "hf1+"),
        ("hf1.a.1++", "hf1.a.1+"),
        ("", ""),
    ] {
        for intent in ["try", "poll"] {
            let bench = Bench::with(value);
            assert_eq!(bench.take_unqueued(NOW_US, intent), ["500", holder], "{value}");
            assert_eq!(bench.lock(), (value.to_owned(), 500));
        }
    }
    let bench = Bench::new();
    bench.ask(&["SET", keys().lock(), B]);
    assert_eq!(bench.take_unqueued(NOW_US, "try"), ["-1", B], "it never ends");
}

#[test]
fn without_a_clock_the_counter_is_at_most_a_year_ahead_of_the_epoch() {
    let most = NOW_US + u64::try_from(COUNTER_AHEAD_MAX.as_micros()).unwrap();
    let bench = Bench::new();
    bench.0.set_fence(Mono::default(), most);
    assert_eq!(bench.take_unqueued(NOW_US, "try"), [(most + 1).to_string()]);
    let bench = Bench::new();
    bench.0.set_fence(Mono::default(), most + 1);
    assert_eq!(bench.take_unqueued(NOW_US, "try"), [""; 0]);
    assert_eq!((bench.lock().1, bench.0.fence(Mono::default())), (-2, Some(most + 1)));
}

#[test]
fn a_lock_is_forced_from_the_owners_that_were_seen() {
    let (freed, kept) = (Reply::Owner(true), Reply::Owner(false));
    let seen = |owners: &str| Reply::Seen { owners: owners.into() };
    for (value, foreign, known, reply) in [
        (A, false, None, seen(A)),
        (A, false, Some(A), freed.clone()),
        ("hf1.a.1+", false, Some(A), freed.clone()),
        ("hf1.a.1+", false, Some("hf1.a.1+"), seen(A)),
        (A, false, Some(B), seen(A)),
        (A, true, Some(A), freed.clone()),
        ("theirs", false, None, kept.clone()),
        ("theirs", false, Some("foreign"), kept.clone()),
        ("theirs", true, None, seen("foreign")),
        ("theirs", true, Some("foreign"), freed.clone()),
        ("theirs+", true, Some("foreign"), freed),
    ] {
        let bench = Bench::with(value);
        bench.ask(&["HSET", &keys().waiters(), "unclaimed", A]);
        assert_eq!(bench.force(foreign, known, &[]), reply, "{value}, {foreign}, {known:?}");
        let is_freed = reply == Reply::Owner(true);
        assert_eq!((bench.lock().0.is_empty(), bench.waiter("unclaimed").is_empty()), {
            (is_freed, is_freed)
        });
    }
    assert_eq!(Bench::new().force(true, None, &[]), kept);
}

#[test]
fn a_lock_is_forced_from_nobody_but_the_owners_that_are_meant() {
    let freed = Reply::Owner(true);
    let whole = || Bench::with(A);
    assert_eq!(whole().force(false, None, &[A]), freed);
    assert_eq!(whole().force(false, None, &[B, A]), freed);
    assert_eq!(whole().force(false, None, &[B]), Reply::Seen { owners: A.into() });
    let shared = || Bench::shared(&[(A, 300, "77"), (B, 1, "78"), (C, 0, "79")]);
    for (meant, is_freed) in
        [(&[A, B][..], true), (&[B, A, C], true), (&[A], false), (&[B], false), (&[A, C], false)]
    {
        let bench = shared();
        let expected = if is_freed { &freed } else { &Reply::Seen { owners: "-79".into() } };
        assert_eq!(bench.force(false, None, meant), *expected, "{meant:?}");
        let left = if is_freed { -2 } else { 500 };
        assert_eq!(bench.lock().1, left, "{meant:?}");
        assert_eq!(bench.score(A).is_empty(), is_freed, "{meant:?}");
    }
    let ended = Bench::shared(&[(A, 0, "77")]);
    assert_eq!((ended.force(false, None, &[B]), ended.lock().1), (Reply::Owner(false), -2));
}

#[test]
fn a_lock_that_is_forced_goes_to_who_waits() {
    let bench = Bench::with("hf1.a.1+");
    bench.enqueue(B, &format!("{} 1000 1 0 - ", at(5_000)));
    assert_eq!(bench.force(false, Some(A), &[]), Reply::Owner(true));
    assert_eq!(bench.lock(), ("hf1.b.1+".to_owned(), 1_000));
    assert_eq!(bench.waiter("unclaimed"), B);
    let bench = Bench::new();
    bench.enqueue(B, &format!("{} 1000 1 0 - ", at(5_000)));
    assert_eq!(bench.force(false, None, &[]), Reply::Owner(false), "it was not held");
    assert_eq!(bench.lock().0, "hf1.b.1+", "and is granted all the same");
}

/// A request for `a` and `b` by two tokens.
fn both(epoch_us: u64) -> Call {
    let lock = |name, owner| (LockKeys::new("lock:", name), token(owner));
    let (first, others) = (lock("a", A), vec![lock("b", B)]);
    Call::AcquireAll { first, others, ttl: ms(600), epoch: ServerTime::from_micros(epoch_us) }
}

#[test]
fn several_locks_are_taken_or_none() {
    let [first, other] = ["a", "b"].map(|name| LockKeys::new("lock:", name));
    for (value, waits, is_taken, then) in [
        (None, false, true, B),
        (None, true, false, ""),
        (Some(B), false, true, B),
        (Some(B), true, true, "hf1.b.1+"),
        (Some("hf1.b.1+"), false, true, "hf1.b.1+"),
        (Some(C), false, false, C),
        (Some("hf1.b.1++"), false, false, "hf1.b.1++"),
    ] {
        let bench = Bench::new();
        bench.0.set_fence(Mono::default(), NOW_US);
        if let Some(value) = value {
            bench.ask(&["SET", other.lock(), value, "PX", "700"]);
        }
        if waits {
            bench.ask(&["ZADD", &other.queue(), "7", C]);
        }
        let fences = vec![NOW_US + 1, NOW_US + 2];
        let reply = if is_taken { Reply::All(fences) } else { Reply::Owner(false) };
        assert_eq!(bench.run(&both(0)), reply, "{value:?}, {waits}");
        let own = |keys: &LockKeys| (bench.one(&["GET", keys.lock()]), bench.left(keys.lock()));
        let first = own(&first);
        assert_eq!(first, if is_taken { (A.to_owned(), 600) } else { (String::new(), -2) });
        let left = if value.is_some() {
            700
        } else if is_taken {
            600
        } else {
            -2
        };
        assert_eq!(own(&other), (then.to_owned(), left), "never shortened");
        let issued = if is_taken { NOW_US + 2 } else { NOW_US };
        assert_eq!(bench.0.fence(Mono::default()), Some(issued));
    }
}

#[test]
fn the_lease_of_an_owner_of_several_locks_is_lengthened_and_never_shortened() {
    for (left, then) in [(500, 600), (700, 700)] {
        let bench = Bench::new();
        bench.set(A, left);
        assert!(matches!(bench.run(&both(0)), Reply::All(_)));
        assert_eq!(bench.lock(), (A.to_owned(), then));
    }
}

#[test]
fn the_fences_of_several_locks_are_lifted_by_the_epoch_and_counted_by_each_counter() {
    let bench = Bench::new();
    bench.0.set_fence(Mono::default(), NOW_US);
    assert_eq!(bench.run(&both(NOW_US + 9)), Reply::All(vec![NOW_US + 9, NOW_US + 10]));
    let bench = Bench::new();
    bench.0.deny_counter();
    assert_eq!(bench.run(&both(0)), Reply::All(vec![NOW_US, NOW_US]), "each has its own");
    assert_eq!(bench.run(&both(0)), Reply::All(vec![NOW_US + 1, NOW_US + 1]));
    let bench = Bench::new();
    let year_us = u64::try_from(COUNTER_AHEAD_MAX.as_micros()).unwrap();
    bench.0.set_fence(Mono::default(), NOW_US + year_us + 1);
    assert_eq!((bench.refusal(&both(0)), bench.lock().1), ("FENCE".to_owned(), -2));
    bench.0.set_fence(Mono::default(), NOW_US + year_us);
    assert!(matches!(bench.run(&both(0)), Reply::All(_)));
}

#[test]
fn a_grant_is_claimed_by_its_owner_or_by_its_silence_forgiven() {
    let claim =
        |bench: &Bench| bench.run(&Call::Claim { keys: keys(), token: token(A), ttl: ms(600) });
    for (value, is_owner, left) in
        [(A, true, 600), ("hf1.a.1+", true, 600), (B, false, 500), ("hf1.a.1++", false, 500)]
    {
        let bench = Bench::with(value);
        bench.ask(&["HSET", &keys().waiters(), "unclaimed", A]);
        assert_eq!((claim(&bench), bench.lock().1), (Reply::Owner(is_owner), left), "{value}");
        assert_eq!(bench.waiter("unclaimed"), "", "{value}");
    }
    let bench = Bench::with(A);
    bench.ask(&["HSET", &keys().waiters(), "unclaimed", B]);
    assert_eq!((claim(&bench), bench.waiter("unclaimed")), (Reply::Owner(true), B.to_owned()));
}

#[test]
fn a_lock_is_deleted_by_its_owner_while_nobody_waits() {
    for (value, is_deleted) in
        [(A, true), ("hf1.a.1+", false), (B, false), ("hf1.shared.hf1.a.1", false)]
    {
        let bench = Bench::with(value);
        let reply = bench.run(&Call::Delete { keys: keys(), token: token(A) });
        assert_eq!((reply, bench.lock().0.is_empty()), (Reply::Owner(is_deleted), is_deleted));
    }
}

#[test]
fn a_lock_is_stolen_from_the_owners_that_were_seen() {
    let steal = |bench: &Bench, seen: &str| {
        let (keys, token, epoch) = (keys(), token(C), ServerTime::from_micros(NOW_US));
        let (inbox, intent) = ("".into(), Intent::Steal(seen.into()));
        let mode = Mode::Exclusive;
        let call =
            Call::Acquire { keys, token, ttl: ms(600), epoch, block: 2, inbox, intent, mode };
        let is_stolen = match bench.run(&call) {
            Reply::Granted { fence: NOW_US } => true,
            Reply::Held(held) => {
                assert_eq!(held.queued, None);
                false
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(is_stolen, bench.lock() == (C.to_owned(), 600));
        is_stolen
    };
    assert!(steal(&Bench::with(A), A) && steal(&Bench::with("hf1.a.1+"), A));
    assert!(!steal(&Bench::with(B), A) && !steal(&Bench::with("theirs"), "foreign"));
    let shared = || Bench::shared(&[(A, 300, "77"), (B, 400, "78")]);
    assert!(steal(&shared(), "-78") && !steal(&shared(), "-77"));
    let bench = Bench::with("hf1.a.1+");
    bench.ask(&["HSET", &keys().waiters(), "unclaimed", A]);
    assert!(steal(&bench, A) && bench.waiter("unclaimed").is_empty());
}
