//! The commands that one server understands and allows a user, asked for once with each connection.

use super::wire::{self, info_field};
use crate::protocol::{CounterKey, Counters, Failure};
use redis::{Pipeline, Value};

/// How calls are written on one connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Dialect {
    pub(in crate::server) counters: Counters,
    pub(in crate::server) delete: Delete,
}

/// How a key is deleted if its value is a token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::server) enum Delete {
    /// By a script, which every server runs.
    Script,
    /// `DELIFEQ`, of Valkey since 9.0: <https://valkey.io/commands/delifeq/>
    Delifeq,
    /// `DELEX`, of Redis since 8.4: <https://redis.io/docs/latest/commands/delex/>
    Delex,
}

impl Dialect {
    /// That of every server.
    pub(in crate::server) const PLAIN: Self =
        Self { counters: Counters::Server, delete: Delete::Script };
}

/// A value that no counter has, so that a compare-and-delete with it deletes nothing.
const NO_COUNTER: &str = "-";

/// A script that does nothing, and its hash.
const SCRIPT: (&str, &str) = ("return 1", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");

/// Whether the server lets this user read the counter, and run the commands that `dialect` needs: also scripts, for a
/// lock that no script can release must not be taken. Changes nothing.
pub(super) fn question(dialect: Dialect) -> Pipeline {
    let key = match dialect.counters {
        Counters::Slots => CounterKey::Slot(0).to_string(),
        Counters::Server | Counters::Locks => CounterKey::Server.to_string(),
    };
    let mut pipeline = Pipeline::new();
    pipeline.cmd("GET").arg(&key);
    pipeline.cmd("MGET").arg(&key);
    pipeline.cmd("EVAL").arg(SCRIPT.0).arg(0);
    pipeline.cmd("EVALSHA").arg(SCRIPT.1).arg(0);
    match dialect.delete {
        Delete::Script => {}
        Delete::Delifeq => {
            pipeline.cmd("DELIFEQ").arg(&key).arg(NO_COUNTER);
        }
        Delete::Delex => {
            pipeline.cmd("DELEX").arg(&key).arg("IFEQ").arg(NO_COUNTER);
        }
    }
    pipeline
}

/// The dialect for a server that answered [`question`], and why no lock may be taken by plain commands, if so.
pub(super) fn answered(dialect: Dialect, values: Vec<Value>) -> (Dialect, Option<String>) {
    let mut denied = values.into_iter().map(denied);
    let mut next = || denied.next().flatten();
    let (counter, mget, eval, evalsha, delete) = (next(), next(), next(), next(), next());
    let dialect = Dialect {
        counters: if counter.is_some() { Counters::Locks } else { dialect.counters },
        delete: if delete.is_some() { Delete::Script } else { dialect.delete },
    };
    (dialect, counter.or(mget).or(eval).or(evalsha))
}

/// Why a command is denied, if so. A server that does not know it answers with the code ERR; other errors are about the
/// state of the server or the key.
fn denied(value: Value) -> Option<String> {
    match wire::failure(&value.extract_error().err()?) {
        Failure::Refused(refusal) if ["NOPERM", "ERR"].contains(&&*refusal.code) => {
            Some(refusal.to_string())
        }
        _ => None,
    }
}

/// The native command for a compare-and-delete of a server with these fields of INFO.
pub(super) fn native_delete(about: &Value) -> Delete {
    let version = |field| {
        let text = info_field(about, field)?;
        let mut numbers = text.split('.').map(|number| number.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    match (version("valkey_version"), version("redis_version")) {
        (Some(valkey), _) if valkey >= (9, 0) => Delete::Delifeq,
        (None, Some(redis)) if redis >= (8, 4) => Delete::Delex,
        _ => Delete::Script,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Value {
        wire::value(format!("-{text}\r\n").as_bytes()).unwrap()
    }

    const SLOTS: Dialect = Dialect { counters: Counters::Slots, delete: Delete::Delex };

    fn of(values: Vec<Value>) -> (Counters, Delete, Option<String>) {
        let (Dialect { counters, delete }, why) = answered(SLOTS, values);
        (counters, delete, why)
    }

    #[test]
    fn a_server_that_allows_all_gets_all() {
        let moved = || error("MOVED 1 127.0.0.1:7000");
        let read_only = error("READONLY You can't write against a read only replica.");
        for [get, mget, delete] in [
            [Value::Nil, Value::Array(vec![Value::Nil]), Value::Int(0)],
            [moved(), moved(), read_only],
        ] {
            let values = vec![get, mget, Value::Int(1), Value::Int(1), delete];
            assert_eq!(question(SLOTS).len(), values.len());
            assert_eq!(of(values), (Counters::Slots, Delete::Delex, None));
        }
    }

    #[test]
    fn what_a_server_denies_is_not_used() {
        let denied = "NOPERM No permissions to access a key";
        let (counters, delete, why) = of((0..5).map(|_| error(denied)).collect());
        assert_eq!((counters, delete), (Counters::Locks, Delete::Script));
        assert_eq!(why.as_deref(), Some("NOPERM No permissions to access a key"));
        let unknown = error("ERR unknown command 'MGET', with args beginning with: 'k'");
        let one = || Value::Int(1);
        let (counters, delete, why) = of(vec![Value::Nil, unknown, one(), one(), Value::Int(0)]);
        assert_eq!((counters, delete), (Counters::Slots, Delete::Delex));
        assert!(why.unwrap().contains("MGET"));
        let (.., why) = of(vec![Value::Nil, Value::Nil, one(), error(denied), Value::Int(0)]);
        assert!(why.is_some(), "no script could release the lock");
    }

    #[test]
    fn the_version_of_a_server_tells_its_native_command() {
        let about = |text: &str| native_delete(&Value::BulkString(text.as_bytes().to_vec()));
        for (info, delete) in [
            ("redis_version:7.0.15\r\n", Delete::Script),
            ("redis_version:8.2.1\r\n", Delete::Script),
            ("redis_version:8.4.0\r\n", Delete::Delex),
            ("redis_version:9.0.0\r\n", Delete::Delex),
            ("redis_version:7.2.4\r\nvalkey_version:8.1.1\r\n", Delete::Script),
            ("redis_version:7.2.4\r\nvalkey_version:9.0.0\r\n", Delete::Delifeq),
            ("redis_version:unstable\r\n", Delete::Script),
            ("", Delete::Script),
        ] {
            assert_eq!(about(info), delete, "{info}");
        }
    }
}
