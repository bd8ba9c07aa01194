//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 20] {
    [
        &scripts::JOIN,
        &scripts::FIND,
        &scripts::ENTER,
        &scripts::BEAT,
        &scripts::CENSUS,
        &scripts::DEAL,
        &scripts::VISITS,
        &scripts::LEAVE,
        &scripts::BIND,
        &scripts::RETIRE,
        &scripts::POLICY,
        &scripts::RESTORE,
        &scripts::MEND,
        &scripts::ZONES,
        &scripts::DEFINE,
        &scripts::LEARNED,
        &scripts::DRAW,
        &scripts::MINUTES,
        &scripts::SERVERS,
        &scripts::STOCK,
    ]
    .map(|script| &**script)
}

/// Servers of two versions may share one Redis and run different scripts. So a change must suit both versions, or what it writes says
/// that it needs the newer one: docs/decisions/two-versions.md. A changed comment changes the digest, too.
const PINNED: [(&str, &str); 20] = [
    ("join", "32c9dff84da547873962e750293a40f5ffdc4a5c"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "a2efd7c9853dc4ba363ab5aee040ec81aa09a31c"),
    ("beat", "4c25128a338fdf0ede0a5ab800923e3965a740e1"),
    ("census", "075c041bdf1ade21bf23ed72c7d2b9e23119d782"),
    ("deal", "08f01ed948938764ae1afda4dcb2133ee327421c"),
    ("visits", "5adb562d2d6d6f89df9aeec592359667028a9ee7"),
    ("leave", "b42daf0045a18cac17a9f49473b1cb979f346a76"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "5ab7d58bf111e8740870ab2192c362f0cf739770"),
    ("policy", "44743fa70849eb0e881cd64adc0ab9d30f97f002"),
    ("restore", "200314cd24eaa4fce11154a88bc59b357b726ab7"),
    ("mend", "0dacd4b81577a98671bab87f6c4c33bdaccde48c"),
    ("zones", "8c2d930fd7120c2d4293c04d3318409ed75ae3cf"),
    ("define", "19bf0e251b614ef4aa1578badae117a7d804c35d"),
    ("learned", "5356420f63b92d77a7fb0e87103999ee3dd191bc"),
    ("draw", "7928eb684e7e5a26d0c0727a706ce11561b794c8"),
    ("minutes", "969fd4cdcacfdcf51bf9eb4f3b6d87c5ea8efc86"),
    ("servers", "9972a20b89a7ccccd71bea10ccc5f56a6b6bdd1d"),
    ("stock", "129e82f52c6e8faafbeea4f968ccb4e28aebbf8a"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
