//! Single calls of the scripts that change the shares of a lock: what each leaves in the keys, at its bounds.

use super::script_effects::{A, B, Bench, NOW_US, SHARED, at, keys, token};
use super::world::ms;
use crate::protocol::{COUNTER_AHEAD_MAX, Call, Intent, Mode, Mono, Reply, ServerTime};

const C: &str = "hf1.c.1";
/// With three of nine permits.
const THREE: &str = "hf1.t.1/9/3";

const GONE: Reply = Reply::Owner(false);

fn year_us() -> u64 {
    u64::try_from(COUNTER_AHEAD_MAX.as_micros()).unwrap()
}

impl Bench {
    /// Whose counter has issued fences until now.
    fn counting(self) -> Self {
        self.0.set_fence(Mono::default(), NOW_US);
        self
    }

    fn record(&self, member: &str, score: &str) {
        self.ask(&["ZADD", &keys().shared(), score, member]);
    }

    /// The members of the set of shares that begin with none of its marks, in their order.
    fn sharers(&self) -> Vec<String> {
        let members = self.ask(&["ZRANGE", &keys().shared(), "0", "-1"]);
        members.into_iter().filter(|member| member.starts_with("hf1.")).collect()
    }

    /// By how much the fence of a share exceeds those that were issued before.
    fn fence_of(&self, sharer: &str) -> u64 {
        let score = self.score(&format!("#{sharer}"));
        score.strip_prefix('-').unwrap().parse::<u64>().unwrap() - NOW_US
    }

    fn change(&self, epoch_us: u64, taking: &[&str], leaving: &[&str]) -> Reply {
        let tokens = |of: &[&str]| of.iter().map(|text| token(text)).collect::<Vec<_>>();
        let (taking, leaving) = (tokens(taking), tokens(leaving));
        self.run(&Call::ChangeShares {
            keys: keys(),
            token: token(A),
            ttl: ms(600),
            epoch: ServerTime::from_micros(epoch_us),
            taking,
            leaving,
        })
    }

    fn hand_off(&self, ttl_ms: u64, mode: Mode) -> Call {
        let _ = self;
        Call::HandoffShare {
            keys: keys(),
            token: token(A),
            epoch: ServerTime::from_micros(NOW_US),
            successor: token(B),
            ttl: ms(ttl_ms),
            mode,
        }
    }

    fn hands_off(&self, ttl_ms: u64, limit: u64) -> Reply {
        self.run(&self.hand_off(ttl_ms, Mode::permits(1, limit)))
    }

    fn adopt(&self, owner: &str, ttl_ms: u64, mode: Mode) -> Reply {
        self.adopt_as(B, owner, ttl_ms, mode)
    }

    fn adopt_as(&self, adopter: &str, owner: &str, ttl_ms: u64, mode: Mode) -> Reply {
        let (keys, token, owner) = (keys(), token(adopter), token(owner));
        let epoch = ServerTime::from_micros(NOW_US);
        self.run(&Call::Adopt { keys, token, epoch, owner, ttl: ms(ttl_ms), mode })
    }

    fn join(&self, who: &str, mode: Mode) -> Reply {
        self.ask_for(who, mode, Intent::Try)
    }

    fn ask_for(&self, who: &str, mode: Mode, intent: Intent) -> Reply {
        self.run(&Call::Acquire {
            keys: keys(),
            token: token(who),
            ttl: ms(600),
            epoch: ServerTime::default(),
            block: 1,
            inbox: "".into(),
            intent,
            mode,
        })
    }
}

#[test]
fn shares_of_a_free_lock_are_taken_together_with_fences_in_order() {
    let bench = Bench::new().counting();
    let changed = Reply::Changed { fence: NOW_US + 1, beside: false };
    assert_eq!(bench.change(NOW_US, &[A, B, C], &[]), changed);
    assert_eq!(bench.lock(), (SHARED.to_owned(), 600));
    assert_eq!(bench.left(&keys().shared()), 30_600);
    assert_eq!([A, B, C].map(|it| bench.score(it)), [at(600), at(600), at(600)]);
    assert_eq!([A, B, C].map(|it| bench.fence_of(it)), [1, 2, 3]);
    assert_eq!(bench.0.fence(Mono::default()), Some(NOW_US + 3));
}

