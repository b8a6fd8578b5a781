//! A server in virtual time: the scripts as they are, on a keyspace in the process.

use super::defects;
use super::snapshot::{Snapshot, holders};
use super::watch::{Executed, Watch};
use super::world::World;
use crate::clock::{Mono, ServerTime};
use crate::error::Failure;
use crate::keys::LockKeys;
use crate::machine::Look;
use crate::message::{Message, notices};
use crate::script::{Call, Reply};
use crate::server::embedded::{ask, execute};
use crate::server::memory::{Entries, Store};
use crate::token::Token;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// A server that several managers may share: the scripts as they are, on a keyspace in the process.
#[derive(Clone)]
pub(super) struct Server(Rc<RefCell<State>>);

struct State {
    store: Store,
    history: String,
    /// Added to the monotonic clock to make wall-clock time.
    clock_us: u64,
    /// The server's own monotonic clock, where it is not that of whoever asks.
    clock: Option<Mono>,
    /// Messages on their way, by subscriber.
    mail: BTreeMap<u64, VecDeque<Message>>,
    /// Who has been told that a lock of a quorum may be free.
    woken: Vec<u64>,
    next_subscriber: u64,
    /// Judges every call, where somebody asks for that.
    watch: Option<Watch>,
    /// What lay on it after the last call and when, if nothing else has changed it since.
    seen: Option<(ServerTime, Snapshot)>,
    executed: usize,
}

thread_local! {
    /// A Lua takes longer to start than most schedules to run.
    static SPARE: RefCell<Vec<Store>> = const { RefCell::new(Vec::new()) };
}

fn run(store: &mut Store, time: ServerTime, call: &Call) -> Result<Reply, Failure> {
    execute(store, time, call, &defects::apply(call.script().source()))
}

impl State {
    fn snapshot(&self, time: ServerTime) -> Snapshot {
        match &self.seen {
            Some((at, seen)) if *at == time => seen.clone(),
            _ => Snapshot::take(time, &|parts| ask(&self.store, time, parts)),
        }
    }

    /// Whether the manager of a token hears what becomes of its locks.
    fn listens(&self, time: ServerTime, owner: &str) -> bool {
        let channel = notices(owner.split('.').nth(1).unwrap_or(""));
        let count = ask(&self.store, time, &["PUBSUB", "NUMSUB", &channel]).pop();
        count.is_some_and(|count| count != "0")
    }

    /// What was published to managers since the last call, and to whom.
    fn take_mail(&mut self) -> Vec<(u64, Message)> {
        let mut mail = Vec::new();
        for message in self.store.take_messages() {
            let payload = std::str::from_utf8(&message.payload).unwrap();
            match Message::parse(&message.channel, payload).unwrap() {
                Message::Freed(_) => self.woken.push(message.subscriber),
                told => mail.push((message.subscriber, told)),
            }
        }
        mail
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let store = std::mem::replace(&mut self.store, Store::idle());
        SPARE.with_borrow_mut(|spare| spare.push(store));
    }
}

impl Server {
    pub(super) fn new() -> Self {
        let store = SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(Store::new);
        store.reset();
        let state = State {
            store,
            history: "first".to_owned(),
            clock_us: 1_700_000_000_000_000,
            clock: None,
            mail: BTreeMap::new(),
            woken: Vec::new(),
            next_subscriber: 0,
            watch: None,
            seen: None,
            executed: 0,
        };
        Self(Rc::new(RefCell::new(state)))
    }

    pub(super) fn set_history(&self, history: &str) {
        history.clone_into(&mut self.0.borrow_mut().history);
    }

    pub(super) fn look(&self, now: Mono) -> Look {
        Look { history: Some(self.0.borrow().history.clone()), time: self.time(now), uptime: None }
    }

    pub(super) fn set_clock(&self, now: Mono) {
        self.0.borrow_mut().clock = Some(now);
    }

    pub(super) fn time(&self, now: Mono) -> ServerTime {
        let state = self.0.borrow();
        ServerTime::from_micros(state.clock_us + state.clock.unwrap_or(now).as_micros())
    }

    /// From now on every call is judged.
    pub(super) fn watch(&self) {
        self.0.borrow_mut().watch = Some(Watch::default());
    }

