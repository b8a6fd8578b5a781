//! The keys, their values and their expiries.

use super::channels::Channels;
use super::sorted_set::SortedSet;
use crate::protocol::ServerTime;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Fields and their values.
pub(super) type Hash = BTreeMap<Vec<u8>, Vec<u8>>;

/// The value of a key.
#[derive(Clone)]
#[cfg_attr(any(test, fuzzing), derive(Debug, PartialEq))]
pub(super) enum Datum {
    String(Vec<u8>),
    Hash(Hash),
    SortedSet(SortedSet),
}

impl Datum {
    /// The type's name in the answer of TYPE.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::Hash(_) => "hash",
            Self::SortedSet(_) => "zset",
        }
    }
}

/// One of the types of [`Datum`].
pub(super) trait Kind: Default {
    fn of(datum: &mut Datum) -> Option<&mut Self>;
    fn into_datum(self) -> Datum;
    /// A collection without elements does not exist; the empty string does.
    fn is_nothing(&self) -> bool;
}

impl Kind for Vec<u8> {
    fn of(datum: &mut Datum) -> Option<&mut Self> {
        if let Datum::String(bytes) = datum { Some(bytes) } else { None }
    }

    fn into_datum(self) -> Datum {
        Datum::String(self)
    }

    fn is_nothing(&self) -> bool {
        false
    }
}

impl Kind for Hash {
    fn of(datum: &mut Datum) -> Option<&mut Self> {
        if let Datum::Hash(hash) = datum { Some(hash) } else { None }
    }

    fn into_datum(self) -> Datum {
        Datum::Hash(self)
    }

    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl Kind for SortedSet {
    fn of(datum: &mut Datum) -> Option<&mut Self> {
        if let Datum::SortedSet(set) = datum { Some(set) } else { None }
    }

    fn into_datum(self) -> Datum {
        Datum::SortedSet(self)
    }

    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

/// The value of a key and its expiry.
#[derive(Clone)]
#[cfg_attr(any(test, fuzzing), derive(Debug, PartialEq))]
pub(super) struct Entry {
    pub(super) datum: Datum,
    /// In ms since 1970; none if the key never expires.
    pub(super) expires_at_ms: Option<i64>,
}

impl Entry {
    fn is_over(&self, now_ms: i64) -> bool {
        self.expires_at_ms.is_some_and(|at_ms| now_ms > at_ms)
    }
}

/// The command does not support the type of the key's value.
pub(super) struct WrongType;

/// A snapshot of every key of a keyspace.
#[cfg(any(test, fuzzing))]
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Entries(FxHashMap<Vec<u8>, Entry>);

/// Below this number of keys, expired ones are not swept.
const SWEEP_FROM: usize = 1024;

/// One database and its channels. A key is removed when it is accessed after its expiry.
pub(super) struct Keyspace {
    pub(super) channels: Channels,
    now: ServerTime,
    entries: FxHashMap<Vec<u8>, Entry>,
    /// The number of keys at which expired ones without an access are swept.
    sweep_at: usize,
}

impl Default for Keyspace {
    fn default() -> Self {
        Self {
            channels: Channels::default(),
            now: ServerTime::default(),
            entries: FxHashMap::default(),
            sweep_at: SWEEP_FROM,
        }
    }
}

impl Keyspace {
    pub(super) fn set_now(&mut self, now: ServerTime) {
        self.now = now;
    }

    pub(super) fn now(&self) -> ServerTime {
        self.now
    }

    pub(super) fn now_ms(&self) -> i64 {
        i64::try_from(self.now.as_micros() / 1_000).unwrap_or(i64::MAX)
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn save(&self) -> Entries {
        Entries(self.entries.clone())
    }

    #[cfg(test)]
    pub(super) fn restore(&mut self, Entries(entries): Entries) {
        self.entries = entries;
        self.sweep_at = SWEEP_FROM;
    }

    /// The entry at `key`, of any type.
    pub(super) fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now_ms = self.now_ms();
        if self.entries.get(key)?.is_over(now_ms) {
            self.entries.remove(key);
            return None;
        }
        self.entries.get_mut(key)
    }

    /// Sets `key` to `entry`, replacing any other.
    pub(super) fn put(&mut self, key: &[u8], entry: Entry) {
        if self.entries.len() >= self.sweep_at {
            self.sweep();
        }
        self.entries.insert(key.to_vec(), entry);
    }

    /// Returns whether `key` existed.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let now_ms = self.now_ms();
        self.entries.remove(key).is_some_and(|entry| !entry.is_over(now_ms))
    }

    /// All keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let now_ms = self.now_ms();
        let live = self.entries.iter().filter(move |(_, entry)| !entry.is_over(now_ms));
        live.map(|(key, _)| key.as_slice())
    }

    /// The value of `key`, if it has one.
    pub(super) fn find<K: Kind>(&mut self, key: &[u8]) -> Result<Option<&mut K>, WrongType> {
        match self.entry(key) {
            None => Ok(None),
            Some(entry) => K::of(&mut entry.datum).map(Some).ok_or(WrongType),
        }
    }

    /// Extends the value of `key`, which is created if it is missing. Its expiry stays.
    pub(super) fn grow<K: Kind, R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut K) -> R,
    ) -> Result<R, WrongType> {
        if let Some(value) = self.find(key)? {
            return Ok(change(value));
        }
        let mut value = K::default();
        let result = change(&mut value);
        if !value.is_nothing() {
            self.put(key, Entry { datum: value.into_datum(), expires_at_ms: None });
        }
        Ok(result)
    }

    /// Reduces the value of `key`, if it has one. An empty value is removed.
    pub(super) fn shrink<K: Kind, R: Default>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut K) -> R,
    ) -> Result<R, WrongType> {
        let Some(value) = self.find::<K>(key)? else { return Ok(R::default()) };
        let result = change(value);
        if value.is_nothing() {
            self.remove(key);
        }
        Ok(result)
    }

    /// Removes expired keys. It waits until the number of remaining keys has doubled, so its cost for each
    /// new key is constant.
    pub(super) fn sweep(&mut self) {
        let now_ms = self.now_ms();
        self.entries.retain(|_, entry| !entry.is_over(now_ms));
        self.sweep_at = SWEEP_FROM.max(self.entries.len() * 2);
    }
}

/// The keyspace, shared with running scripts.
pub(super) type Shared = Arc<Mutex<Keyspace>>;

/// One thread at a time runs a script, so this never waits. A panic elsewhere leaves only whole commands
/// behind, so poison is ignored.
pub(super) fn access(keyspace: &Mutex<Keyspace>) -> MutexGuard<'_, Keyspace> {
    keyspace.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_keys_without_accesses_are_swept() {
        let mut keyspace = Keyspace::default();
        for index in 0..10_000_u32 {
            keyspace.set_now(ServerTime::from_micros(u64::from(index) * 1_000));
            let entry = Entry { datum: Datum::String(vec![]), expires_at_ms: Some(index.into()) };
            keyspace.put(&index.to_be_bytes(), entry);
            assert!(keyspace.entries.len() <= SWEEP_FROM, "expired keys do not accumulate");
        }
    }
}
