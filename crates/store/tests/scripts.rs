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
    ("join", "4ad2b2b0899f50b7d12febf252323a718f4b02a3"),
    ("enter", "82e43d46ff67c9b0a3a2690eeea17e99ec8ff9c3"),
    ("beat", "e07f66f53a96c70bd0af58281eeb61e4d26aa975"),
    ("visits", "d036a9756db5a162b75237db544bd053ee9d8f05"),
    ("leave", "65806664e3f812c8f930b41ed0c97aa6f94466d5"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "b9476ce6aa3b5d31b0d57f17d411fabe98f156e4"),
    ("policy", "4ed7918b5beb9774473dc92a12a81913d0a2128c"),
    ("restore", "6e073fb52f1085b6610aca96c1b59c6a5cfef83f"),
    ("mend", "51a980e0c09b49498d0e4192a33e720447af16a6"),
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
