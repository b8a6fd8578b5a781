//! The commands that one server understands and allows a user, asked for once with each connection.

use super::dialect::{Delete, Dialect};
use super::probe::{self, Refused};
use super::wire;
use crate::protocol::{CounterKey, Counters, Denied, Failure, Refusal, WRONG_TYPE};
use crate::server::Resp;
use redis::{Pipeline, Value};

/// A value that no counter has, so that a compare-and-delete with it deletes nothing.
const NO_COUNTER: &str = "-";

/// Some services refuse scripts that do not write each key as `KEYS[n]`, as those of locks do not.
const KEY_IN_VARIABLE: &str = "local key = KEYS[1] redis.pcall('EXISTS', key) return 1";

/// Whether the server lets this user read the counter, and run the commands of locks: also scripts, for a lock that no
/// script can release must not be taken. And what it denies to scripts, which may publish to `channel`. Changes nothing:
/// of the commands that only some servers have, no version tells, so each is tried where it finds nothing to change.
pub(super) fn question(counters: Counters, channel: Option<&str>, resp: Resp) -> Pipeline {
    let key = match counters {
        Counters::Slots => CounterKey::Slot(0).to_string(),
        Counters::Server | Counters::Locks => CounterKey::Server.to_string(),
    };
    let mut pipeline = Pipeline::new();
    pipeline.cmd("GET").arg(&key);
    pipeline.cmd("MGET").arg(&key);
    probe::add_to(&mut pipeline, channel);
    // Behind a proxy that hides several servers, the keys of a script must have one slot.
    let other = CounterKey::Slot(0).to_string();
    pipeline.cmd("EVAL").arg("return 1").arg(2).arg(&key).arg(other);
    pipeline.cmd("EVAL").arg(KEY_IN_VARIABLE).arg(1).arg(&key);
    probe::add_hash_with_key(&mut pipeline, &key);
    pipeline.cmd("DELIFEQ").arg(&key).arg(NO_COUNTER);
    pipeline.cmd("DELEX").arg(&key).arg("IFEQ").arg(NO_COUNTER);
    // No value is there to be equal. A server that overlooked the condition would keep nothing for longer than a ms.
    let renewal = pipeline.cmd("SET").arg(probe::NO_KEY).arg(NO_COUNTER);
    renewal.arg("IFEQ").arg(NO_COUNTER).arg("PX").arg(1);
    // Nor is the key there, of which XX is the condition.
    let several = pipeline.cmd("MSETEX").arg(1).arg(probe::NO_KEY).arg(NO_COUNTER);
    several.arg("XX").arg("PX").arg(1);
    // A server tells of changed keys by pushes alone. Nothing is tracked that is not asked for.
    if resp == Resp::Three {
        pipeline.add_command(wire::tracking(true));
        pipeline.cmd("CLIENT").arg("CACHING").arg("YES");
    }
    pipeline
}

