//! A server in virtual time: the published scripts, on an in-process keyspace.

use super::defects;
use super::snapshot::{self, Snapshot, holders};
use super::watch::{Executed, Granted, OfOne, Watch};
use crate::machine::ServerProbe;
use crate::protocol::keys::COUNTER;
use crate::protocol::message::{Message, notices};
use crate::protocol::{
    Call, Counters, Failure, LockKeys, Mono, Refusal, Reply, Script, ServerTime, Token,
};
use crate::server::embedded::{
    Plain, Value, ask, eval, execute, execute_plain, keys_of, keys_of_plain, taken,
};
use crate::server::memory::{Entries, Store};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A server that managers may share: the published scripts, on an in-process keyspace.
#[derive(Clone)]
pub(super) struct Server(Rc<RefCell<State>>);

struct State {
    store: Store,
    /// Which counters issue the fences.
    counters: Counters,
    replication_id: Rc<str>,
    /// Added to the monotonic clock to make wall-clock time.
    clock_us: u64,
    /// The server's own monotonic clock, if it is not the caller's.
    clock: Option<Mono>,
    /// Messages in flight, by subscriber.
    mail: BTreeMap<u64, VecDeque<Message>>,
    /// The subscribers with a message that a lock of a quorum may be free.
    woken: Vec<u64>,
    next_subscriber: u64,
    /// The locks whose keys are tracked: for whom, and how they were.
    tracked: Vec<(LockKeys, u64, Vec<String>)>,
    /// Who makes the present call, unless it comes late.
    caller: Option<u64>,
    /// The locks whose calls are judged.
    watched: Vec<Watched>,
    /// The keys that have moved with their slot, during the move.
    moved: Option<BTreeSet<String>>,
    /// It loads its data, and refuses all calls.
    loading: bool,
    /// Since then it is a replica and takes no writes.
    replica_since: Option<Mono>,
    /// The number of calls executed here and on its peers.
    executed: Rc<Cell<usize>>,
    /// The scripts that it knows by their hashes; none if it knows all.
    known: Option<BTreeSet<Script>>,
}

/// The reply in those to the plain commands of a call.
pub(super) fn combine(call: &Call, replies: Vec<Result<Value, Failure>>) -> Result<Reply, Failure> {
    let mut values = Vec::new();
    for reply in replies {
        match reply {
            Ok(value) => values.push(value),
            Err(failure) if values.is_empty() => return Err(failure),
            // An error, which no more is known of.
            Err(_) => values.push(Value::Boolean(false)),
        }
    }
    taken(&call.tokens(), &values)
}

/// A lock whose calls are judged.
struct Watched {
    keys: LockKeys,
    watch: Watch,
    /// The data and time after the last call, unless something else has changed the data.
    seen: Option<(ServerTime, Snapshot)>,
}

thread_local! {
    /// Starting a Lua takes longer than most schedules run.
    static SPARE: RefCell<Vec<Store>> = const { RefCell::new(Vec::new()) };
}

fn run(
    store: &mut Store,
    time: ServerTime,
    call: &Call,
    counters: Counters,
) -> Result<Reply, Failure> {
    let is_there = || ask(store, time, &["EXISTS", call.keys().lock()]) == ["1"];
    if matches!(call, Call::Renew { .. })
        && let Some(parts) = defects::spoil_renewal(call, is_there())
    {
        ask(store, time, &parts.each_ref().map(String::as_str));
        return Ok(Reply::Owner(true));
    }
    execute(store, time, call, counters, |script| defects::apply(script.source()))
}

impl State {
    fn time(&self, now: Mono) -> ServerTime {
        ServerTime::from_micros(self.clock_us + self.clock.unwrap_or(now).as_micros())
    }

    fn snapshot(&self, keys: &LockKeys, time: ServerTime) -> Snapshot {
        let watched = self.watched.iter().find(|watched| watched.keys == *keys);
        match watched.and_then(|watched| watched.seen.as_ref()) {
            // A call for another lock may have changed the counter.
            Some((at, seen)) if *at == time => {
                let (fence, fence_ms) = self.counter(keys, time);
                Snapshot { fence, fence_ms, ..seen.clone() }
            }
            _ => self.take_snapshot(keys, time),
        }
    }

