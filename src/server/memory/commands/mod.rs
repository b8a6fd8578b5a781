//! The commands, one function each, with the replies and errors of Redis 7.

mod answer;
mod expiry;
mod hashes;
mod keys;
mod pubsub;
mod sorted_sets;
mod strings;

pub(super) use answer::ErrorText;

use super::keyspace::Keyspace;
use answer::{Args, Fault, Outcome, wrong_number};
use redis::Value;
use std::cmp::Ordering;

/// The error that a script gets.
const UNKNOWN: &str = "ERR Unknown Redis command called from script";

type Command = fn(&mut Keyspace, Args<'_>) -> Outcome;

/// Every command, ordered by name.
const COMMANDS: &[(&str, Command)] = &[
    ("append", strings::append),
    ("del", keys::del),
    ("exists", keys::exists),
    ("get", strings::get),
    ("hdel", hashes::hdel),
    ("hexists", hashes::hexists),
    ("hget", hashes::hget),
    ("hgetall", hashes::hgetall),
    ("hlen", hashes::hlen),
    ("hmget", hashes::hmget),
    ("hset", hashes::hset),
    ("incr", strings::incr),
    ("incrby", strings::incrby),
    ("keys", keys::keys),
    ("mget", strings::mget),
    ("msetex", strings::msetex),
    ("pexpire", expiry::pexpire),
    ("pexpireat", expiry::pexpireat),
    ("pttl", expiry::pttl),
    ("publish", pubsub::publish),
    ("pubsub", pubsub::pubsub),
    ("set", strings::set),
    ("spublish", pubsub::publish),
    ("time", keys::time),
    ("type", keys::kind),
    ("zadd", sorted_sets::zadd),
    ("zcard", sorted_sets::zcard),
    ("zcount", sorted_sets::zcount),
    ("zrange", sorted_sets::zrange),
    ("zrangebyscore", sorted_sets::zrangebyscore),
    ("zrank", sorted_sets::zrank),
    ("zrem", sorted_sets::zrem),
    ("zremrangebyscore", sorted_sets::zremrangebyscore),
    ("zscore", sorted_sets::zscore),
];

/// Redis words some errors differently for scripts and clients.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Caller {
    Client,
    Script,
}

/// Runs the command that `parts` name.
pub(super) fn run(
    keyspace: &mut Keyspace,
    parts: &[&[u8]],
    caller: Caller,
) -> Result<Value, ErrorText> {
    let (name, args) = parts.split_first().map_or((&[][..], &[][..]), |(name, args)| (*name, args));
    let found = COMMANDS.binary_search_by(|(known, _)| by_letters(known, name));
    let Some((name, command)) = found.ok().and_then(|index| COMMANDS.get(index)) else {
        return Err(unknown(name, args, caller));
    };
    command(keyspace, args).map_err(|fault| match (fault, caller) {
        (Fault::Text(text), _) => text,
        (Fault::Arity, Caller::Client) => wrong_number(name),
        (Fault::Arity, Caller::Script) => {
            "ERR Wrong number of args calling Redis command from script".into()
        }
        (Fault::Subcommand, Caller::Client) => unknown_subcommand(name, args),
        (Fault::Subcommand, Caller::Script) => UNKNOWN.into(),
    })
}

fn by_letters(known: &str, name: &[u8]) -> Ordering {
    known.bytes().cmp(name.iter().map(u8::to_ascii_lowercase))
}

fn unknown(name: &[u8], args: Args<'_>, caller: Caller) -> ErrorText {
    if caller == Caller::Script {
        return UNKNOWN.into();
    }
    let quoted = |bytes: &[u8]| format!("'{}'", String::from_utf8_lossy(bytes));
    let args: String = args.iter().map(|arg| quoted(arg) + " ").collect();
    format!("ERR unknown command {}, with args beginning with: {args}", quoted(name)).into()
}

fn unknown_subcommand(name: &str, args: Args<'_>) -> ErrorText {
    let subcommand = String::from_utf8_lossy(args.first().copied().unwrap_or_default());
    let name = name.to_uppercase();
    format!("ERR unknown subcommand '{subcommand}'. Try {name} HELP.").into()
}

#[cfg(test)]
mod tests {
    use super::COMMANDS;

    #[test]
    fn the_table_can_be_searched() {
        assert!(COMMANDS.is_sorted_by_key(|(name, _)| *name), "the table is sorted by name");
    }
}
