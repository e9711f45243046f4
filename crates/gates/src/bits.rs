//! Gate values by position in the registry, for checks that cost one load.

/// One bit per feature.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bits(Box<[u64]>);

impl Bits {
    pub(crate) fn collect(values: impl ExactSizeIterator<Item = bool>) -> Bits {
        let mut words = vec![0u64; values.len().div_ceil(64)];
        for (index, value) in values.enumerate() {
            words[index / 64] |= u64::from(value) << (index % 64);
        }
        Bits(words.into())
    }

    /// Returns the value at a position; off where none was collected.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> bool {
        match self.0.get(index / 64) {
            Some(word) => (word >> (index % 64)) & 1 == 1,
            None => false,
        }
    }
}
