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
