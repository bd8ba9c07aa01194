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
    ("join", "76ce59e87650f355ba7542035eddedaeb7eb6c96"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "4bc425bef89da2a49ea362ac81918034a81ef9c7"),
    ("beat", "dbadeb99b4ee80a3d2d040aa04a23b7d4a78be3f"),
    ("census", "d2f6e023fb79a996e32425f10858f66f4a7af078"),
    ("deal", "5e9d44ed30d4c4cf31b2f65b2ed9d3f12b6a7762"),
    ("visits", "69aafd10fe6e817931b86cca12d51f44a7f84556"),
    ("leave", "28540d5a4219002aa2fdcebcce4e95c93a9f0e86"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "b70d0c068dd0f63c3e81cd05727d21ec3614dd3f"),
    ("policy", "2c8e3b007abe8f1213ee5db41d5f8b1b753868dc"),
    ("restore", "4926605f88b9ba4b603bd4f8bbf1aa1dda566c30"),
    ("mend", "a6c43a3ef0f3d131ef9d0fe6235499582a72f239"),
    ("zones", "8c2d930fd7120c2d4293c04d3318409ed75ae3cf"),
    ("define", "19bf0e251b614ef4aa1578badae117a7d804c35d"),
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
