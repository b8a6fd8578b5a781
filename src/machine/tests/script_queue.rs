//! Single calls of the scripts about the wait queue: its order, its records, and whom it grants what.

use super::script_effects::{A, B, Bench, NOW_MS, NOW_US, SHARED, at, keys, token};
use super::world::ms;
use crate::protocol::{Call, HeldBy, Intent, Message, Mode, Mono, Reply, ServerTime};

const C: &str = "hf1.c.1";
const D: &str = "hf1.d.1";

impl Bench {
    fn wait_as(&self, who: &str, intent: Intent, mode: Mode) -> Reply {
        self.run(&Call::Acquire {
            keys: keys(),
            token: token(who),
            ttl: ms(600),
            epoch: ServerTime::default(),
            block: 2,
            inbox: "inbox".into(),
            intent,
            mode,
        })
    }

    fn joins(&self, who: &str, seq: Option<u64>) -> HeldBy {
        match self.wait_as(who, Intent::Join(seq), Mode::Exclusive) {
            Reply::Held(held) => *held,
            other => panic!("{other:?}"),
        }
    }

    /// Its position and number in the queue.
    fn place(&self, who: &str, seq: Option<u64>) -> (u32, u64) {
        let queued = self.joins(who, seq).queued.expect("it is in the queue");
        (queued.position, queued.seq)
    }

    /// Enqueues with a number, as heard of so many ms from now.
    fn waits(&self, who: &str, seq: u64, heard_ms: i64, rest: &str) {
        self.enqueue(who, &format!("{} {rest}", at(heard_ms + 6_000)));
        self.ask(&["ZADD", &keys().queue(), &seq.to_string(), who]);
    }

    fn queue(&self) -> Vec<String> {
        self.ask(&["ZRANGE", &keys().queue(), "0", "-1"])
    }

    /// A release by who owns nothing, which serves the queue.
    fn serve(&self) -> Reply {
        self.release("hf1.z.1")
    }
}

#[test]
fn who_joins_stands_at_the_end_and_marks_the_lock() {
    let bench = Bench::with(A);
    let held = bench.joins(B, None);
    assert_eq!((held.holder.as_str(), held.remaining, &*held.owners), (A, Some(ms(500)), A));
    assert_eq!(held.queued.map(|it| (it.position, it.seq)), Some((1, NOW_US)));
    assert_eq!(bench.lock(), ("hf1.a.1+".to_owned(), 500));
    assert_eq!(bench.waiter(B), format!("{} 600 2 0 - inbox", at(6_000)));
    let lasts = [keys().queue(), keys().waiters(), keys().waiting()].map(|key| bench.left(&key));
    assert_eq!(lasts, [30_000; 3]);
    assert_eq!(bench.place(C, None), (2, NOW_US + 1), "two of one moment");
    assert_eq!(bench.place(B, None), (1, NOW_US), "the same as before");
    assert_eq!(bench.lock(), ("hf1.a.1+".to_owned(), 500));
}

#[test]
fn an_entry_moves_back_and_never_ahead() {
    let bench = Bench::with(A);
    assert_eq!(bench.place(B, Some(5)), (1, 5));
    assert_eq!(bench.place(C, Some(4)), (1, 4));
    for (asked, placed) in [(4, (2, 5)), (5, (2, 5)), (6, (2, 6)), (3, (2, 6))] {
        assert_eq!(bench.place(B, Some(asked)), placed, "{asked}");
    }
    assert_eq!(bench.place(C, Some(7)), (2, 7));
    assert_eq!(bench.place(D, None), (3, NOW_US));
    let polled = bench.wait_as("hf1.e.1", Intent::Poll, Mode::Exclusive);
    assert!(matches!(polled, Reply::Held(held) if held.queued.is_none() && held.queueing));
}

#[test]
fn a_call_of_its_manager_ends_the_silence_about_a_grant() {
    for (unclaimed, is_cleared) in [("hf1.b.9", true), ("hf1.d.9", false)] {
        let bench = Bench::with(A);
        bench.ask(&["HSET", &keys().waiters(), "unclaimed", unclaimed]);
        bench.joins(B, None);
        assert_eq!(bench.waiter("unclaimed").is_empty(), is_cleared, "{unclaimed}");
    }
}

