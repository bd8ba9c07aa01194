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
    ("join", "ca7af57009b29aeb1d1afcb815853c60de3ec12b"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "c2d91fa3e77b47e2bc18ffd36db2df854094d256"),
    ("beat", "9f7e5dbcc453809af2d90f34df0cc7b5da32e7a6"),
    ("census", "540bd35d624298995ece4c48a26835b0ae895e46"),
    ("deal", "7d1cd33eabafbb022ed871eaa959cf6f539eb6e4"),
    ("visits", "ad38b8bc05a8d0fe703705f2c7f9d53167fe370f"),
    ("leave", "2c4a08db093f940ed63b26036a196915d7cd677b"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "6272e09ac1ed9b3e59e037f9487517d79edf14be"),
    ("new", "8a18daea5aa269a1e0ad9a8ac602ca8d6d1f0027"),
    ("policy", "70c1eaefae3e9370ccef9783c6ee62bb55e315c0"),
    ("restore", "deaf92f1dd739ee4a8c3fc4ef828e223b1eefd38"),
    ("mend", "b4471f9d1bd401f97ca77c5ed8017dc20d44c798"),
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
