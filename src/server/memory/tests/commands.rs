//! Behaviour that depends on time, and order that a real server hides.

use super::{Bench, bulk, bulks, error, int, wrong_type};
use redis::Value;

#[test]
fn a_key_is_gone_after_its_last_millisecond() {
    let mut bench = Bench::new();
    bench.check(&[("SET k v PX 100", Value::Okay), ("PTTL k", int(100))]);
    bench.pass_ms(99);
    bench.check(&[("PTTL k", int(1)), ("GET k", bulk("v"))]);
    bench.pass_ms(1);
    bench.check(&[("PTTL k", int(0)), ("GET k", bulk("v"))]);
    bench.pass_ms(1);
    for (line, expected) in [
        ("PTTL k", int(-2)),
        ("GET k", Value::Nil),
        ("EXISTS k", int(0)),
        ("TYPE k", Value::SimpleString("none".to_owned())),
        ("KEYS *", bulks(&[])),
        ("DEL k", int(0)),
        ("PEXPIRE k 100", int(0)),
        ("APPEND k x", int(1)),
    ] {
        let mut bench = Bench::new();
        bench.run("SET k v PX 100");
        bench.pass_ms(101);
        bench.check(&[(line, expected)]);
    }
}

#[test]
fn an_expired_key_of_another_type_is_replaced() {
    let mut bench = Bench::new();
    bench.check(&[("ZADD k 1 a", int(1)), ("PEXPIRE k 10", int(1)), ("HSET k f v", wrong_type())]);
    bench.pass_ms(11);
    bench.check(&[("HSET k f v", int(1)), ("PTTL k", int(-1))]);
}

#[test]
fn only_a_new_value_ends_an_expiry() {
    for (first, second, remaining_ms) in [
        ("SET k 1", "SET k 2", -1),
        ("SET k 1", "SET k 2 KEEPTTL", 60),
        ("SET k 1", "SET k 2 XX GET", -1),
        ("SET k 1", "SET k 2 NX", 60),
        ("SET k 1", "SET k 2 EX 2", 2_000),
        ("SET k 1", "APPEND k 2", 60),
        ("SET k 1", "INCR k", 60),
        ("SET k 1", "INCRBY k 5", 60),
        ("HSET k f 1", "HSET k g 1", 60),
        ("HSET k f 1 g 1", "HDEL k g", 60),
        ("HSET k f 1", "SET k 1", -1),
        ("ZADD k 1 a", "ZADD k 2 b", 60),
        ("ZADD k 1 a 2 b", "ZREM k b", 60),
        ("ZADD k 1 a", "ZREM k a", -2),
    ] {
        let mut bench = Bench::new();
        bench.run(first);
        bench.run("PEXPIRE k 100");
        bench.pass_ms(40);
        bench.run(second);
        assert_eq!(bench.run("PTTL k"), int(remaining_ms), "{first}, {second}");
    }
}

#[test]
fn an_expiry_is_a_point_in_time() {
    let mut bench = Bench::new();
    let at = |ms: u64| format!("PEXPIREAT k {}", super::START_MS + ms);
    bench.check(&[("SET k v", Value::Okay), (&at(500), int(1)), ("PTTL k", int(500))]);
    bench.pass_ms(200);
    bench.check(&[("PTTL k", int(300)), (&at(200), int(1)), ("EXISTS k", int(0))]);
}

#[test]
fn the_time_is_the_callers() {
    let mut bench = Bench::new();
    bench.check(&[("TIME", bulks(&["1700000000", "42"]))]);
    bench.pass_ms(1_500);
    bench.check(&[("TIME", bulks(&["1700000001", "500042"]))]);
}

#[test]
fn scores_order_members_and_bytes_decide_ties() {
    let bench = Bench::new();
    bench.check(&[
        ("ZADD z 2 b 2 a 10 c -1 d -0.0 f 0 e", int(6)),
        ("ZRANGE z 0 -1 WITHSCORES", {
            bulks(&["d", "-1", "e", "0", "f", "-0", "a", "2", "b", "2", "c", "10"])
        }),
        ("ZADD z 0.1 d", int(0)),
        ("ZSCORE z d", bulk("0.10000000000000001")),
        ("ZRANK z d", int(2)),
        ("ZADD z +inf a", int(0)),
        ("ZRANGE z -2 -1 WITHSCORES", bulks(&["c", "10", "a", "inf"])),
        ("ZRANGEBYSCORE z (2 +inf LIMIT 1 5", bulks(&["a"])),
    ]);
}

#[test]
fn an_addition_does_not_overflow() {
    let bench = Bench::new();
    let overflow = || error("ERR increment or decrement would overflow");
    bench.check(&[
        ("SET k 9223372036854775806", Value::Okay),
        ("INCR k", int(i64::MAX)),
        ("INCR k", overflow()),
        ("INCRBY k -1", int(i64::MAX - 1)),
        ("SET k -9223372036854775808", Value::Okay),
        ("INCRBY k -1", overflow()),
        ("GET k", bulk("-9223372036854775808")),
    ]);
}

#[test]
fn flushing_leaves_nothing_but_subscriptions() {
    let bench = Bench::new();
    bench.store.subscribe(7, "notices");
    bench.check(&[("SET k v", Value::Okay), ("HSET h f v", int(1))]);
    bench.store.flush();
    bench.check(&[("KEYS *", bulks(&[])), ("PUBLISH notices x", int(1))]);
}

#[test]
fn a_pattern_that_would_be_misread_is_refused() {
    let bench = Bench::new();
    bench.check(&[("KEYS a?", error("ERR of the wildcards only * is known here"))]);
}