#[test]
fn nothing_is_left_of_earlier_shares_when_a_free_lock_is_shared() {
    let bench = Bench::new().counting();
    bench.record("hf1.z.1", &at(900));
    assert_eq!(
        bench.change(NOW_US, &[A], &[]),
        Reply::Changed { fence: NOW_US + 1, beside: false }
    );
    assert_eq!((bench.score("hf1.z.1"), bench.lock().1), (String::new(), 600));
}

#[test]
fn shares_are_taken_and_given_up_beside_others() {
    let shared = || Bench::shared(&[(A, 300, "77"), (B, 900, "78")]).counting();
    let bench = shared();
    assert_eq!(bench.change(NOW_US, &[C], &[]), Reply::Changed { fence: NOW_US + 1, beside: true });
    assert_eq!((bench.lock().1, bench.left(&keys().shared())), (900, 30_900), "the last counts");
    assert_eq!(bench.sharers(), [A, C, B]);
    let bench = shared();
    assert_eq!(
        bench.change(NOW_US, &[C], &[B]),
        Reply::Changed { fence: NOW_US + 1, beside: true }
    );
    assert_eq!((bench.sharers(), bench.lock().1), (vec![A.to_owned(), C.to_owned()], 600));
    assert_eq!(bench.score("#hf1.b.1"), "");
    let bench = shared();
    let left = Reply::Changed { fence: 0, beside: true };
    assert_eq!(bench.change(NOW_US, &[], &[B]), left);
    assert_eq!((bench.sharers(), bench.lock().1), (vec![A.to_owned()], 300));
    assert_eq!(bench.0.fence(Mono::default()), Some(NOW_US), "nobody needs one");
    assert_eq!(bench.change(NOW_US, &[], &[A]), left);
    assert_eq!((bench.lock().1, bench.left(&keys().shared())), (-2, -2));
}

#[test]
fn nothing_is_changed_together_that_each_must_ask_alone() {
    let is_unchanged = |bench: Bench, taking: &[&str], leaving: &[&str], why: &str| {
        let bench = bench.counting();
        let state = || (bench.lock(), bench.ask(&["ZRANGE", &keys().shared(), "0", "-1"]));
        let before = state();
        assert_eq!(bench.change(NOW_US, taking, leaving), GONE, "{why}");
        assert_eq!(state(), before, "{why}");
    };
    let shared = || Bench::shared(&[(A, 300, "77"), (B, 900, "78")]);
    let bench = shared();
    bench.enqueue("hf1.d.1", "5 1000 1 0 0 ");
    is_unchanged(bench, &[C], &[], "others wait");
    is_unchanged(Bench::new(), &[C], &[A], "a free lock has no shares");
    is_unchanged(Bench::with(A), &[C], &[], "it is held as a whole");
    is_unchanged(Bench::with("hf1.shared+"), &[C], &[], "others may wait");
    is_unchanged(Bench::with("hf1.shared.hf1.a.1"), &[C], &[], "the lone share has no record");
    is_unchanged(Bench::with(SHARED), &[C], &[], "no share is left");
    is_unchanged(Bench::shared(&[(A, 300, "77"), (B, 0, "78")]), &[C], &[], "one has ended");
    for member in ["?hf1.a.1", "*"] {
        let bench = shared();
        bench.record(member, "-5");
        is_unchanged(bench, &[C], &[], member);
    }
    is_unchanged(shared(), &[C, A], &[], "it has a share");
    is_unchanged(shared(), &[C], &[B, "hf1.d.1"], "it has none");
    is_unchanged(shared(), &[], &["hf1.d.1"], "it has none");
}

#[test]
fn shares_are_taken_together_only_where_the_counter_is_sound() {
    let take = |counter: Option<u64>, epoch_us| {
        let bench = Bench::new();
        if let Some(counter) = counter {
            bench.0.set_fence(Mono::default(), counter);
        }
        match bench.change(epoch_us, &[A, B], &[]) {
            Reply::Changed { fence, beside: false } => {
                assert_eq!(bench.0.fence(Mono::default()), Some(fence + 1));
                Some(fence)
            }
            other => {
                assert_eq!((other, bench.lock().1), (GONE, -2));
                None
            }
        }
    };
    let least = 1_000_000_000_000_000;
    assert_eq!(take(None, NOW_US), None);
    assert_eq!(take(Some(least - 1), least), None);
    assert_eq!(take(Some(least), least), Some(least + 1));
    assert_eq!(take(Some(NOW_US), NOW_US + 1), Some(NOW_US + 1));
    assert_eq!(take(Some(NOW_US), NOW_US + 2), Some(NOW_US + 2), "the epoch lifts it");
    assert_eq!(take(Some(NOW_US + year_us()), NOW_US), Some(NOW_US + year_us() + 1));
    assert_eq!(take(Some(NOW_US + year_us() + 1), NOW_US), None);
}