#[test]
fn a_release_grants_the_lock_to_the_first_and_tells_it() {
    let bench = Bench::with("hf1.a.1+");
    bench.0.subscribe(1, "holdfast:inbox:x");
    bench.waits(B, 7, 0, "1000 4 0 - holdfast:inbox:x");
    bench.waits(C, 8, 0, "1000 1 0 - holdfast:inbox:x");
    assert_eq!(bench.release(A), Reply::Owner(true));
    assert_eq!(bench.lock(), ("hf1.b.1+".to_owned(), 1_000));
    assert_eq!((bench.queue(), bench.waiter("unclaimed")), (vec![C.to_owned()], B.to_owned()));
    assert_eq!(bench.0.fence(Mono::default()), Some(NOW_US + 3), "four are reserved");
    let Some(Message::Granted(grants)) = bench.0.next_mail(1) else { panic!("no message") };
    let told: Vec<_> = grants.iter().map(|it| (it.token.as_str(), it.fence, it.claim)).collect();
    assert_eq!(told, [(B, NOW_US, ms(1_000))]);
    assert_eq!((grants[0].time.as_micros(), &grants[0].keys), (NOW_US, &keys()));
    assert_eq!(bench.0.next_mail(1), None);
}

#[test]
fn shares_are_granted_together_by_one_message_up_to_who_wants_the_whole() {
    let bench = Bench::with("hf1.a.1+");
    bench.0.subscribe(1, "holdfast:inbox:x");
    bench.waits(B, 7, 0, "1000 1 0 0 holdfast:inbox:x");
    bench.waits("hf1.b.2", 8, 0, "5000 1 0 3 holdfast:inbox:x");
    bench.waits(C, 9, 0, "1000 1 0 - holdfast:inbox:x");
    bench.waits(D, 10, 0, "1000 1 0 0 holdfast:inbox:x");
    bench.ask(&["ZADD", &keys().shared(), &at(900), "hf1.y.1"]);
    assert_eq!(bench.release(A), Reply::Owner(true));
    assert_eq!(bench.lock(), ("hf1.shared+".to_owned(), 3_000), "until they are claimed");
    assert_eq!(bench.queue(), [C, D]);
    assert_eq!([bench.score(B), bench.score("hf1.b.2")], [at(1_000), at(3_000)]);
    let unclaimed = format!("-{NOW_MS}");
    assert_eq!([bench.score("?hf1.b.1"), bench.score("?hf1.b.2")], [&*unclaimed, &unclaimed]);
    assert_eq!((bench.score("hf1.y.1"), bench.waiter("unclaimed")), Default::default());
    let Some(Message::Granted(grants)) = bench.0.next_mail(1) else { panic!("no message") };
    let told: Vec<_> = grants.iter().map(|it| (it.token.as_str(), it.fence, it.claim)).collect();
    assert_eq!(told, [(B, NOW_US, ms(1_000)), ("hf1.b.2", NOW_US + 1, ms(3_000))]);
}

#[test]
fn a_waiter_that_asks_gets_the_lock_in_its_turn() {
    for (first, granted) in [(B, true), (C, false)] {
        let bench = Bench::new();
        for (seq, who) in [(7, first), (8, if granted { C } else { B })] {
            bench.waits(who, seq, 0, "1000 3 0 - ");
        }
        let reply = bench.wait_as(B, Intent::Poll, Mode::Exclusive);
        assert_eq!(reply == Reply::Granted { fence: NOW_US }, granted, "{reply:?}");
        assert_eq!(bench.lock().0, format!("{first}+"));
        assert_eq!(bench.waiter("unclaimed"), if granted { "" } else { C });
    }
}

#[test]
fn the_entries_of_a_manager_that_let_a_grant_pass_leave_unless_they_were_renewed_since() {
    for (heard_ms, first) in [(-1, D), (0, D), (1, B)] {
        let bench = Bench::new();
        bench.ask(&["HSET", &keys().waiters(), "unclaimed", "hf1.b.9"]);
        bench.waits(B, 7, heard_ms, "1000 1 0 - ");
        bench.waits(D, 8, -9, "1000 1 0 - ");
        assert_eq!(bench.serve(), Reply::Owner(false));
        assert_eq!(bench.waiter("unclaimed"), first, "{heard_ms}");
    }
    for (heard_ms, first) in [(-501, D), (-500, D), (-499, B)] {
        let bench = Bench::shared(&[("hf1.b.9", 0, "77"), ("hf1.b.8", 0, "78")]);
        for (member, granted_ms) in [("?hf1.b.9", 500), ("?hf1.b.8", 700)] {
            let score = format!("-{}", NOW_MS - granted_ms);
            bench.ask(&["ZADD", &keys().shared(), &score, member]);
        }
        bench.waits(B, 7, heard_ms, "1000 1 0 - ");
        bench.waits(D, 8, -900, "1000 1 0 - ");
        assert_eq!(bench.serve(), Reply::Owner(false));
        assert_eq!(bench.waiter("unclaimed"), first, "{heard_ms}");
    }
}

