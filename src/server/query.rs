//! Who holds and who waits for what, page by page.
//!
//! Keys are found with SCAN, which never holds up a server for long, on a connection of its own: the one
//! that carries the locks is limited as one that listens, and must not wait for this one.
//!
//! Source: <https://redis.io/docs/latest/commands/scan/>

use super::{Address, Directory, Endpoint, cluster, sentinel, single, wire};
use crate::protocol::error::{Failure, Refusal};
use crate::protocol::keys::LockKeys;
use crate::protocol::query::{Holding, Page, Question, Waiting};
use crate::protocol::script::Script;
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
    let mut line = Line { dialled, patience, allowed: false, refusal: None };
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
            return line.judge(page);
        }
    }
    page.cursor = format!("{server}:{cursor}");
    line.judge(page)
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
    /// Whether the user may see any of the keys.
    allowed: bool,
    /// Why it may not see one of them.
    refusal: Option<Refusal>,
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
        let untaught = self.ask(keys, false, page).await?;
        // Each with the source: if only one had it, and that one was refused, the rest would be missed.
        let untaught = self.ask(&untaught, true, page).await?;
        if untaught.is_empty() { Ok(()) } else { Err(Failure::NoScript) }
    }

    /// Adds what the server says of these keys, and answers for which of them it does not know the script.
    async fn ask(
        &mut self,
        keys: &[String],
        with_source: bool,
        page: &mut Page,
    ) -> Result<Vec<String>, Failure> {
        let mut untaught = Vec::new();
        if keys.is_empty() {
            return Ok(untaught);
        }
        let mut pipeline = Pipeline::with_capacity(keys.len());
        for key in keys {
            pipeline.add_command(call(key, with_source));
        }
        let answers = self.dialled.inner.send_packed_commands(&pipeline, 0, keys.len());
        for (key, answer) in keys.iter().zip(in_time(self.patience, answers).await?) {
            match answer.extract_error().map_err(|error| wire::failure(&error)) {
                Ok(answer) => {
                    self.allowed = true;
                    add(page, key, answer);
                }
                Err(Failure::NoScript) => untaught.push(key.clone()),
                Err(failure) => self.pass_over(failure)?,
            }
        }
        Ok(untaught)
    }

    /// Only what concerns one key alone is passed over: everything else would be missed for all.
    fn pass_over(&mut self, failure: Failure) -> Result<(), Failure> {
        match failure {
            // It has moved to another server meanwhile, where it is seen.
            Failure::Halfway => Ok(()),
            Failure::Refused(refusal) => match refusal.code.as_str() {
                "ASK" | "MOVED" | "TRYAGAIN" => Ok(()),
                // It is no lock.
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

    /// The page, unless the user may see nothing of it: that it is empty would then be wrong.
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
        assert_eq!(place(""), (0, "0".to_owned()));
        assert_eq!(place("2:1536"), (2, "1536".to_owned()));
    }
}
