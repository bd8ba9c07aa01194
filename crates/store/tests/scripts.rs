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
    ("join", "58797e2b5da3d22a81de39c435640b1fad2ca6ea"),
    ("enter", "1c4f035d380da8aa467b02c25f21bede9338017b"),
    ("beat", "3e179d29048ab553feeead051a3fd43cb4d69b24"),
    ("visits", "7d969f6e1c30f1a7ccf48f9ac331cc0635c2528e"),
    ("leave", "26fd8ed4f5824a327c10b2186d25082a951b7e67"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "e6f9a5be014e77bd5b389c00a09d615819026f38"),
    ("policy", "1d6c47215f46c7c32eab06720b1c9917ad198793"),
    ("restore", "2b5c1ebb917ba63fabf5906ae168a080dbe56aca"),
    ("mend", "3bbefd130c87b60f36dcaf1e52f67da3055378ff"),
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
