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
    ("join", "984f06d97f0e55c76bf3afa794ac9708e902689d"),
    ("enter", "2b60183402eddc0072c48bb405a7cceb3a664ffb"),
    ("beat", "5eb00527ecd1ad963e8f6dc15b3b7741a378175c"),
    ("census", "ea560d9162a5c76fc58efb24ac77b75cf7ff7074"),
    ("deal", "e73b181a3c3b6107b342cc41b64ffc7dbb51eb60"),
    ("visits", "2069e9ea75368168e177fb5d37a36a623c3339e1"),
    ("leave", "21d00705f7746b70dd03fc7f807bd448fb05ee62"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "b868b6e7458fa0a21e118d0b9b7cb5cfdeea6c4c"),
    ("policy", "baaa6b64af5082434ad9d47001d0f4985357bdf2"),
    ("restore", "988f9f1649c77b5d5e4740fc1f6da09a135971be"),
    ("mend", "62501dda725ef54f751389b33b4f73322894afc6"),
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
