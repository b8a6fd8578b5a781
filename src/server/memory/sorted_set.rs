//! Members in the order of their scores, then of their bytes.

use super::number::Bound;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Included, Unbounded};

/// A number that is never NaN, so it has a total order. −0 equals 0.
#[derive(Clone, Copy, Debug)]
struct Score(f64);

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

/// A set whose members have scores.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SortedSet {
    scores: BTreeMap<Vec<u8>, f64>,
    order: BTreeSet<(Score, Vec<u8>)>,
}

impl SortedSet {
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Returns whether `member` is new.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> bool {
        let before = self.scores.insert(member.to_vec(), score);
        if let Some(before) = before {
            self.order.remove(&(Score(before), member.to_vec()));
        }
        self.order.insert((Score(score), member.to_vec()));
        before.is_none()
    }

    /// Returns whether the set contained `member`.
    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.scores.remove(member) else { return false };
        self.order.remove(&(Score(score), member.to_vec()))
    }

    /// The number of members before `member`.
    pub(super) fn rank(&self, member: &[u8]) -> Option<usize> {
        let end = (Score(self.score(member)?), member.to_vec());
        Some(self.order.range(..end).count())
    }

    /// All members, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], f64)> {
        self.order.iter().map(|(score, member)| (member.as_slice(), score.0))
    }

    /// The members whose scores lie between `min` and `max`, in order.
    pub(super) fn between(&self, min: Bound, max: Bound) -> impl Iterator<Item = (&[u8], f64)> {
        let first = (Score(min.score), Vec::new());
        self.order
            .range((Included(first), Unbounded))
            .map(|(score, member)| (member.as_slice(), score.0))
            .skip_while(move |(_, score)| min.exclusive && *score <= min.score)
            .take_while(
                move |(_, score)| {
                    if max.exclusive { *score < max.score } else { *score <= max.score }
                },
            )
    }
}
