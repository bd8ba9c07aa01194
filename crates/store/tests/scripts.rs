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
    ("join", "f8e0620d8f68d304153c6e350aa17420ab797fc4"),
    ("enter", "71b33cb38fe3b23c0f5915b84fc2b7ab58823fb9"),
    ("beat", "fb373336fa5a55367e5fc370963af02c6b04fb07"),
    ("census", "e279154db8744d533e2c0442f0686de8a5c22bf2"),
    ("deal", "0632d0ca059db26e689717cca5ad6c7e0e624959"),
    ("visits", "00bac02236d344eab37d05315c986bcdedd409db"),
    ("leave", "498cb5aaf99635384c0174e52e5000e8ea4079c2"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "47d5085a569e70e61c18ff27669cabb9a7acc14d"),
    ("policy", "ac60106437df1b2e3bf0efcdce9e14ffb942b0d1"),
    ("restore", "f20f42b8377309efe21eaf9515f636e17e852ba8"),
    ("mend", "42b2ae77a067a2a2f8c1a9f1f61e3b4b1be30cbc"),
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
