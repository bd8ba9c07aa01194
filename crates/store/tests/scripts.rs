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
    ("join", "2a31d0a554ab4a65e2a3d356ab01983caaa83fe6"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "d59ba307612b2e5bdfee60ced11882a451f6f7eb"),
    ("beat", "1a89a5f2a2ef6ea352627f0d909e53f589aa192e"),
    ("census", "6801f1637e6025ef3cd7e46483a60d1aa0e9436a"),
    ("deal", "e3a800fe4e84583da57ec9f5f5e19a3982f0c5b8"),
    ("visits", "e39733fe742de4ca18c8a4f370b887ecfc20c373"),
    ("leave", "0342b17152de833040a1377b943c8c15cab0f540"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "e153dda3f3ab2328569246e51ff9d988dc4d8496"),
    ("policy", "2600938ff09ca118dc5067af78d08aa52948f52a"),
    ("restore", "98792509c1bb3590275bb939de43a3b46de7b43f"),
    ("mend", "24b3f1fb8716f28d0f69113a4d353f490cf8b041"),
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
