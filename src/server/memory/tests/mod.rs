//! The store by itself, and beside a real server.

mod beside_redis;
mod commands;
mod publishing;
mod scripts;
mod shares;

use super::Store;
use crate::protocol::ServerTime;
use redis::Value;

/// A time in 2023, in ms since 1970.
const START_MS: u64 = 1_700_000_000_000;

/// A store whose time the test sets.
struct Bench {
    store: Store,
    now_ms: u64,
}

impl Bench {
    fn new() -> Self {
        Self { store: Store::new(), now_ms: START_MS }
    }

    fn now(&self) -> ServerTime {
        ServerTime::from_micros(self.now_ms * 1_000 + 42)
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    /// Runs the command that `line` spells, its parts separated by spaces.
    fn run(&self, line: &str) -> Value {
        let parts: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
        self.store.command(self.now(), &parts)
    }

    fn eval(&mut self, source: &str) -> Value {
        self.eval_with(source, &[], &[])
    }

    fn eval_with(&mut self, source: &str, keys: &[&str], args: &[&str]) -> Value {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        self.store.eval(self.now(), source, &keys, &args)
    }

    #[track_caller]
    fn check(&self, expectations: &[(&str, Value)]) {
        for (line, expected) in expectations {
            assert_eq!(self.run(line), *expected, "{line}");
        }
    }
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn bulks(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| bulk(text)).collect())
}

fn int(number: i64) -> Value {
    Value::Int(number)
}

fn error(text: &str) -> Value {
    super::reply::error(text)
}

fn wrong_type() -> Value {
    error("WRONGTYPE Operation against a key holding the wrong kind of value")
}

/// The code and the detail of an error, up to the place in the script.
#[track_caller]
fn refusal(value: &Value) -> String {
    let Value::ServerError(error) = value else { panic!("not an error: {value:?}") };
    let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
    text.split_once(" script: ").map_or(text.as_str(), |(text, _)| text).trim_end().to_owned()
}
