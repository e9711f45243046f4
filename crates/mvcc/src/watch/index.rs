//! Maps a key to the values registered under ranges that contain it.
//!
//! Single keys are found by hash, ranges by [`IntervalTree`]. The hub has one
//! index for live watchers; each catch-up round builds a small one.

use std::collections::HashMap;

use bytes::Bytes;

use super::interval::IntervalTree;
use super::range::KeyRange;

/// Values registered under key ranges. Several values may share a range.
pub(super) struct RangeIndex<T> {
    keys: HashMap<Bytes, Vec<T>>,
    ranges: IntervalTree<Vec<T>>,
}

impl<T: Copy + PartialEq> RangeIndex<T> {
    pub(super) fn new() -> Self {
        Self {
            keys: HashMap::new(),
            ranges: IntervalTree::new(),
        }
    }

    /// The values registered under exactly this range.
    pub(super) fn registered(&self, range: &KeyRange) -> &[T] {
        let values = match range {
            KeyRange::Key(key) => self.keys.get(key),
            KeyRange::Range { start, end } => self.ranges.get(start, end),
        };
        values.map_or(&[], Vec::as_slice)
    }

    pub(super) fn insert(&mut self, range: &KeyRange, value: T) {
        match range {
            KeyRange::Key(key) => self.keys.entry(key.clone()).or_default().push(value),
            KeyRange::Range { start, end } => match self.ranges.get_mut(start, end) {
                Some(values) => values.push(value),
                None => self.ranges.insert(start.clone(), end.clone(), vec![value]),
            },
        }
    }

    pub(super) fn remove(&mut self, range: &KeyRange, value: T) {
        match range {
            KeyRange::Key(key) => {
                let Some(values) = self.keys.get_mut(key) else {
                    return;
                };
                values.retain(|other| *other != value);
                if values.is_empty() {
                    self.keys.remove(key);
                }
            }
            KeyRange::Range { start, end } => {
                let Some(values) = self.ranges.get_mut(start, end) else {
                    return;
                };
                values.retain(|other| *other != value);
                if values.is_empty() {
                    self.ranges.remove(start, end);
                }
            }
        }
    }

    /// Calls `visit` once for every value whose range contains `key`.
    pub(super) fn visit(&self, key: &[u8], mut visit: impl FnMut(T)) {
        for value in self.keys.get(key).into_iter().flatten() {
            visit(*value);
        }
        self.ranges.visit(key, &mut |values: &Vec<T>| {
            for value in values {
                visit(*value);
            }
        });
    }
}
