//! A map of large values that come and go with every lock.

use super::context::in_order;
use crate::slim::Slim;
use rustc_hash::FxHashMap;
use std::hash::Hash;

/// The boxes of values that ended serve those that begin, up to this number. Allocators keep only a few pieces of one size
/// at hand (glibc: 7), and take longer for more.
const SPARE_MAX: usize = 1_000;

/// A map whose values are in boxes, since a map that grows is half empty.
#[derive(Debug)]
pub(super) struct BoxedMap<K, T> {
    map: FxHashMap<K, Box<Option<T>>>,
    /// The boxes that are empty.
    spare: Vec<Box<Option<T>>>,
}

impl<K, T> Default for BoxedMap<K, T> {
    fn default() -> Self {
        Self { map: FxHashMap::default(), spare: Vec::new() }
    }
}

impl<K: Copy + Eq + Hash + Ord, T> BoxedMap<K, T> {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub(super) fn get(&self, key: &K) -> Option<&T> {
        self.map.get(key)?.as_ref().as_ref()
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut T> {
        self.map.get_mut(key)?.as_mut().as_mut()
    }

    pub(super) fn insert(&mut self, key: K, value: T) {
        let mut room = self.spare.pop().unwrap_or_default();
        *room = Some(value);
        self.map.insert(key, room);
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<T> {
        let mut room = self.map.remove(key)?;
        self.map.slim();
        if self.spare.len() == SPARE_MAX {
            return room.take();
        }
        // The value is taken last, which saves the compiler a copy.
        self.spare.push(room);
        self.spare.last_mut()?.take()
    }

    /// The keys in ascending order.
    pub(super) fn keys_in_order(&self) -> Vec<K> {
        in_order(&self.map)
    }

    #[cfg(test)]
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.map.values_mut().filter_map(|room| room.as_mut().as_mut())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &T)> {
        self.map.iter().filter_map(|(key, room)| Some((key, room.as_ref().as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_ends_leaves_its_box_to_the_next() {
        let mut map = BoxedMap::default();
        map.insert(2, "b");
        map.insert(1, "a");
        assert_eq!((map.len(), map.keys_in_order()), (2, vec![1, 2]));
        assert_eq!((map.remove(&2), map.remove(&2), map.spare.len()), (Some("b"), None, 1));
        map.insert(3, "c");
        assert_eq!((map.get(&3), map.get(&2), map.spare.len()), (Some(&"c"), None, 0));
        if let Some(value) = map.get_mut(&1) {
            *value = "d";
        }
        let mut all: Vec<_> = map.iter().map(|(key, value)| (*key, *value)).collect();
        all.sort_unstable();
        assert_eq!(all, [(1, "d"), (3, "c")]);
    }

    #[test]
    fn not_every_box_is_kept() {
        let mut map = BoxedMap::default();
        for key in 0..=SPARE_MAX {
            map.insert(key, key);
        }
        for key in 0..=SPARE_MAX {
            map.remove(&key);
        }
        assert!(map.is_empty(), "no removed entry stays");
        assert_eq!(map.spare.len(), SPARE_MAX);
    }
}
