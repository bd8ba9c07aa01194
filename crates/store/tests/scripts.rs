//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 14] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
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
        &scripts::SERVERS,
    ]
    .map(|script| &**script)
}

/// Servers of two versions may share one Redis and run different scripts. So a change must suit both versions, or the
/// version in the keys changes with it. A changed comment changes the digest, too.
const PINNED: [(&str, &str); 14] = [
    ("join", "ac792fc42c984172678138a223f4f5e7bd1db76b"),
    ("enter", "809db3ebe4ec3c3b9c14306fc289f2b0bd8384b6"),
    ("beat", "09b3455081d8c3fad7bac288b2f45c33ad02fee6"),
    ("visits", "f6393a3a8d65cd9a0fe38c6ad1d75825f8dd84e3"),
    ("leave", "28c5b7ed581e7e08b96ecea4110f6ca244dff4f2"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "2ab858c42f0ef929c95d1d37f50edb497e091967"),
    ("policy", "3aee74d308d66c4adf9a554b36298bf4f7760c57"),
    ("restore", "60841543dfe8bd94f334b7928b5a85fceae9c15d"),
    ("mend", "76c4a78318525616509a00c81fbcbf6740085ae5"),
    ("zones", "505acf1dd8613e6320b0cbede27ffdef98ae11b8"),
    ("define", "1ad4d1105e5324b4f2e49208ec60d4cb0bad16d5"),
    ("learned", "5356420f63b92d77a7fb0e87103999ee3dd191bc"),
    ("servers", "9972a20b89a7ccccd71bea10ccc5f56a6b6bdd1d"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
