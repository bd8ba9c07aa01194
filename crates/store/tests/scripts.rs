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
    ("join", "4d613410e47a436aad5fcc07a79ca0ee7eb7bf66"),
    ("enter", "382781de3bad8183b56621651e54bd4f83abaf07"),
    ("beat", "8199d9e85517aeb93275e3ebead4feba43ee0959"),
    ("visits", "074519f5a7096da387235814810094093e5e8991"),
    ("leave", "d18bba05b97acb3f45437b5ff03499365bc808bd"),
    ("bind", "08bc5b084221138d275111256ab559dd565be158"),
    ("retire", "36f38d779dacfc1d9dd2c54759fc6f7fb00893f1"),
    ("policy", "2c933ab68ac92444d6f06f5dac1230942c8b1a76"),
    ("restore", "048faaa8d67ab2103b436aa7e08db7d0e5c199ae"),
    ("mend", "5cb2b83f9e1a0dff4de89978a3f880e329b1e323"),
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
