//! Whether a server may forget its locks when it restarts.

use super::values;
use super::wire::info_field;
use crate::protocol::Risk;
use redis::{Pipeline, Value};

/// Asks for a server's persistence settings.
pub(super) fn question() -> Pipeline {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("INFO").arg("persistence");
    pipeline.cmd("CONFIG").arg("GET").arg("appendfsync");
    pipeline
}

/// Why a server that answered [`question`] may forget locks when it restarts, if it says so. Only writes that
/// are on the disk before the reply survive every restart. An ACL may forbid either question.
pub(super) fn forgets(values: &[Value], name: &str) -> Option<Risk> {
    let [info, config] = values else { return None };
    let appends = info_field(info, "aof_enabled")?;
    if appends == "0" {
        return Some(Risk::Forgets(format!("{name} has appendonly no")));
    }
    let [(_, Value::BulkString(policy))] = *values::pairs(config) else { return None };
    let policy = String::from_utf8_lossy(policy);
    (policy != "always").then(|| Risk::Forgets(format!("{name} has appendfsync {policy}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_server_that_may_forget_locks_says_why() {
        let config = |policy: &str| Value::Map(vec![(bulk("appendfsync"), bulk(policy))]);
        let why = |info: &str, config: Value| forgets(&[bulk(info), config], "a:1");
        let risk = |why: &str| Some(Risk::Forgets(why.to_owned()));
        assert_eq!(why("aof_enabled:1\r\n", config("always")), None);
        assert_eq!(
            why("aof_enabled:0\r\n", config("always")),
            risk("a:1 has appendonly no"),
            "its policy is of no use then"
        );
        assert_eq!(
            why("aof_enabled:1\r\n", config("everysec")),
            risk("a:1 has appendfsync everysec")
        );
        // A server that hides its settings causes no warning.
        assert_eq!(why("aof_enabled:1\r\n", Value::Nil), None);
        assert_eq!(forgets(&[Value::Nil, config("no")], "a:1"), None);
    }
}
