//! Randomness from a seed.

use std::sync::{Mutex, PoisonError};

use mainspring_api::Entropy;

/// Numbers from a seed (`splitmix64`). Not for secrets.
#[derive(Debug, Clone)]
pub struct SeededRng {
    state: u64,
}

impl SeededRng {
    /// Starts at `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("fits");
        usize::try_from(self.next_u64() % bound).expect("below a usize")
    }

    /// True `percent` times of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.next_u64() % 100 < percent
    }

    /// One of `items`, which is not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// A source of random bytes that a seed decides.
#[derive(Debug)]
pub struct SeededEntropy {
    rng: Mutex<SeededRng>,
}

impl SeededEntropy {
    /// Starts at `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { rng: Mutex::new(SeededRng::new(seed)) }
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, out: &mut [u8]) {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fill(out);
    }
}