#[test]
fn a_share_is_handed_off_until_its_end() {
    let (fence, waiting) = (NOW_US + 1, 0);
    for (value, ends, reply) in [
        (SHARED, 1, Reply::HandedOff { fence, waiting }),
        ("hf1.shared+", 1, Reply::HandedOff { fence, waiting }),
        (SHARED, 0, GONE),
        (A, 1, GONE),
        (B, 1, GONE),
    ] {
        let bench = Bench::shared(&[(A, ends, "77")]).counting();
        bench.set(value, 500);
        bench.record("?hf1.a.1", "-5");
        assert_eq!(bench.hands_off(600, 1), reply, "{value}, {ends}");
        assert_eq!(bench.score("?hf1.a.1"), "", "its owner is not silent");
        let is_handed_off = reply != GONE;
        assert_eq!((bench.score(B).is_empty(), bench.lock().0.as_str()), (!is_handed_off, value));
        assert_eq!(bench.score(A).is_empty(), is_handed_off, "{value}, {ends}");
        if is_handed_off {
            assert_eq!((bench.score(B), bench.fence_of(B)), (at(600), 1));
            assert_eq!((bench.score("#hf1.a.1"), bench.lock().1), (String::new(), 600));
        }
    }
}

#[test]
fn a_lone_share_is_not_handed_off() {
    let bench = Bench::with("hf1.shared.hf1.a.1").counting();
    assert_eq!((bench.hands_off(600, 9), bench.lock().1), (Reply::More, 500));
    let bench = Bench::with("hf1.shared.hf1.b.1").counting();
    assert_eq!((bench.hands_off(600, 9), bench.lock().1), (GONE, 500));
}

#[test]
fn a_share_is_handed_off_within_the_limit_of_its_successor() {
    let shared = || Bench::shared(&[(A, 500, "77"), (C, 500, "78"), ("hf1.d.1", 0, "79")]);
    let handed_off = Reply::HandedOff { fence: NOW_US + 1, waiting: 0 };
    for (further, limit, reply) in [
        (None, 2, &handed_off),
        (None, 1, &Reply::More),
        (Some("-2"), 4, &handed_off),
        (Some("-2"), 3, &Reply::More),
    ] {
        let bench = shared().counting();
        bench.record("?hf1.a.1", "-5");
        if let Some(further) = further {
            bench.record("*", further);
        }
        assert_eq!(bench.hands_off(600, limit), *reply, "{further:?}, {limit}");
        assert_eq!(bench.score("?hf1.a.1"), "");
        assert_eq!(bench.score(A).is_empty(), *reply == handed_off);
    }
    let bench = shared().counting();
    let whole = bench.hand_off(600, Mode::Exclusive);
    assert_eq!((bench.run(&whole), bench.score(A)), (Reply::More, at(500)));
}

#[test]
fn a_lock_lasts_as_long_as_its_shares_after_a_handoff() {
    for (own, other, ttl_ms, left) in [
        (900, 100, 500, 500),
        (900, 700, 500, 700),
        (500, 100, 500, 900),
        (500, 100, 950, 950),
        (400, 900, 500, 900),
    ] {
        let bench = Bench::shared(&[(A, own, "77"), (C, other, "78")]).counting();
        bench.set(SHARED, 900);
        bench.ask(&["PEXPIRE", &keys().shared(), "30900"]);
        let handed_off = Reply::HandedOff { fence: NOW_US + 1, waiting: 0 };
        assert_eq!(bench.hands_off(ttl_ms, 2), handed_off);
        let (lock_left, set_left) = (bench.lock().1, bench.left(&keys().shared()));
        assert_eq!((lock_left, set_left), (left, left + 30_000), "{own}, {other}, {ttl_ms}");
    }
}

