//! Pages of holders and waiters.
//!
//! Keys are found with SCAN, which never blocks a server for long, on a connection of its own: the one that
//! carries the locks has the output buffer limit of a subscriber, and must not wait for this one.
//!
//! Source: <https://redis.io/docs/latest/commands/scan/>

use super::command::Command;
use super::dialogue::{self, Dialogue};
use super::{Address, Directory, Endpoint, cluster, sentinel, wire};
use crate::protocol::query::{Holding, Page, Question, Waiting};
use crate::protocol::{Failure, LockKeys, Refusal, Script};
use redis::{Cmd, Pipeline, Value};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

/// The keys that one SCAN examines; it blocks the server for about a tenth of a ms.
const SCAN_COUNT: u32 = 500;
/// The most holders and waiters of a lock that a page shows.
const MOST: u64 = 1_000;
/// The lock's value while others share it.
const SHARED: &str = "hf1.shared";

/// The next page of a query, with a timeout of `patience` per reply. A store in this process answers by itself.
pub(crate) async fn page(
    endpoint: &Arc<Endpoint>,
    directory: &Arc<Directory>,
    question: &Question,
    patience: Duration,
) -> Result<Page, Failure> {
    let servers = servers(endpoint, directory).await?;
    let (server, mut cursor) = server_and_cursor(&question.cursor);
    let Some(endpoint) = servers.get(server) else { return Ok(Page::default()) };
    let dialogue = dialogue::in_time(endpoint, Dialogue::open(endpoint)).await?;
    let mut connection = PageConnection { dialogue, patience, allowed: false, refusal: None };
    if endpoint.db != 0 {
        connection.run(redis::cmd("SELECT").arg(endpoint.db)).await?;
    }
    let next_server =
        if server + 1 < servers.len() { format!("{}:0", server + 1) } else { String::new() };
    let mut page = Page::default();
    if question.whole_key {
        // In a Cluster all servers but one refuse, which leaves their pages empty.
        connection.inspect(slice::from_ref(&question.starts_with), &mut page).await?;
        page.cursor = next_server;
        return connection.judge(page);
    }
    let mut examined = 0;
    while examined < question.count {
        let count = SCAN_COUNT.min(question.count - examined);
        let (next, keys) = connection.scan(&cursor, &question.starts_with, count).await?;
        connection.inspect(&keys, &mut page).await?;
        examined += count;
        cursor = next;
        if cursor == "0" {
            page.cursor = next_server;
            return connection.judge(page);
        }
    }
    page.cursor = format!("{server}:{cursor}");
    connection.judge(page)
}

/// The number of a server, and a cursor on it.
fn server_and_cursor(cursor: &str) -> (usize, String) {
    let (server, at) = cursor.split_once(':').unwrap_or(("0", "0"));
    (server.parse().unwrap_or(0), at.to_owned())
}

/// The servers that have keys, in a stable order.
pub(super) async fn servers(
    endpoint: &Arc<Endpoint>,
    directory: &Arc<Directory>,
) -> Result<Vec<Endpoint>, Failure> {
    match &endpoint.address {
        Address::Cluster { .. } => cluster::primaries(endpoint, directory).await,
        Address::Sentinel(sentinels) => {
            Ok(sentinel::masters(endpoint, sentinels).await?.into_iter().take(1).collect())
        }
        Address::Quorum { servers, .. } => Ok(servers.clone()),
        _ => Ok(vec![Endpoint::clone(endpoint)]),
    }
}

/// The connection of one page.
struct PageConnection {
    dialogue: Dialogue,
    /// The timeout of a reply.
    patience: Duration,
    /// Whether the user may read any of the keys.
    allowed: bool,
    /// The refusal for a key that the user may not read.
    refusal: Option<Refusal>,
}

impl PageConnection {
    async fn run(&mut self, command: &Cmd) -> Result<Value, Failure> {
        in_time(self.patience, self.dialogue.ask_one(command)).await
    }

    async fn scan(
        &mut self,
        cursor: &str,
        starts_with: &str,
        count: u32,
    ) -> Result<(String, Vec<String>), Failure> {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(literally(starts_with)).arg("COUNT").arg(count);
        read_scan(self.run(&command).await?)
    }

    /// Adds the holders and waiters of these keys.
    async fn inspect(&mut self, keys: &[String], page: &mut Page) -> Result<(), Failure> {
        let missing = self.ask(keys, false, page).await?;
        // Each key's call has the source: if only one had it and were refused, the rest would fail.
        let missing = self.ask(&missing, true, page).await?;
        if missing.is_empty() { Ok(()) } else { Err(Failure::NoScript) }
    }

    /// Adds the server's answers for these keys, and returns the keys for which it lacked the script.
    async fn ask(
        &mut self,
        keys: &[String],
        with_source: bool,
        page: &mut Page,
    ) -> Result<Vec<String>, Failure> {
        let mut missing = Vec::new();
        if keys.is_empty() {
            return Ok(missing);
        }
        let mut pipeline = Pipeline::with_capacity(keys.len());
        for key in keys {
            pipeline.add_command(Cmd::from(&call(key, with_source)));
        }
        let answers = self.dialogue.ask(&pipeline);
        for (key, answer) in keys.iter().zip(in_time(self.patience, answers).await?) {
            match answer.extract_error().map_err(|error| wire::failure(&error)) {
                Ok(answer) => {
                    self.allowed = true;
                    add(page, key, answer);
                }
                Err(Failure::NoScript) => missing.push(key.clone()),
                Err(failure) => self.skip(failure)?,
            }
        }
        Ok(missing)
    }

