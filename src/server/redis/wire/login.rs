//! The first commands of a connection, and what its first bytes say about the server.

use super::super::values;
use crate::protocol::{Failure, Refusal};
use crate::server::{Login, Resp};
use redis::{Cmd, Pipeline, Value};
use std::sync::Arc;

/// The reason to end a connection whose bytes make no sense.
pub(in crate::server::redis) const NOT_RESP: &str = "the server sent something that is not RESP";

/// Why `bytes`, the first of a server, are no answer of a Redis server.
pub(in crate::server::redis) fn stranger(bytes: &[u8]) -> String {
    match bytes {
        [b'H', b'T', b'T', b'P', b'/', ..] => {
            "an HTTP server answered, not a Redis server: check host and port, and if the service has a REST API, use \
             its URL for Redis clients"
        }
        // An alert of TLS.
        [0x15, 3, ..] => "the server speaks TLS: use rediss://",
        _ => NOT_RESP,
    }
    .to_owned()
}

/// Whether a server has refused HELLO itself, not the login in it: it has no RESP3.
pub(in crate::server::redis) fn is_without_resp3(failure: &Failure) -> bool {
    let Failure::Refused(Refusal { code, detail }) = failure else { return false };
    let detail = detail.to_ascii_lowercase();
    match &**code {
        "NOPROTO" | "NOPERM" => true,
        // Proxies have words of their own: "unsupported command 'hello'".
        "ERR" => detail.contains("hello") || detail.contains("command"),
        _ => false,
    }
}

/// The protocol of a connection, as the server's answer to HELLO says: Kvrocks speaks RESP2 whatever it was asked for, unless
/// it is configured to speak RESP3.
///
/// Source: <https://redis.io/docs/latest/commands/hello/>
pub(in crate::server::redis) fn spoken(hello: &Value) -> Resp {
    let is_three = |(name, value): (&Value, &Value)| {
        let is_proto = match name {
            Value::BulkString(text) => text == b"proto",
            Value::SimpleString(text) => text == "proto",
            _ => false,
        };
        is_proto && *value == Value::Int(3)
    };
    if values::pairs(hello).into_iter().any(is_three) { Resp::Three } else { Resp::Two }
}

/// Builds the value of a whole frame.
pub(in crate::server::redis) fn value(frame: &[u8]) -> Result<Value, Failure> {
    redis::parse_redis_value(frame).map_err(|_| Failure::Lost(NOT_RESP.to_owned()))
}

/// The number of commands at the end of a [`login`] that only name the client.
pub(in crate::server::redis) const NAMING_COMMANDS: usize = 2;

/// The first commands of a connection. Servers may not know the last ones.
pub(in crate::server::redis) fn login(login: &Login, resp: Resp) -> Pipeline {
    let mut pipeline = Pipeline::new();
    match (resp, &login.password) {
        (Resp::Three, None) => {
            pipeline.cmd("HELLO").arg(3);
        }
        (Resp::Three, Some(password)) => {
            let username = login.username.as_deref().unwrap_or("default");
            pipeline.cmd("HELLO").arg(3).arg("AUTH").arg(username).arg(password);
        }
        (Resp::Two, _) => {
            if let Some(auth) = auth(login) {
                pipeline.add_command(auth);
            }
        }
    }
    for (field, text) in [("LIB-NAME", "holdfast"), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
        pipeline.cmd("CLIENT").arg("SETINFO").arg(field).arg(text);
    }
    pipeline
}

/// The command that logs a connection in, without a user in the form that is older than users; none without a password.
pub(in crate::server::redis) fn auth(login: &Login) -> Option<Cmd> {
    let password = login.password.as_ref()?;
    let mut command = redis::cmd("AUTH");
    command.arg(&login.username).arg(password);
    Some(command)
}

/// The command that changes the subscriptions to `channels`.
pub(in crate::server::redis) fn subscription(command: &str, channels: &[Arc<str>]) -> Cmd {
    let mut command = redis::cmd(command);
    for channel in channels {
        command.arg(&**channel);
    }
    command
}

/// The command that begins to track the keys that are asked for, or ends it. What this connection changes is not told.
///
/// Source: <https://redis.io/docs/latest/commands/client-tracking/>
pub(in crate::server::redis) fn tracking(on: bool) -> Cmd {
    let mut command = redis::cmd("CLIENT");
    command.arg("TRACKING");
    if on {
        command.arg("ON").arg("OPTIN").arg("NOLOOP")
    } else {
        command.arg("OFF")
    };
    command
}

#[cfg(test)]
mod tests {
    use super::super::refused;
    use super::*;

    #[test]
    fn a_stranger_is_named() {
        assert!(
            stranger(b"HTTP/1.1 400 Bad Request\r\n").contains("an HTTP server"),
            "the error tells that HTTP is spoken"
        );
        assert!(
            stranger(b"\x15\x03\x01\x00\x02\x02\x46").contains("use rediss://"),
            "the error tells that TLS is spoken"
        );
        assert_eq!(stranger(b"220 mail\r\n"), NOT_RESP);
    }

    #[test]
    fn a_server_says_which_protocol_it_speaks() {
        for (hello, resp) in [
            ("%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n", Resp::Three),
            ("%1\r\n+proto\r\n:3\r\n", Resp::Three),
            ("%2\r\n+version\r\n:3\r\n:1\r\n:3\r\n", Resp::Two),
            ("*4\r\n$5\r\nproto\r\n:2\r\n$7\r\nmodules\r\n*-1\r\n", Resp::Two),
            ("+OK\r\n", Resp::Two),
        ] {
            assert_eq!(spoken(&value(hello.as_bytes()).unwrap()), resp, "{hello}");
        }
    }

    #[test]
    fn a_server_without_resp3_is_told_from_a_wrong_login() {
        for (code, detail, without) in [
            ("NOPROTO", "unsupported protocol version", true),
            ("ERR", "unknown command 'HELLO', with args beginning with: '3'", true),
            ("ERR", "unsupported command 'hello'", true),
            ("NOPERM", "this user has no permissions to run the 'hello' command", true),
            ("WRONGPASS", "invalid username-password pair or user is disabled.", false),
            ("NOAUTH", "HELLO must be called with the client already authenticated", false),
            ("ERR", "max number of clients reached", false),
        ] {
            assert_eq!(is_without_resp3(&refused(code, detail)), without, "{code} {detail}");
        }
        assert!(
            !is_without_resp3(&Failure::Lost("unknown command 'HELLO'".to_owned())),
            "a lost connection tells nothing of RESP3"
        );
    }
}
