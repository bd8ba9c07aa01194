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
    ("join", "772c33ecdeaa51f48b514019b5053d35b96b5e30"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "8b641c8cb5b89279069627277a2268c43d15c2ff"),
    ("beat", "231ec7ac8a88ffe28568feea2d672333279d51fd"),
    ("census", "6c4aa56904e32b8267981e2341e4c39981263360"),
    ("deal", "c0328deca62235e41f0ff1d950877d9bcd919795"),
    ("visits", "d806f31e43a664337b0b40b0a7faf04e77fc45a7"),
    ("leave", "08c5ec8922d5babd371a49cc6828c653bbf417a7"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "57abf7c1f32f718cb503c0c587f5dac38e2e7282"),
    ("policy", "9109d61b8635e2b078761e4582fe9af9e7a85798"),
    ("restore", "9842d93edff12daf234dee64f31e5d6ae9cfd811"),
    ("mend", "a9a6d788f7db09b6a25c32fbbce246d26e86c3b6"),
    ("zones", "dff049337db80598485d179d7d3be18d7d1a0232"),
    ("define", "d4e9dc1f28bd6cbaffb20201c3a50a6b4de32c37"),
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