#[test]
fn a_handoff_counts_who_waits_and_begins_the_counter() {
    let bench = Bench::shared(&[(A, 500, "77")]);
    for token in ["hf1.d.1", "hf1.e.1"] {
        bench.enqueue(token, "T 1000 1 0 - ");
    }
    assert_eq!(bench.hands_off(600, 1), Reply::HandedOff { fence: NOW_US, waiting: 2 });
    let bench = Bench::shared(&[(A, 500, "77")]);
    bench.0.set_fence(Mono::default(), NOW_US + year_us() + 1);
    assert_eq!(bench.refusal(&bench.hand_off(600, Mode::permits(1, 1))), "FENCE");
    assert_eq!((bench.score(A), bench.score(B)), (at(500), String::new()), "nothing is changed");
    assert_eq!(bench.0.fence(Mono::default()), Some(NOW_US + year_us() + 1));
}

#[test]
fn a_whole_lock_is_adopted_by_its_token_and_never_shortened() {
    for (value, ttl_ms, left, is_adopted) in [
        (A, 400, 500, true),
        (A, 600, 600, true),
        ("hf1.a.1+", 600, 600, true),
        (B, 600, 600, true),
        (C, 600, 500, false),
    ] {
        let bench = Bench::with(value).counting();
        let reply = bench.adopt(A, ttl_ms, Mode::Exclusive);
        let adopted = if is_adopted { Reply::Granted { fence: NOW_US + 1 } } else { GONE };
        assert_eq!((reply, bench.lock().1), (adopted, left), "{value}, {ttl_ms}");
        assert_eq!(bench.lock().0, if is_adopted { B } else { C });
    }
    assert_eq!(Bench::new().adopt(A, 600, Mode::Exclusive), GONE, "it is free");
}

#[test]
fn an_adopted_lock_is_marked_while_others_wait_and_has_no_earlier_records() {
    for (adopter, value) in [(B, "hf1.b.1+"), ("theirs", "theirs")] {
        let bench = Bench::with("hf1.a.1+").counting();
        bench.enqueue(C, "T 1000 1 0 - ");
        bench.ask(&["HSET", &keys().waiters(), "unclaimed", A]);
        bench.record("hf1.z.1", &at(900));
        let reply = bench.adopt_as(adopter, A, 600, Mode::Exclusive);
        assert_eq!(reply, Reply::Granted { fence: NOW_US + 1 });
        assert_eq!(bench.lock(), (value.to_owned(), 600));
        assert_eq!((bench.waiter("unclaimed"), bench.score("hf1.z.1")), Default::default());
    }
}

#[test]
fn a_share_is_adopted_until_its_end_and_never_shortened() {
    for (ends, ttl_ms, adopted, left, longer) in [
        (900, 600, true, 900, 909),
        (900, 950, true, 950, 959),
        (1, 600, true, 600, 609),
        (0, 600, false, -2, 0),
    ] {
        let bench = Bench::shared(&[(A, ends, "77")]).counting();
        let reply = bench.adopt(A, ttl_ms, Mode::SHARED);
        let granted = if adopted { Reply::Granted { fence: NOW_US + 1 } } else { GONE };
        assert_eq!((reply, bench.lock().1), (granted.clone(), left), "{ends}, {ttl_ms}");
        if adopted {
            assert_eq!((bench.sharers(), bench.fence_of(B)), (vec![B.to_owned()], 1));
            assert_eq!((bench.score(B), bench.score("#hf1.a.1")), (at(left), String::new()));
            assert_eq!(bench.adopt(A, longer, Mode::SHARED), granted, "the same again");
            assert_eq!((bench.score(B), bench.lock().1), (at(left + 9), left + 9));
            assert_eq!(bench.adopt(A, 1, Mode::SHARED), granted);
            assert_eq!(bench.lock().1, left + 9, "never shortened");
        }
    }
}

#[test]
fn a_share_is_adopted_by_who_wants_one_with_as_many_permits() {
    let (two, also_two) = ("hf1.a.1/9/2", "hf1.b.1/9/2");
    let granted = Reply::Granted { fence: NOW_US + 1 };
    for (adopter, owner, mode, reply) in [
        (B, A, Mode::SHARED, &granted),
        (B, A, Mode::permits(1, 9), &granted),
        (B, A, Mode::Exclusive, &GONE),
        (B, two, Mode::SHARED, &GONE),
        (also_two, two, Mode::permits(2, 9), &granted),
        (also_two, A, Mode::permits(2, 9), &GONE),
    ] {
        let bench = Bench::shared(&[(A, 500, "77"), (two, 500, "78")]).counting();
        bench.record("*", "-1");
        assert_eq!(bench.adopt_as(adopter, owner, 600, mode), *reply, "{adopter}, {owner}");
        assert_eq!(bench.score(owner).is_empty(), *reply == granted);
        assert_eq!(bench.score("*"), "-1", "as many permits as before");
    }
}

