//! Pages of holders and waiters.
//!
//! Keys are found with SCAN, which never blocks a server for long, on a connection of its own: the one that
//! carries the locks has the output buffer limit of a subscriber, and must not wait for this one.
//! [`sweep`] decides which servers are read, and [`apart`] reads locks whose keys are on two of them.
//!
//! Source: <https://redis.io/docs/latest/commands/scan/>

mod apart;
mod sweep;

use self::apart::Cluster;
use self::sweep::{Place, Servers};
use super::command::Command;
use super::dialogue::{self, Dialogue};
use super::{Address, Directory, Endpoint, cluster, sentinel, wire};
use crate::protocol::query::{Holding, Page, Question, Waiting};
use crate::protocol::{Failure, LockKeys, Refusal, Script, TOKEN_PREFIX};
use redis::{Cmd, Pipeline, Value};
use std::collections::BTreeMap;
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
    let servers = Servers::of(endpoint, directory, question).await?;
    let mut place = Place::of(&question.cursor, &servers);
    let Some(server) = servers.get(place.server) else {
        // It has no slots any more.
        return Ok(Page { cursor: place.next(&servers), ..Page::default() });
    };
    let mut connection = PageConnection::open(endpoint, directory, server, patience).await?;
    let mut page = Page::default();
    if question.whole_key {
        connection.foreign = true;
        connection.inspect(slice::from_ref(&question.starts_with), &mut page).await?;
        page.cursor = place.next(&servers);
        return connection.judge(page);
    }
    let mut examined = 0;
    while examined < question.count {
        let count = SCAN_COUNT.min(question.count - examined);
        let (next, keys) = connection.scan(&place.cursor, &question.starts_with, count).await?;
        connection.inspect(&keys, &mut page).await?;
        examined += count;
        place.cursor = next;
        if place.cursor == "0" {
            if place.asks_for_slots() {
                place.compare(connection.nodes().await?.as_deref());
            }
            page.cursor = place.next(&servers);
            return connection.judge(page);
        }
    }
    page.cursor = place.to_string();
    connection.judge(page)
}

/// The servers that have keys, in a stable order.
pub(super) async fn servers(
    endpoint: &Arc<Endpoint>,
    directory: &Arc<Directory>,
) -> Result<Vec<Endpoint>, Failure> {
    match &endpoint.address {
        Address::Cluster { .. } => cluster::primaries(endpoint, directory).await,
        Address::Sentinel(sentinels) => Ok(sentinel::masters(endpoint, sentinels, directory)
            .await?
            .into_iter()
            .take(1)
            .collect()),
        Address::Quorum { servers, .. } => Ok(servers.clone()),
        _ => Ok(vec![Endpoint::clone(endpoint)]),
    }
}

/// A connection to the database of a server.
async fn open(server: &Endpoint) -> Result<Dialogue, Failure> {
    let opening = async {
        let mut dialogue = Dialogue::open(server).await?;
        if server.db != 0 {
            dialogue.ask_one(redis::cmd("SELECT").arg(server.db)).await?;
        }
        Ok(dialogue)
    };
    dialogue::in_time(server, opening).await
}

/// The connection of one page.
struct PageConnection {
    dialogue: Dialogue,
    /// The timeout of a reply.
    patience: Duration,
    /// Whether it shows the values of other code: at the key of one lock these are holders, but among all keys anything.
    foreign: bool,
    /// Whether the user may read any of the keys.
    allowed: bool,
    /// The refusal for a key that the user may not read.
    refusal: Option<Refusal>,
    /// In a Cluster: where keys may be that are not here.
    cluster: Option<Cluster>,
}

impl PageConnection {
    /// Connects to `server` of the address `endpoint`.
    async fn open(
        endpoint: &Arc<Endpoint>,
        directory: &Arc<Directory>,
        server: &Endpoint,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let dialogue = open(server).await?;
        let cluster = match (&endpoint.address, &server.address) {
            (Address::Cluster { .. }, Address::Tcp { host, .. }) => Some(Cluster {
                endpoint: Arc::clone(endpoint),
                directory: Arc::clone(directory),
                host: host.clone(),
                others: BTreeMap::new(),
            }),
            _ => None,
        };
        Ok(Self { dialogue, patience, foreign: false, allowed: false, refusal: None, cluster })
    }

