//! From the values that scripts answer with to replies.

use super::{brief, error_reply};
use crate::protocol::{
    EXACT_MAX, Failure, HeldBy, QueuePosition, Reply, Script, ServerTime, exact,
};
use redis::Value;
use std::sync::Arc;
use std::time::Duration;

/// The reply of `script` in `value`.
pub(in crate::server) fn reply(script: Script, value: Value) -> Result<Reply, Failure> {
    match value {
        Value::ServerError(error) => Err(error_reply(&error)),
        Value::Int(number) => read_number(script, number),
        // The plain command that renews.
        Value::Okay | Value::Nil if script == Script::Extend => {
            Ok(Reply::Owner(value == Value::Okay))
        }
        Value::Array(parts) => {
            read_parts(script, &parts).ok_or_else(|| unexpected(script, &Value::Array(parts)))
        }
        value => Err(unexpected(script, &value)),
    }
}

/// A fence, or a code of the script.
fn read_number(script: Script, number: i64) -> Result<Reply, Failure> {
    use Script::{
        Acquire, Adopt, ChangeShares, ExtendShare, Force, HandoffShare, KeepShare, Release,
        Reserve, Vote,
    };
    match (script, number) {
        (Adopt | ChangeShares | ExtendShare | HandoffShare | KeepShare | Reserve, 0) => {
            Ok(Reply::Owner(false))
        }
        (ExtendShare, 1) => Ok(Reply::Owner(true)),
        (Acquire | Adopt | ExtendShare | KeepShare, fence) => unsigned(fence)
            .map(|fence| Reply::Granted { fence })
            .ok_or_else(|| Failure::Lost(format!("the server sent the fence {fence}"))),
        (HandoffShare | Release | Force, 2) => Ok(Reply::More),
        (ChangeShares | HandoffShare | Reserve | Vote, _) => {
            Err(unexpected(script, &Value::Int(number)))
        }
        (_, 0 | 1) => Ok(Reply::Owner(number == 1)),
        _ => Err(unexpected(script, &Value::Int(number))),
    }
}

fn read_parts(script: Script, parts: &[Value]) -> Option<Reply> {
    match (script, parts) {
        (Script::Acquire, [Value::Int(fence)]) => Some(Reply::Joined { fence: unsigned(*fence)? }),
        (Script::Acquire, _) => read_held(parts).map(Reply::from),
        (Script::AcquireAll, _) => {
            parts.iter().map(unsigned_value).collect::<Option<_>>().map(Reply::All)
        }
        (Script::Force, [Value::BulkString(owners)]) => Some(Reply::Seen { owners: text(owners) }),
        (Script::ChangeShares, [fence, Value::Int(beside @ 0..=1)]) => {
            Some(Reply::Changed { fence: unsigned_value(fence)?, beside: *beside == 1 })
        }
        (Script::HandoffShare, [fence, waiting]) => Some(Reply::HandedOff {
            fence: unsigned_value(fence)?,
            waiting: unsigned_value(waiting)?,
        }),
        (Script::Reserve, [fence, waiting]) => Some(Reply::Reserved {
            fence: unsigned_value(fence)?,
            waiting: unsigned_value(waiting)?,
        }),
        (Script::Vote, _) => read_vote(parts),
        _ => None,
    }
}

fn read_vote(parts: &[Value]) -> Option<Reply> {
    match parts {
        [Value::Int(1), counter, time, Value::Int(written)] => Some(Reply::Voted {
            counter: unsigned_value(counter)?,
            time: ServerTime::from_micros(unsigned_value(time)?),
            written: *written == 1,
        }),
        [Value::Int(0), Value::Int(remaining_ms), Value::BulkString(holder)] => {
            Some(read_unqueued(*remaining_ms, holder).into())
        }
        _ => None,
    }
}

/// Stands for an empty value that other code has written.
const EMPTY: &str = "''";

/// A held lock that has no queue.
fn read_unqueued(remaining_ms: i64, holder: &[u8]) -> HeldBy {
    HeldBy {
        remaining: unsigned(remaining_ms).map(Duration::from_millis),
        holder: read_holder(Some(remaining_ms), holder),
        ..HeldBy::default()
    }
}

/// The value of a lock. An empty one of other code is told by two quotes, since none at all means that the lock is free; then
/// nothing remains of it.
fn read_holder(remaining_ms: Option<i64>, value: &[u8]) -> String {
    if value.is_empty() && remaining_ms != Some(0) {
        return EMPTY.to_owned();
    }
    String::from_utf8_lossy(value).into_owned()
}

