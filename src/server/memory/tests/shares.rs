//! Shares that are taken and given up together end as if each caller had asked alone.

use super::START_MS;
use crate::protocol::{Call, Counters, Failure, Intent, LockKeys, Mode, Reply, ServerTime, Token};
use crate::server::embedded::{ask, execute};
use crate::server::memory::Store;
use std::time::Duration;

const LOCK: &str = "lock:a";
const ROUNDS: u64 = 400;

/// A lock's data, and what the calls of one round are made of.
struct World {
    store: Store,
    now_ms: u64,
}

impl World {
    fn run(&mut self, call: &Call) -> Result<Reply, Failure> {
        let now = ServerTime::from_micros(self.now_ms * 1_000 + 42);
        execute(&mut self.store, now, call, Counters::Server, |script| script.source().into())
    }

    /// All that the keys of the lock hold. The set of shares may be kept for longer than by others.
    fn data(&self) -> Vec<Vec<String>> {
        let now = ServerTime::from_micros(self.now_ms * 1_000 + 42);
        let keys = LockKeys::from_key(LOCK);
        let (shared, queue) = (keys.shared(), keys.queue());
        let counter = keys.counter(Counters::Server).to_string();
        let asked = |parts: &[&str]| ask(&self.store, now, parts);
        vec![
            asked(&["GET", LOCK]),
            asked(&["PTTL", LOCK]),
            asked(&["GET", &counter]),
            asked(&["ZRANGE", &shared, "0", "-1", "WITHSCORES"]),
            asked(&["ZRANGE", &queue, "0", "-1", "WITHSCORES"]),
        ]
    }

    fn holders(&self) -> Vec<Token> {
        let now = ServerTime::from_micros(self.now_ms * 1_000 + 42);
        let shared = LockKeys::from_key(LOCK).shared();
        let members = ask(&self.store, now, &["ZRANGE", &shared, "0", "-1"]);
        members.iter().map(|member| Token::from_text(member)).collect()
    }

    /// The lock after the steps of a seed.
    fn of(seed: u64) -> Self {
        let mut world = Self { store: Store::new(), now_ms: START_MS };
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..rng.u8(..8) {
            world.now_ms += rng.u64(..30);
            let token = token(rng.u8(..8));
            let call = match rng.u8(..10) {
                0..5 => acquire(token, rng.u64(20..200), Mode::SHARED),
                5 => acquire(token, 50, Mode::permits(1, 2)),
                6 => acquire(token, 50, Mode::Exclusive),
                7 => Call::Take {
                    keys: LockKeys::from_key(LOCK),
                    token: if rng.bool() { token.lone_share() } else { token },
                    ttl: Duration::from_millis(50),
                    block: 1,
                },
                _ => release(token),
            };
            // Whatever it answers.
            drop(world.run(&call));
        }
        world
    }
}

fn token(number: u8) -> Token {
    Token::from_text(&format!("hf1.c.{number}"))
}

fn acquire(token: Token, ttl_ms: u64, mode: Mode) -> Call {
    Call::Acquire {
        keys: LockKeys::from_key(LOCK),
        token,
        ttl: Duration::from_millis(ttl_ms),
        epoch: ServerTime::from_micros(START_MS * 1_000),
        block: 1,
        inbox: "inbox".into(),
        intent: Intent::Join(None),
        mode,
    }
}

fn release(token: Token) -> Call {
    let epoch = ServerTime::from_micros(START_MS * 1_000);
    Call::Release { keys: LockKeys::from_key(LOCK), token, epoch, shared: true }
}

#[test]
fn together_or_alone_is_the_same() {
    let (mut done, mut refused) = (0, 0);
    for seed in 0..ROUNDS {
        let mut rng = fastrand::Rng::with_seed(!seed);
        let (mut together, mut alone) = (World::of(seed), World::of(seed));
        let mut some = || (0..8).filter(|_| rng.bool()).map(token).collect::<Vec<_>>();
        let (mut taking, mut leaving) = (some(), some());
        // Most of those that take one have none, and most of those that leave have one.
        if rng.u8(..6) > 0 {
            let held = together.holders();
            taking.retain(|token| !held.contains(token));
            leaving.retain(|token| held.contains(token));
        }
        let Some(first) = taking.first().or_else(|| leaving.first()) else { continue };
        let (ttl_ms, before) = (rng.u64(20..200), together.data());
        let call = Call::ChangeShares {
            keys: LockKeys::from_key(LOCK),
            token: first.clone(),
            ttl: Duration::from_millis(ttl_ms),
            epoch: ServerTime::from_micros(START_MS * 1_000),
            taking: taking.clone(),
            leaving: leaving.clone(),
        };
        let Reply::Changed { fence, beside } = together.run(&call).unwrap() else {
            refused += 1;
            let (counter, after) = (2, together.data());
            for part in (0..after.len()).filter(|part| *part != counter) {
                assert_eq!(after[part], before[part], "seed {seed}: nothing is changed");
            }
            continue;
        };
        done += 1;
        for (token, its_fence) in taking.into_iter().zip(fence..) {
            let is_first = !beside && its_fence == fence;
            let joined = Reply::Joined { fence: its_fence };
            let expected = if is_first { Reply::Granted { fence } } else { joined };
            let reply = alone.run(&acquire(token, ttl_ms, Mode::SHARED));
            assert_eq!(reply, Ok(expected), "seed {seed}");
        }
        for token in leaving {
            assert_eq!(alone.run(&release(token)), Ok(Reply::Owner(true)), "seed {seed}");
        }
        assert_eq!(together.data(), alone.data(), "seed {seed}");
    }
    assert!(done > ROUNDS / 20 && refused > ROUNDS / 20, "{done} and {refused}");
}

/// 1. A has three permits of five, and B has one.
/// 2. A gives its share up. C gets four permits, and there is none for D.
#[test]
fn permits_are_given_back_however_their_share_ends() {
    let of = |name: &str| Token::from_text(&format!("hf1.{name}"));
    let takes = |world: &mut World, name, permits| {
        let reply = world.run(&acquire(of(name), 60_000, Mode::permits(permits, 5)));
        matches!(reply, Ok(Reply::Granted { .. } | Reply::Joined { .. }))
    };
    let (keys, token) = (LockKeys::from_key(LOCK), of("a.1/5/3"));
    let ways = [release(token.clone()), Call::FreeShare { keys, token }];
    for way in ways {
        let mut world = World { store: Store::new(), now_ms: START_MS };
        assert!(takes(&mut world, "a.1/5/3", 3) && takes(&mut world, "b.1/5", 1), "four of five");
        assert_eq!(world.run(&way), Ok(Reply::Owner(true)), "{way:?}");
        assert!(takes(&mut world, "c.1/5/4", 4), "A's three are free after {way:?}");
        assert!(!takes(&mut world, "d.1/5", 1), "all five are taken");
    }
}
