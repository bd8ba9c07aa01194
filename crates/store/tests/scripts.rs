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
    ("join", "60da740e8c4780c60313ab8ea78913cb8aab898c"),
    ("enter", "1b09d2bf47bda0ec22eee3cf0267412a20ccc6b5"),
    ("beat", "ef6527c5abe1d9cd0f8fdbd3f5e77a5ac64b3cf6"),
    ("visits", "ee7c1b6a942c1f0f2267213ffbdd2b9b335af0d5"),
    ("leave", "7b0a41e5a3a0cf0dd5368c3ae2db0d6a72a98891"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "b837f38fc505a7454e300d29a49ecfd36eeef221"),
    ("policy", "6a045c97960728c2a0159c211d1a6c0d0a883320"),
    ("restore", "a1bf669a96d8f220bb9216370f76e3a3aa3e6794"),
    ("mend", "d75a3852e4d93797a76bd6de5bfbe09000bb20d4"),
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
