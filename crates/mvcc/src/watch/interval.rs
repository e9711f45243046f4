//! A tree of key ranges, searched by a key inside them.
//!
//! A balanced (AVL) tree ordered by range start. Each node holds the greatest
//! end in its subtree, so that a search skips every subtree that ends before
//! the key. The balance is independent of the order in which clients create
//! watches, so no client can degrade searches for others.

use std::cmp::Ordering;

use bytes::Bytes;
use slab::Slab;

use super::range::RangeEnd;

/// Marks an absent child.
const NIL: usize = usize::MAX;

struct Node<T> {
    start: Bytes,
    end: RangeEnd,
    value: T,
    left: usize,
    right: usize,
    height: u8,
    /// The greatest end in this subtree.
    end_max: RangeEnd,
}

/// A map from ranges to values; see the module text.
pub(super) struct IntervalTree<T> {
    nodes: Slab<Node<T>>,
    root: usize,
}

impl<T> IntervalTree<T> {
    pub(super) fn new() -> Self {
        Self {
            nodes: Slab::new(),
            root: NIL,
        }
    }

    /// The value of exactly this range.
    pub(super) fn get(&self, start: &[u8], end: &RangeEnd) -> Option<&T> {
        self.find(start, end).map(|at| &self.nodes[at].value)
    }

    pub(super) fn get_mut(&mut self, start: &[u8], end: &RangeEnd) -> Option<&mut T> {
        self.find(start, end).map(|at| &mut self.nodes[at].value)
    }

    /// Adds a range that is not in the tree yet.
    pub(super) fn insert(&mut self, start: Bytes, end: RangeEnd, value: T) {
        let end_max = end.clone();
        let node = Node {
            start,
            end,
            value,
            left: NIL,
            right: NIL,
            height: 1,
            end_max,
        };
        let new = self.nodes.insert(node);
        self.root = self.insert_below(self.root, new);
    }

    pub(super) fn remove(&mut self, start: &[u8], end: &RangeEnd) -> Option<T> {
        let removed = self.find(start, end)?;
        self.root = self.remove_below(self.root, start, end);
        Some(self.nodes.remove(removed).value)
    }

    /// Calls `visit` for every range that contains `key`.
    pub(super) fn visit(&self, key: &[u8], visit: &mut impl FnMut(&T)) {
        self.visit_below(self.root, key, visit);
    }

    fn visit_below(&self, at: usize, key: &[u8], visit: &mut impl FnMut(&T)) {
        let Some(node) = self.nodes.get(at) else {
            return;
        };
        if !node.end_max.is_after(key) {
            return;
        }
        self.visit_below(node.left, key, visit);
        if node.start.as_ref() <= key {
            if node.end.is_after(key) {
                visit(&node.value);
            }
            self.visit_below(node.right, key, visit);
        }
    }

    fn find(&self, start: &[u8], end: &RangeEnd) -> Option<usize> {
        let mut at = self.root;
        loop {
            let node = self.nodes.get(at)?;
            at = match compare(start, end, node) {
                Ordering::Less => node.left,
                Ordering::Greater => node.right,
                Ordering::Equal => return Some(at),
            };
        }
    }

    fn insert_below(&mut self, at: usize, new: usize) -> usize {
        if at == NIL {
            return new;
        }
        let added = &self.nodes[new];
        if compare(&added.start, &added.end, &self.nodes[at]) == Ordering::Less {
            self.nodes[at].left = self.insert_below(self.nodes[at].left, new);
        } else {
            self.nodes[at].right = self.insert_below(self.nodes[at].right, new);
        }
        self.rebalance(at)
    }

    fn remove_below(&mut self, at: usize, start: &[u8], end: &RangeEnd) -> usize {
        if at == NIL {
            return NIL;
        }
        let (left, right) = (self.nodes[at].left, self.nodes[at].right);
        match compare(start, end, &self.nodes[at]) {
            Ordering::Less => self.nodes[at].left = self.remove_below(left, start, end),
            Ordering::Greater => self.nodes[at].right = self.remove_below(right, start, end),
            Ordering::Equal if left == NIL => return right,
            Ordering::Equal if right == NIL => return left,
            Ordering::Equal => {
                let (rest, successor) = self.detach_first(right);
                self.nodes[successor].left = left;
                self.nodes[successor].right = rest;
                return self.rebalance(successor);
            }
        }
        self.rebalance(at)
    }

