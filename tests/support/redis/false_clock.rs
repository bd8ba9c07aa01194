//! A wall clock that is wrong for one process: a small library, preloaded into it, that moves the time of the system.

use std::{
    ffi::OsString,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

const SOURCE: &str = include_str!("false_clock.c");

const LIBRARY: &str = "false_clock.so";

/// How far the clock may be from where it should be: a server may be slow to say the time.
const TOLERANCE_S: i64 = 30;

/// Compiles the library into a directory.
pub(super) fn compile(dir: &Path) {
    let source = dir.join("false_clock.c");
    std::fs::write(&source, SOURCE).expect("the temporary directory takes files");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let ended = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&dir.join(LIBRARY), &source])
        .status()
        .unwrap_or_else(|error| {
            panic!(
                "{} does not start ({error}); tests with a wrong clock need a C compiler: apt-get install gcc, or name one \
                 in CC",
                compiler.display()
            )
        });
    assert!(
        ended.success(),
        "{} did not compile the library of the wrong clock: {ended}",
        compiler.display()
    );
}

/// The environment of a process that is to have the wrong clock.
pub(super) fn environment(dir: &Path, ahead_s: i64) -> [(&'static str, OsString); 2] {
    [("LD_PRELOAD", dir.join(LIBRARY).into()), ("WEIR_CLOCK_AHEAD_S", ahead_s.to_string().into())]
}

/// Panics if a process that says `unix_s` is the time now has the clock of this machine.
pub(super) fn check(unix_s: i64, ahead_s: i64) {
    #[expect(clippy::disallowed_methods, reason = "it is compared with the wall clock of another process")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs().cast_signed();
    let ahead = unix_s - now;
    assert!(
        (ahead - ahead_s).abs() < TOLERANCE_S,
        "redis-server says a time that is {ahead} s ahead of this machine's, and should be {ahead_s} s ahead: the preloaded \
         library has no effect on it (is the binary linked statically?)"
    );
}
