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
    ("join", "e9349ed3dcbd16332c477ac676f327f35d68e694"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "bfb4648c56df793cf05e534d1fc44f7d95ccc027"),
    ("beat", "5fe54776e9ad78b3ea540bd141bee84233215a51"),
    ("census", "2e3c49c8829dc99ead319df8308486b95527947f"),
    ("deal", "210a5cacdfbb2bb24f5899e4a5550a0e91f669dc"),
    ("visits", "f1014d4ef2b306959c554a7b1ab89ac5aa4abb5f"),
    ("leave", "3da811a08ca669c49227fa9d4258dc8ca4e3bdc8"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "41b7a251e86b8ed6e6fa1987a55195f171c27413"),
    ("policy", "3ebaf6d0225a4075e5808a4cbfd3358e19fb4a35"),
    ("restore", "31256939ee5f89cd00cc6afeb51709ba53f0e113"),
    ("mend", "eb5e12aab10466806d02d4629bae3ab6e0380fd5"),
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
