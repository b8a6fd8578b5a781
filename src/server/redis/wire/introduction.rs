//! A server's introduction: its identity, its clock, and how safe locks are there.

use super::info::{info_field, too_old};
use super::{brief, error_reply, lasting};
use crate::protocol::{Failure, Refusal, Risk, ServerProbe, ServerTime, exact};
use redis::{Pipeline, Value};
use std::sync::LazyLock;
use std::time::Duration;

/// The commands of a probe, as they are sent.
pub(in crate::server::redis) fn probe_commands() -> &'static [u8] {
    static PACKED: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut pipeline = Pipeline::new();
        add_probe(&mut pipeline);
        pipeline.get_packed_pipeline()
    });
    &PACKED
}

/// The number of commands that [`add_probe`] adds to a pipeline.
pub(in crate::server::redis) const PROBE_COMMANDS: usize = 3;

/// Asks for the server's replication id and its time.
pub(in crate::server::redis) fn add_probe(pipeline: &mut Pipeline) {
    pipeline.cmd("INFO").arg("server");
    pipeline.cmd("INFO").arg("replication");
    pipeline.cmd("TIME");
}

/// A server's answer to [`add_probe`].
pub(in crate::server::redis) fn probe(values: &[Value]) -> Result<ServerProbe, Failure> {
    let [server, replication, time] = values else {
        return Err(Failure::Lost("the server sent too few answers".to_owned()));
    };
    if let Some(failure) = [server, replication].into_iter().find_map(passing_error) {
        return Err(failure);
    }
    let uptime = info_field(server, "uptime_in_seconds").and_then(|text| text.parse::<i64>().ok());
    Ok(ServerProbe {
        replication_id: replication_id(server, replication),
        time: server_time(time)?,
        // Negative after its clock was set back: zero shows at least that it runs.
        uptime: uptime.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
    })
}

/// The error in place of an answer, unless it lasts: whoever may not run INFO does without.
fn passing_error(answer: &Value) -> Option<Failure> {
    let Value::ServerError(error) = answer else { return None };
    let failure = error_reply(error);
    lasting(&failure).is_none().then_some(failure)
}

/// The number of replicas in a server's answer to [`add_probe`].
pub(in crate::server::redis) fn connected_replicas(values: &[Value]) -> u32 {
    let count = values.get(1).and_then(|replication| info_field(replication, "connected_slaves"));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Whether a server's answer to [`add_probe`] says that it is a replica. An ACL may forbid INFO; then its
/// first refused write shows it.
pub(in crate::server::redis) fn is_replica(values: &[Value]) -> bool {
    role(values).is_some_and(|role| role == "slave")
}

/// Whether it is one of several servers that take writes, as those of `KeyDB` with active replication do.
///
/// Source: <https://docs.keydb.dev/docs/active-rep>
fn is_active_replica(values: &[Value]) -> bool {
    role(values).is_some_and(|role| role == "active-replica")
}

fn role(values: &[Value]) -> Option<String> {
    values.get(1).and_then(|replication| info_field(replication, "role"))
}

/// The replication id changes with every promotion, the run id with every start. An ACL may forbid INFO; then
/// this is unknown.
fn replication_id(server: &Value, replication: &Value) -> Option<String> {
    let run = info_field(server, "run_id")?;
    let replication = info_field(replication, "master_replid")?;
    Some(format!("{run}/{replication}"))
}

/// The first commands of a new connection after its login.
pub(in crate::server::redis) fn introduction(client_name: &str, db: u32) -> Pipeline {
    let mut pipeline = Pipeline::new();
    add_probe(&mut pipeline);
    pipeline.cmd("INFO").arg("memory");
    pipeline.cmd("CLIENT").arg("SETNAME").arg(client_name);
    // A user who only needs database 0 may lack the permission for SELECT.
    if db != 0 {
        pipeline.cmd("SELECT").arg(db);
    }
    pipeline
}

/// A server's answer to an [`introduction`]: its probe, and the reasons why locks may be less safe there than
/// they could be; `name` is the server's name for people.
pub(in crate::server::redis) fn introduced(
    values: &[Value],
    name: &str,
) -> Result<(ServerProbe, Vec<Risk>), Failure> {
    // The answer to SETNAME is ignored: a server that denies it is as good.
    let [about, _replication, _time, memory, _name, selected @ ..] = values else {
        return Err(Failure::Lost("the server sent too few answers".to_owned()));
    };
    // Checked first, because a Sentinel does not know the other commands.
    let mode = info_field(about, "redis_mode").or_else(|| info_field(about, "server_mode"));
    if mode.as_deref() == Some("sentinel") {
        let detail = "mode: it watches servers and keeps no data".to_owned();
        return Err(Failure::Refused(Refusal { code: "SENTINEL".to_owned(), detail }));
    }
    if let Some(version) = too_old(about) {
        return Err(Failure::Refused(Refusal { code: "VERSION".to_owned(), detail: version }));
    }
    if let [Value::ServerError(error)] = selected {
        return Err(error_reply(error));
    }
    let probe = probe(values.get(..PROBE_COMMANDS).unwrap_or_default())?;
    let replica = is_replica(values).then(|| Risk::Replica(name.to_owned()));
    let active = is_active_replica(values).then(|| Risk::ActiveReplica(name.to_owned()));
    Ok((probe, [replica, active, eviction(memory, name)].into_iter().flatten().collect()))
}

/// Every policy but one can evict locks, because all of them have a TTL.
fn eviction(memory: &Value, name: &str) -> Option<Risk> {
    let policy = info_field(memory, "maxmemory_policy").filter(|policy| policy != "noeviction")?;
    let unlimited = info_field(memory, "maxmemory").is_some_and(|limit| limit == "0");
    let yet = if unlimited { ", which evicts nothing as long as maxmemory is 0" } else { "" };
    Some(Risk::Eviction(format!("the maxmemory-policy of {name} is {policy}{yet}")))
}

pub(in crate::server::redis) fn server_time(value: &Value) -> Result<ServerTime, Failure> {
    match value {
        Value::ServerError(error) => Err(error_reply(error)),
        value => read_time(value).ok_or_else(|| {
            Failure::Lost(brief(format!("the server answered TIME with {value:?}")))
        }),
    }
}

/// Reads `[seconds, µs]`.
fn read_time(value: &Value) -> Option<ServerTime> {
    let Value::Array(parts) = value else { return None };
    let [Value::BulkString(seconds), Value::BulkString(micros)] = parts.as_slice() else {
        return None;
    };
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u64>().ok();
    let time = number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)?;
    exact(time).map(ServerTime::from_micros)
}

