//! Judges every script call of a simulated server by what it did to the lock: the rules of
//! `docs/protocol.md`, told a second time and without the scripts.

use super::world::World;
use crate::clock::ServerTime;
use crate::script::{CLAIM, Call, Grant, Intent, Reply};
use crate::token::{TOKEN_PREFIX, Token};
use std::collections::{BTreeMap, BTreeSet};

/// What lies on the server about the lock.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Snapshot {
    /// The lock's value, mark included.
    value: Option<String>,
    /// The ms that are left of the lock; negative if it has no end or does not exist.
    remaining_ms: i64,
    fence: Option<String>,
    line: Vec<Waiter>,
}

/// An entry of the queue.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Waiter {
    token: String,
    seq: u64,
    deadline_ms: u64,
    epoch: u64,
    reach: Reach,
}

/// How a waiter learns of its turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reach {
    /// A message finds it.
    Listens,
    /// It only asks.
    Polls,
    /// Its connection is gone.
    Gone,
}

impl Waiter {
    /// Later entries stand behind; the server orders equals by their tokens.
    fn order(&self) -> (u64, &str) {
        (self.seq, &self.token)
    }
}

impl Snapshot {
    /// Reads the server with `ask`, which runs a plain command.
    pub(super) fn take(ask: &dyn Fn(&[&str]) -> Vec<String>) -> Self {
        let keys = World::keys();
        let entries = ask(&["ZRANGE", keys.queue(), "0", "-1", "WITHSCORES"]);
        let line = entries.chunks_exact(2).map(|entry| read_waiter(ask, &entry[0], &entry[1]));
        Self {
            value: ask(&["GET", keys.lock()]).pop(),
            remaining_ms: ask(&["PTTL", keys.lock()]).pop().map_or(-2, |ms| ms.parse().unwrap()),
            fence: ask(&["GET", keys.fence()]).pop(),
            line: line.collect(),
        }
    }

    /// Who owns the lock, without the mark.
    fn owner(&self) -> Option<&str> {
        let value = self.value.as_deref()?;
        Some(if is_foreign(value) { value } else { value.strip_suffix('+').unwrap_or(value) })
    }

    fn counter(&self) -> Option<u64> {
        self.fence.as_ref()?.parse().ok()
    }

    /// Who owns the lock and who stands in line.
    pub(super) fn tokens(&self) -> Vec<Token> {
        let line = self.line.iter().map(|waiter| waiter.token.as_str());
        self.owner().into_iter().chain(line).map(Token::from_text).collect()
    }

    fn waiter(&self, token: &str) -> Option<&Waiter> {
        self.line.iter().find(|waiter| waiter.token == token)
    }
}

fn read_waiter(ask: &dyn Fn(&[&str]) -> Vec<String>, token: &str, seq: &str) -> Waiter {
    let details = ask(&["HGET", World::keys().waiters(), token]).pop().unwrap_or_default();
    let parts: Vec<_> = details.split(' ').collect();
    let number = |index: usize| parts.get(index).and_then(|text| text.parse().ok()).unwrap_or(0);
    let channel = parts.get(4).copied().unwrap_or("");
    let listening = || ask(&["PUBSUB", "NUMSUB", channel]).last().is_some_and(|count| count != "0");
    Waiter {
        token: token.to_owned(),
        seq: seq.parse().unwrap(),
        deadline_ms: number(0),
        epoch: number(3),
        reach: match channel {
            "" => Reach::Polls,
            _ if listening() => Reach::Listens,
            _ => Reach::Gone,
        },
    }
}

fn is_foreign(value: &str) -> bool {
    !value.starts_with(TOKEN_PREFIX)
}

/// Which manager a token belongs to.
fn client(token: &str) -> &str {
    token.split('.').nth(1).unwrap_or("")
}

/// What the calls so far have to do with the next one.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The highest fence that was ever reserved.
    highest: u64,
    /// The last fence that was reserved for each hold.
    reserved: BTreeMap<String, u64>,
    /// The numbers of the places in line that each token had.
    places: BTreeMap<String, BTreeSet<u64>>,
    /// Who was granted the lock by message last, and has not been heard of since.
    pub(super) silent: Option<String>,
    /// The first rule that was broken.
    pub(super) violation: Option<String>,
}

/// One executed call.
pub(super) struct Executed<'a> {
    pub(super) time: ServerTime,
    pub(super) call: &'a Call,
    pub(super) before: &'a Snapshot,
    pub(super) after: &'a Snapshot,
    /// None if the server refused.
    pub(super) reply: Option<&'a Reply>,
    pub(super) grants: &'a [Grant],
}

