//! Commands for hashes.

use super::answer::{Args, Fault, Outcome, flag, key_and_rest, wrong_number};
use crate::server::memory::keyspace::{Hash, Keyspace};
use crate::server::memory::reply::{bulk, count};
use redis::Value;

pub(super) fn hset(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, _, _, ..] = args else { return Err(Fault::Arity) };
    let (pairs, []) = args[1..].as_chunks::<2>() else {
        return Err(Fault::Text(wrong_number("hset")));
    };
    let added = keyspace.grow(key, |hash: &mut Hash| {
        let new =
            |[field, value]: &[&[u8]; 2]| hash.insert(field.to_vec(), value.to_vec()).is_none();
        pairs.iter().map(new).filter(|new| *new).count()
    })?;
    Ok(count(added))
}

pub(super) fn hget(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, field] = args else { return Err(Fault::Arity) };
    Ok(value_of(keyspace.find::<Hash>(key)?.as_deref(), field))
}

pub(super) fn hmget(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let (key, fields) = key_and_rest(args)?;
    let hash = keyspace.find::<Hash>(key)?;
    let hash = hash.as_deref();
    Ok(Value::Array(fields.iter().map(|field| value_of(hash, field)).collect()))
}

fn value_of(hash: Option<&Hash>, field: &[u8]) -> Value {
    let value = hash.and_then(|hash| hash.get(field));
    value.map_or(Value::Nil, |value| bulk(value.as_slice()))
}

pub(super) fn hexists(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, field] = args else { return Err(Fault::Arity) };
    Ok(flag(keyspace.find::<Hash>(key)?.is_some_and(|hash| hash.contains_key(*field))))
}

pub(super) fn hdel(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let (key, fields) = key_and_rest(args)?;
    let removed = keyspace.shrink(key, |hash: &mut Hash| {
        fields.iter().filter(|field| hash.remove(**field).is_some()).count()
    })?;
    Ok(count(removed))
}

pub(super) fn hlen(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key] = args else { return Err(Fault::Arity) };
    Ok(count(keyspace.find::<Hash>(key)?.map_or(0, |hash| hash.len())))
}

pub(super) fn hgetall(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key] = args else { return Err(Fault::Arity) };
    let pairs = keyspace.find::<Hash>(key)?.into_iter().flat_map(|hash| hash.iter());
    Ok(Value::Array(
        pairs.flat_map(|(field, value)| [field, value]).map(|part| bulk(part.as_slice())).collect(),
    ))
}
