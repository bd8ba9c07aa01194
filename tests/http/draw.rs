//! `weir draw verify` over the running binary. What it verifies is tested in `crates/draw`.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::weir::binary;

/// The vectors of a draw: a record, and receipts.
fn vector(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/draw/tests/vectors").join(name);
    serde_json::from_slice(&fs::read(path).expect("a vector")).expect("JSON")
}

/// Runs `weir draw verify` in `dir`. Returns exit code, output and error.
fn verify(dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let ended = Command::new(binary()).args(["draw", "verify"]).args(args).current_dir(dir).output();
    let ended = ended.expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

pub(crate) fn a_record_and_receipts_are_verified() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let draw = vector("drand.json");
    let write = |name: &str, json: &Value| fs::write(dir.join(name), json.to_string()).expect("written");
    write("record", &draw["record"]);
    write("mine", &draw["receipts"][0]);
    write("gone", &draw["receipts"][1]);
    let mut forged = draw["receipts"][0].clone();
    forged["position"] = 1.into();
    assert_ne!(draw["receipts"][0]["position"], forged["position"]);
    write("forged", &forged);

    let key = draw["record"]["key"].as_str().expect("text");
    let (exit, out, err) = verify(dir, &["record", "mine", "gone", "--key", key]);
    assert_eq!((exit, err.as_str()), (Some(0), ""), "{out}");
    for expected in [
        "record: ok: the key is the one that you gave",
        "record: ok: the randomness is round 1000 of drand's quicknet",
        "mine: ok: place 0 has position",
        "gone: ok: place 2 has no position",
        "\neverything that was checked is right\n",
    ] {
        assert!(out.contains(expected), "{expected}: {out}");
    }

    let (exit, out, _) = verify(dir, &["record", "mine", "forged"]);
    assert_eq!(exit, Some(1));
    assert!(out.contains("forged: WRONG: ") && out.ends_with("\na receipt is wrong\n"), "{out}");
    assert!(out.contains("compare it with the key that the operator published"), "{out}");

    let (exit, out, _) = verify(dir, &["-o", "json", "record", "forged"]);
    let found: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((exit, &found[0]["right"], &found[1]["right"]), (Some(1), &true.into(), &false.into()));
    assert_eq!(found[1]["file"], "forged");

    let mut changed = draw["record"].clone();
    changed["places"] = "/x8=".into();
    write("changed", &changed);
    let (exit, out, _) = verify(dir, &["changed"]);
    assert!(
        exit == Some(1)
            && out.contains("not the list that was frozen")
            && out.ends_with("\nthe record is wrong\n"),
        "{out}"
    );

    let (exit, out, err) = verify(dir, &["record", "missing"]);
    assert!(exit == Some(2) && out.is_empty() && err.starts_with("weir: missing: "), "{err}");
    let (exit, _, err) = verify(dir, &["record", "--key", "x"]);
    assert!(exit == Some(64) && err.contains("it is not NAME+ID+KEY"), "{err}");
    fs::write(dir.join("hello"), "hello").expect("written");
    let (exit, out, _) = verify(dir, &["hello"]);
    assert!(exit == Some(1) && out.starts_with("hello: WRONG: the record: "), "{out}");

    // A source that would look like another line, or turn the writing around.
    let right = vector("right.json");
    let of_source =
        right.as_array().expect("files").iter().find(|file| file["about"].to_string().contains("U+202E"));
    write("source", &of_source.expect("a vector")["record"]);
    for args in [&["source"][..], &["-o", "json", "source"]] {
        let (exit, out, _) = verify(dir, args);
        assert!(exit == Some(0) && !out.contains(['\u{2028}', '\u{202e}']), "{out}");
        assert!(out.contains("few possible values"), "{out}");
    }

    fs::write(dir.join("long"), vec![b' '; 4_000_001]).expect("written");
    let (exit, out, _) = verify(dir, &["long"]);
    assert!(exit == Some(1) && out.contains("at most 4000000 are read"), "{out}");
}
