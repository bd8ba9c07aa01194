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
    ("join", "c6a092e41aa3229eede5600df990754986c3e0bf"),
    ("enter", "e6168928aa049ad8889b56189adddab607b35286"),
    ("beat", "d03402e39d686a18388fbe39fb0efdc243d71da2"),
    ("policy", "c6750e55425c6a26b3f2dd01532031e595098fe4"),
    ("restore", "b945c38bdbe40506991286ce52d42a133b1d1ffa"),
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
