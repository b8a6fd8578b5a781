//! Builds the few kinds of value that the replies of every lock consist of. The `redis` crate builds all others.
//!
//! Its parser takes a tenth of what a lock costs the client. Both build the same values, which a test compares.

use super::frames;
use redis::{PushKind, Value};

/// How deep arrays are nested in these replies.
const DEPTH: usize = 2;

/// The value of a whole frame: a number, OK, null, a text, or an array of these. None if it has another kind.
pub(super) fn common(frame: &[u8]) -> Option<Value> {
    let mut rest = frame;
    let value = next(&mut rest, DEPTH)?;
    rest.is_empty().then_some(value)
}

fn next(rest: &mut &[u8], depth: usize) -> Option<Value> {
    let end = rest.iter().position(|byte| *byte == b'\r')?;
    let (kind, line) = rest[..end].split_first()?;
    *rest = rest[end..].strip_prefix(b"\r\n")?;
    match kind {
        b':' => frames::number(line).map(Value::Int),
        b'+' if line == b"OK" => Some(Value::Okay),
        b'_' => Some(Value::Nil),
        b'$' if line == b"-1" => Some(Value::Nil),
        b'$' => {
            let length = usize::try_from(frames::number(line)?).ok()?;
            let text = rest.get(..length)?;
            *rest = rest[length..].strip_prefix(b"\r\n")?;
            Some(Value::BulkString(text.to_vec()))
        }
        b'*' if depth > 0 => {
            let count = usize::try_from(frames::number(line)?).ok()?;
            // Each value has bytes of its own, so the frame limits the count.
            let values = (0..count).map(|_| next(rest, depth - 1));
            values.collect::<Option<Vec<_>>>().map(Value::Array)
        }
        _ => None,
    }
}

/// The push that an array of RESP2 stands for, on a connection that subscribes; any other value as it is.
///
/// Source: <https://redis.io/docs/latest/develop/pubsub/>
pub(super) fn push(value: Value) -> Value {
    let Value::Array(parts) = value else { return value };
    let kind = match parts.first() {
        Some(Value::BulkString(kind)) => match kind.as_slice() {
            b"message" => PushKind::Message,
            b"smessage" => PushKind::SMessage,
            b"subscribe" => PushKind::Subscribe,
            b"ssubscribe" => PushKind::SSubscribe,
            b"unsubscribe" => PushKind::Unsubscribe,
            b"sunsubscribe" => PushKind::SUnsubscribe,
            _ => return Value::Array(parts),
        },
        _ => return Value::Array(parts),
    };
    Value::Push { kind, data: parts.into_iter().skip(1).collect() }
}

/// The names and values of a map, which RESP2 sends as an array.
pub(super) fn pairs(value: &Value) -> Vec<(&Value, &Value)> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        Value::Array(parts) => parts.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::Frames;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_replies_of_locks_are_common() {
        for frame in [
            ":-12\r\n",
            "+OK\r\n",
            "_\r\n",
            "$-1\r\n",
            "$2\r\nab\r\n",
            "*2\r\n$5\r\na\r\nbc\r\n_\r\n",
            "*2\r\n:1\r\n*1\r\n$0\r\n\r\n",
        ] {
            let parsed = redis::parse_redis_value(frame.as_bytes()).unwrap();
            assert_eq!(common(frame.as_bytes()), Some(parsed), "{frame:?}");
        }
    }

    #[test]
    fn other_kinds_are_left_to_the_parser() {
        for frame in ["+QUEUED\r\n", "-ERR no\r\n", "*-1\r\n", ":1x\r\n", "%0\r\n", ">0\r\n"] {
            assert_eq!(common(frame.as_bytes()), None, "{frame:?}");
        }
        let huge = ":99999999999999999999\r\n";
        assert_eq!(common(huge.as_bytes()), None);
    }

    #[test]
    fn both_protocols_say_the_same() {
        let read = |frame: &str| redis::parse_redis_value(frame.as_bytes()).unwrap();
        for kind in
            ["message", "smessage", "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe"]
        {
            let rest = format!("3\r\n${}\r\n{kind}\r\n$1\r\na\r\n:1\r\n", kind.len());
            let two = push(read(&format!("*{rest}")));
            assert!(matches!(two, Value::Push { .. }), "{kind}");
            assert_eq!(two, read(&format!(">{rest}")));
        }
        for other in ["*0\r\n", "*1\r\n:1\r\n", "*1\r\n$4\r\npong\r\n", "+OK\r\n"] {
            assert_eq!(push(read(other)), read(other));
        }
        let (name, value) = (read("+a\r\n"), read(":1\r\n"));
        for map in ["%1\r\n+a\r\n:1\r\n", "*2\r\n+a\r\n:1\r\n"] {
            assert_eq!(pairs(&read(map)), [(&name, &value)]);
        }
    }

    proptest! {
        #[test]
        fn both_build_the_same_value(bytes in "[*$:+_-][-0-3OKa]{0,3}(\r\n[$:+_-][-0-3OKa]{0,3}){0,6}\r\n") {
            let mut frames = Frames::new();
            frames.feed(bytes.as_bytes());
            while let Ok(Some(frame)) = frames.next() {
                if let Some(value) = common(frame) {
                    prop_assert_eq!(redis::parse_redis_value(frame).ok(), Some(value));
                }
            }
        }
    }
}
