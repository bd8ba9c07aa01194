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
    ("join", "64386bd7ec2b156674c7714ee868876a4de2c1d0"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "2016d4e2e951a7c84da4a4a03621c3dc29635f48"),
    ("beat", "6b1aff68ee4cbb3ee94d7dccbb2c717a115fc032"),
    ("census", "ea8cbe5cfb130bd51bd4d60f6504f2fa5b5222e0"),
    ("deal", "df15ab989021b752543ac0d8146aaf69626eb5da"),
    ("visits", "a96d5e1bc86f2db1df138f57b6c16fa2bcc497c1"),
    ("leave", "f41501a35fd35f36ad5911d0078b1c9edc04fb76"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "a469cd95e92d813a1bd1b798bd5de588e9f1bde1"),
    ("policy", "a49255be7fc9314a953617deec091f207a71ce53"),
    ("restore", "f845d7ef2b9960a3831bfc3743bf3ce482fc73e5"),
    ("mend", "7728c1714d6eaa0ac4879d09bd51628f9d7a2127"),
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
