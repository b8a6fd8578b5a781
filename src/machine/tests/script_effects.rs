//! Single calls of the scripts: what each leaves in the keys, at the bounds of its times and numbers.

use super::server::Server;
use super::world::{World, ms};
use crate::protocol::keys::COUNTER;
use crate::protocol::{
    COUNTER_AHEAD_MAX, Call, Failure, Intent, LockKeys, Mode, Mono, Reply, ServerTime, Token,
};

/// The server's clock, which stands still.
pub(super) const NOW_MS: u64 = 1_700_000_000_000;
pub(super) const NOW_US: u64 = NOW_MS * 1_000;
pub(super) const A: &str = "hf1.a.1";
pub(super) const B: &str = "hf1.b.1";
pub(super) const SHARED: &str = "hf1.shared";
const DAY_MS: &str = "86400000";

pub(super) struct Bench(pub(super) Server);

pub(super) fn keys() -> LockKeys {
    World::keys()
}

pub(super) fn token(text: &str) -> Token {
    Token::from_text(text)
}

/// So many ms from now, by the server's clock.
pub(super) fn at(after_ms: i64) -> String {
    NOW_MS.saturating_add_signed(after_ms).to_string()
}

impl Bench {
    pub(super) fn new() -> Self {
        Self(Server::new())
    }

    /// A lock with this value for half a second.
    pub(super) fn with(value: &str) -> Self {
        let bench = Self::new();
        bench.set(value, 500);
        bench
    }

    /// A shared lock: each token's share ends so many ms from now, with this fence.
    pub(super) fn shared(shares: &[(&str, i64, &str)]) -> Self {
        let bench = Self::with(SHARED);
        for (token, after_ms, fence) in shares {
            let (ends, fence) = (at(*after_ms), format!("-{fence}"));
            bench.ask(&["ZADD", &keys().shared(), &ends, token, &fence, &format!("#{token}")]);
        }
        bench
    }

    pub(super) fn ask(&self, parts: &[&str]) -> Vec<String> {
        self.0.ask(Mono::default(), parts)
    }

    pub(super) fn one(&self, parts: &[&str]) -> String {
        self.ask(parts).pop().unwrap_or_default()
    }

    pub(super) fn set(&self, value: &str, ttl_ms: u64) {
        self.ask(&["SET", keys().lock(), value, "PX", &ttl_ms.to_string()]);
    }

    pub(super) fn run(&self, call: &Call) -> Reply {
        self.0.execute(Mono::default(), call).unwrap()
    }

    pub(super) fn refusal(&self, call: &Call) -> String {
        match self.0.execute(Mono::default(), call) {
            Err(Failure::Refused(refusal)) => refusal.code,
            other => panic!("{other:?}"),
        }
    }

    /// The value of the lock, and how long it lasts; empty and -2 if there is none.
    pub(super) fn lock(&self) -> (String, i64) {
        (self.one(&["GET", keys().lock()]), self.left(keys().lock()))
    }

    pub(super) fn left(&self, key: &str) -> i64 {
        self.one(&["PTTL", key]).parse().unwrap()
    }

    pub(super) fn score(&self, member: &str) -> String {
        self.one(&["ZSCORE", &keys().shared(), member])
    }

    /// An entry of the queue, as the scripts write it.
    pub(super) fn enqueue(&self, token: &str, entry: &str) {
        self.ask(&["ZADD", &keys().queue(), "7", token]);
        self.ask(&["SET", &keys().waiting(), "1"]);
        self.ask(&["HSET", &keys().waiters(), token, entry]);
    }

    pub(super) fn waiter(&self, field: &str) -> String {
        self.one(&["HGET", &keys().waiters(), field])
    }

    pub(super) fn release(&self, owner: &str) -> Reply {
        let (keys, token, epoch) = (keys(), token(owner), ServerTime::default());
        self.run(&Call::Release { keys, token, epoch, shared: false })
    }
}

