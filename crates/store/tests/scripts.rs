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
    ("join", "1ddfb6a23c0420b9af287b7c078621183c04baa8"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "fe070f27f652677a6278c247636e1a68f3150d8c"),
    ("beat", "091b8acef4c16d359f4440544879633a97e8b0e6"),
    ("census", "8e10b53540c38cb38c6e5f59cd0612413c7a40e9"),
    ("deal", "56d0392103bcdc597643c71c5990040db2d2e73c"),
    ("visits", "b96216df5549bf1348b60c8174172c8b93c68ed7"),
    ("leave", "6ee29f674679264b0eece1ad26803aefbcde0a2d"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "2a7398e15c71ebba8d312ea160a1eba7d2a9e6fa"),
    ("policy", "c019331eb18e8c8d926987c61131b60ce834737d"),
    ("restore", "a38f47876e2f3f47e888b9d7a68bfe5d683f62fa"),
    ("mend", "15253bb34f4af5e4b28f7690424d4602dda3ab7a"),
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
