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
    ("join", "222fba6113e2bd7618c0a646ed7226df9643b33b"),
    ("enter", "c5a6af7ee2a820540e07eacb895ff742b1513596"),
    ("beat", "fa5496ad6a1f4692054fefacbdf481792d4edbf7"),
    ("policy", "3388a9481b104e25b8a3700955d67aea59b751ce"),
    ("restore", "12fae7fd6d108c195ca8dfea85befb1f4159f925"),
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
