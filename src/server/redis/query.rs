//! Pages of holders and waiters.
//!
//! Keys are found with SCAN, which never blocks a server for long, on a connection of its own: the one that
//! carries the locks has the output buffer limit of a subscriber, and must not wait for this one.
//! [`sweep`] decides which servers are read, and [`apart`] reads locks whose keys are on two of them.
//!
//! Source: <https://redis.io/docs/latest/commands/scan/>

mod apart;
pub(in crate::server) mod inspection;
mod sweep;

use self::apart::Cluster;
use self::sweep::{Place, Servers};
use super::dialogue::{Dialogue, answer_in, in_time};
use super::{Directory, wire};
use crate::protocol::query::{Page, Question};
use crate::protocol::{Failure, Refusal};
use crate::server::{Address, Endpoint};
use redis::{Cmd, Pipeline, Value};
use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

/// The keys that one SCAN examines; it blocks the server for about a tenth of a ms.
const SCAN_COUNT: u32 = 500;
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
        let dialogue = in_time(server, Dialogue::open_database(server)).await?;
        let cluster = match (&endpoint.address, &server.address) {
            (Address::Cluster { .. }, Address::Tcp { host, .. }) => Some(Cluster {
                endpoint: Arc::clone(endpoint),
                directory: Arc::clone(directory),
                host: host.clone(),
                others: BTreeMap::new(),
                patience,
            }),
            _ => None,
        };
        Ok(Self { dialogue, patience, foreign: false, allowed: false, refusal: None, cluster })
    }

    /// The server's answer about the slots of its Cluster; nothing if it refuses.
    async fn nodes(&mut self) -> Result<Option<String>, Failure> {
        match self.run(redis::cmd("CLUSTER").arg("NODES")).await {
            Ok(text) => Ok(redis::from_redis_value(text).ok()),
            Err(Failure::Refused(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    async fn run(&mut self, command: &Cmd) -> Result<Value, Failure> {
        answer_in(self.patience, self.dialogue.ask_one(command)).await
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
            let Some(cluster) = &mut self.cluster else { break };
            match cluster.read_lock(&mut self.dialogue, &key, self.foreign).await {
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
            pipeline.add_command(Cmd::from(&inspection::call(key, self.foreign, with_source)));
        }
        let answers = self.dialogue.ask(&pipeline);
        for (key, answer) in keys.iter().zip(answer_in(self.patience, answers).await?) {
            match answer.extract_error().map_err(|error| wire::failure(&error)) {
                Ok(answer) => {
                    self.allowed = true;
                    inspection::add(page, key, answer);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_itself_in_a_pattern() {
        assert_eq!(literally("lock:a*b?[c]"), "lock:a\\*b\\?\\[c\\]*");
    }

    #[test]
    fn keys_are_elsewhere_by_a_redirection_or_when_they_are_apart() {
        let refused =
            |code: &str| Failure::Refused(Refusal { code: code.to_owned(), detail: String::new() });
        for code in ["ASK", "MOVED", "TRYAGAIN"] {
            assert!(is_elsewhere(&refused(code)), "{code}");
        }
        assert!(is_elsewhere(&Failure::Halfway), "the script names keys of two servers");
        for failure in [refused("NOPERM"), Failure::NoScript, Failure::Lost(String::new())] {
            assert!(!is_elsewhere(&failure), "{failure:?}");
        }
    }

    #[test]
    fn a_key_that_is_no_text_is_none_of_a_lock() {
        let keys = ["lock:a".into(), vec![0xff], "lock:b".into()].map(Value::BulkString);
        let answer = Value::Array(vec![Value::BulkString("7".into()), Value::Array(keys.into())]);
        let read = read_scan(answer).unwrap();
        assert_eq!(read, ("7".to_owned(), vec!["lock:a".to_owned(), "lock:b".to_owned()]));
        assert!(matches!(read_scan(Value::Okay), Err(Failure::Lost(_))), "it is no answer");
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
