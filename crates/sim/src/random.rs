//! Choices that can be repeated from a seed.

/// A small generator (xorshift64*); good enough to choose moments and keys.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn from_seed(seed: u64) -> Random {
        // Small seeds differ in few bits; spread them.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// An independent generator, for another task.
    pub(super) fn fork(&mut self) -> Random {
        Random(self.next() | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// One of several.
    pub(super) fn choose<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        let index = self.below(among.len() as u64);
        among.get(usize::try_from(index).unwrap_or(0))
    }
}
