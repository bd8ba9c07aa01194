//! The Merkle tree over the list of places: RFC 6962, section 2.1, with SHA-256.
//!
//! The leaf of a place is its number in 4 bytes, big-endian, and one byte: 1 if it is in line, 0 if not. Subtrees of 256
//! leaves are hashed when they are needed. Only their roots and the nodes above them are kept, a quarter of a byte a place.
//! Invariant: two different lists of one length have different roots, as long as nobody finds a collision of SHA-256.

use sha2::{Digest as _, Sha256};

use crate::places::Places;

/// A hash of the tree.
pub type Hash = [u8; 32];

/// A kept node covers `1 << LOW_LEVELS` leaves.
const LOW_LEVELS: u32 = 8;
const CHUNK: u32 = 1 << LOW_LEVELS;

/// The tree over a list of places.
pub struct Tree {
    places: Places,
    /// The roots of the chunks, the nodes above them, and so on up to the root. Empty without places.
    levels: Vec<Vec<Hash>>,
}

impl Tree {
    /// Hashes the whole list: three blocks of SHA-256 a place.
    #[must_use]
    pub fn new(places: &Places) -> Self {
        let mut scratch = Vec::with_capacity(CHUNK as usize);
        let chunks = (0..places.count()).step_by(CHUNK as usize);
        let mut level: Vec<Hash> = chunks
            .map(|first| {
                leaves(places, first, &mut scratch);
                while scratch.len() > 1 {
                    climb(&mut scratch);
                }
                scratch[0]
            })
            .collect();
        let mut levels = Vec::new();
        while level.len() > 1 {
            levels.push(level.clone());
            climb(&mut level);
        }
        if !level.is_empty() {
            levels.push(level);
        }
        Self { places: places.clone(), levels }
    }

    /// The list under the tree.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// The root; that of an empty list is the SHA-256 of nothing.
    #[must_use]
    pub fn root(&self) -> Hash {
        self.levels.last().map_or_else(|| Sha256::digest(b"").into(), |top| top[0])
    }

    /// The inclusion path of a place, from the leaf up, as RFC 6962 defines it. Hashes 256 leaves. `None` if the place does
    /// not exist.
    #[must_use]
    pub fn path(&self, place: u32) -> Option<Vec<Hash>> {
        if place >= self.places.count() {
            return None;
        }
        let mut path = Vec::new();
        let mut scratch = Vec::with_capacity(CHUNK as usize);
        leaves(&self.places, place - place % CHUNK, &mut scratch);
        let mut at = (place % CHUNK) as usize;
        while scratch.len() > 1 {
            path.extend(scratch.get(at ^ 1));
            at /= 2;
            climb(&mut scratch);
        }
        at = (place / CHUNK) as usize;
        for level in &self.levels {
            if level.len() > 1 {
                path.extend(level.get(at ^ 1));
            }
            at /= 2;
        }
        Some(path)
    }
}

/// Whether `path` leads from the leaf of a place to the root of a list of `count` places. The steps are those of RFC 9162,
/// section 2.1.3.2.
#[must_use]
pub fn check_path(place: u32, is_in_line: bool, path: &[Hash], count: u32, root: &Hash) -> bool {
    path_leads(leaf(place, is_in_line), place, path, count, root)
}

fn path_leads(leaf: Hash, index: u32, path: &[Hash], count: u32, root: &Hash) -> bool {
    if index >= count {
        return false;
    }
    let (mut index, mut last, mut hash) = (index, count - 1, leaf);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if index % 2 == 1 || index == last {
            hash = node(sibling, &hash);
            while index % 2 == 0 && index != 0 {
                index /= 2;
                last /= 2;
            }
        } else {
            hash = node(&hash, sibling);
        }
        index /= 2;
        last /= 2;
    }
    last == 0 && hash == *root
}

/// The leaves of the chunk that begins with place `first`.
fn leaves(places: &Places, first: u32, out: &mut Vec<Hash>) {
    out.clear();
    let end = places.count().min(first + CHUNK);
    out.extend((first..end).map(|place| leaf(place, places.is_in_line(place))));
}

/// Replaces the nodes of a level by those above them. The last one of an odd level has no sibling and stays as it is. This
/// is the tree of RFC 6962, which splits at the largest power of two below the number of leaves.
fn climb(level: &mut Vec<Hash>) {
    let above = level.len().div_ceil(2);
    for at in 0..level.len() / 2 {
        level[at] = node(&level[2 * at], &level[2 * at + 1]);
    }
    if level.len() % 2 == 1 {
        level[above - 1] = level[level.len() - 1];
    }
    level.truncate(above);
}

fn leaf(place: u32, is_in_line: bool) -> Hash {
    let mut data = [0; 6];
    data[1..5].copy_from_slice(&place.to_be_bytes());
    data[5] = u8::from(is_in_line);
    Sha256::digest(data).into()
}

fn node(left: &Hash, right: &Hash) -> Hash {
    let mut data = [1; 65];
    data[1..33].copy_from_slice(left);
    data[33..].copy_from_slice(right);
    Sha256::digest(data).into()
}

#[cfg(test)]
mod tests;
