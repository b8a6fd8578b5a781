//! An in-process server: the published scripts, on a keyspace of their own.
//!
//! Managers that name the same store share it; it lives as long as one of them is connected.

use super::memory::Store;
use super::redis::query::inspection;
pub(crate) use super::redis::wire::{Plain, taken};
use super::redis::{Command, Dialect, wire};
use super::{Clock, Deliver, Incoming, Item, Welcome};
use crate::protocol::query::{Page, Question};
use crate::protocol::{
    Call, Counters, Denied, Failure, Message, Mono, Reply, Script, ServerProbe, ServerTime,
};
pub(crate) use redis::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The named stores.
static NAMED: Mutex<BTreeMap<String, Weak<Mutex<Server>>>> = Mutex::new(BTreeMap::new());

/// A store in this process. It lives as long as one of its clones or a connection to it.
#[derive(Clone)]
pub struct MemoryStore {
    name: String,
    server: Arc<Mutex<Server>>,
    clock: Arc<Clock>,
}

struct Server {
    store: Store,
    clock: Arc<Clock>,
    /// The replication id of the data; every store has its own.
    replication_id: String,
    began: Mono,
    began_at: ServerTime,
    listeners: BTreeMap<u64, Deliver>,
    last_listener: u64,
}

/// A manager's connection to its store. Dropping it ends its subscription.
pub(crate) struct Connection {
    server: Arc<Mutex<Server>>,
    listener: u64,
}

impl MemoryStore {
    /// The store `name`, or a private one if `name` is empty.
    #[must_use]
    pub fn open(name: String) -> Self {
        let server = find(&name);
        let clock = Arc::clone(&access(&server).clock);
        Self { name, server, clock }
    }

    pub(super) const fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// Opens a connection that is subscribed to `channels`.
    pub(super) fn connect(&self, channels: &[Arc<str>], deliver: Deliver) -> (Connection, Welcome) {
        let mut server = access(&self.server);
        server.last_listener += 1;
        let listener = server.last_listener;
        for channel in channels {
            server.store.subscribe(listener, channel);
        }
        server.listeners.insert(listener, deliver);
        let welcome = Welcome {
            probe: server.probe(),
            risks: Vec::new(),
            // Only managers change its keys, and they tell each other.
            denied: Denied { tracking: true, ..Denied::default() },
            abilities: None,
        };
        drop(server);
        (Connection { server: Arc::clone(&self.server), listener }, welcome)
    }
}

/// The store as people write it.
impl fmt::Display for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory:{}", self.name)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn find(name: &str) -> Arc<Mutex<Server>> {
    if name.is_empty() {
        return Arc::new(Mutex::new(Server::new()));
    }
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    named.retain(|_, server| server.strong_count() > 0);
    if let Some(server) = named.get(name).and_then(Weak::upgrade) {
        return server;
    }
    let server = Arc::new(Mutex::new(Server::new()));
    named.insert(name.to_owned(), Arc::downgrade(&server));
    server
}

impl Server {
    fn new() -> Self {
        let clock = Arc::<Clock>::default();
        Self {
            store: Store::new(),
            replication_id: uuid::Uuid::new_v4().simple().to_string(),
            began: clock.now(),
            began_at: ServerTime::now(),
            clock,
            listeners: BTreeMap::new(),
            last_listener: 0,
        }
    }

    /// A clock that nobody sets back.
    fn time(&self) -> ServerTime {
        let us = self.clock.now().as_micros() - self.began.as_micros();
        ServerTime::from_micros(self.began_at.as_micros() + us)
    }

    fn probe(&self) -> ServerProbe {
        let uptime = Some(self.clock.now().since(self.began));
        ServerProbe { replication_id: Some(self.replication_id.clone()), time: self.time(), uptime }
    }

    /// Delivers the messages of the last call, which `caller` has made.
    fn publish(&self, caller: u64, into: &mut Vec<Incoming>) {
        for message in self.store.take_messages() {
            let text = std::str::from_utf8(&message.payload).ok();
            let parsed = text.and_then(|text| Message::parse(&message.channel, text));
            let Some(parsed) = parsed.map(Incoming::Message) else { continue };
            if message.subscriber == caller {
                into.push(parsed);
            } else if let Some(deliver) = self.listeners.get(&message.subscriber) {
                deliver(parsed);
            }
        }
    }
}

