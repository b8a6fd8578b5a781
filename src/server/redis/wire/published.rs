//! Messages that a server delivers.

use crate::protocol::Message;
use redis::{PushKind, Value};

/// The message in a push, if it is one.
pub(in crate::server::redis) fn pushed(value: &Value) -> Option<Message> {
    let Value::Push { kind: PushKind::Message | PushKind::SMessage, data } = value else {
        return None;
    };
    message(data)
}

/// The message in the parts of a push.
pub(in crate::server::redis) fn message(data: &[Value]) -> Option<Message> {
    let [Value::BulkString(channel), Value::BulkString(message)] = data else { return None };
    let [channel, message] = [channel, message].map(|text| std::str::from_utf8(text).ok());
    Message::parse(channel?, message?)
}
