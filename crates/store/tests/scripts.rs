//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 20] {
    [
        &scripts::JOIN,
        &scripts::JOINS,
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
    ("join", "dd8a0566027810a60649a5855286e3a6a549a451"),
    ("joins", "adf169e60e4dc4a4c39390ed55aa8121f13c616c"),
    ("enter", "4c7136f172bba0aeca1529d5757e5b38602895e7"),
    ("beat", "7e88feb3b490cfaa7d50b50f112527172be689f6"),
    ("census", "46ed737aa86970ebc753b326bf5aa7648e1e97eb"),
    ("deal", "61a1d378fe0340239eb00808f1c730a047c5188f"),
    ("visits", "f48e18b681f5c9f087f02324b2434c24785b9887"),
    ("leave", "8a906ab8f3d426c4d8f256c38cdcfd3c79ab9c29"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "59ca600393d2e99cc95463a1311019c836d2bd9b"),
    ("policy", "1e170fd2b8e06ade2206a56d3c676030746a3d3b"),
    ("restore", "af2d9dce7300eecc41d4bcbab978051952c7a23c"),
    ("mend", "96b301228b48311f7eddf6a4c0c6040bece25f3f"),
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
