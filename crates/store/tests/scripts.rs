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
    ("join", "8babece2b5a86786657d89fea730b34873f212ad"),
    ("enter", "2347ac8c194b4fd799ced047ab1e43fc6dd185d7"),
    ("beat", "0c3858d04111100bb6c19c0f31fae0054d22e33a"),
    ("policy", "3e81981daef10e1636c0fb387228d659303bb600"),
    ("restore", "6d8e78a6fc6c5f53869a2df50d9daf1b5efa1ec7"),
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
