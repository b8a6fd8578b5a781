//! A server's answer to CLUSTER SLOTS.
//!
//! Source: <https://redis.io/docs/latest/commands/cluster-slots/>

use redis::Value;
use std::collections::BTreeSet;

/// A host and a port, as servers and Sentinels name them.
pub(super) type Name = (String, u16);

/// The slots of a Cluster, as one of its servers knows them.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// First slot, last slot and primary of each range.
    pub(super) ranges: Vec<(u16, u16, Name)>,
    /// The node ids of the servers with slots and of their replicas.
    pub(super) ids: BTreeSet<String>,
}

/// Reads `[first, last, [host, port, id, …], replica, …]` of every range. A server that does not know its own
/// address omits the host.
pub(super) fn read_slots(answer: &Value, asked: &str) -> Option<Slots> {
    let Value::Array(ranges) = answer else { return None };
    let mut slots = Slots::default();
    for range in ranges {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), servers @ ..] = range.as_slice() else {
            return None;
        };
        let Some(Value::Array(primary)) = servers.first() else { return None };
        let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
        let host = match host {
            Value::BulkString(host) if !host.is_empty() => std::str::from_utf8(host).ok()?,
            _ => asked,
        };
        let name = (host.to_owned(), u16::try_from(*port).ok()?);
        slots.ranges.push((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, name));
        slots.ids.extend(servers.iter().filter_map(read_id));
    }
    Some(slots)
}

fn read_id(server: &Value) -> Option<String> {
    let Value::Array(server) = server else { return None };
    let Value::BulkString(id) = server.get(2)? else { return None };
    String::from_utf8(id.clone()).ok()
}