    /// How many calls it has executed.
    pub(super) fn executed(&self) -> usize {
        self.0.borrow().executed
    }

    /// The first rule that a call has broken.
    pub(super) fn violation(&self) -> Option<String> {
        self.0.borrow().watch.as_ref()?.violation.clone()
    }

    /// A call leaves its machine.
    pub(super) fn sent(&self, call: &Call) {
        if let Some(watch) = &mut self.0.borrow_mut().watch {
            watch.takings.sent(call);
        }
    }

    /// Nobody gives back what this token has, until it is given up.
    pub(super) fn keep(&self, token: &str) {
        if let Some(watch) = &mut self.0.borrow_mut().watch {
            watch.takings.kept.insert(token.to_owned());
        }
    }

    pub(super) fn give_up(&self, token: &str) {
        if let Some(watch) = &mut self.0.borrow_mut().watch {
            watch.takings.kept.remove(token);
        }
    }

    /// When the lease of a token would have ended, in ms, if the lock was taken from it.
    pub(super) fn robbed_until_ms(&self, token: &str) -> Option<u64> {
        self.0.borrow().watch.as_ref()?.takings.robbed.get(token).copied()
    }

    pub(super) fn snapshot(&self, now: Mono) -> Snapshot {
        self.0.borrow().snapshot(self.time(now))
    }

    /// Executes a call once more; it may tell nobody anything new.
    pub(super) fn execute_again(&self, now: Mono, call: &Call) {
        let time = self.time(now);
        let mut state = self.0.borrow_mut();
        state.seen = None;
        // Whether the server refuses is the same again.
        let _refused = run(&mut state.store, time, call).is_err();
        assert!(state.store.take_messages().is_empty(), "a repeat of {call:?} sent a message");
        drop(state);
        // Who was just granted the lock may have been heard of by it.
        self.reread(now);
    }

    /// Runs a plain command; the texts of its answer.
    fn ask(&self, now: Mono, parts: &[&str]) -> Vec<String> {
        ask(&self.0.borrow().store, self.time(now), parts)
    }

    /// Runs a plain command; its answer as text, or none if it is nil.
    pub(super) fn command(&self, now: Mono, parts: &[&str]) -> Option<String> {
        self.0.borrow_mut().seen = None;
        self.ask(now, parts).pop()
    }

    /// Who owns the lock, without the mark of those who wait.
    pub(super) fn owner(&self, now: Mono, keys: &LockKeys) -> Option<String> {
        let value = self.command(now, &["GET", keys.lock()])?;
        Some(value.strip_suffix('+').unwrap_or(&value).to_owned())
    }

    /// Whether others share the lock.
    pub(super) fn is_shared(&self, now: Mono) -> bool {
        self.owner(now, &World::keys()).is_some_and(|owner| owner == "hf1.shared")
    }

    /// Who has the lock or a share of it.
    pub(super) fn owners(&self, now: Mono) -> Vec<Token> {
        let time = self.time(now);
        holders(&|parts| ask(&self.0.borrow().store, time, parts), time)
    }

    /// How many stand in line.
    pub(super) fn line(&self, now: Mono, keys: &LockKeys) -> usize {
        self.command(now, &["ZCARD", &keys.queue()]).unwrap().parse().unwrap()
    }

