//! The keys, their values and when they expire.

use super::channels::Channels;
use super::sorted_set::SortedSet;
use crate::protocol::clock::ServerTime;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Fields and their values.
pub(super) type Hash = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a key can hold.
#[derive(Clone)]
#[cfg_attr(any(test, fuzzing), derive(Debug, PartialEq))]
pub(super) enum Datum {
    String(Vec<u8>),
    Hash(Hash),
    SortedSet(SortedSet),
}

impl Datum {
    /// As the TYPE command names it.
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

/// The key holds a value of another type than the command is for.
pub(super) struct WrongType;

/// Every key of a keyspace, as it was.
#[cfg(any(test, fuzzing))]
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Entries(FxHashMap<Vec<u8>, Entry>);

/// Below so many keys expired ones are not looked for.
const SWEEP_FROM: usize = 1024;

/// One database and the channels beside it. A key is removed when it is looked up after its end.
pub(super) struct Keyspace {
    pub(super) channels: Channels,
    now: ServerTime,
    entries: FxHashMap<Vec<u8>, Entry>,
    /// When there are so many keys, those that nobody looks up any more are removed.
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

    /// What is at `key`, of whatever type.
    pub(super) fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now_ms = self.now_ms();
        if self.entries.get(key)?.is_over(now_ms) {
            self.entries.remove(key);
            return None;
        }
        self.entries.get_mut(key)
    }

    /// Puts `entry` at `key`, whatever was there.
    pub(super) fn put(&mut self, key: &[u8], entry: Entry) {
        if self.entries.len() >= self.sweep_at {
            self.sweep();
        }
        self.entries.insert(key.to_vec(), entry);
    }

    /// Returns whether there was something at `key`.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let now_ms = self.now_ms();
        self.entries.remove(key).is_some_and(|entry| !entry.is_over(now_ms))
    }

    /// Every key there is.
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

    /// Grows the value of `key`, which is created if there is none. Its expiry stays.
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

    /// Shrinks the value of `key`, if it has one. What is empty then is removed.
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

    /// Removes what expired. As it waits for twice the keys that are left, it costs each new key
    /// only a constant share.
    pub(super) fn sweep(&mut self) {
        let now_ms = self.now_ms();
        self.entries.retain(|_, entry| !entry.is_over(now_ms));
        self.sweep_at = SWEEP_FROM.max(self.entries.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_nobody_looks_up_do_not_stay() {
        let mut keyspace = Keyspace::default();
        for index in 0..10_000_u32 {
            keyspace.set_now(ServerTime::from_micros(u64::from(index) * 1_000));
            let entry = Entry { datum: Datum::String(vec![]), expires_at_ms: Some(index.into()) };
            keyspace.put(&index.to_be_bytes(), entry);
            assert!(keyspace.entries.len() <= SWEEP_FROM);
        }
    }
}
