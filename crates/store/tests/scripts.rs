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
    ("join", "154b5945348458e1fb8942ad6e12b927b6bb8a95"),
    ("enter", "7abc30ae408c4520c80d5ad66148545be5b2a5ed"),
    ("beat", "203851d9dd2a9fea5e63d33b3814e22d9dec3f1a"),
    ("policy", "13b58840c9ba71fe33c44c184de637f3e3f7ce34"),
    ("restore", "1f742e7ff17a1292f626c210ba95169f308675a3"),
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
