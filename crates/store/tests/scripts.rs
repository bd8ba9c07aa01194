//! The scripts as they go to Redis: each is the one that was meant, and says nothing that a linter objects to.

use std::{io::Write as _, process::Command};

use store::redis::{client::Script, scripts};

fn all() -> [&'static Script; 8] {
    [
        &scripts::JOIN,
        &scripts::ENTER,
        &scripts::BEAT,
        &scripts::POLICY,
        &scripts::RESTORE,
        &scripts::ZONES,
        &scripts::DEFINE,
        &scripts::SERVERS,
    ]
    .map(|script| &**script)
}

/// Servers of two versions that share a Redis decide by different scripts: a change is one that both can live with, or
/// the keys' version changes with it.
const PINNED: [(&str, &str); 8] = [
    ("join", "10ba68619193074e182ad9a4e4697f98cb3891c6"),
    ("enter", "33a7043a8e068951be09eb7066a24619b7bec6a2"),
    ("beat", "ab2a69a1182ef96b99151e9023723d33c42cf917"),
    ("policy", "ee8830fb6abef237741e1678b59f1090beae7b82"),
    ("restore", "7d2dc2f64a9cdc192d3613540adca78e1984a5e7"),
    ("zones", "c5ee1974adc07dad6cb2eff98997c58472e024f3"),
    ("define", "d1fbc7d73dbcffb003266fcecad56479f8e8d6bc"),
    ("servers", "28121016408ba7d432d708a18e63b930c0fc957d"),
];

#[test]
fn scripts_change_only_on_purpose() {
    let now = all().map(|script| (script.name, script.sha1.as_str()));
    let listing: String = now.iter().map(|(name, sha1)| format!("    (\"{name}\", \"{sha1}\"),\n")).collect();
    assert!(now == PINNED, "a script has changed; if that is meant, PINNED is now\n{listing}");
}

/// The files are linted as Redis gets them, since each begins with `zone.lua` or `register.lua` and uses a part of it.
#[test]
fn luacheck_finds_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = all().map(|script| {
        let file = dir.path().join(script.name).with_extension("lua");
        std::fs::File::create(&file)
            .and_then(|mut out| out.write_all(script.text.as_bytes()))
            .expect("written");
        file
    });
    let checked = Command::new("luacheck")
        .args([
            "--no-config",
            "--no-cache",
            "--no-color",
            "--std",
            "lua51",
            "--no-unused",
            "--no-max-line-length",
        ])
        .args(["--read-globals", "redis", "KEYS", "ARGV", "struct", "--"])
        .args(files)
        .output()
        .unwrap_or_else(|error| panic!("luacheck does not start ({error}); apt-get install lua-check"));
    let told = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{told}{}", String::from_utf8_lossy(&checked.stderr));
}
