//! Maps that give memory back.
//!
//! A hash map spreads its entries over all of its memory. Once a burst has made it large, a few entries would be read from
//! memory that has left the caches: with 64 locks at a time, after a thousand, that cost 3 % of the CPU of a lock.

use rustc_hash::{FxHashMap, FxHashSet};
use std::hash::Hash;

/// Smaller maps are never made smaller.
const ENTRIES_MIN: usize = 512;
/// A map with room for this many times its entries becomes smaller: so many were removed before that this costs little.
const SPARSE: usize = 16;

/// A map or set that can be made smaller. To be called after each removal.
pub(crate) trait Slim {
    /// Gives memory back if most of it is unused.
    fn slim(&mut self);
}

const fn is_sparse(entries: usize, capacity: usize) -> bool {
    capacity > ENTRIES_MIN && entries * SPARSE < capacity
}

impl<K: Eq + Hash, V> Slim for FxHashMap<K, V> {
    #[inline]
    fn slim(&mut self) {
        if is_sparse(self.len(), self.capacity()) {
            self.shrink_to(2 * self.len());
        }
    }
}

impl<K: Eq + Hash> Slim for FxHashSet<K> {
    #[inline]
    fn slim(&mut self) {
        if is_sparse(self.len(), self.capacity()) {
            self.shrink_to(2 * self.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mostly_empty_becomes_smaller_and_loses_nothing() {
        let mut map: FxHashMap<u32, u32> = (0..10_000).map(|n| (n, n)).collect();
        let mut set: FxHashSet<u32> = (0..10_000).collect();
        let large = map.capacity();
        for n in 20..10_000 {
            map.remove(&n);
            map.slim();
            set.remove(&n);
            set.slim();
            assert!(n < 5_000 || map.capacity() >= map.len() * 2, "it keeps room for as many more");
        }
        assert!(map.capacity() <= ENTRIES_MIN && set.capacity() <= ENTRIES_MIN, "{large}");
        assert!((0..20).all(|n| map.get(&n) == Some(&n) && set.contains(&n)), "no entry is lost");
        assert_eq!((map.len(), set.len()), (20, 20));
    }

    #[test]
    fn what_is_small_or_well_filled_stays_as_it_is() {
        let mut small: FxHashSet<u32> = FxHashSet::default();
        small.reserve(100);
        let mut filled: FxHashSet<u32> = (0..5_000).collect();
        let before = (small.capacity(), filled.capacity());
        small.slim();
        filled.slim();
        assert_eq!((small.capacity(), filled.capacity()), before);
    }
}
