//! Slots in key order, with counts of existing keys.
//!
//! A B+tree whose nodes are shared between copies: a copy of the tree is one
//! pointer, a change copies one path. The apply thread changes its own copy and
//! publishes it; a reader keeps its copy while it reads.
//!
//! Every child holds the number of existing keys below it, so counting a range
//! costs two walks down the tree, independent of the length of the range. Only
//! creating, deleting and compacting away a key changes the tree; overwriting
//! does not.

use std::{
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use super::slot::Slot;
use crate::rules::range::KeyRange;

/// Entries of a node before it is split. Creating a key copies a path of nodes,
/// so they are small.
const NODE_ENTRIES_MAX: usize = 16;

/// A node with fewer is merged with a neighbour if both fit in one.
const NODE_ENTRIES_MIN: usize = NODE_ENTRIES_MAX / 4;

/// An ordered map from keys to slots.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    root: Arc<Node>,
    existing: usize,
    changed_at: i64,
}

#[derive(Debug)]
enum Node {
    Leaf(Vec<Indexed>),
    Branch(Vec<Child>),
}

/// A key in a leaf.
#[derive(Debug, Clone)]
pub(crate) struct Indexed {
    pub(crate) slot: Slot,
    /// Whether the key exists at [`Index::changed_at`] and until the next change.
    pub(crate) exists: bool,
}

#[derive(Debug, Clone)]
struct Child {
    /// No key of a later child is below this one's; keys of the first child may
    /// be. The slot itself may have been removed from the tree.
    first: Slot,
    existing: usize,
    node: Arc<Node>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            root: Arc::new(Node::Leaf(Vec::new())),
            existing: 0,
            changed_at: 0,
        }
    }
}

impl Index {
    /// The main revision at which a key was last created or deleted. From this
    /// revision up to the next change, counts are exact.
    pub(crate) fn changed_at(&self) -> i64 {
        self.changed_at
    }

