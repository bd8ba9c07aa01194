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
    ("join", "e695ad89ad6ae9682bf8d738a09ba3ee30695262"),
    ("enter", "823b06c19e642283f9ffdac05b3380b6bfa677c8"),
    ("beat", "280de8377bb1fccf5da9770944fad5604b2e00c1"),
    ("policy", "3c3f56a3d93ea8993f866ecdc0dc45042c0b238e"),
    ("restore", "efebfc66f7d987b434c90629dd62b7f079ec4fc1"),
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
