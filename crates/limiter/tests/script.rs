//! The script does not change by accident.

#![cfg(feature = "redis")]

use limiter::redis::LIMIT;

/// Servers of two versions may share one Redis and run different scripts. So a change must suit both versions, or the
/// version in the keys changes with it. A changed comment changes the digest, too.
const PINNED: &str = "f4232b40fff75fe0a6f64e106ab7a2c6532c7642";

#[test]
fn the_script_does_not_change_by_accident() {
    assert_eq!(
        LIMIT.sha1, PINNED,
        "the script has changed; if this is intended, set PINNED to the left value"
    );
}
