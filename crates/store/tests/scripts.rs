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
    ("join", "19c146007ce5245f1beda51bdb0894874930e126"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "566337ed90da52450a8d2cec0871b05bdd31ed78"),
    ("beat", "9956ef42a75ffb6a2aae23bb78eca4b24f30e7a2"),
    ("census", "fd255df7b933d746202da1fa73a8331c79f209b9"),
    ("deal", "10be59821632fa3b6d6fff83d9658960e4a73447"),
    ("visits", "d96473f9e0160c7baf4ffb0951540fa79dc7cc74"),
    ("leave", "728601a82eed7d14a5b7fe453df2c21ad13ab2ba"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "bf8d7552f36c4f5a5e6006de11861ca8ff9d70e2"),
    ("policy", "1e036b660d011e4ce1a281b1482d1b3bcf9cafba"),
    ("restore", "55886fe523f67b73e2d50e14d5080fbb7c278380"),
    ("mend", "ad5fd99bbb6ee2ada70f1f3c1f8d4eef2c15b08c"),
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
