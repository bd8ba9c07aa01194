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
    ("join", "5369f57a080c132540ca408bb696ea88bce26942"),
    ("enter", "246c5996456580b16139a9156b0bd5e7f62aac4e"),
    ("beat", "9423bc3e462e2aa9ffde9d34f454ca84ff512064"),
    ("visits", "6ecd8a674afe14eb715b8deda940d332c8f6ad5c"),
    ("leave", "16621f7ee6e06d1d6f3d1daa54f896f96e1d6f80"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "3c651a281092dd6857c02810f7420be48ae55987"),
    ("policy", "ae271669775954ec5f0145e93bf75cc956e912c2"),
    ("restore", "6af81656fe51496d1ea7ad247b70732cc79f6658"),
    ("mend", "6005b7457bafccc2716faf032c0e2f43beb2e3ab"),
    ("zones", "20674d066f369f58b36e710da5929f107dce8429"),
    ("define", "1ad4d1105e5324b4f2e49208ec60d4cb0bad16d5"),
    ("learned", "5356420f63b92d77a7fb0e87103999ee3dd191bc"),
    ("servers", "9972a20b89a7ccccd71bea10ccc5f56a6b6bdd1d"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
