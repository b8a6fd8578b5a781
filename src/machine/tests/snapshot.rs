//! A simulated server's data about the lock, read by plain commands.

use crate::protocol::{LockKeys, ServerTime, TOKEN_PREFIX, Token};
use std::collections::{BTreeMap, BTreeSet};

/// A server's data about the lock.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Snapshot {
    /// The lock's value, with the has-waiters flag.
    pub(super) value: Option<String>,
    /// The remaining ms of the lock; negative if it has no expiry or does not exist.
    pub(super) remaining_ms: i64,
    /// The fence counter of the server.
    pub(super) fence: Option<String>,
    /// The remaining ms of the fence counter, as for the lock.
    pub(super) fence_ms: i64,
    pub(super) line: Vec<Waiter>,
    /// When a waiter was found whose inbox has no subscriber, in ms.
    pub(super) unreached_ms: Option<u64>,
    /// Whether the flag for the wait queue exists.
    pub(super) waiting: bool,
    /// The record of the fence of the newest share.
    pub(super) newest: String,
    /// The sharers.
    pub(super) shares: Vec<Share>,
    /// The token that was granted the whole lock by message and has not claimed it, as the server has recorded it.
    pub(super) unclaimed: Option<String>,
    /// The same of shares.
    pub(super) unclaimed_shares: BTreeSet<String>,
    /// The records in the set of shares that are of no live share.
    pub(super) stale: usize,
    /// The record of the permits that the shares in the set have besides one each, also those that have ended.
    pub(super) further_permits: usize,
    /// What that record should be.
    pub(super) permits_of_records: usize,
}

/// One sharer of the lock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Share {
    pub(super) token: String,
    pub(super) remaining_ms: i64,
    pub(super) fence: u64,
    /// The fence is not the one that its owner knows.
    pub(super) another: bool,
}

impl Share {
    pub(super) fn lone(token: &str, remaining_ms: i64) -> Self {
        Self { token: token.to_owned(), remaining_ms, fence: 0, another: false }
    }

    pub(super) fn permits(&self) -> usize {
        permits(&self.token)
    }
}

/// The permits of the share of `token`.
pub(super) fn permits(token: &str) -> usize {
    let number = token.split('.').nth(2).unwrap_or_default();
    number.split('/').nth(2).map_or(1, |permits| permits.parse().unwrap())
}

/// An entry of the wait queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Waiter {
    pub(super) token: String,
    pub(super) seq: u64,
    pub(super) deadline_ms: u64,
    pub(super) epoch: u64,
    /// The most sharers that the waiter accepts, 0 for any number; none for the whole lock.
    pub(super) limit: Option<usize>,
    pub(super) reach: Reach,
}

/// How a waiter learns of its grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reach {
    /// It gets messages.
    Listens,
    /// It only polls.
    Polls,
    /// Its connection is gone.
    Gone,
}

impl Snapshot {
    /// Reads a lock of a server with the clock `time` and this fence counter; `ask` runs a plain command.
    pub(super) fn take(
        keys: &LockKeys,
        (fence, fence_ms): (Option<String>, i64),
        time: ServerTime,
        ask: &dyn Fn(&[&str]) -> Vec<String>,
    ) -> Self {
        let entries = ask(&["ZRANGE", &keys.queue(), "0", "-1", "WITHSCORES"]);
        let queue = if entries.is_empty() { Vec::new() } else { read_queue(keys, ask, &entries) };
        let value = ask(&["GET", keys.lock()]).pop();
        let shared = value.as_deref().is_some_and(|value| bare(value) == SHARED);
        let remaining_ms = left_ms(ask, keys.lock());
        let lone = value.as_deref().and_then(lone_share);
        let lone = lone.map(|token| Share::lone(token, remaining_ms));
        let set = if shared { read_shares(keys, time, ask) } else { SetOfShares::default() };
        Self {
            value,
            remaining_ms,
            fence,
            fence_ms,
            waiting: ask(&["EXISTS", &keys.waiting()]) == ["1"],
            newest: set.newest,
            unreached_ms: ask(&["HGET", &keys.waiters(), "unreached"])
                .pop()
                .and_then(|at| at.parse().ok()),
            line: queue,
            shares: lone.into_iter().chain(set.shares).collect(),
            unclaimed: ask(&["HGET", &keys.waiters(), "unclaimed"]).pop(),
            unclaimed_shares: set.unclaimed,
            stale: set.stale,
            further_permits: set.further_permits,
            permits_of_records: set.permits_of_records,
        }
    }

