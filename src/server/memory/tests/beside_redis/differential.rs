//! The same commands and scripts in the store and in a real server.

use super::real_server::RealServer;
use crate::protocol::ServerTime;
use crate::server::memory::Store;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redis::Value;
use std::cell::RefCell;
use std::fs;

/// Both, with the same data. The store's clock starts at the server's time.
struct Pair {
    store: Store,
    server: RealServer,
    now_us: u64,
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self { store: Store::new(), server: RealServer::start(), now_us: 0 };
        pair.flush();
        pair
    }

    fn flush(&mut self) {
        self.server.run(&[b"FLUSHALL"]);
        self.store.flush();
        let Value::Array(time) = self.server.run(&[b"TIME"]) else { panic!("no time") };
        let part = |index: usize| -> u64 { redis::from_redis_value_ref(&time[index]).unwrap() };
        self.now_us = part(0) * 1_000_000 + part(1);
    }

    fn now(&self) -> ServerTime {
        ServerTime::from_micros(self.now_us)
    }

    fn command(&mut self, parts: &[&[u8]]) -> (Value, Value) {
        (self.store.command(self.now(), parts), self.server.run(parts))
    }

    fn eval(&mut self, source: &str, keys: &[&[u8]], args: &[&[u8]]) -> (Value, Value) {
        let count = keys.len().to_string();
        let mut parts = vec![b"EVAL", source.as_bytes(), count.as_bytes()];
        parts.extend(keys);
        parts.extend(args);
        (self.store.eval(self.now(), source, keys, args), self.server.run(&parts))
    }

    /// Every key of both: its type, its content, and whether it expires.
    fn dump(&mut self) -> (Vec<Value>, Vec<Value>) {
        let (ours, theirs) = self.command(&[b"KEYS", b"*"]);
        let ours =
            dump(ours, |parts| self.store.command(ServerTime::from_micros(self.now_us), parts));
        (ours, dump(theirs, |parts| self.server.run(parts)))
    }
}

fn dump(keys: Value, mut run: impl FnMut(&[&[u8]]) -> Value) -> Vec<Value> {
    let mut keys: Vec<Vec<u8>> = redis::from_redis_value(keys).unwrap();
    keys.sort();
    let mut found = Vec::new();
    for key in &keys {
        let kind = run(&[b"TYPE", key]);
        let content = match &kind {
            Value::SimpleString(kind) if kind == "hash" => run(&[b"HGETALL", key]),
            Value::SimpleString(kind) if kind == "zset" => {
                run(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])
            }
            _ => run(&[b"GET", key]),
        };
        let remaining = comparable("pttl", run(&[b"PTTL", key]));
        found.extend([
            Value::BulkString(key.clone()),
            kind,
            comparable("hgetall", content),
            remaining,
        ]);
    }
    found
}

/// One step of a random test.
#[derive(Clone, Debug)]
struct Step {
    /// How the command is run: none for a plain one, or one of the scripts.
    by: Option<usize>,
    parts: Vec<&'static str>,
    pass_us: u64,
}

/// All of them run the command in ARGV.
const SCRIPTS: [&str; 5] = [
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "local reply = redis.pcall(unpack(ARGV)) return { type(reply), reply }",
    "local first = redis.pcall(unpack(ARGV))
     redis.call('APPEND', KEYS[1], 'x')
     return { first, redis.call(unpack(ARGV)) }",
    "local parts = {}
     for i, arg in ipairs(ARGV) do
       local number = tonumber(arg)
       parts[i] = number and math.abs(number) < 1e15 and number or arg
     end
     return redis.call(unpack(parts))",
];

const KEYS: &[&str] = &["a", "b", "c"];
const INTEGERS: &[&str] =
    &["-2", "-1", "0", "1", "2", "3", "9223372036854775807", "-9223372036854775808"];
const SCORES: &[&str] = &["-1.5", "0", "1", "2", "2.5", "-inf", "+inf", "1e3"];
const BOUNDS: &[&str] = &["-inf", "+inf", "0", "(0", "1", "(1", "2.5", "(2.5"];
const VALUES: &[&str] = &["", "x", "1", "-5", "01", "1.5", "9223372036854775807", "f", "g"];
const MEMBERS: &[&str] = &["", "f", "g", "h", "1"];
const LEASES: &[&str] = &["7000000", "-1", "0", "x", "9223372036854775807", "9223372036854775"];