impl Executed<'_> {
    fn now_ms(&self) -> u64 {
        self.time.as_micros() / 1_000
    }

    fn token(&self) -> &str {
        self.call.token().as_str()
    }

    fn intent(&self) -> Option<Intent> {
        if let Call::Acquire { intent, .. } = self.call { Some(*intent) } else { None }
    }

    /// Whether the lock was free, or became so, when this call decided whose it is.
    fn was_decided(&self) -> bool {
        let released =
            matches!(self.call, Call::Release { .. }) && self.before.owner() == Some(self.token());
        released || (self.before.value.is_none() && !matches!(self.call, Call::Extend { .. }))
    }

    /// The place in line that the caller asks for or has.
    fn own_place(&self) -> Option<(u64, &str)> {
        let behind = self.before.line.last().map_or(0, |last| last.seq + 1);
        let place = match (self.intent()?, self.before.waiter(self.token())) {
            (_, Some(waiter)) => waiter.seq,
            (Intent::Join(Some(seq)), None) => seq,
            (Intent::Join(None), None) => behind,
            // Behind everybody.
            (Intent::Try, None) => u64::MAX,
            (Intent::Poll, None) => return None,
        };
        Some((place, self.token()))
    }
}

impl Watch {
    /// Notes every rule that a call breaks.
    pub(super) fn judge(&mut self, done: &Executed<'_>) {
        let verdict = if done.reply.is_none() { refused(done) } else { self.executed(done) };
        if let (Err(broken), None) = (verdict, &self.violation) {
            self.violation = Some(format!("{broken}: {:?}\n  {:?}", done.call, done.before));
        }
    }

    fn executed(&mut self, done: &Executed<'_>) -> Result<(), String> {
        self.heard(done);
        self.owner_is_right(done)?;
        lease_is_right(done)?;
        self.fence_is_right(done)?;
        self.line_is_right(done)?;
        mark_is_right(done)?;
        messages_are_right(done)?;
        if done.was_decided() {
            let heir = done.after.owner().filter(|owner| *owner != done.token());
            self.silent = heir.map(str::to_owned);
        }
        Ok(())
    }

    /// A process that asks for the lock which it was granted, or stands in line anew, is not silent.
    fn heard(&mut self, done: &Executed<'_>) {
        let Some(silent) = &self.silent else { return };
        let joins = matches!(done.intent(), Some(Intent::Join(_)))
            || (done.intent().is_some() && done.before.waiter(done.token()).is_some());
        let claims = done.token() == silent && !matches!(done.call, Call::Extend { .. });
        if claims || (joins && client(silent) == client(done.token())) {
            self.silent = None;
        }
    }

    /// While the lock is held it stays its owner's; when it is free the first in line who can be reached
    /// gets it.
    fn owner_is_right(&self, done: &Executed<'_>) -> Result<(), String> {
        let (before, after) = (done.before.owner(), done.after.owner());
        if !done.was_decided() {
            return expect(before == after, &format!("{before:?} lost the lock to {after:?}"));
        }
        let heir = self.heir(done);
        expect(after == heir, &format!("{after:?} got the lock, and {heir:?} should have"))
    }

    /// Who should get the lock by this call.
    fn heir<'a>(&self, done: &'a Executed<'_>) -> Option<&'a str> {
        let own = done.own_place();
        let eligible = done.before.line.iter().filter(|waiter| {
            waiter.token != done.token()
                && waiter.reach != Reach::Gone
                && waiter.deadline_ms >= done.now_ms()
                && !self.is_purged(waiter)
        });
        eligible.map(Waiter::order).chain(own).min().map(|(_, token)| token)
    }

    /// Whether a silent claim of its process cost this waiter its place.
    fn is_purged(&self, waiter: &Waiter) -> bool {
        self.silent.as_deref().is_some_and(|silent| client(silent) == client(&waiter.token))
    }

    /// Every grant's fence is above all before it; a hold keeps its own.
    fn fence_is_right(&mut self, done: &Executed<'_>) -> Result<(), String> {
        let counter = done.after.counter().unwrap_or(0);
        let granted = match done.reply {
            Some(Reply::Granted { fence }) => Some(*fence),
            _ => done.grants.first().map(|grant| grant.fence),
        };
        let owner = done.after.owner().filter(|owner| !is_foreign(owner));
        match owner {
            Some(owner) if done.was_decided() => {
                let (fence, highest) = (granted.unwrap_or(counter), self.highest);
                expect(fence > highest, &format!("the fence {fence} after {highest}"))?;
                let epoch = done.before.waiter(owner).map_or(0, |waiter| waiter.epoch);
                expect(fence >= epoch, "a fence below the epoch of whom it is for")?;
                self.reserved.insert(owner.to_owned(), counter);
            }
            // The counter was lost with the data; its owner goes on with what it knows.
            Some(owner) if granted.is_some() && done.before.fence.is_none() => {
                self.reserved.insert(owner.to_owned(), counter);
            }
            _ => expect(done.before.fence == done.after.fence, "a fence without a grant")?,
        }
        if let (Some(Reply::Granted { fence }), Call::Acquire { token, block, .. }) =
            (done.reply, done.call)
        {
            let last = fence + u64::from(*block) - 1;
            let own = self.reserved.get(token.as_str()).copied().unwrap_or(last);
            expect(last == own, &format!("the fences of a hold ended at {own} and now at {last}"))?;
            expect(last <= counter, "the counter is behind the fences that it reserved")?;
        }
        self.highest = self.highest.max(counter);
        Ok(())
    }