    /// The owner of the whole lock, without the has-waiters flag.
    pub(super) fn owner(&self) -> Option<&str> {
        self.value.as_deref().map(bare).filter(|owner| !owner.starts_with(SHARED))
    }

    /// The only share, if plain commands have taken it and nobody has asked for another since.
    pub(super) fn lone(&self) -> Option<&Share> {
        self.shares.first().filter(|_| self.value.as_deref().and_then(lone_share).is_some())
    }

    pub(super) fn is_free(&self) -> bool {
        self.holders().next().is_none()
    }

    /// The owners of the lock or of its shares, and their remaining ms.
    pub(super) fn holders(&self) -> impl Iterator<Item = (&str, i64)> {
        let owner = self.owner().map(|owner| (owner, self.remaining_ms));
        owner.into_iter().chain(self.shares.iter().map(|it| (it.token.as_str(), it.remaining_ms)))
    }

    /// What identifies the owners to a thief.
    pub(super) fn owners(&self) -> &str {
        match self.owner() {
            Some(owner) if is_foreign(owner) => "foreign",
            Some(owner) => owner,
            // A thief names owners by a fence, and a lone share has none until others ask.
            None if self.lone().is_some() => "a lone share",
            None if self.value.is_some() => &self.newest,
            None => "",
        }
    }

    /// Whether the set has another fence for the share of `token` than its owner.
    pub(super) fn records_another_fence(&self, token: &Token) -> bool {
        self.shares.iter().any(|share| share.another && share.token == token.as_str())
    }

    /// How many permits are held.
    pub(super) fn permits(&self) -> usize {
        self.shares.iter().map(Share::permits).sum()
    }

    /// The remaining ms of `token`'s lock or share.
    pub(super) fn held_ms(&self, token: &str) -> Option<i64> {
        self.holders().find(|(holder, _)| *holder == token).map(|(_, ms)| ms)
    }

    /// The last fence, unless other code has raised the counter.
    pub(super) fn counter(&self) -> Option<u64> {
        self.raw_counter().filter(|last| *last < RAISED)
    }

    pub(super) fn raw_counter(&self) -> Option<u64> {
        self.fence.as_ref()?.parse().ok()
    }

    /// Whether other code has written the counter.
    pub(super) fn has_no_fences(&self) -> bool {
        self.counter().is_none() && self.fence_ms != -2
    }

    /// The owners and the waiters.
    pub(super) fn tokens(&self) -> Vec<Token> {
        let waiters = self.line.iter().map(|waiter| waiter.token.as_str());
        self.holders().map(|(owner, _)| owner).chain(waiters).map(Token::from_text).collect()
    }

    pub(super) fn waiter(&self, token: &str) -> Option<&Waiter> {
        self.line.iter().find(|waiter| waiter.token == token)
    }
}

/// The fence counter, and its remaining ms.
pub(super) fn counter(key: &str, ask: &dyn Fn(&[&str]) -> Vec<String>) -> (Option<String>, i64) {
    (ask(&["GET", key]).pop(), left_ms(ask, key))
}

fn left_ms(ask: &dyn Fn(&[&str]) -> Vec<String>, key: &str) -> i64 {
    ask(&["PTTL", key]).pop().map_or(-2, |ms| ms.parse().unwrap())
}

/// The owners of the lock or of its shares.
pub(super) fn holders(
    keys: &LockKeys,
    ask: &dyn Fn(&[&str]) -> Vec<String>,
    time: ServerTime,
) -> Vec<Token> {
    let Some(value) = ask(&["GET", keys.lock()]).pop() else { return Vec::new() };
    if let Some(token) = lone_share(&value) {
        return vec![Token::from_text(token)];
    }
    if bare(&value) != SHARED {
        return vec![Token::from_text(bare(&value))];
    }
    let live = format!("({}", time.as_micros() / 1_000);
    let tokens = ask(&["ZRANGEBYSCORE", &keys.shared(), &live, "+inf"]);
    tokens.iter().map(|token| Token::from_text(token)).collect()
}

/// What a stranger raises a counter to: more than a year ahead of the clock of every schedule.
pub(super) const RAISED: u64 = 2_000_000_000_000_000;

/// The lock's value while others share it.
pub(super) const SHARED: &str = "hf1.shared";

/// The token of a lone share, if that is the lock's value.
pub(super) fn lone_share(value: &str) -> Option<&str> {
    value.strip_prefix(SHARED)?.strip_prefix('.')
}

