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
    ("join", "426da93f9942bda3129b75749e24fa7a1fb71164"),
    ("enter", "0fc3179d9b983166df1f27c7c7c47790b644efa9"),
    ("beat", "2822c331fcbbb3f95fa38e8a0e7b1212bcc453ba"),
    ("census", "c11245c196281c065f78c3c1ce0ee0c04b406dc8"),
    ("deal", "1c1aeaddd826c1d8979af5b0c4351d60a8d62d03"),
    ("visits", "d3125eb89025986982f2e2f6a6ff08e8e8667698"),
    ("leave", "b862e497b8e18b01bd50864bc99e399448d1add6"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "cbca9207ec4164b108a58d8fd86f6ff75e3d9a34"),
    ("policy", "4a00e16552723e94a5fe69ccbf2a167a865eb43f"),
    ("restore", "edbf06912169cd3ec9abf7fd8a88f15d4fcb99df"),
    ("mend", "6b9bacef8206acc5d2d69f52bb34808f39ae5c16"),
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
