//! The store in step with a real server: the same data at the same time.
//!
//! The clock of a real server cannot be set, so the store follows it. Each script runs between two TIMEs. If
//! both show the same millisecond, the resolution of expiries, the store runs the script in that millisecond
//! too, and both must agree exactly. If not, the time on the server is unknown: the store takes over its
//! data, and nothing is compared.

use super::super::{error, refusal};
use super::real_server::RealServer;
use crate::protocol::{Mono, ServerTime};
use crate::server::memory::Store;
use redis::{Connection, Value};
use std::time::Duration;

/// Prefix of every script on the server, on one line so that errors name the same lines. It adds the skipped
/// time to TIME and fixes its µs, so that results are the same in both.
const CLOCK: &str = "
local server, us, skipped_ms = redis, table.remove(ARGV), table.remove(ARGV)
local function stepped(run)
  return function(name, ...)
    if name ~= 'TIME' then return run(name, ...) end
    local time = run('TIME')
    local ms = time[1] * 1000 + math.floor(time[2] / 1000) + skipped_ms
    return {
      string.format('%.0f', math.floor(ms / 1000)),
      string.format('%.0f', ms % 1000 * 1000 + us),
    }
  end
end
local redis = {
  call = stepped(server.call),
  pcall = stepped(server.pcall),
  error_reply = server.error_reply,
}
";

/// Every key with its type, remaining lease and value.
const DATA: &str = "
local keys = redis.call('KEYS', '*')
table.sort(keys)
for i, key in ipairs(keys) do
  local kind, value = redis.call('TYPE', key).ok, nil
  if kind == 'string' then
    value = redis.call('GET', key)
  elseif kind == 'zset' then
    value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  else
    local fields, values = {}, {}
    local all = redis.call('HGETALL', key)
    for j = 1, #all, 2 do
      table.insert(fields, all[j])
      values[all[j]] = all[j + 1]
    end
    table.sort(fields)
    value = {}
    for _, field in ipairs(fields) do
      table.insert(value, field)
      table.insert(value, values[field])
    end
  end
  keys[i] = { key, kind, redis.call('PTTL', key), value }
end
return keys
";

/// Moves the expiry of every key to an earlier time.
const SKIP: &str = "
for _, key in ipairs(redis.call('KEYS', '*')) do
  local at_ms = redis.call('PEXPIRETIME', key)
  if at_ms > 0 then
    redis.call('PEXPIREAT', key, string.format('%.0f', at_ms - ARGV[1]))
  end
end
";

/// The observable effect of a script.
#[derive(Debug, PartialEq)]
pub(super) struct Effect {
    pub(super) reply: Value,
    /// Channel and text of each message.
    pub(super) messages: Vec<(String, String)>,
    pub(super) data: Value,
}

pub(super) struct InStep {
    store: Store,
    server: RealServer,
    listener: Connection,
    /// Prefix of every script in the store.
    defect: String,
    /// How far the clock of both is ahead of the server's own.
    skipped_ms: u64,
    now: ServerTime,
}

/// A script with its arguments.
#[derive(Clone, Copy)]
pub(super) struct Eval<'a> {
    pub(super) source: &'a str,
    pub(super) keys: &'a [&'a [u8]],
    pub(super) args: &'a [&'a [u8]],
}

impl Eval<'static> {
    const fn of(source: &'static str) -> Self {
        Self { source, keys: &[], args: &[] }
    }
}

impl InStep {
    /// Both, empty.
    pub(super) fn new() -> Self {
        let server = RealServer::start();
        let listener = server.connect();
        let (store, now) = (Store::new(), ServerTime::default());
        Self { store, server, listener, defect: String::new(), skipped_ms: 0, now }
    }

    /// Sets the prefix `defect` of every script in the store.
    pub(super) fn set_defect(&mut self, defect: String) {
        self.defect = defect;
    }

    /// Resets both to empty.
    pub(super) fn reset(&mut self) {
        self.store.reset();
        self.ask_listener(&["UNSUBSCRIBE"]);
        self.server.run(&[b"FLUSHALL"]);
        self.skipped_ms = 0;
        self.data();
    }

    /// The time of the last script that was compared.
    pub(super) fn now(&self) -> ServerTime {
        self.now
    }

    pub(super) fn subscribe(&mut self, subscriber: u64, channel: &str) {
        self.store.subscribe(subscriber, channel);
        self.ask_listener(&["SUBSCRIBE", channel]);
    }

    pub(super) fn unsubscribe(&mut self, subscriber: u64, channel: &str) {
        self.store.unsubscribe(subscriber);
        self.ask_listener(&["UNSUBSCRIBE", channel]);
    }

    /// Advances the clocks without waiting.
    pub(super) fn skip(&mut self, ms: u64) {
        self.server.run(&[b"EVAL", SKIP.as_bytes(), b"0", ms.to_string().as_bytes()]);
        self.skipped_ms += ms;
        // A key that expires in this millisecond is already gone from the server.
        std::thread::sleep(Duration::from_millis(2));
    }

