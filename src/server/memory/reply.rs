//! Replies as a real connection delivers them.

use redis::Value;

/// The error that a server sends as `-CODE detail`.
pub(super) fn error(text: &str) -> Value {
    let line = format!("-{}\r\n", on_one_line(text));
    // Only the client library can make this value.
    redis::parse_redis_value(line.as_bytes()).unwrap_or(Value::Nil)
}

/// The status that a server sends as `+text`.
pub(super) fn status(text: &str) -> Value {
    match on_one_line(text) {
        line if line == "OK" => Value::Okay,
        line => Value::SimpleString(line),
    }
}

pub(super) fn bulk(bytes: impl Into<Vec<u8>>) -> Value {
    Value::BulkString(bytes.into())
}

/// A length or a count.
pub(super) fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// A line break would end the reply.
fn on_one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}