#[test]
fn the_whole_lock_becomes_a_share_with_the_fence_of_its_owner() {
    let downgrade = |bench: &Bench| {
        let (keys, token, epoch) = (keys(), token(A), ServerTime::from_micros(NOW_US));
        bench.run(&Call::Downgrade { keys, token, epoch, fence: 77 })
    };
    for value in [A, "hf1.a.1+"] {
        let bench = Bench::with(value).counting();
        bench.record("hf1.z.1", &at(900));
        assert_eq!(downgrade(&bench), Reply::Owner(true));
        assert_eq!((bench.lock(), bench.sharers()), ((SHARED.to_owned(), 500), vec![A.to_owned()]));
        assert_eq!((bench.score(A), bench.score("#hf1.a.1")), (at(500), "-77".to_owned()));
        assert_eq!((downgrade(&bench), bench.lock().1), (Reply::Owner(true), 500), "once more");
    }
    for value in [B, "hf1.b.1+", "theirs"] {
        let bench = Bench::with(value).counting();
        assert_eq!((downgrade(&bench), bench.lock()), (GONE, (value.to_owned(), 500)));
    }
    for (ends, is_there) in [(0, false), (1, true)] {
        let bench = Bench::shared(&[(A, ends, "77"), (B, 500, "78")]).counting();
        assert_eq!(downgrade(&bench), Reply::Owner(is_there));
    }
    let bench = Bench::with("hf1.a.1+").counting();
    bench.enqueue(B, &format!("{} 1000 1 0 0 ", at(5_000)));
    assert_eq!((downgrade(&bench), bench.lock()), (Reply::Owner(true), (SHARED.to_owned(), 1_000)));
    assert_eq!((bench.sharers(), bench.fence_of(B)), (vec![A.to_owned(), B.to_owned()], 1));
}

#[test]
fn a_share_is_taken_while_all_its_permits_fit() {
    let three = |limit| Mode::permits(3, limit);
    let (fence, joined) = (NOW_US + 1, Reply::Joined { fence: NOW_US + 1 });
    for (shares, who, mode, reply) in [
        (&[(A, 500, "77")][..], B, Mode::permits(1, 2), Some(&joined)),
        (&[(A, 500, "77")], B, Mode::permits(1, 1), None),
        (&[(A, 500, "77"), (C, 500, "78")], B, Mode::permits(1, 2), None),
        (&[(A, 500, "77"), (C, 500, "78")], B, Mode::permits(1, 3), Some(&joined)),
        (&[(A, 500, "77"), (C, 0, "78")], B, Mode::permits(1, 2), Some(&joined)),
        (&[(A, 500, "77"), (C, 0, "78")], B, Mode::permits(1, 1), None),
        (&[(A, 500, "77")], B, Mode::SHARED, Some(&joined)),
        (&[(A, 0, "77")], B, Mode::permits(1, 1), Some(&Reply::Granted { fence })),
        (&[(A, 500, "77")], THREE, three(4), Some(&joined)),
        (&[(A, 500, "77")], THREE, three(3), None),
        (&[(A, 0, "77")], THREE, three(3), Some(&Reply::Granted { fence })),
    ] {
        let bench = Bench::shared(shares).counting();
        let answer = bench.join(who, mode);
        if let Some(reply) = reply {
            assert_eq!((&answer, bench.score(who)), (reply, at(600)), "{shares:?}, {mode:?}");
            let further = if who == THREE { "-2" } else { "" };
            assert_eq!((bench.score("*").as_str(), bench.fence_of(who)), (further, 1));
            assert_eq!(bench.lock(), (SHARED.to_owned(), 600));
        } else {
            assert!(matches!(answer, Reply::Held(_)), "{shares:?}, {mode:?}: {answer:?}");
            assert_eq!((bench.score(who), bench.lock().1), (String::new(), 500));
        }
    }
}

#[test]
fn the_further_permits_of_others_count() {
    for (limit, joins) in [(4, true), (3, false)] {
        let bench = Bench::shared(&[(THREE, 500, "77")]).counting();
        bench.record("*", "-2");
        let answer = bench.join(B, Mode::permits(1, limit));
        assert_eq!(answer == Reply::Joined { fence: NOW_US + 1 }, joins, "{answer:?}");
        assert_eq!((bench.score(B).is_empty(), bench.score("*").as_str()), (!joins, "-2"));
    }
}

