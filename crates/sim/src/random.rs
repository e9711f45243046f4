//! Choices that can be repeated from a seed.

/// A small generator (xorshift64*); good enough to choose moments and keys.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn from_seed(seed: u64) -> Random {
        // Small seeds differ in few bits; spread them.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// An independent generator, for another task.
    pub(crate) fn fork(&mut self) -> Random {
        Random(self.next() | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The low bits of this generator are its weak ones.
        (self.next() >> 8) % end.max(1)
    }

    /// A number from `low` up to and including `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in so many of a thousand cases.
    pub(crate) fn permille(&mut self, of_thousand: u64) -> bool {
        self.below(1000) < of_thousand
    }

    /// One of several.
    pub(crate) fn choose<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        let index = self.below(among.len() as u64);
        among.get(usize::try_from(index).unwrap_or(0))
    }
}
