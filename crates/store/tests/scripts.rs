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

/// Servers of two versions may share one Redis and run different scripts. So a change must suit both versions, or the
/// version in the keys changes with it. A changed comment changes the digest, too.
const PINNED: [(&str, &str); 20] = [
    ("join", "773a1df7d04e40554afbd0c88d2c4b85be558965"),
    ("joins", "adf169e60e4dc4a4c39390ed55aa8121f13c616c"),
    ("enter", "a2a11ae324dc3a50379f0ab85023de3bdb53839a"),
    ("beat", "f0c9a3b4dca6471e8ad8f28a96960bebe63ecec9"),
    ("census", "8dba3bcc958e74d61d2778daab71950af811e319"),
    ("deal", "528da3566f8d812d0d3122888e6e3e3e9288ac98"),
    ("visits", "0fe0d15151931b003117f4cb1e387aa2bb15856e"),
    ("leave", "f27a6b73f2b05b9d3085d0a569f6a4c668daf79b"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "036614ffecde4cafd5c6297066780ec26e71b76c"),
    ("policy", "d0b6cb30548556c9c56a841b5ce3146370bc5710"),
    ("restore", "906755ac916f47aa1d9349bab09eb47c5d51e3ba"),
    ("mend", "a451a7da185a7460b2594e33dc6cd8eb2ad9f53d"),
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