fn acquire(epoch_us: u64, block: u8) -> Call {
    Call::Acquire {
        keys: keys(),
        token: token(A),
        ttl: ms(500),
        epoch: ServerTime::from_micros(epoch_us),
        block,
        inbox: "".into(),
        intent: Intent::Join(None),
        mode: Mode::Exclusive,
    }
}

#[test]
fn an_entry_is_kept_as_it_is_for_six_seconds_more() {
    let call = Call::KeepEntry { keys: keys(), token: token(A) };
    let bench = Bench::new();
    assert_eq!(bench.run(&call), Reply::Owner(false), "there is none");
    bench.ask(&["ZADD", &keys().queue(), "7", A]);
    assert_eq!(bench.run(&call), Reply::Owner(false), "it has lost its record");
    bench.enqueue(A, "5 1000 1 0 - inbox");
    assert_eq!(bench.run(&call), Reply::Owner(true));
    assert_eq!(bench.waiter(A), format!("{} 1000 1 0 - inbox", at(6_000)));
    assert_eq!([keys().queue(), keys().waiters()].map(|key| bench.left(&key)), [30_000; 2]);
}

#[test]
fn a_shared_lock_is_lengthened_by_its_own_key_and_never_shortened() {
    for (value, ttl_ms, left, is_shared) in [
        (SHARED, 400, 500, true),
        (SHARED, 600, 600, true),
        ("hf1.shared+", 600, 600, true),
        (A, 600, 500, false),
        ("hf1.shared.hf1.a.1", 600, 500, false),
    ] {
        let bench = Bench::with(value);
        let reply = bench.run(&Call::KeepLock { keys: keys(), token: token(A), ttl: ms(ttl_ms) });
        assert_eq!((reply, bench.lock()), (Reply::Owner(is_shared), (value.to_owned(), left)));
    }
    let reply = Bench::new().run(&Call::KeepLock { keys: keys(), token: token(A), ttl: ms(9) });
    assert_eq!(reply, Reply::Owner(false));
}

#[test]
fn a_lease_is_lengthened_for_its_owner_and_never_shortened() {
    let lone = format!("hf1.shared.{A}");
    for (value, ttl_ms, left, is_owner) in [
        (A, 400, 500, true),
        (A, 600, 600, true),
        ("hf1.a.1+", 600, 600, true),
        (&lone, 600, 600, true),
        (B, 600, 500, false),
        ("hf1.a.1++", 600, 500, false),
    ] {
        let bench = Bench::with(value);
        let reply = bench.run(&Call::Extend { keys: keys(), token: token(A), ttl: ms(ttl_ms) });
        assert_eq!((reply, bench.lock()), (Reply::Owner(is_owner), (value.to_owned(), left)));
    }
}

#[test]
fn a_lease_of_other_code_is_lengthened_as_long_as_its_value_is_there_and_has_an_end() {
    let keep = |bench: &Bench, ttl_ms| {
        bench.run(&Call::KeepForeign { keys: keys(), token: token("theirs"), ttl: ms(ttl_ms) })
    };
    for (ttl_ms, left) in [(400, 500), (600, 600)] {
        let bench = Bench::with("theirs");
        assert_eq!((keep(&bench, ttl_ms), bench.left(keys().lock())), (Reply::Owner(true), left));
    }
    let bench = Bench::new();
    assert_eq!(keep(&bench, 600), Reply::Owner(false), "it is gone");
    bench.ask(&["SET", keys().lock(), "theirs"]);
    assert_eq!((keep(&bench, 600), bench.left(keys().lock())), (Reply::Owner(true), -1));
    let bench = Bench::with("theirs+");
    assert_eq!((keep(&bench, 600), bench.left(keys().lock())), (Reply::Owner(false), 500));
}

