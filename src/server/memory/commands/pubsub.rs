//! Commands for channels.

use super::{Args, Fault, Outcome};
use crate::server::memory::keyspace::Keyspace;
use crate::server::memory::reply::{bulk, count};
use redis::Value;

pub(super) fn publish(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [channel, payload] = args else { return Err(Fault::Arity) };
    Ok(count(keyspace.channels.publish(channel, payload)))
}

pub(super) fn pubsub(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let (subcommand, channels) = args.split_first().ok_or(Fault::Arity)?;
    if !subcommand.eq_ignore_ascii_case(b"NUMSUB") {
        return Err(Fault::Subcommand);
    }
    let listening = |channel: &&[u8]| [bulk(*channel), count(keyspace.channels.listening(channel))];
    Ok(Value::Array(channels.iter().flat_map(listening).collect()))
}
