//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 9] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
        &scripts::VISITS,
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
const PINNED: [(&str, &str); 9] = [
    ("join", "640b52092f04fa50b3be0bf514bdd2a736d7167a"),
    ("enter", "51f3b3a27442f860c931b0bc957fa7b701b5692f"),
    ("beat", "79d4b77fa68c48db8f60b49eb5de6dd4e6caabd4"),
    ("visits", "044009504f678cda2a7258b943c46a87e4e3e0f8"),
    ("policy", "e3000f0591300d3d32416745c9dace65c42d1b3d"),
    ("restore", "27391e1142c9a8f1be1e61e3752264142bae00b1"),
    ("zones", "e75a47ddd4d017193c024ae49ba43873299b8b8b"),
    ("define", "c226b25630aeed362ca76d262e56dd7a2dfbe0b5"),
    ("servers", "424957f5b13445a793a67659cc9c39646522524d"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