fn read_held(parts: &[Value]) -> Option<HeldBy> {
    if let [Value::Int(remaining_ms), Value::BulkString(holder)] = parts {
        return Some(read_unqueued(*remaining_ms, holder));
    }
    let [remaining_ms, Value::BulkString(holder), time, position, seq, owners, more @ ..] = parts
    else {
        return None;
    };
    let Value::BulkString(owners) = owners else { return None };
    let position = u32::try_from(unsigned_value(position)?).ok()?;
    // Other clients can write any score: one out of range is replaced by the nearest that can be sent.
    let seq = u64::try_from(integer(seq)?).unwrap_or(0).min(EXACT_MAX);
    Some(HeldBy {
        remaining: unsigned_value(remaining_ms).map(Duration::from_millis),
        holder: read_holder(integer(remaining_ms), holder),
        time: ServerTime::from_micros(unsigned_value(time)?),
        queued: (position > 0).then_some(QueuePosition { position, seq }),
        owners: text(owners),
        queueing: position == 0 && matches!(more, [Value::Int(1), ..]),
        sharer: match more {
            [_, Value::BulkString(sharer), ..] => String::from_utf8_lossy(sharer).into_owned(),
            _ => String::new(),
        },
        sharers: match more {
            [_, _, sharers, ..] => u32::try_from(unsigned_value(sharers)?).ok()?,
            _ => 0,
        },
        awaited: more.get(3).and_then(unsigned_value).map(Duration::from_millis),
    })
}

fn text(bytes: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(bytes).into()
}

/// A number in an answer, if a server in order sends it: it is neither negative nor too large.
pub(super) fn unsigned(number: i64) -> Option<u64> {
    exact(u64::try_from(number).ok()?)
}

fn unsigned_value(value: &Value) -> Option<u64> {
    integer(value).and_then(unsigned)
}

const fn integer(value: &Value) -> Option<i64> {
    if let Value::Int(number) = value { Some(*number) } else { None }
}

/// A reply that none of our scripts gives: its effect is unknown.
fn unexpected(script: Script, value: &Value) -> Failure {
    Failure::Lost(brief(format!("the server answered {script:?} with {value:?}")))
}

#[cfg(test)]
mod tests {
    use super::super::refused;
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn numbers_that_no_server_in_order_sends_are_an_unknown_outcome() {
        const MORE: i64 = 1 << 53;
        let [zero, time] = [Value::Int(0), Value::Int(MORE)];
        let held = [Value::Int(1), bulk("x"), time, zero.clone(), zero.clone(), zero];
        let voted = [Value::Int(1), Value::Int(0), Value::Int(i64::MAX)];
        for (script, value) in [
            (Script::Acquire, Value::Int(MORE)),
            (Script::Acquire, Value::Array(held.to_vec())),
            (Script::AcquireAll, Value::Array(vec![Value::Int(1), Value::Int(MORE)])),
            (Script::Vote, Value::Array(voted.to_vec())),
        ] {
            assert!(matches!(reply(script, value), Err(Failure::Lost(_))), "{script:?}");
        }
    }

    #[test]
    fn an_empty_value_of_other_code_is_a_holder() {
        let holder = |value| match reply(Script::Acquire, value) {
            Ok(Reply::Held(held)) => held.holder,
            other => panic!("{other:?}"),
        };
        for (remaining_ms, expected) in [(-1, EMPTY), (700, EMPTY), (0, "")] {
            let (zero, left) = (Value::Int(0), Value::Int(remaining_ms));
            let queued = [left.clone(), bulk(""), Value::Int(7), zero.clone(), zero, bulk("")];
            assert_eq!(holder(Value::Array(queued.to_vec())), expected);
            assert_eq!(holder(Value::Array(vec![left, bulk("")])), expected);
        }
    }

    #[test]
    fn a_text_without_end_is_cut_where_a_letter_ends() {
        let Err(Failure::Lost(text)) = reply(Script::Release, bulk(&"€".repeat(10_000))) else {
            panic!("accepted")
        };
        assert!(text.len() < 500 && text.ends_with('…'), "{text}");
        let Failure::Refused(refusal) = refused("ERR", &"€".repeat(10_000)) else {
            panic!("not")
        };
        assert!(refusal.detail.len() < 500, "{}", refusal.detail);
    }

    #[test]
    fn an_answer_of_the_wrong_shape_is_an_unknown_outcome() {
        for value in [Value::Nil, Value::Okay, Value::Int(-1), Value::Array(vec![Value::Nil])] {
            assert!(
                matches!(reply(Script::Acquire, value), Err(Failure::Lost(_))),
                "the outcome of an acquire is unknown"
            );
        }
        assert!(
            matches!(reply(Script::Release, Value::Int(7)), Err(Failure::Lost(_))),
            "the outcome of a release is unknown"
        );
    }
}
