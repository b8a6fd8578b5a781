//! A lock whose keys are on two servers of a Cluster, since its slot moves: it is read key by key.
//!
//! Each server refuses a script that names a key which it does not have. So each key is read where it was, or where that
//! server says that it is. A key reaches the other server before it leaves this one, so none is missed.
//!
//! Source: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>

use super::inspection::{Inspected, MOST, SHARED};
use crate::protocol::{Failure, LockKeys, NodeId, Refusal};
use crate::server::Endpoint;
use crate::server::redis::dialogue::{Dialogue, answer_in, in_time};
use crate::server::redis::{Directory, wire};
use redis::{Cmd, FromRedisValue, Pipeline, Value};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

/// After so many redirections a key moves about, or two servers name each other.
const REDIRECTIONS_MAX: usize = 5;
/// The members of a share in the set: its token, its fence, and the time of its grant until that is claimed.
const MEMBERS: u64 = 3;

/// The Cluster of a page, and connections to the servers to which it was sent on.
pub(super) struct Cluster {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) directory: Arc<Directory>,
    /// The host of the page's own server.
    pub(super) host: String,
    pub(super) others: BTreeMap<NodeId, Dialogue>,
    /// The timeout of a reply.
    pub(super) patience: Duration,
}

impl Cluster {
    /// A connection to a server, and its host.
    async fn at(&mut self, node: NodeId) -> Result<(&mut Dialogue, String), Failure> {
        let unknown = || Failure::Lost("the server is not known any more".to_owned());
        let (host, port) = self.directory.address(node).ok_or_else(unknown)?;
        let dialogue = match self.others.entry(node) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let server = self.endpoint.server(host.clone(), port);
                place.insert(in_time(&server, Dialogue::open_database(&server)).await?)
            }
        };
        Ok((dialogue, host))
    }

    /// Reads a lock key by key, as `inspect.lua` reads it at once, first at the page's own server, `home`; none if it is
    /// free, or other code's unless that is asked for.
    pub(super) async fn read_lock(
        &mut self,
        home: &mut Dialogue,
        key: &str,
        foreign: bool,
    ) -> Result<Option<Inspected>, Failure> {
        let keys = LockKeys::from_key(key);
        let [_, queue, waiters, shared, _] = keys.side_keys().map(|side| side.to_string());
        let asked = [redis::cmd("GET").arg(key).clone(), redis::cmd("PTTL").arg(key).clone()];
        let [value, remaining_ms] = self.read(home, &keys, asked).await?;
        let (value, remaining_ms): (Option<String>, i64) = (parsed(value)?, parsed(remaining_ms)?);
        let Some(value) = value.filter(|value| foreign || value.starts_with("hf1.")) else {
            return Ok(None);
        };
        let mut lock = Inspected { value, remaining_ms, ..Inspected::default() };
        if let Some(token) = lock.value.strip_prefix(SHARED).and_then(|it| it.strip_prefix('.')) {
            lock.shares = vec![(token.to_owned(), remaining_ms, 0)];
            SHARED.clone_into(&mut lock.value);
        } else if lock.value.trim_end_matches('+') == SHARED {
            // The ends of the shares have the greatest scores.
            let first = format!("-{}", MEMBERS * MOST);
            let (members, now_us) = self.read_set(home, &keys, &shared, &first, "-1").await?;
            lock.shares = shares(&members, now_us);
        }
        let (entries, now_us) =
            self.read_set(home, &keys, &queue, "0", &(MOST - 1).to_string()).await?;
        for (token, seq) in entries {
            let asked = [redis::cmd("HGET").arg(&waiters).arg(&token).clone()];
            let [text] = self.read(home, &keys, asked).await?;
            let text: Option<String> = parsed(text)?;
            lock.waiters.push((token, limit(text.as_deref()), waited_ms(seq, now_us)));
        }
        Ok(Some(lock))
    }

    /// A range of a sorted set, and the time of its server in µs.
    async fn read_set(
        &mut self,
        home: &mut Dialogue,
        keys: &LockKeys,
        key: &str,
        first: &str,
        last: &str,
    ) -> Result<(Vec<(String, f64)>, f64), Failure> {
        let mut range = redis::cmd("ZRANGE");
        range.arg(key).arg(first).arg(last).arg("WITHSCORES");
        // The range stands first: only what names the key is sent on.
        let [members, time] = self.read(home, keys, [range, redis::cmd("TIME")]).await?;
        #[expect(clippy::cast_precision_loss, reason = "µs since 1970 are exact in doubles")]
        let now_us = wire::server_time(&time)?.as_micros() as f64;
        Ok((parsed(members)?, now_us))
    }

    /// The answers to commands about one key of `keys`, wherever that is.
    async fn read<const N: usize>(
        &mut self,
        home: &mut Dialogue,
        keys: &LockKeys,
        commands: [Cmd; N],
    ) -> Result<[Value; N], Failure> {
        let (mut place, mut asking) = (None, false);
        for _ in 0..=REDIRECTIONS_MAX {
            let mut pipeline = Pipeline::with_capacity(2 * N);
            for command in &commands {
                if asking {
                    pipeline.cmd("ASKING");
                }
                pipeline.add_command(command.clone());
            }
            let patience = self.patience;
            let (dialogue, host) = match place {
                None => (&mut *home, self.host.clone()),
                Some(node) => self.at(node).await?,
            };
            let answers = answer_in(patience, dialogue.ask(&pipeline)).await?;
            let answers =
                answers.into_iter().skip(usize::from(asking)).step_by(1 + usize::from(asking));
            let answers =
                answers.map(|answer| answer.extract_error().map_err(|error| wire::failure(&error)));
            let mut failure = match answers.collect::<Result<Vec<_>, _>>() {
                Ok(answers) => return answers.try_into().map_err(|_| misread()),
                Err(failure) => failure,
            };
            self.directory.redirect(&mut failure, &host);
            (place, asking) = match failure {
                Failure::Moved(node) => (Some(node), false),
                Failure::Moving(node) => (Some(node), true),
                other => return Err(other),
            };
        }
        Err(Failure::Refused(Refusal::redirected(keys.slot())))
    }
}

