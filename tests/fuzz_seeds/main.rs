//! Replays the seeds of the fuzz targets, including everything that fuzzing has found, without a fuzzer.

#[path = "../../fuzz/checks.rs"]
mod checks;

use std::{fs, path::Path};

fn replay(target: &str, check: fn(&[u8])) {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
    let files = fs::read_dir(&seeds).expect("each target has seeds");
    let mut count = 0;
    for file in files {
        let path = file.expect("a readable directory").path();
        let bytes = fs::read(&path).expect("a readable seed");
        // Also every prefix of the seed, because parsers fail at ends.
        for end in (0..=bytes.len().min(2_000)).chain([bytes.len()]) {
            check(&bytes[..end]);
        }
        count += 1;
    }
    assert!(count > 0, "no seeds in {}", seeds.display());
}

#[test]
fn token() {
    replay("token", checks::token);
}

#[test]
fn request() {
    replay("request", checks::request);
}

#[test]
fn config() {
    replay("config", checks::config);
}

#[test]
fn draw() {
    replay("draw", checks::draw);
}
