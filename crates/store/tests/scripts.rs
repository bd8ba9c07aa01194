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
    ("join", "286cdf7ce776cdc42f2c0389393668844c14f9d8"),
    ("enter", "ac1ee2d391faad3f592d5e39585b8b1f2eb1cb22"),
    ("beat", "179715b9f4451e0b8a62cfcd320eb834d9968094"),
    ("census", "856a9556d419c77037a649b87dc3b6d83e1b7a9b"),
    ("deal", "2bc75b1024eb0437128427b46abb7186faeecfe8"),
    ("visits", "973c56573307804433b19f7168f1777560d9568a"),
    ("leave", "989970340ee488944678ee1fb7fa473d58dd4bd3"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "51d05348819ee43cc677ea1736e36cd07276dea5"),
    ("policy", "bcb5d58628388919e15b7c327cbde0dcb3518231"),
    ("restore", "2f3e0180b66c05cbd2eaed826cb1d43773be95b2"),
    ("mend", "2d2fb84e91c9fab76a4e3a8d5a78ebb3310af05f"),
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
