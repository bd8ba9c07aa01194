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
    ("join", "6af6673325911b9784b8e25bb6bf59e89eb3e5ce"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "e54924b42b47900bdb6ef9099c6de46a7a06f340"),
    ("beat", "bf7a5c4830f5b4cd9c8d00e4a3a1201092bdb292"),
    ("census", "e4152304132a0ffbae9ee8f410b8864d917434e3"),
    ("deal", "78a1a9f6f7f2c9f76f5c60ae6ca39f57548e0a1b"),
    ("visits", "a9ea3bb3c87ac6e682968adcd69f48b1786812f7"),
    ("leave", "11c7c206f80fb2405b647415625328bab2c2903e"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "e940e5c0ee1ca2cc5f12bd3d04c17e3100c5fd93"),
    ("new", "3fc44e7d46d8201932c7925b47dbf4a9e28e65e9"),
    ("policy", "ed70ed7fb247ca7b6ed8e44bea93eebea5b9197a"),
    ("restore", "b7e4c53b1200caf5940dc76096c01b4698ba7192"),
    ("mend", "89776fcb28a08f757f1f7d573089517211ad32ad"),
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
