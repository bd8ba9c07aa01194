//! The store in Redis through its trouble: real servers are killed, frozen, emptied and cut off while people wait, and an
//! auditor who listens to users and stores says whether a promise was broken.

mod auditor;
#[path = "../support/clock.rs"]
mod clock;
#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/seed.rs"]
mod seed;
mod trouble;
mod world;

use libtest_mimic::Arguments;

/// Each has a cluster and a crowd of its own, and mostly waits.
const AT_ONCE: usize = 4;

fn main() {
    // What the servers say of it: RUST_LOG=store=warn
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(AT_ONCE);
    let alone = Arguments { test_threads: Some(1), ..args.clone() };
    let conclusions =
        [libtest_mimic::run(&args, trouble::all()), libtest_mimic::run(&alone, trouble::broken_rules())];
    conclusions.iter().for_each(libtest_mimic::Conclusion::exit_if_failed);
}
