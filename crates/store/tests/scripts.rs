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
    ("join", "34bc52fa6c1926c60e21fd17499975ba8eb6bb33"),
    ("find", "2783e011dce2ef4e660e5a92edb844febe2689cb"),
    ("enter", "07943a21f496c7c79f54a82863432ca9cbdd7b76"),
    ("beat", "0fbec088151b6d75e20a21d3256fb0ef3527ae8f"),
    ("census", "a0bf3c11a295d0bab6258602c2f8a00550ab94ea"),
    ("deal", "6b0935be7185160508f8762a3bea11e8878b767d"),
    ("visits", "65cd2bcc9d7ae9aba885cb58bc3ef7b60f6b8d7b"),
    ("leave", "12becdf64f51147dc613d6a38468cb81ca1e87f7"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "35ed54471a17f4ab39b8a4e3b50cc8142af1ce35"),
    ("policy", "b9616cd23935560bb281903170efd5f598020a2f"),
    ("restore", "889daf935da04d4d79b4351d66409d51db6d9ffa"),
    ("mend", "bc7638260cd8b5b82f72611dad07389e2881a243"),
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
