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
    ("join", "b4237a358393d74a2a3ffb758d09d9158791f315"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "c2906247a9803d97a1d69ecb67bf13323566c891"),
    ("beat", "4347081f0d0676cb7ca3abec20b22038ad087d76"),
    ("census", "24381edb6bcc4270df38b043b47fd36834bcad0a"),
    ("deal", "2042134e24bb6234fbd9e60f6cad14ed76cd257a"),
    ("visits", "70ae9cf38cf2c49faf25286c5f9fe296fd51ee3e"),
    ("leave", "bb9b9611c80c09f5fa7d24779a74e3157aaf2526"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "2d8dd9dcb284b146cc019e09495996d55aa0e4a5"),
    ("policy", "16f407cf0de10d92e98810bda52ba429c4b0b003"),
    ("restore", "bfa3ad9d1e648d7e2a77cc6283aadc4c38883264"),
    ("mend", "8371225111a2c466a99143401284585235ad8920"),
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
