//! The output of a starting server is for people, and its commands work as pasted.

use std::{
    fs::{File, OpenOptions},
    io,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    admin,
    weir::{Setup, binary, without_variables, zone},
};

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

/// The exit code and the errors of a command whose standard output is closed.
fn closed(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" >&-", "sh"]).arg(binary()).args(args);
    let ended = without_variables(&mut command).output().expect("the binary runs");
    assert!(ended.stdout.is_empty());
    (ended.status.code(), String::from_utf8(ended.stderr).expect("UTF-8"))
}

/// A full disk, a reader that has gone, or nothing at all under standard output: each command says it, with its exit code.
pub(crate) fn output_that_cannot_be_written_is_a_failure() {
    let weir = Setup::new(&format!("[audit]\ndir = \"audit\"\n{}", zone("Z", 60, ""))).start();
    let (at, config) = (format!("--admin=http://{}", weir.admin), weir.setup().config_path());
    let config = format!("--config={}", config.to_str().expect("UTF-8"));
    let audit = weir.setup().dir().join("audit");
    let (audit, url) = (audit.to_str().expect("UTF-8"), "https://shop.example/");
    for args in [
        &["--help"][..],
        &["--version"],
        &["token", "new", "--name", "ada", "--role", "viewer"],
        &["openapi", "public"],
        &["openapi", "admin"],
        &["check-config", &config],
        &["doctor", &config],
        &["audit", "verify", audit],
        &["route", "explain", url, &config],
        &["stats", &at],
        &["zones", "list", &at, "-o", "json"],
        &["servers", &at],
    ] {
        let ended = |out: Stdio| {
            let mut command = Command::new(binary());
            let command = without_variables(command.args(args)).current_dir(weir.setup().dir()).stdout(out);
            let ended = command.stderr(Stdio::piped()).output().expect("the binary runs");
            (ended.status.code(), String::from_utf8(ended.stderr).expect("UTF-8"))
        };
        let full: File = OpenOptions::new().write(true).open("/dev/full").expect("Linux");
        let (code, said) = ended(full.into());
        assert_eq!(code, Some(74), "{args:?}: {said}");
        let told = "weir: standard output cannot be written: No space left on device";
        assert!(said.contains(told) && said.lines().count() == 1, "{args:?}: {said}");

        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let (code, said) = ended(writer.into());
        assert_eq!((code, said.as_str()), (Some(141), "weir: nobody reads the output\n"), "{args:?}");

        let (code, said) = closed(args);
        assert!(said.starts_with("weir: standard output is closed, so nothing was done"), "{args:?}: {said}");
        assert_eq!((code, said.lines().count()), (Some(74), 1), "{args:?}: {said}");
    }
    // Who wants no output says so, and may open /dev/null as programs do, for reading, too.
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").expect("Linux");
    for out in [Stdio::null(), null.into()] {
        let mut command = Command::new(binary());
        let ended = without_variables(command.args(["openapi", "admin"])).stdout(out).output();
        assert_eq!(ended.expect("the binary runs").status.code(), Some(0));
    }
    // A change is made, though nobody reads what it does.
    let (code, said) = closed(&["zones", "set", "Z", "mode=hold", &at]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let (_, shown, _) = admin::weir(&["zones", "show", "Z"], Some(&weir));
    assert!(shown.contains("mode = hold\n"), "{shown}");
}
