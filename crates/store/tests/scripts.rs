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
    ("join", "a1e82ec9ba7cd42e3e300d54c4d2ab83f0b353c5"),
    ("enter", "e000ab7816b0e36dfba1b4fae83532517365d468"),
    ("beat", "b721dacf98985898723e728b7af46d96b3289ab3"),
    ("visits", "760c0e590ee3f4b851e828a2c184353fa0d26b4a"),
    ("leave", "4d0c5a80f1a14435c88fe2d9a22427d88fc8a1af"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("policy", "c9c85b160d05bb7175e5091af748318836ad3c26"),
    ("restore", "9dc1cfa6468fdbc804f7b2cbcdb59495026df569"),
    ("mend", "5f009b9fb02a03fe96086da940c9c3170c5c8571"),
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