    /// Skips failures of a single key; any other failure would affect all keys.
    fn skip(&mut self, failure: Failure) -> Result<(), Failure> {
        match failure {
            // The key has moved to another server, whose pages show it.
            Failure::Halfway => Ok(()),
            Failure::Refused(refusal) => match refusal.code.as_str() {
                "ASK" | "MOVED" | "TRYAGAIN" => Ok(()),
                // The key is no lock.
                "WRONGTYPE" => {
                    self.allowed = true;
                    Ok(())
                }
                "NOPERM" if is_about_a_key(&refusal.detail) => {
                    self.refusal = Some(refusal);
                    Ok(())
                }
                _ => Err(Failure::Refused(refusal)),
            },
            other => Err(other),
        }
    }

    /// The page, unless the user may read none of its keys: an empty page would be wrong then.
    fn judge(self, page: Page) -> Result<Page, Failure> {
        match self.refusal {
            Some(refusal) if !self.allowed => Err(Failure::Refused(refusal)),
            _ => Ok(page),
        }
    }
}

/// Whether an ACL forbids a key, not a command: "… no permissions to access …", "… can't access …".
fn is_about_a_key(detail: &str) -> bool {
    detail.contains(" access ")
}

/// Waits for a reply up to a timeout: the server may have stopped.
async fn in_time<T>(
    patience: Duration,
    reply: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let silence = |_| Failure::Lost(format!("no answer within {} ms", patience.as_millis()));
    tokio::time::timeout(patience, reply).await.map_err(silence)?
}

/// Reads a cursor and keys.
pub(super) fn read_scan(answer: Value) -> Result<(String, Vec<String>), Failure> {
    let read = redis::from_redis_value::<(String, Vec<Vec<u8>>)>(answer);
    let (next, keys) = read.map_err(|error| Failure::Lost(wire::brief(error.to_string())))?;
    // Our locks have UTF-8 names.
    let keys = keys.into_iter().filter_map(|key| String::from_utf8(key).ok());
    Ok((next, keys.collect()))
}

/// A pattern for all keys that begin with `text`.
fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 1);
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern.push('*');
    pattern
}

pub(in crate::server) fn call(key: &str, with_source: bool) -> Command {
    wire::inspection(&LockKeys::from_key(key), MOST, with_source)
}

/// Adds the answer of `inspect.lua` about `key`.
pub(in crate::server) fn add(page: &mut Page, key: &str, answer: Value) {
    type Answer = (String, i64, Vec<Value>, Vec<String>);
    let Ok((value, remaining_ms, shares, queue)) = redis::from_redis_value::<Answer>(answer) else {
        return;
    };
    let owner = value.strip_suffix('+').unwrap_or(&value);
    if owner != SHARED {
        let (key, token) = (key.to_owned(), owner.to_owned());
        page.held.push(Holding { key, shared: false, token, fence: None, remaining_ms });
    }
    for share in shares.chunks_exact(3) {
        let share = redis::from_redis_value::<(String, i64, u64)>(Value::Array(share.to_vec()));
        if let Ok((token, remaining_ms, fence)) = share {
            // The server does not know the fence of a lone share.
            let (key, fence) = (key.to_owned(), Some(fence).filter(|fence| *fence > 0));
            page.held.push(Holding { key, shared: true, token, fence, remaining_ms });
        }
    }
    for (waiter, position) in queue.chunks_exact(3).zip(1..) {
        if let [token, limit, waited] = waiter {
            let (key, token) = (key.to_owned(), token.clone());
            let waited_ms = waited.parse().unwrap_or_default();
            page.pending.push(Waiting { key, shared: limit != "-", token, position, waited_ms });
        }
    }
}

/// The script's source, for the embedded store.
pub(in crate::server) fn source() -> &'static str {
    Script::Inspect.source()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_itself_in_a_pattern() {
        assert_eq!(literally("lock:a*b?[c]"), "lock:a\\*b\\?\\[c\\]*");
    }

    #[test]
    fn what_an_acl_forbids_is_a_key_or_a_command() {
        for (detail, expected) in [
            ("this user has no permissions to access one of the keys used as arguments", true),
            ("No permissions to access a key", true),
            ("The user executing the script can't access at least one of the keys", true),
            ("User a has no permissions to run the 'evalsha' command", false),
            ("The user executing the script can't run this command or subcommand", false),
        ] {
            assert_eq!(is_about_a_key(detail), expected, "{detail}");
        }
    }

    #[test]
    fn a_cursor_says_where_to_go_on() {
        assert_eq!(server_and_cursor(""), (0, "0".to_owned()));
        assert_eq!(server_and_cursor("2:1536"), (2, "1536".to_owned()));
    }
}
