//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 13] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
        &scripts::VISITS,
        &scripts::LEAVE,
        &scripts::BIND,
        &scripts::POLICY,
        &scripts::RESTORE,
        &scripts::MEND,
        &scripts::ZONES,
        &scripts::DEFINE,
        &scripts::LEARNED,
        &scripts::SERVERS,
    ]
    .map(|script| &**script)
}

/// Servers of two versions may share one Redis and run different scripts. So a change must suit both versions, or the
/// version in the keys changes with it. A changed comment changes the digest, too.
const PINNED: [(&str, &str); 13] = [
    ("join", "fe0b5e0a08fcdb4fa20200e2d4d2a4d69cb8c285"),
    ("enter", "0af9c862bfbc686e8b9cc6f261bd22aa8836d7b2"),
    ("beat", "16e3b49de4594199a0ca43557ddf6ea6bb072b74"),
    ("visits", "fd15b5d2336e140ff215c65082d2ae86e2152c20"),
    ("leave", "f21747977d08a1f03307e461b1befbcbdc298262"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("policy", "8bd32444b0402db60163581d622b0ac6aa034096"),
    ("restore", "38f91f841d89b9b73af2cc0a5bcac8fcba94faf6"),
    ("mend", "daba986bcd80597687cb2a60ff4ae303ce2db6d3"),
    ("zones", "2e12e7e991e72fffe58cc9a18de745493cf9e632"),
    ("define", "255209b08618c3103be13252d3a6b19ae3b6e66a"),
    ("learned", "5356420f63b92d77a7fb0e87103999ee3dd191bc"),
    ("servers", "9972a20b89a7ccccd71bea10ccc5f56a6b6bdd1d"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