/// The values for any argument of any command.
const ANYTHING: &[&str] = &[
    "a",
    "b",
    "f",
    "g",
    "",
    "-1",
    "0",
    "7000000",
    "2.5",
    "nan",
    "(1",
    "+inf",
    "x",
    "*",
    "NX",
    "xx",
    "GET",
    "KEEPTTL",
    "PX",
    "EX",
    "WITHSCORES",
    "limit",
    "NUMSUB",
];

const NAMES: &[&str] = &[
    "APPEND",
    "del",
    "EXISTS",
    "get",
    "HDEL",
    "HEXISTS",
    "HGET",
    "HGETALL",
    "HLEN",
    "HMGET",
    "HSET",
    "INCR",
    "INCRBY",
    "KEYS",
    "PEXPIRE",
    "PEXPIREAT",
    "PTTL",
    "PUBLISH",
    "PUBSUB",
    "SET",
    "TYPE",
    "ZADD",
    "ZCARD",
    "ZCOUNT",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZRANK",
    "ZREM",
    "ZREMRANGEBYSCORE",
    "ZSCORE",
    "NOPE",
];

/// The candidates for one argument.
type Pool = &'static [&'static str];

/// Each command with a pool for each of its arguments; the last pool fills up to three more.
fn shapes() -> Vec<(&'static str, Vec<Pool>, Option<Pool>)> {
    const CONDITIONS: &[&str] = &["NX", "XX", "GET", "KEEPTTL", "nx"];
    vec![
        ("APPEND", vec![KEYS, VALUES], None),
        ("DEL", vec![KEYS], Some(KEYS)),
        ("EXISTS", vec![KEYS], Some(KEYS)),
        ("GET", vec![KEYS], None),
        ("HDEL", vec![KEYS, MEMBERS], Some(MEMBERS)),
        ("HEXISTS", vec![KEYS, MEMBERS], None),
        ("HGET", vec![KEYS, MEMBERS], None),
        ("HGETALL", vec![KEYS], None),
        ("HLEN", vec![KEYS], None),
        ("HMGET", vec![KEYS, MEMBERS], Some(MEMBERS)),
        ("HSET", vec![KEYS, MEMBERS, VALUES], None),
        ("HSET", vec![KEYS, MEMBERS, VALUES, MEMBERS, VALUES], Some(MEMBERS)),
        ("INCR", vec![KEYS], None),
        ("INCRBY", vec![KEYS, INTEGERS], None),
        ("KEYS", vec![&["*", "a*", "*b", "c"]], None),
        ("PEXPIRE", vec![KEYS, LEASES], None),
        ("PEXPIREAT", vec![KEYS, &["99999999999999", "-5", "0", "1", "x"]], None),
        ("PTTL", vec![KEYS], None),
        ("SET", vec![KEYS, VALUES], Some(CONDITIONS)),
        ("SET", vec![KEYS, VALUES, &["PX", "EX", "px"], LEASES], Some(CONDITIONS)),
        ("TYPE", vec![KEYS], None),
        ("ZADD", vec![KEYS, SCORES, MEMBERS], None),
        ("ZADD", vec![KEYS, &["NX", "XX"], SCORES, MEMBERS, SCORES, MEMBERS], None),
        ("ZADD", vec![KEYS, SCORES, MEMBERS, SCORES, MEMBERS, SCORES, MEMBERS], Some(SCORES)),
        ("ZCARD", vec![KEYS], None),
        ("ZCOUNT", vec![KEYS, BOUNDS, BOUNDS], None),
        ("ZRANGE", vec![KEYS, INTEGERS, INTEGERS], Some(&["WITHSCORES"])),
        ("ZRANGEBYSCORE", vec![KEYS, BOUNDS, BOUNDS], Some(&["WITHSCORES"])),
        ("ZRANGEBYSCORE", vec![KEYS, BOUNDS, BOUNDS, &["LIMIT"], INTEGERS, INTEGERS], None),
        ("ZRANK", vec![KEYS, MEMBERS], None),
        ("ZREM", vec![KEYS, MEMBERS], Some(MEMBERS)),
        ("ZREMRANGEBYSCORE", vec![KEYS, BOUNDS, BOUNDS], None),
        ("ZSCORE", vec![KEYS, MEMBERS], None),
    ]
}

