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
    ("join", "287f4884929958a0039531ff7aa7bfafeec96b69"),
    ("enter", "7f6d446c753a0fc6249f2d2b9ee8b240caae582f"),
    ("beat", "637cf647af84eba411bcc825e683bd7e8ef22ae3"),
    ("visits", "0944f183710ddbdc15a19ecdc549d65c28ab7ede"),
    ("leave", "fae36b1addd934f3de3744d9783df48f97a8d159"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "b9feea6ac3ec9ebd061f821f797ab26e011c7b20"),
    ("policy", "bb273d327917c14703b3e2a6f100a625bc9b9537"),
    ("restore", "92b4babd8c8aba7894fcd4c8443c22f1d9640ed4"),
    ("mend", "272305c10f2f392728ff011a5950e3491b927558"),
    ("zones", "505acf1dd8613e6320b0cbede27ffdef98ae11b8"),
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