#[test]
fn a_share_is_lengthened_by_the_set_and_never_shortened() {
    let keep = |bench: &Bench, ttl_ms| {
        let reply = bench.run(&Call::KeepShare { keys: keys(), token: token(A), ttl: ms(ttl_ms) });
        (reply, bench.score(A), bench.left(&keys().shared()))
    };
    let granted = Reply::Granted { fence: 77 };
    let bench = Bench::shared(&[(A, 500, "77")]);
    bench.ask(&["ZADD", &keys().shared(), "-5", "?hf1.a.1"]);
    assert_eq!(keep(&bench, 400), (granted.clone(), at(500), 30_400));
    assert_eq!(bench.score("?hf1.a.1"), "", "it is claimed");
    assert_eq!(keep(&bench, 600), (granted.clone(), at(600), 30_600));
    assert_eq!(keep(&bench, 500), (granted, at(600), 30_600));
    assert_eq!(bench.left(keys().lock()), 500, "only the set");
}

#[test]
fn a_share_lasts_until_its_end_and_has_a_fence() {
    let granted = |fence| Reply::Granted { fence };
    let gone = Reply::Owner(false);
    for (ends, fence, expected) in [
        (1, "77", granted(77)),
        (0, "77", gone.clone()),
        (1, "77.5", granted(77)),
        (1, "0", gone.clone()),
        (1, "9007199254740991", granted((1 << 53) - 1)),
        (1, "9007199254740992", gone),
    ] {
        let bench = Bench::shared(&[(A, ends, fence)]);
        let call = Call::ExtendShare { keys: keys(), token: token(A), ttl: ms(600), fence: 77 };
        assert_eq!(bench.run(&call), expected, "{fence}, {ends} ms");
        let own = if fence == "77.5" { "-77".to_owned() } else { format!("-{fence}") };
        let kept = bench.score("#hf1.a.1").parse::<f64>().unwrap();
        assert!((kept - own.parse::<f64>().unwrap()).abs() < 0.1, "{fence}: {kept}");
    }
}

#[test]
fn a_lock_lasts_as_long_as_the_share_that_is_lengthened() {
    for (ttl_ms, lock_left, set_left) in [(400, 500, -1), (500, 500, -1), (600, 600, 30_600)] {
        let bench = Bench::shared(&[(A, 300, "77")]);
        let (keys, token) = (keys(), token(A));
        let call = Call::ExtendShare { keys, token, ttl: ms(ttl_ms), fence: 77 };
        assert_eq!(bench.run(&call), Reply::Granted { fence: 77 });
        assert_eq!(bench.score(A), at(i64::try_from(ttl_ms).unwrap()));
        assert_eq!((bench.lock().1, bench.left(&self::keys().shared())), (lock_left, set_left));
    }
}

#[test]
fn an_extension_of_a_share_finds_the_whole_lock_or_none() {
    let extend = |bench: &Bench| {
        let (keys, token) = (keys(), token(A));
        bench.run(&Call::ExtendShare { keys, token, ttl: ms(600), fence: 77 })
    };
    for value in [A, "hf1.a.1+", "hf1.shared.hf1.a.1"] {
        let bench = Bench::with(value);
        assert_eq!((extend(&bench), bench.lock()), (Reply::Owner(true), (value.to_owned(), 600)));
    }
    let bench = Bench::with(B);
    bench.ask(&["ZADD", &keys().shared(), "-5", "?hf1.a.1"]);
    assert_eq!((extend(&bench), bench.lock().1), (Reply::Owner(false), 500));
    assert_eq!(bench.score("?hf1.a.1"), "", "its owner comes late, and is not silent");
}

#[test]
fn a_lock_lasts_as_long_as_the_shares_that_are_left() {
    let leave =
        |bench: &Bench, owner| bench.run(&Call::FreeShare { keys: keys(), token: token(owner) });
    let both = || Bench::shared(&[(A, 500, "77"), (B, 900, "78")]);
    let bench = both();
    assert_eq!((leave(&bench, B), bench.lock().1), (Reply::Owner(true), 500));
    assert_eq!((bench.score(B), bench.score("#hf1.b.1")), (String::new(), String::new()));
    let bench = both();
    assert_eq!((leave(&bench, A), bench.lock().1), (Reply::Owner(true), 900));
    assert_eq!((leave(&bench, B), bench.lock().1), (Reply::Owner(true), -2));
    assert_eq!(bench.left(&keys().shared()), -2);
    for (ends, lasts) in [(0, -2), (1, 1)] {
        let bench = Bench::shared(&[(A, 500, "77"), (B, ends, "78")]);
        assert_eq!((leave(&bench, A), bench.lock().1), (Reply::Owner(true), lasts));
        assert_eq!(bench.score(B).is_empty(), lasts == -2, "none is left");
    }
    for (ends, freed) in [(0, false), (1, true)] {
        let bench = Bench::shared(&[(A, ends, "77")]);
        assert_eq!((leave(&bench, A), bench.lock().1), (Reply::Owner(freed), -2));
    }
}

