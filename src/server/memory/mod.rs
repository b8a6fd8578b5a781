//! An in-process keyspace that runs scripts as a Redis server would.
//!
//! It implements commands and Lua, independent of locks.
//!
//! ```text
//!   Store ── lua       (an embedded Lua 5.1, the conversions between it and replies)
//!     └───── commands  (what redis.call can call)
//!              └────── keyspace, sorted_set, channels, number
//! ```

mod channels;
mod commands;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzzing/scripts.rs"]
pub(crate) mod fuzz;
mod keyspace;
mod lua;
mod number;
mod reply;
mod sorted_set;
#[cfg(test)]
mod tests;

pub(crate) use channels::Message;
#[cfg(any(test, fuzzing))]
pub(crate) use keyspace::Entries;

use crate::protocol::ServerTime;
use commands::Caller;
#[cfg(any(test, fuzzing))]
use keyspace::Keyspace;
use keyspace::{Shared, access};
use lua::Engine;
use redis::Value;

/// An in-process keyspace that runs scripts as a Redis server would. Its replies have the shapes of RESP2,
/// which scripts get too.
pub(crate) struct Store {
    keyspace: Shared,
    /// A Lua that failed to start answers every script with the reason.
    engine: mlua::Result<Engine>,
}

impl Store {
    /// An empty store.
    pub(crate) fn new() -> Self {
        let keyspace = Shared::default();
        let engine = Engine::new(&keyspace);
        Self { keyspace, engine }
    }

    /// A placeholder that runs no scripts.
    #[cfg(test)]
    pub(crate) fn idle() -> Self {
        let engine = Err(mlua::Error::runtime("idle"));
        Self { keyspace: Shared::default(), engine }
    }

    /// Removes all data and subscriptions, but keeps the compiled scripts.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn reset(&self) {
        *access(&self.keyspace) = Keyspace::default();
    }

    /// Runs the script text `source` at `now`, which does not advance meanwhile.
    pub(crate) fn eval(
        &mut self,
        now: ServerTime,
        source: &str,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Value {
        access(&self.keyspace).set_now(now);
        match &mut self.engine {
            Ok(engine) => engine.eval(source, keys, args),
            Err(error) => reply::error(&format!("ERR the embedded Lua does not run: {error}")),
        }
    }

    /// Runs one plain command, given as its name and arguments.
    pub(crate) fn command(&self, now: ServerTime, parts: &[&[u8]]) -> Value {
        let mut keyspace = access(&self.keyspace);
        keyspace.set_now(now);
        let outcome = commands::run(&mut keyspace, parts, Caller::Client);
        outcome.unwrap_or_else(|text| reply::error(&text))
    }

    /// Every key that is valid UTF-8.
    pub(crate) fn keys(&self) -> Vec<String> {
        let keyspace = access(&self.keyspace);
        keyspace.keys().filter_map(|key| String::from_utf8(key.to_vec()).ok()).collect()
    }

    /// Subscribes `subscriber` to `channel`.
    pub(crate) fn subscribe(&self, subscriber: u64, channel: &str) {
        access(&self.keyspace).channels.subscribe(subscriber, channel);
    }

    /// Removes all subscriptions of `subscriber`.
    pub(crate) fn unsubscribe(&self, subscriber: u64) {
        access(&self.keyspace).channels.unsubscribe(subscriber);
    }

    /// Takes the messages since the last call, in order.
    pub(crate) fn take_messages(&self) -> Vec<Message> {
        access(&self.keyspace).channels.take_messages()
    }

    /// Removes every key. Subscriptions stay.
    #[cfg(test)]
    pub(crate) fn flush(&self) {
        self.restore(Entries::default());
    }

    /// A snapshot of the data.
    #[cfg(test)]
    pub(crate) fn save(&self) -> Entries {
        access(&self.keyspace).save()
    }

    /// Replaces the data by `entries`. Subscriptions stay.
    #[cfg(test)]
    pub(crate) fn restore(&self, entries: Entries) {
        access(&self.keyspace).restore(entries);
    }
}
