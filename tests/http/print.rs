//! The output of a starting server is for people, and its commands work as pasted.

use std::process::Command;

use serde_json::Value;

use crate::weir::Setup;

/// The server prints two lines of curl, and the second works after the first.
pub(crate) fn curl_lines_work_as_pasted() {
    let weir = Setup::new("").start();
    let printed = weir.stdout();
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|line| line.contains("curl ")).collect();
    assert_eq!(lines.len(), 2, "{printed}");
    assert!(!printed.contains('\x1b'), "no colours in a pipe: {printed:?}");
    for line in lines {
        let output = Command::new("sh").arg("-c").arg(line).output().expect("sh runs");
        assert!(output.status.success(), "{line}: {output:?}");
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(answer["canEnter"], true, "{line}: {answer}");
    }
    let data = weir.setup().data().display().to_string();
    assert!(printed.contains(&data), "where the data is: {printed}");
    assert!(printed.contains("TEST_ZONE"), "the zones: {printed}");
    let (_, page) = printed.split_once("or wait as people do: http://").expect("the waiting page");
    let path = page.trim().strip_prefix(&weir.public.to_string()).expect("at the public address");
    assert_eq!(weir.get(path).status, 200, "{path}");
}
