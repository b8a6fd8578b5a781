//! The plain commands that take a free lock, and the replies to them.

use super::super::command::{Command, Word};
use super::super::frames;
use super::decode::unsigned;
use super::{NOT_RESP, error_reply};
use crate::protocol::{Call, Counters, Failure, Reply, Take, Token};
use redis::Value;

/// The plain commands of a call that takes a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Plain {
    Set,
    Incrby,
    Mget,
}

impl Plain {
    /// In the order in which they are sent.
    pub(crate) const ALL: [Self; 3] = [Self::Set, Self::Incrby, Self::Mget];
}

/// Writes one of the plain commands of `call`.
pub(in crate::server) fn write_plain(
    command: &mut Command,
    call: &Call,
    counters: Counters,
    part: Plain,
) {
    command.clear();
    match call {
        Call::Take { .. } => write_take(command, call, counters, part),
        Call::TakeAll { .. } => write_take_all(command, call, counters, part),
        _ => {}
    }
}

fn write_take(command: &mut Command, call: &Call, counters: Counters, part: Plain) {
    let Call::Take { keys, token, ttl, block } = call else { return };
    match part {
        Plain::Set => {
            command.arg(Word::SET).arg(keys.lock()).arg(token);
            command.arg(Word::NX).arg(Word::PX).arg(*ttl);
        }
        Plain::Incrby => {
            command.arg(Word::INCRBY).arg(keys.counter(counters)).arg(u64::from(*block));
        }
        Plain::Mget => {
            let [.., waiting] = keys.side_keys();
            command.arg(Word::MGET).arg(keys.lock()).arg(waiting);
        }
    }
}

fn write_take_all(command: &mut Command, call: &Call, counters: Counters, part: Plain) {
    let Call::TakeAll { first, others, ttl } = call else { return };
    let (count, locks) = (call.locks() as u64, std::iter::once(first).chain(others));
    match part {
        Plain::Set => {
            command.arg(Word::MSETEX).arg(count);
            for (keys, token) in locks {
                command.arg(keys.lock()).arg(token);
            }
            command.arg(Word::NX).arg(Word::PX).arg(*ttl);
        }
        // They have one counter together: their slots are one, or the server has one counter.
        Plain::Incrby => {
            command.arg(Word::INCRBY).arg(first.0.counter(counters)).arg(count);
        }
        Plain::Mget => {
            command.arg(Word::MGET);
            for (keys, _) in locks {
                let [.., waiting] = keys.side_keys();
                command.arg(keys.lock()).arg(waiting);
            }
        }
    }
}

/// The reply in those to the commands that take the locks of `tokens`, one or several. An error of the first decides; after
/// an error of another no lock has a fence.
pub(crate) fn taken(tokens: &[Token], replies: &[Value]) -> Result<Reply, Failure> {
    let [set, counter, locks] = replies else { return Err(Failure::Lost(NOT_RESP.to_owned())) };
    let values = if let Value::Array(values) = locks { values.as_slice() } else { &[] };
    let mut pairs = values.chunks(2).zip(tokens);
    Ok(Reply::Take(match (set, counter, locks) {
        (Value::ServerError(error), ..) => return Err(error_reply(error)),
        (Value::Nil | Value::Int(0), ..) => {
            if pairs.any(|(pair, token)| is_held_by_another(pair, token)) {
                Take::Held
            } else {
                Take::Unseen
            }
        }
        (Value::Okay | Value::Int(1), counter, Value::Array(_)) => {
            let all = values.len() == 2 * tokens.len();
            match counter {
                _ if !all || !pairs.all(|(pair, token)| is_held_alone(pair, token)) => {
                    Take::Overtaken
                }
                Value::Int(last) => {
                    unsigned(*last).map_or(Take::Unfenced, |last| Take::Taken { last })
                }
                _ => Take::Unfenced,
            }
        }
        _ => Take::Unfenced,
    }))
}

/// Whether a lock's value, and the key that exists while others wait for it, show another holder.
fn is_held_by_another(pair: &[Value], token: &Token) -> bool {
    matches!(pair, [Value::BulkString(holder), _] if !is_token(holder, token))
}

/// Whether they show that the token has the lock, and nobody waits.
fn is_held_alone(pair: &[Value], token: &Token) -> bool {
    matches!(pair, [Value::BulkString(holder), Value::Nil] if is_token(holder, token))
}

/// The length of the replies to the commands that take a lock, and what [`taken`] makes of them: without building values, if
/// all are there, and the lock is taken, as nearly always.
pub(crate) fn taken_at_once(bytes: &[u8], token: &Token) -> Option<(usize, Reply)> {
    let (last, rest) = line(bytes.strip_prefix(b"+OK\r\n:")?)?;
    let (length, rest) = line(rest.strip_prefix(b"*2\r\n$")?)?;
    let (holder, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let rest = rest.strip_prefix(b"\r\n")?;
    let null = |null: &[u8]| rest.strip_prefix(null);
    let rest = null(b"_\r\n").or_else(|| null(b"$-1\r\n"))?;
    let take = unsigned(last).map_or(Take::Unfenced, |last| Take::Taken { last });
    is_token(holder, token).then_some((bytes.len() - rest.len(), Reply::Take(take)))
}

/// The number that a line consists of, and what follows the line.
fn line(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let rest = bytes[end..].strip_prefix(b"\r\n")?;
    Some((frames::number(&bytes[..end])?, rest))
}

/// Whether a lock's value is `token`, with the mark or without.
pub(in crate::server::redis) fn is_token(value: &[u8], token: &Token) -> bool {
    value.strip_suffix(b"+").unwrap_or(value) == token.as_str().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::value;
    use super::*;

    #[test]
    fn a_lock_is_taken_at_once_or_by_values() {
        let token = Token::new("c0ffee", 7, "");
        let texts = ["$13\r\nhf1.c0ffee.7+\r\n", "$12\r\nhf1.c0ffee.7\r\n", "$1\r\nx\r\n", "_\r\n"];
        let mut at_once = 0;
        for set in ["+OK\r\n", "_\r\n", "-ERR no\r\n"] {
            for counter in
                [":41\r\n", ":-1\r\n", ":9007199254740993\r\n", "-ERR no\r\n", "$1\r\n4\r\n"]
            {
                for (holder, waiting) in texts.into_iter().flat_map(|text| {
                    ["_\r\n", "$-1\r\n", "$0\r\n\r\n"].map(|waiting| (text, waiting))
                }) {
                    let bytes = format!("{set}{counter}*2\r\n{holder}{waiting}:1\r\n");
                    let mut frames = frames::Frames::new();
                    frames.feed(bytes.as_bytes());
                    let mut values = Vec::new();
                    for _ in Plain::ALL {
                        values.push(value(frames.next().unwrap().unwrap()).unwrap());
                    }
                    let by_values = taken(std::slice::from_ref(&token), &values);
                    let Some((length, reply)) = taken_at_once(bytes.as_bytes(), &token) else {
                        let is_common = matches!(by_values, Ok(Reply::Take(Take::Taken { .. })));
                        assert!(!is_common, "{bytes:?}");
                        continue;
                    };
                    at_once += 1;
                    assert_eq!(by_values, Ok(reply), "{bytes:?}");
                    assert_eq!(&bytes[length..], ":1\r\n");
                    for end in 0..length {
                        assert_eq!(taken_at_once(&bytes.as_bytes()[..end], &token), None);
                    }
                }
            }
        }
        assert!(at_once > 0, "some answers are taken at once");
    }
}
