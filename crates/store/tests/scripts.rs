//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 14] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
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
        &scripts::SERVERS,
    ]
    .map(|script| &**script)
}

/// Servers of two versions may share one Redis and run different scripts. So a change must suit both versions, or the
/// version in the keys changes with it. A changed comment changes the digest, too.
const PINNED: [(&str, &str); 14] = [
    ("join", "e8a1ad3be771561fc69ead03361ea10f43dc291b"),
    ("enter", "fd056f4ef8fb71126d4e4a0a8662faca2063e68f"),
    ("beat", "6d8022afb72f8635be3b848dfd06fac2a3eaf7a4"),
    ("visits", "e77c200dd7c840270043e4f63660f388f7208a4d"),
    ("leave", "395bb6ecdfdbd4a077d3892df722231bb4832b3f"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "165d6f10f3de2c95213390c314c5a280b4c5fe88"),
    ("policy", "56d0e1920cfb7e5d098fe9d414539a3f8454338d"),
    ("restore", "09240f8f1275515319395cfb687b59ec7abfdf1f"),
    ("mend", "8daf0f7960abc88ca34089bfee9b02836dd05a24"),
    ("zones", "2e12e7e991e72fffe58cc9a18de745493cf9e632"),
    ("define", "255209b08618c3103be13252d3a6b19ae3b6e66a"),
    ("learned", "5356420f63b92d77a7fb0e87103999ee3dd191bc"),
    ("servers", "9972a20b89a7ccccd71bea10ccc5f56a6b6bdd1d"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