#[test]
fn a_share_that_is_given_up_may_be_the_whole_lock() {
    let leave = |bench: &Bench| bench.run(&Call::FreeShare { keys: keys(), token: token(A) });
    for value in [A, "hf1.a.1+", "hf1.shared.hf1.a.1"] {
        let bench = Bench::with(value);
        assert_eq!((leave(&bench), bench.lock().1), (Reply::Owner(true), -2), "{value}");
        assert_eq!(leave(&bench), Reply::Owner(false), "once");
    }
    for value in [B, SHARED, "hf1.shared+"] {
        let bench = Bench::with(value);
        bench.ask(&["ZADD", &keys().shared(), "-5", "?hf1.a.1", &at(900), B]);
        assert_eq!((leave(&bench), bench.lock().1), (Reply::Owner(false), 500), "{value}");
        assert_eq!(bench.score("?hf1.a.1"), "", "its owner comes late, and is not silent");
    }
}

#[test]
fn a_lock_is_freed_by_its_own_key() {
    for (value, freed) in
        [(A, true), ("hf1.a.1+", true), ("hf1.shared.hf1.a.1", true), (B, false), (SHARED, false)]
    {
        let bench = Bench::with(value);
        let reply = bench.run(&Call::Free { keys: keys(), token: token(A) });
        assert_eq!((reply, bench.lock().0.is_empty()), (Reply::Owner(freed), freed), "{value}");
    }
}

#[test]
fn a_release_leaves_the_lock_to_the_shares_that_last() {
    for (own, other, freed, lasts) in
        [(500, 900, true, 900), (500, 1, true, 1), (500, 0, true, -2), (0, 900, false, 900)]
    {
        let bench = Bench::shared(&[(A, own, "77"), (B, other, "78")]);
        assert_eq!(bench.release(A), Reply::Owner(freed), "{own}, {other}");
        assert_eq!((bench.score(A), bench.lock().1), (String::new(), lasts), "{own}, {other}");
    }
}

/// The vote of an attempt.
fn vote(attempt: u64, ttl_ms: u64, mark: bool, fences: (u64, u64)) -> Call {
    Call::Vote { keys: keys(), token: token(A), attempt, ttl: ms(ttl_ms), mark, fences }
}

fn voted(counter: u64, written: bool) -> Reply {
    Reply::Voted { counter, time: ServerTime::from_micros(NOW_US), written }
}

#[test]
fn a_vote_takes_a_free_lock_for_its_attempt() {
    let bench = Bench::new();
    assert_eq!(bench.run(&vote(9, 500, false, (0, 0))), voted(0, false));
    assert_eq!(bench.lock(), ("hf1.a.1.9".to_owned(), 500));
    let ahead = (NOW_US + 5, NOW_US + 8);
    for (ttl_ms, left) in [(400, 500), (600, 600)] {
        assert_eq!(bench.run(&vote(9, ttl_ms, false, ahead)), voted(0, false), "not once more");
        assert_eq!(bench.lock(), ("hf1.a.1.9".to_owned(), left), "never shortened");
    }
    assert_eq!(bench.run(&vote(10, 500, false, (0, 0))), voted(0, false));
    assert_eq!(bench.lock(), ("hf1.a.1.10".to_owned(), 500), "a later attempt replaces it");
    let Reply::Held(held) = bench.run(&vote(9, 600, true, (0, 0))) else { panic!("not held") };
    assert_eq!((held.holder.as_str(), held.remaining), ("hf1.a.1.10", Some(ms(500))));
    assert_eq!(bench.lock(), ("hf1.a.1.10+".to_owned(), 500));
    assert_eq!(bench.run(&vote(11, 500, false, (0, 0))), voted(0, false));
    assert_eq!(bench.lock().0, "hf1.a.1.11+", "who waits is told all the same");
}

