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
    ("join", "4de6b9dd8aa6382dd414f2aec3b1a28d668f0a4e"),
    ("enter", "59d89e8ef37bde68e8fd695fe1e55f791f8e299d"),
    ("beat", "6075e9fc3791e25293872c3758d1d452ee4311b8"),
    ("census", "4a8dcaa50c6975629c22ed6f83b7ad56c554c65a"),
    ("deal", "ec2745b39e5210e2155c8a063e7fc69345b6a35c"),
    ("visits", "470de68dc888fb3b00c32c8172b902c9f4c267d6"),
    ("leave", "a63c52520091ae7b1b63d973c79663a288989bc2"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "4bef368d5929ed6bcd0b956c6e340d9b5ab429c6"),
    ("policy", "6ed35a74f67eafa8273baaedc08c1b9805c80229"),
    ("restore", "0e81366f51ce51dd64450b93e8e00c9d3da2f309"),
    ("mend", "a7646597a66f38c2bcd4c45b88c3083ba4399e1f"),
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
