//! Commands for strings.

use super::answer::{Args, Fault, NOT_AN_INTEGER, Outcome, SYNTAX, fault, integer};
use crate::server::memory::keyspace::{Datum, Entry, Keyspace, WrongType};
use crate::server::memory::number;
use crate::server::memory::reply::{bulk, count};
use redis::Value;

pub(super) fn get(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key] = args else { return Err(Fault::Arity) };
    Ok(value_of(keyspace, key)?)
}

/// A key that holds no string counts as missing.
pub(super) fn mget(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    if args.is_empty() {
        return Err(Fault::Arity);
    }
    let value = |key: &&[u8]| value_of(keyspace, key).unwrap_or(Value::Nil);
    Ok(Value::Array(args.iter().map(value).collect()))
}

fn value_of(keyspace: &mut Keyspace, key: &[u8]) -> Result<Value, WrongType> {
    let value = keyspace.find::<Vec<u8>>(key)?;
    Ok(value.map_or(Value::Nil, |value| bulk(value.as_slice())))
}

pub(super) fn append(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, more] = args else { return Err(Fault::Arity) };
    let length = keyspace.grow(key, |value: &mut Vec<u8>| {
        value.extend_from_slice(more);
        value.len()
    })?;
    Ok(count(length))
}

pub(super) fn incr(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key] = args else { return Err(Fault::Arity) };
    increase(keyspace, key, 1)
}

pub(super) fn incrby(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, amount] = args else { return Err(Fault::Arity) };
    increase(keyspace, key, integer(amount)?)
}

fn increase(keyspace: &mut Keyspace, key: &[u8], amount: i64) -> Outcome {
    let before = match keyspace.find::<Vec<u8>>(key)? {
        Some(value) => number::integer(value).ok_or(NOT_AN_INTEGER)?,
        None => 0,
    };
    let overflow = fault("ERR increment or decrement would overflow");
    let after = before.checked_add(amount).ok_or(overflow)?;
    keyspace.grow(key, |value: &mut Vec<u8>| *value = after.to_string().into_bytes())?;
    Ok(Value::Int(after))
}

pub(super) fn set(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, value, options @ ..] = args else { return Err(Fault::Arity) };
    let options = Options::read(options)?;
    let mut expires_at_ms = options.expires_at_ms(keyspace.now_ms())?;
    let before = if options.get { Some(value_of(keyspace, key)?) } else { None };
    let equal = match options.only_if {
        Some(wanted) => value_of(keyspace, key)? == bulk(wanted),
        None => true,
    };
    let there = keyspace.entry(key);
    let allowed = options.only_if_there.is_none_or(|wanted| wanted == there.is_some());
    if !equal || !allowed {
        return Ok(before.unwrap_or(Value::Nil));
    }
    if options.keep_ttl {
        expires_at_ms = there.and_then(|entry| entry.expires_at_ms);
    }
    keyspace.put(key, Entry { datum: Datum::String(value.to_vec()), expires_at_ms });
    Ok(before.unwrap_or(Value::Okay))
}

/// Sets all or, where the condition of one fails, none. Of Redis since 8.4, and of Valkey since 9.1.
pub(super) fn msetex(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [count, rest @ ..] = args else { return Err(Fault::Arity) };
    let invalid = fault("ERR invalid numkeys value");
    let count = usize::try_from(integer(count)?).ok().filter(|count| *count > 0).ok_or(invalid)?;
    let (pairs, options) = rest.split_at_checked(2 * count).ok_or(Fault::Arity)?;
    let options = Options::read(options)?;
    if options.get || options.only_if.is_some() {
        return Err(SYNTAX);
    }
    let expires_at_ms = options.expires_at_ms(keyspace.now_ms())?;
    let (pairs, _) = pairs.as_chunks::<2>();
    for [key, _] in pairs {
        let is_there = keyspace.entry(key).is_some();
        if options.only_if_there.is_some_and(|wanted| wanted != is_there) {
            return Ok(Value::Int(0));
        }
    }
    for [key, value] in pairs {
        let kept = keyspace.entry(key).and_then(|entry| entry.expires_at_ms);
        let expires_at_ms = if options.keep_ttl { kept } else { expires_at_ms };
        keyspace.put(key, Entry { datum: Datum::String(value.to_vec()), expires_at_ms });
    }
    Ok(Value::Int(1))
}

/// The options after key and value of SET.
#[derive(Default)]
struct Options<'a> {
    /// XX if true, NX if false.
    only_if_there: Option<bool>,
    /// The value of IFEQ, of Valkey since 8.1 and Redis since 8.4: never beside NX or XX.
    only_if: Option<&'a [u8]>,
    get: bool,
    keep_ttl: bool,
    ttl: Option<Ttl<'a>>,
}

#[derive(Clone, Copy)]
struct Ttl<'a> {
    text: &'a [u8],
    /// 1 for PX, 1000 for EX.
    unit_ms: i64,
}

impl<'a> Options<'a> {
    fn read(args: Args<'a>) -> Result<Self, Fault> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.to_ascii_lowercase().as_slice() {
                b"nx" => options.condition(false)?,
                b"xx" => options.condition(true)?,
                b"ifeq" if options.is_unconditional() => {
                    options.only_if = Some(args.next().ok_or(SYNTAX)?);
                }
                b"get" => options.get = true,
                b"keepttl" if options.ttl.is_none() => options.keep_ttl = true,
                b"ex" => options.ends(args.next(), 1_000)?,
                b"px" => options.ends(args.next(), 1)?,
                _ => return Err(SYNTAX),
            }
        }
        Ok(options)
    }

    fn is_unconditional(&self) -> bool {
        self.only_if_there.is_none() && self.only_if.is_none()
    }

    fn condition(&mut self, there: bool) -> Result<(), Fault> {
        if self.only_if.is_some() || self.only_if_there.is_some_and(|other| other != there) {
            return Err(SYNTAX);
        }
        self.only_if_there = Some(there);
        Ok(())
    }

    fn ends(&mut self, text: Option<&&'a [u8]>, unit_ms: i64) -> Result<(), Fault> {
        let Some(text) = text else { return Err(SYNTAX) };
        if self.keep_ttl || self.ttl.is_some_and(|ttl| ttl.unit_ms != unit_ms) {
            return Err(SYNTAX);
        }
        self.ttl = Some(Ttl { text, unit_ms });
        Ok(())
    }

    fn expires_at_ms(&self, now_ms: i64) -> Result<Option<i64>, Fault> {
        let Some(ttl) = self.ttl else { return Ok(None) };
        let invalid = fault("ERR invalid expire time in 'set' command");
        let units = integer(ttl.text)?;
        let sum = || units.checked_mul(ttl.unit_ms)?.checked_add(now_ms);
        sum().filter(|_| units > 0).map(Some).ok_or(invalid)
    }
}
