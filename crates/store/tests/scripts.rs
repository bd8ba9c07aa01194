//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 14] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
        &scripts::VISITS,
        &scripts::LEAVE,
        &scripts::BIND,
        &scripts::RETIRE,
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
const PINNED: [(&str, &str); 14] = [
    ("join", "f5d89196e44c0219f818348d8a49cc01eb0b0e95"),
    ("enter", "3233c35ab1f891f9d3998bd581ecd8b8dc537fd1"),
    ("beat", "77760205273919c8e95004915dfa47a075667ab1"),
    ("visits", "59114dda8d0298edd51a38d0fc3aed74cf4dc312"),
    ("leave", "5441b1bb36dc715003a54818801e73d003b8784e"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "d049d5b970f4bb9098638e23c98a1c8aec3f0434"),
    ("policy", "17394bdf9e641e0f73fc809b15c829eeab9e45fc"),
    ("restore", "a4f3f900503c84912f98acd3366e8b33441b640d"),
    ("mend", "b180160a60c804b1b2707e0daf68939eab6db441"),
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
