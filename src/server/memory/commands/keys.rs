//! Commands for keys of any type, and for the server itself.

use super::answer::{Args, Fault, Outcome, fault};
use crate::server::memory::keyspace::Keyspace;
use crate::server::memory::reply::{bulk, count, status};
use redis::Value;

pub(super) fn del(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    if args.is_empty() {
        return Err(Fault::Arity);
    }
    Ok(count(args.iter().filter(|key| keyspace.remove(key)).count()))
}

pub(super) fn exists(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    if args.is_empty() {
        return Err(Fault::Arity);
    }
    Ok(count(args.iter().filter(|key| keyspace.entry(key).is_some()).count()))
}

pub(super) fn kind(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [key] = args else { return Err(Fault::Arity) };
    Ok(status(keyspace.entry(key).map_or("none", |entry| entry.datum.kind())))
}

pub(super) fn keys(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    let [pattern] = args else { return Err(Fault::Arity) };
    if pattern.iter().any(|byte| matches!(byte, b'?' | b'[' | b'\\')) {
        return Err(fault("ERR of the wildcards only * is known here"));
    }
    let matching = keyspace.keys().filter(|key| matches(pattern, key));
    Ok(Value::Array(matching.map(bulk).collect()))
}

/// Whether `text` consists of the parts of `pattern` in order, with any text for each `*`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // After the last `*`: the pattern, and the text that it has not been tried on yet.
    let mut retry = None;
    loop {
        match (pattern, text) {
            ([], []) => return true,
            ([b'*', rest @ ..], _) => {
                pattern = rest;
                retry = Some((rest, text));
            }
            ([wanted, rest @ ..], [byte, tail @ ..]) if wanted == byte => {
                (pattern, text) = (rest, tail);
            }
            _ => {
                let Some((rest, [_, tail @ ..])) = retry else { return false };
                retry = Some((rest, tail));
                (pattern, text) = (rest, tail);
            }
        }
    }
}

pub(super) fn time(keyspace: &mut Keyspace, args: Args<'_>) -> Outcome {
    if !args.is_empty() {
        return Err(Fault::Arity);
    }
    let micros = keyspace.now().as_micros();
    let parts = [micros / 1_000_000, micros % 1_000_000];
    Ok(Value::Array(parts.map(|part| bulk(part.to_string())).into()))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "abc", true),
            ("a*", "abc", true),
            ("*c", "abcbc", true),
            ("a*b*c", "a-b-b-c", true),
            ("**", "x", true),
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("a*b", "abc", false),
            ("", "a", false),
            ("a*", "", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
