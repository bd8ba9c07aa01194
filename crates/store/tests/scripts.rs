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
    ("join", "73bd8d4231f71b4763688615cd4055eb3ff54a7e"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "bb722e0aca8aaa5aae3a1f2b128b26cd2d6d1b48"),
    ("beat", "4a47e0a528d609514188d4986bb0d85f93c796d9"),
    ("census", "4228e4e87f14c5a599b7b8fbd83aa428d138eee8"),
    ("deal", "be2eaf4cd6ea499be3d002791b8298f6416c63e6"),
    ("visits", "c0847c05fb631a2c23b85935f5ea6f985631fe7f"),
    ("leave", "6053a044947e2d0068848c7992ec8f717ec545ce"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "fda065e4cb579e1bd8d930abe799fe8825269d97"),
    ("policy", "6be61009570cff15c832634a8343c98de675e845"),
    ("restore", "ec942cd028d6f35b36a3dda0d5d77582b700d46b"),
    ("mend", "eb987f7ece9e44aea9bacac6346d3e38b3709ee0"),
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
