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
    ("join", "427cc20c99ba127b1a406cd75f9f6e8b000fb709"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "9f7bc3419def7dba8cf311b0667263dad0b1b969"),
    ("beat", "d91931d3905b74e60b672a61524049d5e059d254"),
    ("census", "ee0f522615022792fdc2fd648776b3248d11a89f"),
    ("deal", "d84021f36e33350a52a4db7084eae6215f46a0c6"),
    ("visits", "5c4fbcd64e48613056e50d1af0d17378e43a0703"),
    ("leave", "0039706ff14182bd8ebe87a67a410d8568d53dd7"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "d1f8fec121275de3896ad985eeb7efa1d1b43216"),
    ("policy", "e1bfd1aa6cdd5cd1914e7aff8c291a17de6a4d43"),
    ("restore", "2465b9a154aca98c2f1aad328a64375eab0ee009"),
    ("mend", "254d30add762af22cc7dd63b75b89109e394fae0"),
    ("zones", "8c2d930fd7120c2d4293c04d3318409ed75ae3cf"),
    ("define", "19bf0e251b614ef4aa1578badae117a7d804c35d"),
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
