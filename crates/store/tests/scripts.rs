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
    ("join", "10ba68619193074e182ad9a4e4697f98cb3891c6"),
    ("enter", "33a7043a8e068951be09eb7066a24619b7bec6a2"),
    ("beat", "ab2a69a1182ef96b99151e9023723d33c42cf917"),
    ("policy", "ee8830fb6abef237741e1678b59f1090beae7b82"),
    ("restore", "7d2dc2f64a9cdc192d3613540adca78e1984a5e7"),
    ("zones", "c5ee1974adc07dad6cb2eff98997c58472e024f3"),
    ("define", "96f4ecc3253b7868c092b0f58db065b41f1ba45e"),
    ("servers", "28121016408ba7d432d708a18e63b930c0fc957d"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
