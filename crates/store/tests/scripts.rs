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
    ("join", "6f0ba3866506825844b538be92b7d08e427007d1"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "ce4cdaccdcfb49c843d27404be9d1e1bbfd3a013"),
    ("beat", "12616d51e3c8671493076c9f804b82feeb22ab11"),
    ("census", "5ff78cc89600ef1f791eb78d657951a9f22ec6b1"),
    ("deal", "034713f1ae5756a0e03abbf7d60ceb069be54349"),
    ("visits", "52049917bb491db14125d86d75e2c1c8ac4167ba"),
    ("leave", "26ca8d0445ddaae48c8a1469597a558866d33cc2"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "3af1a154778ef7ec3e2271851ff4404053ebb49e"),
    ("policy", "5c29960cb6226fe937b04ba7fe8281531a414285"),
    ("restore", "650074b01ecae7da4d9313843d9dd7acc85f33ca"),
    ("mend", "5dd6c98a2b3a57d962f7ae354f2e605c42fa8cec"),
    ("zones", "dff049337db80598485d179d7d3be18d7d1a0232"),
    ("define", "56c313d0504b83f501fd0dca7fe6ca8fe3941ef2"),
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
