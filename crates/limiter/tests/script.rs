//! The script as it goes to Redis is the one that was meant.

#![cfg(feature = "redis")]

use limiter::redis::LIMIT;

/// Servers of two versions that share a Redis decide by different scripts: a change is one that both can live with, or
/// the keys' version changes with it.
const PINNED: &str = "6b33b59f743c09ab5807394227bdd33a2ba5bb6c";

#[test]
fn script_changes_only_on_purpose() {
    assert_eq!(LIMIT.sha1, PINNED, "the script has changed; if that is meant, this is its digest now");
}
