//! The arguments and the outcome of a command.

use super::super::keyspace::WrongType;
use super::super::number;
use redis::Value;
use std::borrow::Cow;

/// The error text of a failed command: the code and the detail.
pub(in crate::server::memory) type ErrorText = Cow<'static, str>;

/// Why a command failed.
pub(super) enum Fault {
    /// It has too few or too many arguments.
    Arity,
    /// Its first argument names none of its subcommands.
    Subcommand,
    Text(ErrorText),
}

pub(super) const NOT_AN_INTEGER: Fault = fault("ERR value is not an integer or out of range");
pub(super) const SYNTAX: Fault = fault("ERR syntax error");

pub(super) const fn fault(text: &'static str) -> Fault {
    Fault::Text(Cow::Borrowed(text))
}

impl From<WrongType> for Fault {
    fn from(_: WrongType) -> Self {
        fault("WRONGTYPE Operation against a key holding the wrong kind of value")
    }
}

pub(super) type Outcome = Result<Value, Fault>;

/// A command's arguments, without its name.
pub(super) type Args<'a> = &'a [&'a [u8]];

pub(super) fn wrong_number(name: &str) -> ErrorText {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// A key and at least one more argument.
pub(super) fn key_and_rest(args: Args<'_>) -> Result<(&[u8], Args<'_>), Fault> {
    match args {
        [key, rest @ ..] if !rest.is_empty() => Ok((key, rest)),
        _ => Err(Fault::Arity),
    }
}

pub(super) fn integer(text: &[u8]) -> Result<i64, Fault> {
    number::integer(text).ok_or(NOT_AN_INTEGER)
}

pub(super) fn flag(value: bool) -> Value {
    Value::Int(i64::from(value))
}
