//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 8] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
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
const PINNED: [(&str, &str); 8] = [
    ("join", "67325f2083cfaaecd86812a4cb8e71db71d4e52b"),
    ("enter", "40fb8a90a7d3a004495e61b8c452969a0f302633"),
    ("beat", "fe888b31842ea5198be9115b8e3570952a3f6610"),
    ("policy", "4f725c42a9122dfc7de17152e9343190efac02e0"),
    ("restore", "05a1222148fccf52358754753e342f57adaeb78e"),
    ("zones", "9e6dbbd7d7d163564416c472bf78b39b9f736973"),
    ("define", "37067bb3b744968aadde2ba33cf47b2a724474a5"),
    ("servers", "424957f5b13445a793a67659cc9c39646522524d"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
