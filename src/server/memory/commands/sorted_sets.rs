//! Commands for sorted sets.

use super::answer::{Args, Fault, Outcome, SYNTAX, fault, integer, key_and_rest};
use crate::server::memory::keyspace::Keyspace;
use crate::server::memory::number::{self, Bound};
use crate::server::memory::reply::{bulk, count};
use crate::server::memory::sorted_set::SortedSet;
use redis::Value;

pub(super) fn zadd(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, _, _, ..] = args else { return Err(Fault::Arity) };
    let (conditions, pairs) = conditions(&args[1..]);
    let pairs = match pairs.as_chunks::<2>() {
        (pairs, []) if !pairs.is_empty() => pairs,
        _ => return Err(SYNTAX),
    };
    if conditions.new && conditions.there {
        return Err(fault("ERR XX and NX options at the same time are not compatible"));
    }
    let pairs: Vec<(f64, &[u8])> = pairs
        .iter()
        .map(|[score, member]| Some((number::score(score)?, *member)))
        .collect::<Option<_>>()
        .ok_or(fault("ERR value is not a valid float"))?;
    let added = keyspace.grow(key, |set: &mut SortedSet| {
        let new = |(score, member): &(f64, &[u8])| {
            let there = set.score(member).is_some();
            let allowed = if there { !conditions.new } else { !conditions.there };
            allowed && set.insert(member, *score)
        };
        pairs.iter().map(new).filter(|new| *new).count()
    })?;
    Ok(count(added))
}

#[derive(Default)]
struct Conditions {
    /// NX
    new: bool,
    /// XX
    there: bool,
}

/// The conditions at the beginning of `args`, and the rest.
fn conditions(args: Args<'_>) -> (Conditions, Args<'_>) {
    let mut conditions = Conditions::default();
    let mut rest = args;
    while let [option, tail @ ..] = rest {
        match option.to_ascii_lowercase().as_slice() {
            b"nx" => conditions.new = true,
            b"xx" => conditions.there = true,
            _ => break,
        }
        rest = tail;
    }
    (conditions, rest)
}

pub(super) fn zrem(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let (key, members) = key_and_rest(args)?;
    let removed = keyspace.shrink(key, |set: &mut SortedSet| {
        members.iter().filter(|member| set.remove(member)).count()
    })?;
    Ok(count(removed))
}

pub(super) fn zremrangebyscore(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, min, max] = args else { return Err(Fault::Arity) };
    let (min, max) = bounds(min, max)?;
    let removed = keyspace.shrink(key, |set: &mut SortedSet| {
        let members: Vec<Vec<u8>> =
            set.between(min, max).map(|(member, _)| member.to_vec()).collect();
        members.iter().filter(|member| set.remove(member)).count()
    })?;
    Ok(count(removed))
}

pub(super) fn zrange(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, start, stop, options @ ..] = args else { return Err(Fault::Arity) };
    if !options.iter().all(|option| option.eq_ignore_ascii_case(b"WITHSCORES")) {
        return Err(SYNTAX);
    }
    let (start, stop) = (integer(start)?, integer(stop)?);
    let Some(set) = keyspace.find::<SortedSet>(key)? else { return Ok(Value::Array(vec![])) };
    let length = i64::try_from(set.len()).unwrap_or(i64::MAX);
    // A negative index counts from the end.
    let index = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
    let start = index(start).max(0);
    let wanted = index(stop).min(length - 1).saturating_sub(start).saturating_add(1).max(0);
    let elements = set.iter().skip(size(start)).take(size(wanted));
    Ok(listed(elements, !options.is_empty()))
}

pub(super) fn zrangebyscore(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, min, max, options @ ..] = args else { return Err(Fault::Arity) };
    let options = RangeOptions::read(options)?;
    let (min, max) = bounds(min, max)?;
    let Some(set) = keyspace.find::<SortedSet>(key)? else { return Ok(Value::Array(vec![])) };
    let elements = set.between(min, max).skip(options.offset).take(options.limit);
    Ok(listed(elements, options.with_scores))
}

/// The options after the range of ZRANGEBYSCORE.
struct RangeOptions {
    with_scores: bool,
    offset: usize,
    limit: usize,
}

impl RangeOptions {
    fn read(args: Args<'_>) -> Result<Self, Fault> {
        let mut options = Self { with_scores: false, offset: 0, limit: usize::MAX };
        let mut rest = args;
        while let [option, tail @ ..] = rest {
            rest = match (option.to_ascii_lowercase().as_slice(), tail) {
                (b"withscores", tail) => {
                    options.with_scores = true;
                    tail
                }
                (b"limit", [offset, limit, tail @ ..]) => {
                    // A negative offset yields nothing; a negative limit means no limit.
                    options.offset = size(integer(offset)?);
                    options.limit = size(integer(limit)?);
                    tail
                }
                _ => return Err(SYNTAX),
            };
        }
        Ok(options)
    }
}

/// A negative number counts as larger than all sizes.
fn size(number: i64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

pub(super) fn zrank(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, member] = args else { return Err(Fault::Arity) };
    let rank = keyspace.find::<SortedSet>(key)?.and_then(|set| set.rank(member));
    Ok(rank.map_or(Value::Nil, count))
}

pub(super) fn zscore(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, member] = args else { return Err(Fault::Arity) };
    let score = keyspace.find::<SortedSet>(key)?.and_then(|set| set.score(member));
    Ok(score.map_or(Value::Nil, |score| bulk(number::text(score))))
}

pub(super) fn zcard(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key] = args else { return Err(Fault::Arity) };
    Ok(count(keyspace.find::<SortedSet>(key)?.map_or(0, |set| set.len())))
}

pub(super) fn zcount(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key, min, max] = args else { return Err(Fault::Arity) };
    let (min, max) = bounds(min, max)?;
    let set = keyspace.find::<SortedSet>(key)?;
    Ok(count(set.map_or(0, |set| set.between(min, max).count())))
}

fn bounds(min: &[u8], max: &[u8]) -> Result<(Bound, Bound), Fault> {
    let bounds = number::bound(min).zip(number::bound(max));
    bounds.ok_or(fault("ERR min or max is not a float"))
}

fn listed<'a>(elements: impl Iterator<Item = (&'a [u8], f64)>, with_scores: bool) -> Value {
    let mut list = Vec::new();
    for (member, score) in elements {
        list.push(bulk(member));
        if with_scores {
            list.push(bulk(number::text(score)));
        }
    }
    Value::Array(list)
}
