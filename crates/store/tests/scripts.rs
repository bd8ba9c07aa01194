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
    ("join", "5d36464cdbfe4250528dbb83960772fc374548c9"),
    ("enter", "319cb28c991406cd10297b0429c061a39342f761"),
    ("beat", "9178fc6e5410e2d38990a0c0fda9c361e8f5c5b4"),
    ("visits", "d3ac699248480df4e9430664f0b458bbffe5d9ad"),
    ("leave", "b67d07696b83feec5864df6a2944ae58a4820f42"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "c7f7c6cb0431a328dc0535a7f0ce670435c606db"),
    ("policy", "5180175a95c1f24cab661c05adf2566d5ea86ed8"),
    ("restore", "9889ffb0aaef34da3a315ada4759da5867a0827e"),
    ("mend", "9a9889f599b18a4f3508009b892635ec5656d8a9"),
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