#[test]
fn a_vote_that_is_refused_marks_the_lock_if_its_caller_waits() {
    for (value, mark, marked, holder) in [
        ("hf1.b.1.3", false, "hf1.b.1.3", "hf1.b.1.3"),
        ("hf1.b.1.3", true, "hf1.b.1.3+", "hf1.b.1.3"),
        ("hf1.b.1.3+", true, "hf1.b.1.3+", "hf1.b.1.3"),
        ("theirs", true, "theirs", "theirs"),
    ] {
        let bench = Bench::with(value);
        let Reply::Held(held) = bench.run(&vote(1, 600, mark, (0, 0))) else { panic!("{value}") };
        assert_eq!((held.holder.as_str(), held.remaining), (holder, Some(ms(500))));
        assert_eq!(bench.lock(), (marked.to_owned(), 500));
    }
}

#[test]
fn proposed_fences_are_written_above_the_counter_and_not_behind_the_clock() {
    let last = NOW_US + 50;
    for (counter, first, written) in [
        (None, NOW_US, true),
        (None, NOW_US - 1, false),
        (Some(NOW_US + 1), NOW_US + 1, false),
        (Some(NOW_US), NOW_US + 1, true),
    ] {
        let bench = Bench::new();
        if let Some(counter) = counter {
            bench.0.set_own_fence(Mono::default(), &keys(), counter);
        }
        let known = if written { last } else { counter.unwrap_or(0) };
        let reply = bench.run(&vote(1, 500, false, (first, last)));
        assert_eq!(reply, voted(known, written), "{counter:?}, {first}");
        assert_eq!(bench.0.own_fence(Mono::default(), &keys()).unwrap_or(0), known);
        assert!(!written || bench.one(&["PTTL", &keys().fence()]) == DAY_MS);
    }
}

#[test]
fn a_fence_is_written_for_the_owner_alone_and_above_the_counter() {
    for (value, counter, written) in [
        ("hf1.a.1.3", None, true),
        ("hf1.a.1.3+", Some(89), true),
        ("hf1.a.1.3", Some(90), false),
        ("hf1.b.1.3", None, false),
    ] {
        let bench = Bench::with(value);
        if let Some(counter) = counter {
            bench.0.set_own_fence(Mono::default(), &keys(), counter);
        }
        let (keys, token) = (keys(), token("hf1.a.1.3"));
        let call = Call::WriteFence { keys, token, first: 90, last: 95 };
        assert_eq!(bench.run(&call), Reply::Owner(written), "{value}, {counter:?}");
        let known = if written { Some(95) } else { counter };
        assert_eq!(bench.0.own_fence(Mono::default(), &self::keys()), known);
        assert!(!written || bench.one(&["PTTL", &self::keys().fence()]) == DAY_MS);
    }
}

#[test]
fn a_lock_is_copied_unless_another_owns_it_or_owned_it_since() {
    for (value, counter, copied, left) in [
        (None, None, true, 600),
        (None, Some(95), true, 600),
        (None, Some(96), false, -2),
        (Some(("hf1.a.1.3", 500)), None, true, 600),
        (Some(("hf1.a.1.3+", 700)), None, true, 700),
        (Some(("hf1.b.1.3", 500)), None, false, 500),
    ] {
        let bench = Bench::new();
        if let Some((value, left)) = value {
            bench.set(value, left);
        }
        if let Some(counter) = counter {
            bench.0.set_own_fence(Mono::default(), &keys(), counter);
        }
        let (keys, token) = (keys(), token("hf1.a.1.3"));
        let reply = bench.run(&Call::CopyLock { keys, token, ttl: ms(600), last: 95 });
        assert_eq!((reply, bench.lock().1), (Reply::Owner(copied), left), "{value:?}, {counter:?}");
        let known = if copied { Some(95) } else { counter };
        assert_eq!(bench.0.own_fence(Mono::default(), &self::keys()), known);
        assert!(!copied || bench.one(&["PTTL", &self::keys().fence()]) == DAY_MS);
    }
}

