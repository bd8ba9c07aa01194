//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 11] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
        &scripts::VISITS,
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
const PINNED: [(&str, &str); 11] = [
    ("join", "067803ecf0cd6f11c773bba57154818e69b2532c"),
    ("enter", "08d842b51d83a2d49b1608417a40538ad579208b"),
    ("beat", "8b319af64434d4de39a0370605d2f478f899517f"),
    ("visits", "08076460d3f5e8b9aaf2ec92063437d2f333c25c"),
    ("policy", "5769e377121067500b0abd587c354720205087f5"),
    ("restore", "c22bdd61dbbac4455f4b28cb48092022270ec375"),
    ("mend", "479ef73e4675f3500d2e5670fbd1e23979cc1cab"),
    ("zones", "2e12e7e991e72fffe58cc9a18de745493cf9e632"),
    ("define", "255209b08618c3103be13252d3a6b19ae3b6e66a"),
    ("learned", "5356420f63b92d77a7fb0e87103999ee3dd191bc"),
    ("servers", "daf115c163bc0e4c45e2c67f62eee522fba8c30e"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
