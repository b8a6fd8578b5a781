//! Commands for expiries.

use super::answer::{Args, Fault, NOT_AN_INTEGER, Outcome, fault, flag, integer};
use crate::server::memory::keyspace::Keyspace;
use redis::Value;

/// The answer of PTTL for a missing key.
const NO_KEY: i64 = -2;
/// The answer of PTTL for a key without an expiry.
const NO_EXPIRY: i64 = -1;

pub(super) fn pttl(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key] = args else { return Err(Fault::Arity) };
    let now_ms = keyspace.now_ms();
    let remaining_ms = keyspace.entry(key).map_or(NO_KEY, |entry| {
        entry.expires_at_ms.map_or(NO_EXPIRY, |at_ms| at_ms.saturating_sub(now_ms).max(0))
    });
    Ok(Value::Int(remaining_ms))
}

pub(super) fn pexpire(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let now_ms = keyspace.now_ms();
    expire(keyspace, args, now_ms, fault("ERR invalid expire time in 'pexpire' command"))
}

pub(super) fn pexpireat(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    expire(keyspace, args, 0, NOT_AN_INTEGER)
}

/// Sets the expiry to `from_ms` and the argument; `too_late` is for a sum that is out of range.
fn expire(keyspace: &mut Keyspace, args: Args<'_>, from_ms: i64, too_late: Fault) -> Outcome {
    let (key, ms) = match args {
        [key, ms] => (key, ms),
        [_, _, option, ..] => {
            let option = String::from_utf8_lossy(option);
            return Err(Fault::Text(format!("ERR Unsupported option {option}").into()));
        }
        _ => return Err(Fault::Arity),
    };
    let at_ms = integer(ms)?.checked_add(from_ms).ok_or(too_late)?;
    let now_ms = keyspace.now_ms();
    let Some(entry) = keyspace.entry(key) else { return Ok(flag(false)) };
    entry.expires_at_ms = Some(at_ms);
    if at_ms <= now_ms {
        keyspace.remove(key);
    }
    Ok(flag(true))
}
