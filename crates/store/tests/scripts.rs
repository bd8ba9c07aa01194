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
    ("join", "fd1e837e0ccb1a2e590f29061a72c76cd6d32ca5"),
    ("enter", "8335f45cf5f5cb99ac927fdb35f486c20a6acb01"),
    ("beat", "c707ef244d20d6d26aa070b40d2d32a2ea668bd0"),
    ("visits", "47a17e66006460862d2e4e31de21bdabff6089a3"),
    ("leave", "f7e26d98dd580b42cdef6e0765f48cd5371eae4e"),
    ("bind", "2ad6499f0eb353a65b1af91c71061b65da3b9345"),
    ("policy", "e9497bc6aa3fbf5151372890a9be83ed19dfc68f"),
    ("restore", "0eb50b6f8ea96adb59e4d2e73985454dc39fb2eb"),
    ("mend", "c43cec8f0c3625b266fe2596be09919aefe31644"),
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
