//! The store in Redis with failing servers: real servers are killed, frozen, emptied and cut off while people wait, the
//! network is divided, and clocks are wrong. An auditor checks from the reports of users and stores whether a promise was
//! broken.
//!
//! With the argument `--soak` it does nothing but 200 failovers, one after another, and prints what they cost.
#![recursion_limit = "256"]

mod auditor;
#[path = "../support/clock.rs"]
mod clock;
#[path = "../support/panics.rs"]
#[allow(dead_code, reason = "the simulations use the rest")]
mod panics;
#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/seed.rs"]
mod seed;
mod soak;
mod trouble;
mod world;

use std::{
    env,
    io::Write as _,
    process::{Command, ExitCode},
};

use libtest_mimic::Arguments;

/// How many scenarios run at once, beside one with a broken rule. Each has its own cluster and crowd, and mostly waits.
const AT_ONCE: usize = 3;

/// Tells the process that it runs the scenarios with broken rules. A rule is broken for a whole process.
const BREAKS_RULES: &str = "WEIR_CHAOS_BREAKS_RULES";

fn main() -> ExitCode {
    // RUST_LOG=store=warn shows the servers' messages.
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    if env::args().any(|arg| arg == "--soak") {
        return soak::command();
    }
    let mut args = Arguments::from_args();
    if env::var_os(BREAKS_RULES).is_some() {
        args.test_threads = Some(1);
        return libtest_mimic::run(&args, trouble::broken_rules()).exit_code();
    }
    args.test_threads.get_or_insert(AT_ONCE);
    let breaking = Command::new(env::current_exe().expect("this program"))
        .args(env::args_os().skip(1))
        .env(BREAKS_RULES, "")
        .spawn();
    panics::watch();
    let conclusion = libtest_mimic::run(&args, trouble::all());
    // A scenario that fails says so itself. A user, or a server's task, may end without that.
    let ended_unseen = !conclusion.has_failed() && panics::of_process() > 0;
    if ended_unseen {
        drop(writeln!(std::io::stderr(), "chaos: {} tasks panicked, see above", panics::of_process()));
    }
    let broken = breaking.and_then(|mut child| child.wait()).expect("this program runs once more");
    if broken.success() && !ended_unseen { conclusion.exit_code() } else { ExitCode::FAILURE }
}
