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
    ("join", "6185982c1b376df1c8ac74f85520015069604641"),
    ("enter", "c958c176d3776ef0ee9dc7420af3d305ae24b553"),
    ("beat", "a923eeefb68c7c9b93948d0a3ee3ee8f63f83d6f"),
    ("census", "8b6498dd5757b38a408d6e3ab7d3d86b1482fc3e"),
    ("deal", "2cef81d4b6b93912248fe3219e8ff97949b16cbb"),
    ("visits", "37b13c02d7abe2de3e2f70db78f6a6a85a60f144"),
    ("leave", "b7d5d8c5bd4e79c51a5331ff15ae93aa56838f2f"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "6a9e00f8dac5f37a4382cfb466764b4088561bef"),
    ("policy", "c4e6d3831d1f84d35759d754e0867003fcfc4ce6"),
    ("restore", "e29d53039d3e2d540911a522d12efa66e70877c2"),
    ("mend", "ccadb086de81f5a604b9d268df5a085fd7c2f9c1"),
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