/// The dialect for a server that answered [`question`], what it denies, and what it refuses to scripts. Fails if an answer
/// does not tell: an error that passes must not be taken for a denial that lasts as long as the connection. Only the
/// commands that few servers have are done without then, since every server says in its own words that it has none.
pub(super) fn answered(
    counters: Counters,
    values: Vec<Value>,
) -> Result<(Dialect, Denied, Refused), Failure> {
    let mut values = values.into_iter();
    let mut next = || values.next().unwrap_or(Value::Nil);
    let (counter, mget) = (denied(next())?, denied(next())?);
    let probe = next();
    let mut refused = probe::refused(&probe)?;
    let (eval, evalsha) = (denied(probe)?, denied(next())?);
    let two_keys = next();
    let one_slot = is_cross_slot(two_keys.clone())?;
    let two_keys = if one_slot { None } else { denied(two_keys)? };
    let (key_in_variable, hash_with_key) = (denied(next())?, denied(next())?);
    refused.deny("EVAL", &[&eval, &two_keys, &key_in_variable]);
    refused.deny("EVALSHA", &[&evalsha, &hash_with_key]);
    let delete = match [next(), next()].map(|answer| runs(&answer)) {
        [Some(true) | None, _] => Delete::Delifeq,
        [_, Some(true) | None] => Delete::Delex,
        _ => Delete::Script,
    };
    // Where the key is elsewhere, the words of the command are not looked at. What has one of these has all.
    let renewal = !runs(&next()).unwrap_or(delete != Delete::Script);
    // A server looks where the key is only once it knows the command. Behind a proxy of several servers each slot has a
    // counter, and the machine does not know of that: fences of two counters have no order.
    let counts_by_slots = one_slot && matches!(counters, Counters::Server);
    let several = runs(&next()) == Some(false) || counts_by_slots;
    // Only a lack of the right to the key: fences of two counters have no order.
    let counter_denied = counter.as_ref().is_some_and(|refusal| refusal.code == "NOPERM");
    let counters = match counters {
        _ if counter_denied => Counters::Locks,
        Counters::Server if one_slot => Counters::Slots,
        counters => counters,
    };
    let pubsub = refused.publish.as_ref().map(|why| format!("scripts may not publish: {why}"));
    let plain_commands = counter.or(mget).or(eval).or(evalsha).or(key_in_variable);
    let plain_commands = plain_commands.map(|why| match counters {
        Counters::Locks => format!("{why}; {OWN_COUNTERS}"),
        Counters::Server | Counters::Slots => why.to_string(),
    });
    let clock = refused.clock.clone();
    let tracking = [next(), next()].iter().all(|answer| *answer == Value::Okay);
    let dialect = Dialect { counters, delete, clock: clock.is_none() };
    let denied = Denied { pubsub, plain_commands, clock, renewal, several, tracking: !tracking };
    Ok((dialect, denied, refused))
}

/// The advice for a manager without the common counter.
const OWN_COUNTERS: &str = "so each lock has its own fence counter here, and its fences have no order with those of \
clients that may use the counter of all locks";

/// Whether the keys of a script must have one slot.
fn is_cross_slot(value: Value) -> Result<bool, Failure> {
    let Err(error) = value.clone().extract_error() else { return Ok(false) };
    match wire::failure(&error) {
        // Not every proxy gives the code CROSSSLOT.
        Failure::Refused(refusal) if refusal.detail.contains("same slot") => Ok(true),
        _ => denied(value).map(|_| false),
    }
}

/// Whether a command that few servers have has run; none if its key or the server's state has prevented that.
fn runs(answer: &Value) -> Option<bool> {
    let Err(error) = answer.clone().extract_error() else {
        return Some(matches!(answer, Value::Int(_) | Value::Nil));
    };
    match wire::failure(&error) {
        Failure::Refused(refusal) if refusal.code == WRONG_TYPE => Some(true),
        Failure::Refused(refusal) if comes_after_rights(&refusal) => None,
        _ => Some(false),
    }
}

/// Why a command is denied, if so.
fn denied(value: Value) -> Result<Option<Refusal>, Failure> {
    let Err(error) = value.extract_error() else { return Ok(None) };
    let failure = wire::failure(&error);
    match (wire::lasting(&failure), &failure) {
        (Some(refusal), _) => Ok(Some(refusal.clone())),
        // A server looks for the script, the slot, the type of a key and its own state only after the user's rights.
        (_, Failure::NoScript) => Ok(None),
        (_, Failure::Refused(refusal)) if comes_after_rights(refusal) => Ok(None),
        (_, Failure::Refused(refusal)) => {
            Err(Failure::Lost(format!("the server cannot tell what it allows: {refusal}")))
        }
        _ => Err(failure),
    }
}

