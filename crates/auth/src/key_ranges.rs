//! A set of keys, as the permissions of a user describe it.

use bytes::Bytes;

/// The end of ranges that reach to the last key, in requests and in permissions.
const OPEN_END: &[u8] = &[0];

/// A range of keys from `start` on; without an end it reaches to the last key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interval {
    start: Bytes,
    end: Option<Bytes>,
}

impl Interval {
    /// Returns the keys of a permission: one key, all keys from one on, or a range. `None` for a
    /// range that ends before it starts.
    fn of(key: &Bytes, range_end: &Bytes) -> Option<Interval> {
        let end = match range_end.as_ref() {
            [] => {
                let mut end = Vec::with_capacity(key.len() + 1);
                end.extend_from_slice(key);
                end.push(0);
                Some(Bytes::from(end))
            }
            OPEN_END => None,
            _ if range_end <= key => return None,
            _ => Some(range_end.clone()),
        };
        Some(Interval {
            start: key.clone(),
            end,
        })
    }

    fn has(&self, key: &[u8]) -> bool {
        let is_before_end = self.end.as_ref().is_none_or(|end| key < end.as_ref());
        self.start.as_ref() <= key && is_before_end
    }

    /// Whether a range that starts in this interval ends in it as well.
    fn reaches(&self, range_end: &[u8]) -> bool {
        match &self.end {
            None => true,
            Some(end) => range_end != OPEN_END && range_end <= end.as_ref(),
        }
    }
}

/// A set of keys: disjoint intervals that do not touch, in key order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRanges {
    intervals: Vec<Interval>,
}

impl KeyRanges {
    /// Returns the union of ranges, each given as key and range end like in a request.
    #[must_use]
    pub fn union<'a>(ranges: impl IntoIterator<Item = (&'a Bytes, &'a Bytes)>) -> KeyRanges {
        let ranges = ranges.into_iter();
        let mut all: Vec<Interval> = ranges
            .filter_map(|(key, end)| Interval::of(key, end))
            .collect();
        all.sort_by(|a, b| a.start.cmp(&b.start));
        let mut intervals: Vec<Interval> = Vec::with_capacity(all.len());
        for next in all {
            match intervals.last_mut() {
                Some(last) if last.end.as_ref().is_none_or(|end| next.start <= *end) => {
                    last.end = match (last.end.take(), next.end) {
                        (Some(end), Some(other)) => Some(end.max(other)),
                        _ => None,
                    };
                }
                _ => intervals.push(next),
            }
        }
        KeyRanges { intervals }
    }

    /// Whether the set has every key of a request: one key if `range_end` is empty, all keys from
    /// `key` on if it is one zero byte, else a range. A range that ends before it starts has no
    /// key; like etcd, this asks for its `key` then.
    #[must_use]
    pub fn covers(&self, key: &[u8], range_end: &[u8]) -> bool {
        let after = self
            .intervals
            .partition_point(|interval| interval.start.as_ref() <= key);
        let candidate = after.checked_sub(1).and_then(|at| self.intervals.get(at));
        let Some(interval) = candidate.filter(|interval| interval.has(key)) else {
            return false;
        };
        range_end.is_empty() || interval.reaches(range_end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(of: &[(&str, &str)]) -> KeyRanges {
        let owned: Vec<(Bytes, Bytes)> = of
            .iter()
            .map(|(key, end)| (Bytes::from(key.to_string()), Bytes::from(end.to_string())))
            .collect();
        KeyRanges::union(owned.iter().map(|(key, end)| (key, end)))
    }

    #[test]
    fn range_is_covered_by_the_union_of_permissions_and_by_nothing_less() {
        let two = ranges(&[("a", "c"), ("c", "e"), ("k", ""), ("x", "\0")]);
        for (key, end, expected) in [
            ("a", "", true),
            ("a", "e", true),
            ("b", "d", true),
            ("e", "", false),
            ("a", "e\0", false),
            ("0", "b", false),
            ("k", "", true),
            ("k", "k\0", true),
            ("k", "l", false),
            ("j", "", false),
            ("x", "\0", true),
            ("zzz", "\0", true),
            ("w", "\0", false),
            ("a", "\0", false),
            // Ranges without keys.
            ("b", "a", true),
            ("f", "a", false),
        ] {
            assert_eq!(
                two.covers(key.as_bytes(), end.as_bytes()),
                expected,
                "{key} {end}"
            );
        }
        assert!(!KeyRanges::default().covers(b"a", b""));
        // A permission whose end is before its start permits nothing.
        assert_eq!(ranges(&[("c", "a")]), KeyRanges::default());
    }

    /// Short keys over two letters, so that ranges often touch and overlap.
    fn key() -> impl Strategy<Value = String> {
        "[ab]{1,3}"
    }

    proptest! {
        #[test]
        fn covers_agrees_with_asking_for_each_key(
            permissions in prop::collection::vec((key(), key()), 0..6),
            start in key(),
            end in key(),
        ) {
            prop_assume!(start < end);
            let borrowed: Vec<(&str, &str)> = permissions
                .iter()
                .map(|(key, end)| (key.as_str(), end.as_str()))
                .collect();
            let set = ranges(&borrowed);
            // Every bound is one of these keys or of their successors, so between two of them
            // nothing changes.
            let mut keys: Vec<String> = Vec::new();
            for first in ["a", "b"] {
                keys.push(first.to_owned());
                for second in ["a", "b"] {
                    keys.push(format!("{first}{second}"));
                    for third in ["a", "b"] {
                        keys.push(format!("{first}{second}{third}"));
                    }
                }
            }
            let with_successors: Vec<String> =
                keys.iter().flat_map(|key| [key.clone(), format!("{key}\0")]).collect();
            let in_range = |key: &&String| **key >= start && **key < end;
            let is_permitted = |key: &String| {
                permissions.iter().any(|(from, to)| from <= key && key < to)
            };
            let expected = with_successors.iter().filter(in_range).all(is_permitted);
            prop_assert_eq!(set.covers(start.as_bytes(), end.as_bytes()), expected);
        }
    }
}