    fn take_snapshot(&self, keys: &LockKeys, time: ServerTime) -> Snapshot {
        let counter = self.counter(keys, time);
        Snapshot::take(keys, counter, time, &|parts| ask(&self.store, time, parts))
    }

    fn counter(&self, keys: &LockKeys, time: ServerTime) -> (Option<String>, i64) {
        let key = keys.counter(self.counters).to_string();
        snapshot::counter(&key, &|parts| ask(&self.store, time, parts))
    }

    /// Records that something else than a judged call has changed the data.
    fn forget_seen(&mut self) {
        self.watched.iter_mut().for_each(|watched| watched.seen = None);
    }

    /// The error with which it refuses a call, if it does.
    fn refuses(&self, time: ServerTime, keys: &[String]) -> Option<&'static str> {
        if self.loading {
            return Some("LOADING");
        }
        if self.replica_since.is_some() {
            return Some("READONLY");
        }
        let moved = self.moved.as_ref()?;
        // A single key is served where it is, or would be created. Several keys are refused unless all are in
        // one place, because no server knows the place of missing ones.
        let exists = |key: &String| ask(&self.store, time, &["EXISTS", key]) == ["1"];
        let at = |there: bool| keys.iter().all(|key| moved.contains(key) == there && exists(key));
        (keys.len() > 1 && !at(false) && !at(true)).then_some("TRYAGAIN")
    }

    /// The data of the judged locks of a call.
    fn look_at_locks_of(&self, call: &Call, time: ServerTime) -> Vec<Snapshot> {
        if self.watched.is_empty() {
            return Vec::new();
        }
        let locks = call.clone().into_locks();
        locks.map(|(keys, _)| self.snapshot(&keys, time)).collect()
    }

    /// Judges the effect of a call on its locks. `before`: their data before it.
    fn judge(
        &mut self,
        when: usize,
        time: ServerTime,
        call: &Call,
        before: &[Snapshot],
        reply: Option<&Reply>,
        mail: &[(u64, Message)],
    ) {
        let mut watched = std::mem::take(&mut self.watched);
        let (mut messages, mut taken) = (Vec::new(), Vec::new());
        for (_, message) in mail {
            match message {
                Message::Changed(_) | Message::AllChanged | Message::Freed(_) => {}
                Message::Granted(grants) => messages.push(grants.clone()),
                Message::Taken(lost) => taken.push(lost.clone()),
            }
        }
        let listens = |owner: &str| self.listens(time, owner);
        let locks: Vec<_> = call.clone().into_locks().collect();
        let is_free = |(keys, token): &(LockKeys, Token), before: &Snapshot| {
            // An acquire of several locks counts any value at the queue's key as a waiter.
            let waits = || ask(&self.store, time, &["EXISTS", &keys.queue()]) != ["0"];
            before.owner() == Some(token.as_str()) || (before.value.is_none() && !waits())
        };
        let several = matches!(call, Call::AcquireAll { .. });
        let all_free = several && locks.iter().zip(before).all(|(lock, it)| is_free(lock, it));
        for (number, (keys, token)) in locks.iter().enumerate() {
            let after = self.take_snapshot(keys, time);
            let Some(known) = watched.iter_mut().find(|known| known.keys == *keys) else {
                continue;
            };
            known.watch.judge(&Executed {
                when,
                replication_id: &self.replication_id,
                time,
                call,
                token,
                number,
                all_free,
                before: &before[number],
                after: &after,
                reply,
                messages: &messages,
                taken: &taken,
                listens: &listens,
            });
            known.seen = Some((time, after));
        }
        self.watched = watched;
    }

    /// Whether the manager of a token gets messages about its locks.
    fn listens(&self, time: ServerTime, owner: &str) -> bool {
        let channel = notices(owner.split('.').nth(1).unwrap_or(""));
        let count = ask(&self.store, time, &["PUBSUB", "NUMSUB", &channel]).pop();
        count.is_some_and(|count| count != "0")
    }

    /// The value and the end of a lock's key.
    fn seen_of(&self, keys: &LockKeys, time: ServerTime) -> Vec<String> {
        let mut seen = ask(&self.store, time, &["GET", keys.lock()]);
        let left = ask(&self.store, time, &["PTTL", keys.lock()]).pop();
        let left_ms = left.and_then(|left| left.parse::<u64>().ok());
        seen.extend(left_ms.map(|left_ms| (left_ms + time.as_micros() / 1_000).to_string()));
        seen
    }

    /// Tells of each tracked key that has changed, once; but not who has changed it.
    fn tell(&mut self, time: ServerTime) {
        for (keys, subscriber, before) in std::mem::take(&mut self.tracked) {
            if self.seen_of(&keys, time) == before {
                self.tracked.push((keys, subscriber, before));
            } else if self.caller != Some(subscriber) {
                self.mail.entry(subscriber).or_default().push_back(Message::Changed(keys));
            }
        }
    }

    /// The messages to managers since the last call.
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
            counters: Counters::Server,
            replication_id: "first".into(),
            clock_us: 1_700_000_000_000_000,
            clock: None,
            mail: BTreeMap::new(),
            woken: Vec::new(),
            next_subscriber: 0,
            tracked: Vec::new(),
            caller: None,
            watched: Vec::new(),
            moved: None,
            loading: false,
            replica_since: None,
            executed: Rc::default(),
            known: None,
        };
        Self(Rc::new(RefCell::new(state)))
    }

    /// A new replica of it.
    pub(super) fn replica(&self, now: Mono) -> Self {
        let (replica, own) = (Self::new(), self.0.borrow());
        let mut state = replica.0.borrow_mut();
        state.clock = own.clock;
        state.executed = Rc::clone(&own.executed);
        state.counters = own.counters;
        state.known = own.known.as_ref().map(|_| BTreeSet::new());
        state.replica_since = Some(now);
        drop(state);
        drop(own);
        replica
    }

    /// From now on it knows no script until it is sent one.
    pub(super) fn forget_scripts(&self) {
        self.0.borrow_mut().known = Some(BTreeSet::new());
    }

    /// Whether it knows a script, or gets its `source` with the call.
    pub(super) fn knows(&self, script: Script, source: bool) -> bool {
        let known = &mut self.0.borrow_mut().known;
        let Some(known) = known else { return true };
        if source {
            known.insert(script);
        }
        known.contains(&script)
    }

    /// Whether both are the same server.
    pub(super) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// The time since which it is a replica, if it is one.
    pub(super) fn replica_since(&self) -> Option<Mono> {
        self.0.borrow().replica_since
    }

    /// Promotes it to a primary with the replicated data.
    pub(super) fn promote(&self, now: Mono, entries: Entries, replication_id: &str) {
        self.set_replication_id(replication_id);
        self.restore(now, entries);
        let mut state = self.0.borrow_mut();
        state.replica_since = None;
        // A manager that has not noticed the new replication id may get a grant that it will not use.
        state.watched.iter_mut().for_each(|watched| watched.watch.highest = 0);
    }

    /// Starts or ends a move of the locks' slot to another server.
    pub(super) fn set_moving(&self, moving: bool) {
        self.0.borrow_mut().moved = moving.then(BTreeSet::new);
    }

    /// Moves the next key of a moving slot.
    pub(super) fn move_key(&self, now: Mono) {
        let time = self.time(now);
        let mut state = self.0.borrow_mut();
        let Some(moved) = &state.moved else { return };
        let keys = ask(&state.store, time, &["KEYS", "*"]);
        let next = keys.into_iter().filter(|key| !moved.contains(key)).min();
        if let (Some(next), Some(moved)) = (next, &mut state.moved) {
            moved.insert(next);
        }
    }

    pub(super) fn set_loading(&self, loading: bool) {
        self.0.borrow_mut().loading = loading;
    }

    pub(super) fn is_moving(&self) -> bool {
        self.0.borrow().moved.is_some()
    }

    /// Demotes it to a replica.
    pub(super) fn demote(&self, now: Mono) {
        self.restore(now, Entries::default());
        self.0.borrow_mut().replica_since = Some(now);
    }

    pub(super) fn set_replication_id(&self, replication_id: &str) {
        self.0.borrow_mut().replication_id = replication_id.into();
    }

    pub(super) fn probe(&self, now: Mono) -> ServerProbe {
        ServerProbe {
            replication_id: Some(self.0.borrow().replication_id.to_string()),
            time: self.time(now),
            uptime: None,
        }
    }

    pub(super) fn set_clock(&self, now: Mono) {
        self.0.borrow_mut().clock = Some(now);
    }

    pub(super) fn time(&self, now: Mono) -> ServerTime {
        self.0.borrow().time(now)
    }

    /// Judges every later call for these locks.
    pub(super) fn watch(&self, locks: &[LockKeys]) {
        let mut state = self.0.borrow_mut();
        let counters = state.counters;
        let watched = |keys: &LockKeys| {
            let mut watch = Watch::default();
            watch.counters_end = counters == Counters::Locks;
            Watched { keys: keys.clone(), watch, seen: None }
        };
        state.watched = locks.iter().map(watched).collect();
    }

    /// From now on its ACL denies the counter of all locks.
    pub(super) fn deny_counter(&self) {
        self.0.borrow_mut().counters = Counters::Locks;
    }

    pub(super) fn denies_counter(&self) -> bool {
        self.0.borrow().counters == Counters::Locks
    }

    /// The key of the counter that issues the fences of a lock.
    pub(super) fn counter_key(&self, keys: &LockKeys) -> String {
        keys.counter(self.0.borrow().counters).to_string()
    }

    /// The number of calls executed here and on its peers.
    pub(super) fn executed(&self) -> usize {
        self.0.borrow().executed.get()
    }

    /// The first rule that a call has broken.
    pub(super) fn violation(&self) -> Option<String> {
        self.0.borrow().watched.iter().find_map(|watched| watched.watch.violation.clone())
    }

    /// Records that a machine has sent a call.
    pub(super) fn sent(&self, call: &Call) {
        for watched in &mut self.0.borrow_mut().watched {
            watched.watch.thefts.sent(call);
        }
    }

    /// Expects that nobody releases this token's locks, until `give_up`.
    pub(super) fn note_left_to_expire(&self, token: &str) {
        for watched in &mut self.0.borrow_mut().watched {
            watched.watch.thefts.left_to_expire.insert(token.to_owned(), false);
        }
    }

    pub(super) fn give_up(&self, token: &str) {
        for watched in &mut self.0.borrow_mut().watched {
            watched.watch.thefts.left_to_expire.remove(token);
        }
    }

    /// When the lease of a token would have ended, in ms, if its lock was stolen.
    pub(super) fn victim_until_ms(&self, token: &str) -> Option<u64> {
        let state = self.0.borrow();
        state.watched.iter().find_map(|it| it.watch.thefts.victims.get(token).copied())
    }

    /// Whether another token has taken the lock over from this one.
    pub(super) fn was_adopted(&self, token: &str) -> bool {
        let state = self.0.borrow();
        state.watched.iter().any(|watched| watched.watch.thefts.adopted.contains(token))
    }

    /// The tokens whose locks were stolen, and their remaining leases.
    pub(super) fn victims(&self, now: Mono) -> Vec<(Token, Duration)> {
        let (state, now_ms) = (self.0.borrow(), self.time(now).as_micros() / 1_000);
        let victims = state.watched.iter().flat_map(|watched| &watched.watch.thefts.victims);
        let left = |(token, ends_ms): (&String, &u64)| {
            (Token::from_text(token), Duration::from_millis(ends_ms.saturating_sub(now_ms)))
        };
        victims.map(left).collect()
    }

    /// The last fence reserved for the latest grant of a token; none if that is unknown.
    pub(super) fn reserved(&self, token: &str) -> Option<u64> {
        let state = self.0.borrow();
        state.watched.iter().find_map(|it| it.watch.reserved.get(token).copied())
    }

    /// Whether plain commands have shown that the lock they took with this fence is not the token's to use. A grant with
    /// an earlier fence is not theirs: they came late.
    pub(super) fn is_void(&self, token: &str, fence: u64) -> bool {
        let state = self.0.borrow();
        let first = |watched: &Watched| watched.watch.void.get(token).copied();
        state.watched.iter().filter_map(first).any(|first| fence >= first)
    }

    /// The latest grant of a token; none if there was none.
    pub(super) fn granted(&self, token: &str) -> Option<Granted> {
        let state = self.0.borrow();
        state.watched.iter().find_map(|it| it.watch.granted.get(token).cloned())
    }

    pub(super) fn snapshot(&self, now: Mono, keys: &LockKeys) -> Snapshot {
        self.0.borrow().snapshot(keys, self.time(now))
    }

    /// Executes a duplicate of a call, which must not send any message.
    pub(super) fn execute_again(&self, now: Mono, call: &Call) {
        if self.0.borrow().refuses(self.time(now), &keys_of(call)).is_some() {
            return;
        }
        let time = self.time(now);
        let mut state = self.0.borrow_mut();
        state.forget_seen();
        // The duplicate may be refused as well.
        let State { store, counters, .. } = &mut *state;
        let _refused = run(store, time, call, *counters).is_err();
        assert!(state.store.take_messages().is_empty(), "a repeat of {call:?} sent a message");
        drop(state);
        // The duplicate may count as a claim of a new grant.
        self.reread(now);
    }

    /// Runs a plain command; the texts of its answer.
    pub(super) fn ask(&self, now: Mono, parts: &[&str]) -> Vec<String> {
        ask(&self.0.borrow().store, self.time(now), parts)
    }

    /// Runs a script for which there is no call; the texts of its answer.
    pub(super) fn eval(
        &self,
        now: Mono,
        script: Script,
        keys: &[&str],
        args: &[&str],
    ) -> Vec<String> {
        let state = &mut *self.0.borrow_mut();
        let time = state.time(now);
        eval(&mut state.store, time, script, keys, args)
    }

    /// Runs a plain command; returns its answer as text, or none if it is nil.
    pub(super) fn command(&self, now: Mono, parts: &[&str]) -> Option<String> {
        self.0.borrow_mut().forget_seen();
        let answer = self.ask(now, parts).pop();
        let time = self.time(now);
        self.0.borrow_mut().tell(time);
        answer
    }

    /// The owner of the lock, without the has-waiters flag.
    pub(super) fn owner(&self, now: Mono, keys: &LockKeys) -> Option<String> {
        let value = self.command(now, &["GET", keys.lock()])?;
        Some(value.strip_suffix('+').unwrap_or(&value).to_owned())
    }

    /// Whether the lock is shared.
    pub(super) fn is_shared(&self, now: Mono, keys: &LockKeys) -> bool {
        self.owner(now, keys).is_some_and(|owner| owner == "hf1.shared")
    }

    /// The owners of the lock or of its shares.
    pub(super) fn owners(&self, now: Mono, keys: &LockKeys) -> Vec<Token> {
        let time = self.time(now);
        holders(keys, &|parts| ask(&self.0.borrow().store, time, parts), time)
    }

    /// The length of the wait queue.
    pub(super) fn queue_len(&self, now: Mono, keys: &LockKeys) -> usize {
        self.command(now, &["ZCARD", &keys.queue()]).unwrap().parse().unwrap()
    }

    /// Every key but the fence counters.
    pub(super) fn leftovers(&self, now: Mono) -> String {
        let names = self.ask(now, &["KEYS", "*"]).into_iter();
        names.filter(|key| !key.ends_with(":fence")).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn set_foreign(&self, now: Mono, keys: &LockKeys, value: &str, lease: Duration) {
        let ttl_ms = lease.as_millis().to_string();
        self.command(now, &["SET", keys.lock(), value, "PX", &ttl_ms]);
    }

    /// Sets the counter.
    pub(super) fn set_fence(&self, now: Mono, fence: u64) {
        self.command(now, &["SET", COUNTER, &fence.to_string()]);
    }

    /// The counter.
    pub(super) fn fence(&self, now: Mono) -> Option<u64> {
        self.command(now, &["GET", COUNTER])?.parse().ok()
    }

    /// Sets the last fence of a quorum's lock.
    pub(super) fn set_own_fence(&self, now: Mono, keys: &LockKeys, fence: u64) {
        self.command(now, &["SET", &keys.fence(), &fence.to_string(), "PX", "86400000"]);
    }

    /// The last fence of a quorum's lock.
    pub(super) fn own_fence(&self, now: Mono, keys: &LockKeys) -> Option<u64> {
        self.command(now, &["GET", &keys.fence()])?.parse().ok()
    }

    pub(super) fn flush(&self) {
        let mut state = self.0.borrow_mut();
        state.forget_seen();
        state.store.flush();
        for (_, subscriber, _) in std::mem::take(&mut state.tracked) {
            state.mail.entry(subscriber).or_default().push_back(Message::AllChanged);
        }
    }

    pub(super) fn save(&self) -> Entries {
        self.0.borrow().store.save()
    }

    /// Restores data of an earlier moment.
    pub(super) fn restore(&self, now: Mono, entries: Entries) {
        let time = self.time(now);
        let mut state = self.0.borrow_mut();
        state.forget_seen();
        state.store.restore(entries);
        state.tell(time);
        for watched in &mut state.watched {
            watched.watch.thefts.forgotten = true;
            // These data may have an earlier grant of a token, or one by another server.
            watched.watch.reserved.clear();
        }
        drop(state);
        self.reread(now);
    }

    /// Reads the judged locks again after a change by another client.
    pub(super) fn reread(&self, now: Mono) {
        let mut state = self.0.borrow_mut();
        let (time, state) = (state.time(now), &mut *state);
        for Watched { keys, watch, .. } in &mut state.watched {
            let ask = |parts: &[&str]| ask(&state.store, time, parts);
            watch.find(ask(&["GET", keys.lock()]).pop());
            watch.silent = ask(&["HGET", &keys.waiters(), "unclaimed"]).pop();
            let shares = ask(&["ZRANGE", &keys.shared(), "0", "-1", "WITHSCORES"]);
            let silent_share = |pair: &[String]| {
                let at_ms = pair[1].strip_prefix('-')?.parse().ok()?;
                Some((pair[0].strip_prefix('?')?.to_owned(), at_ms))
            };
            watch.silent_shares = shares.chunks_exact(2).filter_map(silent_share).collect();
        }
    }

    /// Sets the server's clock.
    pub(super) fn step_clock(&self, step_us: i64) {
        let mut state = self.0.borrow_mut();
        state.forget_seen();
        state.clock_us = state.clock_us.saturating_add_signed(step_us);
    }

    /// Runs one of the plain commands of a call.
    pub(super) fn execute_plain(
        &self,
        now: Mono,
        call: &Call,
        part: Plain,
    ) -> Result<Value, Failure> {
        let time = self.time(now);
        let mut state = self.0.borrow_mut();
        if let Some(code) = state.refuses(time, &keys_of_plain(call, part)) {
            let (code, detail) = (code.to_owned(), String::new());
            return Err(Failure::Refused(Refusal { code, detail }));
        }
        let when = state.executed.get() + 1;
        state.executed.set(when);
        let before = state.look_at_locks_of(call, time);
        let value = execute_plain(&state.store, time, call, part);
        let value = defects::spoil_plain(call, part, value, |parts| {
            ask(&state.store, time, parts);
        });
        for (place, (before, (keys, token))) in
            before.iter().zip(call.clone().into_locks()).enumerate()
        {
            let after = state.take_snapshot(&keys, time);
            let replication_id = Rc::clone(&state.replication_id);
            if let Some(known) = state.watched.iter_mut().find(|known| known.keys == keys) {
                let granted = Granted { number: when, replication_id };
                let of_one = OfOne { call, place, token: &token };
                known.watch.judge_plain(&of_one, part, (before, &after), &value, granted);
            }
        }
        state.forget_seen();
        state.tell(time);
        Ok(value)
    }

    pub(super) fn execute(&self, now: Mono, call: &Call) -> Result<Reply, Failure> {
        if call.script().is_none() {
            let run = |part| self.execute_plain(now, call, part);
            return combine(call, Plain::ALL.map(run).into());
        }
        let time = self.time(now);
        let mut state = self.0.borrow_mut();
        let refusal = state.refuses(time, &keys_of(call));
        if let Some(code) = refusal {
            let (code, detail) = (code.to_owned(), String::new());
            return Err(Failure::Refused(Refusal { code, detail }));
        }
        let when = state.executed.get() + 1;
        state.executed.set(when);
        let before = state.look_at_locks_of(call, time);
        let State { store, counters, .. } = &mut *state;
        let reply = run(store, time, call, *counters);
        let mail = state.take_mail();
        if !before.is_empty() {
            state.judge(when, time, call, &before, reply.as_ref().ok(), &mail);
        }
        for (subscriber, message) in mail {
            state.mail.entry(subscriber).or_default().push_back(message);
        }
        state.tell(time);
        reply
    }

    /// Tracks the key of a lock for a subscriber, as in [`Effect::Track`]. Returns whether it tells at once.
    pub(super) fn track(
        &self,
        now: Mono,
        keys: &LockKeys,
        token: Option<&Token>,
        subscriber: u64,
    ) -> bool {
        let time = self.time(now);
        let mut state = self.0.borrow_mut();
        state.forget_seen();
        state.tell(time);
        state.tracked.retain(|it| it.0 != *keys || it.1 != subscriber);
        let seen = state.seen_of(keys, time);
        let value = ask(&state.store, time, &["GET", keys.lock()]).pop();
        state.tracked.push((keys.clone(), subscriber, seen));
        let is = |value: &str| {
            token.is_none_or(|token| value.strip_suffix('+').unwrap_or(value) == token.as_str())
        };
        !value.is_some_and(|value| is(&value))
    }

    /// Who makes the next calls; none if they come late.
    pub(super) fn set_caller(&self, caller: Option<u64>) {
        self.0.borrow_mut().caller = caller;
    }

    /// Takes the message that a lock may be free from a subscriber; false if there is none.
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
        state.forget_seen();
        state.store.subscribe(subscriber, channel);
    }

    pub(super) fn unsubscribe(&self, subscriber: u64) {
        let mut state = self.0.borrow_mut();
        state.forget_seen();
        state.store.unsubscribe(subscriber);
        state.mail.remove(&subscriber);
        state.tracked.retain(|it| it.1 != subscriber);
    }

    /// Who listens to shard channels from now on, and who did before.
    pub(super) fn change_subscriptions(
        &self,
        before: &BTreeSet<(u64, Arc<str>)>,
        after: &BTreeSet<(u64, Arc<str>)>,
    ) {
        if before == after {
            return;
        }
        let mut state = self.0.borrow_mut();
        state.forget_seen();
        for (subscriber, _) in before {
            state.store.unsubscribe(*subscriber);
        }
        for (subscriber, channel) in after {
            state.store.subscribe(*subscriber, channel);
        }
    }

    pub(super) fn next_mail(&self, subscriber: u64) -> Option<Message> {
        self.0.borrow_mut().mail.get_mut(&subscriber)?.pop_front()
    }

    pub(super) fn has_mail(&self, subscriber: u64) -> bool {
        self.0.borrow().mail.get(&subscriber).is_some_and(|mail| !mail.is_empty())
    }
}