/// Whether a server refuses so only what its user may do.
fn comes_after_rights(refusal: &Refusal) -> bool {
    let of_the_key = ["ASK", "CROSSSLOT", "MOVED", WRONG_TYPE].contains(&&*refusal.code);
    of_the_key || refusal.is_transient() || refusal.is_shortage()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::LockKeys;

    fn error(text: &str) -> Value {
        wire::value(format!("-{text}\r\n").as_bytes()).unwrap()
    }

    const SLOTS: Counters = Counters::Slots;

    fn unknown() -> Value {
        error("ERR unknown command 'X', with args beginning with: 'k'")
    }

    /// The answers to all of it on Redis 8.4.
    fn answers() -> Vec<Value> {
        let (nil, one, zero) = (Value::Nil, Value::Int(1), Value::Int(0));
        let (unknown, ok) = (unknown(), Value::Okay);
        let all =
            [&nil, &nil, &one, &one, &one, &one, &one, &unknown, &zero, &nil, &zero, &ok, &ok];
        all.map(Clone::clone).to_vec()
    }

    fn of(values: Vec<Value>) -> (Counters, Delete, Option<String>) {
        let (Dialect { counters, delete, .. }, denied, _) = answered(SLOTS, values).unwrap();
        (counters, delete, denied.plain_commands)
    }

    /// The answer of the probe.
    fn probed(refusals: [&str; 3]) -> Value {
        Value::Array(refusals.map(|text| Value::BulkString(text.into())).to_vec())
    }

    const ONE: Value = Value::Int(1);

    #[test]
    fn a_server_that_allows_all_gets_all() {
        let moved = || error("MOVED 1 127.0.0.1:7000");
        let read_only = error("READONLY You can't write against a read only replica.");
        for [get, mget, delete, set, several] in [
            [Value::Nil, Value::Array(vec![Value::Nil]), Value::Int(0), Value::Nil, Value::Int(0)],
            [moved(), moved(), read_only, moved(), moved()],
        ] {
            let (probe, unknown) = (probed(["", "", ""]), unknown());
            let mut values =
                vec![get, mget, probe, ONE, ONE, ONE, ONE, unknown, delete, set, several];
            assert_eq!(question(SLOTS, None, Resp::Two).len(), values.len());
            values.extend([Value::Okay, Value::Okay]);
            assert_eq!(question(SLOTS, None, Resp::Three).len(), values.len());
            let (dialect, denied, _) = answered(SLOTS, values).unwrap();
            assert_eq!((dialect.counters, dialect.delete), (Counters::Slots, Delete::Delex));
            assert_eq!((dialect.clock, denied), (true, Denied::default()));
        }
    }

    #[test]
    fn what_a_server_denies_is_not_used() {
        let denied = "NOPERM No permissions to access a key";
        let (counters, delete, why) = of(answers().iter().map(|_| error(denied)).collect());
        assert_eq!((counters, delete), (Counters::Locks, Delete::Script));
        let why = why.unwrap();
        assert!(why.starts_with(denied) && why.ends_with(OWN_COUNTERS), "{why}");
        let mut without = answers();
        without[1] = error("ERR unknown command 'MGET', with args beginning with: 'k'");
        let (counters, delete, why) = of(without);
        assert_eq!((counters, delete), (Counters::Slots, Delete::Delex));
        assert!(why.unwrap().contains("MGET"), "the reason names the missing command");
        for refused in 2..6 {
            let mut answers = answers();
            answers[refused] = error("ERR bad lua script");
            let (.., why) = of(answers);
            // The one with keys in two slots is not asked to run.
            assert_eq!(why.is_some(), refused != 4, "no script could release the lock");
        }
    }

    #[test]
    fn scripts_that_nobody_may_call_are_told_from_a_few_that_a_server_refuses() {
        let without = |refusals: &[(usize, &str)]| {
            let mut answers = answers();
            for (number, text) in refusals {
                answers[*number] = error(text);
            }
            let (_, _, refused) = answered(SLOTS, answers).unwrap();
            refused.half_done(&[], "app").map(|refusal| refusal.to_string())
        };
        let no = "NOPERM this user has no permissions to run the 'eval' command";
        let grant = |rule| {
            let names = rule_names(rule);
            Some(format!("NOPERM locks may not run {names}: grant it by ACL SETUSER app {rule}"))
        };
        assert_eq!(without(&[(2, no), (4, no), (5, no)]), grant("+eval"));
        let no_hash = "NOPERM this user has no permissions to run the 'evalsha' command";
        assert_eq!(without(&[(3, no_hash), (6, no_hash)]), grant("+evalsha"));
        let both = [(2, no), (4, no), (5, no), (3, no_hash), (6, no_hash)];
        assert_eq!(without(&both), grant("+eval +evalsha"));
        let unknown = "ERR unknown command 'EVAL', with args beginning with: 'local key'";
        assert_eq!(
            without(&[(2, unknown), (4, unknown), (5, unknown)]).as_deref(),
            Some("ERR locks may not run EVAL: unknown command 'EVAL'")
        );
        // Services that want a key in every script, also for users without a right to this one.
        let keyless = "ERR eval/evalsha number of keys can't be negative or zero";
        let no_key = "NOPERM No permissions to access a key";
        assert_eq!(without(&[(2, keyless), (3, keyless)]), None);
        let restricted = [(2, keyless), (3, keyless), (4, no_key), (5, no_key), (6, no_key)];
        assert_eq!(without(&restricted), None);
        let crossed = "CROSSSLOT Keys in request don't hash to the same slot";
        assert_eq!(without(&[(2, no), (4, crossed), (5, no)]), None);
    }

    fn rule_names(rule: &str) -> String {
        rule.replace('+', "").to_ascii_uppercase().replace(' ', ", ")
    }

    #[test]
    fn what_a_server_denies_to_scripts_alone_is_known() {
        let asked = |refusals| {
            let mut values = answers();
            values[2] = probed(refusals);
            let (dialect, denied, _) = answered(Counters::Server, values).unwrap();
            (dialect.clock, denied)
        };
        let (clock, denied) = asked(["This Redis command is not allowed from scripts", "", ""]);
        assert!(!clock && denied.pubsub.is_none(), "the scripts have no clock, and may publish");
        assert_eq!(denied.clock.as_deref(), Some("This Redis command is not allowed from scripts"));
        let no = "ERR This Redis command is not allowed from script";
        for refusals in [["", no, ""], ["", "", no]] {
            let (clock, denied) = asked(refusals);
            assert!(clock && denied.clock.is_none(), "scripts have a clock: {:?}", denied.clock);
            let pubsub = denied.pubsub.as_deref().and_then(|why| why.strip_suffix(no));
            assert_eq!(pubsub, Some("scripts may not publish: "));
        }
    }

    #[test]
    fn an_answer_that_does_not_tell_fails_the_connection() {
        assert!(answered(SLOTS, answers()).is_ok(), "a whole answer is understood");
        for number in 0..7 {
            for text in ["ERR upstream failure", "UNAVAILABLE try later"] {
                let mut answers = answers();
                answers[number] = error(text);
                let failure = answered(SLOTS, answers).unwrap_err();
                assert!(failure.to_string().contains(text), "{number}: {failure}");
            }
            // A server that is not ready yet has checked the user's rights.
            let mut answers = answers();
            answers[number] = error("LOADING Redis is loading the dataset in memory");
            let (dialect, denied, _) = answered(SLOTS, answers).unwrap();
            assert_eq!((dialect.counters, dialect.delete), (Counters::Slots, Delete::Delex));
            assert_eq!(denied, Denied::default());
        }
        let mut answers = answers();
        answers[0] = error("ERR unknown command 'GET'");
        let (dialect, ..) = answered(SLOTS, answers).unwrap();
        assert_eq!(dialect.counters, Counters::Slots, "scripts may use the counter");
    }

    #[test]
    fn what_few_servers_have_is_used_where_it_has_run() {
        let (zero, nil) = (|| Value::Int(0), || Value::Nil);
        let syntax = || error("ERR syntax error");
        let moved = || error("MOVED 1 127.0.0.1:7000");
        let full = || error("OOM command not allowed when used memory > 'maxmemory'.");
        let wrong = || error("WRONGTYPE Operation against a key holding the wrong kind of value");
        let passing = || error("ERR upstream failure");
        for (delifeq, delex, set, delete, renews) in [
            // Redis 8.4, Valkey 8.1, Valkey 9.0, and what is older.
            (unknown(), zero(), nil(), Delete::Delex, true),
            (unknown(), unknown(), nil(), Delete::Script, true),
            (zero(), unknown(), nil(), Delete::Delifeq, true),
            (unknown(), unknown(), syntax(), Delete::Script, false),
            // A server that overlooks the condition.
            (unknown(), unknown(), Value::Okay, Delete::Script, false),
            (zero(), unknown(), syntax(), Delete::Delifeq, false),
            // The key is elsewhere, the memory is full, or a key is no text.
            (unknown(), moved(), moved(), Delete::Delex, true),
            (unknown(), unknown(), moved(), Delete::Script, false),
            (moved(), unknown(), full(), Delete::Delifeq, true),
            (wrong(), unknown(), wrong(), Delete::Delifeq, true),
            // Not every server that lacks a command says so in words that are known.
            (passing(), passing(), passing(), Delete::Script, false),
        ] {
            let mut values = answers();
            let text = format!("{delifeq:?} {delex:?} {set:?}");
            values.splice(7..10, [delifeq, delex, set]);
            let (dialect, denied, _) = answered(SLOTS, values).unwrap();
            assert_eq!((dialect.delete, denied.renewal), (delete, !renews), "{text}");
        }
    }

    #[test]
    fn several_locks_are_taken_at_once_where_the_server_knows_how() {
        for (answer, knows) in [
            (Value::Int(0), true),
            (error("MOVED 1 127.0.0.1:7000"), true),
            (error("READONLY You can't write against a read only replica."), true),
            (unknown(), false),
            (error("NOPERM User a has no permissions to run the 'msetex' command"), false),
            (error("ERR syntax error"), false),
        ] {
            let mut values = answers();
            values[10] = answer.clone();
            let (_, denied, _) = answered(SLOTS, values).unwrap();
            assert_eq!(denied.several, !knows, "{answer:?}");
        }
    }

    #[test]
    fn a_server_that_does_not_tell_of_changed_keys_is_not_asked_to() {
        let tracks = |values| {
            let (_, denied, _) = answered(SLOTS, values).unwrap();
            !denied.tracking
        };
        assert!(tracks(answers()));
        assert!(!tracks(answers()[..11].to_vec()), "not asked, as with RESP2");
        let denied = "NOPERM this user has no permissions to run the 'client|tracking' command";
        for refused in 11..13 {
            for text in [denied, "ERR unknown subcommand 'TRACKING'. Try CLIENT HELP.", "ERR no"] {
                let mut answers = answers();
                answers[refused] = error(text);
                assert!(!tracks(answers), "{text}");
            }
        }
    }

    #[test]
    fn behind_a_proxy_of_several_servers_each_slot_has_a_counter() {
        let keys = [CounterKey::Server, CounterKey::Slot(0)];
        let [one, other] = keys.map(|key| LockKeys::from_key(&key.to_string()).slot());
        assert_ne!(one, other);
        for words in [
            "CROSSSLOT Keys in request don't hash to the same slot",
            "ERR eval/evalsha command keys must be in same slot",
        ] {
            let mut values = answers();
            values[4] = error(words);
            let (dialect, denied, _) = answered(Counters::Server, values).unwrap();
            assert_eq!(dialect.counters, Counters::Slots);
            assert!(denied.several, "their locks have no counter together");
        }
    }
}
