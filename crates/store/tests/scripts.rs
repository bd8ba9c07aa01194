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
    ("join", "ba3e49438bd64e806ae78e296de552b13948a113"),
    ("enter", "08b06f33f2f368f0912088c97bfe200cf436cde6"),
    ("beat", "98b8e6e0bca5ca6d53f76ef662a8e81296bdd359"),
    ("policy", "2ede7e151aa524b46b9e9f479531549e2dc93ed4"),
    ("restore", "ae9b71364d490adfa19273d1dd69d35ba45bbfd7"),
    ("zones", "7981a230cf201a59e58b74dcb9c1b64ec9442de1"),
    ("define", "c5a571666b56ec6d189c3dc5e76f226c4cf86596"),
    ("servers", "424957f5b13445a793a67659cc9c39646522524d"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
