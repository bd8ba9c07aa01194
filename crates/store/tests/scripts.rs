//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 9] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
        &scripts::VISITS,
        &scripts::POLICY,
        &scripts::RESTORE,
        &scripts::ZONES,
        &scripts::DEFINE,
        &scripts::SERVERS,
    ]
    .map(|script| &**script)
}

/// Servers of two versions may share one Redis and run different scripts. So a change must suit both versions, or the
/// version in the keys changes with it. A changed comment changes the digest, too.
const PINNED: [(&str, &str); 9] = [
    ("join", "288aa88e5cd1ebccd19ad346426b849b3f5e765c"),
    ("enter", "8f3d153bc35c252a40d2cc9116d841655127dafb"),
    ("beat", "00f8b48e27bda88d6e5376377f779b8b17cfc1b9"),
    ("visits", "dceb727eafe736a84b46865b6c6783d04b1f0f49"),
    ("policy", "627bce4f6440067e304c9be8081b53593aa13ce2"),
    ("restore", "636bcf49c15950fd5593a1b1f3a6359d716e37e2"),
    ("zones", "e75a47ddd4d017193c024ae49ba43873299b8b8b"),
    ("define", "c226b25630aeed362ca76d262e56dd7a2dfbe0b5"),
    ("servers", "424957f5b13445a793a67659cc9c39646522524d"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
