//! The shuffle is uniform, and the tests would see it if it were not.
//!
//! Each chi-square value is compared with the value that a uniform shuffle exceeds once in a million runs. The seeds are
//! fixed, so a run is repeatable.

use sha2::{Digest as _, Sha256};

use super::*;
use crate::spelling::to_hex;

/// One-sided: a normal variable exceeds this once in a million.
const ONE_IN_A_MILLION: f64 = 4.753_424;

fn seed(number: u64) -> Seed {
    Seed(Sha256::digest(number.to_be_bytes()).into())
}

/// The value that chi-square exceeds once in a million, by Wilson and Hilferty (PNAS 17, 1931).
fn limit(freedom: f64) -> f64 {
    let part = 2.0 / (9.0 * freedom);
    freedom * (1.0 - part + ONE_IN_A_MILLION * part.sqrt()).powi(3)
}

fn chi_square(counts: &[u32], expected: f64) -> f64 {
    counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum()
}

/// The number of an order among all of its length (Lehmer code).
fn number_of(order: &[u32]) -> usize {
    order.iter().enumerate().fold(0, |number, (at, one)| {
        number * (order.len() - at) + order[at + 1..].iter().filter(|other| *other < one).count()
    })
}

/// Chi-square over all orders of `people`, as a part of its limit: below 1 the shuffle may be uniform.
fn over_all_orders(people: u32, runs_per_order: u32, shuffle: impl Fn(u64) -> Box<[u32]>) -> f64 {
    let orders: u32 = (1..=people).product();
    let mut counts = vec![0; orders as usize];
    for run in 0..u64::from(orders * runs_per_order) {
        counts[number_of(&shuffle(run))] += 1;
    }
    chi_square(&counts, f64::from(runs_per_order)) / limit(f64::from(orders - 1))
}

/// RFC 8439, A.1: the first two test vectors are blocks 0 and 1 of the key 0, and the third is block 1 of the key 1.
#[test]
fn words_are_those_of_chacha20() {
    let block = |key: u8, block: usize| {
        let mut seed = [0; 32];
        seed[31] = key;
        let mut words = ChaCha20Rng::from_seed(seed);
        let words: Vec<u8> = (0..16 * (block + 1)).flat_map(|_| words.next_u32().to_le_bytes()).collect();
        to_hex(&words[64 * block..])
    };
    assert_eq!(
        block(0, 0),
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7\
         da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    );
    assert_eq!(
        block(0, 1),
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed\
         29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    );
    assert_eq!(
        block(1, 1),
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a\
         8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"
    );
}

#[test]
fn words_beyond_the_last_multiple_are_dropped() {
    for bound in [2_u32, 3, 5, 6, 7, 100, 65_535, 65_536, 600_000, 6_000_000, crate::PLACES_MAX] {
        let words = 1_u64 << 32;
        let first_dropped = words - words % u64::from(bound);
        let last_kept = u32::try_from(first_dropped - 1).expect("below 2^32");
        assert_eq!(below(bound, &mut || last_kept), bound - 1);
        if let Ok(dropped) = u32::try_from(first_dropped) {
            let mut given = [dropped, u32::MAX, 7].into_iter();
            assert_eq!(below(bound, &mut || given.next().expect("a word")), 7 % bound, "bound {bound}");
            assert_eq!(given.next(), None);
        }
    }
}

#[test]
fn each_result_is_a_permutation_and_has_an_inverse() {
    for people in (0..200).chain([255, 256, 257, 1_000, 4_097, 65_536, 300_000]) {
        let positions = positions(&seed(u64::from(people)), people);
        let order = order(&positions);
        assert_eq!(order.len(), people as usize);
        for (position, rank) in (1..).zip(&order) {
            assert_eq!(positions[*rank as usize], position);
        }
    }
}

#[test]
fn all_orders_of_few_people_are_equally_likely() {
    for (people, runs_per_order) in [(2, 20_000), (3, 10_000), (4, 3_000), (5, 800), (6, 200)] {
        let part = over_all_orders(people, runs_per_order, |run| positions(&seed(run), people));
        assert!(part < 1.0, "{people} people: {part:.2} of the limit");
    }
}

/// The modulo of a small word favours small numbers. With words of 4 bits and 6 people, 0 to 3 come 3 times in 16, and 4 and
/// 5 twice.
#[test]
fn a_shuffle_without_rejection_is_found() {
    let biased = |run| {
        let mut words = ChaCha20Rng::from_seed(seed(run).0);
        let mut positions: Box<[u32]> = (1..=6).collect();
        for last in (1..6).rev() {
            let word = words.next_u32() % 16;
            positions.swap(last as usize, (word % (last + 1)) as usize);
        }
        positions
    };
    let part = over_all_orders(6, 200, biased);
    assert!(part > 2.0, "{part:.2} of the limit");
}