    /// Number of existing keys.
    pub(crate) fn existing(&self) -> usize {
        self.existing
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Indexed> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(entries) => {
                    let place = entries.binary_search_by(|entry| entry.slot.key().cmp(key));
                    return place.ok().and_then(|place| entries.get(place));
                }
                Node::Branch(children) => node = &*children.get(child_for(children, key))?.node,
            }
        }
    }

    /// Adds a key that is not in the index, as existing or not.
    pub(crate) fn insert(&mut self, slot: Slot, exists: bool, revision: i64) {
        let entry = Indexed { slot, exists };
        self.existing += usize::from(exists);
        self.changed_at = revision;
        if let Some(right) = Arc::make_mut(&mut self.root).insert(entry) {
            let left = std::mem::replace(&mut self.root, Arc::new(Node::Leaf(Vec::new())));
            let halves = Child::of(left).into_iter().chain([right]);
            self.root = Arc::new(Node::Branch(halves.collect()));
        }
    }

    /// Records that a key was created or deleted.
    pub(crate) fn set_exists(&mut self, key: &[u8], exists: bool, revision: i64) {
        self.changed_at = revision;
        match Arc::make_mut(&mut self.root).set_exists(key, exists) {
            Some(true) if exists => self.existing += 1,
            Some(true) => self.existing -= 1,
            Some(false) | None => {}
        }
    }

    /// Removes a key that no longer exists at any readable revision.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        let root = Arc::make_mut(&mut self.root);
        if let Some(removed) = root.remove(key) {
            self.existing -= usize::from(removed.exists);
        }
        while let Node::Branch(children) = &*self.root
            && let [only] = &children[..]
        {
            self.root = Arc::clone(&only.node);
        }
    }

    /// Counts the existing keys of the range.
    pub(crate) fn count(&self, range: &KeyRange) -> usize {
        if let Some(key) = range.as_single() {
            return usize::from(self.get(key).is_some_and(|entry| entry.exists));
        }
        if range.is_empty() {
            return 0;
        }
        let rank = |bound, otherwise| match bound {
            Bound::Included(key) | Bound::Excluded(key) => self.existing_below(key),
            Bound::Unbounded => otherwise,
        };
        let (start, end) = range.bounds();
        rank(end, self.existing) - rank(start, 0)
    }

    fn existing_below(&self, key: &[u8]) -> usize {
        let mut below = 0;
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(entries) => {
                    let smaller = entries.iter().take_while(|entry| entry.slot.key() < key);
                    return below + smaller.filter(|entry| entry.exists).count();
                }
                Node::Branch(children) => {
                    let place = child_for(children, key);
                    let Some(child) = children.get(place) else {
                        return below;
                    };
                    below += children[..place].iter().map(|c| c.existing).sum::<usize>();
                    node = &child.node;
                }
            }
        }
    }

    /// Calls `visit` for every key of the range in order until it breaks.
    pub(crate) fn visit<'a>(
        &'a self,
        range: &KeyRange,
        visit: &mut impl FnMut(&'a Indexed) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if let Some(key) = range.as_single() {
            return self.get(key).map_or(ControlFlow::Continue(()), visit);
        }
        if range.is_empty() {
            return ControlFlow::Continue(());
        }
        let (start, end) = range.bounds();
        let start = match start {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let is_beyond = |key: &[u8]| match end {
            Bound::Excluded(end) => key >= end,
            Bound::Included(end) => key > end,
            Bound::Unbounded => false,
        };
        self.root.visit(start, &is_beyond, visit)
    }

    /// Iterates over every slot, in key order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        let mut pending = vec![&*self.root];
        let mut leaf: std::slice::Iter<'_, Indexed> = [].iter();
        std::iter::from_fn(move || {
            loop {
                if let Some(entry) = leaf.next() {
                    return Some(&entry.slot);
                }
                match pending.pop()? {
                    Node::Leaf(entries) => leaf = entries.iter(),
                    Node::Branch(children) => {
                        pending.extend(children.iter().rev().map(|child| &*child.node));
                    }
                }
            }
        })
    }
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Branch(children) => children.len(),
        }
    }

    fn existing(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.iter().filter(|entry| entry.exists).count(),
            Self::Branch(children) => children.iter().map(|child| child.existing).sum(),
        }
    }

    /// Inserts an entry. Returns the right half if the node was split.
    fn insert(&mut self, entry: Indexed) -> Option<Child> {
        match self {
            Self::Leaf(entries) => {
                let place = entries.partition_point(|other| other.slot.key() < entry.slot.key());
                // Doubling the capacity would leave half of most leaves unused.
                entries.reserve_exact(1);
                entries.insert(place, entry);
            }
            Self::Branch(children) => {
                let place = child_for(children, entry.slot.key());
                let child = children.get_mut(place)?;
                child.existing += usize::from(entry.exists);
                if let Some(right) = Arc::make_mut(&mut child.node).insert(entry) {
                    child.existing -= right.existing;
                    children.insert(place + 1, right);
                }
            }
        }
        match self.len() {
            ..=NODE_ENTRIES_MAX => None,
            _ => self.split(),
        }
    }

    fn split(&mut self) -> Option<Child> {
        let half = self.len() / 2;
        let right = match self {
            Self::Leaf(entries) => {
                let right = entries.split_off(half);
                entries.shrink_to_fit();
                Self::Leaf(right)
            }
            Self::Branch(children) => Self::Branch(children.split_off(half)),
        };
        Child::of(Arc::new(right))
    }

    /// Returns whether the flag changed; `None` if the key is not in the subtree.
    fn set_exists(&mut self, key: &[u8], exists: bool) -> Option<bool> {
        match self {
            Self::Leaf(entries) => {
                let place = entries
                    .binary_search_by(|entry| entry.slot.key().cmp(key))
                    .ok()?;
                let before = std::mem::replace(&mut entries[place].exists, exists);
                Some(before != exists)
            }
            Self::Branch(children) => {
                let place = child_for(children, key);
                let child = children.get_mut(place)?;
                let changed = Arc::make_mut(&mut child.node).set_exists(key, exists)?;
                match (changed, exists) {
                    (true, true) => child.existing += 1,
                    (true, false) => child.existing -= 1,
                    (false, _) => {}
                }
                Some(changed)
            }
        }
    }

    fn remove(&mut self, key: &[u8]) -> Option<Indexed> {
        match self {
            Self::Leaf(entries) => {
                let place = entries
                    .binary_search_by(|entry| entry.slot.key().cmp(key))
                    .ok()?;
                Some(entries.remove(place))
            }
            Self::Branch(children) => {
                let place = child_for(children, key);
                let child = children.get_mut(place)?;
                let removed = Arc::make_mut(&mut child.node).remove(key)?;
                child.existing -= usize::from(removed.exists);
                if child.node.len() == 0 {
                    children.remove(place);
                } else if child.node.len() < NODE_ENTRIES_MIN {
                    merge_with_neighbour(children, place);
                }
                Some(removed)
            }
        }
    }

    fn visit<'a>(
        &'a self,
        start: &[u8],
        is_beyond: &impl Fn(&[u8]) -> bool,
        visit: &mut impl FnMut(&'a Indexed) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self {
            Self::Leaf(entries) => {
                let from = entries.partition_point(|entry| entry.slot.key() < start);
                for entry in &entries[from..] {
                    if is_beyond(entry.slot.key()) {
                        return ControlFlow::Break(());
                    }
                    visit(entry)?;
                }
            }
            Self::Branch(children) => {
                let from = child_for(children, start);
                for (offset, child) in children.iter().skip(from).enumerate() {
                    if offset > 0 && is_beyond(child.first.key()) {
                        return ControlFlow::Break(());
                    }
                    child.node.visit(start, is_beyond, visit)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Clone for Node {
    /// Copies with room for one more entry, since most copies are made for an insert.
    fn clone(&self) -> Self {
        fn with_room<T: Clone>(items: &[T]) -> Vec<T> {
            let mut copy = Vec::with_capacity(items.len() + 1);
            copy.extend_from_slice(items);
            copy
        }
        match self {
            Self::Leaf(entries) => Self::Leaf(with_room(entries)),
            Self::Branch(children) => Self::Branch(with_room(children)),
        }
    }
}

impl Child {
    /// Builds the child of a node; `None` if the node is empty.
    fn of(node: Arc<Node>) -> Option<Self> {
        let first = match &*node {
            Node::Leaf(entries) => &entries.first()?.slot,
            Node::Branch(children) => &children.first()?.first,
        };
        Some(Self {
            first: first.clone(),
            existing: node.existing(),
            node,
        })
    }
}

/// Returns the index of the child that may hold the key.
fn child_for(children: &[Child], key: &[u8]) -> usize {
    children
        .partition_point(|child| child.first.key() <= key)
        .saturating_sub(1)
}

fn merge_with_neighbour(children: &mut Vec<Child>, place: usize) {
    let left = match place {
        0 => 0,
        place => place - 1,
    };
    let fits = match &children[left..] {
        [left, right, ..] => left.node.len() + right.node.len() <= NODE_ENTRIES_MAX,
        _ => false,
    };
    if !fits {
        return;
    }
    let right = children.remove(left + 1);
    let left = &mut children[left];
    left.existing += right.existing;
    match (
        Arc::make_mut(&mut left.node),
        Arc::unwrap_or_clone(right.node),
    ) {
        (Node::Leaf(entries), Node::Leaf(more)) => entries.extend(more),
        (Node::Branch(children), Node::Branch(more)) => children.extend(more),
        // All leaves have the same depth, so neighbours are of one kind.
        (Node::Leaf(_), Node::Branch(_)) | (Node::Branch(_), Node::Leaf(_)) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn key(number: u16) -> Bytes {
        Bytes::copy_from_slice(format!("{number:05}").as_bytes())
    }

    fn indexed(index: &Index, range: &KeyRange) -> Vec<(Bytes, bool)> {
        let mut found = Vec::new();
        let _ = index.visit(range, &mut |entry| {
            found.push((entry.slot.key_bytes(), entry.exists));
            ControlFlow::Continue(())
        });
        found
    }

    #[derive(Debug, Clone)]
    enum Change {
        Insert(u16, bool),
        SetExists(u16, bool),
        Remove(u16),
    }

    fn change() -> impl Strategy<Value = Change> {
        let number = 0..600u16;
        prop_oneof![
            4 => (number.clone(), any::<bool>()).prop_map(|(n, e)| Change::Insert(n, e)),
            2 => (number.clone(), any::<bool>()).prop_map(|(n, e)| Change::SetExists(n, e)),
            3 => number.prop_map(Change::Remove),
        ]
    }

    fn check(index: &Index, model: &BTreeMap<Bytes, bool>) {
        let bounds = [0u16, 1, 37, 150, 299, 300, 599, 600];
        for (start, end) in bounds.iter().flat_map(|s| bounds.map(|e| (*s, e))) {
            for range_end in [key(end), Bytes::from_static(b"\0"), Bytes::new()] {
                let range = KeyRange::new(&key(start), &range_end);
                let expected: Vec<_> = model
                    .iter()
                    .filter(|(key, _)| range.contains(key))
                    .map(|(key, exists)| (key.clone(), *exists))
                    .collect();
                let count = expected.iter().filter(|(_, exists)| *exists).count();
                assert_eq!(index.count(&range), count, "{range:?}");
                assert_eq!(indexed(index, &range), expected, "{range:?}");
            }
        }
        assert_eq!(index.slots().count(), model.len());
    }

    /// The keys between the bounds are taken away, and only their number is left.
    ///
    /// Proves: C20
    #[test]
    fn count_does_not_visit_the_keys_between_its_bounds() {
        const KEYS: u16 = 2000;
        let mut index = Index::default();
        for number in 0..KEYS {
            index.insert(Slot::new(&key(number)), true, 1);
        }
        let Node::Branch(children) = Arc::make_mut(&mut index.root) else {
            panic!("2000 keys fit into a leaf");
        };
        assert!(children.len() > 2);
        let between = 1..children.len() - 1;
        for child in &mut children[between] {
            child.node = Arc::new(Node::Leaf(Vec::new()));
        }
        for (first, last) in [(1, KEYS - 1), (0, KEYS - 2), (7, KEYS - 7)] {
            let range = KeyRange::new(&key(first), &key(last));
            assert_eq!(index.count(&range), usize::from(last - first));
            assert!(indexed(&index, &range).len() < usize::from(last - first));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Proves: K28
        #[test]
        fn index_agrees_with_an_ordered_map(
            changes in prop::collection::vec(change(), 1..2500),
        ) {
            let mut index = Index::default();
            let mut model = BTreeMap::new();
            let mut kept = Vec::new();
            for (step, change) in changes.into_iter().enumerate() {
                if step % 500 == 7 {
                    kept.push((index.clone(), model.clone()));
                }
                match change {
                    Change::Insert(n, exists) if !model.contains_key(&key(n)) => {
                        index.insert(Slot::new(&key(n)), exists, 1);
                        model.insert(key(n), exists);
                    }
                    Change::Insert(..) => {}
                    Change::SetExists(n, exists) => {
                        index.set_exists(&key(n), exists, 1);
                        model.entry(key(n)).and_modify(|e| *e = exists);
                    }
                    Change::Remove(n) => {
                        index.remove(&key(n));
                        model.remove(&key(n));
                    }
                }
            }
            check(&index, &model);
            // Copies taken earlier did not change.
            for (index, model) in kept {
                check(&index, &model);
            }
            for number in 0..600 {
                index.remove(&key(number));
            }
            check(&index, &BTreeMap::new());
        }
    }
}
