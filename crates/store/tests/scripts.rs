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
    ("join", "ef2c5393883e08ea1e6d73060bc70f52c53d67ad"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "c130c15cca1cd35eccc3589e9db792f066e42d8a"),
    ("beat", "568cf5012749e409111bef6057f9fb50b4732c15"),
    ("census", "6e90273c1328e9e96b80081468353ee36f8989ae"),
    ("deal", "0730fe86ddfb3c617b1cd51de38868f6039e5b86"),
    ("visits", "6727bd216e715f094a5269cd9459220ac271984c"),
    ("leave", "8e9d28f01684fd7ba1cf4c21f095be26a2571a2a"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "2f7029f8fa185332e17fa4f051d19efe6bcf95f3"),
    ("policy", "e8f69db5c1c9f83629dce986d7f003aca62d5a50"),
    ("restore", "a90e1a9c8e5a28d710e78f96bc0aad58699363f5"),
    ("mend", "a040592f6bffe5617d97513931081b15da47939d"),
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
