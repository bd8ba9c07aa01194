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
    ("join", "d81b3e6b0b109a70dc9fefeecef75344b7640583"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "c08526e097c88344542e45ecba68a752676ebb11"),
    ("beat", "576cd89ebba8948e68785af3c8d2c92c703191c8"),
    ("census", "8c69a30664cfea68e3b957938b67a4824f5a876c"),
    ("deal", "ee02c76988f79ebcc16ebe93e3cf7418aa5fb1b0"),
    ("visits", "15038d61fac0e403cffc5bb03fc5087befbd98de"),
    ("leave", "48dbaf381b77382e1501b91200fedd2aaf55b0f1"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "dc8d96189ba8ca58d902229c60292978eb77c9ab"),
    ("policy", "4aa72a4a97d1a6560ba5d5daab270e473ad55e43"),
    ("restore", "f771d8172feea9f41df691c36c4f0593a14028ec"),
    ("mend", "094bb47df31444007ddd24eab1561e3d3ef40ca4"),
    ("zones", "7467ee2500847ed091297c6aa6e975a1caa85e2b"),
    ("define", "c23ca024a7d7962a8063064ef27ac789bd6987ad"),
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
