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
    ("join", "d19d9e2f2134ebddc9a7c6ecf9e0a70cb9d6c044"),
    ("enter", "5b5e95269f3ec9b8448ba9081b0468e60d592935"),
    ("beat", "9547bbec7d82bacc24a1790a60216c752d879970"),
    ("census", "b361c8ce599d699475c37afa5628f70c0f59927e"),
    ("deal", "ab0417880311bbe722d9902416ef2873f8d72679"),
    ("visits", "f67e00033814546a4fabd031c31c5eb1586329ab"),
    ("leave", "14add76cc4c784af4c951a827dfbff96c7366719"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "facb6c43fcbb4d23dc9252bf554d1b01c85523cb"),
    ("policy", "a8c338c2f3e3ec0d4050bade5b3b17fa55e9f790"),
    ("restore", "62831b80aef7784954bc14366bfe83d4e5433957"),
    ("mend", "412464966281eade25336934934b7cff6ce21e72"),
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
