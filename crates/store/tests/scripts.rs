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
    ("join", "02eb9bc94cecf8cadf54c14bb42b5eaa6fb303f2"),
    ("enter", "055b526ded0894cafbaac94a7bb6f604aa599778"),
    ("beat", "d25f4f01d09336fb0c7546e7c1d1db8fbcbd5f60"),
    ("visits", "9e4f8c5f359a113ab1258fe7057193ce83736c5e"),
    ("policy", "3410a0afcfe35c1dd1b7700d0475d0528f451b68"),
    ("restore", "0b2064888afd5370912618836f38069384a2eb4b"),
    ("mend", "2bbce035f3e77da3471352dcbe187101e884d29d"),
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
