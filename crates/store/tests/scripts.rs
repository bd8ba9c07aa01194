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
    ("join", "da9e575046b531478176277735ba6d70b91eaedc"),
    ("enter", "7d97159a2ce43bb90f28ced1e5c1c540c6090d01"),
    ("beat", "9b839a53e83516b7365e27607379a7b479765dfa"),
    ("policy", "1e14c3b8efeb62222d5995e306af55d006112967"),
    ("restore", "2013bfac260259cd51fca27f9676a91133689034"),
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
