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
    ("join", "749e4b183c0a7c8edd294e3c409b4ff2b0316a73"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "22ae93c3cb4f14f978f8f058ef332399b5072cdb"),
    ("beat", "0a9846c30333418145b6b2cc58c9b99927f4fabf"),
    ("census", "6b516f04f60f8545ab558f3e3cdbf9f853b06c03"),
    ("deal", "f1140dc1beb0883c2a65419dc87e76457a788c0d"),
    ("visits", "ad376a1d300438e846ab24c27c918c634d50c0f5"),
    ("leave", "ab5a074b07b34f0df89ecfbb24d4a4634467434d"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "4750cc09d4106ea3cf610606a63b00b4cbb36f03"),
    ("policy", "2655d73e691a950b832468de63304e86bedbe9e1"),
    ("restore", "a15d75431a3520a840ee327a6fb7a0ac0bc82dc4"),
    ("mend", "039a595a2887b60ce520fcba67e7775473e0c388"),
    ("zones", "dff049337db80598485d179d7d3be18d7d1a0232"),
    ("define", "56c313d0504b83f501fd0dca7fe6ca8fe3941ef2"),
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
