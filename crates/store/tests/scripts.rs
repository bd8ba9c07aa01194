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
    ("join", "f428a7b7ec5c344be2e5109db869e7166da111b6"),
    ("enter", "46479d29f04120145034a66bf393a50236c3aa83"),
    ("beat", "e61ff17f1ea25f84a1d4564931e1fb450f896e8a"),
    ("census", "c2834b4ebf229695659e155bdd2bd2b1211cda75"),
    ("deal", "eb1272483dfd950b50163e427eaf443db837f51e"),
    ("visits", "228b5ecffe4958a8747343b0e2e4bf73c8942961"),
    ("leave", "b78b3f645e02f9499de7e6bb412d3458a708499f"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "a80a2d7e2183c59290b922a3629ff69e9723859b"),
    ("policy", "ed98d5f7d69d529a4098de0678affbc2bbe76b7b"),
    ("restore", "1c6e5996684c8983afb78cdf4046db1bb3fe0a0f"),
    ("mend", "73a09cd945b7851345e96b8514b854ad1f74221f"),
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
