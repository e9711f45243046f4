//! Repeatable random choices.
//!
//! A test prints its seed; `PORTUNUS_TEST_SEED` repeats a run with the same choices.

use std::time::{SystemTime, UNIX_EPOCH};

/// A small generator (xorshift64*); good enough to choose moments and keys.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with a seed from the environment, or from the clock.
    ///
    /// # Panics
    /// If `PORTUNUS_TEST_SEED` is not a number.
    #[must_use]
    pub fn seeded(test: &str) -> Random {
        let seed = match std::env::var("PORTUNUS_TEST_SEED") {
            Ok(text) => text.parse().expect("PORTUNUS_TEST_SEED is a number"),
            Err(_) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                u64::try_from(since.as_nanos() & u128::from(u64::MAX)).unwrap()
            }
        };
        eprintln!("{test}: repeat with PORTUNUS_TEST_SEED={seed}");
        Random(seed | 1)
    }

    /// Creates a generator with this seed, unless the environment has one.
    #[must_use]
    pub fn seeded_or(test: &str, seed: u64) -> Random {
        match std::env::var_os("PORTUNUS_TEST_SEED") {
            Some(_) => Random::seeded(test),
            None => Random(seed | 1),
        }
    }

    /// Returns an independent generator, for another task.
    #[must_use]
    pub fn fork(&mut self) -> Random {
        Random(self.next() | 1)
    }

    /// Returns a seed for another generator.
    pub fn seed(&mut self) -> u64 {
        self.next()
    }

    /// Returns the next number.
    #[allow(clippy::should_implement_trait)] // a generator never ends
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_follow_from_the_seed() {
        let choices = |mut random: Random| -> Vec<u64> {
            let fork = random.fork().next();
            (0..9).map(|_| random.below(1000)).chain([fork]).collect()
        };
        let (one, other) = (choices(Random(7)), choices(Random(9)));
        assert_eq!(one, choices(Random(7)));
        assert_ne!(one, other);
        assert!(one.iter().take(9).all(|choice| *choice < 1000), "{one:?}");
    }
}