fn sensible() -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::select(shapes()).prop_flat_map(|(name, pools, more)| {
        let args: Vec<_> = pools.into_iter().map(prop::sample::select).collect();
        let most = if more.is_some() { 3 } else { 0 };
        let more = prop::collection::vec(prop::sample::select(more.unwrap_or(ANYTHING)), 0..=most);
        (args, more).prop_map(move |(args, more)| [vec![name], args, more].concat())
    })
}

fn wild() -> impl Strategy<Value = Vec<&'static str>> {
    let args = prop::collection::vec(prop::sample::select(ANYTHING), 0..6);
    let parts = (prop::sample::select(NAMES), args);
    let parts = parts.prop_map(|(name, args)| [vec![name], args].concat());
    parts.prop_filter("PEXPIRE has no conditions here", |parts| {
        let conditional = parts.iter().skip(3).any(|part| matches!(*part, "NX" | "xx"));
        !(conditional && parts[0].starts_with("PEXPIRE"))
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let parts = prop_oneof![4 => sensible(), 1 => wild()];
    let by = prop::option::of(0..SCRIPTS.len());
    let step = (by, parts, 0..1_000_000_u64);
    prop::collection::vec(step.prop_map(|(by, parts, pass_us)| Step { by, parts, pass_us }), 1..60)
}

/// Hides differences that are allowed: undefined order, and the remaining time of a lease.
fn comparable(name: &str, value: Value) -> Value {
    let scrambled = matches!(name, "keys" | "hgetall");
    match value {
        Value::Int(number) if name == "pttl" => Value::Int(number.min(1)),
        Value::Array(items) if scrambled && items.iter().all(is_bulk) => {
            let width = if name == "keys" { 1 } else { 2 };
            let mut chunks: Vec<_> = items.chunks(width).map(<[Value]>::to_vec).collect();
            chunks.sort_by_key(|chunk| format!("{chunk:?}"));
            Value::Array(chunks.concat())
        }
        Value::Array(items) => {
            Value::Array(items.into_iter().map(|item| comparable(name, item)).collect())
        }
        // Only the code: the rest is for people, and differs between Redis, Valkey and their versions.
        Value::ServerError(error) => super::super::error(error.code()),
        value => value,
    }
}

fn is_bulk(value: &Value) -> bool {
    matches!(value, Value::BulkString(_))
}

#[test]
fn random_commands_have_the_same_replies_and_leave_the_same_data() {
    let pair = RefCell::new(Pair::new());
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() };
    let result = TestRunner::new(config).run(&steps(), |steps| {
        let mut pair = pair.borrow_mut();
        pair.flush();
        for step in &steps {
            let parts: Vec<&[u8]> = step.parts.iter().map(|part| part.as_bytes()).collect();
            let (ours, theirs) = match step.by {
                None => pair.command(&parts),
                Some(script) => pair.eval(SCRIPTS[script], &[b"a"], &parts),
            };
            let name = step.parts[0].to_lowercase();
            prop_assert_eq!(comparable(&name, ours), comparable(&name, theirs), "{:?}", step);
            pair.now_us += step.pass_us;
        }
        let (ours, theirs) = pair.dump();
        prop_assert_eq!(ours, theirs);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn scripts_have_the_same_results() {
    let mut pair = Pair::new();
    let scripts =
        concat!(env!("CARGO_MANIFEST_DIR"), "/src/server/memory/tests/beside_redis/scripts.lua");
    for source in fs::read_to_string(scripts).unwrap().split("\n---\n") {
        pair.flush();
        pair.command(&[b"HSET", b"h", b"f", b"v"]);
        let (ours, theirs) = pair.eval(source, &[b"k", b"h"], &[b"one", b"2"]);
        assert_eq!(comparable("", ours), comparable("", theirs), "{source}");
    }
}