    /// What the server says about the slots of its Cluster; nothing if it refuses.
    async fn nodes(&mut self) -> Result<Option<String>, Failure> {
        match self.run(redis::cmd("CLUSTER").arg("NODES")).await {
            Ok(text) => Ok(redis::from_redis_value(text).ok()),
            Err(Failure::Refused(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

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
        let Rest { without_script, mut apart } = self.ask(keys, false, page).await?;
        // Each key's call has the source: if only one had it and were refused, the rest would fail.
        let rest = self.ask(&without_script, true, page).await?;
        if !rest.without_script.is_empty() {
            return Err(Failure::NoScript);
        }
        apart.extend(rest.apart);
        for key in apart {
            match self.read_apart(&key).await {
                Ok(lock) => {
                    self.allowed = true;
                    if let Some(lock) = lock {
                        lock.add_to(page, &key);
                    }
                }
                Err(failure) => self.skip(failure)?,
            }
        }
        Ok(())
    }

    /// Adds the server's answers for these keys, and returns the other keys.
    async fn ask(
        &mut self,
        keys: &[String],
        with_source: bool,
        page: &mut Page,
    ) -> Result<Rest, Failure> {
        let mut rest = Rest::default();
        if keys.is_empty() {
            return Ok(rest);
        }
        let mut pipeline = Pipeline::with_capacity(keys.len());
        for key in keys {
            pipeline.add_command(Cmd::from(&call(key, self.foreign, with_source)));
        }
        let answers = self.dialogue.ask(&pipeline);
        for (key, answer) in keys.iter().zip(in_time(self.patience, answers).await?) {
            match answer.extract_error().map_err(|error| wire::failure(&error)) {
                Ok(answer) => {
                    self.allowed = true;
                    add(page, key, answer);
                }
                Err(Failure::NoScript) => rest.without_script.push(key.clone()),
                Err(failure) if self.cluster.is_some() && is_elsewhere(&failure) => {
                    rest.apart.push(key.clone());
                }
                Err(failure) => self.skip(failure)?,
            }
        }
        Ok(rest)
    }

    /// Skips failures of a single key; any other failure would affect all keys.
    fn skip(&mut self, failure: Failure) -> Result<(), Failure> {
        match failure {
            Failure::Refused(refusal) => match refusal.code.as_str() {
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

/// The keys about which a server could not be asked at once.
#[derive(Default)]
struct Rest {
    /// It lacked the script.
    without_script: Vec<String>,
    /// It does not have all keys of the lock, since their slot moves or has moved.
    apart: Vec<String>,
}

fn is_elsewhere(failure: &Failure) -> bool {
    match failure {
        Failure::Halfway => true,
        Failure::Refused(refusal) => matches!(&*refusal.code, "ASK" | "MOVED" | "TRYAGAIN"),
        _ => false,
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

pub(in crate::server) fn call(key: &str, foreign: bool, with_source: bool) -> Command {
    wire::inspection(&LockKeys::from_key(key), MOST, foreign, with_source)
}

/// What `inspect.lua` tells about a lock.
#[derive(Debug, Default)]
struct Inspected {
    value: String,
    remaining_ms: i64,
    /// Token, remaining ms and fence of each.
    shares: Vec<(String, i64, u64)>,
    /// Token, limit and waited ms of each.
    waiters: Vec<(String, String, u64)>,
}

/// Adds the answer of `inspect.lua` about `key`.
pub(in crate::server) fn add(page: &mut Page, key: &str, answer: Value) {
    type Answer = (String, i64, Vec<Value>, Vec<String>);
    let Ok((value, remaining_ms, shares, queue)) = redis::from_redis_value::<Answer>(answer) else {
        return;
    };
    let share = |share: &[Value]| redis::from_redis_value(Value::Array(share.to_vec())).ok();
    let waiter = |waiter: &[String]| {
        let [token, limit, waited] = waiter else { return None };
        Some((token.clone(), limit.clone(), waited.parse().unwrap_or_default()))
    };
    let (shares, waiters) = (
        shares.chunks_exact(3).filter_map(share).collect(),
        queue.chunks_exact(3).filter_map(waiter).collect(),
    );
    Inspected { value, remaining_ms, shares, waiters }.add_to(page, key);
}

impl Inspected {
    fn add_to(self, page: &mut Page, key: &str) {
        let Self { value, remaining_ms, shares, waiters } = self;
        // The flag is none of other code's value.
        let flagged = value.strip_suffix('+').filter(|_| value.starts_with(TOKEN_PREFIX));
        let owner = flagged.unwrap_or(&value);
        if owner != SHARED {
            let (key, token) = (key.to_owned(), owner.to_owned());
            page.held.push(Holding {
                key,
                shared: false,
                token,
                fence: None,
                remaining_ms,
                idle_ms: None,
            });
        }
        for (token, remaining_ms, fence) in shares {
            // The server does not know the fence of a lone share.
            let (key, fence) = (key.to_owned(), Some(fence).filter(|fence| *fence > 0));
            page.held.push(Holding {
                key,
                shared: true,
                token,
                fence,
                remaining_ms,
                idle_ms: None,
            });
        }
        for ((token, limit, waited_ms), position) in waiters.into_iter().zip(1..) {
            let (key, shared) = (key.to_owned(), limit != "-");
            page.pending.push(Waiting { key, shared, token, position, waited_ms });
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
}