/// A Feistel network over 4 bits, four rounds with independent random functions, and cycle walking to the numbers below 5 or
/// 6: what is often used to permute a range without a table.
#[test]
fn a_feistel_network_with_cycle_walking_is_found() {
    for people in [5, 6] {
        let feistel = |run| {
            let mut words = ChaCha20Rng::from_seed(seed(run).0);
            let rounds: Vec<u32> = (0..4).map(|_| words.next_u32()).collect();
            let permute = |number: u32| {
                let (left, right) = rounds.iter().fold((number >> 2, number & 3), |(left, right), round| {
                    (right, left ^ (round >> (2 * right) & 3))
                });
                left << 2 | right
            };
            let walk = |number: u32| {
                let mut number = permute(number);
                while number >= people {
                    number = permute(number);
                }
                number + 1
            };
            (0..people).map(walk).collect()
        };
        let part = over_all_orders(people, 200, feistel);
        assert!(part > 2.0, "{people} people: {part:.2} of the limit");
    }
}

/// How often each of 60 people gets each of 60 positions. The counts of a row and of a column have a fixed sum, so chi-square
/// has (n - 1)^2 degrees of freedom after scaling by (n - 1) / n.
#[test]
fn each_position_is_equally_likely_for_each_person() {
    const PEOPLE: u32 = 60;
    let (n, runs) = (f64::from(PEOPLE), 30_000_u32);
    let mut counts = vec![0_u32; (PEOPLE * PEOPLE) as usize];
    for run in 0..runs {
        for (rank, position) in (0..).zip(&positions(&seed(u64::from(run)), PEOPLE)) {
            counts[(rank * PEOPLE + position - 1) as usize] += 1;
        }
    }
    let part = chi_square(&counts, f64::from(runs) / n) * (n - 1.0) / n / limit((n - 1.0).powi(2));
    assert!(part < 1.0, "{part:.2} of the limit");
}

/// The correlation of rank and position: for independent ones it has mean 0 and variance 1 / (n - 1). Neither one draw nor
/// the mean of 400 may be further off than once in a million runs.
#[test]
fn who_came_first_has_no_advantage() {
    let (people, runs) = (2_000_u32, 400_u32);
    let n = f64::from(people);
    let middle = (n + 1.0) / 2.0;
    let mut sum = 0.0;
    for run in 0..runs {
        let of_draw: f64 = (1..)
            .map(f64::from)
            .zip(&positions(&seed(u64::from(run)), people))
            .map(|(arrival, position)| (arrival - middle) * (f64::from(*position) - middle))
            .sum();
        let correlation = of_draw / (n * (n * n - 1.0) / 12.0);
        // 400 draws are looked at, from both sides: 5.9 deviations are one in a million of that.
        assert!(correlation.abs() < 5.9 / (n - 1.0).sqrt(), "draw {run}: {correlation}");
        sum += correlation;
    }
    let deviations = sum / f64::from(runs) * (f64::from(runs) * (n - 1.0)).sqrt();
    assert!(deviations.abs() < 4.9, "{deviations} deviations");
}

/// A shuffle of so many people that words are dropped, with a digest of all positions.
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Vector {
    seed: String,
    people: u32,
    /// How many words were dropped.
    dropped: u64,
    /// The positions of the first ranks.
    first: Vec<u32>,
    /// The SHA-256 of all positions by rank, 4 bytes each, little-endian.
    sha256: String,
}

fn vector(number: u64, people: u32) -> Vector {
    let (seed, mut used) = (seed(number), 0);
    let mut words = ChaCha20Rng::from_seed(seed.0);
    let positions = shuffled(people, || {
        used += 1;
        words.next_u32()
    });
    let bytes: Vec<u8> = positions.iter().flat_map(|position| position.to_le_bytes()).collect();
    Vector {
        seed: to_hex(&seed.0),
        people,
        dropped: used - u64::from(people.saturating_sub(1)),
        first: positions.iter().copied().take(8).collect(),
        sha256: to_hex(&Sha256::digest(bytes)),
    }
}

/// The vectors for other implementations. `WEIR_WRITE_VECTORS=1` writes them again.
#[test]
fn large_shuffles_are_as_published() {
    let made = [(1, 3), (2, 10), (3, 70_000), (4, 600_000), (5, 1_000_000)]
        .map(|(number, people)| vector(number, people));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/shuffle.json");
    if std::env::var_os("WEIR_WRITE_VECTORS").is_some() {
        let json = serde_json::to_string_pretty(&made).expect("JSON");
        std::fs::write(path, json + "\n").expect("written");
    }
    let json = std::fs::read(path).expect("the vectors are committed");
    let published: Vec<Vector> = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(published, made);
    assert!(published.iter().any(|vector| vector.dropped > 5), "words are dropped");
}