#[test]
fn an_attempt_is_withdrawn_by_its_number() {
    for (value, freed) in
        [("hf1.a.1.3", true), ("hf1.a.1.3+", true), ("hf1.a.1.4", false), ("hf1.b.1.3", false)]
    {
        let bench = Bench::with(value);
        let reply = bench.run(&Call::Withdraw { keys: keys(), token: token("hf1.a.1.3") });
        assert_eq!((reply, bench.lock().0.is_empty()), (Reply::Owner(freed), freed), "{value}");
    }
}

#[test]
fn fences_begin_at_the_clock_and_follow_a_counter_that_is_at_most_a_year_ahead() {
    let year_us = u64::try_from(COUNTER_AHEAD_MAX.as_micros()).unwrap();
    let fence_after = |counter: Option<u64>, epoch_us| {
        let bench = Bench::new();
        if let Some(counter) = counter {
            bench.0.set_fence(Mono::default(), counter);
        }
        let reply = bench.run(&acquire(epoch_us, 4));
        let Reply::Granted { fence } = reply else { panic!("{reply:?}") };
        assert_eq!(bench.0.fence(Mono::default()), Some(fence + 3), "four are reserved");
        fence
    };
    assert_eq!(fence_after(None, 0), NOW_US);
    assert_eq!(fence_after(None, NOW_US + 5), NOW_US + 5);
    assert_eq!(fence_after(Some(123), 0), NOW_US, "INCR has begun it");
    let least = 1_000_000_000_000_000;
    assert_eq!(fence_after(Some(least), least), least + 1);
    assert_eq!(fence_after(Some(least - 1), 0), NOW_US);
    assert_eq!(fence_after(Some(NOW_US - 9), NOW_US - 9), NOW_US - 8);
    assert_eq!(fence_after(Some(NOW_US - 9), NOW_US - 7), NOW_US - 7, "the epoch lifts it");
    assert_eq!(fence_after(Some(NOW_US + year_us), 0), NOW_US + year_us + 1);

    let bench = Bench::new();
    bench.0.set_fence(Mono::default(), NOW_US + year_us + 1);
    assert_eq!(bench.refusal(&acquire(0, 4)), "FENCE");
    assert_eq!(bench.0.fence(Mono::default()), Some(NOW_US + year_us + 1));
    assert_eq!(bench.lock().1, -2, "it is not taken");
}

#[test]
fn what_is_no_counter_is_refused_and_left_as_it_is() {
    for value in ["x", "-5", "007", "1.5"] {
        let bench = Bench::new();
        bench.ask(&["SET", COUNTER, value]);
        assert_eq!(bench.refusal(&acquire(0, 1)), "WRONGTYPE", "{value}");
        assert_eq!((bench.one(&["GET", COUNTER]).as_str(), bench.lock().1), (value, -2));
    }
}

#[test]
fn a_lock_with_a_counter_of_its_own_keeps_it_for_a_day() {
    let bench = Bench::new();
    bench.0.deny_counter();
    let key = bench.0.counter_key(&keys());
    assert_eq!(bench.run(&acquire(0, 1)), Reply::Granted { fence: NOW_US });
    assert_eq!(bench.one(&["PTTL", &key]), DAY_MS);
}

