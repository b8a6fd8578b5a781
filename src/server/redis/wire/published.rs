//! Messages that a server delivers.

use crate::protocol::{LockKeys, Message};
use redis::{PushKind, Value};

/// The message in a push, if it is one.
pub(in crate::server::redis) fn pushed(value: &Value) -> Option<Message> {
    match value {
        Value::Push { kind: PushKind::Message | PushKind::SMessage, data } => message(data),
        Value::Push { kind: PushKind::Invalidate, data } => changed(data),
        _ => None,
    }
}

/// The message in a push about what has changed: keys, or everything. Only in other modes of tracking it names several keys.
fn changed(data: &[Value]) -> Option<Message> {
    match data {
        [Value::Nil] => Some(Message::AllChanged),
        [Value::Array(keys)] => match keys.as_slice() {
            [Value::BulkString(key)] => {
                let key = std::str::from_utf8(key).ok()?;
                Some(Message::Changed(LockKeys::from_key(key)))
            }
            _ => Some(Message::AllChanged),
        },
        _ => None,
    }
}

/// The message in the parts of a push.
pub(in crate::server::redis) fn message(data: &[Value]) -> Option<Message> {
    let [Value::BulkString(channel), Value::BulkString(message)] = data else { return None };
    let [channel, message] = [channel, message].map(|text| std::str::from_utf8(text).ok());
    Message::parse(channel?, message?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_read_as_servers_tell_it() {
        let read = |frame: &str| pushed(&redis::parse_redis_value(frame.as_bytes()).unwrap());
        let changed = |key| Some(Message::Changed(LockKeys::from_key(key)));
        assert_eq!(read(">2\r\n$10\r\ninvalidate\r\n*1\r\n$6\r\nlock:a\r\n"), changed("lock:a"));
        assert_eq!(read(">2\r\n$10\r\ninvalidate\r\n_\r\n"), Some(Message::AllChanged));
        let several = ">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n";
        assert_eq!(read(several), Some(Message::AllChanged));
        assert_eq!(read(">2\r\n$10\r\ninvalidate\r\n:1\r\n"), None);
    }
}
