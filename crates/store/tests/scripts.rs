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
    ("join", "de4b05bd8f4d5cec8c5161e61ad82bea31664255"),
    ("enter", "bcb13e9e9853674faa5e41b6c80a24237e5b6775"),
    ("beat", "b16b97cc115cdc9fef29b3513a350a32de1e8c6d"),
    ("policy", "6507115761b0e636294a2d2c52ccd4b4a9459e23"),
    ("restore", "548236d5187661deda3793c560d86b916378195c"),
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
