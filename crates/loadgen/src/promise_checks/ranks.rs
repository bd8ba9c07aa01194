//! Ranks: how many positions are lower than another, while positions are added.

/// A Fenwick tree that counts how many of the added positions are lower than another.
pub(super) struct Ranks {
    tree: Vec<u32>,
}

impl Ranks {
    pub(super) fn new(positions: usize) -> Self {
        Self { tree: vec![0; positions + 1] }
    }

    /// Adds a position, which must be lower than the number given to `new`.
    pub(super) fn add(&mut self, position: usize) {
        let mut i = position + 1;
        while i < self.tree.len() {
            self.tree[i] += 1;
            i += i & i.wrapping_neg();
        }
    }

    /// The number of added positions that are lower than this one.
    pub(super) fn below(&self, position: usize) -> u32 {
        let (mut i, mut sum) = (position.min(self.tree.len() - 1), 0);
        while i > 0 {
            sum += self.tree[i];
            i &= i - 1;
        }
        sum
    }
}
