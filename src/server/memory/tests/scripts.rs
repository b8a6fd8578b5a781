//! Scripts in the store alone; `differential` has those that a real server confirms.

use super::{Bench, bulk, bulks, int, refusal};
use crate::server::memory::Store;
use redis::Value;

#[test]
fn a_store_can_move_to_another_thread() {
    fn check<T: Send>() {}
    check::<Store>();
}

#[test]
fn keys_and_arguments_are_those_of_the_call() {
    let mut bench = Bench::new();
    let source = "return { KEYS[1], KEYS[2], ARGV[1], #KEYS, #ARGV }";
    let got = bench.eval_with(source, &["a", "b"], &["c"]);
    assert_eq!(got, Value::Array(vec![bulk("a"), bulk("b"), bulk("c"), int(2), int(1)]));
    assert_eq!(bench.eval_with(source, &[], &[]), bulks(&[]));
}

#[test]
fn bytes_pass_unchanged() {
    let mut bench = Bench::new();
    let bytes: &[u8] = b"\0\xff\r\n";
    let source = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])";
    let got = bench.store.eval(bench.now(), source, &[bytes], &[bytes]);
    assert_eq!(got, Value::BulkString(bytes.to_vec()));
}

#[cfg(not(lua54))]
#[test]
fn numbers_become_the_text_that_redis_7_makes_of_them() {
    let mut bench = Bench::new();
    for (number, text) in [
        ("3", "3"),
        ("-2.5", "-2.5"),
        ("0.1", "0.10000000000000001"),
        ("1700000000000042", "1700000000000042"),
        ("1e17", "1e+17"),
        ("1/0", "inf"),
        ("-0.0", "-0"),
        ("1e-20", "9.9999999999999995e-21"),
    ] {
        let source = format!("redis.call('SET', 'k', {number}) return redis.call('GET', 'k')");
        assert_eq!(bench.eval(&source), bulk(text), "{number}");
    }
}

#[test]
fn what_was_written_before_an_error_stays() {
    let mut bench = Bench::new();
    let failed = bench.eval("redis.call('SET', 'k', 'v') error('late')");
    assert_eq!(refusal(&failed), "ERR user_script:1: late");
    assert_eq!(bench.run("GET k"), bulk("v"));
}

#[test]
fn nothing_passes_from_one_script_to_the_next() {
    let mut bench = Bench::new();
    for source in [
        "leak = 1",
        "_G.leak = 1",
        "rawset(_G, 'leak', 1)",
        "setmetatable(_G, {})",
        "string.rep = nil",
        "redis.call = nil",
        "KEYS = {}",
        "getmetatable('').__index = {}",
    ] {
        assert!(matches!(bench.eval(source), Value::ServerError(_)), "{source}");
    }
    let unknown = refusal(&bench.eval("return leak"));
    assert!(unknown.contains("nonexistent global variable 'leak'"), "{unknown}");
    assert_eq!(bench.eval("return ('x'):rep(2)"), bulk("xx"));
}

#[test]
fn the_world_outside_is_out_of_reach() {
    let mut bench = Bench::new();
    for name in ["os", "io", "require", "package", "debug", "dofile", "loadfile", "print"] {
        let failed = bench.eval(&format!("return {name}"));
        assert!(refusal(&failed).contains("nonexistent global"), "{name}");
    }
}

#[test]
fn the_time_stands_still_within_a_script() {
    let mut bench = Bench::new();
    let source = "local first = redis.call('TIME')
                  for i = 1, 10000 do redis.call('GET', 'k') end
                  local last = redis.call('TIME')
                  return first[1] == last[1] and first[2] == last[2]";
    assert_eq!(bench.eval(source), int(1));
}

#[test]
fn no_script_breaks_the_store() {
    let mut bench = Bench::new();
    for source in [
        "local t = {} t[1] = t return t",
        "local function f() return 1 + f() end return f()",
        "error({})",
        "error(setmetatable({}, { __tostring = function() error('again') end }))",
        "error(setmetatable({}, { __index = function() error('again') end }))",
        "return coroutine.wrap(function() error('inside') end)()",
        "\u{1b}LuaQ",
        "return (",
    ] {
        assert!(matches!(bench.eval(source), Value::ServerError(_)), "{source}");
        assert_eq!(bench.eval("return 1"), int(1));
    }
}
