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
    ("join", "8bb8abf8a3a426aca46f7e12c7d4b744bdd2ad5e"),
    ("enter", "c876c68e7ae9f611d0e1a18cbddc3317f0e4bc1f"),
    ("beat", "b05ee25ddeefb0f2e69cdf3c13be7843a2882cc9"),
    ("visits", "8166f17897867addca0432f14be5c0c5a60b0e51"),
    ("leave", "13ebfa749cf33ac7e5bf2cce2bd3aaaf873c6973"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "a772178bb1225014c310c6b4529e7956c2c3b264"),
    ("policy", "d6103c2ad7e5c37ee72375e44a622d9cf5f1b6f7"),
    ("restore", "f12e4c5e4ac4938370f67e1342337b84fe2aeeac"),
    ("mend", "a1028d675339f814d36c0ca0076def8e5e1ebbf4"),
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