#[cfg(test)]
mod tests {
    use super::super::value;
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_replication_id_consists_of_run_and_replication() {
        let server = bulk("# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n");
        let replication = bulk("role:master\r\nmaster_replid:def\r\nmaster_replid2:000\r\n");
        let time = Value::Array(vec![bulk("1700000000"), bulk("000042")]);
        let values = [server, replication, time];
        assert!(!is_replica(&values), "a master is no replica");
        let probe = probe(&values).unwrap();
        assert_eq!(probe.replication_id.as_deref(), Some("abc/def"));
        assert_eq!(probe.time.as_micros(), 1_700_000_000_000_042);
    }

    #[test]
    fn a_probe_without_an_answer_is_none() {
        let time = || Value::Array(vec![bulk("1"), bulk("0")]);
        let error = |text: &str| value(format!("-{text}\r\n").as_bytes()).unwrap();
        let denied = "NOPERM this user has no permissions to run the 'info' command";
        for failed in 0..PROBE_COMMANDS {
            let mut values = [bulk(""), bulk(""), time()];
            values[failed] = error("ERR upstream failure");
            assert!(probe(&values).is_err(), "{failed}");
        }
        assert_eq!(probe(&[error(denied), error(denied), time()]).unwrap().replication_id, None);
    }

    #[test]
    fn an_uptime_below_zero_is_none_at_all() {
        let uptime = |text: &str| {
            let time = Value::Array(vec![bulk("1"), bulk("0")]);
            probe(&[bulk(&format!("uptime_in_seconds:{text}\r\n")), bulk(""), time]).unwrap().uptime
        };
        assert_eq!(uptime("7"), Some(Duration::from_secs(7)));
        assert_eq!(uptime("-3598"), Some(Duration::ZERO), "its clock was set back");
    }

    /// A server's answers to an introduction.
    fn answers(server: &str, replication: &str, memory: &str) -> Vec<Value> {
        let time = Value::Array(vec![bulk("1"), bulk("0")]);
        vec![bulk(server), bulk(replication), time, bulk(memory), Value::Okay]
    }

    #[test]
    fn a_server_that_can_lose_locks_is_known_at_once() {
        let risks =
            |role: &str, memory: &str| introduced(&answers("", role, memory), "a:1").unwrap().1;
        assert_eq!(risks("role:master\r\n", "maxmemory_policy:noeviction\r\n"), []);
        assert_eq!(risks("role:slave\r\n", ""), [Risk::Replica("a:1".to_owned())]);
        let active = "role:active-replica\r\nmaster_host:b\r\n";
        assert_eq!(risks(active, ""), [Risk::ActiveReplica("a:1".to_owned())]);
        let full = "maxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n";
        let expected = "the maxmemory-policy of a:1 is allkeys-lru".to_owned();
        assert_eq!(risks("", full), [Risk::Eviction(expected.clone())]);
        let unlimited = "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n";
        let expected = format!("{expected}, which evicts nothing as long as maxmemory is 0");
        assert_eq!(risks("", unlimited), [Risk::Eviction(expected)]);
    }

    #[test]
    fn a_sentinel_is_refused_whatever_it_calls_its_mode() {
        for mode in ["redis_mode:sentinel\r\n", "server_mode:sentinel\r\n"] {
            let mut answers = answers(mode, "", "");
            answers.truncate(3);
            // A Sentinel knows neither TIME nor SELECT, and has no such section.
            answers.extend([bulk(""), Value::Okay, Value::Nil]);
            let Err(Failure::Refused(refusal)) = introduced(&answers, "") else {
                panic!("accepted")
            };
            assert_eq!(refusal.code, "SENTINEL");
        }
        assert!(
            introduced(&answers("redis_mode:standalone\r\n", "", ""), "").is_ok(),
            "a standalone server is accepted"
        );
    }

    #[test]
    fn a_time_that_no_server_in_order_sends_is_an_unknown_outcome() {
        for seconds in ["18446744073709", "18446744073709551615"] {
            let time = Value::Array(vec![bulk(seconds), bulk("999999")]);
            assert!(matches!(server_time(&time), Err(Failure::Lost(_))), "{seconds}");
        }
    }
}
