//! The scripts of this crate run in the store.

use super::{Bench, bulk, int, refusal};
use crate::script::Script;
use redis::Value;

const KEYS: [&str; 2] = ["name", "name:fence"];
const EPOCH: i64 = 1_600_000_000_000_000;

fn acquire(bench: &mut Bench, token: &str, ttl_ms: &str) -> Value {
    bench.eval_with(Script::Acquire.source(), &KEYS, &[token, ttl_ms, &EPOCH.to_string()])
}

fn extend(bench: &mut Bench, token: &str, ttl_ms: &str) -> Value {
    bench.eval_with(Script::Extend.source(), &KEYS[..1], &[token, ttl_ms])
}

fn release(bench: &mut Bench, token: &str) -> Value {
    bench.eval_with(Script::Release.source(), &KEYS[..1], &[token])
}

#[test]
fn a_lock_has_one_owner_and_a_rising_fence() {
    let mut bench = Bench::new();
    let Value::Int(first) = acquire(&mut bench, "me", "1000") else { panic!("not granted") };
    assert_eq!(first, 1_700_000_000_000_042);
    assert_eq!(acquire(&mut bench, "me", "1000"), int(first));
    bench.pass_ms(400);
    assert_eq!(acquire(&mut bench, "you", "1000"), Value::Array(vec![int(600), bulk("me")]));
    assert_eq!((release(&mut bench, "you"), release(&mut bench, "me")), (int(0), int(1)));
    assert_eq!(acquire(&mut bench, "you", "1000"), int(first + 1));
    bench.pass_ms(1_001);
    assert_eq!(acquire(&mut bench, "me", "1000"), int(first + 2));
}

#[test]
fn a_lease_is_lengthened_by_its_owner_only() {
    let mut bench = Bench::new();
    acquire(&mut bench, "me", "1000");
    bench.pass_ms(900);
    assert_eq!(
        (extend(&mut bench, "you", "5000"), extend(&mut bench, "me", "2000")),
        (int(0), int(1))
    );
    assert_eq!(bench.run("PTTL name"), int(2_000));
    assert_eq!((extend(&mut bench, "me", "500"), bench.run("PTTL name")), (int(1), int(2_000)));
    bench.pass_ms(2_001);
    assert_eq!(extend(&mut bench, "me", "1000"), int(0));
}

#[test]
fn a_fence_below_the_epoch_is_lifted() {
    let mut bench = Bench::new();
    bench.run("SET name:fence 5 PX 1000");
    assert_eq!(acquire(&mut bench, "me", "1000"), int(EPOCH));
    assert_eq!(bench.run("PTTL name:fence"), int(1_000));
}

#[test]
fn what_is_no_lock_is_refused_and_left_alone() {
    let mut bench = Bench::new();
    bench.run("HSET name f v");
    for refused in [acquire(&mut bench, "me", "1000"), release(&mut bench, "me")] {
        let text = "WRONGTYPE Operation against a key holding the wrong kind of value";
        assert_eq!(refusal(&refused), text);
    }
    bench.run("DEL name");
    bench.run("SET name:fence x");
    let refused = acquire(&mut bench, "me", "1000");
    assert_eq!(refusal(&refused), "WRONGTYPE name:fence is not a fence counter");
    assert_eq!(bench.run("EXISTS name"), int(0));
}
