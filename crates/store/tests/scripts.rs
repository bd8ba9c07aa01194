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
    ("join", "86a1202690b5eba2716da694ec039f7f259b4b39"),
    ("enter", "815429c32ae9a41613fa2b7176e186e5ce930a57"),
    ("beat", "3f6e50259328518d18e4a4323164f2f85be22bf7"),
    ("policy", "44a99787db3d0bb4442ed828684b1f79dee2310f"),
    ("restore", "fd4f3aeb58a38e814bcdd203e75fbf99b1309da5"),
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
