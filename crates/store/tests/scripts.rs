//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 21] {
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
        &scripts::NEW,
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
const PINNED: [(&str, &str); 21] = [
    ("join", "13a6b72cd7a8666082a780895c589887ecf4f84d"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "ceea24035d42a9eef699ebfbd091c22e8eb43c75"),
    ("beat", "a07ffed56b7028b90149b354b03588d776cac3a7"),
    ("census", "00436fcce7ce6d1815d37ece8efabf81644325fc"),
    ("deal", "a22064eec0f389f9e1d3360fbd9f20415eeb15be"),
    ("visits", "45104416cd8d6b634086c3728b9449083c37d60d"),
    ("leave", "b80e340b723fc685bce017c3c87b66855e80e42c"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "f56a852a6592550e92be9e57aa2086d2e4d77c4e"),
    ("new", "4373f0401859aa6a53c0dfb4e9d2f85ec5d16801"),
    ("policy", "a4c1150b85fe34fdebc20f5939760331747262e1"),
    ("restore", "cb2edbfc91f51e48fa30823763402b478b417bb3"),
    ("mend", "1b4a290651741cf232bda1f269fb3daa1e60d689"),
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