    /// Removes the first node of a non-empty subtree. Returns the remaining subtree and the node.
    fn detach_first(&mut self, at: usize) -> (usize, usize) {
        let left = self.nodes[at].left;
        if left == NIL {
            return (self.nodes[at].right, at);
        }
        let (rest, first) = self.detach_first(left);
        self.nodes[at].left = rest;
        (self.rebalance(at), first)
    }

    fn rebalance(&mut self, at: usize) -> usize {
        self.refresh(at);
        let (left, right) = (self.nodes[at].left, self.nodes[at].right);
        let (left_height, right_height) = (self.height(left), self.height(right));
        if left_height > right_height + 1 {
            if self.height(self.nodes[left].left) < self.height(self.nodes[left].right) {
                self.nodes[at].left = self.rotate_left(left);
            }
            self.rotate_right(at)
        } else if right_height > left_height + 1 {
            if self.height(self.nodes[right].right) < self.height(self.nodes[right].left) {
                self.nodes[at].right = self.rotate_right(right);
            }
            self.rotate_left(at)
        } else {
            at
        }
    }

    fn rotate_left(&mut self, at: usize) -> usize {
        let up = self.nodes[at].right;
        self.nodes[at].right = self.nodes[up].left;
        self.nodes[up].left = at;
        self.refresh(at);
        self.refresh(up);
        up
    }

    fn rotate_right(&mut self, at: usize) -> usize {
        let up = self.nodes[at].left;
        self.nodes[at].left = self.nodes[up].right;
        self.nodes[up].right = at;
        self.refresh(at);
        self.refresh(up);
        up
    }

    fn height(&self, at: usize) -> u8 {
        self.nodes.get(at).map_or(0, |node| node.height)
    }

    /// Recomputes height and greatest end of a node from its children.
    fn refresh(&mut self, at: usize) {
        let (left, right) = (self.nodes[at].left, self.nodes[at].right);
        let mut end_max = &self.nodes[at].end;
        for child in [left, right] {
            if let Some(node) = self.nodes.get(child) {
                end_max = end_max.max(&node.end_max);
            }
        }
        let end_max = end_max.clone();
        let height = 1 + self.height(left).max(self.height(right));
        self.nodes[at].end_max = end_max;
        self.nodes[at].height = height;
    }
}

fn compare<T>(start: &[u8], end: &RangeEnd, node: &Node<T>) -> Ordering {
    start
        .cmp(node.start.as_ref())
        .then_with(|| end.cmp(&node.end))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn check_shape(tree: &IntervalTree<u32>, at: usize) -> (u8, Option<RangeEnd>) {
        let Some(node) = tree.nodes.get(at) else {
            return (0, None);
        };
        let (left, left_max) = check_shape(tree, node.left);
        let (right, right_max) = check_shape(tree, node.right);
        assert!(left.abs_diff(right) <= 1, "unbalanced");
        assert_eq!(node.height, 1 + left.max(right));
        let end_max = [Some(node.end.clone()), left_max, right_max]
            .into_iter()
            .flatten()
            .max();
        assert_eq!(Some(&node.end_max), end_max.as_ref());
        (node.height, end_max)
    }

    fn end_of(raw: u8) -> RangeEnd {
        if raw == 0 {
            RangeEnd::Unbounded
        } else {
            RangeEnd::Before(Bytes::from(vec![raw]))
        }
    }

    proptest! {
        /// Every search returns what a scan of all ranges returns, and the tree stays balanced.
        #[test]
        fn interval_tree_searches_agree_with_a_scan(
            steps in prop::collection::vec((any::<bool>(), 0u8..24, 0u8..24), 1..200),
        ) {
            let mut tree = IntervalTree::new();
            let mut model: BTreeMap<(Bytes, RangeEnd), u32> = BTreeMap::new();
            for (number, (add, start, end)) in steps.into_iter().enumerate() {
                let start = Bytes::from(vec![start]);
                let end = end_of(end);
                if add {
                    let value = u32::try_from(number).unwrap();
                    match tree.get_mut(&start, &end) {
                        Some(old) => *old = value,
                        None => tree.insert(start.clone(), end.clone(), value),
                    }
                    model.insert((start, end), value);
                } else {
                    prop_assert_eq!(tree.remove(&start, &end), model.remove(&(start, end)));
                }
                check_shape(&tree, tree.root);
                prop_assert_eq!(tree.nodes.len(), model.len());
            }
            for key in 0u8..26 {
                let mut found = Vec::new();
                tree.visit(&[key], &mut |value| found.push(*value));
                let expected: Vec<u32> = model
                    .iter()
                    .filter(|((start, end), _)| start.as_ref() <= &[key][..] && end.is_after(&[key]))
                    .map(|(_, value)| *value)
                    .collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
