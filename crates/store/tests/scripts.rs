//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 15] {
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
        &scripts::STOCK,
    ]
    .map(|script| &**script)
}

/// Servers of two versions may share one Redis and run different scripts. So a change must suit both versions, or the
/// version in the keys changes with it. A changed comment changes the digest, too.
const PINNED: [(&str, &str); 15] = [
    ("join", "4c051ec74d89bdc9b30e28c70b49a824ae2e2040"),
    ("enter", "be8d0a4d34a91ce533b61b556387bdb4181305b8"),
    ("beat", "f58c9f8c7fad1c89f8efe562a07eed00174da293"),
    ("visits", "4f99318f57bffa906698b6162489bfb9e4a4b592"),
    ("leave", "afade56183b0576ce1b95f0f7277b2033b8e65b7"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "8801761bed9f2a50cc969be38d48c72349518827"),
    ("policy", "1c71afdcc07828b5393cec87eec427a59f3ca105"),
    ("restore", "47ae8eb55a0a575738cbd1e6850ed21a80d5fb33"),
    ("mend", "c106937a563861c982d2382b4196ff92d4a467fc"),
    ("zones", "505acf1dd8613e6320b0cbede27ffdef98ae11b8"),
    ("define", "1ad4d1105e5324b4f2e49208ec60d4cb0bad16d5"),
    ("learned", "5356420f63b92d77a7fb0e87103999ee3dd191bc"),
    ("servers", "9972a20b89a7ccccd71bea10ccc5f56a6b6bdd1d"),
    ("stock", "129e82f52c6e8faafbeea4f968ccb4e28aebbf8a"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
