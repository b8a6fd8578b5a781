//! The server's answer to INFO.

use redis::Value;

/// The oldest Redis whose commands suffice. Every Valkey says that it is a Redis 7.
const OLDEST_REDIS: (u32, u32) = (6, 2);

/// A field of INFO.
pub(in crate::server::redis) fn info_field(info: &Value, field: &str) -> Option<String> {
    let text = match info {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes),
        Value::VerbatimString { text, .. } => text.into(),
        _ => return None,
    };
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// The version of a Redis that is older than the commands of the scripts, by the fields of INFO. A server that gives no
/// version is tried, and so is Kvrocks, which calls itself a Redis 4 whatever it can do.
pub(in crate::server::redis) fn too_old(about: &Value) -> Option<String> {
    let old = version(about, "redis_version")? < OLDEST_REDIS
        && info_field(about, "kvrocks_version").is_none();
    info_field(about, "redis_version").filter(|_| old)
}

/// Major and minor version.
fn version(about: &Value, field: &str) -> Option<(u32, u32)> {
    let text = info_field(about, field)?;
    let mut numbers = text.split('.').map(|number| number.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_be_too_old() {
        for (info, old) in [
            ("redis_version:6.0.16\r\n", Some("6.0.16")),
            ("redis_version:5.0.14\r\n", Some("5.0.14")),
            ("redis_version:6.2.0\r\n", None),
            ("redis_version:7.2.4\r\nvalkey_version:8.1.1\r\n", None),
            ("redis_version:4.0.0\r\nkvrocks_version:2.9.0\r\n", None),
            ("redis_version:unstable\r\n", None),
            ("", None),
        ] {
            let about = Value::BulkString(info.as_bytes().to_vec());
            assert_eq!(too_old(&about).as_deref(), old, "{info}");
        }
    }
}