fn misread() -> Failure {
    Failure::Lost("the server sent what is no answer to a query".to_owned())
}

fn parsed<T: FromRedisValue>(value: Value) -> Result<T, Failure> {
    redis::from_redis_value(value).map_err(|_| misread())
}

/// The shares in the members of their set: token, remaining ms and fence of each.
fn shares(members: &[(String, f64)], now_us: f64) -> Vec<(String, i64, u64)> {
    let now = (now_us / 1_000.0).floor();
    let scores: BTreeMap<_, _> =
        members.iter().map(|(member, score)| (&**member, *score)).collect();
    let live = members.iter().filter(|(_, ends_ms)| *ends_ms > now);
    live.map(|(token, ends_ms)| {
        let score = scores.get(&*format!("#{token}")).copied().unwrap_or_default();
        // Half a number tells a fence that is not the owner's.
        let fence = if score.fract() == 0.0 { -score } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
        #[expect(clippy::cast_sign_loss, reason = "a cast of a float saturates")]
        (token.clone(), (ends_ms - now).ceil() as i64, fence as u64)
    })
    .collect()
}

/// The limit in the text of a queue entry.
fn limit(text: Option<&str>) -> String {
    text.and_then(|text| text.split(' ').nth(4)).unwrap_or("-").to_owned()
}

/// How long the entry of this number has waited.
fn waited_ms(seq: f64, now_us: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
    #[expect(clippy::cast_sign_loss, reason = "a cast of a float saturates")]
    let waited_ms = ((now_us - seq) / 1_000.0) as u64;
    waited_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_the_set_tell_the_shares() {
        let members: Vec<_> = [
            ("#hf1.a.1", -1_700_000_000_000_001.0),
            ("#hf1.b.1", -1_700_000_000_000_003.5),
            ("?hf1.b.1", -1_700_000_000_000.0),
            ("hf1.over.1", 1_700_000_000_000.0),
            ("hf1.a.1", 1_700_000_002_000.0),
            ("hf1.b.1", 1_700_000_003_000.0),
        ]
        .map(|(member, score)| (member.to_owned(), score))
        .into();
        assert_eq!(
            shares(&members, 1_700_000_000_500_900.0),
            [
                ("hf1.a.1".to_owned(), 1_500, 1_700_000_000_000_001),
                ("hf1.b.1".to_owned(), 2_500, 0)
            ]
        );
    }

    #[test]
    fn the_text_of_an_entry_has_its_limit() {
        assert_eq!(limit(Some("1700000000000 10000 1 0 3 inbox")), "3");
        assert_eq!(limit(None), "-");
        assert_eq!(waited_ms(1_000_000.0, 1_400_000.0), 400);
        assert_eq!(waited_ms(1_400_000.0, 1_000_000.0), 0);
    }
}
