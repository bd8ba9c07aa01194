//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 10] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
        &scripts::VISITS,
        &scripts::LEAVE,
        &scripts::BIND,
        &scripts::POLICY,
        &scripts::RESTORE,
        &scripts::ZONES,
        &scripts::DEFINE,
        &scripts::LEARNED,
        &scripts::SERVERS,
    ]
    .map(|script| &**script)
}

/// Servers of two versions may share one Redis and run different scripts. So a change must suit both versions, or the
/// version in the keys changes with it. A changed comment changes the digest, too.
const PINNED: [(&str, &str); 10] = [
    ("join", "518f7316b7b7b90b79720b83794accaf45569fad"),
    ("enter", "af64117955de4e46944d4f67c555aa1343b537b7"),
    ("beat", "7be586b8fec9334005c1badbe4af0158ef8fdb88"),
    ("visits", "34cbc91072660b24828b717e32c0fe4eb95be389"),
    ("policy", "ed06621b1c09f614b3d4be21c23175d008903606"),
    ("restore", "1fcbba9a5818d68352297e05b0db14c839e443c8"),
    ("zones", "e75a47ddd4d017193c024ae49ba43873299b8b8b"),
    ("define", "c226b25630aeed362ca76d262e56dd7a2dfbe0b5"),
    ("learned", "5356420f63b92d77a7fb0e87103999ee3dd191bc"),
    ("servers", "424957f5b13445a793a67659cc9c39646522524d"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