    /// Every key but the fence counters.
    pub(super) fn leftovers(&self, now: Mono) -> String {
        let keys = World::keys();
        let names = self.ask(now, &["KEYS", "*"]).into_iter();
        names.filter(|key| *key != keys.fence()).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn set_foreign(&self, now: Mono, keys: &LockKeys, value: &str, lease: Duration) {
        let lease_ms = lease.as_millis().to_string();
        self.command(now, &["SET", keys.lock(), value, "PX", &lease_ms]);
    }

    pub(super) fn set_fence(&self, now: Mono, keys: &LockKeys, fence: u64) {
        self.command(now, &["SET", &keys.fence(), &fence.to_string(), "PX", "86400000"]);
    }

    pub(super) fn fence(&self, now: Mono, keys: &LockKeys) -> Option<u64> {
        self.command(now, &["GET", &keys.fence()])?.parse().ok()
    }

    pub(super) fn flush(&self) {
        let mut state = self.0.borrow_mut();
        state.seen = None;
        state.store.flush();
    }

    pub(super) fn save(&self) -> Entries {
        self.0.borrow().store.save()
    }

    /// The data are those of an earlier moment.
    pub(super) fn restore(&self, now: Mono, entries: Entries) {
        let mut state = self.0.borrow_mut();
        state.seen = None;
        state.store.restore(entries);
        if let Some(watch) = &mut state.watch {
            watch.takings.forgotten = true;
        }
        drop(state);
        self.reread(now);
    }

    /// Somebody else than a script has changed the data.
    pub(super) fn reread(&self, now: Mono) {
        let silent = self.command(now, &["HGET", &World::keys().waiters(), "unclaimed"]);
        let shares = self.ask(now, &["ZRANGE", &World::keys().shared(), "0", "-1", "WITHSCORES"]);
        let silent_share = |pair: &[String]| {
            Some((pair[0].strip_prefix('?')?.to_owned(), pair[1].strip_prefix('-')?.parse().ok()?))
        };
        if let Some(watch) = &mut self.0.borrow_mut().watch {
            watch.silent = silent;
            watch.silent_shares = shares.chunks_exact(2).filter_map(silent_share).collect();
        }
    }

    /// The server's clock is set.
    pub(super) fn step_clock(&self, step_us: i64) {
        let mut state = self.0.borrow_mut();
        state.seen = None;
        state.clock_us = state.clock_us.saturating_add_signed(step_us);
    }

    pub(super) fn execute(&self, now: Mono, call: &Call) -> Result<Reply, Failure> {
        let time = self.time(now);
        let mut state = self.0.borrow_mut();
        state.executed += 1;
        let seen = state.seen.take().filter(|(at, _)| *at == time).map(|(_, seen)| seen);
        let before = state.watch.is_some().then(|| seen.unwrap_or_else(|| state.snapshot(time)));
        let reply = run(&mut state.store, time, call);
        let mail = state.take_mail();
        if let Some(before) = before {
            let after = state.snapshot(time);
            let (mut messages, mut taken) = (Vec::new(), Vec::new());
            for (_, message) in &mail {
                match message {
                    Message::Freed(_) => {}
                    Message::Granted(grants) => messages.push(grants.clone()),
                    Message::Taken(lost) => taken.push(lost.clone()),
                }
            }
            let reply = reply.as_ref().ok();
            let mut watch = state.watch.take().unwrap_or_default();
            let listens = |owner: &str| state.listens(time, owner);
            let (messages, taken, listens) = (&messages, &taken, &listens);
            let (before, after_it) = (&before, &after);
            watch.judge(&Executed {
                time,
                call,
                before,
                after: after_it,
                reply,
                messages,
                taken,
                listens,
            });
            state.watch = Some(watch);
            state.seen = Some((time, after));
        }
        for (subscriber, message) in mail {
            state.mail.entry(subscriber).or_default().push_back(message);
        }
        reply
    }

    /// Whether there was a message for a subscriber that a lock may be free.
    pub(super) fn take_woken(&self, subscriber: u64) -> bool {
        let woken = &mut self.0.borrow_mut().woken;
        let before = woken.len();
        woken.retain(|other| *other != subscriber);
        woken.len() < before
    }

    pub(super) fn new_subscriber(&self) -> u64 {
        let mut state = self.0.borrow_mut();
        state.next_subscriber += 1;
        state.next_subscriber
    }

    pub(super) fn subscribe(&self, subscriber: u64, channel: &str) {
        let mut state = self.0.borrow_mut();
        state.seen = None;
        state.store.subscribe(subscriber, channel);
    }

    pub(super) fn unsubscribe(&self, subscriber: u64) {
        let mut state = self.0.borrow_mut();
        state.seen = None;
        state.store.unsubscribe(subscriber);
        state.mail.remove(&subscriber);
    }

    pub(super) fn next_mail(&self, subscriber: u64) -> Option<Message> {
        self.0.borrow_mut().mail.get_mut(&subscriber)?.pop_front()
    }

    pub(super) fn has_mail(&self, subscriber: u64) -> bool {
        self.0.borrow().mail.get(&subscriber).is_some_and(|mail| !mail.is_empty())
    }
}
