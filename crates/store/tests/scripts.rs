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
    ("join", "5ff879d5e4442c7aa117b476cd4310b01cc8e761"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "2572a2789337e3dca6388893ac5a07e2af8cb2d2"),
    ("beat", "1a0606620cf8d2f4504dbf5c14e84dd4b7a6d5fe"),
    ("census", "22b2e25b576d32bff6b16cb481ea880002869bfc"),
    ("deal", "b6858c9960b10245ff2af54bd5eb7980aa56b30e"),
    ("visits", "f47312edd34d9a0fb65b37be3ae46f66972d18aa"),
    ("leave", "f7677646dfab06b9bc10f65fc21cdaecee7ccdec"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "f8b7a825acdf670c166942d341b0c046f4e10a60"),
    ("policy", "06001d5baf2c104933f4acf70c142b700fcec749"),
    ("restore", "c98ac369cd7f63fff2c06da3b506bafc3e0a5315"),
    ("mend", "041a1bdf48b631cc755c42d4189dad28ba6edcc8"),
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