    /// The effects of `eval` in the store and in the server, `us` into a millisecond. No effect of the store
    /// if the millisecond is unknown.
    pub(super) fn run(&mut self, eval: Eval<'_>, us: u64) -> (Option<Effect>, Effect) {
        let (at_ms, reply) = self.on_server(eval, us);
        let reply = without_position(reply);
        let messages = self.ask_listener(&[]);
        let ours = at_ms.map(|ms| {
            self.now = ServerTime::from_micros(ms * 1_000 + us);
            let source = format!("{}{}", self.defect, eval.source);
            let reply = self.store.eval(self.now, &source, eval.keys, eval.args);
            let messages = self.store.take_messages().into_iter();
            let messages = messages.map(|it| (it.channel, text(&Value::BulkString(it.payload))));
            (without_position(reply), messages.collect())
        });
        let (our_data, data) = self.data();
        if ours.is_none() {
            self.take_over(&data);
        }
        let ours = ours.map(|(reply, messages)| Effect { reply, messages, data: our_data });
        (ours, Effect { reply, messages, data })
    }

    /// The server's reply, and the millisecond of its execution, if only one is possible.
    fn on_server(&mut self, eval: Eval<'_>, us: u64) -> (Option<u64>, Value) {
        let source = CLOCK.replace('\n', " ") + eval.source;
        let count = eval.keys.len().to_string();
        let (skipped, us) = (self.skipped_ms.to_string(), us.to_string());
        let mut parts = vec![b"EVAL", source.as_bytes(), count.as_bytes()];
        parts.extend(eval.keys);
        parts.extend(eval.args);
        parts.extend([skipped.as_bytes(), us.as_bytes()]);
        let [before, reply, after] = self.server.run_all([&[b"TIME"], &parts, &[b"TIME"]]);
        let before_ms = milliseconds(&before);
        let at_ms = (before_ms == milliseconds(&after)).then_some(before_ms + self.skipped_ms);
        (at_ms, reply)
    }

    /// The data of the store and of the server at one time.
    fn data(&mut self) -> (Value, Value) {
        let data = Eval::of(DATA);
        // A machine with other work to do may need very many attempts.
        let end = Mono::now() + Duration::from_secs(60);
        let (ms, theirs) = loop {
            let (at_ms, theirs) = self.on_server(data, 0);
            if let Some(ms) = at_ms {
                break (ms, theirs);
            }
            assert!(Mono::now() < end, "no millisecond in which the server reads its data");
        };
        self.now = ServerTime::from_micros(ms * 1_000);
        (self.store.eval(self.now, DATA, &[], &[]), theirs)
    }

    /// Copies the server's data into the store.
    fn take_over(&self, data: &Value) {
        self.store.flush();
        // A second earlier: no key can be given an expiry in the current millisecond, but may have one.
        let earlier = ServerTime::from_micros(self.now.as_micros() - 1_000_000);
        for entry in items(data) {
            let [key, kind, Value::Int(remaining_ms), value] = items(entry) else {
                panic!("not an entry: {entry:?}");
            };
            let key = bytes(key);
            let put = |parts: &[&[u8]]| drop(self.store.command(earlier, parts));
            match bytes(kind) {
                b"string" => put(&[b"SET", key, bytes(value)]),
                b"hash" => items(value)
                    .chunks(2)
                    .for_each(|pair| put(&[b"HSET", key, bytes(&pair[0]), bytes(&pair[1])])),
                _ => items(value)
                    .chunks(2)
                    .for_each(|pair| put(&[b"ZADD", key, bytes(&pair[1]), bytes(&pair[0])])),
            }
            if *remaining_ms >= 0 {
                put(&[b"PEXPIRE", key, (remaining_ms + 1_000).to_string().as_bytes()]);
            }
        }
    }

    /// Sends a command for subscriptions, if there is one, and returns the messages that have arrived: the
    /// server delivers all published messages before its answer to a PING.
    fn ask_listener(&mut self, parts: &[&str]) -> Vec<(String, String)> {
        let commands = [parts, &["PING"]].into_iter().filter(|parts| !parts.is_empty());
        for parts in commands {
            let mut command = redis::Cmd::new();
            command.arg(parts);
            self.listener.send_packed_command(&command.get_packed_command()).unwrap();
        }
        let mut messages = Vec::new();
        loop {
            match self.listener.recv_response().unwrap() {
                // The shape of the answer without subscriptions.
                Value::SimpleString(_) => return messages,
                Value::Array(parts) => match (bytes(&parts[0]), &parts[1..]) {
                    (b"pong", _) => return messages,
                    (b"message", [channel, payload]) => {
                        messages.push((text(channel), text(payload)));
                    }
                    _ => {}
                },
                // Valkey's answer to unsubscribing without a subscription.
                Value::ServerError(error) if error.code() == "NOSUB" => {}
                other => panic!("not for a listener: {other:?}"),
            }
        }
    }
}

fn milliseconds(time: &Value) -> u64 {
    let [seconds, micros] = items(time) else { panic!("not a time: {time:?}") };
    let number = |part| text(part).parse::<u64>().unwrap();
    number(seconds) * 1_000 + number(micros) / 1_000
}

fn items(value: &Value) -> &[Value] {
    let Value::Array(items) = value else { panic!("not a list: {value:?}") };
    items
}

fn bytes(value: &Value) -> &[u8] {
    let Value::BulkString(bytes) = value else { panic!("not a text: {value:?}") };
    bytes
}

fn text(value: &Value) -> String {
    // A message may be cut off within a character.
    String::from_utf8_lossy(bytes(value)).into_owned()
}

/// Only the server gives the place of an error in the script, which callers never see.
fn without_position(reply: Value) -> Value {
    match reply {
        Value::ServerError(_) => error(&refusal(&reply)),
        reply => reply,
    }
}
