//! Who holds and who waits for what, page by page.
//!
//! Keys are found with SCAN, which never holds up a server for long, on a connection of its own: the one
//! that carries the locks is limited as one that listens, and must not wait for this one.
//!
//! Source: <https://redis.io/docs/latest/commands/scan/>

use super::{Address, Directory, Endpoint, cluster, sentinel, single, wire};
use crate::error::Failure;
use crate::keys::LockKeys;
use crate::page::{Holding, Page, Question, Waiting};
use crate::script::Script;
use redis::{Cmd, Pipeline, RedisResult, Value};
use std::sync::Arc;
use std::time::Duration;

/// How many keys one SCAN looks at, and about how long it holds the server up: a tenth of a ms.
const SCAN_COUNT: u32 = 500;
/// So many holders and waiters of a lock are told of.
const MOST: u32 = 1_000;
/// The lock's value while others share it.
const SHARED: &str = "hf1.shared";

/// The next page of an answer. No single reply is waited for longer than `patience`.
pub(crate) async fn page(
    endpoint: &Arc<Endpoint>,
    directory: &Arc<Directory>,
    question: &Question,
    patience: Duration,
) -> Result<Page, Failure> {
    let servers = servers(endpoint, directory).await?;
    let (server, mut cursor) = place(&question.cursor);
    let Some(endpoint) = servers.get(server) else { return Ok(Page::default()) };
    let dialled = single::in_time(endpoint, single::dial(endpoint, |_| {})).await?;
    let mut line = Line { dialled, patience };
    if endpoint.db != 0 {
        line.run(redis::cmd("SELECT").arg(endpoint.db)).await?;
    }
    let mut page = Page::default();
    let mut looked_at = 0;
    while looked_at < question.count {
        let count = SCAN_COUNT.min(question.count - looked_at);
        let (next, keys) = line.scan(&cursor, &question.starts_with, count).await?;
        line.inspect(&keys, &mut page).await?;
        looked_at += count;
        cursor = next;
        if cursor == "0" {
            let more = server + 1 < servers.len();
            page.cursor = if more { format!("{}:0", server + 1) } else { String::new() };
            return Ok(page);
        }
    }
    page.cursor = format!("{server}:{cursor}");
    Ok(page)
}

/// Which server, and where on it.
fn place(cursor: &str) -> (usize, String) {
    let (server, at) = cursor.split_once(':').unwrap_or(("0", "0"));
    (server.parse().unwrap_or(0), at.to_owned())
}

/// Those that have keys, in an order that stays.
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

/// A connection that carries one page.
struct Line {
    dialled: single::Dialled,
    /// How long a reply may take.
    patience: Duration,
}

impl Line {
    async fn run(&mut self, command: &Cmd) -> Result<Value, Failure> {
        let answer = in_time(self.patience, self.dialled.inner.send_packed_command(command));
        answer.await?.extract_error().map_err(|error| wire::failure(&error))
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

    /// Adds what is known of these keys.
    async fn inspect(&mut self, keys: &[String], page: &mut Page) -> Result<(), Failure> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut pipeline = Pipeline::with_capacity(keys.len());
        for (number, key) in keys.iter().enumerate() {
            // The first one teaches the server the script.
            pipeline.add_command(call(key, number == 0));
        }
        let answers = self.dialled.inner.send_packed_commands(&pipeline, 0, keys.len());
        for (key, answer) in keys.iter().zip(in_time(self.patience, answers).await?) {
            // A key that is no lock, or that has moved to another server meanwhile, where it is seen.
            if let Ok(answer) = answer.extract_error() {
                add(page, key, answer);
            }
        }
        Ok(())
    }
}

/// Waits for a reply, but not for ever: the server may have stopped.
async fn in_time<T>(
    patience: Duration,
    reply: impl Future<Output = RedisResult<T>>,
) -> Result<T, Failure> {
    let silence = |_| Failure::Lost(format!("no answer within {} ms", patience.as_millis()));
    let reply = tokio::time::timeout(patience, reply).await.map_err(silence)?;
    reply.map_err(|error| wire::failure(&error))
}

/// Reads a cursor and keys.
pub(super) fn read_scan(answer: Value) -> Result<(String, Vec<String>), Failure> {
    let read = redis::from_redis_value::<(String, Vec<Vec<u8>>)>(answer);
    let (next, keys) = read.map_err(|error| Failure::Lost(wire::brief(error.to_string())))?;
    // What is no text is no lock of ours.
    let keys = keys.into_iter().filter_map(|key| String::from_utf8(key).ok());
    Ok((next, keys.collect()))
}

/// A pattern for all that begins with `text`.
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

pub(super) fn call(key: &str, with_source: bool) -> Cmd {
    wire::inspection(&LockKeys::from_key(key), MOST, with_source)
}

/// Adds what `inspect.lua` said of `key`.
pub(super) fn add(page: &mut Page, key: &str, answer: Value) {
    type Answer = (String, i64, u64, Vec<Value>, Vec<String>);
    let Ok((value, remaining_ms, fence, shares, line)) = redis::from_redis_value::<Answer>(answer)
    else {
        return;
    };
    let owner = value.strip_suffix('+').unwrap_or(&value);
    if owner != SHARED {
        let (key, token) = (key.to_owned(), owner.to_owned());
        page.held.push(Holding { key, shared: false, token, fence, remaining_ms });
    }
    for share in shares.chunks_exact(3) {
        let share = redis::from_redis_value::<(String, i64, u64)>(Value::Array(share.to_vec()));
        if let Ok((token, remaining_ms, fence)) = share {
            let key = key.to_owned();
            page.held.push(Holding { key, shared: true, token, fence, remaining_ms });
        }
    }
    for (waiter, position) in line.chunks_exact(2).zip(1..) {
        if let [token, limit] = waiter {
            let (key, token) = (key.to_owned(), token.clone());
            page.pending.push(Waiting { key, shared: limit != "-", token, position });
        }
    }
}

/// Which script it is, for the embedded store.
pub(super) fn source() -> &'static str {
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
    fn a_cursor_says_where_to_go_on() {
        assert_eq!(place(""), (0, "0".to_owned()));
        assert_eq!(place("2:1536"), (2, "1536".to_owned()));
    }
}
