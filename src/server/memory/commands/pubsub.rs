//! Commands for channels. Those of a shard are channels like all others here.

use super::answer::{Args, Fault, Outcome};
use crate::server::memory::keyspace::Keyspace;
use crate::server::memory::reply::{bulk, count};
use redis::Value;

pub(super) fn publish(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [channel, payload] = args else { return Err(Fault::Arity) };
    Ok(count(keyspace.channels.publish(channel, payload)))
}

pub(super) fn pubsub(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let (subcommand, channels) = args.split_first().ok_or(Fault::Arity)?;
    let counts = |name: &[u8]| subcommand.eq_ignore_ascii_case(name);
    if !counts(b"NUMSUB") && !counts(b"SHARDNUMSUB") {
        return Err(Fault::Subcommand);
    }
    let listening = |channel: &&[u8]| [bulk(*channel), count(keyspace.channels.listening(channel))];
    Ok(Value::Array(channels.iter().flat_map(listening).collect()))
}