    /// Places are taken by whoever asks for one, at the end or where they were, and kept while their
    /// owners live.
    fn line_is_right(&mut self, done: &Executed<'_>) -> Result<(), String> {
        for waiter in &done.after.line {
            if let Some(before) = done.before.waiter(&waiter.token) {
                expect(before.seq == waiter.seq, "a place in line moved")?;
                continue;
            }
            let asked =
                waiter.token == done.token() && matches!(done.intent(), Some(Intent::Join(_)));
            expect(asked, &format!("{} got a place that it did not ask for", waiter.token))?;
            let last = done.before.line.last().map_or(0, |last| last.seq);
            let places = self.places.entry(waiter.token.clone()).or_default();
            let fresh = done.intent() == Some(Intent::Join(None));
            expect(!fresh || waiter.seq > last, "a newcomer got a place ahead of others")?;
            let known = places.is_empty() || places.contains(&waiter.seq);
            expect(fresh || known, "an old place was lost")?;
            places.insert(waiter.seq);
        }
        let left = matches!(done.call, Call::Release { .. });
        let stands = done.after.waiter(done.token()).is_some();
        expect(!(left && stands), "whoever left still stands in line")?;
        let soon_ms = done.now_ms() + 2_000;
        for waiter in &done.before.line {
            let gone = done.after.waiter(&waiter.token).is_none();
            let owns = done.after.owner() == Some(&waiter.token);
            let left = left && waiter.token == done.token();
            let lives = waiter.deadline_ms > soon_ms && !self.is_purged(waiter);
            expect(!(gone && lives) || owns || left, &format!("{} lost its place", waiter.token))?;
        }
        Ok(())
    }
}

fn refused(done: &Executed<'_>) -> Result<(), String> {
    expect(done.before == done.after, "a refused call changed something")
}

/// A lease is as long as it was asked for at least, and nothing shortens it.
fn lease_is_right(done: &Executed<'_>) -> Result<(), String> {
    let (before, after) = (done.before.remaining_ms, done.after.remaining_ms);
    if !done.was_decided() {
        expect(after >= before, &format!("a lease was cut from {before} to {after} ms"))?;
    }
    let promised = match (done.call, done.reply) {
        (Call::Acquire { ttl, .. }, Some(Reply::Granted { .. }))
        | (Call::Extend { ttl, .. }, Some(Reply::Owner(true))) => Some(ttl),
        _ => None,
    };
    if let Some(ttl) = promised {
        let owns = done.after.owner() == Some(done.token());
        expect(owns, "the answer says that the caller owns a lock which it does not own")?;
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap();
        expect(after >= ttl_ms, &format!("{ttl_ms} ms were promised, and {after} ms given"))?;
    }
    Ok(())
}

/// A release looks at the line only if the mark tells it to.
fn mark_is_right(done: &Executed<'_>) -> Result<(), String> {
    let Some(value) = done.after.value.as_deref() else { return Ok(()) };
    if is_foreign(value) {
        return expect(done.before.value.as_deref() == Some(value), "foreign code's value changed");
    }
    let stands = !done.after.line.is_empty();
    expect(!stands || value.ends_with('+'), "somebody waits, and the lock's value does not say so")
}

/// Whoever gets the lock by another's call is told of it, of no more than it got, and nobody else is.
fn messages_are_right(done: &Executed<'_>) -> Result<(), String> {
    let owner = done.after.owner();
    let heir = owner.filter(|owner| done.was_decided() && *owner != done.token());
    let told = done.grants.iter().map(|grant| grant.token.as_str()).next();
    let reach = heir.and_then(|heir| done.before.waiter(heir)).map(|waiter| waiter.reach);
    let heir = heir.filter(|_| reach != Some(Reach::Polls));
    expect(told == heir, &format!("{heir:?} got the lock, and {told:?} was told"))?;
    expect(done.grants.len() <= 1, "more than one message")?;
    for grant in done.grants {
        let given_ms = u64::try_from(done.after.remaining_ms).unwrap_or(0);
        let claim_ms = u64::try_from(grant.claim.as_millis()).unwrap();
        expect(claim_ms <= given_ms, "a message promises more than was given")?;
        expect(grant.claim <= CLAIM, "a lease that nobody claims lasts too long")?;
        expect(grant.time <= done.time, "a grant is dated too late")?;
    }
    Ok(())
}

fn expect(right: bool, otherwise: &str) -> Result<(), String> {
    if right { Ok(()) } else { Err(otherwise.to_owned()) }
}
