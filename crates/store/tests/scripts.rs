//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 13] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
        &scripts::VISITS,
        &scripts::LEAVE,
        &scripts::BIND,
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
const PINNED: [(&str, &str); 13] = [
    ("join", "eb1cbdf223d9f5ccace76dc79d8499d82c988155"),
    ("enter", "5b48b3ecaf6a8e2ebbacd24950e2abd68f1dd2e4"),
    ("beat", "eb57c8f86f1585bf7bba7332a0e1f976dab5e69f"),
    ("visits", "f44dc2344074023a3c8ee64656adc1018df5ed8b"),
    ("leave", "cddc916acf963106a65e7f23434cc6da495ac07f"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("policy", "f12a59756e96f2928a2c04f096423da7aca56c26"),
    ("restore", "894801e9c1983715ac74a5528f11f25fc7af529c"),
    ("mend", "19aa9c9f55e4149d527bb8af6fc97247c02f07a3"),
    ("zones", "2e12e7e991e72fffe58cc9a18de745493cf9e632"),
    ("define", "255209b08618c3103be13252d3a6b19ae3b6e66a"),
    ("learned", "5356420f63b92d77a7fb0e87103999ee3dd191bc"),
    ("servers", "daf115c163bc0e4c45e2c67f62eee522fba8c30e"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