#[test]
fn an_entry_that_no_script_has_written_gets_nothing() {
    let wants = |entry: &str| {
        let bench = Bench::with("hf1.a.1+");
        bench.enqueue(B, &entry.replace('T', &at(0)));
        assert_eq!(bench.release(A), Reply::Owner(true), "{entry}");
        assert_eq!(bench.left(&keys().queue()), -2, "{entry}: it has left");
        bench.lock()
    };
    let free = || (String::new(), -2);
    let granted = |ttl_ms| ("hf1.b.1+".to_owned(), ttl_ms);
    assert_eq!(wants("T 1000 128 0 - "), granted(1_000));
    assert_eq!(wants("T 3000 1 0 - "), granted(3_000));
    assert_eq!(wants("T 5000 1 0 - "), granted(3_000), "until it is claimed");
    assert_eq!(wants("T 9000000000000000 1 9000000000000000 - "), granted(3_000));
    for entry in [
        "T 1000 129 0 - ",
        "T 0 1 0 - ",
        "T 9000000000000001 1 0 - ",
        "T 1000 1 9000000000000001 - ",
        "T 1000 0 0 - ",
        "T 1000 1 0 x ",
        "nonsense",
    ] {
        assert_eq!(wants(entry), free(), "{entry}");
    }
}

#[test]
fn an_entry_that_was_not_renewed_in_time_leaves_the_queue() {
    for (deadline_ms, is_granted) in [(0, true), (-1, false)] {
        let bench = Bench::with("hf1.a.1+");
        bench.enqueue(B, &format!("{} 1000 1 0 - ", at(deadline_ms)));
        assert_eq!(bench.release(A), Reply::Owner(true));
        assert_eq!(bench.lock().0 == "hf1.b.1+", is_granted, "{deadline_ms}");
        assert_eq!(bench.waiter("unclaimed") == B, is_granted);
        assert_eq!((bench.waiter(B), bench.left(&keys().waiting())), (String::new(), -2));
    }
}

/// Its inbox has no subscriber.
#[test]
fn a_waiter_that_no_message_reaches_is_waited_for_for_three_seconds() {
    let since = |unreached_ms: Option<i64>, heard_ms: i64| {
        let bench = Bench::with("hf1.a.1+");
        bench.enqueue(B, &format!("{} 1000 1 0 - inbox", at(heard_ms + 6_000)));
        if let Some(unreached_ms) = unreached_ms {
            bench.ask(&["HSET", &keys().waiters(), "unreached", &at(unreached_ms)]);
        }
        assert_eq!(bench.release(A), Reply::Owner(true));
        bench.lock().0 == "hf1.b.1+"
    };
    assert!(since(None, -100), "from now on");
    assert!(since(Some(-3_000), -5_000));
    assert!(!since(Some(-3_001), -5_000), "it has kept silent");
    assert!(!since(Some(-3_001), -3_001));
    assert!(since(Some(-3_001), -3_000), "it was heard of since");
    assert!(since(Some(1), -5_000), "the clock was set back");
}

#[test]
fn a_release_of_a_grant_that_awaits_its_claim_claims_it() {
    let bench = Bench::with("hf1.a.1+");
    bench.ask(&["HSET", &keys().waiters(), "unclaimed", A]);
    assert_eq!(bench.release(A), Reply::Owner(true));
    assert_eq!((bench.waiter("unclaimed"), bench.lock().1), (String::new(), -2));
}

#[test]
fn fences_are_reserved_for_the_owner_with_the_number_of_those_who_wait() {
    let reserve = |bench: &Bench, ttl_ms| {
        let (keys, token, epoch) = (keys(), token(A), ServerTime::from_micros(NOW_US));
        let call = Call::Reserve { keys, token, ttl: ms(ttl_ms), epoch, block: 3 };
        (bench.run(&call), bench.lock().1)
    };
    let bench = Bench::with("hf1.a.1+");
    bench.0.set_fence(Mono::default(), NOW_US + 9);
    bench.enqueue(B, "T 1000 1 0 - ");
    let reserved = |fence| Reply::Reserved { fence: NOW_US + fence, waiting: 1 };
    assert_eq!(reserve(&bench, 400), (reserved(10), 500));
    assert_eq!(reserve(&bench, 600), (reserved(13), 600));
    assert_eq!(reserve(&Bench::with(B), 600), (Reply::Owner(false), 500));
    let (reply, _) = reserve(&Bench::with(A), 600);
    assert_eq!(reply, Reply::Reserved { fence: NOW_US, waiting: 0 }, "the first of a new counter");
}