/// Reads the wait queue; `entries` are tokens and their numbers.
fn read_queue(
    keys: &LockKeys,
    ask: &dyn Fn(&[&str]) -> Vec<String>,
    entries: &[String],
) -> Vec<Waiter> {
    let fields = ask(&["HGETALL", &keys.waiters()]);
    let details: BTreeMap<_, _> =
        fields.chunks_exact(2).map(|field| (field[0].as_str(), field[1].as_str())).collect();
    // Most waiters belong to few processes.
    let mut listening = BTreeMap::new();
    let mut listens = |channel: &str| {
        *listening.entry(channel.to_owned()).or_insert_with(|| {
            ask(&["PUBSUB", numsub(channel), channel]).last().is_some_and(|count| count != "0")
        })
    };
    let entries = entries.chunks_exact(2).map(|entry| (entry[0].as_str(), entry[1].as_str()));
    let read = |(token, seq)| {
        let details = details.get(token).copied().unwrap_or_default();
        read_waiter(token, seq, details, &mut listens)
    };
    entries.map(read).collect()
}

fn read_waiter(
    token: &str,
    seq: &str,
    details: &str,
    listens: &mut dyn FnMut(&str) -> bool,
) -> Waiter {
    let mut parts = details.split(' ');
    let mut part = || parts.next().unwrap_or("");
    let mut number = || part().parse().unwrap_or(0);
    let (deadline_ms, _lease, _block, epoch) = (number(), number(), number(), number());
    let (limit, channel) = (part().parse().ok(), part());
    Waiter {
        token: token.to_owned(),
        seq: seq.parse().unwrap(),
        deadline_ms,
        epoch,
        limit,
        reach: match channel {
            "" => Reach::Polls,
            _ if listens(channel) => Reach::Listens,
            _ => Reach::Gone,
        },
    }
}

/// The command that counts the subscribers of a channel: in a Cluster it belongs to a slot.
pub(super) fn numsub(channel: &str) -> &'static str {
    if channel.contains('{') { "SHARDNUMSUB" } else { "NUMSUB" }
}

/// What the set of shares says.
#[derive(Default)]
struct SetOfShares {
    newest: String,
    shares: Vec<Share>,
    unclaimed: BTreeSet<String>,
    stale: usize,
    further_permits: usize,
    permits_of_records: usize,
}

fn read_shares(
    keys: &LockKeys,
    time: ServerTime,
    ask: &dyn Fn(&[&str]) -> Vec<String>,
) -> SetOfShares {
    let now_ms = i64::try_from(time.as_micros() / 1_000).unwrap();
    let members = ask(&["ZRANGE", &keys.shared(), "0", "-1", "WITHSCORES"]);
    let members = || members.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str()));
    let fences: BTreeMap<_, _> =
        members().filter_map(|(name, score)| Some((name.strip_prefix('#')?, score))).collect();
    let fence_of = |token: &str| {
        // The record of a share that was a lone one has half a number more.
        let fence = fences.get(token)?.strip_prefix('-')?;
        fence.strip_suffix(".5").unwrap_or(fence).parse().ok()
    };
    let ends = || members().filter(|(name, _)| !name.starts_with(['#', '?', '*']));
    let live = ends().filter_map(|(token, end_ms)| {
        let remaining_ms = end_ms.parse::<i64>().unwrap() - now_ms;
        let fence = fence_of(token).unwrap_or(0);
        let another = fences.get(token).is_some_and(|fence| fence.ends_with(".5"));
        (remaining_ms > 0).then(|| Share { token: token.to_owned(), remaining_ms, fence, another })
    });
    let shares: Vec<_> = live.collect();
    let is_live =
        |name: &str| shares.iter().any(|it| it.token == name.trim_start_matches(['#', '?']));
    let unclaimed = members().filter_map(|(name, _)| name.strip_prefix('?'));
    SetOfShares {
        newest: members().next().map(|(_, score)| score.to_owned()).unwrap_or_default(),
        unclaimed: unclaimed.map(str::to_owned).collect(),
        stale: members().filter(|(name, _)| *name != "*" && !is_live(name)).count(),
        further_permits: members()
            .find(|(name, _)| *name == "*")
            .map_or(0, |(_, score)| score.trim_start_matches('-').parse().unwrap()),
        permits_of_records: ends().map(|(token, _)| permits(token) - 1).sum(),
        shares,
    }
}

pub(super) fn is_foreign(value: &str) -> bool {
    !value.starts_with(TOKEN_PREFIX)
}

/// A value without the has-waiters flag.
pub(super) fn bare(value: &str) -> &str {
    if is_foreign(value) { value } else { value.strip_suffix('+').unwrap_or(value) }
}