#[test]
fn the_caller_of_a_silent_manager_keeps_its_entry() {
    let bench = Bench::new();
    bench.ask(&["HSET", &keys().waiters(), "unclaimed", "hf1.b.9"]);
    bench.waits(B, 7, -9, "1000 1 0 - ");
    let reply = bench.wait_as(B, Intent::Poll, Mode::Exclusive);
    assert_eq!(reply, Reply::Granted { fence: NOW_US });
}

#[test]
fn one_call_looks_at_128_entries() {
    for (dead, more) in [(127, false), (128, true)] {
        let bench = Bench::with("hf1.a.1+");
        for seq in 0..dead {
            bench.waits(&format!("hf1.b.{seq}"), seq, -6_001, "1000 1 0 - ");
        }
        bench.waits(C, 1_000, 0, "1000 1 0 - ");
        let (first, then) = (bench.release(A), bench.lock().0);
        assert_eq!((first, then.as_str()), {
            if more { (Reply::More, "") } else { (Reply::Owner(true), "hf1.c.1+") }
        });
        bench.serve();
        assert_eq!(bench.lock().0, "hf1.c.1+");
    }
}

#[test]
fn the_mark_is_taken_off_once_the_last_waiter_has_left() {
    for (others, value) in [(false, A), (true, "hf1.a.1+")] {
        let bench = Bench::with("hf1.a.1+");
        bench.waits(B, 7, 0, "1000 1 0 - ");
        if others {
            bench.waits(C, 8, 0, "1000 1 0 - ");
        }
        bench.ask(&["HSET", &keys().waiters(), "unreached", &at(0)]);
        assert_eq!(bench.release(B), Reply::Owner(false));
        assert_eq!(bench.lock(), (value.to_owned(), 500));
        assert_eq!((bench.waiter(B).as_str(), bench.waiter("unreached").is_empty()), ("", !others));
        assert_eq!(bench.left(&keys().waiting()) == -2, !others);
    }
}

#[test]
fn an_owner_that_asks_again_is_confirmed_and_marked_while_others_wait() {
    for (value, waits, then) in
        [(A, false, A), (A, true, "hf1.a.1+"), ("hf1.a.1+", true, "hf1.a.1+")]
    {
        let bench = Bench::with(value);
        if waits {
            bench.waits(B, 7, 0, "1000 1 0 - ");
            bench.waits(A, 8, 0, "1000 1 0 - ");
        }
        let reply = bench.wait_as(A, Intent::Poll, Mode::Exclusive);
        assert_eq!(
            (reply, bench.lock()),
            (Reply::Granted { fence: NOW_US }, (then.to_owned(), 600))
        );
        assert!(bench.waiter(A).is_empty(), "its entry is gone");
    }
}

#[test]
fn a_share_that_plain_commands_have_taken_gets_its_records_when_another_is_asked_for() {
    let lone = "hf1.a.1/9/3";
    let bench = Bench::with("hf1.shared.hf1.a.1/9/3");
    bench.ask(&["ZADD", &keys().shared(), &at(900), "hf1.y.1"]);
    let joined = bench.wait_as(B, Intent::Try, Mode::permits(1, 4));
    assert_eq!(joined, Reply::Joined { fence: NOW_US + 2 });
    assert_eq!((bench.score(lone), bench.score("*")), (at(500), "-2".to_owned()));
    assert_eq!(bench.score("#hf1.a.1/9/3"), format!("-{NOW_US}.5"), "its owner alone knows it");
    assert_eq!((bench.score("hf1.y.1"), bench.lock()), (String::new(), (SHARED.to_owned(), 600)));
    assert_eq!(bench.left(&keys().shared()), 30_600);
    let bench = Bench::with("hf1.shared.hf1.a.1/9/3");
    assert!(matches!(bench.wait_as(B, Intent::Try, Mode::permits(1, 3)), Reply::Held(_)));
    assert_eq!((bench.lock(), bench.left(&keys().shared())), ((SHARED.to_owned(), 500), 30_500));
}