impl Connection {
    /// Executes `items` at once, in order.
    pub(super) fn send(&self, items: &[Item], into: &mut Vec<Incoming>) {
        let mut server = access(&self.server);
        for item in items {
            match item {
                Item::Probe { sent } => into.push(Incoming::Probed(server.probe(), *sent)),
                // Nobody but managers changes this store, and it says that it does not tell.
                Item::Track { .. } => {}
                Item::Call { request, call, .. } => {
                    let time = server.time();
                    let reply =
                        execute(&mut server.store, time, call, Counters::Server, |script| {
                            script.source().into()
                        });
                    into.push(Incoming::Reply(*request, reply));
                    server.publish(self.listener, into);
                }
            }
        }
    }

    /// The next keys in order, with their holders and waiters.
    pub(super) fn page(&self, question: &Question) -> Page {
        let mut server = access(&self.server);
        let time = server.time();
        let mut keys = server.store.keys();
        keys.retain(|key| *key > question.cursor && question.matches(key));
        keys.sort_unstable();
        let count = usize::try_from(question.count).unwrap_or(usize::MAX);
        let mut page = Page::default();
        if count < keys.len() {
            keys.truncate(count);
            page.cursor = keys.last().cloned().unwrap_or_default();
        }
        for key in keys {
            let command = inspection::call(&key, question.whole_key, true);
            let (keys, args) = command.keys_and_arguments();
            let answer = server.store.eval(time, inspection::source(), &keys, &args);
            inspection::add(&mut page, &key, answer);
        }
        page
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut server = access(&self.server);
        server.store.unsubscribe(self.listener);
        server.listeners.remove(&self.listener);
    }
}