#[test]
fn permits_of_an_ended_share_are_not_counted_once_more() {
    let bench = Bench::shared(&[("hf1.u.1/9/3", 500, "77"), (THREE, 0, "78")]).counting();
    bench.record("*", "-4");
    let reply = bench.adopt_as(THREE, "hf1.u.1/9/3", 600, Mode::permits(3, 9));
    assert_eq!(reply, Reply::Granted { fence: NOW_US + 1 });
    assert_eq!((bench.score("*").as_str(), bench.sharers()), ("-2", vec![THREE.to_owned()]));
}

#[test]
fn what_other_code_has_written_is_no_fence_of_a_share() {
    for (score, fence) in [
        ("-1", Some(1)),
        ("-9007199254740991", Some((1 << 53) - 1)),
        ("-9007199254740992", None),
        ("0", None),
        ("5", None),
    ] {
        let bench = Bench::shared(&[(B, 500, "77")]).counting();
        bench.record("#hf1.b.1", score);
        let reply = fence.map_or(GONE, |fence| Reply::Granted { fence });
        assert_eq!(bench.adopt(A, 600, Mode::SHARED), reply, "{score}");
    }
}

#[test]
fn the_last_share_of_a_marked_lock_takes_the_lock_with_it() {
    for (own, other, freed, left) in
        [(500, 900, true, 900), (500, 1, true, 1), (500, 0, true, -2), (0, 900, false, 900)]
    {
        let bench = Bench::shared(&[(A, own, "77"), (C, other, "78")]).counting();
        bench.set("hf1.shared+", 500);
        assert_eq!(bench.release(A), Reply::Owner(freed), "{own}, {other}");
        let value = if left > 0 { SHARED } else { "" };
        assert_eq!(bench.lock(), (value.to_owned(), left), "{own}, {other}");
    }
}

#[test]
fn permits_are_given_back_with_their_share_and_once() {
    let bench = Bench::shared(&[(THREE, 500, "77"), (A, 500, "78")]).counting();
    bench.record("*", "-2");
    let leave = |who: &str| bench.run(&Call::FreeShare { keys: keys(), token: token(who) });
    assert_eq!((leave(A), bench.score("*")), (Reply::Owner(true), "-2".to_owned()));
    bench.record(A, &at(500));
    let without = "hf1.u.1/9/3";
    assert_eq!((leave(without), bench.score("*")), (GONE, "-2".to_owned()), "it has none");
    assert_eq!((bench.release(without), bench.score("*")), (GONE, "-2".to_owned()));
    assert_eq!((leave(THREE), bench.score("*")), (Reply::Owner(true), String::new()));
    let bench = Bench::shared(&[(THREE, 500, "77"), (A, 500, "78")]).counting();
    bench.record("*", "-5");
    assert_eq!((bench.release(THREE), bench.score("*")), (Reply::Owner(true), "-3".to_owned()));
}

#[test]
fn who_finds_no_room_learns_whose_share_makes_it() {
    let bench =
        || Bench::shared(&[(A, 300, "77"), (C, 400, "78"), ("hf1.d.1", 0, "79")]).counting();
    let ask = |bench: &Bench, mode, intent| match bench.ask_for(B, mode, intent) {
        Reply::Held(held) => held,
        other => panic!("{other:?}"),
    };
    let held = ask(&bench(), Mode::Exclusive, Intent::Try);
    let seen = (held.holder.as_str(), held.sharer.as_str(), held.sharers, held.remaining);
    assert_eq!(seen, (SHARED, C, 2, Some(ms(400))), "the last one");
    assert_eq!((held.queued, held.queueing, held.awaited), (None, true, None));
    assert_eq!(&*held.owners, "-78", "by the newest fence of those that last");
    let held = ask(&bench(), Mode::permits(1, 2), Intent::Try);
    assert_eq!((held.sharer.as_str(), held.remaining), (A, Some(ms(300))), "the first one");

    let bench = bench();
    bench.enqueue("hf1.w.1", &format!("{} 1000 1 0 - ", at(2_500)));
    let held = ask(&bench, Mode::SHARED, Intent::Join(None));
    assert_eq!(held.awaited, Some(ms(2_500)), "the first waiter is waited for");
    assert_eq!((held.queued.map(|it| it.position), held.queueing), (Some(2), false));
    assert_eq!(bench.lock().0, "hf1.shared+", "the release must serve the queue");
}
