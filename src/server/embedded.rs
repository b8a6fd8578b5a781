//! The scripts on a keyspace of this process.

use super::memory::Store;
use super::wire;
use crate::clock::ServerTime;
use crate::error::Failure;
use crate::script::{Call, Reply};

/// Runs a call at `now`, as a server at the other end of a socket would.
pub(crate) fn execute(store: &mut Store, now: ServerTime, call: &Call) -> Result<Reply, Failure> {
    let (keys, args) = wire::arguments(call);
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    wire::reply(call.script(), store.eval(now, call.script().source(), &keys, &args))
}

/// Runs a plain command; its answer as text, or none if it is nil.
pub(crate) fn ask(store: &Store, now: ServerTime, parts: &[&str]) -> Option<String> {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    match store.command(now, &parts) {
        redis::Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        redis::Value::Int(number) => Some(number.to_string()),
        redis::Value::Array(values) => Some(format!("{values:?}")),
        _ => None,
    }
}