/// A panic elsewhere leaves only whole calls behind, so poison is ignored.
fn access(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a call at `now`, as a remote server would. `source`: the text of a script.
pub(crate) fn execute(
    store: &mut Store,
    now: ServerTime,
    call: &Call,
    counters: Counters,
    source: impl FnOnce(Script) -> Cow<'static, str>,
) -> Result<Reply, Failure> {
    let Some(script) = call.script() else {
        let replies = Plain::ALL.map(|part| execute_plain(store, now, call, part));
        return taken(&call.tokens(), &replies);
    };
    let command = wire::command(call, Dialect { counters, ..Dialect::PLAIN });
    if let Call::Renew { .. } = call {
        return wire::reply(script, store.command(now, &command.parts().collect::<Vec<_>>()));
    }
    let (keys, args) = command.keys_and_arguments();
    wire::reply(script, store.eval(now, &source(script), &keys, &args))
}

/// Runs one of the plain commands of a call.
pub(crate) fn execute_plain(store: &Store, now: ServerTime, call: &Call, part: Plain) -> Value {
    let mut command = Command::new();
    wire::write_plain(&mut command, call, Counters::Server, part);
    store.command(now, &command.parts().collect::<Vec<_>>())
}

/// The keys that one of the plain commands of a call names.
#[cfg(test)]
pub(crate) fn keys_of_plain(call: &Call, part: Plain) -> Vec<String> {
    let mut command = Command::new();
    wire::write_plain(&mut command, call, Counters::Server, part);
    let count = call.locks();
    let (first, step, count) = match (call, part) {
        (_, Plain::Mget) => (1, 1, 2 * count),
        (Call::TakeAll { .. }, Plain::Set) => (2, 2, count),
        _ => (1, 1, 1),
    };
    let parts = command.parts().skip(first).step_by(step).take(count);
    parts.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
}

/// The keys that a call names.
#[cfg(test)]
pub(crate) fn keys_of(call: &Call) -> Vec<String> {
    if let Call::Renew { keys, .. } = call {
        return vec![keys.lock().to_owned()];
    }
    let command = wire::command(call, Dialect::PLAIN);
    let (keys, _) = command.keys_and_arguments();
    keys.into_iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
}

/// Runs a plain command; the texts of its answer, none if it is nil or an error.
#[cfg(test)]
pub(crate) fn ask(store: &Store, now: ServerTime, parts: &[&str]) -> Vec<String> {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    texts(store.command(now, &parts))
}

/// Runs a script; the texts of its answer, those of lists in their order, none if it is nil or an error.
#[cfg(test)]
pub(crate) fn eval(
    store: &mut Store,
    now: ServerTime,
    script: Script,
    keys: &[&str],
    args: &[&str],
) -> Vec<String> {
    let [keys, args] = [keys, args].map(|it| it.iter().map(|part| part.as_bytes()).collect());
    let (keys, args): (Vec<_>, Vec<_>) = (keys, args);
    texts(store.eval(now, script.source(), &keys, &args))
}

#[cfg(test)]
fn texts(value: Value) -> Vec<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).into_iter().collect(),
        Value::Int(number) => vec![number.to_string()],
        Value::Array(values) => values.into_iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{LockKeys, RequestId, SendMode, Token};
    use std::time::Duration;

    fn connect(store: &MemoryStore) -> Connection {
        store.connect(&[], Arc::new(drop)).0
    }

    fn take(connection: &Connection, names: &[&str]) {
        let take = |name: &&str| {
            let (keys, token) = (LockKeys::from_key(name), Token::from_text("hf1.client.7"));
            let call = Call::Take { keys, token, ttl: Duration::from_secs(100), block: 1 };
            Item::Call { request: RequestId(1), call, send_mode: SendMode::Plain }
        };
        connection.send(&names.iter().map(take).collect::<Vec<_>>(), &mut Vec::new());
    }

    /// The cursor and the keys of a page.
    fn page(connection: &Connection, question: &Question) -> (String, Vec<String>) {
        let Page { cursor, held, .. } = connection.page(question);
        (cursor, held.into_iter().map(|holding| holding.key).collect())
    }

    fn question(starts_with: &str, cursor: &str, count: u32) -> Question {
        let [starts_with, cursor] = [starts_with, cursor].map(str::to_owned);
        Question { cursor, starts_with, whole_key: false, count }
    }

    #[test]
    fn its_time_is_that_of_the_machine() {
        let before = ServerTime::now().as_micros();
        let time = Server::new().time().as_micros();
        // The clock that nobody sets back may be ahead of the other by what that was corrected meanwhile.
        let latest = ServerTime::now().as_micros() + 1_000_000;
        assert!((before..latest).contains(&time), "{before}, {time}, {latest}");
    }

    #[test]
    fn pages_have_all_keys_in_order_and_each_once() {
        let connection = connect(&MemoryStore::open(String::new()));
        take(&connection, &["lock:c", "lock:a", "other", "lock:b"]);
        for (cursor, count, next, keys) in [
            ("", 2, "lock:b", &["lock:a", "lock:b"][..]),
            ("lock:b", 2, "", &["lock:c"]),
            ("", 3, "", &["lock:a", "lock:b", "lock:c"]),
            ("lock:c", 3, "", &[]),
        ] {
            let shown = page(&connection, &question("lock:", cursor, count));
            let keys = keys.iter().map(ToString::to_string).collect();
            assert_eq!(shown, (next.to_owned(), keys), "{cursor}, {count}");
        }
        let one = Question { whole_key: true, ..question("lock:", "", 9) };
        assert_eq!(page(&connection, &one).1, [""; 0]);
        let one = Question { starts_with: "lock:a".to_owned(), ..one };
        assert_eq!(page(&connection, &one).1, ["lock:a"]);
    }

    #[test]
    fn a_named_store_lasts_as_long_as_somebody_has_it() {
        let open = || MemoryStore::open("embedded::tests".to_owned());
        let all = question("", "", 9);
        let (first, second) = (connect(&open()), connect(&open()));
        take(&first, &["a"]);
        drop(first);
        assert_eq!(page(&second, &all).1, ["a"]);
        let private = connect(&MemoryStore::open(String::new()));
        assert_eq!(page(&private, &all).1, [""; 0]);
        drop(second);
        assert_eq!(page(&connect(&open()), &all).1, [""; 0]);
    }
}
