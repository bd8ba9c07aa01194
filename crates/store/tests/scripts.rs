//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 19] {
    [
        &scripts::JOIN,
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

/// Servers of two versions may share one Redis and run different scripts. So a change must suit both versions, or the
/// version in the keys changes with it. A changed comment changes the digest, too.
const PINNED: [(&str, &str); 19] = [
    ("join", "d37f88d2cb84bc4c1b27e7feee315a7bda90ec91"),
    ("enter", "5349b21087dcc4268e3abf1bbf81fb7efe358d5c"),
    ("beat", "643a966dd25c9645089506707852a5527b7beda6"),
    ("census", "c99a43b4670f7016f958f88789bc2e9ef340e585"),
    ("deal", "9c7f78926756c448cd30d45771971c4e40ae1442"),
    ("visits", "b1d5096547391ace736dd4aa95e26d9def267398"),
    ("leave", "309b30e154f9ec95935e38e94c596eedc2bd6496"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "ffa1b4fe94159219908772bf8a0ee1640a5d5a5a"),
    ("policy", "8fa14d18863e4969753ecc22524c68ea52435397"),
    ("restore", "0cbeda3a51e2708e08ef540b291a91e0d0c3b0ff"),
    ("mend", "ca30f3626d991020b9c4ea0f6d4a25081434a439"),
    ("zones", "505acf1dd8613e6320b0cbede27ffdef98ae11b8"),
    ("define", "1ad4d1105e5324b4f2e49208ec60d4cb0bad16d5"),
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
