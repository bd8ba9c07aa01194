//! The scripts of the store do not change by accident. `scripts/test` lints them.

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 13] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
        &scripts::VISITS,
        &scripts::LEAVE,
        &scripts::BIND,
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
const PINNED: [(&str, &str); 13] = [
    ("join", "20d33c8998ff258d9455153a2e74e5147227ede2"),
    ("enter", "2fb840a13beb72eace3f1f9ef4f71fada5a7a829"),
    ("beat", "0126ab361c03581d31a4a5fe73c875dc565e8e5f"),
    ("visits", "bd5c244cc29d0e104ac539eb4ed95fc3c78f40dd"),
    ("leave", "40256f3156100d65fa081f1e7609463c2a6b6281"),
    ("bind", "2ad6499f0eb353a65b1af91c71061b65da3b9345"),
    ("policy", "3149c3f0591951460aa0babfdddb79385b2ed843"),
    ("restore", "cedbc1a99b314ed6da12f9762c446dc267f453b5"),
    ("mend", "0"),
    ("zones", "e75a47ddd4d017193c024ae49ba43873299b8b8b"),
    ("define", "c226b25630aeed362ca76d262e56dd7a2dfbe0b5"),
    ("learned", "5356420f63b92d77a7fb0e87103999ee3dd191bc"),
    ("servers", "daf115c163bc0e4c45e2c67f62eee522fba8c30e"),
];

#[test]
fn scripts_do_not_change_by_accident() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if this is intended, set PINNED to\n{listing}");
}
