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
    ("join", "64253c5e59b071e45dba47dfcc9b820f5c332267"),
    ("enter", "8d7948f8d6382b2a7654a473f17eb5a28370d5b5"),
    ("beat", "2084cbbc5ee553c70e4f06ccec81139548663caa"),
    ("visits", "5df2aaf7c62ed8110e5697a53bb973c248b8578a"),
    ("leave", "137c5c1cdc14249ed053beaaff9b4e2307e5bbff"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "024d398f9298caf7d858e5f2b74f3c35fee84f91"),
    ("policy", "715f4f6ec97b458e4ce86efe40fce25d55a43e09"),
    ("restore", "ff39b82a50d89050ba939918dec688579f00c97a"),
    ("mend", "c0ae4605eabfef35da6c09306cd344d602cd8267"),
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
