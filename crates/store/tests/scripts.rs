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
    ("join", "7ac074790caa5ce525a788386260f6124398cb4b"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "6591c4b6be5dea7dee4e3c1272239d9526ad2301"),
    ("beat", "2f966fea3719b0e759804dd99a1084954f20e153"),
    ("census", "5ef95f538f6b47999018c6e7c060f740acd63af1"),
    ("deal", "a4e1e0c75b7e7c270fe7648b2b72f8687aa8093f"),
    ("visits", "69eb455f117b291e904f826cb8c7cd89827763ca"),
    ("leave", "3174740775888dd78a344a7fbd11bc0e2d6db0ad"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "ff2c3d99c760f12c8081f0a87c2273c0be312a9c"),
    ("policy", "a40e79a0fff03ddfe20291c0e0bb7623a740b140"),
    ("restore", "996af3eaae7aaacf63feace1c038ea4c4f973986"),
    ("mend", "b536464e544407a22d7f2f4f67bc1842696a3c31"),
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
