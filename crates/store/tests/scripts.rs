//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 19] {
    [
        &scripts::JOIN,
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

/// Servers of two versions may share one Redis and run different scripts. So a change must suit both versions, or the
/// version in the keys changes with it. A changed comment changes the digest, too.
const PINNED: [(&str, &str); 19] = [
    ("join", "5406ef63bc68d3979318fae227f0c5c69c7e5a49"),
    ("enter", "136ba82a1d736a6046290f4641c008cf2e2d3f12"),
    ("beat", "7f513e30cf7df4102cc7ee435d5a3e81f87a9c32"),
    ("census", "00a99e9a50c04b373123c6c06c352efee7fe4257"),
    ("deal", "e6565b9dd972bc142e5ceb3b8a3ccd3a617695ce"),
    ("visits", "2294c1dd09104f0da7711ddbec0b975e1cfe345a"),
    ("leave", "2fe0940b5a3cdd0df1217fa8a7644598a3ff8ce3"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "9cd66ea72b680a04b72829ce7e73e2d25020e315"),
    ("policy", "2b7803dc9f0949bb95c6cf757eb6674804256a07"),
    ("restore", "373371ee7f39bd961b195fe569db222372f02772"),
    ("mend", "10974a855a28af78db809bea0ac5cbde78bf3158"),
    ("zones", "505acf1dd8613e6320b0cbede27ffdef98ae11b8"),
    ("define", "1ad4d1105e5324b4f2e49208ec60d4cb0bad16d5"),
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
