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
    ("join", "7b6a16ae09d0860457def3f8d1ead496586ce5b1"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "df96b8b288bee172a1702ce313c4c74bee7ee993"),
    ("beat", "ff60e9185701cbf5229d6dbc57abe61b08d28f9b"),
    ("census", "60a07262b692b6dc67cde39621b8202f7cc1a4b7"),
    ("deal", "b77ed0b635cbbc9973b0f96e53ce9ac4705da761"),
    ("visits", "0cecd09c4e64103486dfa0762247dafc7befcd1b"),
    ("leave", "acb055f7c3cecb80a528a0819c0da5b58fe632d5"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "9c0f8749f00ac37a06baa5123e1b0a53ca6aa0eb"),
    ("policy", "2764b081c7fc04f1b7629c0dd2925095ab0ae9d8"),
    ("restore", "4a28f093112489ba730913862ddc8a90e487929c"),
    ("mend", "7ac717fa816ace0ac96eba459aba87ff8c4eaaee"),
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
